"""What every malformed input is held to: one complaint at its place, the right number, and nothing else at all."""

import re
import resource
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.project import Outcome, Project

LIMIT_S = 8  # seconds of the processor, on a busy machine: what has no bound takes minutes, or all of the memory
MORE_BYTES = 1 << 30  # of addresses beyond what this process has already
_ERROR = re.compile(r"^(?:error(?:\[[A-Z]\d{3}\])?: |✘ )", re.MULTILINE)
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One malformed input: the files of a project, what is run, and what is told.

    `before` runs first and must be green; `spoil` then does what files cannot say. `says` are texts on the screen, as
    a rule the place and the code. `errors` is how many there are.
    """

    files: Mapping[str, str | bytes] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    spoil: Callable[[Project], None] | None = None
    argv: tuple[str, ...] = ("validate",)
    code: int = 65
    says: tuple[str, ...] = ()
    problems: int = 1
    may_change: tuple[str, ...] = ()


def hold(project: Project, case: Case) -> Outcome:
    """Run a case and hold it to all that every malformed input is held to."""
    project.write(case.files)
    if case.before:
        green = project.run(*case.before)
        assert green.code == 0, green.err
    if case.spoil is not None:
        case.spoil(project)
    before = snapshot(project.root)
    start = time.process_time()
    with bounded_memory():
        outcome = project.run(*case.argv)
    assert time.process_time() - start < LIMIT_S
    judge(outcome, case)
    after = snapshot(project.root)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {
        path for path in changed if not f"{path}/".startswith(("logs/", ".orch23/", "pipeline.lock/", *case.may_change))
    } == set()
    return outcome


def judge(outcome: Outcome, case: Case) -> None:
    """Hold what was told to what has to be told."""
    screen = outcome.out + outcome.err
    assert outcome.code == case.code, screen
    assert "this is a bug" not in screen, screen
    assert "Traceback (most recent call last)" not in screen, screen
    assert unseen(screen) == [], screen
    missing = [text for text in case.says if text not in screen]
    assert missing == [], screen
    assert len(reported(outcome.err)) == case.problems, screen
    assert all(len(line) < 2_000 for line in screen.splitlines()), "a flood"
    assert len(screen) < 20_000, "a flood"


def reported(text: str) -> list[str]:
    """Return how each error of a screen begins: an error, or a stage that failed."""
    return _ERROR.findall(text)


def unseen(text: str) -> list[str]:
    """Return what of a text would steer a terminal or hide in it, by Unicode's own categories."""
    return [f"U+{ord(c):04X}" for c in text if c not in "\n\t" and unicodedata.category(c) in _UNSEEN]


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return all files of a folder: what kind each is, and its bytes or the target of its link."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.name.endswith(".tmp"):  # of state.json, which a stage's thread may be about to rename
            continue
        kind = path.lstat().st_mode
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[path.relative_to(root).as_posix()] = (kind, data)
    return found


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process take so much more memory and no more: what has no bound fails here, and not the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
