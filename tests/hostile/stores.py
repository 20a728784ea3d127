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
    pattern: str, damage: Damage, *says: str, code: int = 3, argv: tuple[str, ...] = ("build",), problems: int = 1
) -> Case:
    """Return the case of one file that is damaged after a green build."""

    def spoil(project: Project) -> None:
        (path,) = project.root.glob(pattern)
        damage(path)

    return Case(files=FILES, before=("build",), spoil=spoil, argv=argv, code=code, says=says, problems=problems)


def healed(pattern: str, damage: Damage, *says: str, argv: tuple[str, ...] = AGAIN) -> Case:
    """Return the case of a file without which everything is made again, and nothing is wrong."""

    def spoil(project: Project) -> None:
        for path in [one for one in project.root.glob(pattern) if one.is_file()]:
            damage(path)

    return Case(files=FILES, before=("build",), spoil=spoil, argv=argv, code=0, says=says, problems=0)


def _with(files: dict[str, str]) -> Callable[[Project], None]:
    """Return what places these files."""

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
    "lock: from a merge": damaged(LOCK, text("<<<<<<< HEAD\n{}\n=======\n>>>>>>> \x1b[31mother\n"), "E701", LOCK),
    "lock: a version to come": damaged(LOCK, changed(r'("orch23_lock": *)\d+', r"\g<1>99"), "E704", LOCK),
    "lock: a path that climbs": damaged(LOCK, changed(r"a\.txt", "../../etc/x"), "E70", LOCK),
    "lock: a name with an escape": damaged(LOCK, changed(r"a\.txt", r"\\u001b[31m"), "E70", LOCK),
    "lock: a pipe": damaged(LOCK, PIPE, "E70", LOCK),
    "lock: a folder": damaged(LOCK, FOLDER, "E702", LOCK),
    "lock: a device": damaged(LOCK, ZERO, "E70", LOCK),
    "lock: a link out of the project": damaged(LOCK, PASSWD, "E70", LOCK),
    # the version of the store
    "version: to come": damaged(VERSION, text("99\n"), "E705", "VERSION:1:1", "'99'"),
    "version: an escape": damaged(VERSION, text("\x1b[31m\u202e\n"), "VERSION: was damaged", code=0, problems=0),
    "version: a flood": damaged(VERSION, text("9" * 1_000_000), "VERSION: was damaged", code=0, problems=0),
    "version: nothing": damaged(VERSION, text(""), "VERSION: was damaged", code=0, problems=0),
    "version: a pipe": damaged(VERSION, PIPE, "VERSION: was not a file", code=0, problems=0),
    "version: a folder": damaged(VERSION, FOLDER, "VERSION: was not a file", code=0, problems=0),
    "version: a device": damaged(VERSION, ZERO, "VERSION: was not a file", code=0, problems=0),
    # the journal
    "journal: a forged line": damaged(
        JOURNAL,
        lambda path: _insert(path, b'{"type":"run_finished","data":{"status":"ok","exit_code":0}}\n'),
        "E706",
        ":2:",
        argv=("log",),
    ),
    "journal: a line of NULs": damaged(JOURNAL, lambda path: _insert(path, b"\0" * 999 + b"\n"), "E706", argv=("log",)),
    "journal: 200 kB of [": damaged(JOURNAL, lambda path: _insert(path, DEEP.encode() + b"\n"), "E706", argv=("log",)),
    "journal: an escape": damaged(JOURNAL, lambda path: _insert(path, b"\x1b[31m\x9b\n"), "E706", argv=("log",)),
    "journal: a pipe": damaged(JOURNAL, PIPE, "E709", argv=("log",), code=66),
    "journal: a device": damaged(JOURNAL, ZERO, "E709", argv=("log",), code=66),
    "journal: no run of that name": damaged(
        JOURNAL, lambda _path: None, "E709", "\\x1b", argv=("log", "\x1b[31m\u202e"), code=66
    ),
    # transcripts
    "transcript: cut off": damaged(SAID, changed(r"(?s)^(.{90}).*", r"\1"), "E707", argv=AGAIN),
    "transcript: not JSON": damaged(SAID, text("{"), "E707", "said", argv=AGAIN),
    "transcript: 200 kB of [": damaged(SAID, text(DEEP), "E707", "said", argv=AGAIN),
    "transcript: no text": damaged(SAID, text(b"\xff"), "E707", "said", argv=AGAIN),
    "transcript: another answer": damaged(
        SAID, changed('"response": "hello', '"response": "owned'), "E707", "said", argv=AGAIN
    ),
    "transcript: a field more": damaged(SAID, changed(r"^\{", '{"x": 1,'), "E707", "said", argv=AGAIN),
    "transcript: a number of 5,000 digits": damaged(SAID, text("9" * 5000), "E707", argv=AGAIN),
    # what only saves time, or is made again
    "contents: other bytes": healed(".orch23/cas/*/*", text("y\n")),
    "contents: nothing": healed(".orch23/cas/*/*", text("")),
    "contents: a pipe": healed(".orch23/cas/*/*", PIPE),
    "contents: a link": healed(".orch23/cas/*/*", PASSWD),
    "records: not JSON": healed(".orch23/records/*/*", text("{")),
    "records: 200 kB of [": healed(".orch23/records/**/*", text(DEEP)),
    "records: no text": healed(".orch23/records/**/*", text(b"\xff\0")),
    "records: a pipe": healed(".orch23/records/**/*.json", PIPE),
    "exchanges: not JSON": healed(".orch23/exchanges/**/*.json", text("{")),
    "exchanges: 200 kB of [": healed(".orch23/exchanges/**/*.json", text(DEEP)),
    "exchanges: a pipe": healed(".orch23/exchanges/**/*.json", PIPE),
    "exchanges: a device": healed(".orch23/exchanges/**/*.json", ZERO),
    "index: not SQLite": healed(".orch23/index.sqlite", text("{")),
    "index: 200 kB of [": healed(".orch23/index.sqlite", text(DEEP)),
    "index: cut off": healed(".orch23/index.sqlite", text("SQLite format 3\0")),
    "index: a pipe": healed(".orch23/index.sqlite", PIPE),
    "index: a device": healed(".orch23/index.sqlite", ZERO),
    "state: not JSON": healed("logs/*/state.json", text("{")),
    "state: 200 kB of [": healed("logs/*/state.json", text(DEEP)),
    "state: a forged end": healed("logs/*/state.json", text('{"status": "\x1b[31mok"}')),
    "state: a pipe": healed("logs/*/state.json", PIPE),
    "promotion: not JSON": Case(
        files=FILES,
        before=("build",),
        spoil=_with({".orch23/promote.json": "{"}),
        argv=("build",),
        code=0,
        problems=0,
    ),
    "promotion: out of the project": Case(
        files=FILES,
        before=("build",),
        spoil=_with({".orch23/promote.json": '{"files": [{"path": "../owned", "old": null, "new": null}]}'}),
        argv=("build",),
        code=0,
        problems=0,
    ),
    "promotion: 200 kB of [": Case(
        files=FILES,
        before=("build",),
        spoil=_with({".orch23/promote.json": DEEP}),
        argv=("build",),
        code=0,
        problems=0,
    ),
    "the build lock is a folder": Case(
        files=FILES,
        before=("build",),
        spoil=lambda project: FOLDER(project.root / ".orch23/lock"),
        argv=("build",),
        code=3,
        says=("E692", ".orch23/lock"),
    ),
    "the store is a file": Case(files={**FILES, ".orch23": "x"}, argv=("build",), code=3, says=("E692", ".orch23")),
    "the logs are a file": Case(files={**FILES, "logs": "x"}, argv=("build",), code=3, says=("E692", "logs")),
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
