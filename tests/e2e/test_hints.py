"""Hints name what is wrong once, and a way out that works from where the user is."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import green
from tests.project import Project, scripted

MODULE = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(8))


def stages(project: Project, **more: object) -> Project:
    copy = {"inputs": ["a.txt"], "outputs": ["b.txt"], "shell": "cp a.txt b.txt"}
    document = {"version": 1, "stages": {"copy": copy, **more}}
    return project.write({"a.txt": "a\n", "pipeline.yaml": json.dumps(document)})


@pytest.mark.needs("authoring")
@pytest.mark.parametrize(
    ("argv", "written", "command"),
    [
        (("build", "--force"), "-f, --force STAGE", "build"),
        (("build", "-f"), "-f, --force STAGE", "build"),
        (("build", "--resample"), "--resample STAGE", "build"),
        (("build", "copy", "-j"), "-j, --jobs N", "build"),
        (("plan", "--set"), "--set NAME=VALUE", "plan"),
        (("graph", "--format"), "--format [text|mermaid|dot|json]", "graph"),
        (("-C",), "-C DIR", ""),
    ],
)
def test_an_option_without_its_argument_says_which_argument(
    project: Project, argv: tuple[str, ...], written: str, command: str
) -> None:
    outcome = stages(project).run(*argv)
    assert (outcome.code, outcome.out) == (64, "")
    assert "requires an argument" in outcome.err
    assert f"= help: write `{written}`; `orch23 {command}".rstrip() in outcome.err
    assert f"`{' '.join(filter(None, ('orch23', command)))} --help` lists" in outcome.err


def test_an_option_that_takes_no_argument_is_written_without(project: Project) -> None:
    refused = stages(project).run("build", "--only=copy")
    assert refused.code == 64
    assert "= help: write `--only`; `orch23 build --help` lists" in refused.err


@pytest.mark.needs("authoring")
def test_every_command_that_writes_a_file_takes_the_short_option(project: Project) -> None:
    stages(project)
    green(project.run("schema", "-o", "s.json"))
    assert json.loads(project.read("s.json")) == project.run("schema").json()
    green(project.run("plan", "-o", "p.json"))
    green(project.build("--plan", "p.json"))
    assert project.read("b.txt") == "a\n"


@pytest.mark.needs("authoring")
@pytest.mark.parametrize("argv", [("explain",), ("show",), ("accept",), ("release",)])
@pytest.mark.needs("inspecting", "upkeep")
def test_a_command_without_a_stage_names_one_that_lists_them(project: Project, argv: tuple[str, ...]) -> None:
    green(stages(project, check={"inputs": ["b.txt"], "outputs": ["c.txt"], "shell": "cp b.txt c.txt"}).build())
    outcome = project.run(*argv)
    assert outcome.code == 64
    assert "= help: `orch23 status --all` lists the stages" in outcome.err
    listed = project.run("status", "--all").out
    assert "copy" in listed
    assert "check" in listed


@pytest.mark.needs("authoring")
@pytest.mark.needs("upkeep")
def test_a_stage_without_files_to_release_names_a_command_that_lists_stages(project: Project) -> None:
    green(stages(project).build())
    (project.root / "pipeline.yaml").rename(project.root / "p.yaml")
    refused = project.run("release", "p.yaml", "cpoy")
    assert refused.code == 66
    assert "`orch23 status p.yaml --all` lists the stages" in refused.err
    assert "copy" in project.run("status", "p.yaml", "--all").out


@pytest.mark.needs("inspecting")
def test_a_file_outside_the_write_scope_has_no_hint_to_write_it(project: Project) -> None:
    short = "def f0():\n    return 0\n"
    response = {"writes": [{"path": path, "content": short} for path in ("src/b.py", "src/a.py")]}
    stage = {
        "inputs": ["src/a.py", "src/b.py"],
        "outputs": ["src/a.py"],
        "allowed_paths": {"write": ["src/*.py"], "protect": ["src/b.py"]},
        "llm": {"returns": "files"},
        "retry": 1,
    }
    good = {"writes": [{"path": "src/a.py", "content": MODULE + "x = 1\n"}]}
    answers = {"code": [json.dumps(response), json.dumps(good)]}
    green(project.write({**scripted({"code": stage}, answers), "src/a.py": MODULE, "src/b.py": MODULE}).build())
    prompt = project.run("show", "code", "--prompt", "--attempt", "2").out
    lines = [line for line in prompt.splitlines() if line.startswith("[E")]
    assert [line.partition(":")[0] for line in lines] == ["[E204] src/b.py", "[E216] src/b.py", "[E216] src/a.py"]
    assert [line.partition(" Fix: ")[2] for line in lines] == [
        "leave it as it is.",
        "leave it as it is.",
        "write the whole file, every line.",
    ]


@pytest.mark.parametrize("retry", [0, 1])
def test_the_error_of_a_check_is_in_the_block_of_its_stage_once(project: Project, retry: int) -> None:
    broken = {
        "outputs": ["w.py"],
        "shell": "echo 'x = (' > w.py",
        "verify": [{"check": "python_syntax"}],
        "retry": retry,
    }
    failed = stages(project, w=broken).build("w")
    block = failed.err.partition("\n\n")[2].partition("next:")[0]
    assert block.count("not valid Python") == 1 + retry, block  # one line for each earlier attempt
    assert ("; retries exhausted" in failed.err) == bool(retry)


@pytest.mark.needs("exports")
def test_an_annotation_has_each_hint_once(project: Project) -> None:
    project.write(scripted({"y": {"outputs": ["y.json"], "llm": {"returns": "json"}}}, {"y": ["no json"]}))
    out = project.build("--output", "github")
    annotation = next(line for line in (out.out + out.err).splitlines() if line.startswith("::error"))
    assert annotation.count("respond with only one JSON value") == 1


@pytest.mark.needs("local")
def test_a_command_that_is_not_on_the_path_is_named_by_its_path(tmp_path: Path, monkeypatch) -> None:
    from orch23.features.local.provider import _missing  # noqa: PLC0415 - of a feature

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "orch23"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    environ = {"XDG_DATA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    assert f"`{script} model install smollm2`" in str(_missing("smollm2", environ)[0].hint)
    environ["PATH"] = str(tmp_path / "bin")
    assert "`orch23 model install smollm2`" in str(_missing("smollm2", environ)[0].hint)
