"""Promises of the five documents that no other story shows as a whole; docs/seeds.md says which test proves which."""

import hashlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import pytest

from orch23.engine.build import Build
from orch23.model.pipeline import FailureKind
from orch23.providers import registry
from tests.documents import read_state
from tests.doubles import FakeProvider, adapter_with
from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, proposing, shell
from tests.project import Project, files_answer, scripted

pytestmark = [
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]


def loop(
    project: Project, answer: str, *, verify: str = "grep -q good app.txt", more: str = "", head: str = ""
) -> None:
    """Write a pipeline of one stage: a model that answers to a spec, and a command that judges it."""
    project.write(
        pipeline(
            f"""\
  code:
    inputs: [spec.md]
    outputs: [app.txt]
    llm: {{prompt: p.md.j2, returns: text}}
    verify: [{{shell: '{verify}'}}]
{more}""",
            {"spec.md": "a spec\n", "p.md.j2": prompt("attempt {{ attempt }}{% if brief %} told{% endif %}", answer)},
            head=head,
        )
    )


def state_of(project: Project, run: str | None = None) -> dict[str, Any]:
    """Return what `state.json` of a run says, by default of the newest."""
    found = read_state(project.root / "logs" / (run or project.journals()[-1].stem) / "state.json")
    assert found is not None
    return dict(found)


def unlocked(project: Project) -> dict[str, bytes]:
    """Return all files but the lock file, which also names what failed."""
    return {path: data for path, data in project.files().items() if path != "pipeline.lock"}


# ---- configuration ---------------------------------------------------------------------------------


def test_a_pipeline_that_is_edited_during_a_build_changes_nothing_of_that_build(project: Project) -> None:
    project.write(
        shell(
            """\
  first: {inputs: [edit.sh], outputs: [a.txt], shell: [bash, edit.sh]}
  second: {inputs: [a.txt], outputs: [b.txt], shell: echo early > b.txt}
""",
            {"edit.sh": f"sed -i s/early/late/ {project.root}/pipeline.yaml; echo 1 > a.txt"},
        )
    )
    green(project.build("-j1"))
    assert "echo late" in project.read("pipeline.yaml")
    assert project.read("b.txt") == "early\n"
    assert project.plan() == {"first": "fresh", "second": "run"}, "the next build sees the edit"


@pytest.mark.parametrize("key", ["api_key: sk-1", "key: sk-1", "token: sk-1"])
def test_a_pipeline_has_no_place_for_a_key(project: Project, key: str) -> None:
    project.write(pipeline(f"  a: {{outputs: [a.txt], llm: {{prompt: p.md.j2, returns: text, {key}}}}}\n"))
    refused = project.build()
    assert refused.code == 65
    assert key.partition(":")[0] in refused.err


@pytest.mark.parametrize("spec", ["title: a\nsurprise: 1\n", "surprise: 1\n", "title: [\n", "- title\n"])
def test_a_spec_that_its_schema_does_not_fit_stops_the_build_before_anyone_is_asked(
    project: Project, spec: str
) -> None:
    schema = {"type": "object", "required": ["title"], "properties": {"title": {}}, "additionalProperties": False}
    project.write(
        pipeline(
            "  a: {inputs: [{path: spec.yaml, schema: s.json}], outputs: [a.txt], llm: {prompt: p, returns: text}}\n",
            {"spec.yaml": spec, "s.json": json.dumps(schema), "p": prompt("a", "answer")},
        )
    )
    refused = project.build()
    assert refused.code == 65
    assert "spec.yaml" in refused.err
    assert calls(project) == []
    project.edit("spec.yaml", "title: a\n")
    green(project.build())


# ---- logs and state --------------------------------------------------------------------------------


def test_each_run_has_a_log_of_its_own_to_which_lines_are_only_added(project: Project) -> None:
    peek = project.root.parent / "peek"
    peek.mkdir()
    copy = f"n=$(ls {peek} | wc -l); cat {project.root}/logs/*.jsonl > {peek}/$n; grep -q good app.txt"
    loop(project, "{{ 'good' if brief else 'bad' }}", verify=copy, more="    retry: 1\n")
    green(project.build("-j1"))
    (first,) = project.journals()
    whole = first.read_bytes()
    seen = [path.read_bytes() for path in sorted(peek.iterdir())]
    assert len(seen) == 2
    assert whole.startswith(seen[1])
    assert seen[1].startswith(seen[0])
    assert len(whole) > len(seen[1]) > len(seen[0]) > 0
    project.edit("spec.md", "another\n")
    green(project.build("-j1"))
    assert len(project.journals()) == 2
    assert first.read_bytes() == whole
    for line in whole.splitlines():
        entry = json.loads(line)
        assert {"ts", "level", "type", "role", "message", "data"} <= set(entry)
        assert datetime.fromisoformat(entry["ts"]).utcoffset() == timedelta(0)


def test_state_json_follows_a_run_to_its_end(project: Project) -> None:
    peek = project.root.parent / "peek"
    peek.mkdir()
    copy = f"cp {project.root}/logs/*/state.json {peek}/$(ls {peek} | wc -l).json; cat app.txt; grep -q good app.txt"
    loop(project, "bad {{ attempt }}", verify=copy, more="    retry: 1\n")
    assert project.build("-j1").code == 1
    first, second = (read_state(path) for path in sorted(peek.iterdir()))
    assert first is not None
    assert second is not None
    assert (first["phase"], first["state"], first["attempt"]) == ("generated", "TESTING", 0)
    assert (second["phase"], second["state"], second["attempt"]) == ("generated", "TESTING", 1)
    assert second["last_test_output"] == "bad 1\n"
    state = state_of(project)
    assert state["run_id"] == project.journals()[-1].stem
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", state["run_id"])
    assert (state["state"], state["phase"], state["attempt"], state["max_retries"]) == ("FAILED", "failed", 1, 1)
    assert (state["test_passed"], state["last_test_exit_code"]) == (False, 1)
    assert state["attempt_files"] == ["app.txt"]
    assert state["spec_file"] == "spec.md"
    assert state["spec_hash"] == "sha256:" + hashlib.sha256(b"a spec\n").hexdigest()
    assert state["last_error"]
    assert state["created_at"] < state["updated_at"]
    loop(project, "good")
    green(project.build("-j1"))
    state = state_of(project)
    assert (state["state"], state["phase"], state["last_error"]) == ("SUCCESS", "complete", None)


def test_a_spec_that_changed_is_a_fresh_start_and_an_unchanged_one_goes_on(project: Project, tmp_path: Path) -> None:
    same, other = project, Project(tmp_path / "other")
    asks = prompt("{{ inputs['spec.md'].text | trim }} {{ attempt }} {{ brief.kind if brief else '' }}", "bad")
    for one in (same, other):
        loop(one, "", more="    retry: 3\n", head=_ONE_CALL)
        one.write({"p.md.j2": asks})
        assert one.build().code == 4
    other.edit("spec.md", "another spec\n")
    assert (same.build().code, other.build().code) == (4, 4)
    assert calls(same) == ["a spec 1", "a spec 2 verify_failed"]
    assert calls(other) == ["a spec 1", "another spec 1"]
    states = [state_of(other, path.stem) for path in other.journals()]
    assert len({state["spec_hash"] for state in states}) == 2
    assert len({state["run_id"] for state in states}) == 2


_ONE_CALL = "stop_conditions: {max_llm_calls: 1}\n"


def test_a_damaged_state_json_harms_nothing_since_nothing_is_read_from_it(project: Project) -> None:
    loop(project, "good {{ attempt }}", head=_ONE_CALL)
    green(project.build())
    path = project.root / "logs" / project.journals()[-1].stem / "state.json"
    path.write_text('{"state": "NOWHERE"')
    assert read_state(path) is None
    assert project.plan() == {"code": "fresh"}
    green(project.build())
    assert calls(project) == ["attempt 1"]


@pytest.mark.parametrize(("there", "damage"), [(b'"seq"', b'"sEq"'), (b'Z","level"', b'0","level"'), (b'":1', b'":2')])
def test_a_damaged_journal_of_a_run_to_be_taken_up_stops_with_3_and_its_name(
    project: Project, there: bytes, damage: bytes
) -> None:
    loop(project, "good")
    green(project.build())
    (journal,) = project.journals()
    lines = journal.read_bytes().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if number and there in line)
    lines[number] = lines[number].replace(there, damage, 1)
    journal.write_bytes(b"".join(lines[:-1]))
    project.edit("spec.md", "another\n")
    before = project.files()
    stopped = project.build()
    assert stopped.code == 3
    assert f"logs/{journal.name}:{number + 1}" in stopped.err
    assert "orch23 reset" in stopped.err
    assert project.files() == before
    assert calls(project) == ["attempt 1"]
    green(project.run("reset"))
    green(project.build())


def test_reset_leaves_logs_and_specs_as_they_are(project: Project) -> None:
    loop(project, "good")
    project.write({"specs/app.md": "an app\n"})
    green(project.build())
    logs = {path: path.read_bytes() for path in (project.root / "logs").rglob("*") if path.is_file()}
    assert len(logs) >= 4
    green(project.run("reset", "--outputs"))
    assert not project.exists("app.txt")
    assert (project.read("specs/app.md"), project.read("spec.md")) == ("an app\n", "a spec\n")
    assert {path: path.read_bytes() for path in (project.root / "logs").rglob("*") if path.is_file()} == logs


def test_each_attempt_leaves_what_it_was_asked_what_it_answered_and_what_came_of_it(project: Project) -> None:
    loop(project, "{{ 'good' if attempt == 3 else 'bad' ~ attempt }}", verify="cat app.txt; grep -q good app.txt")
    project.replace("pipeline.yaml", "    verify:", "    retry: 3\n    verify:")
    green(project.build())
    folder = project.root / "logs" / project.journals()[-1].stem / "code"
    assert sorted(path.name for path in folder.iterdir()) == ["attempt-1", "attempt-2", "attempt-3"]
    for number, answer in (1, "bad1"), (2, "bad2"), (3, "good"):
        kept = {path.name: path.read_text() for path in (folder / f"attempt-{number}").iterdir()}
        assert kept["prompt.txt"].startswith(f"attempt {number}")
        assert kept["response.txt"] == answer
        assert ("failure.txt" in kept) == (number < 3)
        if number < 3:
            assert kept["failure.txt"].startswith("verify: exited with 1\n$ ")
            assert answer in kept["failure.txt"]
    reported = [event["data"] for event in project.events_of("attempt_finished")]
    assert [(one["attempt"], one["passed"], one["kind"], one["exit_code"]) for one in reported] == [
        (1, False, "verify_failed", 1),
        (2, False, "verify_failed", 1),
        (3, True, "", 0),
    ]
    assert [event["data"]["files"] for event in project.events_of("files_proposed")] == [["app.txt"]] * 3
    assert [event["data"]["passed"] for event in project.events_of("check_result")] == [False, False, True]


def test_the_lock_file_names_the_bytes_of_what_passed(project: Project) -> None:
    loop(project, "good")
    green(project.build())
    assert hashlib.sha256(project.files()["app.txt"]).hexdigest() in project.read("pipeline.lock")


def test_a_bug_in_the_middle_of_a_build_leaves_the_workspace_and_the_log(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(project, "good", more="  after: {inputs: [app.txt], outputs: [b.txt], shell: cp app.txt b.txt}\n")
    green(project.build())
    before = project.files()
    project.replace("p.md.j2", "good", "good again")
    changed = project.files()
    real: Callable[..., Any] = Build._finish

    def broken(self: Build, *arguments: Any) -> None:
        message = "unforeseen"
        raise RuntimeError(message)

    monkeypatch.setattr(Build, "_finish", broken)
    assert project.build().code == 70
    assert project.files() == changed
    assert project.files()["app.txt"] == before["app.txt"]
    assert project.events_of("files_proposed"), "what was done until then is in the log"
    assert len(list((project.root / "logs").glob("crash-*.txt"))) == 1
    monkeypatch.setattr(Build, "_finish", real)
    green(project.build())
    assert project.read("b.txt") == "good again\n"
    assert calls(project) == ["attempt 1", "attempt 1"], "the answer that was paid for is taken up"


# ---- the loop --------------------------------------------------------------------------------------


_WAITING = {"sleep", "acquire", "select", "poll", "sigwait", "sigtimedwait", "pause", "waitpid", "SimpleQueue.get"}
"""What makes a thread wait, of the functions that are not written in Python."""


@contextmanager
def waits_of(stage: str) -> Iterator[list[str]]:
    """Note each call by which the thread of a stage waits, for a time or for another thread."""
    waits: list[str] = []
    watched: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event != "c_call" or threading.current_thread().name != f"orch23-stage-{stage}":
            return
        watched.append(arg.__name__)
        # `_is_owned` of a condition asks for its lock without waiting.
        may_wait = frame.f_code.co_name != "_is_owned" and not frame.f_code.co_filename.startswith("<frozen")
        if may_wait and {arg.__name__, arg.__qualname__} & _WAITING:
            waits.append(f"{arg.__qualname__} in {frame.f_code.co_filename}")

    threading.setprofile(note)
    try:
        yield waits
    finally:
        threading.setprofile(None)
    assert watched, f"no thread worked on {stage}"


def test_an_attempt_follows_a_failed_one_at_once(project: Project) -> None:
    stage = {"outputs": ["a.json"], "inputs": ["s.json"], "llm": {"returns": "json"}, "retry": 5}
    stage["verify"] = [{"check": "json_schema", "with": {"schema": "s.json"}}]
    project.write(scripted({"code": stage}, {"code": [*(str(n) for n in range(5)), '"done"']}))
    project.write({"s.json": '{"type": "string"}'})
    with waits_of("code") as waits:
        green(project.build())
    kinds = [e["type"] for e in project.events() if e["role"] == "code"]
    assert kinds.count("attempt_started") == 6
    assert waits == []
    for here, there in itertools.pairwise(kinds):
        assert here != "attempt_finished" or there in ("attempt_started", "promoted", "stage_finished")


def test_every_step_of_a_verification_gives_a_result_in_its_order_whatever_became_of_the_others(
    project: Project,
) -> None:
    schema = "check: json_schema, with: {schema: s.json, files: [a.json]}"
    project.write(
        shell(
            f"""\
  make:
    inputs: [s.json]
    outputs: [a.json]
    timeout: 1
    shell: echo 1 > a.json
    verify:
      all: true
      steps:
        - {{shell: exit 3}}
        - {{shell: [no-such-program-of-any-kind]}}
        - {{{schema}}}
        - {{shell: sleep 60}}
        - {{shell: kill -9 $$}}
        - {{shell: grep -q 1 a.json}}
""",
            {"s.json": '{"type": "string"}'},
        )
    )
    assert project.build().code == 1
    results = [(e["data"]["step"], e["data"]["passed"]) for e in project.events_of("check_result")]
    assert results == [
        ("check json_schema", False),
        ("exit 3", False),
        ("no-such-program-of-any-kind", False),
        ("sleep 60", False),
        ("kill -9 $$", False),
        ("grep -q 1 a.json", True),
    ]


@pytest.mark.parametrize("first", ["exit 1", "'true'"])
def test_a_step_that_leaves_its_bounds_is_a_safety_violation_whatever_else_failed(project: Project, first: str) -> None:
    steps = f"[{{shell: {first}}}, {{shell: ln -s /etc/passwd link}}]"
    stage = f"{{outputs: [a], shell: echo a > a, retry: 3, verify: {{all: true, steps: {steps}}}}}"
    project.write(shell(f"  make: {stage}\n"))
    assert project.build().code == 2
    assert len(project.events_of("attempt_started")) == 1, "no further attempt follows it"


def test_what_was_refused_is_neither_written_nor_verified(project: Project) -> None:
    mixed = proposing("code", {"src/good.py": "'x = 1\\n'", "elsewhere.py": "'x = 1\\n'"})
    project.write(
        pipeline(
            f"""\
  code:
    outputs: [src/good.py]
    allowed_paths: {{write: [src/]}}
    llm: {{prompt: p.md.j2, returns: files}}
    verify: {{first: off, steps: [{{shell: '{note(project, "verified")}'}}]}}
""",
            {"src/good.py": "x = 0\n", "p.md.j2": mixed},
        )
    )
    before = project.files()
    assert project.build().code == 1
    assert noted(project) == []
    assert unlocked(project) == before
    assert project.events_of("check_result") == []
    project.edit("p.md.j2", proposing("code", {"src/good.py": "'x = 1\\n'"}))
    green(project.build())
    assert noted(project) == ["verified"]


def test_a_model_that_says_that_it_cannot_changes_nothing_and_ends_the_run(project: Project) -> None:
    error = '{"status": "error", "reason": "b.py is not among the artifacts"}'
    project.write(
        pipeline(
            """\
  task:
    foreach: {in: [one, two], order: sequential}
    outputs: [a.py]
    llm: {prompt: p.md.j2, returns: files}
    retry: 2
""",
            {"a.py": "# mine\n", "p.md.j2": prompt("task {{ item }}", error)},
        )
    )
    before = project.files()
    stopped = project.build()
    assert stopped.code == 1
    assert "E217" in stopped.err
    assert "b.py is not among the artifacts" in stopped.err
    assert unlocked(project) == before
    assert calls(project) == ["task one"]
    assert ends(project) == {"task@one": "failed", "task@two": "blocked"}


def test_conditions_stand_between_verification_and_acceptance_where_the_author_puts_them(project: Project) -> None:
    steps = "[{shell: 'true'}, {ensures: {file_exists: src/b.py}}, {commands: {from: [python -V], allow: [python]}}]"
    stage = "{outputs: [src/], retry: 1, llm: {prompt: p.md.j2, returns: files}, verify: STEPS}"
    answer = proposing("code", {"src/a.py": "'x = 1\\n'"}).partition("\n")[2]
    both = proposing("code", {"src/a.py": "'x = 1\\n'", "src/b.py": "'x = 1\\n'"}).partition("\n")[2]
    said = prompt("code {{ brief.kind if brief else '' }}", f"{{% if brief %}}{both}{{% else %}}{answer}{{% endif %}}")
    project.write(pipeline(f"  code: {stage}\n".replace("STEPS", steps), {"p.md.j2": said}))
    green(project.build())
    results = [(e["data"]["step"], e["data"]["passed"]) for e in project.events_of("check_result")]
    assert results == [
        ("true", True),
        ("ensures", False),
        ("true", True),
        ("ensures", True),
        ("commands (1)", True),
    ]
    assert calls(project) == ["code", "code verify_failed"]


# ---- many stages -----------------------------------------------------------------------------------

LAYERS = """\
  layer:
    foreach: {from: "plan.json#/layers", key: id, as: l, needs: after, order: sequential}
    inputs: ["plan.json#/layers/[id=${{ l.id }}]"]
    outputs: ["out/${{ l.id }}.txt"]
    llm: {prompt: p.md.j2, returns: text}
    retry: 2
    verify: [{shell: [bash, -c, "echo $0 >> NOTES; grep -q good out/$0.txt", "${{ l.id }}"]}]
"""


def layers(project: Project, **answers: str) -> None:
    ids = list(answers)
    plan = [{"id": one, "after": ids[:number], "says": answers[one]} for number, one in enumerate(ids)]
    project.write(
        pipeline(
            LAYERS.replace("NOTES", f"{project.root}-notes.log"),
            {
                "plan.json": json.dumps({"layers": plan}),
                "p.md.j2": prompt("{{ item.id }}{% if brief %} again{% endif %}", "{{ item.says }} {{ attempt }}"),
            },
        )
    )


def test_only_the_failing_layer_is_tried_again_and_its_failure_ends_the_run(project: Project) -> None:
    layers(project, models="good", services="poor", routes="good")
    assert project.build("-j1").code == 1
    assert calls(project) == ["models", "services", "services again", "services again"]
    assert ends(project) == {"layer@models": "built", "layer@services": "failed", "layer@routes": "blocked"}
    project.replace("plan.json", "poor", "good")
    green(project.build("-j1"))
    assert calls(project)[4:] == ["services", "routes"], "a layer that succeeded is not run again"
    assert ends(project)["layer@models"] == "fresh"


def test_only_what_is_made_again_is_verified_again(project: Project) -> None:
    layers(project, models="good", services="good", routes="good")
    green(project.build("-j1"))
    assert noted(project) == ["models", "services", "routes"]
    project.replace("plan.json", '"services", "after": ["models"], "says": "good"', _LOUDER)
    green(project.build("-j1"))
    assert noted(project)[3:] == ["services"]
    assert {role: status for role, status in ends(project).items() if status != "fresh"} == {"layer@services": "built"}


_LOUDER = '"services", "after": ["models"], "says": "good!"'


def test_items_in_sequence_are_never_under_way_together(project: Project) -> None:
    log = f"{project.root}-notes.log"
    project.write(
        shell(
            f"""\
  task:
    foreach: {{in: [c, a, b], order: sequential}}
    shell: [bash, -c, 'echo begin $0 >> {log}; sleep 0.05; echo end $0 >> {log}', "${{{{ item }}}}"]
"""
        )
    )
    green(project.build("-j8"))
    assert noted(project) == [f"{when} {name}" for name in "cab" for when in ("begin", "end")]


# ---- who is asked, and what --------------------------------------------------------------------------


def test_no_one_but_an_llm_stage_asks_a_model(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = FakeProvider(["said\n"])
    doubles = {name: adapter_with(name, make=lambda *_: asked, ready=lambda *_: ()) for name in registry.ADAPTERS}
    monkeypatch.setattr(registry, "ADAPTERS", doubles)
    without = """\
  page: {inputs: [in.txt], outputs: [page.txt], render: {template: page.j2}}
  copy: {inputs: [page.txt], outputs: [copy.txt], shell: cp page.txt copy.txt, retry: 1}
  tests: {inputs: [test_it.py, copy.txt], pytest: {paths: [test_it.py]}}
"""
    files = {
        "in.txt": "x",
        "page.j2": "{{ inputs[0].text }}!",
        "test_it.py": "def test_it():\n    assert open('copy.txt').read() == 'x!'\n",
    }
    project.write(pipeline(without, files))
    green(project.build())
    assert project.read("page.txt") == "x!"
    assert asked.requests == []
    project.write(pipeline(without + "  ask: {outputs: [a.txt], llm: {prompt: p, returns: text}}\n", {"p": "say"}))
    green(project.build())
    assert len(asked.requests) == 1


def test_a_model_is_shown_its_prompt_and_nothing_else_of_the_project(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = FakeProvider([files_answer({"src/a.py": "x = 1\n"}), files_answer({"src/a.py": "x = 2\n"})])
    adapter = adapter_with("command", make=lambda *_: asked)
    monkeypatch.setattr(registry, "ADAPTERS", {**registry.ADAPTERS, "command": adapter})
    stage = """\
  code:
    inputs: ["intent.json#/entities"]
    outputs: [src/a.py]
    llm: {prompt: p.j2, system: s.j2, returns: files}
    retry: 1
    verify: {inputs: [hidden_test.sh], steps: [{shell: [sh, hidden_test.sh]}]}
"""
    shown = (
        "{% for one in inputs %}{{ one.path }}={{ one.text }}\n{% endfor %}{% if brief %}{{ brief.kind }}{% endif %}"
    )
    files = {
        "intent.json": '{"entities": ["task"], "secret_plan": "unseen"}',
        "other.py": "unseen = 1\n",
        "src/b.py": "unseen = 1\n",
        "hidden_test.sh": "grep -q 'x = 2' src/a.py # unseen\n",
    }
    project.write(pipeline(stage, {**files, "p.j2": shown, "s.j2": "be brief"}))
    green(project.build())
    first, second = asked.requests
    assert [message.content for message in first.messages] == ['intent.json=["task"]\n']
    assert [message.content for message in second.messages] == ['intent.json=["task"]\nsrc/a.py=x = 1\n\nverify_failed']
    assert first.system == second.system == "be brief"
    assert "unseen" not in repr((first, second))


NAMED = [
    *("preflight", "exception", "llm_output_invalid", "write_scope_violation", "stale_context"),
    *("verify_failed", "acceptance_failed"),
]


def test_the_kinds_of_failures_are_those_that_are_named_but_one_and_three_more(project: Project) -> None:
    """Nothing is written while an attempt is judged, so none fails by `write_failed`, and `when` does not know it.

    Nor does `when` know `rejected`: a user who rejects a result grants another attempt.
    """
    assert sorted(get_args(FailureKind)) == sorted([*NAMED, "timeout", "agent_error", "rejected"])
    unknown = ("write_failed", "out_of_luck", "rejected")
    for kind, code in [*((one, 0) for one in NAMED), *((one, 65) for one in unknown)]:
        project.write(shell(f"  a: {{shell: 'true', retry: {{max: 1, when: [{kind}]}}}}\n"))
        assert project.run("validate").code == code, kind


def _failing(kind: str) -> tuple[dict[str, Any], str]:
    """Return a stage that fails by a kind, and what its model answers, if it asks one."""
    model = {"outputs": ["a.py"], "llm": {"returns": "files"}}
    given = {"files": {"a.py": "x = 1\n"}}
    stale = {"writes": [{"path": "a.py", "base_sha256": "0" * 64, "content": "x = 1\n"}]}
    commands = [{"commands": {"from": ["python -c 'raise SystemExit(1)'"], "allow": ["python"]}}]
    cases: dict[str, tuple[dict[str, Any], object]] = {
        "preflight": ({**model, "requires": {"file_exists": "nowhere"}}, given),
        "exception": ({"outputs": ["a.py"], "shell": ["true", "x" * 200_000]}, ""),  # more than the kernel takes
        "llm_output_invalid": (model, {"files": {"a.py": "x = ("}}),
        "write_scope_violation": (model, {"files": {"b.py": "x = 1\n"}}),
        "stale_context": (model, stale),
        "verify_failed": ({**model, "verify": [{"shell": "exit 1"}]}, given),
        "acceptance_failed": ({**model, "verify": commands}, given),
        "timeout": ({"outputs": ["a.py"], "shell": "sleep 60", "timeout": 0.2}, ""),
        "agent_error": (model, {"status": "error", "reason": "it cannot be done"}),
    }
    stage, answer = cases[kind]
    return stage, json.dumps(answer)


@pytest.mark.parametrize("kind", [*NAMED, "timeout", "agent_error"])
def test_each_kind_of_failure_is_reported_as_that(project: Project, kind: str) -> None:
    stage, answer = _failing(kind)
    project.write(scripted({"a": {**stage, "retry": 0}}, {"a": [answer]}))
    assert project.build().code == 1
    (end,) = project.events_of("stage_finished")
    assert (end["data"]["status"], end["data"]["kind"]) == ("failed", kind)
