"""Run orch23 in this process, and edit the project at a chosen moment of the run."""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orch23.cli.idle_snapshot import IdleSnapshotWriter
from orch23.cli.partial_build import partial_build
from orch23.decide.dry_run import replan
from orch23.entry import main
from orch23.load.pipeline import load_pipeline
from orch23.model.digest import FileEntry
from orch23.model.errors import ExitCode
from orch23.model.event import Event
from orch23.report.formats import Fanout
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.listing import DeclaredOutputs
from orch23.store.safe_files import open_file
from orch23.store.workspace import Workspace
from tests.project import Outcome, _stream, _text

RACY_NS = 20_000_000
"""How old a file must be in these tests to be believed; longer than a tick of any kernel's clock."""

Edit = Callable[[], object]


class Moments:
    """The moments of one run, counted by kind; at some of them the project is edited.

    The kinds are `event` and each type of event, `look` (before each look at a file or folder), `read` (before the
    pipeline and the file of vars are opened), `loaded`, `compared` (after the comparison with a snapshot), `part`
    (after the stages that an edit reaches were found), `end` (before the end of a build is recorded), `replan`
    (after everything was decided again there).
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._edits: dict[tuple[str, int], Edit] = {}
        self._lock = threading.RLock()

    def at(self, kind: str, edit: Edit, number: int = 1) -> None:
        """Edit at the nth moment of a kind in the next run, counted from 1."""
        self._edits[kind, number] = edit

    def begin(self) -> None:
        """Start counting again."""
        self.counts.clear()

    def forget(self) -> bool:
        """Drop the edits whose moment did not come; return whether there were any."""
        left = bool(self._edits)
        self._edits.clear()
        return left

    def reached(self, *kinds: str) -> None:
        """Count a moment, and edit if an edit waits for it."""
        with self._lock:
            for kind in kinds:
                self.counts[kind] += 1
                edit = self._edits.pop((kind, self.counts[kind]), None)
                if edit is not None:
                    edit()


def run(moments: Moments, *argv: str) -> Outcome:
    """Run the program in the working directory, as its command line does, with its snapshots."""
    moments.begin()
    out, err = _stream(), _stream()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*argv])
    outcome = Outcome(int(code), _text(out), _text(err))
    assert "Traceback" not in outcome.err, outcome.err
    return outcome


def age(folder: str = ".") -> None:
    """Wait until no file of the project is young any more: the clock of the file system decides, not a guess."""
    with tempfile.NamedTemporaryFile(dir=Path(folder).resolve().parent) as probe:
        now = os.fstat(probe.fileno()).st_ctime_ns
    while (left_ns := now + RACY_NS + 2_000_000 - time.time_ns()) >= 0:
        time.sleep((left_ns + 1) / 1e9)


@contextlib.contextmanager
def noticed(fewest: int = 0) -> Iterator[Moments]:
    """Give the moments of runs. Partial builds are tried from more than `fewest` stages on."""
    moments = Moments()

    class Watched(Workspace):
        def entry(self, path: str) -> FileEntry | None:
            moments.reached("look")
            return super().entry(path)

        def open(self, path: str) -> int | None:
            moments.reached("look")
            return super().open(path)

        def listing(
            self, pattern: str, outputs: DeclaredOutputs | None = None, exclude: tuple[str, ...] = ()
        ) -> tuple[str, ...]:
            moments.reached("look")
            return super().listing(pattern, outputs, exclude)

    class Reported(Fanout):
        def notice(self, event: Event) -> None:
            moments.reached("event", event.type)
            super().notice(event)

    def after(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            moments.reached(kind)
            return result

        return called

    def before(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            moments.reached(kind)
            return function(*args, **named)

        return called

    changed: Mapping[str, Any] = {
        "orch23.snapshot.signatures.RACY_NS": RACY_NS,
        "orch23.engine.idle_build.FEWEST": fewest,
        "orch23.store.project_store.Workspace": Watched,
        "orch23.cli.build_run.Fanout": Reported,
        "orch23.load.pipeline.load_pipeline": after("loaded", load_pipeline),
        "orch23.load.pipeline.open_file": before("read", open_file),
        "orch23.snapshot.stat_snapshot.StatSnapshot.compare": after("compared", StatSnapshot.compare),
        "orch23.cli.project_loading.partial_build": after("part", partial_build),
        "orch23.cli.idle_snapshot.IdleSnapshotWriter.end": before("end", IdleSnapshotWriter.end),
        "orch23.engine.idle_build.replan": after("replan", replan),
    }
    with contextlib.ExitStack() as patches:
        for name, value in changed.items():
            patches.enter_context(patch(name, value))
        yield moments


# ---- the oracle -------------------------------------------------------------------------------------

UP_TO_DATE = "up to date"
MOST_BUILDS = 8
NOT_SOURCES = (".orch23", "logs", "out", "pipeline.lock")


def says_up_to_date(moments: Moments, *argv: str) -> bool:
    """Return whether build, plan and status report that there is nothing to do; they have to agree."""
    said = [run(moments, command, *argv) for command in ("status", "plan", "build")]
    assert [one.code for one in said] == [0, 0, 0], said
    words = [UP_TO_DATE in one.out + one.err for one in said]
    assert len(set(words)) == 1, f"status, plan and build disagree: {said}"
    return words[0]


def settle(moments: Moments, *argv: str) -> Outcome:
    """Build until a build has nothing to do or fails, and return its outcome."""
    said: list[str] = []
    for _ in range(MOST_BUILDS):
        outcome = run(moments, "build", *argv)
        if outcome.code == ExitCode.DECISION:  # an output was edited by hand; a fresh build knows nothing of that
            outcome = run(moments, "build", *argv, "--overwrite-edited")
            if outcome.code == 0:
                age()
                continue
        if outcome.code != 0 or UP_TO_DATE in outcome.err:
            return outcome
        said.append(outcome.err)
        age()
    message = f"{MOST_BUILDS} builds, and each finds something to do: {said}"
    raise AssertionError(message)


def outputs(folder: Path) -> dict[str, bytes]:
    """Return the files in `out` of a project."""
    found = (path for path in sorted((folder / "out").rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def fresh_build(moments: Moments, *argv: str) -> tuple[Outcome, dict[str, bytes]]:
    """Build a copy of the sources alone, with no store, lock file or output, and return its outcome and outputs.

    The same sources are built once in this process.
    """
    key = (argv, tuple(_sources()))
    if key not in _FRESH:
        with tempfile.TemporaryDirectory(dir=Path.cwd().parent) as name:
            folder = Path(name, "project")
            shutil.copytree(".", folder, symlinks=True, ignore=_without_results)
            with contextlib.chdir(folder):
                _FRESH[key] = run(moments, "build", *argv), outputs(folder)
    return _FRESH[key]


_FRESH: dict[tuple[object, ...], tuple[Outcome, dict[str, bytes]]] = {}


def _sources() -> Iterator[tuple[str, str | bytes]]:
    for folder, folders, files in os.walk("."):
        if folder == ".":
            folders[:] = [name for name in folders if name not in NOT_SOURCES]
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            if path.is_symlink():
                yield f"{path}@", os.readlink(path)
            elif path.is_file() and str(path) not in NOT_SOURCES:
                yield f"{path}{'*' if os.access(path, os.X_OK) else ''}", path.read_bytes()


def _without_results(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name in NOT_SOURCES] if folder == "." else []


def check_nothing_is_missed(moments: Moments, *argv: str) -> None:
    """Build until nothing is to be done; the outputs are those of a fresh build of the sources, and so is the code."""
    moments.forget()
    age()
    done = settle(moments, *argv)
    fresh, wanted = fresh_build(moments, *argv)
    agree = done.code == fresh.code or 0 not in (done.code, fresh.code)  # of two errors the one that is found first
    assert agree, f"{done}\nin a fresh build: {fresh}"
    if done.code == 0:
        found = outputs(Path())
        assert {path: found.get(path) for path in wanted} == wanted
        assert says_up_to_date(moments, *argv)
