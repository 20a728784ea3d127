"""Builds that die, or are refused something, at a chosen call that changes files; and what must hold after them."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch23.model.llm import Exchange
from orch23.store.exchanges import Exchanges
from orch23.store.safe_files import is_temp
from tests.e2e.pipelines import calls, green, noted
from tests.project import Project

KILLED = -9
_HERE = Path(__file__).parent
_REPOSITORY = str(_HERE.parents[1])


def compile_shim(folder: Path) -> Path | None:
    """Return the compiled shim, or None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    made = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(made), str(_HERE / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    return made


@dataclass(frozen=True, slots=True)
class Death:
    """How one build ended: its exit status, what it printed, and the name of each call that it came to."""

    status: int
    printed: str
    calls: tuple[str, ...]


class Server:
    """A process with the shim preloaded that forks one child a build."""

    def __init__(self, shim: Path, folder: Path) -> None:
        """Start it; `folder` takes its scratch files."""
        self._folder = folder
        environ = {"LD_PRELOAD": str(shim), "PATH": os.environ["PATH"], "PYTHONPATH": _REPOSITORY}
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what a build imports late is no write of its own
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def build(
        self,
        project: Project,
        *argv: str,
        at: int = 0,
        mode: str = "count",
        error: int = 0,
        weaken: str = "",
    ) -> Death:
        """Build in a child that meets `mode` at its call number `at` (from 1)."""
        return self.run(project, "build", "-j1", *argv, at=at, mode=mode, error=error, weaken=weaken)

    def run(
        self,
        project: Project,
        *argv: str,
        at: int = 0,
        mode: str = "count",
        error: int = 0,
        weaken: str = "",
    ) -> Death:
        """Run a command in a child that meets `mode` at its call number `at` (from 1)."""
        labels = self._folder / "labels"
        asked: dict[str, Any] = {"root": str(project.root), "argv": list(argv), "weaken": weaken}
        asked |= {"at": at, "mode": mode, "error": error, "labels": str(labels)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        status, printed = json.loads(self._process.stdout.readline())
        names = tuple(line.split()[1] for line in labels.read_text().splitlines())
        return Death(status, printed, names)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Reference:
    """What a build leaves that no one disturbs, and the calls that it takes."""

    files: dict[str, bytes]
    calls: list[str]
    notes: list[str]
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """A project as it was before the build that dies: put back under the same path each time."""

    project: Project
    kept: Path

    @classmethod
    def of(cls, project: Project) -> "Scene":
        """Keep a project as it is now."""
        kept = project.root.parent / "kept"
        shutil.copytree(project.root, kept, symlinks=True)
        return cls(project, kept)

    def restore(self) -> Project:
        """Put it back; the root itself stays, since it may be a mount point."""
        for inner in self.project.root.iterdir():
            if inner.is_dir() and not inner.is_symlink():
                shutil.rmtree(inner)
            else:
                inner.unlink()
        shutil.copytree(self.kept, self.project.root, symlinks=True, dirs_exist_ok=True)
        for log in ("calls", "notes"):
            Path(f"{self.project.root}-{log}.log").unlink(missing_ok=True)
        return Project(self.project.root)

    def reference(self, server: Server) -> Reference:
        """Return what an undisturbed build leaves."""
        project = self.restore()
        undisturbed = server.build(project)
        assert undisturbed.status == 0, undisturbed.printed
        return Reference(timeless(project.files()), calls(project), noted(project), undisturbed.calls)


def timeless(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the texts of transcripts, which say how long an answer took; their names stay."""
    return {path: b"" if path.startswith("heard/") else data for path, data in files.items() if path != "lost+found"}


def violations(scene: Scene, reference: Reference, *, unsynced: int = 1) -> Iterator[str]:
    """Continue after an interrupted build, and report each promise that does not hold.

    No stage that the journal of the interrupted build reports as done is run again. The files become those of an
    undisturbed build. At most the response that was being written is requested again, and none that is on the disk. At
    most `unsynced` commands are run again. A further build runs nothing. No temporary files are left.
    """
    project = Project(scene.project.root)
    done, kept = _reported_done(scene), _answers_kept(scene)
    try:
        green(project.build("-j1"))
    except AssertionError as broken:
        yield f"the next build is not green: {broken}"
        return
    if timeless(project.files()) != reference.files:
        yield f"other files: {_differing(timeless(project.files()), reference.files)}"
    again = done.intersection(project.ran())
    if again:
        yield f"run again although the journal says that it was done: {sorted(again)}"
    if asked_again(project, reference).total() > 1:
        yield f"asked again: {dict(asked_again(project, reference))}"
    if bought := sorted(kept.intersection(asked_again(project, reference))):
        yield f"asked again although the answer was on the disk: {bought}"
    run_again = Counter(noted(project)) - Counter(reference.notes)
    if run_again.total() > unsynced:
        yield f"run again: {dict(run_again)}"
    green(project.build("-j1"))
    if project.ran():
        yield f"a further build still ran {project.ran()}"
    yield from _litter(project)


def asked_again(project: Project, reference: Reference) -> Counter[str]:
    """Return the calls that were made beyond those of an undisturbed build."""
    return Counter(calls(project)) - Counter(reference.calls)


def _reported_done(scene: Scene) -> set[str]:
    """Return the stages that the dead build's journal says are built: by every line that is whole."""
    before = {path.name for path in (scene.kept / "logs").glob("*.jsonl")}
    journals = [path for path in scene.project.journals() if path.name not in before]
    done = set()
    for line in journals[0].read_bytes().split(b"\n") if journals else ():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["type"] == "stage_finished" and event["data"]["status"] in {"built", "restored", "verified"}:
            done.add(event["role"])
    return done


def _answers_kept(scene: Scene) -> set[str]:
    """Return what was asked by every exchange that the dead build left whole on the disk: the first line of it.

    What had been asked before it is another question, though it may begin with the same line.
    """
    store = Exchanges(scene.project.root / ".orch23/exchanges", scene.project.root)
    before = {path.name for path in (scene.kept / ".orch23/exchanges").glob("*/*.json")}
    paths = (scene.project.root / ".orch23/exchanges").glob("*/*.json")
    found = [store.get(path.stem, None) for path in paths if not is_temp(path.name) and path.name not in before]
    return {_asked(exchange) for exchange in found if exchange is not None}


def _asked(exchange: Exchange) -> str:
    messages = exchange.request["messages"]
    last = messages[-1] if isinstance(messages, list) else None
    return str(last["content"]).partition("\n")[0].strip() if isinstance(last, dict) else ""


def _litter(project: Project) -> Iterator[str]:
    """Name what a build must not leave behind: sandbox directories, temporary files, a redo record."""
    store = project.root / ".orch23"
    rooms = store / "rooms"
    left = [path.name for path in rooms.iterdir()] if rooms.is_dir() else []
    left += [path.name for path in store.glob("promote.json")]
    left += [p.relative_to(project.root).as_posix() for p in project.root.rglob("*") if is_temp(p.name)]
    if left:
        yield f"left lying about: {left}"


def _differing(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    return sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
