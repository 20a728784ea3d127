"""`verify.first`: a verification that cannot pass costs no call; what failed before is not what the answer broke."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orch23.store.lock_file import read_lock
from tests.project import files_answer, scripted
from tests.repository import Repository, green

WRONG, RIGHT = "def f():\n    return 1\n", "def f():\n    return 2\n"
TEST = "from app import f\n\ndef test_f():\n    assert f() == 2\n"
PYTEST = {"pytest": {"paths": ["t"], "pythonpath": ["src"]}}


class Case(NamedTuple):
    """Files besides `src/app.py`, and the verification of a stage that edits `src/**`."""

    steps: Sequence[Any]
    files: Mapping[str, str] = {}
    inputs: Sequence[str] = ("t/**",)
    needs: str = ""
    answers: Sequence[str] = (WRONG, "def f():\n    return 3\n", RIGHT)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "p")
    made.init()
    return made


def prepare(repository: Repository, case: Case, **verify: Any) -> None:
    """Write a pipeline whose model corrects `src/app.py` at the third attempt."""
    if case.needs and shutil.which(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    steps = [{"shell": one} if isinstance(one, str | list) else one for one in case.steps]
    stage = {
        "inputs": ["task.md", "src/**"],
        "edits": ["src/**"],
        "scratch": ["out/"],
        "llm": {"returns": "files"},
        "retry": {"max": 2, "no_progress": 9},
        "verify": {"inputs": [*case.inputs], "steps": steps, **verify},
    }
    answers = {"fix": [files_answer({"src/app.py": one}) for one in case.answers]}
    files = {"src/app.py": WRONG, "t/test_app.py": TEST, ".gitignore": "gen_*\n", "task.md": "a task\n"}
    repository.write({**scripted({"fix": stage}, answers), **files, **case.files})


def calls(repository: Repository) -> int:
    return len([one for one in repository.events_of("llm_request") if not one["data"]["recorded"]])


def runs(repository: Repository) -> int:
    return len(repository.events_of("base_verified"))


def shell_report(*failed: str) -> str:
    """Return a command that reports these failed tests, and one that passes."""
    lines = [f"not ok {number} - {name}" for number, name in enumerate(failed, 2)]
    return "\n".join(["TAP version 13", "ok 1 - fine", *lines, f"1..{len(failed) + 1}"])


RUFF = shutil.which("ruff", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))

BROKEN = {
    "ignored module of the suite": Case(
        [PYTEST], {"t/test_b.py": "import gen_data\n\ndef test_b(): pass\n", "t/gen_data.py": ""}
    ),
    "ignored module below edits": Case(
        [PYTEST],
        {
            "src/lib/__init__.py": "from .gen_version import v\n",
            "src/lib/gen_version.py": "v = 1\n",
            "t/test_b.py": "import lib\n\ndef test_b(): pass\n",
        },
    ),
    "ignored name of a package": Case(
        [PYTEST],
        {
            "src/lib/__init__.py": "from . import gen_version\n",
            "src/lib/gen_version.py": "v = 1\n",
            "t/test_b.py": "import lib\n\ndef test_b(): pass\n",
        },
    ),
    "undeclared module": Case(
        [["python", "t/run.py"]],
        {"t/run.py": "import sys\nsys.path.insert(0, 'tools')\nimport helper\n", "tools/helper.py": "x = 1\n"},
    ),
    "missing linter": Case([["python", "-m", "nosuchlinter", "src"]]),
    "missing linter as a text": Case(["python3 -P -m nosuchlinter.sub src | cat"]),
    "missing program": Case(["ls >/dev/null; no-such-linter src"]),
    "plugin of pytest is missing": Case([{"pytest": {**PYTEST["pytest"], "args": ["--benchmark-only"]}}]),
    "path of pytest is missing": Case([{"pytest": {"paths": ["t/none"], "pythonpath": ["src"]}}]),
    "internal error of pytest": Case(
        [PYTEST], {"t/conftest.py": "def pytest_collection_modifyitems(items):\n    raise ValueError('x')\n"}
    ),
    "shell pytest with a wrong option": Case(["python -m pytest t --no-such-option"]),
    "writes into the tree": Case([["python", "-c", "open(chr(120), chr(119))"]]),
    "writes into the tree after a folder of scratch": Case(["echo 1 > out/x.txt; echo 1 > y.txt"]),
    "a test writes into the tree": Case([PYTEST], {"t/test_b.py": "def test_b():\n    open('out.txt', 'w').close()\n"}),
    "ruff corrects files of the read-only tree": Case(
        [["ruff", "check", "src", "t"]],
        {"ruff.toml": "fix = true\n", "t/test_b.py": "import os\n"},
        inputs=("t/**", "ruff.toml"),
        needs=RUFF or "ruff",
    ),
    "ruff has a wrong configuration": Case(
        [["ruff", "check", "src"]], {"ruff.toml": "no-such-key = 1\n"}, inputs=("ruff.toml",), needs=RUFF or "ruff"
    ),
    "node requires an ignored file": Case(
        [["node", "t/run.js"]],
        {"t/run.js": "require('./gen_data')\n", "t/gen_data.js": "module.exports = 1\n"},
        needs="node",
    ),
    "node writes into the tree": Case(
        [["node", "t/run.js"]],
        {"t/run.js": "require('fs').writeFileSync('a', '')\n"},
        needs="node",
    ),
    "a script of package.json lacks its program": Case(
        ["npm test"],
        {"package.json": '{"scripts": {"test": "npm run -s only", "only": "no-such-runner t"}}'},
        inputs=("t/**", "package.json"),
        needs="npm",
    ),
    "header of C is not declared": Case(
        ["gcc -c t/main.c -o $TMPDIR/main.o -Iinclude"],
        {"t/main.c": '#include "limits_x.h"\nint main(void) { return X; }\n', "include/limits_x.h": "#define X 0\n"},
        needs="gcc",
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_a_verification_that_cannot_pass_costs_no_call(repository: Repository, case: Case) -> None:
    prepare(repository, case)
    failed = repository.build()
    assert (failed.code, calls(repository)) == (1, 0), failed.err
    assert "no model was called" in failed.err


JOB = {"src/job.py": "print(1)\n"}
NEW_TEST = {"src/test_new.py": "def test_a(): pass\n"}


@pytest.mark.parametrize(
    ("step", "files", "answer"),
    [
        ("cd src && python -m job", {}, JOB),
        ("PYTHONPATH=src python -m job", {}, JOB),
        (["python", "-m", "src.job"], {}, JOB),
        ({"pytest": {"paths": ["src/test_new.py"], "pythonpath": ["src"]}}, {}, NEW_TEST),
        ("python -m pytest src/test_new.py", {}, NEW_TEST),
        (
            "cd src && npm test",
            {"src/package.json": '{"scripts": {"test": "no-such-runner"}}'},
            {"src/package.json": '{"scripts": {"test": "true"}}'},
        ),
        ([RUFF or "ruff", "check", "src"], {"src/ruff.toml": "no-such-key = 1\n"}, {"src/ruff.toml": ""}),
    ],
)
def test_what_the_answer_makes_or_corrects_may_be_missing_or_wrong_before(
    repository: Repository, step: Any, files: dict[str, str], answer: dict[str, str]
) -> None:
    if "check" in step and RUFF is None:
        pytest.skip("ruff is not installed")
    if "npm" in step and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    step = ["ruff", *step[1:]] if "check" in step else step
    prepare(repository, Case([step], files))
    answers = [files_answer({"src/app.py": RIGHT}), files_answer(answer)]
    repository.write({"pipeline.answers.yaml": json.dumps({"fix": answers})})
    green(repository.build())
    assert calls(repository) == 2


PRINTS = "def test_b():\n    from app import f\n    print({text!r})\n    assert f() == 2, {text!r}\n"


def saying(text: str, **more: str) -> Case:
    """Return a case whose test prints a text and fails with it."""
    return Case([PYTEST], {"t/test_b.py": PRINTS.format(text=text), **more})


IMPORT = "import sys; sys.path[:0] = ['src']; import app"
SCRIPT = f"""python -c "{IMPORT}; print('{{text}}'); sys.exit(0 if app.f() == 2 else {{code}})\""""

ORDINARY = {
    "a test prints the name of an ignored module": saying(
        "ModuleNotFoundError: No module named 'gen_data'", **{"t/gen_data.py": ""}
    ),
    "a test prints that a program is missing": saying("bash: line 1: no-such-tool: command not found"),
    "a test asserts on a refused write": saying("[Errno 30] Read-only file system: 'x'"),
    "a test prints a usage error of pytest": saying("ERROR: unrecognized arguments: --benchmark-only"),
    "a test prints an internal error": saying("INTERNALERROR> boom"),
    "a test prints a missing header": saying(
        "main.c:1:10: fatal error: gen_x.h: No such file or directory", **{"t/gen_x.h": ""}
    ),
    "a test prints a missing module of node": saying("Error: Cannot find module './gen_data'", **{"t/gen_data.js": ""}),
    "the answer makes the module": Case(
        [PYTEST],
        {"t/test_app.py": "from app import f, g\n\ndef test_f():\n    assert f() == g() == 2\n"},
        answers=(WRONG, RIGHT, f"{RIGHT}\n\ndef g():\n    return 2\n"),
    ),
    "conftest imports what the answer makes": Case(
        [PYTEST],
        {"t/conftest.py": "from app import g\n"},
        answers=(WRONG, RIGHT, f"{RIGHT}\n\ndef g():\n    return 2\n"),
    ),
    "a script exits with 4": Case([SCRIPT.format(text="pytest: error: usage", code=4)]),
    "a script exits with 127": Case([SCRIPT.format(text="bash: line 1: ls: command not found", code=127)]),
    "a script of package.json exits with 127": Case(
        ["npm test"],
        {
            "package.json": json.dumps(
                {"scripts": {"test": SCRIPT.format(text="sh: 1: no-such-x: not found", code=127)}}
            )
        },
        inputs=("t/**", "package.json"),
        needs="npm",
    ),
    "code under test ends pytest with 3": Case(
        [PYTEST], {"t/test_app.py": "import os\nfrom app import f\n\ndef test_f():\n    f() == 2 or os._exit(3)\n"}
    ),
    "a module of the base has a syntax error": Case([PYTEST], {"src/app.py": "def f(:\n"}),
    "a test writes and another fails for the same reason": Case(
        ['python -c \'import sys; sys.path[:0] = ["src"]; import app; app.f() == 2 or open("x", "w").write(1)\'']
    ),
}


@pytest.mark.parametrize("case", ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_failure_with_the_same_words_goes_on_to_the_model(repository: Repository, case: Case) -> None:
    prepare(repository, case)
    green(repository.build())
    assert (calls(repository), runs(repository)) == (3, 1)


def test_what_the_error_proposes_lets_the_verification_pass(repository: Repository) -> None:
    case = BROKEN["ignored module below edits"]
    prepare(repository, case)
    assert "`src/lib/gen_version.py`" in repository.build().err
    prepare(repository, case._replace(inputs=("t/**", "src/lib/gen_version.py")))
    green(repository.build())
    assert calls(repository) == 3


@pytest.mark.parametrize("verify", [{"first": "off"}, {"first": "auto"}])
def test_first_is_not_in_the_key_and_off_calls_the_model(repository: Repository, verify: dict[str, Any]) -> None:
    prepare(repository, BROKEN["writes into the tree"], **verify)
    before = repository.run("show", "--key", "fix").out
    repository.build()
    assert (calls(repository), runs(repository)) == ((3, 0) if verify["first"] == "off" else (0, 0))
    prepare(repository, BROKEN["writes into the tree"])
    assert repository.run("show", "--key", "fix").out == before
    assert "first" not in before


def test_with_first_off_a_verification_that_cannot_pass_calls_the_model_also_with_may_fail(
    repository: Repository,
) -> None:
    prepare(repository, BROKEN["writes into the tree"], first="off", may_fail=["x"])
    assert "verifies the base" not in repository.run("plan").out
    assert (repository.build().code, calls(repository)) == (1, 3)


def test_a_plan_says_that_the_base_is_verified(repository: Repository) -> None:
    prepare(repository, Case([PYTEST]))
    assert "first verifies the base, without an answer" in repository.run("plan").out
    assert repository.run("plan", "--json").json()["stages"][0]["estimate"]["verifies_base"] is True
    prepare(repository, Case([PYTEST]), first="off")
    assert "verifies the base" not in repository.run("plan").out


def test_the_base_is_verified_once_and_not_for_a_recorded_answer(repository: Repository) -> None:
    case = Case([PYTEST])
    prepare(repository, case)
    green(repository.build())
    assert (calls(repository), runs(repository)) == (3, 1)
    # Another prompt: the same base and the same verification.
    prompt = repository.read("pipeline.md.j2")
    repository.write({"pipeline.md.j2": f"{prompt}\nmore\n", "src/app.py": WRONG})
    green(repository.build("--overwrite-edited"))
    assert (calls(repository), runs(repository)) == (3, 0)
    shutil.rmtree(repository.root / ".orch23/base-runs")
    repository.write({"pipeline.md.j2": prompt, "src/app.py": WRONG})
    green(repository.build("--overwrite-edited"))
    assert (calls(repository), runs(repository)) == (0, 0), "the answers are recorded"


def test_other_limits_verify_the_base_again(repository: Repository) -> None:
    prepare(repository, Case([PYTEST]))
    green(repository.build())
    pipeline = json.loads(repository.read("pipeline.yaml"))
    pipeline["stages"]["fix"]["limits"] = {"memory": "4GiB"}
    prompt = repository.read("pipeline.md.j2")
    repository.write(
        {"pipeline.yaml": json.dumps(pipeline), "pipeline.md.j2": f"{prompt}\nmore\n", "src/app.py": WRONG}
    )
    green(repository.build("--overwrite-edited"))
    assert runs(repository) == 1


TWO_TESTS = """from app import f, g

def test_f(): assert f() == 2

def test_g(): assert g() == 1

def test_old(): assert f() == 9
"""
BEFORE, BREAKS = f"{WRONG}\ndef g():\n    return 1\n", f"{RIGHT}\ndef g():\n    return 0\n"


def test_what_failed_before_is_distinguished_from_what_the_answer_broke(repository: Repository) -> None:
    case = Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": TWO_TESTS}, answers=(BREAKS, BREAKS + "\n", BREAKS))
    prepare(repository, case)
    failed = repository.build()
    assert "Failed before: t/test_app.py::test_old" in failed.err
    assert "Broken by this answer: t/test_app.py::test_g" in failed.err
    assert "Broken by this answer: t/test_app.py::test_g" in repository.run("show", "fix", "--prompt").out
    result = next(one["data"] for one in repository.events_of("check_result") if one["data"]["attempt"] == 1)
    assert result["failed_before"] == ["t/test_app.py::test_old"]
    assert result["broken"] == ["t/test_app.py::test_g"]
    base = repository.events_of("base_verified")[0]["data"]
    assert base["failing"] == ["t/test_app.py::test_f", "t/test_app.py::test_old"]


@pytest.mark.parametrize(
    ("base", "answer", "said"),
    [("bad", "bad", "Failed before: this step"), ("good", "bad", "Broken by this answer: this step passed before")],
)
def test_a_step_without_named_results_is_distinguished_as_a_whole(
    repository: Repository, base: str, answer: str, said: str
) -> None:
    prepare(repository, Case(["grep -q good src/notes.txt"], {"src/notes.txt": f"{base}\n"}))
    answers = [files_answer({"src/notes.txt": f"{answer} {number}\n"}) for number in range(3)]
    repository.write({"pipeline.answers.yaml": json.dumps({"fix": answers})})
    assert said in repository.build().err


def test_a_file_that_an_answer_made_impossible_to_collect_is_broken_by_it(repository: Repository) -> None:
    answers = [f"{NEW}\ndel g  # {number}\n" for number in range(3)]
    prepare(repository, Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": TWO_TESTS}, answers=answers))
    assert "Broken by this answer: t/test_app.py\n" in repository.build().err
    assert repository.events_of("check_result")[0]["data"]["broken"] == ["t/test_app.py"]


OLD, NEW = "t/test_app.py::test_old", f"{RIGHT}\ndef g():\n    return 1\n"


@pytest.mark.parametrize(
    ("may_fail", "answer", "passes"),
    [
        ([OLD], NEW, True),
        (["*::test_old"], NEW, True),
        ("base", NEW, True),
        ("base", BEFORE + "# changed\n", True),
        ([OLD], BEFORE + "# changed\n", False),
        ([OLD, "t/test_app.py::test_g"], BREAKS, False),
        ("base", BREAKS, False),
        (["t/test_app.py::test_x"], NEW, False),
        ([], NEW, False),
    ],
)
def test_only_a_named_test_that_failed_before_may_fail(
    repository: Repository, may_fail: Any, answer: str, passes: bool
) -> None:
    case = Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": TWO_TESTS}, answers=[answer])
    prepare(repository, case, may_fail=may_fail, first="off")
    assert (repository.build().code == 0) is passes
    if passes:
        forgiven = repository.events_of("stage_finished")[0]["data"]["forgiven"]
        assert OLD in forgiven
        assert all(name in repository.read("pipeline.lock") for name in forgiven)


def test_a_change_of_may_fail_verifies_again_without_a_call(repository: Repository) -> None:
    case = Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": TWO_TESTS}, answers=[NEW])
    prepare(repository, case, may_fail=[OLD])
    green(repository.build())
    assert (calls(repository), repository.build().code) == (1, 0)
    prepare(repository, case._replace(files={}, answers=[NEW]), may_fail=[OLD, "t/test_other.py::test_x"])
    repository.write({"src/app.py": NEW, "t/test_app.py": TWO_TESTS})
    assert repository.plan() == {"fix": "verify"}
    green(repository.build())
    assert calls(repository) == 0
    prepare(repository, case._replace(files={}, answers=[NEW]))
    repository.write({"src/app.py": NEW, "t/test_app.py": TWO_TESTS})
    assert repository.build().code != 0


SUBTESTS = """import unittest
from app import f

class Test(unittest.TestCase):
    def test_all(self):
        for n in (2, 3):
            with self.subTest(n=n):
                self.assertEqual(n, f())

def test_f(): assert f() > 0
"""


def test_the_id_of_a_test_in_may_fail_names_its_subtests_too(repository: Repository) -> None:
    prepare(
        repository,
        Case([PYTEST], {"t/test_app.py": SUBTESTS}, answers=[RIGHT]),
        may_fail=["t/test_app.py::Test::test_all"],
    )
    green(repository.build())
    (step,) = repository.events_of("check_result")
    assert step["data"]["forgiven"] == ["t/test_app.py::Test::test_all", "t/test_app.py::Test::test_all (n=3)"]


def test_a_test_that_passed_before_and_is_not_run_is_named(repository: Repository) -> None:
    suite = (
        "import app\nif hasattr(app, 'f'):\n    def test_f(): pass\ndef test_g(): pass\ndef test_old(): assert False\n"
    )
    answers = [f"{NEW}\ndel f  # {number}\n" for number in range(3)]
    prepare(repository, Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": suite}, answers=answers), may_fail=[OLD])
    assert "Passed before, not run now: t/test_app.py::test_f" in repository.build().err


def test_the_record_of_an_accepted_edit_has_what_was_forgiven(repository: Repository) -> None:
    case = Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": TWO_TESTS}, answers=[NEW])
    prepare(repository, case, may_fail=[OLD])
    green(repository.build())
    before = read_lock(repository.root / "pipeline.lock").records["fix"]
    repository.edit("src/app.py", f"{NEW}# mine\n")
    green(repository.run("accept", "fix"))
    accepted = read_lock(repository.root / "pipeline.lock").records["fix"]
    assert accepted.forgiven == before.forgiven == (OLD,)


@pytest.mark.parametrize(("may_fail", "passes"), [([OLD], True), (["*::test_old"], False)])
def test_a_clone_without_the_base_forgives_ids_alone(
    repository: Repository, tmp_path: Path, may_fail: list[str], passes: bool
) -> None:
    case = Case([PYTEST], {"src/app.py": BEFORE, "t/test_app.py": TWO_TESTS}, answers=[NEW])
    prepare(repository, case, may_fail=may_fail)
    green(repository.build())
    repository.commit()
    shutil.rmtree(repository.root / ".orch23")
    built = repository.clone(tmp_path / "clone").build("--offline", env={"ORCH23_TRUST": ""})
    assert (built.code == 0) is passes, built.err
    assert "the former bytes of src/app.py are lost: the result is not compared with its base" in built.err


TAP = "cat src/report.tap; grep -q '^ok 1' src/report.tap && ! grep -q '^not ok' src/report.tap"


@pytest.mark.parametrize(
    ("base", "answer", "passes"),
    [
        (["known"], ["known"], True),
        (["known"], ["known", "new"], False),
        ([], ["known"], False),
        (["known"], None, False),
    ],
)
def test_a_command_is_forgiven_only_if_all_its_failed_results_are(
    repository: Repository, base: list[str], answer: list[str] | None, passes: bool
) -> None:
    text = shell_report(*answer) + "\n# changed" if answer is not None else "crashed"
    step = {"shell": TAP, "test_results": {"tap": "stdout"}}
    case = Case([step], {"src/report.tap": shell_report(*base)}, answers=())
    prepare(repository, case, may_fail="base")
    repository.write({"pipeline.answers.yaml": json.dumps({"fix": [files_answer({"src/report.tap": text})]})})
    assert (repository.build().code == 0) is passes


def test_a_step_that_ends_before_its_other_tests_is_not_forgiven(repository: Repository) -> None:
    """A report without a test that passed before, or without any test that passed, may be of a run that was cut."""
    step = {"shell": "cat src/report.tap; exit 1", "test_results": {"tap": "stdout"}}
    base = "TAP version 13\nok 1 - fine\nok 2 - other\nnot ok 3 - known\n1..3"
    for text in ("TAP version 13\nok 1 - fine\nnot ok 2 - known\n1..2", "TAP version 13\nnot ok 1 - known\n1..1"):
        prepare(repository, Case([step], {"src/report.tap": base}, answers=()), may_fail="base")
        repository.write({"pipeline.answers.yaml": json.dumps({"fix": [files_answer({"src/report.tap": text})]})})
        assert repository.build().code != 0
