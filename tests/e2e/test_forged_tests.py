"""Code that a model wrote cannot turn its failing tests green: it changes no test, and hides no library."""

import json

import pytest

from orch23.cli import build_run
from orch23.execute.launch import TierChoice
from tests.e2e.pipelines import green
from tests.project import Outcome, Project, files_answer, scripted
from tests.sandbox.probe import launcher
from tests.sandbox.users import need

pytestmark = pytest.mark.slow  # each starts pytest in a process: `make test` runs them, `make check` does not

TIERS = ("bubblewrap", "landlock", "none")


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Build in one tier of the sandbox."""
    name: str = request.param
    need(name)
    confined = launcher(name)
    monkeypatch.setattr(build_run, "_best_tier", lambda: TierChoice(None if name == "none" else confined))
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")
    return name


def generated(
    project: Project, code: dict[str, str], tests: dict[str, str], *, verify: object = None, **stage: object
) -> Outcome:
    """Build a stage whose model writes this code, held to these tests of the user's."""
    own = {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app", "alpha", "beta"]}
    steps = verify if verify is not None else [{"pytest": own}]
    stages = {
        "code": {
            "outputs": ["src/"],
            "llm": {"returns": "files"},
            "verify": {"inputs": ["tests/**", "lib/**"], "steps": steps},
            "retry": 0,
            **stage,
        }
    }
    answer = files_answer({f"src/{name}": text for name, text in code.items()})
    return project.write(scripted(stages, {"code": [answer]})).write(tests).build("pipeline.yaml")


def failure(project: Project) -> str:
    """Return what the last attempt is told."""
    return json.dumps(project.events_of("attempt_finished")[-1]["data"])


# ---- tests that are changed --------------------------------------------------------------------------

BETA = "import beta\ndef test_beta():\n    assert beta.value() == 2\n"
REWRITE = "import pathlib\nplace = pathlib.Path('tests/test_beta.py')\nACT\ndef value():\n    return 1\n"
REWRITING = {
    "written": "place.write_text(place.read_text().replace('== 2', '== 99'))",
    "replaced": "place.unlink(); place.write_text('import beta\\ndef test_beta(): pass\\n')",
    "renamed": "import os\nos.rename('tests', 'moved'); os.mkdir('tests')\n"
    "(place).write_text('import beta\\ndef test_beta(): pass\\n')\n"
    "pathlib.Path('tests/test_alpha.py').write_text('import alpha\\ndef test_alpha(): pass\\n')",
    "through a link": "import os\nos.link(place, 'linked'); pathlib.Path('linked').write_text("
    "place.read_text().replace('== 2', '== 99'))",
    "with its modes": "import os\nos.chmod('tests', 0o777); os.chmod(place, 0o777)\n"
    "place.write_text(place.read_text().replace('== 2', '== 99'))",
    "compiled": "import importlib.util, marshal, os\n"
    "from _pytest.assertion.rewrite import PYC_TAIL\n"
    "head = importlib.util.MAGIC_NUMBER + bytes([3, 0, 0, 0]) + importlib.util.source_hash(place.read_bytes())[:8]\n"
    "code = compile('def test_beta(): pass', str(place.resolve()), 'exec')\n"
    "os.mkdir('tests/__pycache__')\n"
    "pathlib.Path('tests/__pycache__/test_beta' + PYC_TAIL).write_bytes(head + marshal.dumps(code))",
}


@pytest.mark.stride(9)
@pytest.mark.parametrize("way", REWRITING)
def test_code_cannot_rewrite_a_test_when_it_is_imported(project: Project, tier: str, way: str) -> None:
    code = {
        "alpha.py": REWRITE.replace(
            "ACT", f"try:\n    {REWRITING[way].replace(chr(10), chr(10) + '    ')}\nexcept OSError:\n    pass"
        ),
        "beta.py": "def value():\n    return 99\n",
    }
    tests = {
        "tests/test_alpha.py": "import alpha\ndef test_alpha():\n    assert alpha.value() == 1\n",
        "tests/test_beta.py": BETA,
    }
    outcome = generated(project, code, tests)
    assert outcome.code == (2 if (tier, way) == ("none", "through a link") else 1), outcome.out
    assert not project.exists("src/beta.py")


# ---- modules that stand in for a library's -----------------------------------------------------------

ORACLES = {
    "the standard library": (
        {"statistics.py": "def mean(values): return 99\n"},
        "import statistics, app\ndef test_it(): assert app.mean([1, 3]) == statistics.mean([1, 3])\n",
    ),
    "a package of the standard library": (
        {"fractions/__init__.py": "def Fraction(*values): return 99\n"},
        "import fractions, app\ndef test_it(): assert app.mean([1, 3]) == fractions.Fraction(2)\n",
    ),
    "a test library": (
        {
            "hypothesis/__init__.py": "given = lambda *a: lambda f: lambda: None\n",
            "hypothesis/strategies.py": "def integers(): pass\n",
        },
        (
            "import app\nfrom hypothesis import given, strategies as s\n@given(s.integers())\n"
            "def test_it(value): assert app.mean([value]) == value\n"
        ),
    ),
    "an installed library": (
        {"yaml.py": "def safe_load(text): return 99\n"},
        "import yaml, app\ndef test_it(): assert app.mean([1, 3]) == yaml.safe_load('2')\n",
    ),
}


@pytest.mark.parametrize("what", ORACLES)
def test_a_module_that_hides_one_of_a_library_is_refused_by_name(project: Project, what: str) -> None:
    code, test = ORACLES[what]
    outcome = generated(project, {"app.py": "def mean(values): return 99\n", **code}, {"tests/test_app.py": test})
    assert outcome.code == 1, outcome.out
    first = next(iter(code))
    assert f"[E324] src/{first}: would be imported instead of" in failure(project)
    assert f"trust: [src/{first}]" in failure(project)


def test_a_module_beside_the_tests_that_hides_one_of_a_library_is_refused(project: Project) -> None:
    test = "import statistics, app\ndef test_it(): assert app.mean([1, 3]) == statistics.mean([1, 3])\n"
    stages = {
        "code": {
            "outputs": ["src/", "tests/statistics.py"],
            "llm": {"returns": "files"},
            "verify": {
                "inputs": ["tests/test_app.py"],
                "steps": [{"pytest": {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app"]}}],
            },
            "retry": 0,
        }
    }
    forged = "def mean(values): return 99\n"
    answer = files_answer({"src/app.py": forged, "tests/statistics.py": forged})
    outcome = project.write(scripted(stages, {"code": [answer]})).write({"tests/test_app.py": test}).build()
    assert outcome.code == 1
    assert "[E324] tests/statistics.py" in failure(project)


def test_a_module_of_a_model_that_hides_one_of_the_users_is_refused(project: Project) -> None:
    steps = [{"pytest": {"paths": ["tests"], "pythonpath": ["src", "lib"], "provides": ["app"]}}]
    test = "import app, oracle\ndef test_it(): assert app.mean([1, 3]) == oracle.mean([1, 3])\n"
    own = {"tests/test_app.py": test, "lib/oracle.py": "def mean(values): return 2\n"}
    forged = {"app.py": "def mean(values): return 99\n", "oracle.py": "def mean(values): return 99\n"}
    assert generated(project, forged, own, verify=steps).code == 1
    assert "[E324] src/oracle.py: would be imported instead of `lib/oracle.py`" in failure(project)


def test_a_module_that_is_meant_to_hide_one_can_be_trusted(project: Project) -> None:
    steps = [{"pytest": {"paths": ["tests"], "pythonpath": ["src"], "trust": ["src/statistics.py"]}}]
    test = {"tests/test_app.py": "import statistics\ndef test_it(): assert statistics.mean([]) == 99\n"}
    green(generated(project, {"statistics.py": "def mean(values): return 99\n"}, test, verify=steps))


@pytest.mark.stride(4)
@pytest.mark.parametrize("name", ["test/__init__.py", "mymath.py", "lib/statistics.py", "yaml/data.py"])
def test_modules_that_hide_none_are_accepted(project: Project, name: str) -> None:
    test = {"tests/test_app.py": "import app\ndef test_it(): assert app.X == 1\n"}
    green(generated(project, {"app.py": "X = 1\n", name: ""}, test))


# ---- what a step that verifies may write -------------------------------------------------------------

WRITING = {
    "a test": "def test_it():\n    open('out.txt', 'w').close()\n",
    "a program that a test starts": (
        "import subprocess\ndef test_it():\n    subprocess.run(['touch', 'out.txt'], check=True)\n"
    ),
    "a shell step": "touch out.txt",
    "a shell step that makes a folder": "mkdir -p tests/out",
}


def steps_for(what: str) -> tuple[list[object], dict[str, str]]:
    """Return the steps of verification that write something, and the test among them."""
    if "shell" in what:
        return [{"shell": WRITING[what]}], {"tests/data.txt": ""}
    return [{"pytest": {"paths": ["tests"], "pythonpath": ["src"]}}], {"tests/test_it.py": WRITING[what]}


@pytest.mark.stride(11)
@pytest.mark.parametrize("what", WRITING)
def test_a_step_that_writes_to_the_tree_fails_and_is_reported_of_scratch(
    project: Project, tier: str, what: str
) -> None:
    steps, files = steps_for(what)
    outcome = generated(project, {"app.py": ""}, files, verify=steps)
    assert outcome.code == 1, outcome.out
    assert "E323" in failure(project)
    assert "list the path in `scratch`" in failure(project)
    assert "list the path in `scratch`" in outcome.err


@pytest.mark.stride(11)
@pytest.mark.parametrize("what", WRITING)
def test_what_scratch_names_can_be_written(project: Project, tier: str, what: str) -> None:
    steps, files = steps_for(what)
    green(generated(project, {"app.py": ""}, files, verify=steps, scratch=["out.txt", "tests/out/"]))


CACHES = """\
import os, pathlib, subprocess, sys, tempfile
def test_it(tmp_path):
    (tmp_path / 'a').write_text('x')
    (pathlib.Path.home() / 'b').write_text('x')
    with tempfile.TemporaryFile(): pass
    subprocess.run([sys.executable, '-m', 'coverage', 'run', 'src/app.py'], check=True)
    subprocess.run([sys.executable, '-m', 'coverage', 'report'], check=True)
"""


@pytest.mark.stride(3)
def test_caches_and_temporary_files_work_while_the_tree_is_read_only(project: Project, tier: str) -> None:
    steps = [
        {"pytest": {"paths": ["tests"], "pythonpath": ["src"]}},
        {
            "shell": "python -m compileall -q . && python -W error -m coverage run -m pytest -q tests"
            " && python -m ruff check src"
        },
    ]
    green(generated(project, {"app.py": "X = 1\n"}, {"tests/test_it.py": CACHES}, verify=steps))


@pytest.mark.stride(3)
def test_a_pytest_stage_may_write_its_outputs_and_no_input(project: Project, tier: str) -> None:
    stages = {
        "tests": {
            "inputs": ["tests/*.py", "app.py"],
            "outputs": ["results.xml", "out/more.txt", "pages/"],
            "pytest": {"args": ["--junitxml=results.xml"], "paths": ["tests"], "report": "report.json"},
        }
    }
    test = (
        "import pathlib, pytest\ndef test_it():\n    pathlib.Path('out/more.txt').write_text('x')\n"
        "    pathlib.Path('pages/a').write_text('x')\n    TRY\n"
    )
    project.write(scripted(stages, {})).write({"tests/test_it.py": test.replace("TRY", ""), "app.py": ""})
    green(project.build())
    assert "<testsuite" in project.read("results.xml")
    project.write({"tests/test_it.py": test.replace("TRY", "pathlib.Path('app.py').write_text('')")})
    assert project.build().code == 1
    assert "E323" in failure(project)


@pytest.mark.stride(3)
def test_an_output_that_a_pytest_stage_does_not_write_is_missing(project: Project, tier: str) -> None:
    stages = {"tests": {"inputs": ["test_it.py"], "outputs": ["results.xml"], "pytest": {}, "retry": 0}}
    project.write(scripted(stages, {})).write({"test_it.py": "def test_it(): pass\n"})
    assert project.build().code == 1
    assert "E303" in failure(project)
