"""Which tier is taken: the best that does what it must, by trying it."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.execute import process_tree, supervisor
from orch23.execute.launch import Launch, LaunchRefusedError, PlainLauncher, SandboxLauncher, TierChoice
from orch23.execute.process import run_process
from orch23.execute.sandbox import bubblewrap, landlock, tier_selection
from orch23.execute.sandbox.landlock import LandlockLauncher, confinement
from orch23.execute.sandbox.tier_selection import best_tier, tier_fault
from orch23.execute.supervisor import ProcessSpec
from orch23.execute.supervisor_child import IsolationError
from tests.sandbox.probe import launcher
from tests.sandbox.users import ROOT, need

pytestmark = pytest.mark.slow  # sandboxes are tried

REASON = "namespaces: clone: Operation not permitted"
LYING = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture(autouse=True)
def _subreaper() -> None:
    process_tree.become_subreaper()


def environment() -> dict[str, str]:
    return {"PATH": os.defpath, "PYTHONPATH": str(ROOT)}


def fake(folder: Path, text: str) -> str:
    path = folder / "bwrap"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def without_namespaces(*programs: str) -> TierChoice:
    """Choose where orch23's own program isolates nothing, and these are the paths of bubblewrap."""
    with (
        patch.object(bubblewrap, "NamespacesLauncher", PlainLauncher),
        patch.object(bubblewrap, "BWRAP_PATHS", programs),
    ):
        return best_tier()


def test_namespaces_come_first() -> None:
    need("namespaces")
    found = best_tier()
    assert (found.tier, found.why) == ("namespaces", "")


def test_bubblewrap_comes_second_and_the_choice_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap")

    def fail(*_: object) -> int:
        raise IsolationError(REASON)

    monkeypatch.setattr("orch23.execute.supervisor.Supervisor.start", fail)
    found = best_tier()
    assert (found.tier, found.why) == ("bubblewrap", f"user namespaces: the sandbox could not be made: {REASON}")


def test_landlock_comes_third() -> None:
    need("landlock")
    found = without_namespaces()
    assert (found.tier, found.failed[1:]) == ("landlock", (("bubblewrap", "it is not installed"),))


def test_landlock_is_taken_where_user_namespaces_are_forbidden() -> None:
    need("landlock")
    script = (
        "from orch23.execute.sandbox.tier_selection import best_tier; found = best_tier(); print(found.tier, found.why)"
    )
    command = [sys.executable, "-m", "tests.sandbox.lesser", "namespaces", str(os.getuid())]
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        cwd=ROOT,
    )
    assert done.stdout.startswith("landlock ")
    assert "user namespaces: the sandbox could not be made: namespaces: clone: Operation not permitted" in done.stdout


def test_a_bubblewrap_that_confines_nothing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts what it is told to, and so everything seems to work: what is outside tells."""
    need("landlock")
    monkeypatch.setattr("orch23.execute.sandbox.bubblewrap._START_WITHIN_S", 0.5)  # it never says that it has a child
    found = without_namespaces(fake(tmp_path, LYING))
    assert found.tier == "landlock"
    assert "could be" in found.why or "a test program exited" in found.why


def test_a_bubblewrap_that_fails_is_reported_with_its_message(tmp_path: Path) -> None:
    need("landlock")
    script = "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    found = without_namespaces(fake(tmp_path, script))
    assert "No permissions to create new namespace" in found.why


def test_a_program_with_two_paths_is_tried_and_reported_once(tmp_path: Path) -> None:
    """On most distributions `/bin` is a link, and so one bwrap has two of the paths."""
    need("landlock")
    script = f"#!/bin/sh\necho x >> {tmp_path}/starts\necho 'bwrap: No permissions' >&2\nexit 1\n"
    real = fake(tmp_path, script)
    (tmp_path / "bin").symlink_to(tmp_path)
    (tmp_path / "other").mkdir()
    other = fake(tmp_path / "other", script)
    found = without_namespaces(real, other, str(tmp_path / "bin/bwrap"))
    assert [name for name, _ in found.failed] == ["user namespaces", real, other]
    assert (tmp_path / "starts").read_text().split() == ["x", "x"]


def test_an_old_bubblewrap_is_reported_with_what_it_does_not_know(tmp_path: Path) -> None:
    need("landlock")
    text = (
        '#!/bin/sh\ncase " $* " in *" --disable-userns "*) echo "Unknown option --disable-userns" >&2; exit 1;; esac\n'
    )
    found = without_namespaces(fake(tmp_path, text))
    assert found.tier == "landlock"
    assert found.failed[1][1].endswith("Unknown option --disable-userns")


def test_an_old_landlock_is_none() -> None:
    with patch.object(landlock, "abi", return_value=2):
        found = without_namespaces()
    assert found.launcher is None
    assert "version 2, and 3 is needed" in found.why


def test_no_sandbox_at_all_is_found_out() -> None:
    assert tier_fault(PlainLauncher()) == "a file outside of the sandbox directory could be written"


def test_a_filter_that_is_left_out_is_found_out() -> None:
    """Landlock alone does not keep a step from the network: the self-test sees that, too."""
    need("landlock")
    supervisor.close_idle_supervisors()
    weak = "from orch23.execute.sandbox import landlock_child as c; "
    weak += "c.install_filter = lambda _: c.supervisor_child.libc.prctl(38, 1, 0, 0, 0); "  # no_new_privs, for Landlock
    weak += "c._own_network = lambda: False; "
    with patch.object(supervisor, "_MAIN", supervisor._MAIN.replace("from", f"{weak}from", 1)):
        assert tier_fault(LandlockLauncher()) == "the network of this machine could be reached"
    supervisor.close_idle_supervisors()


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
def test_a_tree_that_can_be_written_though_it_is_read_only_is_found_out(tier: str) -> None:
    need(tier)
    confined = launcher(tier)

    class Forgetful:
        tier = confined.tier

        def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
            return confined.prepare(replace(launch, writable=None))

    assert tier_fault(confined) is None
    assert tier_fault(Forgetful()) == "a read-only tree could be written"


def test_the_self_test_runs_once_and_other_callers_wait() -> None:
    asked: list[str] = []

    def slow() -> TierChoice:
        asked.append("x")
        return TierChoice(None)

    sandbox = SandboxLauncher(slow)
    sandbox.choose_in_background()
    assert [sandbox.tier for _ in range(3)] == ["none"] * 3
    assert asked == ["x"]


ENDS_EARLIER = """
import atexit, threading, time
from orch23.entry import exit_process
from orch23.execute.launch import SandboxLauncher, TierChoice

ending = threading.Event()

def slow():
    ending.wait()
    time.sleep(0.2)
    print("tried", flush=True)
    return TierChoice(None)

SandboxLauncher(slow).choose_in_background()
atexit.register(ending.set)
exit_process(0)
"""


def test_a_process_that_ends_earlier_leaves_no_test_half_done() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS_EARLIER], capture_output=True, check=True)
    assert (ended.stdout, ended.stderr) == (b"tried\n", b"")


def test_nothing_is_started_without_a_tier_unless_it_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(LaunchRefusedError) as refused:
        SandboxLauncher(lambda: TierChoice(None, (("a", "b"),))).prepare(None)  # type: ignore[arg-type]  # never looked at
    assert refused.value.diagnostic.code == "E483"
    with SandboxLauncher(lambda: TierChoice(None), allowed=True).prepare(None) as launch:  # type: ignore[arg-type]  # likewise
        assert launch is None


def test_one_process_tries_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def chosen() -> TierChoice:
        calls.append(1)
        return TierChoice(None)

    monkeypatch.setattr(tier_selection, "_CHOSEN", [])
    monkeypatch.setattr(tier_selection, "best_tier", chosen)
    assert tier_selection.best_tier_once() is tier_selection.best_tier_once()
    assert calls == [1]


def test_a_process_that_cannot_be_confined_is_reported_and_not_started(tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as no_ruleset:
        process = ProcessSpec(
            argv=("touch", "ran"),
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin"},
            confinement=confinement(no_ruleset.fileno(), network=False),
        )
        with pytest.raises(OSError, match="descriptor in bad state"):
            run_process(process, timeout_s=5, cancel=threading.Event(), log=tmp_path / "log")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EMFILE, errno.ENOSPC])
def test_what_the_machine_refuses_says_nothing_of_a_tier(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("orch23.execute.sandbox.tier_selection.temporary_folder", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        best_tier()


def test_a_choice_ahead_that_fails_is_reported_to_who_asks(capfd: pytest.CaptureFixture[str]) -> None:
    def refuse() -> TierChoice:
        raise OSError(errno.EROFS, "read-only")

    sandbox = SandboxLauncher(refuse)
    before = set(threading.enumerate())
    sandbox.choose_in_background()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    with pytest.raises(OSError, match="read-only"):
        _ = sandbox.choice
    assert "Traceback" not in capfd.readouterr().err
