"""pytest as verdict, with a real pytest: what must stay green, and what a failure tells (forgeries: tests/hostile)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.steps.pytest.spec import PytestStep
from orch23.verdict.verdict import report_json
from tests.hostile.judging import Judge

pytestmark = pytest.mark.slow  # pytest runs

RED = "def test_it():\n    assert 1 == 2\n"
GREEN = "def test_it():\n    assert 1 == 1\n"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    made = Judge(tmp_path_factory.mktemp("rooms"))
    yield made
    made.executor.close()


def test_a_normal_run_is_green_and_its_report_has_no_times_and_no_paths(judge: Judge) -> None:
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


LISTS = """\
def test_it():
    assert {k: {"name": "n" * 60, "at": k} for k in range(10)} == {k: {"name": "n" * 60, "at": -k} for k in range(10)}
"""


@pytest.mark.stride(5)
@pytest.mark.parametrize("args", [(), ("-q",), ("-vv",), ("-n1",)])
def test_a_failure_shows_the_whole_difference(judge: Judge, args: tuple[str, ...]) -> None:
    verdict = judge.verdict({"test_a.py": LISTS}, PytestStep(args=args, plugins=("xdist",) if "-n1" in args else ()))
    for k in range(1, 10):
        assert f"E         -         'at': -{k}," in verdict.excerpt
        assert f"E         +         'at': {k}," in verdict.excerpt
    assert "Use -v" not in verdict.excerpt


def test_the_difference_of_large_values_is_not_computed_as_a_whole(judge: Judge) -> None:
    """It takes minutes for 300 lines that are alike, and a RecursionError ends it for 600."""
    many = (
        "import random\ndef test_it():\n"
        "    a = [[random.Random(n).randint(0, 9) for _ in range(600)] for n in (1, 2)]\n"
    )
    verdict = judge.verdict({"test_a.py": f"{many}    assert a[0] == a[1]\n"})
    assert verdict.failing == ("test_a.py::test_it AssertionError",)
    assert "At index 0 diff: 2 != 0" in verdict.excerpt


def test_a_value_that_cannot_be_shown_fails_as_before(judge: Judge) -> None:
    odd = "class Odd:\n    def __repr__(self): raise ValueError\ndef test_it(): assert Odd() == 1\n"
    assert judge.verdict({"test_a.py": odd}).failing == ("test_a.py::test_it AssertionError",)


def test_a_broken_import_is_named_by_its_error(judge: Judge) -> None:
    verdict = judge.verdict({"test_a.py": "import does_not_exist\ndef test_it(): pass\n"})
    assert verdict.failing == ("test_a.py ModuleNotFoundError",)
    assert [d.code for d in verdict.diagnostics] == ["E301"]


def test_a_syntax_error_in_a_test_file_is_one_error(judge: Judge) -> None:
    verdict = judge.verdict({"test_a.py": "def test_it(:\n", "test_b.py": GREEN})
    assert verdict.failing == ("test_a.py SyntaxError",)


def test_a_wrong_option_is_reported_with_pytests_message(judge: Judge) -> None:
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


def test_a_module_that_was_loaded_from_outside_the_sandbox_fails_the_run(judge: Judge, tmp_path: Path) -> None:
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
    report = judge.report(result)
    assert report is not None
    events = [json.loads(line)["event"] for line in report.splitlines()]
    assert events == ["start", "collected", "test", "test", "finish"]
    assert os.fsencode("rooms") not in report


def test_a_secret_that_a_test_prints_is_not_in_the_stored_report(tmp_path: Path) -> None:
    found: list[str] = []

    def redact(text: str) -> str:
        found.append(text)
        return text.replace("hunter2", "[redacted]")

    judge = Judge(tmp_path, redact=redact)
    result = judge.run({"test_a.py": "def test_it():\n    assert 'hunter2' == ''\n"}, PytestStep())
    judge.executor.close()
    report = judge.report(result)
    assert report is not None
    assert b"[redacted]" in report
    assert b"hunter2" not in report
    assert len(found) == 1


def test_a_report_names_every_sandbox_directory_alike(judge: Judge) -> None:
    files = {"test_a.py": "import os\ndef test_it():\n    raise ValueError(os.getcwd())\n"}
    first, second = (judge.report(judge.run(files, PytestStep(args=("-q",)))) for _ in range(2))
    assert first is not None
    assert first == second
    assert b"/room/work" in first


SUBTESTS = """\
import pytest, unittest
def test_cases(subtests):
    for case in ["x", "y"]:
        with subtests.test(case=case):
            assert len("abc") == 4
def test_named(subtests):
    with subtests.test("a b"):
        pytest.skip("later")
    with subtests.test("known"):
        pytest.xfail("known")
class TestU(unittest.TestCase):
    def test_u(self):
        for n in (1, 2):
            with self.subTest(n=n): self.assertEqual(n, 3)
    def test_green(self):
        with self.subTest(n=3): pass
        with self.subTest(n=4): self.skipTest("no")
"""


def test_a_failed_subtest_fails_its_test_and_is_named(judge: Judge) -> None:
    verdict = judge.verdict({"test_d.py": SUBTESTS})
    assert not verdict.passed
    assert (verdict.headline, verdict.counts) == ("2 failed, 2 passed", {"failed": 2, "passed": 2})
    # The identity of a retry does not have the labels: its fingerprint stays that of earlier versions.
    assert verdict.failing == ("test_d.py::TestU::test_u AssertionError", "test_d.py::test_cases AssertionError")
    assert [one.message for one in verdict.diagnostics] == [
        "failed with AssertionError in the subtests (n=1), (n=2)",
        "failed with AssertionError in the subtests (case='x'), (case='y')",
    ]
    assert json.loads(report_json(verdict))["subtests"] == {
        "test_d.py::TestU::test_green (n=4)": "skipped",
        "test_d.py::TestU::test_u (n=1)": "failed",
        "test_d.py::TestU::test_u (n=2)": "failed",
        "test_d.py::test_cases (case='x')": "failed",
        "test_d.py::test_cases (case='y')": "failed",
        "test_d.py::test_named [a b]": "skipped",
        "test_d.py::test_named [known]": "xfailed",
    }
    assert all(
        f" {label} (call)" in verdict.excerpt or f" {label}\n" in verdict.excerpt for label in ("(n=1)", "(n=2)")
    )


def test_a_failed_subtest_fails_its_test_in_a_worker_of_xdist(judge: Judge) -> None:
    verdict = judge.verdict({"test_d.py": SUBTESTS}, PytestStep(args=("-n1",), plugins=("xdist",)))
    assert (verdict.headline, verdict.counts) == ("2 failed, 2 passed", {"failed": 2, "passed": 2})
    assert verdict.failing == ("test_d.py::TestU::test_u AssertionError", "test_d.py::test_cases AssertionError")
    assert len(verdict.subtests) == 7


def test_many_subtests_that_pass_do_not_fill_the_report(judge: Judge) -> None:
    many = "def test_it(subtests):\n    for n in range(300):\n        with subtests.test(n=n): pass\n"
    one = "def test_it(subtests):\n    with subtests.test(n=0): pass\n"
    sizes = [len(judge.report(judge.run({"test_a.py": text}, PytestStep(args=("-q",)))) or b"") for text in (one, many)]
    assert sizes[0] == sizes[1]
