"""Whatever tree a step leaves in its room: one clear refusal, nothing promoted, nothing left, nothing followed."""

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orch23.execute.launch import TierChoice
from orch23.execute.sandbox.bubblewrap import BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from tests.project import Project, scripted
from tests.sandbox.probe import launcher
from tests.sandbox.users import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

NONE = TierChoice(None, (("bubblewrap", "it is not installed"),))
TIERS = ("bubblewrap", "namespaces", "landlock", "none")
UNCONNECTED = ("bubblewrap", "namespaces", "none")  # Landlock alone goes without sockets on a path


@dataclass(frozen=True, slots=True)
class Tree:
    """What makes a tree, the code that refuses it (none where it is honest), and how its place is told."""

    script: str
    code: str = ""
    reported: str = ""
    tiers: tuple[str, ...] = TIERS
    exit_code: int = 2


LIMITED = "import resource\nwhile resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY: pass\n"
"""Without a sandbox a step is limited a moment after it has begun; what it writes in that moment is told as E617."""

MANY = "over a hundred thousand files"
"""Takes seconds; what counts and removes the files is the same in each tier, so `make test` plays two of them."""

TREES = {
    "a sparse file of a terabyte": Tree(
        f"{LIMITED}open('x', 'wb').truncate(1 << 40)", "", "File too large", exit_code=1
    ),
    "sparse files of five terabytes together": Tree(
        "for n in range(2000):\n    open(str(n), 'wb').truncate(5 << 29)", "E617", "more than 4294967296 bytes in total"
    ),
    "three thousand levels": Tree(
        "for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('x', 'w').write('x')", "E616", "d/d/d"
    ),
    MANY: Tree(
        "os.mkdir('many')\nos.chdir('many')\nfor n in range(100_001):\n    os.close(os.open(str(n), os.O_CREAT))",
        "E615",
        "many",
    ),
    "twenty thousand links": Tree("for n in range(20_000):\n    os.symlink('/etc', str(n))", "E610", "19990 more"),
    "hard links": Tree("open('x', 'w')\nos.link('x', 'y')", "E612", "2 hard links"),
    "a link out": Tree("os.symlink(OUTSIDE, 'x')", "E610", "is a symbolic link"),
    "a link into the room": Tree("os.symlink('a', 'x')", "E610", "is a symbolic link"),
    "a link in the place of the work directory": Tree(
        "os.rename(os.getcwd(), '../moved')\nos.symlink(OUTSIDE, '../work')",
        "E618",
        "was replaced",
    ),
    "a FIFO": Tree("os.mkfifo('x')", "E611", "is a FIFO"),
    "a socket": Tree("import socket\nsocket.socket(socket.AF_UNIX).bind('x')", "E611", "is a socket", UNCONNECTED),
    "a device": Tree("os.mknod('x', 0o600 | 0o020000, os.makedev(1, 3))", "E611", "is a device", ("none",)),
    "setuid": Tree("open('x', 'w')\nos.chmod('x', 0o4755)", "E613", "setuid", UNCONNECTED),
    "a name that is no UTF-8": Tree("open(b'x\\xff', 'w')", "E614", "is not UTF-8"),
    "a name of 255 bytes": Tree("open('x' * 255, 'w')", "E614", "has more than 200 bytes"),
    "a name of terminal escapes": Tree("open('x\\x1b[2Jy', 'w')", "E614", "control character"),
    "a folder without rights": Tree("os.mkdir('out/d')\nopen('out/d/x', 'w')\nos.chmod('out/d', 0)", exit_code=0),
    "a room without rights": Tree("open('out/x', 'w')\nos.chmod('..', 0)\nos.chmod('.', 0)", exit_code=0),
    "immutable things": Tree(
        "import fcntl, struct\nos.mkdir('d')\nopen('d/x', 'w')\n"
        "for path, flag in (('d/x', 0x10), ('d', 0x20)):\n"
        "    fcntl.ioctl(os.open(path, 0), 0x40086602, struct.pack('l', flag))\n",
        "E306",
        "d/x",
        ("none",),
        exit_code=1,
    ),
}
CASES = [
    pytest.param(
        name,
        tier,
        id=f"{name}-{tier}",
        marks=[pytest.mark.thorough] if name == MANY and tier != "none" else [],
    )
    for name, tree in TREES.items()
    for tier in tree.tiers
]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """Give a folder outside of the project that must stay as it is."""
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o755)
    (folder / "precious").write_text("kept")
    yield folder
    assert [path.name for path in folder.iterdir()] == ["precious"]
    assert (folder / "precious").read_text() == "kept"
    assert folder.stat().st_mode & 0o777 == 0o755


def place_(project: Project, script: str, outside: Path) -> None:
    head = f"import os\nOUTSIDE = {str(outside)!r}\nopen('a', 'w').write('a')\n"
    project.write(scripted({"a": {"outputs": ["a", "out/"], "shell": ["python", "-c", head + script]}}, {}))


def choose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "none":
        monkeypatch.setattr("orch23.cli.build_run._best_tier", lambda: NONE)
        return
    need(name)
    chosen = launcher(name)
    assert isinstance(chosen, BubblewrapLauncher | NamespacesLauncher | LandlockLauncher)
    choice = TierChoice(chosen)
    monkeypatch.setattr("orch23.cli.build_run._best_tier", lambda: choice)


@pytest.mark.stride(17)
@pytest.mark.parametrize(("name", "tier"), CASES)
def test_a_hostile_tree_is_refused_in_a_line_and_removed(
    project: Project, outside: Path, monkeypatch: pytest.MonkeyPatch, name: str, tier: str
) -> None:
    tree = TREES[name]
    if os.getuid() and name in ("a device", "immutable things"):
        pytest.skip("only root makes these")
    choose(tier, monkeypatch)
    place_(project, tree.script, outside)
    began = time.monotonic()
    outcome = project.build("--allow-unsandboxed")
    sys.stdout.write(f"{time.monotonic() - began:.1f} s, exit {outcome.code}\n")
    assert list((project.root / ".orch23/rooms").iterdir()) == []
    assert outcome.code == tree.exit_code, outcome.err
    assert f"[{tree.code}]" in outcome.err or not tree.code
    assert tree.reported in re.sub(r"\s+", " ", outcome.err)
    assert len(outcome.err.splitlines()) < 60
    assert all(c.isprintable() or c == "\n" for c in outcome.err)
    assert project.exists("a") == (outcome.code == 0)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_million_files_are_refused_and_removed(
    project: Project, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user who looks first refuses it: what watches the sandbox directory grow, or what scans it."""
    choose("bubblewrap", monkeypatch)
    script = "os.mkdir('many')\nos.chdir('many')\nfor n in range(1_000_001):\n    os.close(os.open(str(n), os.O_CREAT))"
    place_(project, script, outside)
    outcome = project.build()
    assert outcome.code == 2, outcome.err
    assert "[E615]" in outcome.err or "[E620]" in outcome.err
    assert list((project.root / ".orch23/rooms").iterdir()) == []
