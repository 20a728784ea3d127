"""A command loads no library and no package that only other stages or commands need."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

import orch23
from orch23.steps.registry import STEP_KINDS

pytestmark = pytest.mark.slow  # each command runs in a process of its own

OF_STAGES = frozenset({"jinja2", "anthropic", "openai", "httpx2", "genai_prices", "pytest", "ssl", "http", "email"})
OF_ERRORS = frozenset({"jsonschema", "networkx", "difflib", "tomllib"})
OF_GRAPHS = frozenset({"networkx", "ssl", "http", "email", "difflib", "statistics", "asyncio", "importlib.resources"})
OF_ESTIMATES = frozenset({"statistics"})
LIBRARIES = OF_STAGES | OF_ERRORS | OF_ESTIMATES | {"copier", "asyncio", "importlib.resources"}
OF_MODELS = frozenset(
    f"orch23.{name}"
    for name in (
        *(
            f"providers.{vendor}"
            for vendor in (
                "command",
                "scripted",
            )
        ),
        "features.local.provider",
        *(f"features.vendors.{vendor}" for vendor in ("anthropic_messages", "openai_adapter", "claude_clouds")),
        *("proposal.proposal", "proposal.omissions", "proposal.response_parser", "language.evaluation"),
    )
)
ROOT = Path(orch23.__file__).parents[1]
FOLDERS = {kind: place.rpartition(".")[0] for kind, place in STEP_KINDS.items()}
OF_KINDS = {
    kind: frozenset(f"{folder}.{path.stem}" for path in (ROOT / folder.replace(".", "/")).glob("[a-z]*.py"))
    for kind, folder in FOLDERS.items()
}
OF_CHECKS = frozenset({"orch23_checks.work_orders", "orch23.checks.json_schema", "orch23.checks.python_syntax"})
OF_OTHERS = frozenset(
    f"orch23.{name}"
    for name in (
        *("cli.pages", "cli.actions.pipeline", "cli.commands.checking"),
        *(f"features.{module}" for module in ("metrics.affected", "doctor.checks", "inspecting.explain")),
        "features.upkeep.outputs",
    )
)
OF_SANDBOXES = frozenset({"socket", "tempfile", "secrets", "shutil"}) | frozenset(
    f"orch23.execute.{name}"
    for name in (
        *("sandbox.bubblewrap", "sandbox.landlock", "sandbox.seccomp", "sandbox.visible_paths"),
        "pytest_report",
    )
)
OF_BUILDING = frozenset({"yaml", "hashlib", "orch23.cli.build_run", "orch23.model.pipeline", "orch23.report.text"})
CODE = """
import sys
from orch23.MODULE import main
code = main(sys.argv[1:])
with open("modules", "w") as stream:
    stream.write("\\n".join(sys.modules))
sys.exit(code)
"""
HELD = hashlib.sha256(b"x").hexdigest()
FETCH = f"version: 1\nstages: {{a: {{fetch: {{url: 'file:x', sha256: {HELD}}}, outputs: [y], verify: [VERIFY]}}}}\n"
STAGES = "version: 1\ndefaults: {sandbox: off}\nstages: {a: {shell: [cp, x, y], inputs: [x], outputs: [y]}}\n"


def loaded_by(folder: Path, *arguments: str, stages: str = STAGES, of: str = "cli.main") -> frozenset[str]:
    """Return what a command that ends well has loaded."""
    (folder / "pipeline.yaml").write_text(stages)
    (folder / "x").write_text("x")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ORCH23_ALLOW_UNSANDBOXED": "1"}
    code = CODE.replace("MODULE", of)
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=env, capture_output=True, check=True)
    return frozenset((folder / "modules").read_text().split())


def needless(loaded: Collection[str], *groups: frozenset[str]) -> list[str]:
    """Return what was loaded for nothing; of names that are not there at all, nothing could be said."""
    return sorted(name for group in groups for name in group if name in loaded)


def of_kinds_besides(*kinds: str) -> frozenset[str]:
    return frozenset(name for kind, names in OF_KINDS.items() if kind not in kinds for name in names)


def test_a_plan_of_shell_stages_loads_no_module_of_other_stages_or_commands(tmp_path: Path) -> None:
    libraries = LIBRARIES - OF_ESTIMATES - OF_GRAPHS
    needs_not = (libraries, OF_MODELS, OF_CHECKS, of_kinds_besides("shell"))
    assert needless(loaded_by(tmp_path, "plan"), *needs_not) == []


def test_a_build_of_shell_stages_loads_no_module_of_other_stages_or_commands(tmp_path: Path) -> None:
    assert "networkx" in loaded_by(tmp_path, "build"), "the first build compiles the plan"
    assert (tmp_path / "y").read_text() == "x"
    (tmp_path / "y").unlink()
    needs_not = (LIBRARIES, OF_MODELS, OF_CHECKS, OF_OTHERS, OF_SANDBOXES, of_kinds_besides("shell"))
    assert needless(loaded_by(tmp_path, "build"), *needs_not) == []
    assert (tmp_path / "y").read_text() == "x"
    assert needless(loaded_by(tmp_path, "plan"), LIBRARIES - OF_ESTIMATES, OF_MODELS, OF_CHECKS, OF_OTHERS) == []


@pytest.mark.needs("fetch")
@pytest.mark.stride(5)
@pytest.mark.parametrize(
    ("stages", "kinds"),
    [
        (FETCH.replace("VERIFY", ""), ("fetch",)),
        (FETCH.replace("VERIFY", "{ensures: {file_exists: y}}"), ("fetch",)),
        (FETCH.replace("VERIFY", "{shell: [test, -f, y]}"), ("fetch", "shell")),
        (FETCH.replace("VERIFY", "{commands: {from: ['test -f y'], allow: [test]}}"), ("fetch", "shell")),
        ("version: 1\nstages: {a: {render: x, outputs: [y]}}\n", ("render",)),
        (STAGES, ("shell",)),
    ],
)
def test_a_build_loads_only_the_step_kinds_of_its_stages(tmp_path: Path, stages: str, kinds: tuple[str, ...]) -> None:
    stages = stages.replace("stages:", "defaults: {sandbox: off}\nstages:", "defaults" not in stages)
    for command in (["plan"], ["build"], ["status"], ["build", "-v"]):
        loaded = loaded_by(tmp_path, *command, stages=stages)
        assert needless(loaded, of_kinds_besides(*kinds)) == [], command
        assert all(f"{FOLDERS[kind]}.spec" in loaded for kind in kinds)
    assert (tmp_path / "y").read_text() == "x"


@pytest.mark.needs("fetch")
def test_a_verification_by_pytest_loads_that_kind_and_no_other(tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "plan", stages=FETCH.replace("VERIFY", "{pytest: {paths: [x]}}"))
    assert needless(loaded, of_kinds_besides("fetch", "pytest")) == []
    assert "orch23.steps.pytest.spec" in loaded


def test_a_stored_pipeline_and_plan_load_no_yaml_reader(tmp_path: Path) -> None:
    assert {"yaml", "networkx"} <= loaded_by(tmp_path, "build")
    (tmp_path / "y").unlink()
    assert needless(loaded_by(tmp_path, "build"), frozenset({"yaml", "networkx"})) == []
    loaded = loaded_by(tmp_path, "build", stages=STAGES.replace("cp, x", "cp, --, x"))
    assert "yaml" in loaded
    assert "networkx" not in loaded, "the edit of a command leaves the graph as it is"
    (tmp_path / "z").write_text("z")
    assert {"yaml", "networkx"} <= loaded_by(tmp_path, "build", stages=STAGES.replace("[x]", "[x, z]"))


def test_the_help_of_a_command_loads_no_other_command_and_no_build_module(tmp_path: Path) -> None:
    assert needless(loaded_by(tmp_path, "build", "--help"), LIBRARIES, OF_BUILDING, OF_OTHERS) == []


def test_the_help_of_all_commands_loads_no_action(tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "--help")
    assert needless(loaded, LIBRARIES, OF_BUILDING) == []
    assert [name for name in loaded if name.startswith("orch23.cli.actions")] == []


@pytest.mark.parametrize(
    "words", [("--help",), ("build", "-h"), ("cache", "verify", "--help"), ("show", "x", "--help")]
)
def test_help_loads_click_and_declarations_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    loaded = loaded_by(tmp_path, *words, of="entry")
    others = frozenset({"msgspec", "orch23.cli.main", "orch23.cli.console", "orch23.snapshot", "orch23.model.errors"})
    assert needless(loaded, others) == []
    assert {"click", "orch23.cli.declaration"} <= loaded


@pytest.mark.needs("metrics", "fetch", "doctor", "inspecting", "upkeep")
def test_the_modules_that_must_not_be_loaded_exist() -> None:
    groups = (OF_MODELS, OF_CHECKS, OF_OTHERS, OF_BUILDING, OF_SANDBOXES)
    ours = [name for group in groups for name in group if "." in name]
    assert all(f"{FOLDERS[kind]}.spec" in names for kind, names in OF_KINDS.items())
    assert [name for name in ours if not ROOT.joinpath(*name.split(".")).with_suffix(".py").is_file()] == []
