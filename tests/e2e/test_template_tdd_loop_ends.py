"""The template `tdd_loop` ends as its documents promise: by which number, in which state, with what on the disk."""

import json
import os
import signal
import subprocess
import sys

import pytest

from orch23.load.pipeline import load_pipeline
from orch23.model.pipeline import Stage
from tests.e2e.pipelines import REACHING_OUTSIDE, green, what_came
from tests.e2e.tdd_loop import (
    PATCH,
    PATCH_TEXT,
    PIPELINE,
    PLACE,
    RED,
    RED_TEXT,
    code_answers,
    shown_request,
    state,
    with_tests,
)
from tests.e2e.templates import HERE, asked
from tests.openai_server import OpenAIServer, chat
from tests.project import Project

pytestmark = [
    pytest.mark.needs("templates"),
    pytest.mark.slow,
    pytest.mark.needs("vendors"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds: `make test` runs them, `make check` does not

_PROGRAM = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"


@pytest.fixture
def tdd(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return with_tests(project, tmp_path_factory)


@pytest.mark.stride(2)
@pytest.mark.parametrize("retries", [0, 3])
def test_max_retries_n_means_n_patches_after_the_first_answer(tdd: Project, retries: int) -> None:
    code_answers(tdd, *[json.dumps({**RED, "src/n.py": f"N = {n}\n"}) for n in range(9)])
    failed = tdd.build(PIPELINE, "--set", f"max_retries={retries}")
    assert failed.code == 1
    assert asked(tdd).count("code") == retries + 1
    assert not tdd.exists(f"{PLACE}/src")
    reported = state(tdd)
    assert (reported["state"], reported["phase"], reported["retry_count"], reported["max_retries"]) == (
        "FAILED",
        "failed",
        retries,
        retries,
    )


def test_max_retries_is_that_of_the_loop_also_if_it_had_nothing_to_do_or_did_not_begin(tdd: Project) -> None:
    green(tdd.build(PIPELINE, "--set", "max_retries=1"))  # the stage `tests` has 2 retries
    green(tdd.build(PIPELINE, "--set", "max_retries=1"))
    assert (state(tdd)["attempt"], state(tdd)["max_retries"]) == (0, 1)
    tdd.write({f"{PLACE}/src/foreign.txt": ""})
    assert tdd.build(PIPELINE, "--set", "max_retries=0", "-f", "code").code == 1
    assert (state(tdd)["attempt"], state(tdd)["max_retries"], state(tdd)["state"]) == (0, 0, "FAILED")


def test_max_retries_above_50_is_reduced_with_a_warning_and_below_0_refused(tdd: Project) -> None:
    green(tdd.build(PIPELINE))
    reduced, refused = (tdd.build(PIPELINE, "--set", f"max_retries={value}") for value in ("99", "-1"))
    assert (reduced.code, refused.code) == (0, 65)
    assert "warning[W801]: `max` is 99; 50 is used" in reduced.err
    assert "error[E812]: `max` is `-1`; the minimum is 0" in refused.err


def test_five_patches_are_the_default(tdd: Project) -> None:
    code_answers(tdd, *[json.dumps({**RED, "src/n.py": f"N = {n}\n"}) for n in range(9)])
    assert tdd.build(PIPELINE).code == 1
    assert asked(tdd).count("code") == 6


def served(tdd: Project, *answers: str) -> OpenAIServer:
    """Return a server of these responses; one that begins with `cut` is cut off. One test is the user's."""
    for path in tdd.files("specs/tdd_loop/tests"):
        tdd.delete(path)
    test = "from textstats import words\n\n\ndef test_it():\n    assert words.N == 9\n"
    tdd.write({"specs/tdd_loop/tests/textstats/test_own.py": test})
    texts = [one.removeprefix("cut ") for one in answers]
    replies = [chat(t, "length" if a.startswith("cut ") else "stop") for a, t in zip(answers, texts, strict=True)]
    server = OpenAIServer(*replies)
    scripted = "    provider: scripted\n    model: scripted\n    answers: pipelines/tdd_loop.answers.yaml\n"
    tdd.replace(PIPELINE, scripted, f"    provider: openai\n    base_url: {server.url}\n    model: m\n")
    tdd.edit(PIPELINE, f"{tdd.read(PIPELINE)}prices: {{m: 0}}\n")
    return server


def words(number: int, more: str = "") -> str:
    return json.dumps({"src/textstats/__init__.py": "", "src/textstats/words.py": f"N = {number}{more}\n"})


@pytest.mark.parametrize(
    ("answers", "retries", "requests", "code"),
    [
        (["cut {one", "cut {two", words(1), words(2), words(9)], 3, 4, 1),
        (["cut {one", words(9)], 1, 2, 0),
        ([words(1), "cut {one", words(9)], 3, 3, 0),
        (["cut {one", words(9)], 0, 1, 1),
    ],
    ids=["all_used_up", "cut_first", "cut_while_patching", "no_retry"],
)
def test_a_response_that_is_cut_off_is_one_of_the_calls_that_max_retries_allows(
    tdd: Project, answers: list[str], retries: int, requests: int, code: int
) -> None:
    options = ("--set", f"max_retries={retries}", "--set", "write_tests=false")
    with served(tdd, *answers) as server:
        planned = tdd.run("plan", PIPELINE, *options)
        assert f"LLM calls {f'1 to {retries + 1}' if retries else '1'} " in planned.out + planned.err
        assert tdd.build(PIPELINE, *options).code == code
        assert len(server.asked) == requests


def test_after_a_response_that_is_cut_off_the_request_has_the_current_files_and_that_failure(tdd: Project) -> None:
    """It has no output of pytest: nothing was tested since."""
    with served(tdd, words(1), "cut {one", words(9)):
        green(tdd.build(PIPELINE, "--set", "write_tests=false"))
    patch, after_cut = (shown_request(tdd, "code", attempt) for attempt in (2, 3))
    assert "N = 1" in patch
    assert "assert 1 == 9" in patch
    assert "N = 1" in after_cut
    assert "E219" in after_cut
    assert "assert 1 == 9" not in after_cut


@pytest.mark.parametrize("answer", [words(1), "cut {one"], ids=["files", "cut_off"])
def test_equal_bytes_again_end_the_loop_and_other_bytes_with_the_same_failure_do_not(tdd: Project, answer: str) -> None:
    options = ("--set", "write_tests=false")
    with served(tdd, words(2), words(3), answer, *[answer] * 6) as server:
        failed = tdd.build(PIPELINE, *options)
        assert (failed.code, len(server.asked)) == (1, 4)
        assert "this response was made before" in failed.err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "E203"),
        ("{}", "E2"),
        ("Here is your code!", "E201"),
        ('{"status": "error", "reason": "the spec contradicts itself"}', "the spec contradicts itself"),
    ],
    ids=["nothing", "no_files", "prose", "an_error"],
)
@pytest.mark.parametrize("patching", [False, True], ids=["generating", "patching"])
def test_no_output_and_errors_of_generation_and_patching_end_it_at_once(
    tdd: Project, answer: str, said: str, patching: bool
) -> None:
    code_answers(tdd, *([RED_TEXT] if patching else []), answer, PATCH_TEXT)
    failed = tdd.build(PIPELINE)
    assert failed.code == 1
    assert asked(tdd).count("code") == 1 + patching
    reported = state(tdd)
    assert reported["state"] == "FAILED"
    assert said in reported["last_error"]
    assert not tdd.exists(f"{PLACE}/src")


def test_a_provider_that_fails_is_an_error_of_generation(tdd: Project) -> None:
    code_answers(tdd)
    failed = tdd.build(PIPELINE)
    assert failed.code == 1
    reported = state(tdd)
    assert reported["state"] == "FAILED"
    assert "there is no scripted response" in reported["last_error"]


def test_a_fault_of_the_configuration_is_no_error_of_generation(tdd: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tdd.build(PIPELINE, "--set", "spec=specs/gone.yaml").code == 65
    hosted = ("--provider", "openai", "--model", "gpt-5.2")
    keyless = tdd.build(PIPELINE, *hosted)
    assert (keyless.code, "E412" in keyless.err) == (78, True)
    monkeypatch.setitem(sys.modules, "openai", None)
    missing = tdd.run("build", PIPELINE, *hosted, env={"OPENAI_API_KEY": "sk-none"})
    assert (missing.code, "E413" in missing.err) == (78, True)


@pytest.mark.parametrize(
    "path", ["../escape.py", "src/../../../escape.py", "/tmp/escape.py", "~/escape.py"], ids=lambda path: path[:3]
)
@pytest.mark.parametrize("patching", [False, True], ids=["generating", "patching"])
def test_a_path_that_leads_out_of_the_workspace_ends_with_2(tdd: Project, path: str, patching: bool) -> None:
    code_answers(tdd, *([RED_TEXT] if patching else []), json.dumps({path: "x = 1\n"}), PATCH_TEXT)
    before = tdd.files()
    failed = tdd.build(PIPELINE)
    assert failed.code == 2
    assert state(tdd)["state"] == "FAILED"
    assert "E205" in state(tdd)["last_error"]
    assert tdd.files() == before


def test_code_cannot_make_a_link_out_of_the_workspace_while_it_is_tested(tdd: Project) -> None:
    link = 'import os\n\nos.symlink("/etc", "out")\n'
    code_answers(tdd, json.dumps({**RED, "src/textstats/words.py": link + RED["src/textstats/words.py"]}))
    assert tdd.build(PIPELINE, "--set", "max_retries=0").code == 1
    assert asked(tdd).count("code") == 1
    assert state(tdd)["state"] == "FAILED"
    assert "[E323]" in state(tdd)["last_error"]
    assert not tdd.exists(f"{PLACE}/src")


def test_the_patcher_cannot_change_the_tests(tdd: Project) -> None:
    easier = {"tests/test_stats.py": "def test_nothing():\n    pass\n"}
    code_answers(tdd, RED_TEXT, json.dumps({**PATCH, **easier}))
    tests = tdd.files(f"{PLACE}/tests")
    failed = tdd.build(PIPELINE)
    assert failed.code == 1
    assert "E204" in state(tdd)["last_error"]
    assert tdd.files(f"{PLACE}/tests") == tests
    code_answers(tdd, RED_TEXT, json.dumps({**PATCH, **easier}), PATCH_TEXT)
    tdd.write({"lenient.yaml": "patch_after: [verify_failed, write_scope_violation]\n"})
    lenient = tdd.build(PIPELINE, "--vars", "lenient.yaml")
    assert lenient.code == 0, "whoever wants it may have such an answer patched"
    assert tdd.files(f"{PLACE}/tests") == tests


def test_tests_that_hang_are_killed_and_end_it(tdd: Project) -> None:
    hanging = RED["src/textstats/words.py"] + "\n\nwhile True:\n    pass\n"
    code_answers(tdd, json.dumps({**RED, "src/textstats/words.py": hanging}), PATCH_TEXT)
    failed = tdd.build(PIPELINE, "--set", "timeout_s=2")
    assert failed.code == 1
    assert asked(tdd) == ["code"]
    reported = state(tdd)
    assert reported["state"] == "FAILED"
    assert "killed after 2 s" in reported["last_error"]


@pytest.mark.parametrize(("given", "used"), [(None, 300.0), ("45", 45.0), ("600", 600.0), ("601", 600.0)])
def test_a_run_of_tests_may_take_300_seconds_and_never_over_600(given: str | None, used: float) -> None:
    sets = {} if given is None else {"timeout_s": given}
    loaded = load_pipeline(HERE / PIPELINE, HERE, sets=sets)
    code = next(one for one in loaded.pipeline.stages if one.name == "code")
    assert isinstance(code, Stage)
    assert code.timeout_s == used


def test_a_journal_that_is_damaged_ends_the_next_build_with_3(tdd: Project) -> None:
    code_answers(tdd, RED_TEXT)
    tdd.build(PIPELINE)
    journal = tdd.journals()[-1]
    lines = journal.read_bytes().splitlines(keepends=True)[:-1]  # as if the run had been killed
    journal.write_bytes(b"".join((*lines[:3], lines[3].replace(b"skeleton", b"skelethon"), *lines[4:])))
    stopped = tdd.build(PIPELINE)
    assert stopped.code == 3
    assert journal.name in stopped.err
    assert "orch23 reset" in stopped.err


@pytest.mark.stride(5)
@pytest.mark.parametrize("damage", [b"", b"{}", b'{"state": "PONDERING"}', b"\0" * 50])
def test_a_state_file_that_is_damaged_harms_nothing(tdd: Project, damage: bytes) -> None:
    code_answers(tdd, RED_TEXT)
    assert tdd.build(PIPELINE).code == 1
    (tdd.journals()[-1].with_suffix("") / "state.json").write_bytes(damage)
    reported = tdd.run("log", "--state")
    assert reported.code == 0
    assert reported.json()["state"] == "FAILED", "the journal is what counts"
    code_answers(tdd, RED_TEXT, PATCH_TEXT)
    green(tdd.build(PIPELINE))


@pytest.mark.usefixtures("steps_reach_outside")  # one waits at a gate outside of its sandbox directory
def test_sigint_ends_with_130_keeps_the_state_and_the_next_build_goes_on(tdd: Project) -> None:
    gate = tdd.root.parent / "gate"
    os.mkfifo(gate)
    wait = f'import os\n\nif os.path.exists("{gate}"):\n    open("{gate}", "w").write("here\\n")\n    import time\n\n'
    held = {**PATCH, "src/textstats/cli.py": wait + "    time.sleep(99)\n\n" + RED["src/textstats/cli.py"]}
    code_answers(tdd, RED_TEXT, json.dumps(held))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tdd.home), "PYTHONPATH": str(HERE)}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    argv = [sys.executable, "-c", _PROGRAM, "-C", str(tdd.root), "build", PIPELINE]
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    what_came(gate, process)
    before = state(tdd)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    after = state(tdd)
    for reported in (before, after):
        assert (reported["state"], reported["phase"], reported["retry_count"], reported["test_passed"]) == (
            "TESTING",
            "generated",
            1,
            False,
        )
    gate.unlink()
    green(tdd.build(PIPELINE))
    assert asked(tdd) == []
    assert tdd.read(f"{PLACE}/src/textstats/cli.py") == held["src/textstats/cli.py"]
