"""Damaged, foreign and lost files of orch23's own, and a project that somebody else is building."""

import json
import re
import shutil
from collections.abc import Callable
from unittest.mock import patch

from msgspec.structs import replace

from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.record import LockFile
from orch23.store.lock_file import read_lock, write_lock
from orch23.store.project_store import ProjectStore, open_store
from tests.catalogue.commands import built
from tests.catalogue.provoking import Trigger, Triggers, reported, shown
from tests.project import Project, scripted

TRIGGERS = Triggers()
LOCK = "pipeline.lock"


def after(project: Project, path: str, damage: Callable[[str], str]) -> set[str]:
    """Build, let a file become another, and build again; return the codes that are told."""
    built(project).edit(path, damage(project.read(path)))
    return shown(project.build())


def conflict(text: str) -> str:
    """Leave the text as a merge does that did not succeed, with a side that no version of orch23 wrote."""
    return f"<<<<<<< HEAD\n{text[1:]}=======\n{text}>>>>>>> other\n"


# code -> the file that is damaged, and how
DAMAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "E701": (LOCK, conflict),
    "E702": (LOCK, lambda text: text[: len(text) // 2]),
    "E703": (LOCK, lambda text: text.replace("a.txt", "b.txt")),
    "E704": (LOCK, lambda text: re.sub(r'("orch23_lock": *)\d+', r"\g<1>99", text)),
    "E705": (".orch23/VERSION", lambda _: "99\n"),
}


def _of_the_table(code: str) -> Trigger:
    return lambda project: after(project, *DAMAGES[code])


for _code in DAMAGES:
    TRIGGERS.of(_code)(_of_the_table(_code))


@TRIGGERS.of("E691")
def path_through_a_link(project: Project) -> set[str]:
    """Read an input through a symbolic link."""
    project.write(
        {"pipeline.yaml": "version: 1\nstages:\n  a: {inputs: [d/in.txt], shell: 'true'}\n", "real/in.txt": ""}
    )
    (project.root / "d").symlink_to("real")
    return shown(project.build())


@TRIGGERS.of("E698")
def content_that_git_left_out(project: Project) -> set[str]:
    """Read a pointer of Git LFS in place of its content."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    project.write({"pipeline.yaml": "version: 1\nstages:\n  a: {inputs: [in.bin], shell: 'true'}\n", "in.bin": pointer})
    return shown(project.build())


@TRIGGERS.of("E692")
def folder_where_the_lock_belongs(project: Project) -> set[str]:
    """Put a folder in the place of the lock."""
    lock = built(project).root / ".orch23/lock"
    lock.unlink()
    lock.mkdir()
    return shown(project.build())


@TRIGGERS.of("E693")
def store_of_another_user(project: Project) -> set[str]:
    """Take over a store that belongs to another user."""
    folder = project.write({".orch23/records/x": "", ".git/HEAD": ""}).root / ".orch23"
    with patch("orch23.store.access.os.geteuid", return_value=folder.stat().st_uid + 1):
        return shown(project.run("trust", env={"ORCH23_TRUST": "0"}))


@TRIGGERS.of("E694")
def lock_file_that_a_stage_writes(project: Project) -> set[str]:
    """Let a stage name the lock file of its own pipeline as an output."""
    stage = {"outputs": [LOCK], "shell": f"echo forged > {LOCK}"}
    return shown(project.write(scripted({"a": stage}, {})).build())


@TRIGGERS.of("W693")
def store_that_came_with_a_clone(project: Project) -> set[str]:
    """Plan where a store lies that no one registered."""
    (built(project).root / ".orch23/id").unlink()
    return shown(project.run("plan", env={"ORCH23_TRUST": "0"}))


@TRIGGERS.of("E695")
def state_directory_that_cannot_be_written(project: Project) -> set[str]:
    """Build where the user's state directory would lie below a file."""
    state = project.write({"file": "", "pipeline.yaml": "version: 1\nstages:\n  a: {shell: 'true'}\n"}).root / "file"
    return shown(project.run("build", env={"XDG_STATE_HOME": str(state), "ORCH23_TRUST": "0"}))


@TRIGGERS.of("E696")
def lock_file_with_a_result_that_does_not_pass(project: Project) -> set[str]:
    """Give the stage of a model another output in the lock file, which its verification refuses."""
    stage = {"outputs": ["app.py"], "llm": {"returns": "code"}, "verify": [{"shell": "grep x app.py"}]}
    project.write(scripted({"a": stage}, {"a": ["x = 1\n"]})).build()
    project.write({"app.py": "y = 1\n"})
    record = read_lock(project.root / LOCK).records["a"]
    forged = replace(record, outputs={"app.py": FileEntry(digest_bytes(b"y = 1\n"))})
    write_lock(project.root, LOCK, LockFile({"a": forged}), "pipeline")
    return shown(project.build(env={"ORCH23_TRUST": "0"}))


@TRIGGERS.of("E706")
def journal_with_a_damaged_line(project: Project) -> set[str]:
    """Change a line in the middle of the newest journal."""
    (journal,) = built(project).journals()
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([lines[0], "{}\n", *lines[2:]]))
    return shown(project.build())


@TRIGGERS.of("E707")
def transcript_that_is_damaged(project: Project) -> set[str]:
    """Cut off a committed transcript, and need it again."""
    code = {"code": {"outputs": ["app.py"], "llm": {"returns": "code", "transcripts": "answers"}}}
    assert project.write(scripted(code, {"code": ["x = 1\n"]})).build().code == 0
    (transcript,) = (project.root / "answers").glob("*.json")
    transcript.write_text(transcript.read_text()[:100])
    return shown(project.build("--force", "code"))


@TRIGGERS.of("E708")
def project_that_another_builds(project: Project) -> set[str]:
    """Build while somebody holds the lock of the project."""
    store = open_store(built(project).root)
    with store.build_lock():
        return shown(project.build())


@TRIGGERS.of("E709")
def run_that_never_was(project: Project) -> set[str]:
    """Ask for the log of a run that never was."""
    return shown(built(project).run("log", "20000101T000000Z-00000000"))


@TRIGGERS.of("E710")
def bytes_that_are_lost(project: Project) -> set[str]:
    """Lose the store and the output of a stage that is not to run, and need its bytes."""
    first = {"outputs": ["a.txt"], "shell": "echo a > a.txt"}
    second = {"inputs": ["a.txt"], "outputs": ["b.txt"], "shell": "cp a.txt b.txt"}
    assert project.write(scripted({"a": first, "b": second}, {})).build().code == 0
    shutil.rmtree(project.root / ".orch23")
    project.delete("a.txt")
    project.delete("b.txt")
    return shown(project.build("--only", "b")) | reported(project)


@TRIGGERS.of("E712")
def a_path_with_two_owners(project: Project) -> set[str]:
    """Let two pipelines declare one output, and build both."""
    stage = {"outputs": ["out.txt"], "shell": "echo x > out.txt"}
    project.write(scripted({"one": stage}, {}, name="one")).write(scripted({"two": stage}, {}, name="two"))
    assert project.build("one.yaml").code == 0
    return shown(project.build("two.yaml"))


@TRIGGERS.of("E711")
def input_that_never_rests(project: Project) -> set[str]:
    """Let an input change each time that it is about to be read."""
    take, times = ProjectStore.add_file, iter(range(1, 100))
    second = {"inputs": ["in.txt"], "outputs": ["out.txt"], "shell": "cp in.txt out.txt"}
    project.write({**scripted({"a": second}, {}), "in.txt": "0"})

    def change_and_take(store: ProjectStore, path: str) -> Digest:
        if path != "in.txt":
            return take(store, path)
        project.edit("in.txt", json.dumps([next(times)] * 9))
        taken = take(store, path)
        project.edit("in.txt", json.dumps([next(times)] * 10))
        return taken

    with patch.object(ProjectStore, "add_file", change_and_take):
        return shown(project.build())
