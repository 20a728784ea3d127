"""Play the same random edits on each tool without ever sleeping, and count those that a build does not notice."""

import mmap
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.environments import environment
from bench.graph import BLOCK, make_graph
from bench.measure import Runner
from bench.project import Project
from bench.results import Histories
from bench.tool import FromTree, Installed

SEED = 20
STEPS = 240
FIRST_BUILD_CAP_S = 60.0
LENIENCE = 4
"""orch23 itself is given so many times longer: a history of a few edits would prove nothing."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one file: the kind of it, and a number that it takes its bytes from."""

    kind: str
    path: str
    number: int


def edits(seed: int, sources: Sequence[str], outputs: Sequence[str]) -> Iterator[Edit]:
    """Give the edits of a history, the same for every tool, without end."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    while True:
        kind = chance.choice(KINDS)
        yield Edit(kind, chance.choice(outputs if kind in OF_OUTPUTS else sources), chance.randrange(10))


def play(each: Installed, cache: Path, stopwatch: Runner, patience_s: float, seed: int = SEED) -> Histories:
    """Play a history on one tool, until it is over or has taken too long."""
    name = each.tool.name
    graph = make_graph(BLOCK)
    project = Project(cache / "work" / f"{name.replace(' ', '-')}-history", graph, each.tool.describe)
    project.place_()
    variables = environment(each.tool, each.program, cache)
    if each.tool.prepare:
        stopwatch.run(each.argv(each.tool.prepare), project.root, variables, FIRST_BUILD_CAP_S)
    command = each.argv(each.tool.repair or each.tool.build)
    made: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    missed: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    first = stopwatch.run(command, project.root, variables, FIRST_BUILD_CAP_S)
    if first.late or first.code != 0:
        said = "took too long" if first.late else stopwatch.said()[-200:]
        return Histories(name, seed, dict(made), dict(missed), f"its first build: {said}")
    began = time.monotonic()
    outputs = [stage.output for stage in graph.stages]
    note = ""
    for step, edit in enumerate(edits(seed, sorted(graph.sources), outputs)):
        if step == STEPS or time.monotonic() - began > patience_s:
            break
        try:
            undo = _apply(project, edit)
        except OSError as error:
            note = f"stopped at step {step}: {error.strerror}: {error.filename}"
            break
        made[edit.kind] += 1
        run = stopwatch.run(command, project.root, variables, FIRST_BUILD_CAP_S)
        if run.late or (run.code != 0 and not project.wrong()):
            note = f"stopped at step {step}: {stopwatch.said()[-200:]}"
            break
        if project.wrong():
            missed[edit.kind] += 1
            undo()
            for path in project.wrong():  # built from what it had not noticed
                (project.root / path).unlink(missing_ok=True)
            stopwatch.run(command, project.root, variables, FIRST_BUILD_CAP_S)
        if project.wrong():
            note = f"stopped at step {step}: its outputs stayed wrong after the edit was taken back"
            break
    shutil.rmtree(project.root, ignore_errors=True)
    return Histories(name, seed, dict(made), dict(missed), note)


def play_all(tools: Sequence[Installed], cache: Path, stopwatch: Runner, patience_s: float) -> Iterator[Histories]:
    """Play the same history on every tool."""
    for each in tools:
        lenience = LENIENCE if isinstance(each.tool.source, FromTree) else 1
        played = play(each, cache, stopwatch, patience_s * lenience)
        reported = f"{sum(played.missed.values())} of {sum(played.made.values())} edits missed"
        print(f"histories: {each.tool.name}: {reported} {played.note}".rstrip(), flush=True)
        yield played


# ---- the kinds of edits -------------------------------------------------------------------------------


def _apply(project: Project, edit: Edit) -> Callable[[], None]:
    """Make an edit; return what takes it back, with the file's times as they were."""
    target = project.root / edit.path
    data, was = target.read_bytes(), target.stat()
    text = project.sources.get(edit.path)
    _HOW[edit.kind](target, _other(data, edit.number), was)
    if text is not None:
        project.sources[edit.path] = target.read_text(encoding="utf-8")

    def undo() -> None:
        target.write_bytes(data)
        os.utime(target, ns=(was.st_atime_ns, was.st_mtime_ns))
        if text is not None:
            project.sources[edit.path] = text

    return undo


def _other(data: bytes, number: int) -> bytes:
    """Return other bytes of the same size: the last digit of the first line is another one."""
    end = data.index(b"\n")
    digit = (int(data[end - 1 : end]) + 1 + number % 9) % 10
    return data[: end - 1] + str(digit).encode() + data[end:]


def _rewrite(target: Path, data: bytes, was: os.stat_result) -> None:
    del was
    target.write_bytes(data)


def _put_back(target: Path, data: bytes, was: os.stat_result) -> None:
    target.write_bytes(data)
    os.utime(target, ns=(was.st_atime_ns, was.st_mtime_ns))


def _replace(target: Path, data: bytes, was: os.stat_result) -> None:
    beside = target.with_name(target.name + ".new")
    beside.write_bytes(data)
    os.utime(beside, ns=(was.st_atime_ns, was.st_mtime_ns))
    beside.replace(target)


def _map(target: Path, data: bytes, was: os.stat_result) -> None:
    with target.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:] = data
    os.utime(target, ns=(was.st_atime_ns, was.st_mtime_ns))


def _delete(target: Path, data: bytes, was: os.stat_result) -> None:
    del data, was
    target.unlink()


_HOW: dict[str, Callable[[Path, bytes, os.stat_result], None]] = {
    "same size": _rewrite,
    "same size, time put back": _put_back,
    "renamed into place, time put back": _replace,
    "mapped memory, time put back": _map,
    "output tampered with, time put back": _put_back,
    "output deleted": _delete,
}
KINDS = tuple(_HOW)
OF_OUTPUTS = frozenset({"output tampered with, time put back", "output deleted"})
