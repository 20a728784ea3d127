"""An answer is an input that is fetched once: what asks nobody, what asks whom, and that nothing else matters."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from orch23.model.llm import Exchange
from orch23.store.exchanges import Exchanges, exchange_text
from tests.e2e.pipelines import calls, ends, green, pipeline, prompt
from tests.model_program import ROOT
from tests.project import Outcome, Project, files_answer, scripted

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

_REPOSITORY = str(Path(__file__).parents[2])

STAGES = """\
  plan:
    inputs: [spec.md]
    outputs: [plan.txt]
    llm: {prompt: plan.j2, returns: text, transcripts: heard}
  code:
    foreach: {in: [one, two]}
    inputs: [plan.txt]
    outputs: ['out/${{ item }}.txt']
    llm: {prompt: code.j2, returns: files, transcripts: heard}
    verify: [{shell: 'grep -q good out/${{ item }}.txt'}]
    retry: 1
"""
BAD = """\
  bad:
    inputs: [spec.md]
    outputs: [bad.txt]
    llm: {prompt: bad.j2, returns: text, transcripts: heard}
    verify: [{shell: 'echo never good enough; false'}]
    retry: 1
  garbled:
    inputs: [spec.md]
    outputs: [garbled.json]
    llm: {prompt: garbled.j2, returns: json, transcripts: heard}
  after: {inputs: [bad.txt], outputs: [after.txt], shell: 'cp bad.txt after.txt'}
"""
FILES = {
    "spec.md": "a spec\n",
    "plan.j2": prompt("plan", "{{ inputs['spec.md'].text }}"),
    "code.j2": prompt(
        "code {{ item }}{% if brief %} again{% endif %}",
        """{{ {"summary": "s", "deletes": [], "error": none, "writes": [{"path": "out/" ~ item ~ ".txt", "content": """
        """inputs["plan.txt"].text ~ item ~ (" good" if brief else " poor")}]} | tojson }}""",
    ),
    "bad.j2": prompt("bad{% if brief %} again{% endif %}", "{{ inputs['spec.md'].text }}{{ attempt }}"),
    "garbled.j2": prompt("garbled", "{not json"),
}
ASKED = ["plan", "code one", "code one again", "code two", "code two again"]
ASKED_IN_VAIN = ["bad", "bad again", "garbled"]


def write(project: Project, stages: str = STAGES) -> Project:
    return project.write(pipeline(stages, FILES))


@pytest.fixture
def built(project: Project) -> Project:
    """Give a project that was built once: five calls, two of them revisions."""
    green(write(project).build("-j1"))
    assert calls(project) == ASKED
    return project


def forget(project: Project, *, lock: bool = True) -> None:
    """Leave of a project what is committed, with or without the lock file."""
    for folder in (".orch23", "logs"):
        shutil.rmtree(project.root / folder, ignore_errors=True)
    for path in ("plan.txt", "bad.txt", "out/one.txt", "out/two.txt"):
        (project.root / path).unlink(missing_ok=True)
    if lock:
        (project.root / "pipeline.lock").unlink(missing_ok=True)


def clone(project: Project, root: Path, *, lock: bool = True) -> Project:
    """Give a copy of what is committed, in another place."""
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns(".orch23", "logs"))
    found = Project(root)
    forget(found, lock=not lock)
    return found


def transcripts(project: Project) -> list[Path]:
    """Return the files of the transcripts, without those of their texts."""
    return sorted((project.root / "heard").glob("*.json"))


def transcript(path: Path) -> Exchange:
    """Return the exchange of a file of the transcripts, with its texts."""
    found = Exchanges(path.parent / "none", path.parents[1]).get(path.stem, "heard")
    assert found is not None
    return found


def asked_by(project: Project, act: Callable[[], Outcome]) -> list[str]:
    """Return who was asked while something was done."""
    before = len(calls(project))
    act()
    return sorted(calls(project)[before:])


def reported(outcome: Outcome) -> str:
    """Return what the screen said, without durations and the run's name."""
    text = re.sub(r" +\d+\.\d+s\b", " TIME", outcome.err)
    return re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?", "RUN", text)


def happened(project: Project) -> list[tuple[str, str]]:
    """Return what happened in the newest run, in order."""
    return [(event["type"], event["role"]) for event in project.events()]


def build_and_die(project: Project, stage: str, *argv: str) -> None:
    """Build in a child that dies as soon as the first new answer to a stage is on disk, before anyone sees it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the child runs only what follows
        child = os.fork()
    if child == 0:
        real = Exchanges.put

        def put(store: Exchanges, exchange: Exchange, transcripts: str | None) -> None:
            real(store, exchange, transcripts)
            if exchange.stage == stage and exchange.outcome == "pending":
                os._exit(137)

        setattr(Exchanges, "put", put)  # noqa: B010 - a method is not assigned to, as types have it
        try:
            project.build("-j1", *argv)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 137


# ---- one transcript, two places -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "code"),
    [pytest.param(STAGES, 0, id="green", marks=pytest.mark.slow), pytest.param(STAGES + BAD, 1, id="red")],
)
def test_two_builds_of_one_transcript_are_alike_to_the_byte(
    project: Project, tmp_path: Path, stages: str, code: int
) -> None:
    assert write(project, stages).build("-j1", "-k").code == code
    one, two = clone(project, tmp_path / "one", lock=False), clone(project, tmp_path / "a/much/deeper/two", lock=False)
    outcomes = [place.build("-j1", "-k", "--replay") for place in (one, two)]
    assert [outcome.code for outcome in outcomes] == [code, code]
    assert reported(outcomes[0]) == reported(outcomes[1])
    assert one.files() == two.files()
    assert one.files()["out/two.txt"] == project.files()["out/two.txt"]
    assert happened(one) == happened(two)
    assert calls(one) == calls(two) == []
    assert one.files("heard") == project.files("heard"), "a replay writes into no transcript"


@pytest.mark.slow
def test_as_many_jobs_as_there_are_change_no_byte(project: Project, tmp_path: Path) -> None:
    write(project, STAGES + BAD).build("-j1", "-k")
    one, two = clone(project, tmp_path / "one", lock=False), clone(project, tmp_path / "two", lock=False)
    assert one.build("-j1", "-k").code == two.build("-j8", "-k").code == 1
    assert one.files() == two.files()
    assert ends(one) == ends(two)


@pytest.mark.slow
def test_the_process_around_it_does_not_matter(project: Project, tmp_path: Path) -> None:
    write(project, STAGES + BAD).build("-j1", "-k")
    environments: list[tuple[dict[str, str], str]] = [
        ({"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}, "."),
        ({"PYTHONHASHSEED": "77", "TZ": "America/Lima", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}, "out"),
    ]
    found = []
    for number, (environ, folder) in enumerate(environments):
        place = clone(project, tmp_path / f"place{number}", lock=False)
        (place.root / folder).mkdir(exist_ok=True)
        process = subprocess.run(
            [sys.executable, "-m", "orch23", "-C", str(place.root), "build", "-j1", "-k", "--replay"],
            cwd=place.root / folder,
            env={"PATH": os.environ["PATH"], "HOME": str(place.home), "PYTHONPATH": _REPOSITORY, **environ},
            capture_output=True,
            check=False,
        )
        screen = reported(Outcome(process.returncode, "", process.stderr.decode()))
        screen = screen.encode("ascii", "replace").decode()
        found.append((process.returncode, re.sub(r"^ \S+ ", "", screen, flags=re.MULTILINE), place.files()))
    assert found[0][0] == found[1][0] == 1
    assert found[0][2] == found[1][2]


def test_a_clone_with_the_transcripts_builds_without_a_call(built: Project, tmp_path: Path) -> None:
    """With the lock file its results are placed again from the answers; without it the loop is gone through again."""
    for lock in (True, False):
        other = clone(built, tmp_path / f"lock-{lock}", lock=lock)
        green(other.build("-j1"))
        assert calls(other) == []
        assert other.read("out/two.txt") == built.read("out/two.txt")
        assert set(ends(other).values()) == ({"restored"} if lock else {"built"})


# ---- what costs nothing ------------------------------------------------------------------------------


def test_an_unchanged_failed_build_asks_no_one_fails_the_same_way_and_says_so(project: Project) -> None:
    first = write(project, STAGES + BAD).build("-j1", "-k")
    assert (first.code, sorted(calls(project))) == (1, sorted([*ASKED, *ASKED_IN_VAIN]))
    assert "no model call" not in first.err
    before = calls(project)
    second = project.build("-j1", "-k")
    assert (second.code, calls(project)) == (1, before)
    assert (
        "no model call: its 2 responses are recorded; `orch23 build --resample bad` calls the model again" in second.err
    )
    assert (
        "no model call: its 1 response is recorded; `orch23 build --resample garbled` calls the model again"
        in second.err
    )
    assert reported(second).count("never good enough") == reported(first).count("never good enough")
    failed = {e["role"]: e["data"]["kind"] for e in project.events_of("stage_finished") if e["data"]["kind"]}
    assert failed == {"bad": "verify_failed", "garbled": "llm_output_invalid"}


UNASKED = {
    "rename": ("  plan:\n", "  renamed:\n"),
    "more attempts": ("retry: 1", "retry: 4"),
    "a description": ("  plan:\n", "  plan:\n    desc: what it is for\n"),
    "a timeout": ("prompt: plan.j2,", "prompt: plan.j2, timeout: 77,"),
    "a budget": ("  plan:\n", "  plan:\n    stop_conditions: {max_llm_calls: 9}\n"),
    "what a failure does": ("  plan:\n", "  plan:\n    on_failure: keep\n"),
}


@pytest.mark.stride(5)
@pytest.mark.parametrize("change", UNASKED)
def test_what_the_model_does_not_see_asks_no_one(built: Project, change: str) -> None:
    old, new = UNASKED[change]
    built.replace("pipeline.yaml", old, new)
    assert asked_by(built, lambda: built.build("-j1")) == []
    forget(built)
    assert asked_by(built, lambda: built.build("-j1", "--replay")) == []
    assert built.read("out/two.txt") == "a spec\ntwo good"


ASKING: dict[str, tuple[str, str, list[str]]] = {
    "the model of one stage": ("prompt: plan.j2,", "prompt: plan.j2, model: other,", ["plan"]),
    "the prompt of one stage": ("prompt: plan.j2,", "prompt: plan2.j2,", ["plan"]),
    "the system prompt": ("prompt: plan.j2,", "prompt: plan.j2, system: system.md,", ["plan"]),
    "max_tokens": ("prompt: code.j2,", "prompt: code.j2, max_tokens: 100,", ASKED[1:]),
    "the program": ("prompt: plan.j2,", f"prompt: plan.j2, command: [{sys.executable}, -S, -E, model.py],", ["plan"]),
}


@pytest.mark.stride(2)
@pytest.mark.parametrize("change", ASKING)
def test_what_the_model_sees_asks_exactly_the_stages_that_it_touches(built: Project, change: str) -> None:
    old, new, asked = ASKING[change]
    built.write({"plan2.j2": FILES["plan.j2"] + "\n", "system.md": "be brief"})
    built.replace("pipeline.yaml", old, new)
    assert asked_by(built, lambda: built.build("-j1")) == sorted(asked)
    built.replace("pipeline.yaml", new, old)
    assert asked_by(built, lambda: built.build("-j1")) == [], "and back again costs nothing"


def test_another_provider_is_another_request(project: Project) -> None:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text", "transcripts": "heard"}}}
    project.write(scripted(stages, {"a": ["by hand"]}))
    green(project.build())
    (kept,) = sorted((project.root / "heard").glob("*.json"))
    assert "written by hand, no model was asked" in json.loads(kept.read_text())["provenance"]
    project.edit("pipeline.answers.yaml", json.dumps({"a": ["by another hand"]}))
    green(project.build("--force", "a"))
    assert project.read("a.txt") == "by another hand\n"
    assert len(list((project.root / "heard").glob("*.json"))) == 2


# ---- asking again ---------------------------------------------------------------------------------------


def counting(project: Project, stages: str) -> Project:
    """Write a pipeline whose model says how often it was asked: no answer is like another."""
    program = (
        "import json, os, pathlib, sys\n"
        "name = json.load(sys.stdin)['messages'][-1]['content'].split()[0]\n"
        f"root = {ROOT}\n"
        "log = pathlib.Path(root + '-calls.log')\n"
        "n = len(log.read_text().splitlines()) if log.exists() else 0\n"
        "if os.path.exists(root + '/broken'): sys.exit('no network')\n"
        "log.open('a').write(name + '\\n')\n"
        "print(name, n)\n"
    )
    return project.write({**pipeline(stages, {"a.j2": "a", "b.j2": "b {{ item }}"}), "model.py": program})


ONE = "  a: {outputs: [a.txt], llm: {prompt: a.j2, returns: text, transcripts: heard}}\n"
LOOP = (
    "  a:\n    outputs: [a.txt]\n    llm: {prompt: a.j2, returns: text, transcripts: heard}\n"
    "    verify: [{shell: 'grep -q [1379] a.txt'}]\n    retry: 3\n"
)
MANY = (
    "  b:\n    foreach: {in: [x, y]}\n    outputs: ['${{ item }}.txt']\n"
    "    llm: {prompt: b.j2, returns: text, transcripts: heard}\n"
)


def test_resampling_asks_again_each_time_and_a_clone_gets_the_last(project: Project, tmp_path: Path) -> None:
    green(counting(project, ONE).build())
    for number in (1, 2):
        green(project.build("--resample", "a"))
        assert project.read("a.txt") == f"a {number}\n"
        assert ends(project) == {"a": "built"}
    green(project.build())
    assert len(calls(project)) == 3
    for lock in (True, False):
        other = clone(project, tmp_path / f"lock-{lock}", lock=lock)
        green(other.build("--replay"))
        assert other.read("a.txt") == "a 2\n"
    kept = [transcript(path) for path in transcripts(project)]
    assert sorted((one.request["sample"], one.superseded) for one in kept) == [(0, True), (1, True), (2, False)]


def test_resampling_what_was_never_asked_asks_once(project: Project) -> None:
    green(counting(project, ONE).build("--resample", "a"))
    assert len(calls(project)) == 1
    green(project.build("--force", "a"))
    assert len(calls(project)) == 1


def test_resampling_a_loop_takes_new_samples_for_each_of_its_attempts(project: Project, tmp_path: Path) -> None:
    green(counting(project, LOOP).build())
    assert (project.read("a.txt"), len(calls(project))) == ("a 1\n", 2)
    green(project.build("--resample", "a"))
    assert (project.read("a.txt"), len(calls(project))) == ("a 3\n", 4)
    other = clone(project, tmp_path / "clone", lock=False)
    green(other.build("--replay"))
    assert other.read("a.txt") == "a 3\n"


def test_a_family_is_resampled_as_a_whole_or_by_the_item(project: Project) -> None:
    green(counting(project, MANY).build("-j1"))
    green(project.build("-j1", "--resample", "b@y"))
    assert (project.read("x.txt"), project.read("y.txt")) == ("b 0\n", "b 2\n")
    green(project.build("-j1", "--resample", "b"))
    assert (project.read("x.txt"), project.read("y.txt")) == ("b 3\n", "b 4\n")


def test_resampling_that_fails_leaves_the_recorded_answer_in_force(project: Project) -> None:
    green(counting(project, ONE).build())
    project.write({"broken": ""})
    assert project.build("--resample", "a").code == 5
    assert project.plan() == {"a": "fresh"}
    project.delete("broken")
    green(project.build("--force", "a", "--replay"))
    assert project.read("a.txt") == "a 0\n"


def test_resampling_whose_answers_all_fail_leaves_the_good_answer_in_force(project: Project, tmp_path: Path) -> None:
    loop = LOOP.replace("[1379]", "[19]").replace("retry: 3", "retry: 1")
    green(counting(project, loop).build())
    assert (project.read("a.txt"), len(calls(project))) == ("a 1\n", 2)
    assert project.build("--resample", "a").code == 1
    assert (project.read("a.txt"), len(calls(project))) == ("a 1\n", 4)
    assert project.plan() == {"a": "fresh"}
    other = clone(project, tmp_path / "clone", lock=False)
    green(other.build("--replay"))
    assert other.read("a.txt") == "a 1\n"
    assert project.build("--resample", "a").code == 1  # the calls 4 and 5
    assert project.build("--resample", "a").code == 1  # 6 and 7
    green(project.build("--resample", "a"))  # 8, and 9 passes
    assert (project.read("a.txt"), len(calls(project))) == ("a 9\n", 10)
    other = clone(project, tmp_path / "later", lock=False)
    green(other.build("--replay"))
    assert other.read("a.txt") == "a 9\n"


def test_items_with_the_same_question_share_one_answer(project: Project, tmp_path: Path) -> None:
    counting(project, MANY).write({"b.j2": "b"})
    green(project.build("-j8"))
    assert calls(project) == ["b"]
    assert project.read("x.txt") == project.read("y.txt") == "b 0\n"
    green(project.build("-j8", "--resample", "b"))
    assert len(calls(project)) == 2
    assert project.read("x.txt") == project.read("y.txt") == "b 1\n"
    other = clone(project, tmp_path / "clone", lock=False)
    green(other.build("--replay"))
    assert other.read("x.txt") == "b 1\n"


TWO = f"{ONE}  b: {{inputs: [a.txt], outputs: [b.txt], llm: {{prompt: b.j2, returns: text}}}}\n"


def test_resampling_after_an_interrupted_build_is_not_taken_for_the_rest_of_it(project: Project) -> None:
    """What an interrupted build got is taken by the next; but who then asks for a new answer gets a new one."""
    counting(project, TWO).write({"b.j2": "b"})
    build_and_die(project, "b")
    assert calls(project) == ["a", "b"]
    green(project.build("-j1", "--resample", "a"))
    assert calls(project) == ["a", "b", "a"]
    assert (project.read("a.txt"), project.read("b.txt")) == ("a 2\n", "b 1\n")


def test_an_interrupted_resampling_goes_on_with_what_it_paid_for(project: Project) -> None:
    green(counting(project, TWO).write({"b.j2": "b"}).build("-j1"))
    again = ("--resample", "a", "--resample", "b")
    build_and_die(project, "b", *again)
    assert calls(project) == ["a", "b", "a", "b"]
    green(project.build("-j1", *again))
    assert calls(project) == ["a", "b", "a", "b"]
    assert (project.read("a.txt"), project.read("b.txt")) == ("a 2\n", "b 3\n")
    green(project.build("-j1", *again))
    assert len(calls(project)) == 6, "that one came to its end: who asks for new answers now gets them"


# ---- no one is asked: replay and offline -------------------------------------------------------------------


@pytest.mark.parametrize(("flag", "code"), [("--replay", "E403"), ("--offline", "E423")])
def test_a_miss_names_the_first_difference_and_the_ways_forward(built: Project, flag: str, code: str) -> None:
    forget(built)
    green(built.build("-j1", flag))
    built.edit("spec.md", "another spec\n")
    missed = built.build("-j1", flag)
    assert missed.code == 5
    assert code in missed.err
    assert "the prompt differs at line 2: 'another spec' was 'a spec'" in missed.err
    assert f"without {flag}" in missed.err
    assert calls(built) == ASKED
    reported_ = built.run("explain", "plan").out
    assert (
        "not recorded; compared with the nearest one, the prompt differs at line 2: 'another spec' was 'a spec'"
        in reported_
    )
    built.edit("spec.md", "a spec\n")
    assert "the response is recorded in" in built.run("explain", "plan").out


def test_a_miss_of_another_model_says_which(built: Project) -> None:
    built.replace("pipeline.yaml", "prompt: plan.j2,", "prompt: plan.j2, model: other,")
    assert "the model is `other`, was `echo`" in built.build("--replay").err
    asked = built.run("explain", "plan", "--json").json()["request"]
    assert (asked["missing"], asked["difference"]) == (True, "the model is `other`, was `echo`")


def test_offline_answers_by_hand_go_on(project: Project) -> None:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text"}}}
    green(project.write(scripted(stages, {"a": ["by hand"]})).build("--offline"))
    assert project.read("a.txt") == "by hand\n"


def test_a_secret_in_a_recorded_prompt_is_not_reported_with_the_difference(built: Project) -> None:
    path = next(p for p in transcripts(built) if json.loads(p.read_text())["stage"] == "plan")
    kept = transcript(path)
    secret = "abcdef0123456789-very-secret"
    request = {**kept.request, "messages": [{"role": "user", "content": f"plan\n{secret}\n"}]}
    forget(built)
    path.unlink()
    other = Exchange(fingerprint="0" * 64, stage="plan", request=request, response="x")
    built.write({f"heard/{'0' * 64}.json": exchange_text(other)})
    missed = built.build("--replay", env={"MY_API_KEY": secret})
    assert missed.code == 5
    assert "differs at line 2" in missed.err
    assert "very-secret" not in missed.err


# ---- plans say what builds do --------------------------------------------------------------------------


def test_a_plan_knows_which_stages_ask_no_one(built: Project) -> None:
    def least(project: Project) -> dict[str, int]:
        return {one["stage"]: one["llm_calls"]["min"] for one in project.run("plan", "--json").json()["stages"]}

    forget(built)
    assert least(built)["plan"] == 0
    built.edit("spec.md", "another spec\n")
    assert least(built)["plan"] == 1
    assert asked_by(built, lambda: built.build("-j1", "plan")) == ["plan"]


# ---- on disk before anyone judges --------------------------------------------------------------------------


def test_killed_between_the_answer_and_its_judgement_the_next_build_takes_the_answer(project: Project) -> None:
    build_and_die(write(project), "plan")
    (kept,) = transcripts(project)
    assert transcript(kept).outcome == "pending"
    green(project.build("-j1"))
    assert calls(project) == ASKED
    assert transcript(kept).outcome == "accepted"


def test_a_transcript_with_the_marks_of_a_merge_stops_the_build_by_name(built: Project) -> None:
    path = min(transcripts(built))
    path.write_text(f"<<<<<<< HEAD\n{path.read_text()}=======\n{path.read_text()}>>>>>>> theirs\n")
    forget(built)
    outcome = built.build("-j1", "-k")
    assert outcome.code == 3
    assert f"heard/{path.name}" in outcome.err
    assert "git checkout --ours" in outcome.err


def test_transcripts_are_sorted_whole_and_one_a_request(built: Project) -> None:
    outcomes = []
    for path in transcripts(built):
        body = json.loads(path.read_text())
        assert list(body) == sorted(body)
        assert path.stem == body["fingerprint"]
        outcomes.append((body["stage"], body["outcome"]))
        assert body["request"]["sent"][0]["content"]
    assert sorted(outcomes) == [
        *((f"code@{item}", outcome) for item in ("one", "two") for outcome in ("accepted", "failed")),
        ("plan", "accepted"),
    ]
    assert len(outcomes) == len(ASKED)


def test_the_committed_answer_is_taken_before_the_local_one(built: Project) -> None:
    path = next(p for p in transcripts(built) if json.loads(p.read_text())["stage"] == "plan")
    body = transcript(path)
    path.write_text(exchange_text(replace(body, response="from a colleague\n")))
    green(built.build("-j1", "--force", "plan", "plan"))
    assert built.read("plan.txt") == "from a colleague\n"


def test_answers_of_files_may_be_replayed_too(project: Project) -> None:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "files", "transcripts": "heard"}}}
    project.write(scripted(stages, {"a": [files_answer({"a.txt": "x\n"})]}))
    green(project.build())
    forget(project)
    project.delete("a.txt")
    green(project.build("--replay"))
    assert project.read("a.txt") == "x\n"
