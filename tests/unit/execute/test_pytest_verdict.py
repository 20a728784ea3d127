"""pytest as verdict, with a real pytest: the known ways to forge a green run, and what must stay green."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orch23.decide.expected_tests import expected_tests
from orch23.decide.verdict import Verdict, judge_pytest
from orch23.execute.local import LocalExecutor
from orch23.execute.rooms import Rooms
from orch23.model.action import Action, ActionResult, Completed
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.pipeline import DEFAULT_SCRATCH, PytestStep
from orch23.resolve.commands import pytest_command

RED = "def test_it():\n    assert 1 == 2\n"
GREEN = "def test_it():\n    assert 1 == 1\n"


class Source:
    """Contents by path, as a dict."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        target.write_text(self.files[path])
        return digest_bytes(target.read_bytes()) == entry.digest


class Kept:
    """A store that forgets."""

    def put_bytes(self, data: bytes) -> Digest:
        return digest_bytes(data)

    def put_file(self, path: Path) -> Digest:
        return digest_bytes(path.read_bytes())


class Judge:
    """Run pytest over some files and judge it."""

    def __init__(self, folder: Path) -> None:
        self.source = Source()
        self.executor = LocalExecutor(rooms=Rooms(folder, self.source), contents=Kept(), workers=1)

    def run(self, files: Mapping[str, str], step: PytestStep, **more: object) -> ActionResult:
        self.source.files = dict(files)
        command = pytest_command(step)
        fields: dict[str, object] = {
            "argv": command.argv,
            "env": command.env,
            "inputs": {p: FileEntry(digest_bytes(text.encode())) for p, text in files.items()},
            "interpreter": sys.executable,
            "scratch": DEFAULT_SCRATCH,
            "timeout_s": 60.0,
            "reports": True,
            **more,
        }
        outcome = self.executor.submit(Action(**fields)).result()  # type: ignore[arg-type]  # spelled above
        assert isinstance(outcome, Completed), outcome
        return outcome.result

    def verdict(self, files: Mapping[str, str], step: PytestStep | None = None) -> Verdict:
        step = step or PytestStep(args=("-q",))
        result = self.run(files, step)
        expected = step.expect or expected_tests(files, step.paths)
        return judge_pytest(result.exit_code, result.report, expected, result.output.text)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    made = Judge(tmp_path_factory.mktemp("rooms"))
    yield made
    made.executor.close()


FORGERIES: dict[str, tuple[dict[str, str], str]] = {
    "conftest leaves with 0": ({"conftest.py": "import os; os._exit(0)", "test_a.py": RED}, "E308"),
    "conftest leaves with 0 at the end": (
        {"conftest.py": "import os\ndef pytest_sessionfinish(): os._exit(0)", "test_a.py": RED},
        "E308",
    ),
    "atexit": ({"conftest.py": "import atexit, os; atexit.register(os._exit, 0)", "test_a.py": RED}, "E301"),
    "addopts of a staged ini": ({"pytest.ini": "[pytest]\naddopts = --collect-only", "test_a.py": RED}, "E301"),
    "addopts of pyproject": (
        {
            "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k nothing'\npython_files='x_*.py'",
            "test_a.py": RED,
        },
        "E301",
    ),
    "deselection in conftest": (
        {
            "conftest.py": "def pytest_collection_modifyitems(items):\n"
            "    items[:] = [i for i in items if 'good' in i.name]",
            "test_a.py": RED + "def test_good(): pass\n",
        },
        "E305",
    ),
    "collect_ignore in conftest": (
        {"conftest.py": "collect_ignore = ['test_a.py']", "test_a.py": RED, "test_b.py": GREEN},
        "E305",
    ),
    "a local pytest.py": ({"pytest.py": "raise SystemExit(0)", "test_a.py": RED}, "E3"),
    "a local pytest package": ({"pytest/__main__.py": "", "pytest/__init__.py": "", "test_a.py": RED}, "E3"),
    "a shadowing _pytest": ({"_pytest/__init__.py": "raise SystemExit(0)", "test_a.py": RED}, "E3"),
    "a shadowing reporter": ({"orch23_reporter.py": "", "test_a.py": RED}, "E3"),
    "a shadowing hash": (
        {"hmac.py": "raise SystemExit(0)", "hashlib.py": "raise SystemExit(0)", "test_a.py": RED},
        "E301",
    ),
    "sitecustomize": ({"sitecustomize.py": "import os; os._exit(0)", "test_a.py": RED}, "E301"),
    "sys.exit in a test module": ({"test_a.py": "import sys; sys.exit(0)\n" + RED}, "E3"),
    "sys.exit in the code": ({"a.py": "raise SystemExit(0)", "test_a.py": "import a\n" + RED}, "E3"),
    "os._exit in the code": (
        {"a.py": "import os\ndef f(): os._exit(0)", "test_a.py": "import a\ndef test_it(): assert a.f() == 1\n"},
        "E308",
    ),
    "pytest.exit in the code": (
        {
            "a.py": "import pytest\ndef f(): pytest.exit('x', 0)",
            "test_a.py": "import a\ndef test_it(): a.f(); assert 0\n",
        },
        "E3",
    ),
    "all skipped": (
        {
            "conftest.py": "collect_ignore_glob = []",
            "test_a.py": "import pytest\npytestmark = pytest.mark.skip\n" + RED,
        },
        "E305",
    ),
    "the module is skipped": (
        {
            "a.py": "import pytest; pytest.skip('x', allow_module_level=True)",
            "test_a.py": "import a\n" + RED,
            "test_b.py": GREEN,
        },
        "E305",
    ),
    "the code skips its test": (
        {
            "a.py": "import pytest\ndef f(): pytest.skip()",
            "test_a.py": "import a\ndef test_it(): a.f()\n",
            "test_b.py": GREEN,
        },
        "E305",
    ),
    "the code skips by unittest": (
        {
            "a.py": "import unittest\ndef f(): raise unittest.SkipTest",
            "test_a.py": "import a\ndef test_it(): a.f()\n",
            "test_b.py": GREEN,
        },
        "E305",
    ),
    "the code expects its failure": (
        {
            "a.py": "import pytest\ndef f(): pytest.xfail()",
            "test_a.py": "import a\ndef test_it(): a.f()\n",
            "test_b.py": GREEN,
        },
        "E305",
    ),
    "an empty test file": ({"test_a.py": ""}, "E305"),
    "no test file": ({"a.py": GREEN}, "E305"),
    "the outcome is bettered": (
        {
            "conftest.py": "import pytest\n@pytest.hookimpl(hookwrapper=True, tryfirst=True)\n"
            "def pytest_runtest_makereport():\n    r = (yield).get_result()\n"
            "    r.outcome = 'passed'; r.longrepr = None\n",
            "test_a.py": RED,
        },
        "E308",
    ),
    "the test is not run": (
        {"conftest.py": "def pytest_runtest_protocol(item): return True", "test_a.py": RED},
        "E308",
    ),
    "the exit status is bettered": (
        {"conftest.py": "def pytest_sessionfinish(session): session.exitstatus = 0", "test_a.py": RED},
        "E3",
    ),
    "the loop is replaced": ({"conftest.py": "def pytest_runtestloop(): return True", "test_a.py": RED}, "E308"),
    "the report is written by the test": (
        {
            "test_a.py": "import os, json\ndef test_it():\n"
            "    for fd in range(3, 64):\n"
            "        for e in ({'event': 'test', 'id': 'test_a.py::test_it', 'when': 'teardown', 'outcome': 'passed'},"
            " {'event': 'finish', 'status': 0}):\n"
            "            try: os.write(fd, b'0' * 64 + b' ' + json.dumps(e).encode() + b'\\n')\n"
            "            except OSError: pass\n"
            "    os._exit(0)\n"
        },
        "E308",
    ),
    "a forked child goes on": (
        {"test_a.py": "import os\ndef test_it():\n    if os.fork(): os._exit(0)\n"},
        "E308",
    ),
    "the program is shadowed on PATH": ({"python": "#!/bin/sh\nexit 0\n", "bin/python": "", "test_a.py": RED}, "E301"),
}


ALWAYS_TRIED = {  # one of each kind; the others are slow proofs
    "conftest leaves with 0",
    "addopts of a staged ini",
    "deselection in conftest",
    "a shadowing reporter",
    "the code skips its test",
    "the outcome is bettered",
    "the report is written by the test",
}


@pytest.mark.parametrize(
    "way", [way if way in ALWAYS_TRIED else pytest.param(way, marks=pytest.mark.slow) for way in FORGERIES]
)
def test_no_known_forgery_passes(judge: Judge, way: str) -> None:
    files, code = FORGERIES[way]
    verdict = judge.verdict(files)
    assert not verdict.passed
    assert any(d.code.startswith(code) for d in verdict.diagnostics), verdict
    assert verdict.excerpt


def test_an_honest_run_is_green_and_its_report_has_no_times_and_no_room(judge: Judge) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/a.py": "def f(x): return x + 1\n",
        "conftest.py": "import pytest\n@pytest.fixture\ndef one(): return 1\n",
        "tests/test_a.py": "import pytest, unittest\nfrom pkg.a import f\n"
        "@pytest.mark.parametrize('x', [1, 2])\ndef test_f(x, one): assert f(x) == x + one\n"
        "@pytest.mark.skip(reason='later')\ndef test_later(): assert 0\n"
        "@pytest.mark.xfail\ndef test_known(): assert 0\n"
        "class TestK:\n    def test_k(self, tmp_path): (tmp_path / 'x').write_text('x')\n"
        "class Case(unittest.TestCase):\n    def test_c(self): self.assertEqual(f(0), 1)\n",
    }
    verdict = judge.verdict(files)
    assert verdict.passed, verdict
    assert verdict.counts == {"passed": 4, "skipped": 1, "xfailed": 1}
    first, second = (judge.run(files, PytestStep(args=("-q",))) for _ in range(2))
    assert first.report == second.report
    assert first.written == {}  # no cache folder, no bytecode


def test_a_failure_has_place_error_and_text(judge: Judge) -> None:
    files = {"a.py": "def f():\n    return {}['k']\n", "test_a.py": "import a\ndef test_it():\n    a.f()\n"}
    verdict = judge.verdict(files)
    assert verdict.failing == ("test_a.py::test_it KeyError",)
    assert str(verdict.diagnostics[0].location) == "a.py:2:1"
    assert "return {}['k']" in verdict.excerpt


def test_a_broken_import_is_named_by_its_error(judge: Judge) -> None:
    verdict = judge.verdict({"test_a.py": "import does_not_exist\ndef test_it(): pass\n"})
    assert verdict.failing == ("test_a.py ModuleNotFoundError",)
    assert [d.code for d in verdict.diagnostics] == ["E301"]


def test_a_syntax_error_in_a_test_file_is_one_complaint(judge: Judge) -> None:
    verdict = judge.verdict({"test_a.py": "def test_it(:\n", "test_b.py": GREEN})
    assert verdict.failing == ("test_a.py SyntaxError",)


def test_a_wrong_option_is_told_with_pytests_own_words(judge: Judge) -> None:
    verdict = judge.verdict({"test_a.py": GREEN}, PytestStep(args=("--no-such-option",)))
    assert [d.code for d in verdict.diagnostics] == ["E320"]
    assert "--no-such-option" in verdict.excerpt


def test_config_pythonpath_paths_and_expect(judge: Judge) -> None:
    files = {
        "cfg/my.ini": "[pytest]\npython_functions = check_*\naddopts = --collect-only\n",
        "src dir/m.py": "X = 1\n",
        "t/test_a.py": "import m\ndef check_it(): assert m.X == 1\n",
        "t/test_b.py": "def check_it(): assert 0\n",
    }
    step = PytestStep(
        config="cfg/my.ini", pythonpath=("src dir",), paths=("t/test_a.py",), expect=("t/test_a.py::check_it",)
    )
    assert judge.verdict(files, step).passed


@pytest.mark.slow
def test_a_plugin_is_loaded_only_where_it_is_declared(judge: Judge) -> None:
    files = {"test_a.py": "def test_it(request): assert request.config.pluginmanager.hasplugin('xdist')\n"}
    assert not judge.verdict(files).passed
    assert judge.verdict(files, PytestStep(plugins=("xdist",))).passed


@pytest.mark.slow
def test_workers_of_xdist_report_too(judge: Judge) -> None:
    step = PytestStep(plugins=("xdist",), args=("-n", "2", "-q"))
    assert judge.verdict({"test_a.py": GREEN, "test_b.py": GREEN}, step).passed
    red = judge.verdict({"test_a.py": GREEN, "test_b.py": RED}, step)
    assert red.failing == ("test_b.py::test_it AssertionError",)


def test_a_module_that_was_loaded_from_outside_the_room_fails_the_run(judge: Judge, tmp_path: Path) -> None:
    """An editable install puts another checkout on the path; the tests would be green for code that is not promoted."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "todo.py").write_text("X = 1\n")
    load = f"import sys\nsys.path.insert(0, {str(tmp_path / 'old')!r})\nimport todo\n"
    verdict = judge.verdict({"todo.py": "X = 2\n", "test_a.py": f"{load}def test_it(): assert todo.X == 1\n"})
    assert [(d.code, d.subject) for d in verdict.diagnostics] == [("E307", "todo")]


@pytest.mark.slow
def test_a_module_called_like_one_of_the_standard_library_matters_where_it_is_used(judge: Judge) -> None:
    unused = {"json.py": "X = 1\n", "test_a.py": GREEN}
    assert judge.verdict(unused).passed
    used = {"json.py": "X = 1\n", "test_a.py": "from json import dumps\ndef test_it(): assert dumps(1) == '1'\n"}
    assert [d.code for d in judge.verdict(used).diagnostics] == ["E307"]


def test_the_channel_is_hidden_from_tests_and_what_they_start(judge: Judge) -> None:
    code = (
        "import os, subprocess, sys\n"
        "def test_it():\n"
        "    assert 'ORCH23_REPORT_FD' not in os.environ\n"
        "    code = 'import os; print(len([f for f in os.listdir(\"/proc/self/fd\") if int(f) > 3]))'\n"
        "    done = subprocess.run([sys.executable, '-c', code], close_fds=False, capture_output=True)\n"
        "    assert done.stdout == b'0\\n'\n"
    )
    verdict = judge.verdict({"test_a.py": code}, PytestStep(args=("-q", "-s")))
    assert verdict.passed, verdict.excerpt


def test_the_report_is_lines_of_json_without_signatures(judge: Judge) -> None:
    result = judge.run({"test_a.py": GREEN}, PytestStep())
    assert result.report is not None
    events = [json.loads(line)["event"] for line in result.report.splitlines()]
    assert events == ["start", "collected", "test", "test", "finish"]
    assert os.fsencode("rooms") not in result.report
