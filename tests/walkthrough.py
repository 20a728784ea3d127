"""Run a page of the documentation as its reader would: write its files, enter its commands, compare what they print.

A block ```` ```yaml pipelines/app.yaml ```` is a file. In a block of `console`, lines that begin with `$ ` are
commands, and the lines after each are what it prints. A line of only `...` matches any lines.
Durations are not compared.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^(`{3,})(\w+)(?: (\S+))?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_MARK = "@@walkthrough@@"
_KILOBYTES = re.compile(r"[0-9.]+ kB")
_DURATION = re.compile(r"(?:\bunder |~)?\b\d+(?:\.\d+)?(?: ms| s|s|m \d+s)\b")
_COMMIT = re.compile(r"\([0-9a-f]{12}\)")
_RUN = re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]{8}(?:-\d+)?\b")
_TIME = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} ", re.MULTILINE)
_SPACES = re.compile(r"  +")
_TIER_WARNING = "the sandbox is Landlock"
_TIER = re.compile(r"sandbox: \w+")
_MACHINE = re.compile(r"(/\S+/)?\.venv/bin/")


@dataclass(frozen=True)
class Command:
    """A command of a page, with the text after it."""

    text: str
    shown: str


@dataclass(frozen=True)
class Block:
    """A block of a page: a file if `path` is set, else commands. `start` and `end` are offsets of its body."""

    language: str
    path: str
    body: str
    start: int
    end: int

    def commands(self) -> tuple[Command, ...]:
        """Return the commands of a block of `console`."""
        found = []
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            first, _, shown = part.partition("\n")
            found.append(Command(first, shown))
        return tuple(found)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the files and commands of a page."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if found[2] == "console" or found[3]:
            yield Block(found[2], found[3] or "", found[4], found.start(4), found.end(4))


def play(page: Path, folder: Path) -> list[str]:
    """Run all blocks in an empty folder, and return how the output differs. With REGOLD=1, write it into the page."""
    folder.mkdir(parents=True)
    _install(folder.parent)
    text, moved, wrong, where = page.read_text(encoding="utf-8"), 0, [], folder
    for block in blocks(page):
        if block.path:
            (where / block.path).parent.mkdir(parents=True, exist_ok=True)
            (where / block.path).write_text(block.body, encoding="utf-8")
            continue
        printed, where = _run(block.commands(), where, folder.parent)
        printed = [out.replace(str(folder), "/home/me/project") for out in printed]
        for command, out in zip(block.commands(), printed, strict=True):
            if not _matches(command.shown, out):
                wrong.append(f"$ {command.text}\n--- shown\n{command.shown}--- printed\n{out}")
        if os.environ.get("REGOLD") == "1":
            body = "".join(
                f"$ {command.text}\n{command.shown if _matches(command.shown, out) else out}"
                for command, out in zip(block.commands(), printed, strict=True)
            )
            text = text[: block.start + moved] + body + text[block.end + moved :]
            moved += len(body) - (block.end - block.start)
    if os.environ.get("REGOLD") == "1":
        page.write_text(text, encoding="utf-8")
        return []
    return wrong


def _install(place: Path) -> None:
    """Put a program `orch23` of this tree on the PATH that `_run` uses."""
    program = place / "bin" / "orch23"
    program.parent.mkdir(exist_ok=True)
    code = "import sys; sys.argv[0] = 'orch23'; from orch23.entry import run; sys.exit(run())"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -c "{code}" "$@"\n')
    program.chmod(0o755)
    for name in ("python", "python3"):
        (place / "bin" / name).symlink_to(sys.executable)


def _run(commands: tuple[Command, ...], where: Path, place: Path) -> tuple[list[str], Path]:
    """Run commands in one shell. Return what each printed, and the directory in which the last ended."""
    script = "".join(f"{one.text}\nstatus=$?; echo; echo {_MARK}; (exit $status)\n" for one in commands)
    path = f"{place}/bin:{os.environ['PATH']}"
    home = place / "home"
    home.mkdir(exist_ok=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("COV_", "COVERAGE_", "XDG_STATE", "TMPDIR"))
    }
    env = kept | {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}
    env |= {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", "me"), ("EMAIL", "me@example.org"))
    }
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}pwd"],
        cwd=where,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    *printed, last = done.stdout.split(f"\n{_MARK}\n")
    assert len(printed) == len(commands), done.stdout
    return printed, Path(last.strip())


def _matches(shown: str, printed: str) -> bool:
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in _masked(shown).splitlines())
    return re.fullmatch(pattern, _masked(printed)) is not None


def _masked(text: str) -> str:
    """Return a text without what differs between two runs or machines."""
    text = _COMMIT.sub(
        "(COMMIT)", _TIME.sub("TIME ", _TIER.sub("sandbox: any", _RUN.sub("RUN", _DURATION.sub("0s", text))))
    )
    # The size of the index depends on paths and times.
    text = _KILOBYTES.sub("kB", text)
    lines = [_SPACES.sub("  ", line).rstrip() for line in _MACHINE.sub("", text).splitlines()]
    return "".join(f"{line}\n" for line in lines if line and _TIER_WARNING not in line)
