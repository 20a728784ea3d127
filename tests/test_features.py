"""Each feature can be taken out of the installation: the core builds, and says what is missing."""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.model.features import (
    COMMANDS,
    DOCUMENTS,
    EXECUTORS,
    FORMATS,
    PLAN_FILES,
    PROVIDERS,
    SHARED_CACHE,
    SPANS,
    USES,
)
from orch23.steps.registry import OF_FEATURES
from orch23.store.project_store import KEEP_VARIABLE
from tests.processes import run_program

ROOT = Path(__file__).parent.parent
FEATURES = sorted(path.parent.name for path in (ROOT / "orch23" / "features").glob("*/__init__.py"))
# How a user asks for what a feature supplies, beside its commands. A summary is asked for by GitHub Actions alone.
OPTIONS = {
    **{place: ("build", "--output", name) for name, place in FORMATS.items()},
    **{place: ("build", f"--{name}", "file") for name, place in DOCUMENTS.items() if name != "summary"},
    SPANS["build"]: ("build", "--otel"),
    SPANS["log"]: ("log", "--otel"),
    PLAN_FILES["build"]: ("build", "--plan", "plan.json"),
    PLAN_FILES["save"]: ("plan", "--out", "plan.json"),
    SHARED_CACHE["build"]: ("build", "--force", "a", "--cache", "cache"),
    SHARED_CACHE["plan"]: ("plan", "--cache", "cache"),
    SHARED_CACHE["servers"]: ("cache", "key", "new", "ci"),
    **{place: ("plan", "--executor", name, "--scheduler", "x") for name, place in EXECUTORS.items()},
}
# What a pipeline says that asks for a feature, with the place of the error.
ASKED = {
    "cache": ("cache: {url: /srv/cache}\n", "2:14"),
    **{place: (f"executor: {name}\n", "2:11") for name, place in EXECUTORS.items()},
}
WRITTEN = {"fetch": f"{{url: 'file:pipeline.yaml', sha256: {'0a' * 32}}}"}
PIPELINE = "version: 1\nstages:\n  a: {outputs: [a.txt], sandbox: off, shell: echo a > a.txt}\n"
LLM = """version: 1
stages:
  a:
    llm: {{provider: {provider}, model: m, prompt: p.j2, returns: text}}
    outputs: [a.txt]
"""


def without(feature: str, tmp_path: Path) -> Path:
    """Copy the program without a feature, and return the folder that it is in."""
    program = tmp_path / "program"
    program.mkdir()
    shutil.copytree(ROOT / "orch23", program / "orch23")  # with what is compiled, which takes longer than all the rest
    (program / "orch23_checks").symlink_to(ROOT / "orch23_checks")
    (program / "docs").symlink_to(ROOT / "docs")
    shutil.rmtree(program / "orch23" / "features" / feature)
    return program


def runner(program: Path, tmp_path: Path) -> tuple[Callable[..., subprocess.CompletedProcess[str]], Path]:
    """Return what runs a copy of the program in a project, and the project."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pipeline.yaml").write_text(PIPELINE)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "ORCH23_ALLOW_UNSANDBOXED": "1", KEEP_VARIABLE: "1B"}  # a store over its limit
        return run_program(words, cwd=project, env=environ, program=program)

    return run, project


def needs(place: str, feature: str) -> bool:
    """Return whether what is at a place is missing without a feature."""
    own = place.partition(".")[0]
    return feature in (own, *USES.get(own, ()))


def test_each_feature_that_another_one_uses_is_declared_in_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["type"] == "independence")
    uses = [f"orch23.features.{one}.** -> orch23.features.{two}.**" for one, more in USES.items() for two in more]
    assert set(uses) == {one for one in contract["ignore_imports"] if "**" in one}


def test_every_folder_of_features_has_one_file_that_makes_it_a_package() -> None:
    folders = sorted(
        path.name for path in (ROOT / "orch23" / "features").iterdir() if path.is_dir() and path.name != "__pycache__"
    )
    assert folders == FEATURES


@pytest.mark.slow
@pytest.mark.stride(7)
@pytest.mark.parametrize("feature", FEATURES)
def test_without_a_feature_the_core_builds_and_says_what_is_missing(feature: str, tmp_path: Path) -> None:
    run, project = runner(without(feature, tmp_path), tmp_path)
    built = run("build")
    assert (built.returncode, (project / "a.txt").read_text()) == (0, "a\n"), built.stderr
    shown = run("--help")
    assert shown.returncode == 0, shown.stderr
    listed = {line.split()[0] for line in shown.stdout.partition("Commands:")[2].splitlines() if line.strip()}
    for command, place in COMMANDS.items():
        assert (command in listed) is not needs(place, feature)
    for place, words in {**{place: (command,) for command, place in COMMANDS.items()}, **OPTIONS}.items():
        if needs(place, feature):
            asked = run(*words)
            assert (asked.returncode, f"the feature `{feature}`" in asked.stderr) == (78, True), (words, asked.stderr)
            assert "error[E668]" in asked.stderr
    for provider, place in PROVIDERS.items():
        if needs(place, feature):
            (project / "llm.yaml").write_text(LLM.format(provider=provider))
            (project / "p.j2").write_text("x")
            for command in ("validate", "plan", "build"):
                refused = run(command, "llm.yaml")
                assert (refused.returncode, refused.stderr.count("error[")) == (65, 1), refused.stderr
                assert "--> llm.yaml:4:21" in refused.stderr
            given = run("plan", "llm.yaml", "--provider", provider)
            assert (given.returncode, given.stderr.count("error[E668]")) == (65, 1), given.stderr
    if feature == "doctor":
        return
    checked = run("doctor", "--json")
    assert checked.returncode == 0, checked.stderr
    providers = {one["name"] for one in json.loads(checked.stdout)["facts"] if one["name"].startswith("provider ")}
    assert not {name for name, place in PROVIDERS.items() if place.startswith(f"{feature}.") and name in providers}


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("feature", ["cache", "remote"])
def test_a_pipeline_that_asks_for_a_missing_feature_has_one_error_with_its_place(feature: str, tmp_path: Path) -> None:
    run, project = runner(without(feature, tmp_path), tmp_path)
    for place, (line, at) in ASKED.items():
        if needs(place, feature):
            (project / "asks.yaml").write_text(PIPELINE.replace("\n", f"\n{line}", 1))
            for command in ("validate", "plan", "build"):
                refused = run(command, "asks.yaml")
                assert (refused.returncode, refused.stderr.count("error[E668]")) == (65, 1), refused.stderr
                assert f"--> asks.yaml:{at}" in refused.stderr
    for unused in ("url: /srv/cache, mode: off", "platform: any"):
        (project / "unused.yaml").write_text(PIPELINE.replace("\n", f"\ncache: {{{unused}}}\n", 1))
        assert run("build", "unused.yaml").returncode == 0
    assert ("key " in run("cache", "--help").stdout) is (feature != "cache")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "place"), OF_FEATURES.items())
def test_a_stage_of_a_missing_step_kind_is_one_error_at_its_place(kind: str, place: str, tmp_path: Path) -> None:
    feature = place.partition(".")[0]
    run, project = runner(without(feature, tmp_path), tmp_path)
    (project / "kinds.yaml").write_text(f"{PIPELINE}  b: {{outputs: [b], needs: [nothing], {kind}: {{x: y}}, z: 1}}\n")
    for command in ("validate", "plan", "build"):
        refused = run(command, "kinds.yaml")
        assert (refused.returncode, refused.stderr.count("error[")) == (65, 1), refused.stderr
        assert f"error[E668]: this installation of orch23 does not have the feature `{feature}`" in refused.stderr
        assert "--> kinds.yaml:4:" in refused.stderr
    # A pipeline that the whole installation read and stored is read again.
    (project / "kinds.yaml").write_text(f"{PIPELINE}  b: {{outputs: [b], {kind}: {WRITTEN[kind]}}}\n")
    environ = {**os.environ, "ORCH23_ALLOW_UNSANDBOXED": "1"}
    whole = run_program(("build", "kinds.yaml", "a"), cwd=project, env=environ, program=ROOT)
    assert whole.returncode == 0, whole.stderr
    assert run("plan", "kinds.yaml").stderr.count("error[E668]") == 1
    (project / "odd.yaml").write_text(f"{PIPELINE}  b: {{outputs: [b]}}\n")
    assert kind not in run("validate", "odd.yaml").stderr, "no one is asked for what this installation does not have"
    assert f'"{kind}"' not in run("schema").stdout


@pytest.mark.slow
@pytest.mark.needs("batches")
def test_without_batches_nothing_is_asked_twice(tmp_path: Path) -> None:
    """Neither in a batch that cannot be sent, nor beside one that was."""
    run, project = runner(without("batches", tmp_path), tmp_path)
    assert run("build").returncode == 0
    (project / "p.j2").write_text("x")
    (project / "batch.yaml").write_text(LLM.format(provider="anthropic").replace("text}", "text, pace: batch}"))
    for command in ("validate", "plan", "build"):
        refused = run(command, "batch.yaml")
        assert (refused.returncode, refused.stderr.count("error[E668]")) == (65, 1), refused.stderr
        assert "does not have the feature `batches`, which `pace: batch` needs" in refused.stderr
        assert "--> batch.yaml:4:" in refused.stderr
    (project / "pipeline.yaml").write_text(f"{PIPELINE}# edited\n")
    (project / ".orch23" / "batches").mkdir()
    (project / ".orch23" / "batches" / "a.json").write_text("{}")
    for command in ("plan", "build"):
        refused = run(command)
        assert (refused.returncode, refused.stderr.count("error[E668]")) == (78, 1), refused.stderr
        assert "which the batches that a build has submitted need" in refused.stderr
    assert run("build", "--replay").returncode == 0, "it sends nothing"
    (project / ".orch23" / "batches" / "a.json").unlink()
