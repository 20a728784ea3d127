"""Files of orch23's own, and those that are committed beside a pipeline, as somebody else might leave them."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.holding import Case
from tests.project import Project, scripted

STAGES: dict[str, dict[str, Any]] = {
    "a": {"outputs": ["a.txt"], "inputs": ["in.txt"], "shell": "cp in.txt a.txt"},
    "b": {"outputs": ["b.txt"], "llm": {"returns": "text", "transcripts": "said"}},
}
FILES = {**scripted(STAGES, {"b": ["hello"]}), "in.txt": "x\n"}
LOCK, VERSION, JOURNAL, SAID = "pipeline.lock", ".orch23/VERSION", "logs/*.jsonl", "said/**/*.json"
AGAIN = ("build", "--force", "a", "--force", "b")
Damage = Callable[[Path], None]


def text(content: str | bytes) -> Damage:
    """Give the file this content."""
    return lambda path: _write(path, content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


def changed(pattern: str, new: str) -> Damage:
    """Change the first place in the file."""

    def change(path: Path) -> None:
        old = path.read_text()
        assert re.search(pattern, old), pattern
        _write(path, re.sub(pattern, new, old, count=1).encode())

    return change


def instead(make: Damage) -> Damage:
    """Put something else in the place of the file."""

    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def _write(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


PIPE = instead(os.mkfifo)
FOLDER = instead(lambda path: path.mkdir())
ZERO = instead(lambda path: path.symlink_to("/dev/zero"))
PASSWD = instead(lambda path: path.symlink_to("/etc/passwd"))
SOCKET = instead(_socket)
DEEP = "[" * 200_000


def damaged(
    pattern: str, damage: Damage, *says: str, code: int = 3, argv: tuple[str, ...] = ("build",), complaints: int = 1
) -> Case:
    """Return the case of one file that is damaged after a green build."""

    def spoil(project: Project) -> None:
        (path,) = project.root.glob(pattern)
        damage(path)

    return Case(files=FILES, before=("build",), spoil=spoil, argv=argv, code=code, says=says, complaints=complaints)


def healed(pattern: str, damage: Damage, *says: str, argv: tuple[str, ...] = AGAIN) -> Case:
    """Return the case of a file without which everything is made again, and nothing is wrong."""

    def spoil(project: Project) -> None:
        for path in [one for one in project.root.glob(pattern) if one.is_file()]:
            damage(path)

    return Case(files=FILES, before=("build",), spoil=spoil, argv=argv, code=0, says=says, complaints=0)


def _with(files: dict[str, str]) -> Callable[[Project], None]:
    """Return what lays these files."""

    def spoil(project: Project) -> None:
        project.write(files)

    return spoil


def _linked(name: str) -> Case:
    """Return the case of a folder of orch23's own that leads to somebody else's, which must stay as it is."""

    def spoil(project: Project) -> None:
        elsewhere = project.root / "elsewhere"
        elsewhere.mkdir(mode=0o755)
        (elsewhere / "rooms").mkdir()
        (elsewhere / "rooms/mine").write_text("mine")
        (project.root / name).symlink_to("elsewhere")

    return Case(files=FILES, spoil=spoil, argv=("build",), code=2, says=("E691", name))


STORES: dict[str, Case] = {
    # the lock file
    "lock: not JSON": damaged(LOCK, text("{"), "E702", LOCK),
    "lock: 200 kB of [": damaged(LOCK, text(DEEP), "E702", LOCK),
    "lock: no text": damaged(LOCK, text(b"\xff\xfe\x00"), "E702", LOCK),
    "lock: NULs": damaged(LOCK, text(b"\0" * 4096), "E702", LOCK),
    "lock: a list": damaged(LOCK, text("[]"), "E70", LOCK),
    "lock: a number of 5,000 digits": damaged(LOCK, text("9" * 5000), "E70", LOCK),
    "lock: not a number": damaged(LOCK, text('{"orch23_lock": NaN}'), "E702", LOCK),
    "lock: a key twice": damaged(LOCK, text('{"orch23_lock": 1, "orch23_lock": 2}'), "E702", LOCK),
    "lock: from a merge": damaged(LOCK, text("        spoil=_with({".orch23/promote.json": '{"files": [{"path": "../owned", "old": null, "new": null}]}'}),
        argv=("build",),
        code=0,
        complaints=0,
    ),
    "promotion: 200 kB of [": Case(
        files=FILES,
        before=("build",),
        spoil=_with({".orch23/promote.json": DEEP}),
        argv=("build",),
        code=0,
        complaints=0,
    ),
    "the build lock is a folder": Case(
        files=FILES,
        before=("build",),
        spoil=lambda project: FOLDER(project.root / ".orch23/lock"),
        argv=("build",),
        code=74,
        says=("E650", ".orch23/lock"),
    ),
    "the store is a file": Case(files={**FILES, ".orch23": "x"}, argv=("build",), code=74, says=("E650", ".orch23")),
    "the logs are a file": Case(files={**FILES, "logs": "x"}, argv=("build",), code=74, says=("E650", "logs")),
    "the store is a link": _linked(".orch23"),
    "the logs are a link": _linked("logs"),
    # templates
    "answers: not YAML": Case(
        files={".orch23-x.answers.yml": "["}, argv=("template", "update", "x"), code=66, says=(".orch23-x",)
    ),
    "answers: 200 kB of [": Case(
        files={".orch23-x.answers.yml": DEEP}, argv=("template", "update", "x"), code=66, says=(".orch23-x",)
    ),
    "answers: a tag of Python": Case(
        files={".orch23-x.answers.yml": "_src_path: !!python/object/apply:os.system [a]\n"},
        argv=("template", "update", "x"),
        code=66,
        says=(".orch23-x",),
    ),
    "answers: no text": Case(
        files={".orch23-x.answers.yml": b"\xff"}, argv=("template", "update", "x"), code=66, says=(".orch23-x",)
    ),
    "answers: a list": Case(
        files={".orch23-x.answers.yml": "- a\n"}, argv=("template", "update", "x"), code=66, says=(".orch23-x",)
    ),
    "answers: a pipe": Case(
        spoil=lambda project: os.mkfifo(project.root / ".orch23-x.answers.yml"),
        argv=("template", "update", "x"),
        code=66,
    ),
    "answers: a program as the source": Case(
        files={".orch23-x.answers.yml": "_src_path: ext::sh -c touch% owned\n_commit: v1\n"},
        code=66,
        argv=("template", "update", "x"),
    ),
}


def _insert(path: Path, line: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line, *lines[1:]]))
