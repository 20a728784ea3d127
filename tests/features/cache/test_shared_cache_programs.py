"""A machine with another version of a program does not get the results of the first, whatever starts the program."""

import json
from pathlib import Path

import pytest

from tests.e2e.pipelines import green, shell
from tests.environments import Environment, executable
from tests.project import Project

pytestmark = pytest.mark.slow

TOOL = "unknown-tool"
FILES = {"Makefile": f"o:\n\t{TOOL} > $@\n", "sh.txt": "x\n", "check.mk": f"chk:\n\t{TOOL} > chk\n\tgrep -q one chk\n"}
STARTERS = {
    "make": "make -s o",
    "prlimit": f"prlimit --nofile=100 {TOOL} > o",
    "setpriv": f"setpriv --no-new-privs {TOOL} > o",
    "git": f"git -c alias.x='!{TOOL}' x > o",
    "tar": f"tar -cf - sh.txt | tar --to-command={TOOL} -xf - > o",
    "perl": f"perl -e 'system(q({TOOL}))' > o",
    "awk": f"awk 'BEGIN {{ system(\"{TOOL}\") }}' > o",
    "awk-pipe": f"awk 'BEGIN {{ \"{TOOL}\" | getline x; print x }}' > o",
    "sed": f"sed '1e {TOOL}' sh.txt > o",
    "sed-flag": f"sed s/x/{TOOL}/e sh.txt > o",
    "loader": f"/lib64/ld-linux-x86-64.so.2 /usr/bin/env {TOOL} > o",
    "setarch": f"linux64 {TOOL} > o",
    "run-parts": "run-parts . > o",
    "split": f"split --filter={TOOL} sh.txt > o",
    "sort": "sort --compress-program=gzip sh.txt > o",
    "find": f"find sh.txt -exec {TOOL} ';' > o",
    "xargs": f"echo x | xargs {TOOL} > o",
    "sh": f"sh -c {TOOL} > o",
    "tool": f"{TOOL} > o",
    "npm": "npm run x > o",
    "mvn": "mvn package > o",
}


class Machine:
    """Checkouts of a machine whose tool says something."""

    def __init__(self, folder: Path, cache: str) -> None:
        self.folder, self.cache = folder, cache
        self.venv = Environment(folder / "home")
        self.says("one")

    def says(self, text: str) -> None:
        executable(self.venv.root / "bin" / TOOL, f"#!/bin/sh\necho {text}\n".encode())

    def checkout(self, name: str, stages: dict[str, str], head: str = "") -> Project:
        head = f"{head}defaults: {{python: {json.dumps(str(self.venv.python))}}}\n"
        lines = (f"  {stage}: {body}\n" for stage, body in stages.items())
        return Project(self.folder / name).write(shell("".join(lines), FILES, head=head))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, str(tmp_path / "cache"))


def stage(command: str, output: str = "o", more: str = "") -> str:
    return f"{{inputs: [Makefile, sh.txt, check.mk], outputs: [{output}], shell: {json.dumps(command)}{more}}}"


def test_no_program_that_starts_others_is_shared_and_the_plan_says_why(machine: Machine) -> None:
    stages = {
        name: stage(command.replace("> o", f"> {name}.o").replace("-s o", f"-s {name}.o"), f"{name}.o")
        for name, command in STARTERS.items()
    }
    verify = {"verified": stage("cp sh.txt v.o", "v.o", ", verify: [{shell: make -f check.mk chk}]")}
    known = {
        "known": stage("sort sh.txt > known.o", "known.o"),
        "listed": stage("sed s/x/y/ sh.txt > listed.o", "listed.o", ", tools: [sed]"),
    }
    project = machine.checkout("one", {**stages, **verify, **known})
    document = project.run("plan", "--cache", machine.cache, "--json").json()
    assert document["would_store"] == ["known", "listed"]
    assert set(document["not_shared"]) == {*stages, *verify}
    assert document["not_shared"]["make"] == ["`make` runs other programs; list it and them in `tools`"]
    shown = project.run("plan", "--cache", machine.cache).out
    assert " not shared: make verified: `make` runs other programs; list it and them in `tools`\n" in shown
    assert (
        " not shared: sort: `sort` may start other programs (it has `--compress-program=gzip`); list it and " in shown
    )
    assert "`cache: {platform: NAME}`" in shown


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", ["make", "prlimit", "setpriv", "tar", "perl", "awk", "sed", "xargs", "tool"])
def test_another_version_of_a_program_that_is_started_is_used(machine: Machine, name: str) -> None:
    stages = {"a": stage(STARTERS[name])}
    first = machine.checkout("first", stages)
    green(first.build("--cache", machine.cache))
    machine.says("two")
    second = machine.checkout("second", stages)
    green(second.build("--cache", machine.cache))
    assert ("one" in first.read("o"), "two" in second.read("o")) == (True, True)


def test_with_all_programs_in_tools_a_result_is_shared_between_equal_machines_only(machine: Machine) -> None:
    stages = {"a": stage("make -s o", more=f", tools: [make, {TOOL}]")}
    first, equal, other = (machine.checkout(name, stages) for name in ("first", "equal", "other"))
    for project in (first, equal):
        green(project.build("--cache", machine.cache))
    assert (first.ran(), equal.ran(), equal.read("o")) == (["a"], [], "one\n")
    machine.says("two")
    green(other.build("--cache", machine.cache))
    assert (other.ran(), other.read("o")) == (["a"], "two\n")


def test_a_stated_platform_replaces_what_programs_are(machine: Machine) -> None:
    stages = {"a": stage("make -s o")}
    for name, ran in (("first", ["a"]), ("second", [])):
        project = machine.checkout(name, stages, "cache: {platform: image-7}\n")
        green(project.build("--cache", machine.cache))
        assert project.ran() == ran
