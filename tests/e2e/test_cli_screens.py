"""What a person sees: plan, build, failure, explanation and complaints, held to golden files."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click import Context

from orch23.cli.group import orch23
from orch23.cli.main import main
from orch23.model.features import COMMANDS, FORMATS, SHARED_CACHE
from tests.e2e.pipelines import of_any_tier
from tests.gold import Golden
from tests.project import Outcome, Project, scripted

RIGHT = "```python\ndef f():\n    return 1\n```\n"
WRONG = "```python\ndef f():\n    return 2\n```\n"
TEST = "from app import f\n\n\ndef test_f():\n    assert f() == 1\n"


def demo(project: Project, *answers: str) -> Project:
    stages: dict[str, dict[str, Any]] = {
        "banner": {
            "inputs": ["specs/a.txt"],
            "outputs": ["banner.txt"],
            "shell": "tr a-z A-Z < specs/a.txt > banner.txt",
        },
        "page": {"inputs": ["banner.txt"], "outputs": ["page.md"], "render": {"template": "page.md.j2"}},
        "code": {
            "inputs": ["page.md"],
            "outputs": ["app.py"],
            "llm": {"returns": "code"},
            "verify": {"inputs": ["test_app.py"], "steps": [{"pytest": {"paths": ["test_app.py"]}}]},
            "retry": 2,
        },
        "tests": {"inputs": ["app.py", "test_app.py"], "pytest": {"paths": ["test_app.py"]}},
    }
    files = scripted(stages, {"code": list(answers)}, name="demo")
    files["pipeline.yaml"] = files.pop("demo.yaml")
    return project.write({**files, "specs/a.txt": "hello\n", "page.md.j2": "{{ inputs[0].text }}", "test_app.py": TEST})


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the demo once."""
    project = Project(tmp_path_factory.mktemp("built") / "project")
    assert demo(project, RIGHT).build().code == 0
    return project.root


@pytest.fixture
def built(built_once: Path, project: Project) -> Project:
    """Give the demo as its first build leaves it."""
    shutil.copytree(built_once, project.root, dirs_exist_ok=True)
    return project


def masked(text: str) -> str:
    """Return a screen without what differs from run to run: durations, run ids, the versions in use."""
    text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?", "RUN", text)
    text = re.sub(r" +\d+\.\ds\b", lambda found: "0.0s".rjust(len(found.group())), text)
    text = re.sub(r"(under |~)[\dhms ]+ \(median", "TIME (median", text)
    text = re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "00:00:00.000", text)
    text = re.sub(r"(key |→ |-> )[0-9a-f]{12}\b", r"\1KEY", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
    text = of_any_tier(text)
    return re.sub(r"^(  . (?:verify\.)?(?:python|pytest))  [\d.]+$", r"\1  VERSION", text, flags=re.MULTILINE)


def held(golden: Golden, name: str, outcome: Outcome) -> None:
    golden.check(f"cli/{name}.txt", masked(f"exit {outcome.code}\n--- stdout\n{outcome.out}--- stderr\n{outcome.err}"))


# The help texts that list what features supply: all commands, the formats of `build --output`, and `cache key`.
LISTING = {"": COMMANDS.values(), "build": FORMATS.values(), "cache": SHARED_CACHE.values()}
OF_MODELS = {key: [COMMANDS["model"]] for key in ("model install", "model list", "model remove")}
HELPED = ("", *orch23.list_commands(Context(orch23)), *OF_MODELS)


def of_features(command: str) -> list[pytest.MarkDecorator]:
    return [
        pytest.mark.needs(*sorted({place.partition(".")[0] for place in {**LISTING, **OF_MODELS}.get(command, ())}))
    ]


@pytest.mark.parametrize("command", [pytest.param(one, marks=of_features(one)) for one in HELPED])
def test_help(command: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    golden.check(f"cli/help{'-' if command else ''}{command.replace(' ', '-')}.txt", capsys.readouterr().out)


@pytest.mark.needs("inspecting")
def test_first_plan_and_build(project: Project, golden: Golden) -> None:
    demo(project, WRONG, RIGHT)
    held(golden, "plan-first", project.run("plan"))
    held(golden, "build-first", project.build("-j1"))
    held(golden, "build-again", project.build())
    held(golden, "plan-again", project.run("plan"))
    held(golden, "log", project.run("log"))


@pytest.mark.slow
def test_an_edit_of_the_spec(built: Project, golden: Golden) -> None:
    built.edit("specs/a.txt", "another\n")
    held(golden, "plan-edited-spec", built.run("plan"))
    held(golden, "status-edited-spec", built.run("status"))
    held(golden, "explain-edited-spec", built.run("explain", "tests"))
    held(golden, "build-edited-spec", built.build("-j1"))


@pytest.mark.needs("inspecting")
def test_an_edit_of_the_command_is_explained_with_a_difference(built: Project, golden: Golden) -> None:
    built.replace("pipeline.yaml", "tr a-z A-Z", "tr a-y A-Y")
    held(golden, "explain-edited-command", built.run("explain", "banner"))


@pytest.mark.slow
def test_a_failed_build(project: Project, golden: Golden) -> None:
    demo(project, WRONG, WRONG, WRONG)
    held(golden, "build-failed", project.build("-j1"))


@pytest.mark.slow
def test_an_edited_output(built: Project, golden: Golden) -> None:
    built.edit("app.py", "def f():\n    return 3 - 2\n")
    held(golden, "plan-edited-output", built.run("plan"))
    held(golden, "build-edited-output", built.build("-j1"))
    held(golden, "accept", built.run("accept", "code"))
    held(golden, "build-accepted", built.build("-j1"))


@pytest.mark.slow
def test_errors(project: Project, golden: Golden) -> None:
    text = "version: 1\nstages:\n  a:\n    shell: x\n    need: [b]\n  b:\n    shel: y\n"
    project.write({"pipeline.yaml": text})
    held(golden, "validate-full", project.run("validate"))
    for form in ("concise", "json", "github", "sarif"):
        held(golden, f"validate-{form}", project.run("validate", "--output-format", form))
    held(golden, "build-invalid", project.build())
