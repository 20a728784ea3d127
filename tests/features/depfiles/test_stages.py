"""Stages with a depfile: what makes them stale, what a plan says, and which results are found again."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, scripted

# Concatenates the headers that a unit names, says so in a depfile, and reads `hidden` files besides.
COMPILE = """
used=$(sed -n 's/^include //p' src/UNIT.c)
cat src/UNIT.c $used HIDDEN > build/UNIT.o
echo "build/UNIT.o: src/UNIT.c" $used > $TMPDIR/deps.d
"""
SOURCES = {
    "src/x.c": "include src/a.h\n",
    "src/y.c": "include src/a.h\ninclude src/b.h\n",
    "src/a.h": "a\n",
    "src/b.h": "b\n",
    "src/unused.h": "unused\n",
}


def stage_of(unit: str, hidden: str = "", **more: Any) -> dict[str, Any]:
    return {
        "inputs": [f"src/{unit}.c", "src/*.h"],
        "outputs": [f"build/{unit}.o"],
        "depfile": "$TMPDIR/deps.d",
        "shell": COMPILE.replace("UNIT", unit).replace("HIDDEN", hidden),
        **more,
    }


def units(hidden: str = "", **more: Any) -> dict[str, str]:
    return scripted({unit: stage_of(unit, hidden, **more) for unit in ("x", "y")}, {})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p").write({**units(), **SOURCES})


def built(project: Project, *argv: str) -> Project:
    outcome = project.build(*argv)
    assert outcome.code == 0, outcome
    return project


def reasons(project: Project, stage: str) -> list[tuple[str, str]]:
    (line,) = [one for one in project.run("plan", "--json").json()["stages"] if one["stage"] == stage]
    return [(one["code"], one["subject"]) for one in line["reasons"]]


def test_only_users_of_a_header_run_after_its_edit(project: Project) -> None:
    built(project)
    project.edit("src/unused.h", "other\n")
    assert project.plan() == {"x": "fresh", "y": "fresh"}
    assert built(project).ran() == []
    project.edit("src/b.h", "other\n")
    assert project.plan() == {"x": "fresh", "y": "run"}
    assert reasons(project, "y") == [("input_changed", "src/b.h")]
    assert "src/b.h changed, because you edited it" in project.run("explain", "y").out
    assert built(project).ran() == ["y"]
    assert project.read("build/y.o").endswith("a\nother\n")
    assert project.plan() == {"x": "fresh", "y": "fresh"}


def test_a_file_that_is_used_for_the_first_time_counts_from_then_on(project: Project) -> None:
    built(project).edit("src/x.c", "include src/unused.h\n")
    assert built(project).ran() == ["x"]
    project.edit("src/unused.h", "other\n")
    assert project.plan() == {"x": "run", "y": "fresh"}
    built(project).edit("src/a.h", "other\n")
    assert project.plan() == {"x": "fresh", "y": "run"}


def test_a_new_or_removed_name_makes_stages_stale(project: Project) -> None:
    built(project).write({"src/new.h": "\n"})
    assert reasons(project, "x") == reasons(project, "y") == [("input_added", "src/new.h")]
    built(project).delete("src/unused.h")
    assert reasons(project, "x") == [("input_removed", "src/unused.h")]
    built(project).write({"src/y.c": "include src/a.h\n"})
    built(project).delete("src/b.h")
    assert sorted(built(project).ran()) == ["x", "y"]
    project.delete("src/a.h")
    assert reasons(project, "x") == [("input_removed", "src/a.h")]
    assert project.build().code != 0


def test_an_earlier_result_is_restored_whatever_unused_files_are_now(project: Project) -> None:
    built(project).edit("src/b.h", "other\n")
    built(project).edit("src/unused.h", "other\n")
    project.edit("src/b.h", "b\n")
    assert project.plan() == {"x": "fresh", "y": "restore"}
    assert built(project).ran() == []
    assert project.read("build/y.o").endswith("a\nb\n")


def test_a_file_that_was_read_counts_though_the_depfile_omits_it(project: Project) -> None:
    built(project.write(units("src/unused.h")))
    project.edit("src/unused.h", "other\n")
    assert project.plan() == {"x": "run", "y": "run"}


@pytest.mark.slow
def test_all_inputs_count_where_reads_cannot_be_seen(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orch23.execute.local_executor.read_inputs", lambda _sandbox_dir, _inputs: None)
    assert "W338" in project.build().err
    project.edit("src/unused.h", "other\n")
    assert project.plan() == {"x": "run", "y": "run"}


@pytest.mark.slow
def test_access_times_of_a_network_file_system_are_not_believed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch23.execute.sandbox_tree.file_system_type", lambda _path: "nfs4")
    assert "W338" in project.build().err
    project.edit("src/unused.h", "other\n")
    assert project.plan() == {"x": "run", "y": "run"}


def test_steps_of_verify_see_all_inputs_so_these_are_verified_again(project: Project) -> None:
    verify = [{"shell": "grep -q unused src/unused.h"}]
    built(project.write(units(verify=verify)))
    project.edit("src/unused.h", "still unused\n")
    assert project.plan() == {"x": "verify", "y": "verify"}
    built(project)
    assert project.plan() == {"x": "fresh", "y": "fresh"}
    project.edit("src/unused.h", "other\n")
    assert project.build().code == 1


def test_a_depfile_that_is_missing_fails_the_stage(project: Project) -> None:
    outcome = project.write(units("; rm -f $TMPDIR/deps.d; exit 0")).build("x")
    assert outcome.code == 1
    assert "[E337]: the depfile `$TMPDIR/deps.d` cannot be used: the step did not write it" in outcome.err
    assert not project.exists("build/x.o")


@pytest.mark.slow
def test_a_claim_of_a_lock_file_is_proved_by_a_run(project: Project, tmp_path: Path) -> None:
    built(project)
    files = {path: data for path, data in project.files().items() if not path.startswith("build/")}
    clone = Project(tmp_path / "clone").write(files)
    clone.edit("src/unused.h", "other\n")
    assert clone.run("plan", "--json", env={"ORCH23_TRUST": ""}).code == 0
    outcome = clone.build(env={"ORCH23_TRUST": ""})
    assert (outcome.code, sorted(clone.ran())) == (0, ["x", "y"])
    assert clone.read("pipeline.lock") == project.read("pipeline.lock")
    clone.edit("src/unused.h", "another\n")
    assert clone.plan() == {"x": "fresh", "y": "fresh"}


@pytest.mark.slow
def test_a_shared_cache_finds_a_result_by_all_inputs(tmp_path: Path) -> None:
    cache: dict[str, Any] = {"cache": {"url": str(tmp_path / "cache"), "mode": "read-write", "platform": "any"}}
    compiled = scripted({unit: stage_of(unit) for unit in ("x", "y")}, {}, **cache)

    def other(name: str, files: Mapping[str, str]) -> Project:
        return built(Project(tmp_path / name).write({**compiled, **SOURCES, **files}))

    other("first", {})
    same = other("same", {})
    assert same.ran() == []
    assert sorted(other("differs", {"src/unused.h": "other\n"}).ran()) == ["x", "y"]
    same.edit("src/unused.h", "other\n")
    assert built(same).ran() == []
    assert same.plan() == {"x": "fresh", "y": "fresh"}
    same.edit("src/b.h", "other\n")
    assert sorted(built(same).ran()) == ["x", "y"]
    # From now on the stages have results of their own.
    same.edit("src/unused.h", "another\n")
    assert built(same).ran() == []


@pytest.mark.slow
def test_thousands_of_inputs_are_decided_as_few(project: Project) -> None:
    project.write({f"src/h{number}.h": f"{number}\n" for number in range(1_100)})
    built(project)
    assert built(project).ran() == []
    project.edit("src/h7.h", "other\n")
    assert built(project).ran() == []
    project.edit("src/a.h", "other\n")
    assert sorted(built(project).ran()) == ["x", "y"]
    assert project.plan() == {"x": "fresh", "y": "fresh"}


@pytest.mark.slow
def test_affected_stages_are_those_that_use_a_file(project: Project) -> None:
    def git(*argv: str) -> None:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *argv]
        subprocess.run(command, cwd=project.root, check=True, capture_output=True)

    built(project).write({".gitignore": ".orch23/\nlogs/\n"})
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    project.edit("src/unused.h", "other\n")
    assert project.run("affected", "--since", "HEAD", "--json").json()["stages"] == []
    project.edit("src/b.h", "other\n")
    stages = project.run("affected", "--since", "HEAD", "--json").json()["stages"]
    assert [one["stage"] for one in stages] == ["y"]


def test_a_header_that_a_stage_makes_counts_only_where_it_is_used(tmp_path: Path) -> None:
    made = {"inputs": ["v.txt"], "outputs": ["src/made.h"], "shell": "cp v.txt src/made.h"}
    stages = {"x": stage_of("x"), "y": stage_of("y"), "make": made}
    sources = {**SOURCES, "v.txt": "1\n", "src/x.c": "include src/made.h\n"}
    project = built(Project(tmp_path / "p").write({**scripted(stages, {}), **sources}))
    project.edit("v.txt", "2\n")
    assert project.plan() == {"make": "run", "x": "maybe", "y": "maybe"}
    assert built(project).ran() == ["make", "x"]
    assert "2" in project.read("build/x.o")


def test_only_shell_stages_have_a_depfile(tmp_path: Path) -> None:
    stage = {"inputs": ["*.py"], "pytest": {}, "depfile": "a.d"}
    outcome = Project(tmp_path / "p").write(scripted({"a": stage}, {})).run("validate")
    assert outcome.code == 65
    assert "`depfile` is for shell stages" in outcome.err
