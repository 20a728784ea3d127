"""Which tier is taken: the best that does what it must, by trying it."""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.execute import kinship
from orch23.execute.launch import LaunchRefusedError, PlainLauncher
from orch23.execute.process import run_process
from orch23.execute.rooms import Room
from orch23.execute.sandbox import choice, landlock
from orch23.execute.sandbox.bubblewrap import PROGRAMS, Bubblewrap
from orch23.execute.sandbox.choice import Choice, Sandbox, choose
from orch23.execute.sandbox.restricted import Restricted
from orch23.execute.sandbox.self_test import fault
from tests.sandbox.users import need

LYING = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture(autouse=True)
def _subreaper() -> None:
    kinship.become_subreaper()


def fake(folder: Path, text: str) -> str:
    path = folder / "bwrap"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_bubblewrap_comes_first() -> None:
    need("bubblewrap")
    found = choose()
    assert found.tier == "bubblewrap"
    assert found.why == ""


def test_landlock_comes_second_and_it_is_told_why() -> None:
    need("landlock")
    found = choose(())
    assert (found.tier, found.why) == ("landlock", "bubblewrap: it is not installed")


def test_a_bubblewrap_that_confines_nothing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts what it is told to, and so everything seems to work: what is outside tells."""
    need("landlock")
    monkeypatch.setattr("orch23.execute.sandbox.bubblewrap._GATE_WITHIN_S", 0.5)  # it never says that it has a child
    found = choose([fake(tmp_path, LYING)])
    assert found.tier == "landlock"
    assert "could be" in found.why or "honest" in found.why


def test_a_bubblewrap_that_may_not_is_told_in_its_own_words(tmp_path: Path) -> None:
    need("landlock")
    found = choose([fake(tmp_path, "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")])
    assert "No permissions to create new namespace" in found.why


def test_an_old_bubblewrap_is_taken_without_what_it_does_not_know(tmp_path: Path) -> None:
    need("bubblewrap")
    real = next(name for name in PROGRAMS if Path(name).exists())
    text = f'#!/bin/sh\ncase " $* " in *\' --disable-userns \'*) echo unknown >&2; exit 1;; esac\nexec {real} "$@"\n'
    found = choose([fake(tmp_path, text)])
    assert isinstance(found.launcher, Bubblewrap)
    assert not found.launcher.nested


def test_an_old_landlock_is_none() -> None:
    with patch.object(landlock, "abi", return_value=2):
        found = choose(())
    assert found.launcher is None
    assert "version 2, 3 is needed" in found.why


def test_no_sandbox_at_all_is_found_out() -> None:
    assert fault(PlainLauncher()) == "a file outside of the room could be written"


def test_a_filter_that_is_left_out_is_found_out() -> None:
    """Landlock alone does not keep a step from the network: the self-test sees that, too."""
    need("landlock")
    with (
        patch("orch23.execute.sandbox.seccomp.install"),
        patch("orch23.execute.sandbox.restricted._own_network", return_value=False),
    ):
        assert fault(Restricted()) == "this machine's network could be reached"


def test_it_is_tried_once_and_whoever_asks_meanwhile_waits() -> None:
    asked: list[str] = []

    def slow() -> Choice:
        asked.append("x")
        return Choice(None)

    sandbox = Sandbox(slow)
    sandbox.begin()
    assert [sandbox.tier for _ in range(3)] == ["none"] * 3
    assert asked == ["x"]


ENDS_EARLIER = """
import atexit, threading, time
from orch23.cli.ending import end
from orch23.execute.sandbox.choice import Choice, Sandbox

ending = threading.Event()

def slow():
    ending.wait()
    time.sleep(0.2)
    print("tried", flush=True)
    return Choice(None)

Sandbox(slow).begin()
atexit.register(ending.set)
end(0)
"""


def test_a_process_that_ends_earlier_leaves_no_test_half_done() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS_EARLIER], capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"tried\n", b"")


def test_nothing_is_started_without_a_tier_unless_it_is_allowed(tmp_path: Path) -> None:
    room = Room(tmp_path, "m")
    with pytest.raises(LaunchRefusedError) as refused:
        Sandbox(lambda: Choice(None, (("a", "b"),))).prepare(None)  # type: ignore[arg-type]  # never looked at
    assert refused.value.diagnostic.code == "E483"
    assert Sandbox(lambda: Choice(None), allowed=True).seen(room) == room


def test_one_process_tries_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def chosen() -> Choice:
        calls.append(1)
        return Choice(None)

    monkeypatch.setattr(choice, "_CHOSEN", [])
    monkeypatch.setattr(choice, "choose", chosen)
    assert choice.choose_once() is choice.choose_once()
    assert calls == [1]


def confinement() -> set[str]:
    """Return what the kernel says of the threads of this process, each time once; threads of other tests may end."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = (task / "status").read_text().splitlines()
            found |= {line for line in lines if line.startswith(("Seccomp", "NoNewPrivs", "Cap"))}
    return found


def test_only_what_a_thread_starts_is_confined_never_this_process(tmp_path: Path) -> None:
    """The claim on which tier B rests: a thread gives up its own rights, and no other thread's."""
    need("landlock")
    before = confinement()  # of a container, or of a user's own
    assert fault(Restricted()) is None
    assert confinement() == before
    (tmp_path / "still").write_text("writable")


def test_what_goes_wrong_in_the_thread_is_told_and_starts_nothing(tmp_path: Path) -> None:
    def confine() -> None:
        raise OSError(1, "no")

    with pytest.raises(OSError, match="no"):
        run_process(
            ["touch", "ran"],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin"},
            timeout_s=5,
            cancel=threading.Event(),
            log=tmp_path / "log",
            confine=confine,
        )
    assert not (tmp_path / "ran").exists()
