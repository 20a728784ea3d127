"""The pipelines that are shipped, built as they stand: from recordings, from archives, offline."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.project import Project

pytestmark = pytest.mark.needs("local")

HERE = Path(__file__).parents[2]
QUICKSTART = "pipelines/quickstart.yaml"
NOBODY = {"HOME": "/nonexistent", "XDG_DATA_HOME": "/nonexistent", "ORCH23_TRUST": ""}
"""No model is installed there, and nothing is allowed."""
FUNCTIONS = ("clamp", "count_vowels", "is_leap_year", "sum_digits")


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the quickstart once."""
    project = place_(Project(tmp_path_factory.mktemp("built") / "project"))
    built = project.run("build", QUICKSTART, env=NOBODY)
    assert built.code == 0, built.err
    return project.root


@pytest.fixture
def built(built_once: Path, project: Project) -> Project:
    """Give the quickstart as its first build leaves it."""
    shutil.copytree(built_once, project.root, dirs_exist_ok=True)
    return project


@pytest.fixture
def shipped(project: Project) -> Project:
    """Give all shipped pipelines."""
    return place_(project)


def place_(project: Project) -> Project:
    for folder in ("pipelines", "prompts", "specs"):
        shutil.copytree(HERE / folder, project.root / folder, ignore=shutil.ignore_patterns("*.lock"))
    return project


def actions(project: Project) -> dict[str, str]:
    planned = project.run("plan", QUICKSTART, "--json", env=NOBODY)
    return {one["stage"]: one["action"] for one in planned.json()["stages"]}


def test_the_quickstart_builds_from_its_recordings_through_a_red_attempt(built: Project) -> None:
    finished = {e["role"]: e["data"] for e in built.events() if e["type"] == "stage_finished"}
    assert {name: data["calls"] for name, data in finished.items()} == dict.fromkeys(finished, 0)
    attempts = [e for e in built.events() if e["type"] == "attempt_finished" and e["role"] == "functions@clamp"]
    assert [e["data"]["passed"] for e in attempts] == [False, True]
    assert attempts[0]["data"]["kind"] == "verify_failed"
    assert all(built.exists(f"workspace/quickstart/{name}.py") for name in FUNCTIONS)
    again = built.run("build", QUICKSTART, env=NOBODY)
    assert (again.code, again.err) == (0, "quickstart: up to date (5 stages)\n")


@pytest.mark.slow
def test_an_edit_of_its_spec_touches_one_function_and_a_miss_says_what_to_install(built: Project) -> None:
    spec = built.read("specs/quickstart.md")
    built.replace("specs/quickstart.md", "the sum of the decimal digits", "the largest decimal digit")
    planned = actions(built)
    assert {name for name, action in planned.items() if action == "run"} == {"functions@sum_digits"}
    assert {name for name, action in planned.items() if action == "maybe"} == {"package"}
    missed = built.run("build", QUICKSTART, env=NOBODY)
    assert missed.code == 78
    assert "orch23 model install smollm2" in missed.err
    assert built.run("build", QUICKSTART, "--replay", env=NOBODY).code == 5
    built.write({"specs/quickstart.md": spec})
    assert set(actions(built).values()) == {"fresh"}


def test_its_recordings_are_exactly_those_that_it_uses(built: Project) -> None:
    used = {e["data"]["fingerprint"] for e in built.events() if e["type"] == "llm_response"}
    folder = built.root / "pipelines/quickstart.transcripts"
    assert {path.stem for path in folder.glob("*.json")} == used
    for path in folder.glob("*.json"):
        assert "local smollm2" in json.loads(path.read_text())["provenance"]


@pytest.mark.parametrize("name", sorted(p.name for p in (HERE / "pipelines").glob("*.yaml") if "." not in p.stem))
def test_each_is_a_valid_pipeline(shipped: Project, name: str) -> None:
    inputs = {"vendor/idna-3.10.tar.gz": "", "vendor/flit_core-3.10.1-py3-none-any.whl": "", "pyproject.toml": ""}
    shipped.write({**inputs, "orch23/py.typed": "", "orch23/__init__.py": ""})
    assert shipped.run("validate", f"pipelines/{name}").code == 0


# What YAML 1.1 reads as a number or a boolean, and YAML 1.2 as a string; some editors read YAML 1.1.
_OTHER_IN_YAML_1_1 = re.compile(
    r"[-+]?([0-9][0-9_]*)?\.[0-9._]*([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[-+]?0[0-7_]+|[-+]?[0-9]+_[0-9_]*|y|Y|n|N|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|True|TRUE|False|FALSE"
)


@pytest.mark.parametrize("name", sorted(p.name for p in (HERE / "pipelines").glob("*.yaml") if "." not in p.stem))
def test_editors_that_read_yaml_1_1_read_the_same(name: str) -> None:
    """`cwd: .` is the number 0 there, and was underlined as an error."""
    scalars = [
        one
        for one in yaml.parse((HERE / "pipelines" / name).read_text())
        if isinstance(one, yaml.ScalarEvent) and one.style is None
    ]
    assert len(scalars) > 20
    assert [one.value for one in scalars if _OTHER_IN_YAML_1_1.fullmatch(one.value) and not _is_number(one.value)] == []


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text) is not None


@pytest.mark.slow
def test_the_published_schema_accepts_each(project: Project) -> None:
    """check-jsonschema reads patterns as JavaScript does, and YAML 1.2, as editors do."""
    schema = project.root / "schema.json"
    schema.write_text(project.run("schema").out)
    names = [HERE / "pipelines" / p.name for p in (HERE / "pipelines").glob("*.yaml") if "." not in p.stem]
    assert len(names) > 5
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(schema)]
    done = subprocess.run([*command, *map(str, names)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout
    broken = project.root / "broken.yaml"
    stage = "{shell: x, timeout: '${{ vars.y }}', cash: true}"
    broken.write_text(f"version: 1\njobs: '${{{{ vars.x }}}}'\nstages: {{a: {stage}}}\n")
    done = subprocess.run([*command, str(broken)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "'cash' was unexpected" in done.stdout
    assert "jobs" not in done.stdout
    assert "timeout" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not (HERE / "vendor").is_dir(), reason="the archives are not there (make vendor)")
def test_a_package_of_others_is_built_tested_and_follows_an_edit_of_a_module(shipped: Project) -> None:
    shutil.copytree(HERE / "vendor", shipped.root / "vendor")
    name = "pipelines/sdist.yaml"
    built = shipped.run("build", name)
    assert built.code == 0, built.err
    assert shipped.read("workspace/sdist/installed.txt") == "idna-3.10-py3-none-any.whl 3.10\n"
    report = json.loads(shipped.read("workspace/sdist/tests.json"))
    assert report["counts"] == {"passed": 32}
    module = shipped.root / "workspace/sdist/src/idna/core.py"
    module.touch()
    assert shipped.run("build", name).err == "sdist: up to date (5 stages)\n"
    module.write_text(module.read_text() + "\n# an edit\n")
    assert shipped.run("build", name).code == 6
    assert shipped.run("accept", name, "unpack").code == 0
    assert shipped.run("build", name).code == 0
    ends = {e["role"]: e["data"]["status"] for e in shipped.events() if e["type"] == "stage_finished"}
    assert ends == {
        "unpack": "fresh",
        "metadata": "fresh",
        "wheel": "built",
        "tests": "built",
        "installed": "built",
    }
