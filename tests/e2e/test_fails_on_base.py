"""`fails_on_base`: with its tests, the verification of a result must fail on the files as they were before (ADR 96)."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orch23.store.lock_file import read_lock
from tests.project import Outcome, Project, files_answer, scripted
from tests.repository import Repository, green, up_to_date

WRONG, RIGHT = "def half(n):\n    return n // 2\n", "def half(n):\n    return n / 2\n"
OLD_TEST = "from m import half\n\n\ndef test_half():\n    assert half(4) == 2\n"
PROVING = "from m import half\n\n\ndef test_odd():\n    assert half(3) == 1.5\n"
VAIN = "from m import half\n\n\ndef test_even():\n    assert half(8) == 4\n"
# A runner without a tool: it prints TAP, and ends early if it cannot load a file of tests.
RUN = """
import glob, sys
sys.path.insert(0, "src")
print("TAP version 13")
number = 0
for path in sorted(glob.glob("tests/*.py")):
    names = {}
    exec(open(path).read(), names)
    for name, test in [*names.items()]:
        if name.startswith("test_"):
            number += 1
            try:
                test()
                print(f"ok {number} {name}")
            except AssertionError:
                print(f"not ok {number} {name}")
print(f"1..{number}")
"""
TAP, PYTEST = {"shell": "python run.py"}, {"pytest": {"paths": ["tests"], "pythonpath": ["src"]}}


def with_answers(project: Project, answers: Sequence[Mapping[str, str] | str], step: Any = TAP, **more: Any) -> Project:
    """Write a project in which a model corrects `half`, with an old test of it."""
    verify = {"inputs": ["run.py"], "fails_on_base": ["tests/**"], "steps": [step]}
    stage = {
        "inputs": ["issue.md", "src/m.py", "tests/test_m.py"],
        "edits": ["src/**", "tests/**"],
        "llm": {"returns": "files"},
        "retry": len(answers) - 1,
        "verify": {**verify, **more.pop("verify", {})},
        **more,
    }
    texts = [one if isinstance(one, str) else files_answer(one) for one in answers]
    files = {"issue.md": "half(3) is 1.5\n", "src/m.py": WRONG, "tests/test_m.py": OLD_TEST, "run.py": RUN}
    return project.write({**scripted({"fix": stage}, {"fix": texts}), **files})


def failures(project: Project) -> list[str]:
    """Return how each failed attempt of the newest run was summarized."""
    ended = project.events_of("attempt_finished")
    return [one["message"].partition(" failed: ")[2] for one in ended if not one["data"]["passed"]]


def red(outcome: Outcome) -> Outcome:
    assert outcome.code == 1, outcome
    return outcome


def ran(project: Project) -> int:
    """Return how many commands the newest run started."""
    return len(project.events_of("command_ran"))


def test_a_result_is_green_if_a_test_fails_on_the_base_and_passes_in_it(project: Project) -> None:
    with_answers(project, [{"src/m.py": RIGHT, "tests/test_n.py": PROVING}])
    plan = project.run("plan").out
    assert "then verifies the base with tests/** of the result: a test must fail there" in plan
    built = green(project.build())
    assert "note: fix: test_odd fails on the base, passes in the result" in built.err
    (proved,) = project.events_of("failed_on_base")
    assert proved["data"] == {"tests": ["test_odd"], "attempt": 1}
    assert read_lock(project.root / "pipeline.lock").records["fix"].proof == ("test_odd",)
    up_to_date(project.build())
    assert "test_odd fails on the base, passes in the result" in project.run("explain", "fix").out
    assert json.loads(project.run("explain", "fix", "--json").out)["proof"] == ["test_odd"]


def test_a_result_without_a_new_or_changed_test_is_red(project: Project) -> None:
    with_answers(project, [{"src/m.py": WRONG}, {"src/m.py": RIGHT}, {"src/m.py": RIGHT, "tests/test_m.py": OLD_TEST}])
    red(project.build())
    assert failures(project)[0] == "verify: the result has no new or changed file that matches `tests/**`"
    assert len({*failures(project)}) == 1
    assert project.read("src/m.py") == WRONG
    prompt = project.run("show", "fix", "--prompt", "--attempt", "2").out
    assert "Fix: add a test that fails without the change." in prompt


def test_a_new_test_that_passes_on_the_base_is_named(project: Project) -> None:
    changed = OLD_TEST + "\n\ndef test_even():\n    assert half(8) == 4\n"
    with_answers(project, [{"src/m.py": RIGHT, "tests/test_m.py": changed}, {"src/m.py": RIGHT, "tests/n.py": PROVING}])
    built = green(project.build())
    assert failures(project) == ["verify: test_even: the new test passes without the change"]
    assert "attempt 1 failed: test_even: the new test passes without the change" in built.err
    prompt = project.run("show", "fix", "--prompt", "--attempt", "2").out
    assert "test_even: the new test passes without the change" in prompt
    assert "test_half" not in prompt.partition("brief")[2]


def test_a_changed_test_that_passes_on_the_base_is_named_and_not_as_a_new_one(project: Project) -> None:
    with_answers(project, [{"src/m.py": RIGHT, "tests/test_m.py": OLD_TEST.replace("4", "6").replace("2", "3")}])
    red(project.build())
    assert failures(project) == ["verify: test_half: the test passes without the change"]


def test_a_new_test_that_is_skipped_on_the_base_proves_nothing(project: Project) -> None:
    skipping = PROVING.replace("def test_odd():\n", "def test_odd():\n    if half(3) == 1:\n        raise KeyError\n")
    run = RUN.replace(
        "except AssertionError:",
        "except KeyError:\n                print(f'ok {number} {name} # SKIP')\n            except AssertionError:",
    )
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": skipping}])
    project.write({"run.py": run})
    red(project.build())
    assert failures(project) == ["verify: test_odd: the new test was skipped without the change"]


@pytest.mark.slow
def test_tests_of_pytest_are_named_by_their_ids_and_a_collection_error_is_explained(project: Project) -> None:
    both = f"{RIGHT}\n\ndef third(n):\n    return n / 3\n"
    importing = "from m import half, third\n\n\ndef test_third():\n    assert third(half(6)) == 1\n"
    inside = "def test_third():\n    from m import third\n    assert third(3) == 1\n"
    answers = [
        {"src/m.py": RIGHT, "tests/test_n.py": VAIN},
        {"src/m.py": both, "tests/test_n.py": importing},
        {"src/m.py": both, "tests/test_n.py": inside},
    ]
    with_answers(project, answers, PYTEST)
    green(project.build())
    assert failures(project)[0] == "verify: tests/test_n.py::test_even: the new test passes without the change"
    error = "ImportError: cannot import name 'third' from 'm' (src/m.py)"
    assert failures(project)[1] == f"verify: tests/test_n.py: could not be collected without the change: {error}"
    prompt = project.run("show", "fix", "--prompt", "--attempt", "3").out
    assert "Fix: import it inside the test" in prompt
    (proved,) = project.events_of("failed_on_base")
    assert proved["data"]["tests"] == ["tests/test_n.py::test_third"]


def test_a_runner_that_ends_early_on_the_base_proves_nothing(project: Project) -> None:
    loading = "from m import half, third\n\n\ndef test_third():\n    assert third(3) == 1\n"
    with_answers(project, [{"src/m.py": f"{RIGHT}def third(n):\n    return n / 3\n", "tests/n.py": loading}])
    out = red(project.build()).err
    assert "without the change, `python run.py` did not fail by a test that passes with it" in out
    assert "cannot import name 'third'" in out


def test_a_step_without_named_tests_counts_only_if_no_step_names_tests(project: Project) -> None:
    style = {"shell": "grep -q 'n / 2' src/m.py"}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], verify={"steps": [style, TAP]})
    red(project.build())
    assert failures(project) == ["verify: test_even: the new test passes without the change"]
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], style)
    assert "`grep -q 'n / 2' src/m.py` fails on the base" in green(project.build()).err


def test_a_step_whose_tests_are_all_flaky_proves_nothing(project: Project, tmp_path: Path) -> None:
    passes = f"grep -q 'n / 2' src/m.py && [ $(wc -l < {tmp_path}/runs) -ge 2 ]"
    shell = f"echo x >> {tmp_path}/runs; echo 'TAP version 13'; {passes} || {{ echo 'not ok 1 a'; echo 1..1; exit 1; }}"
    step, verify = {"shell": f"{shell}; echo 'ok 1 a'; echo 1..1", "reruns": 1}, {"first": "off"}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], step, sandbox="off", verify=verify)
    assert "did not fail by a test that passes with it" in red(project.build("--allow-unsandboxed")).err


def test_a_test_that_passes_on_the_base_in_another_run_proves_nothing(project: Project, tmp_path: Path) -> None:
    passes = f"grep -q 'n / 2' src/m.py || [ $(wc -l < {tmp_path}/runs) -ge 3 ]"
    shell = f"echo x >> {tmp_path}/runs; echo 'TAP version 13'; {passes} || {{ echo 'not ok 1 a'; echo 1..1; exit 1; }}"
    step, verify = {"shell": f"{shell}; echo 'ok 1 a'; echo 1..1", "reruns": 1}, {"first": "off"}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], step, sandbox="off", verify=verify)
    assert "the new test was flaky without the change" in red(project.build("--allow-unsandboxed")).err


def test_a_known_failure_beside_the_proof_is_allowed_and_is_no_proof(project: Project) -> None:
    known = OLD_TEST.replace("== 2", "== 3")
    allowed = {"may_fail": ["test_half"]}
    with_answers(
        project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}, {"src/m.py": RIGHT, "tests/n.py": PROVING}], verify=allowed
    )
    project.write({"tests/test_m.py": known})
    green(project.build())
    assert failures(project) == ["verify: test_even: the new test passes without the change"]
    (proved,) = project.events_of("failed_on_base")
    assert proved["data"]["tests"] == ["test_odd"]


@pytest.mark.parametrize(
    ("there", "said"),
    [("true", "the steps of `verify` pass"), ("exit 127", "exited with 127"), ("kill -9 $$", "(SIGKILL)")],
)
def test_only_an_exit_code_of_the_program_itself_counts_as_its_failure(project: Project, there: str, said: str) -> None:
    step = {"shell": f"grep -q 'n / 2' src/m.py || bash -c '{there}'"}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], step)
    assert said in red(project.build()).err


def test_pytest_without_results_that_could_not_run_tests_is_no_failed_test(project: Project) -> None:
    step = {"shell": "grep -q 'n / 2' src/m.py || { echo pytest; exit 5; }"}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], step)
    assert "exited with 5" in red(project.build()).err


@pytest.mark.slow
def test_a_timeout_on_the_base_proves_nothing(project: Project) -> None:
    step = {"shell": "grep -q 'n / 2' src/m.py || while :; do :; done"}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}], step, timeout="2s")
    assert "did not fail by a test that passes with it: killed after 2 s" in red(project.build()).err


def test_a_deleted_test_is_deleted_on_the_base_too(project: Project) -> None:
    deleting = files_answer({"src/m.py": RIGHT, "tests/n.py": VAIN}, deletes=["tests/test_m.py"])
    with_answers(project, [deleting], {"shell": "test ! -e tests/test_m.py"})
    red(project.build())
    assert failures(project) == ["verify: the steps of `verify` pass without the change, too"]
    with_answers(project, [files_answer({"src/m.py": RIGHT}, deletes=["tests/test_m.py"])], {"shell": "true"})
    red(project.build())
    assert failures(project) == ["verify: the result has no new or changed file that matches `tests/**`"]


def test_files_that_a_stage_lists_in_outputs_have_their_former_bytes_on_the_base(project: Project) -> None:
    both = {"edits": [], "outputs": ["src/m.py", "tests/test_m.py"]}
    with_answers(project, [{"src/m.py": RIGHT, "tests/test_m.py": PROVING}], **both)
    green(project.build())
    (proved,) = project.events_of("failed_on_base")
    assert proved["data"]["tests"] == ["test_odd"]


def test_a_program_with_edits_is_held_to_it_as_a_model_is(project: Project) -> None:
    verify = {"inputs": ["run.py"], "fails_on_base": ["tests/**"], "steps": [TAP]}
    fix = "sed -i 's,//,/,' src/m.py"
    files = {"src/m.py": WRONG, "tests/test_m.py": OLD_TEST, "run.py": RUN, "n.txt": PROVING}
    stage = {"inputs": ["n.txt"], "edits": ["src/**", "tests/**"], "shell": fix, "verify": verify}
    project.write({**scripted({"fix": stage}, {}), **files})
    assert "has no new or changed file" in red(project.build()).err
    stage["shell"] = f"{fix}; cp n.txt tests/n.py"
    project.write(scripted({"fix": stage}, {}))
    assert "test_odd fails on the base" in green(project.build()).err


def test_a_change_of_the_key_verifies_again_without_a_call(project: Project) -> None:
    answers = [{"src/m.py": RIGHT, "tests/test_m.py": OLD_TEST, "tests/n.py": PROVING}]
    with_answers(project, answers, verify={"fails_on_base": []})
    green(project.build())
    assert not project.events_of("failed_on_base")
    manifest = read_lock(project.root / "pipeline.lock").records["fix"].manifest
    assert "verify.fails_on_base" not in manifest, "the key of a stage without it is what it was"
    with_answers(project, answers)
    project.write({"src/m.py": RIGHT})
    assert project.plan() == {"fix": "verify"}
    green(project.build())
    assert (len(project.events_of("llm_request")), len(project.events_of("failed_on_base"))) == (0, 1)
    up_to_date(project.build())


def test_an_accepted_edit_is_held_to_it_too(project: Project) -> None:
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": PROVING}])
    green(project.build())
    project.edit("tests/n.py", VAIN)
    refused = project.run("accept", "fix")
    assert "test_even: the new test passes without the change" in red(refused).err
    project.edit("tests/n.py", PROVING.replace("test_odd", "test_three"))
    green(project.run("accept", "fix"))
    record = read_lock(project.root / "pipeline.lock").records["fix"]
    assert (record.proof, {*record.tests.values()}) == (("test_three",), {2})


def test_the_same_tests_run_once_on_the_base(project: Project) -> None:
    again = {"src/m.py": f"{RIGHT}# as a fraction\n", "tests/n.py": VAIN}
    with_answers(project, [{"src/m.py": RIGHT, "tests/n.py": VAIN}, again], verify={"first": "off"})
    red(project.build())
    assert failures(project) == ["verify: test_even: the new test passes without the change"] * 2
    assert ran(project) == 3


def test_what_no_result_could_pass_is_an_error_of_the_pipeline(project: Project) -> None:
    with_answers(project, [{"src/m.py": RIGHT}], edits=["src/**"])
    refused = project.build()
    assert refused.code == 65
    assert "the stage cannot write a file that matches `tests/**`, so no result could pass" in refused.err
    assert "add `tests/**` to `edits`" in refused.err
    with_answers(project, [{"src/m.py": RIGHT}], {"check": "python_syntax"})
    assert "`fails_on_base` has no program of `verify` that could fail" in project.run("validate").err


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_clone_verifies_it_again_if_git_has_the_base(tmp_path: Path, is_committed: bool) -> None:
    repository = Repository(tmp_path / "p")
    repository.init()
    with_answers(repository, [{"src/m.py": RIGHT, "tests/n.py": PROVING}])
    if is_committed:
        repository.commit()
    green(repository.build())
    repository.commit()
    shutil.rmtree(repository.root / ".orch23")
    clone = repository.clone(tmp_path / "clone")
    out = green(clone.build(env={"ORCH23_TRUST": ""})).err
    assert ("test_odd fails on the base" in out) is is_committed
    assert ("the former bytes of src/m.py are lost" in out) is not is_committed
