"""A library that is missing stays missing: a model supplies only modules that the pipeline names."""

import json

import pytest

from tests.e2e.pipelines import green
from tests.project import Outcome, Project, files_answer, scripted

pytestmark = pytest.mark.slow  # most start pytest in a process

APP = "def f():\n    return 41\n"
STUB = (
    "def given(*a):\n    def d(f):\n        def test(): pass\n        test.__name__ = f.__name__\n"
    "        return test\n    return d\n"
)
TEST = "import app\nfrom missinglib import given\n@given(1)\ndef test_it(x):\n    assert app.f() == 42\n"
OTHER = "import app\ndef test_it():\n    assert app.f() == 41\n"


def pipeline(
    made: dict[str, str],
    *,
    outputs: list[str] | None = None,
    inputs: list[str] | None = None,
    is_stage: bool = True,
    more: dict[str, dict[str, object]] | None = None,
    **options: object,
) -> dict[str, str]:
    """Return a pipeline whose model makes these files, and whose tests are a stage or part of the verification."""
    step = {"paths": ["tests"], "pythonpath": ["src"], **options}
    tests = inputs or ["tests/"]
    code: dict[str, object] = {"outputs": outputs or ["src/"], "llm": {"returns": "files"}, "retry": 0}
    if not is_stage:
        code["verify"] = {"inputs": tests, "steps": [{"pytest": step}]}
    stages: dict[str, dict[str, object]] = {"code": code, **(more or {})}
    if is_stage:
        stages["test"] = {"inputs": ["src/", *tests], "pytest": step}
    return scripted(stages, {"code": [files_answer(made)]})


def calls(project: Project) -> int:
    return len(project.events_of("llm_request"))


def refused(project: Project, outcome: Outcome, module: str) -> None:
    """The build fails because of this module, and says what to write."""
    assert outcome.code == 1, outcome.out + outcome.err
    assert "E326" in outcome.out + outcome.err
    assert f"imports `{module}`" in outcome.out + outcome.err


@pytest.mark.parametrize("is_stage", [True, False])
def test_no_model_is_called_for_a_test_that_imports_a_missing_library(project: Project, is_stage: bool) -> None:
    made = {"src/app.py": APP, "src/missinglib/__init__.py": STUB}
    project.write(pipeline(made, is_stage=is_stage, provides=["app"])).write({"tests/test_a.py": TEST})
    outcome = project.build()
    refused(project, outcome, "missinglib")
    assert "`pytest: {provides: [app, missinglib]}`" in outcome.out + outcome.err
    assert calls(project) == 0
    assert not project.exists("src/app.py")


LATER = {
    "an import in a block": "import app\ntry:\n    from missinglib import given\nexcept ImportError:\n    pass\n",
    "an import in a test": "import app\ndef test_b():\n    import missinglib\n",
    "a module of a package": "import app\ndef test_b():\n    import missinglib.a.b\n",
    "importlib": "import app, importlib\nm = importlib.import_module('missinglib')\n",
    "a name in a list": "import app\nNAMES = ['missinglib']\ndef test_b():\n    for n in NAMES: __import__(n)\n",
    "a name and a dot": "import app, importlib\nm = importlib.import_module('missinglib.a', 'missinglib')\n",
    "monkeypatch": "import app\ndef test_b(monkeypatch):\n    monkeypatch.setattr('missinglib.given', 1)\n",
    "a patch": "import app\nfrom unittest import mock\ndef test_b():\n    with mock.patch('missinglib.given'): pass\n",
}
FORMS = {
    "a package": {"src/missinglib/__init__.py": STUB, "src/missinglib/a/__init__.py": "", "src/missinglib/a/b.py": ""},
    "a module": {"src/missinglib.py": STUB},
    "a directory without __init__": {"src/missinglib/given.py": "", "src/missinglib/a/b.py": ""},
    "a module in a directory that a conftest adds": {"vendor/missinglib.py": STUB},
}


@pytest.mark.stride(11)
@pytest.mark.parametrize("way", LATER)
@pytest.mark.parametrize("form", FORMS)
def test_a_missing_library_that_a_model_made_is_refused(project: Project, way: str, form: str) -> None:
    tests = {
        "tests/test_a.py": LATER[way] + OTHER.partition("\n")[2],
        "tests/conftest.py": "import sys\nsys.path[:0] = ['vendor', 'src']\n",
    }
    made = {"src/app.py": APP, **FORMS[form]}
    outputs = ["src/", "vendor/"] if "vendor/missinglib.py" in made else ["src/"]
    step = {"paths": ["tests/test_a.py"], "pythonpath": ["src"], "provides": ["app"]}
    stages: dict[str, dict[str, object]] = {
        "code": {
            "outputs": outputs,
            "llm": {"returns": "files"},
            "verify": {"inputs": ["tests/test_a.py", "tests/conftest.py"], "steps": [{"pytest": step}]},
            "retry": 2,
        }
    }
    project.write(scripted(stages, {"code": [files_answer(made)] * 3})).write(tests)
    refused(project, project.build(), "missinglib")
    assert calls(project) == 1, "no response can pass"


@pytest.mark.parametrize("where", ["tests/helper.py", "tests/conftest.py", "lib/helper.py"])
def test_the_imports_of_your_own_helpers_count(project: Project, where: str) -> None:
    helper = "def check(): pass\nif True:\n    import missinglib\n"
    tests = {where: helper, "tests/test_a.py": ("import helper\n" if "helper" in where else "") + OTHER}
    made = {"src/app.py": APP, "src/missinglib.py": ""}
    options = {"provides": ["app"], "pythonpath": ["src", "lib"], "inputs": ["tests/", "lib/**"]}
    project.write(pipeline(made, is_stage=False, **options)).write({"lib/x.txt": "", **tests})  # type: ignore[arg-type]
    refused(project, project.build(), "missinglib")


@pytest.mark.parametrize("more", [{}, {"src/__init__.py": ""}])
def test_a_name_counts_if_another_file_imports_by_name(project: Project, more: dict[str, str]) -> None:
    tests = {
        "tests/helper.py": "import importlib\ndef load(n):\n    return importlib.import_module(n)\n",
        "tests/test_a.py": "from helper import load\nlib = load('missinglib')\n" + OTHER,
    }
    made = {"src/app.py": APP, "src/missinglib.py": "", **more}
    project.write(pipeline(made, is_stage=False, provides=["app"])).write(tests)
    refused(project, project.build(), "missinglib")


@pytest.mark.parametrize("how", ["from unittest import mock\nmock.patch('app.f')\n", "__import__('app')\n"])
def test_a_text_that_is_the_name_of_a_module_in_a_package_imports_nothing(project: Project, how: str) -> None:
    made = {"src/app/__init__.py": APP, "src/app/utils.py": "", "src/app/config.py": ""}
    test = how + "NAMES = ['utils', 'config.json']\n" + OTHER
    project.write(pipeline(made, outputs=["src/app/"])).write({"tests/test_a.py": test})
    green(project.build())


def test_a_text_without_a_dot_beside_a_patch_imports_nothing(project: Project) -> None:
    made = {"src/app/core.py": APP, "src/app/utils.py": ""}
    test = "from unittest import mock\nNAME = 'utils'\n" + OTHER.replace("import app", "import app.core as app")
    project.write(pipeline(made, outputs=["src/app/"])).write({"tests/test_a.py": test + "mock.patch('app.core.f')\n"})
    green(project.build())


def test_pytest_plugins_count(project: Project) -> None:
    tests = {"tests/conftest.py": "pytest_plugins = ['missinglib']\n", "tests/test_a.py": OTHER}
    made = {"src/app.py": APP, "src/missinglib.py": ""}
    project.write(pipeline(made, is_stage=False, provides=["app"])).write(tests)
    refused(project, project.build(), "missinglib")


EXAMPLE = (
    "Text, not (Python.\n\n    >>> import app\n    >>> from missinglib import check\n    >>> check(app.f())\n    True\n"
)
DOCTESTS: dict[str, tuple[str, dict[str, object]]] = {
    "the pattern of pytest": ("tests/test_d.txt", {}),
    "a pattern": ("tests/d.doc", {"args": ["--doctest-glob=*.doc"]}),
    "a pattern in two words": ("tests/a/d.doc", {"args": ["--doctest-glob", "*.doc"]}),
    "a path": ("tests/d.rst", {"paths": ["tests/test_a.py", "tests/d.rst"]}),
    "a docstring": ("tests/helper.py", {"args": ["--doctest-modules"]}),
}


@pytest.mark.parametrize("how", DOCTESTS)
def test_the_imports_of_examples_count(project: Project, how: str) -> None:
    path, options = DOCTESTS[how]
    text = f"'''{EXAMPLE}'''\n" if path.endswith(".py") else EXAMPLE
    made = {"src/app.py": APP, "src/missinglib.py": "def check(x): return True\n"}
    project.write(pipeline(made, is_stage=False, provides=["app"], **options))  # type: ignore[arg-type]
    project.write({"tests/test_a.py": OTHER, path: text})
    refused(project, project.build(), "missinglib")


def test_examples_in_texts_that_pytest_does_not_run_need_no_name(project: Project) -> None:
    made = {"src/app.py": APP, "src/missinglib.py": "", "tests2/test_own.txt": EXAMPLE}
    project.write(pipeline(made, outputs=["src/", "tests2/"], is_stage=False, provides=["app"]))
    project.write({"tests/test_a.py": OTHER, "tests/d.txt": EXAMPLE})
    green(project.build())


PLUGINS: dict[str, dict[str, object]] = {
    "a module": {"plugins": ["missinglib"]},
    "a module of a package": {"plugins": ["missinglib.plugin"]},
    "an argument": {"args": ["-p", "missinglib.plugin"]},
    "one word": {"args": ["-q", "-pmissinglib"]},
    "a setting": {"args": ["-o", "addopts=-p missinglib"]},
    "a setting in one word": {"args": ["--override-ini=addopts=-q '-pmissinglib'"]},
}


@pytest.mark.parametrize("how", PLUGINS)
def test_a_plugin_that_is_loaded_by_name_counts(project: Project, how: str) -> None:
    step = {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app"], **PLUGINS[how]}
    stages: dict[str, dict[str, object]] = {
        "code": {"outputs": ["src/"], "llm": {"returns": "files"}},
        "test": {"inputs": ["src/", "tests/"], "env": {"PYTHONPATH": "src"}, "pytest": step},
    }
    made = {"src/app.py": APP, "src/missinglib/__init__.py": "", "src/missinglib/plugin.py": ""}
    project.write(scripted(stages, {"code": [files_answer(made)]})).write({"tests/test_a.py": OTHER})
    refused(project, project.build(), "missinglib")


def test_a_plugin_that_is_not_loaded_needs_no_name(project: Project) -> None:
    made = {"src/app.py": APP, "src/cacheprovider.py": "", "src/no.py": ""}
    project.write(pipeline(made, provides=["app"], args=["-p", "no:cacheprovider"])).write({"tests/test_a.py": OTHER})
    green(project.build())


@pytest.mark.parametrize(
    ("made", "code"),
    [("src/google/missing.py", "E326"), ("src/google/__init__.py", "E324"), ("src/google.py", "E324")],
)
def test_a_model_adds_nothing_to_installed_directories_of_packages(project: Project, made: str, code: str) -> None:
    stages: dict[str, dict[str, object]] = {
        "code": {"outputs": ["src/"], "llm": {"returns": "files"}},
        "test": {
            "inputs": ["src/", "tests/"],
            "python": "venv",
            "pytest": {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app"]},
        },
    }
    project.write(scripted(stages, {"code": [files_answer({"src/app.py": APP, made: STUB})]}))
    project.write({"tests/test_a.py": "import app, google.missing\n", "venv/pyvenv.cfg": "version = 3.11.1\n"})
    project.write({"venv/lib/python3.11/site-packages/google/real/__init__.py": "", "venv/bin/python": ""})
    (project.root / "venv/bin/python").chmod(0o755)
    outcome = project.build()
    assert calls(project) == 1
    assert code in outcome.err, outcome.err
    assert "`google`" in outcome.err


def test_a_program_that_copies_the_work_of_a_model_names_nothing_by_a_pattern(project: Project) -> None:
    stages: dict[str, dict[str, object]] = {
        "code": {"outputs": ["made.txt"], "llm": {"returns": "text"}},
        "unpack": {
            "inputs": ["made.txt"],
            "outputs": ["src/"],
            "shell": "mkdir -p src/missinglib; cp made.txt src/missinglib/__init__.py; echo 'X = 1' > src/app.py",
        },
        "test": {
            "inputs": ["src/", "tests/"],
            "pytest": {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app"]},
        },
    }
    project.write(scripted(stages, {"code": [STUB]})).write({"tests/test_a.py": TEST})
    refused(project, project.build(), "missinglib")


def test_tests_of_another_model_count(project: Project) -> None:
    stages: dict[str, dict[str, object]] = {
        "tests": {"outputs": ["tests/test_a.py"], "llm": {"returns": "files"}},
        "code": {
            "inputs": ["tests/test_a.py"],
            "outputs": ["src/"],
            "llm": {"returns": "files"},
            "verify": [{"pytest": {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app"]}}],
            "retry": 0,
        },
    }
    answers = {
        "tests": [files_answer({"tests/test_a.py": TEST})],
        "code": [files_answer({"src/app.py": APP, "src/missinglib.py": STUB})],
    }
    refused(project.write(scripted(stages, answers)), project.build(), "missinglib")


def test_paths_of_items_whose_list_a_model_made_name_nothing(project: Project) -> None:
    stages: dict[str, dict[str, object]] = {
        "plan": {"outputs": ["plan.json"], "llm": {"returns": "json"}},
        "code": {
            "foreach": {"from": "plan.json#/files", "key": "id", "as": "file"},
            "outputs": ["${{ file.path | under('src') }}"],
            "llm": {"returns": "files"},
        },
        "test": {
            "inputs": ["src/", "tests/"],
            "pytest": {"paths": ["tests"], "pythonpath": ["src"], "provides": ["app"]},
        },
    }
    files = [{"id": "a", "path": "app.py"}, {"id": "b", "path": "missinglib.py"}]
    answers = {
        "plan": [json.dumps({"files": files})],
        "code@a": [files_answer({"src/app.py": APP})],
        "code@b": [files_answer({"src/missinglib.py": STUB})],
    }
    project.write(scripted(stages, answers)).write({"tests/test_a.py": TEST})
    refused(project, project.build(), "missinglib")


# ---- what names a module ---------------------------------------------------------------------------

NAMED = {
    "a literal module": (["src/app.py"], {"src/app.py": APP}),
    "a literal file of a package": (["src/app/__init__.py", "src/"], {"src/app/__init__.py": APP, "src/app/b.py": ""}),
    "a directory": (["src/app/"], {"src/app/__init__.py": APP, "src/app/core.py": ""}),
}


@pytest.mark.stride(4)
@pytest.mark.parametrize("is_stage", [True, False])
@pytest.mark.parametrize("how", NAMED)
def test_an_output_names_a_module(project: Project, how: str, is_stage: bool) -> None:
    outputs, made = NAMED[how]
    project.write(pipeline(made, outputs=outputs, is_stage=is_stage)).write({"tests/test_a.py": OTHER})
    green(project.build())


def test_provides_names_a_module_and_is_not_in_the_key(project: Project) -> None:
    made = {"src/app.py": APP, "src/helper.py": ""}
    project.write(pipeline(made, provides=["app"])).write({"tests/test_a.py": OTHER})
    green(project.build())
    project.write(pipeline(made))
    assert set(project.plan().values()) == {"fresh"}
    project.write({"tests/test_a.py": OTHER + "\n"})
    refused(project, project.build(), "app")


def test_a_module_of_an_earlier_build_is_reported_before_a_model_is_called(project: Project) -> None:
    project.write(pipeline({"src/app.py": APP}, provides=["app"])).write({"tests/test_a.py": OTHER})
    green(project.build())
    before = len(project.journals())
    project.write(pipeline({"src/app.py": APP + "\n"}, more={}))
    project.replace("pipeline.yaml", '"retry": 0', '"retry": 1, "salt": "x"')
    refused(project, project.build(), "app")
    assert len(project.journals()) == before + 1
    assert calls(project) == 0


@pytest.mark.parametrize("listed", [["app"], [{"path": "app"}]])
def test_items_that_you_list_name_modules(project: Project, listed: list[object]) -> None:
    name = "${{ m }}" if listed == ["app"] else "${{ m.path }}"
    stages: dict[str, dict[str, object]] = {
        "code": {
            "foreach": {"in": listed, "as": "m", **({"key": "path"} if listed != ["app"] else {})},
            "outputs": [f"src/{name}.py"],
            "llm": {"returns": "files"},
        },
        "test": {"inputs": ["src/", "tests/"], "pytest": {"paths": ["tests"], "pythonpath": ["src"]}},
    }
    project.write(scripted(stages, {"code@app": [files_answer({"src/app.py": APP})]})).write({"tests/test_a.py": OTHER})
    green(project.build())


def test_modules_that_you_have_need_no_name(project: Project) -> None:
    """A model edits your file in place, and your own helpers are beside the tests."""
    stages: dict[str, dict[str, object]] = {
        "code": {
            "inputs": ["src/**"],
            "outputs": ["src/"],
            "llm": {"returns": "files"},
            "verify": {"inputs": ["tests/**"], "steps": [{"pytest": {"paths": ["tests"], "pythonpath": ["src"]}}]},
            "retry": 0,
        }
    }
    project.write(scripted(stages, {"code": [files_answer({"src/app.py": APP})]}))
    project.write(
        {"src/app.py": "def f(): return 1\n", "tests/test_a.py": "import helper\n" + OTHER, "tests/helper.py": ""}
    )
    green(project.build())


def test_modules_that_no_test_imports_need_no_name(project: Project) -> None:
    made = {"src/app.py": "import parts\n" + APP, "src/parts.py": ""}
    project.write(pipeline(made, provides=["app"])).write({"tests/test_a.py": OTHER})
    green(project.build())


def test_a_stage_that_is_not_built_stops_no_call(project: Project) -> None:
    project.write(pipeline({"src/app.py": APP})).write({"tests/test_a.py": OTHER})
    green(project.build("pipeline.yaml", "code"))


def test_an_import_that_may_fail_needs_no_name(project: Project) -> None:
    test = "try:\n    import missinglib\nexcept ImportError:\n    missinglib = None\n" + OTHER
    project.write(pipeline({"src/app.py": APP}, provides=["app"])).write({"tests/test_a.py": test})
    green(project.build())


@pytest.mark.parametrize("is_there", [True, False])
def test_a_module_of_a_stage_without_a_model_before_it_needs_no_name(project: Project, is_there: bool) -> None:
    gen: dict[str, object] = {"outputs": ["gen/"], "shell": "mkdir -p gen; echo 'X = 1' > gen/made.py"}
    project.write(
        pipeline(
            {"src/app.py": APP},
            more={"gen": gen},
            inputs=["gen/", "tests/"],
            provides=["app"],
            pythonpath=["src", "gen"],
        )
    )
    project.write({"tests/test_a.py": "import made\n" + OTHER})
    if is_there:
        green(project.build("pipeline.yaml", "gen"))
    green(project.build())


def test_an_interpreter_of_later_tests_that_is_missing_stops_no_call(project: Project) -> None:
    stages: dict[str, dict[str, object]] = {
        "code": {"outputs": ["src/app.py"], "llm": {"returns": "files"}},
        "test": {"inputs": ["src/", "tests/"], "python": "venv/bin/python", "pytest": {"paths": ["tests"]}},
    }
    project.write(scripted(stages, {"code": [files_answer({"src/app.py": APP})]})).write({"tests/test_a.py": OTHER})
    outcome = project.build()
    assert "2 stages: 1 built, 1 failed" in outcome.err, outcome.out + outcome.err
    assert "E480" in outcome.out + outcome.err


# ---- dependencies ----------------------------------------------------------------------------------

DEPENDENCIES = {
    "pyproject.toml": '[project]\nname = "app"\ndependencies = ["Missing.Lib[x]>=2; python_version > \'3\'", "app"]\n',
    "pyproject.toml extras": '[project.optional-dependencies]\ntest = ["missing-lib"]\n',
    "pyproject.toml groups": '[dependency-groups]\ntest = [{include-group = "a"}, "missing_lib==1"]\n',
    "pyproject.toml poetry": '[tool.poetry.group.dev.dependencies]\nmissing-lib = "^1.0"\n',
    "pyproject.toml build": '[build-system]\nrequires = ["missing-lib"]\n',
    "requirements-dev.txt": "-r other.txt\n# x\nmissing-lib ~= 1.0  # why\n",
    "requirements/test.txt": "missing-lib\n",
    "requirements.in": "missing-lib\n",
    "requirements/test.in": "missing-lib\n",
    "test-requirements.txt": "missing-lib\n",
    "setup.cfg extras": "[options.extras_require]\ntest =\n    a\n    missing-lib\n",
    "setup.py": "from setuptools import setup\nsetup(name='x', install_requires=['a', 'missing-lib>1'])\n",
    "setup.py extras": "import setuptools\nsetuptools.setup(extras_require={'test': ['missing-lib']})\n",
    "Pipfile": '[packages]\nmissing-lib = "*"\n',
    "Pipfile dev": '[requires]\npython_version = "3"\n[dev-packages]\nmissing-lib = {version = "1"}\n',
    "environment.yml": "channels:\n  - x\ndependencies:\n  - python=3\n  - pip:\n    - 'missing-lib>=1'\n",
    "environment.yaml conda": "dependencies:\n- missing-lib\n",
    "setup.cfg": "[options]\ninstall_requires =\n    a\n    missing-lib>=1\n",
}


@pytest.mark.stride(5)
@pytest.mark.parametrize("is_stage", [True, False])
@pytest.mark.parametrize("where", DEPENDENCIES)
def test_a_dependency_is_never_made_by_a_model(project: Project, where: str, is_stage: bool) -> None:
    made = {"src/app.py": APP, "src/missing_lib.py": STUB}
    tests = {"tests/test_a.py": TEST.replace("missinglib", "missing_lib")}
    files = pipeline(made, outputs=[*made], is_stage=is_stage, provides=["missing_lib"])
    project.write(files).write(tests).write({where.partition(" ")[0]: DEPENDENCIES[where]})
    outcome = project.build()
    refused(project, outcome, "missing_lib")
    assert "is a dependency in" in outcome.out + outcome.err
    assert calls(project) == 0


def test_the_project_itself_is_no_dependency(project: Project) -> None:
    project.write(pipeline({"src/app.py": APP}, outputs=["src/app.py"])).write({"tests/test_a.py": OTHER})
    project.write({"pyproject.toml": '[project]\nname = "app"\n[project.optional-dependencies]\nall = ["app[x]"]\n'})
    green(project.build())
