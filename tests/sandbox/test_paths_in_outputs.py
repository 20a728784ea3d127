"""The sandbox directory's path in outputs: the commands of docs/safety.md make the same bytes each time."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch23.execute.interpreters import SYSTEM_PATH
from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from tests.sandbox.probe import Memory, executor
from tests.sandbox.users import ROOT, need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

C = b"#include <stdio.h>\nint main(void) { puts(__FILE__); return 0; }\n"
SOURCES = {
    **{f"{name}.c": C for name in "abcde"},
    "f.rs": b'fn main() { println!("{}", file!()); }\n',
    "CMakeLists.txt": b"cmake_minimum_required(VERSION 3.13)\nproject(c C)\nadd_executable(c c.c)\n",
}
SECTION = (ROOT / "docs/safety.md").read_text().partition("### Paths in outputs\n")[2].partition("\n### ")[0]
STAGES = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)[0])["stages"]
PROGRAMS = {
    "gcc": "gcc",
    "make": "make cc",
    "cmake": "cmake cc make",
    "lto": "gcc",
    "coverage": "gcc",
    "rustc": "rustc",
}
PLAIN = {"inputs": ["a.c"], "outputs": ["a.o"], "shell": "gcc -g -c a.c -o a.o"}


def made(tmp_path: Path, tier: str, stage: Mapping[str, Any]) -> dict[str, FileEntry]:
    """Return what a stage makes in a tier, in a project of its own."""
    need(tier)
    memory = Memory({path: SOURCES[path] for path in stage["inputs"]})
    action = Action(
        argv=("bash", "-euo", "pipefail", "-c", stage["shell"]),
        inputs={path: FileEntry(digest_bytes(data)) for path, data in memory.files.items()},
        timeout_s=60,
        scratch=tuple(stage.get("scratch", ())),
    )
    with executor(tier, memory, tmp_path / tier / ".orch23/rooms", (tmp_path,)) as running:
        outcome = running.run(action)
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0, outcome.result.output.text
    assert sorted(outcome.result.written) == sorted(stage["outputs"])
    return dict(outcome.result.written)


def need_programs(names: str) -> None:
    """Skip where a step finds no such programs."""
    for name in names.split():
        if shutil.which(name, path=":".join(SYSTEM_PATH)) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.stride(4)
@pytest.mark.parametrize("name", STAGES)
def test_a_documented_command_makes_the_same_bytes_each_time_and_in_each_tier(tmp_path: Path, name: str) -> None:
    need_programs(PROGRAMS[name])
    first = made(tmp_path, "landlock", STAGES[name])
    assert made(tmp_path, "landlock", STAGES[name]) == first
    assert made(tmp_path, "none", STAGES[name]) == first
    assert made(tmp_path, "namespaces", STAGES[name]) == first


def test_debug_information_alone_has_the_path_which_only_namespaces_keep_the_same(tmp_path: Path) -> None:
    need_programs("gcc")
    assert made(tmp_path, "landlock", PLAIN) != made(tmp_path, "landlock", PLAIN)
    assert made(tmp_path, "namespaces", PLAIN) == made(tmp_path, "namespaces", PLAIN)
