"""The root of a project is found once for a command, in parent directories only where they are the user's own."""

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23 import entry
from tests.project import Outcome, Project
from tests.repository import Repository

OTHER = 65_534
AHEAD_NS = 10**10
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
PIPELINE = """\
version: 1
stages:
  copy: {inputs: [in.txt, tool.sh], outputs: [out.txt], shell: sh tool.sh}
  test: {inputs: [out.txt], shell: "grep good out.txt"}
"""
FILES = {"pipeline.yaml": PIPELINE, "in.txt": "good\n", "tool.sh": "cat in.txt > out.txt\n"}


class Here(Project):
    """A directory in which the program is started as a user does it, without `-C`."""

    def __init__(self, here: Path, *, env: Mapping[str, str] | None = None) -> None:
        super().__init__(here, main=_started)
        self._given = {"ORCH23_TRUST": "0", **(env or {})}

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
        return super().run(*argv, env={**self._given, **(env or {})})


def _started(argv: Sequence[str]) -> int:
    real = time.time_ns
    with patch("time.time_ns", lambda: real() + AHEAD_NS):  # so that no file is too young for a snapshot
        return entry.main(list(argv)[2:])


def belongs_to_another(*paths: Path) -> None:
    for path in paths:
        os.chown(path, OTHER, OTHER, follow_symlinks=False)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.needs("inspecting")
@pytest.mark.parametrize("command", ["build", "plan", "trust", "status", "explain"])
def test_the_hint_of_a_missing_pipeline_names_the_command(tmp_path: Path, command: str) -> None:
    (tmp_path / "pipelines").mkdir()
    for name in ("one.yaml", "other.yml", "made.template.yaml", "notes.md"):
        (tmp_path / "pipelines" / name).write_text(PIPELINE)
    ended = Here(tmp_path).run(command)
    assert ended.code == 66
    assert "there is no pipeline.yaml, and more than one pipeline: pipelines/one.yaml, pipelines/other.yml" in ended.err
    assert f"name one: `orch23 {command} pipelines/one.yaml`, `orch23 {command} pipelines/other.yml`\n" in ended.err
    (tmp_path / "src").mkdir()
    (tmp_path / "orch23.toml").touch()
    assert f"name one: `orch23 {command} ../pipelines/one.yaml`, `" in Here(tmp_path / "src").run(command).err


@pytest.mark.needs("inspecting")
def test_the_hint_of_many_pipelines_has_one_command_for_all_and_the_named_stages(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    for name in "abcd":
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(PIPELINE)
    ended = Here(tmp_path).run("show", "make")
    assert "name one: `orch23 show PIPELINE make`, such as `orch23 show pipelines/a.yaml make`\n" in ended.err


@pytest.mark.needs("inspecting")
def test_the_hint_of_many_pipelines_names_one_that_has_the_stage(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    for name in "abcde":
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(
            PIPELINE.replace("copy:", "other:") if name < "d" else PIPELINE
        )
    few = Here(tmp_path).run("show", "copy").err
    assert "name one: `orch23 show pipelines/d.yaml copy`, `orch23 show pipelines/e.yaml copy`\n" in few
    assert "such as `orch23 show pipelines/a.yaml lost`\n" in Here(tmp_path).run("show", "lost").err


@pytest.mark.needs("inspecting")
@pytest.mark.parametrize("command", ["build", "plan", "trust", "status", "explain"])
def test_without_any_pipeline_the_hint_is_to_create_one(tmp_path: Path, command: str) -> None:
    ended = Here(tmp_path).run(command)
    assert ended.code == 66
    assert "create one with `orch23 init`" in ended.err
    assert "quickstart" not in ended.err


# ---- directories of other users ------------------------------------------------------------------


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Give a directory of another user that holds a tool, and a directory of this user with a pipeline."""
    folder = tmp_path / "theirs"
    Here(folder / "mine").write(FILES)
    (folder / "tool.sh").write_text("echo good > out.txt; echo stranger > stranger.txt\n")
    belongs_to_another(folder, folder / "tool.sh")
    return folder


def mark(folder: Path, marker: str) -> Path:
    path = folder / marker
    if marker == ".git":
        path.mkdir()
    else:
        path.write_text("[tool.orch23]\n")
    return path


@needs_root
@pytest.mark.parametrize("marker", ["orch23.toml", "pyproject.toml", ".git"])
@pytest.mark.parametrize("argv", [["build"], ["build", "pipeline.yaml"]])
def test_a_marker_of_another_user_in_a_parent_directory_is_not_used(theirs: Path, marker: str, argv: list[str]) -> None:
    belongs_to_another(mark(theirs, marker))
    before = names(theirs)
    built = Here(theirs / "mine").run(*argv)
    assert built.code == 0, built.err
    assert names(theirs) == before | {"mine-home"}
    assert {"out.txt", ".orch23", "logs"} < names(theirs / "mine")
    assert f"warning[W668]: {theirs}/{marker} is not used: it belongs to another user, `nobody`" in built.err
    assert f"`orch23 -C {theirs}`" in built.err


@needs_root
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_marker_of_this_user_in_a_directory_of_another_is_not_used(theirs: Path, is_linked: bool) -> None:
    mark(theirs, "orch23.toml")
    here = theirs / "mine"
    if is_linked:
        here = theirs.parent / "link"
        here.symlink_to(theirs / "mine")
    built = Here(here).run("build")
    assert built.code == 0, built.err
    assert not (theirs / ".orch23").exists()
    assert "orch23.toml is not used: its directory belongs to another user, `nobody`" in built.err


@needs_root
@pytest.mark.parametrize("other", ["link", "target"])
def test_a_marker_that_is_a_link_has_to_be_the_users_as_well_as_what_it_leads_to(tmp_path: Path, other: str) -> None:
    here = Here(tmp_path / "top/mine")
    here.write(FILES)
    target, link = tmp_path / "target", tmp_path / "top/orch23.toml"
    target.touch()
    link.symlink_to(target)
    belongs_to_another(link if other == "link" else target)
    assert "W668" in here.run("build").err
    assert not (tmp_path / "top/.orch23").exists()


@pytest.mark.needs("inspecting")
@needs_root
@pytest.mark.parametrize("argv", [["build"], ["plan"], ["build", "../pipeline.yaml"], ["reset", "../pipeline.yaml"]])
def test_a_pipeline_of_another_user_in_a_parent_directory_is_refused(theirs: Path, argv: list[str]) -> None:
    (theirs / "pipeline.yaml").write_text(PIPELINE)
    belongs_to_another(theirs / "pipeline.yaml", mark(theirs, "orch23.toml"))
    (theirs / "mine/pipeline.yaml").unlink()
    before = names(theirs)
    refused = Here(theirs / "mine").run(*argv)
    assert refused.code == 66
    assert f"error[E661]: {theirs}/pipeline.yaml is not used: it" in refused.err
    assert f"if you trust it, work there: `orch23 -C {theirs}`" in refused.err
    assert names(theirs) == before | {"mine-home"}
    assert not (theirs / "mine/.orch23").exists()


@needs_root
def test_what_is_further_up_and_the_users_own_is_used(tmp_path: Path) -> None:
    Here(tmp_path / "top").write(FILES)
    here = Here(tmp_path / "top/theirs/mine")
    (tmp_path / "top/theirs/pipeline.yaml").write_text("version: 1\nstages: {a: {shell: 'false'}}\n")
    belongs_to_another(tmp_path / "top/theirs", tmp_path / "top/theirs/pipeline.yaml")
    built = here.run("build")
    assert built.code == 0, built.err
    assert "theirs/pipeline.yaml is not used" in built.err
    assert (tmp_path / "top/out.txt").is_file()


@needs_root
def test_the_directory_that_the_user_works_in_may_be_another_users(theirs: Path) -> None:
    mark(theirs, "orch23.toml")
    belongs_to_another(theirs / "orch23.toml")
    (theirs / "pipeline.yaml").write_text("version: 1\nstages: {a: {outputs: [a], shell: 'echo > a'}}\n")
    built = Here(theirs).run("build")
    assert (built.code, "W668" in built.err) == (0, False)
    assert (theirs / "a").is_file()


@pytest.mark.slow
@needs_root
def test_a_directory_that_was_given_to_another_user_answers_no_more(tmp_path: Path) -> None:
    top = tmp_path / "top"
    Here(top).write(FILES)
    (top / "sub").mkdir()
    below = Here(top / "sub", env={"ORCH23_TRUST": "1"})
    for _ in range(2):
        assert below.run("build").code == 0
    assert "up to date" in below.run("build").err
    belongs_to_another(top)
    journals = len(list((top / "logs").glob("*.jsonl")))
    for command in ("build", "plan"):
        refused = below.run(command)
        assert (refused.code, "E661" in refused.err) == (66, True), refused.err
    assert len(list((top / "logs").glob("*.jsonl"))) == journals


@pytest.mark.needs("inspecting")
@needs_root
def test_a_store_of_another_user_in_a_parent_directory_is_not_used(theirs: Path) -> None:
    project = Here(theirs / "mine")
    assert project.run("build").code == 0
    for name in (".orch23", "logs", "pipeline.yaml"):
        (theirs / "mine" / name).rename(theirs / name)
    found = project.run("runs", "--json", env={"ORCH23_TRUST": "1"})
    assert (found.code, json.loads(found.out)["runs"]) == (0, [])


@pytest.mark.timeout(60)
def test_a_pipe_in_a_parent_directory_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    here = Here(tmp_path / "mine")
    here.write(FILES)
    assert here.run("build").code == 0


# ---- one root for a command ----------------------------------------------------------------------


@pytest.fixture
def below(tmp_path: Path) -> Here:
    """Give a subdirectory of a project that nothing but its pipeline marks."""
    Here(tmp_path / "top").write(FILES)
    return Here(tmp_path / "top/sub")


def facts(outcome: Outcome) -> dict[str, str]:
    return {one["name"]: one["value"] for one in json.loads(outcome.out)["facts"]}


@pytest.mark.needs("doctor")
def test_doctor_names_the_project_of_a_subdirectory(below: Here) -> None:
    assert below.run("build").code == 0
    found, top = facts(below.run("doctor", "--json")), below.root.parent
    assert found["project"] == str(top)
    assert found["store"] == f"{top}/.orch23 can be written"
    assert found["runs"] == "1 run"


def test_an_error_while_building_has_its_excerpt_in_a_subdirectory(below: Here) -> None:
    (below.root.parent / "in.txt").unlink()
    refused = below.run("build")
    assert refused.code != 0
    assert "inputs: [in.txt, tool.sh]" in refused.err


def test_a_crash_is_kept_in_the_logs_of_the_project(below: Here) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError

    with patch("orch23.cli.actions.build.run_build", fail):
        crashed = below.run("build")
    assert crashed.code == 70
    (kept,) = (below.root.parent / "logs").glob("crash-*.txt")
    assert f"its traceback is in ../logs/{kept.name}" in crashed.err
    assert names(below.root) == set()


@pytest.mark.slow
@pytest.mark.parametrize("leftover", ["empty", "used"])
def test_a_store_that_was_left_over_in_a_subdirectory_decides_nothing(below: Here, leftover: str) -> None:
    if leftover == "empty":
        (below.root / ".orch23").mkdir()
    else:
        below.write({"x.yaml": "version: 1\nstages: {a: {outputs: [a], shell: 'echo > a'}}\n"})
        assert below.run("build", "x.yaml").code == 0
        assert (below.root / "a").is_file()
    for argv in (["build"], ["build"], ["status"], ["trust"], ["build", "../pipeline.yaml"]):
        done = below.run(*argv)
        assert done.code == 0, done.err
    listed = json.loads(below.run("runs", "--json").out)["runs"]
    assert {one["pipeline"] for one in listed} == {"pipeline.yaml"}
    assert (below.root.parent / ".orch23/id").is_file()


@pytest.mark.needs("inspecting", "upkeep")
def test_a_store_in_a_parent_directory_is_found_where_no_pipeline_is(tmp_path: Path) -> None:
    top = Here(tmp_path / "top")
    top.write({f"pipelines/{name}" if name == "pipeline.yaml" else name: text for name, text in FILES.items()})
    assert top.run("build", "pipelines/pipeline.yaml").code == 0
    below = Here(tmp_path / "top/sub")
    assert len(json.loads(below.run("runs", "--json").out)["runs"]) == 1
    assert "2 results" in below.run("cache", "verify").out


COMMANDS: Mapping[str, Callable[[Here], Sequence[str]]] = {
    "plan": lambda _: ["plan"],
    "status": lambda _: ["status"],
    "explain": lambda _: ["explain", "copy"],
    "log": lambda _: ["log"],
    "validate": lambda _: ["validate"],
    "graph": lambda _: ["graph"],
    "runs": lambda _: ["runs"],
    "vars": lambda _: ["vars", "--vars", "more.yaml"],
    "show": lambda _: ["show", "test"],
    "gc": lambda _: ["gc"],
    "doctor": lambda _: ["doctor"],
    "trust": lambda _: ["trust"],
    "cache stats": lambda _: ["cache", "stats"],
    "cache verify": lambda _: ["cache", "verify"],
    "accept": lambda below: ["accept", edited(below)],
    "release": lambda _: ["release", "copy"],
    "clean": lambda _: ["clean"],
    "reset": lambda _: ["reset"],
    "reset a pipeline": lambda _: ["reset", "../pipeline.yaml"],
    "reset outputs": lambda _: ["reset", "--outputs"],
}


def edited(below: Here) -> str:
    (below.root.parent / "out.txt").write_text("good, by hand\n")
    return "copy"


@pytest.mark.needs("doctor", "inspecting", "upkeep")
@pytest.mark.stride(4)
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_works_in_a_subdirectory(below: Here, name: str) -> None:
    below.write({"more.yaml": "{}\n"})
    top = below.root.parent
    assert below.run("build").code == 0
    done = below.run(*COMMANDS[name](below))
    assert done.code == 0, done.err
    assert f"project: {top} (paths are relative to it)\n" in done.err
    assert names(below.root) == {"more.yaml"}
    if name.startswith("reset"):
        assert "removed the results in pipeline.lock" in done.out


@pytest.mark.slow
def test_where_paths_start_from_is_said_once_and_again_by_a_build_with_nothing_to_do(below: Here) -> None:
    place = f"project: {below.root.parent} (paths are relative to it)\n"
    built = [below.run("build") for _ in range(4)]
    assert [outcome.code for outcome in built] == [0] * 4
    assert [outcome.err.count(place) for outcome in built] == [1] * 4
    assert [outcome.err for outcome in built[1:]] == [f"{place}pipeline: up to date (2 stages)\n"] * 3
    assert below.run("plan").err == place
    assert below.run("build", "--quiet").err == ""
    assert "project:" not in Here(below.root.parent).run("build").err


@pytest.mark.slow
def test_a_pipeline_that_comes_nearer_is_seen_after_a_build_with_nothing_to_do(below: Here) -> None:
    (below.root.parent / ".git").mkdir()
    for _ in range(3):
        assert below.run("build").code == 0
    below.write({"pipeline.yaml": "version: 1\nstages: {near: {outputs: [sub/n], shell: 'echo > sub/n'}}\n"})
    built = below.run("build")
    assert (built.code, "near" in built.err) == (0, True), built.err


# ---- the only pipeline ---------------------------------------------------------------------------


ONLY = {f"pipelines/{name}" if name == "pipeline.yaml" else name: text for name, text in FILES.items()}
OTHER_PIPELINE = "version: 1\nstages: {near: {outputs: [near.txt], shell: 'echo > near.txt'}}\n"


@pytest.fixture
def only(tmp_path: Path) -> Here:
    """Give a directory below that of the only pipeline, after builds with nothing to do there and here."""
    top = Here(tmp_path / "top")
    top.write({**ONLY, "src/keep": ""})
    here = Here(top.root / "src")
    for place in (top, here, here):
        built = [place.run("build") for _ in range(3)]
        assert [outcome.code for outcome in built] == [0] * 3, built[0].err
        assert "up to date" in built[2].err
    assert (top.root / "out.txt").is_file()
    assert not (here.root / ".orch23").exists()
    return here


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "src"])
@pytest.mark.parametrize("name", ["pipelines/second.yaml", "pipelines/second.yml"])
def test_a_second_pipeline_is_seen_after_a_build_with_nothing_to_do(only: Here, place: str, name: str) -> None:
    top = Here(only.root.parent)
    here = Here(top.root / place)
    top.write({name: OTHER_PIPELINE})
    for command in ("build", "plan"):
        refused = here.run(command)
        assert (refused.code, "more than one pipeline" in refused.err) == (66, True), refused.err
    (top.root / name).unlink()
    assert "up to date" in here.run("build").err


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "src"])
@pytest.mark.parametrize("name", ["pipeline.yaml", "src/pipeline.yaml", "src/pipelines/near.yaml"])
def test_a_pipeline_that_comes_first_is_seen_after_a_build_with_nothing_to_do(
    only: Here, place: str, name: str
) -> None:
    top = Here(only.root.parent)
    top.write({name: OTHER_PIPELINE})
    built = Here(top.root / place).run("build")
    assert built.code == 0, built.err
    assert ("near  shell" in built.err) == (name == "pipeline.yaml" or place == "src"), built.err


@pytest.mark.slow
def test_an_edit_after_a_second_pipeline_is_not_built(only: Here) -> None:
    top = Here(only.root.parent)
    top.write({"pipelines/second.yaml": OTHER_PIPELINE, "in.txt": "good too\n"})
    assert "more than one pipeline" in top.run("build").err
    assert top.read("out.txt") == "good\n"


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("other", ["pipelines", "pipelines/pipeline.yaml", "."])
def test_the_only_pipeline_of_another_user_in_a_parent_directory_is_refused(only: Here, other: str) -> None:
    Here(only.root.parent).write({"in.txt": "good too\n"})
    belongs_to_another(only.root.parent / other)
    refused = only.run("build")
    assert refused.code == 66, refused.err
    assert "is not used: it" in refused.err
    assert "belongs to another user, `nobody`" in refused.err


ASKING = """\
version: 1
stages:
  ask: {outputs: [o.txt], llm: {provider: command, command: [python3, ask.py], model: m, prompt: p.j2, returns: text}}
"""


@pytest.mark.parametrize("place", ["pipeline.yaml", "pipelines/x.yaml"])
def test_the_command_that_gives_consent_works_where_the_user_is(tmp_path: Path, place: str) -> None:
    own = {"XDG_STATE_HOME": str(tmp_path / "state")}
    top, here = Here(tmp_path / "top", env=own), Here(tmp_path / "top/sub", env=own)
    top.write({place: ASKING, "p.j2": "hi\n", "ask.py": "print('x')\n"})
    argv = ("build",) if place == "pipeline.yaml" else ("-C", "..", "build", place)
    refused = here.run(*argv)
    assert refused.code == 77
    assert "command: [python3, ask.py]" in refused.err
    found = re.search(r"`orch23 ([^`]*trust [^`]*)`", refused.err)
    assert found is not None
    given = here.run(*shlex.split(found.group(1)))
    assert (given.code, "allowed for" in given.out) == (0, True), given.err
    assert f"allowed for {tmp_path}/top:" in given.out


@pytest.mark.needs("metrics")
@pytest.mark.slow
def test_what_a_commit_affects_is_said_in_a_subdirectory(tmp_path: Path) -> None:
    top = Repository(tmp_path / "top")
    top.init()
    top.write({**FILES, "sub/more.yaml": "{}\n"})
    assert top.run("build").code == 0
    top.commit()
    top.edit("in.txt", "good, too\n")
    found = Here(tmp_path / "top/sub").run("affected", "--since", "HEAD", "--vars", "more.yaml")
    assert (found.code, "copy" in found.out) == (0, True), found.err


@pytest.mark.needs("authoring")
@pytest.mark.parametrize(
    ("argv", "command"), [(["help", "biuld"], "orch23 help build"), (["BUILD"], "build"), (["Stauts"], "status")]
)
def test_a_command_that_is_misspelt_is_suggested(tmp_path: Path, argv: list[str], command: str) -> None:
    refused = Here(tmp_path / "here").run(*argv)
    assert f"did you mean `{command}`?" in refused.err


def test_files_beside_a_pipeline_below_the_root_are_named_with_one_note(tmp_path: Path) -> None:
    """Case: in a subfolder of a repository, files that were there were said not to exist."""
    (tmp_path / ".git").mkdir()
    stage = "inputs: [specs/app.md, gone.md], outputs: [o], "
    stage += "llm: {provider: scripted, model: m, answers: answers.yaml, prompt: p.md.j2, returns: text}"
    project = Here(tmp_path / "sub").write(
        {
            "pipeline.yaml": f"version: 1\nstages:\n  draft: {{{stage}}}\n",
            "specs/app.md": "a\n",
            "answers.yaml": "draft: [a]\n",
            "p.md.j2": "{{ inputs | blocks }}\n",
        }
    )
    for command in ("validate", "plan", "build"):
        refused = project.run(command)
        assert refused.code == 65
        for path in ("p.md.j2", "answers.yaml", "specs/app.md"):
            assert f"help: paths are relative to the root: did you mean `sub/{path}`?\n" in refused.err
        note = f"are in `sub/`, but paths are relative to the root of the project, {tmp_path}\n"
        assert refused.err.count(note) == 1
        assert "help: to make `sub/` the root, `touch orch23.toml`\n" in refused.err
        assert "input `gone.md` of stage `draft` does not exist, and no stage makes it" in refused.err
    above = Here(tmp_path).run("validate", "sub/pipeline.yaml")
    assert "`touch sub/orch23.toml` and work there: `orch23 -C sub`\n" in above.err
    project.replace("pipeline.yaml", ", gone.md", "")
    project.write({"orch23.toml": ""})
    assert project.run("validate").code == 0
