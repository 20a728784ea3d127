"""What a step of 0.1 s costs with a folder of inputs that did not change, by tier and attempt, beside `cp -r`.

`python -m bench.many_inputs [FILES [ROUNDS]]` prints it. Each kind has its own copy of the project.
"""

import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.course import SETTLED_S
from bench.environments import cache_folder, environment, install
from bench.figures import mebibytes, milliseconds
from bench.measure import Run, Runner, Stopwatch
from bench.results import FAILED, RIGHT, Measurement, measurement
from bench.tool import Installed
from bench.tools import floor
from bench.tools.orch23 import FILE, TRUSTED

SIZES = (1_000, 20_000, 100_000)
TIERS = OFF, LANDLOCK, NAMESPACES = "no sandbox", "tier B", "tier A"
COPY = "cp -r"
CASES = FIRST, EDITED, FAILING, TWICE = (
    *("first build, many inputs", "one other line edited, many inputs"),
    *("an attempt that fails, many inputs", "two attempts that fail, many inputs"),
)
_FOLDER, _PER_FOLDER, _LIMIT_S = "node_modules", 50, 1_800.0
_STEP = "sleep 0.1; cat src/a > o"
# A machine with Landlock alone: without bubblewrap, and without new namespaces of users.
_HIDE = """\
for one in /usr/bin/bwrap /usr/local/bin/bwrap /bin/bwrap; do [ ! -e $one ] || mount --bind /dev/null $one; done
echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to run the step: the command of each case, and the program with its variables."""

    name: str
    tool: Installed
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    sandbox: str = "on"

    def argv(self, case: str) -> tuple[str, ...] | None:
        """Return the command of a case, if it has one."""
        if self.name == COPY:
            return ("/bin/cp", "-r", _FOLDER, "copy") if case == EDITED else None
        if not self.tool.tool.is_orch23 and case in {FAILING, TWICE}:
            return None
        return (*self.before, *self.tool.argv(self.tool.tool.build), *self.after)

    def prepare(self, root: Path, case: str, number: int) -> None:
        """Edit the other input, and describe the stage of a case."""
        (root / "src/a").write_text(f"{case} {number}\n", encoding="utf-8")
        shutil.rmtree(root / "copy", ignore_errors=True)
        more = "; false" if case in {FAILING, TWICE} else ""
        stage = f'inputs: ["src/**", {_FOLDER}/], outputs: [o], retry: {int(case == TWICE)}, shell: "{_STEP}{more}"'
        text = f"version: 1\nname: many\nstages:\n  a: {{sandbox: {self.sandbox}, {stage}}}\n"
        for name, wanted in ((FILE, text), (floor.TEXT, f"{_STEP}\to\tsrc/a\t{_FOLDER}/\n")):
            if not (root / name).exists() or (root / name).read_text(encoding="utf-8") != wanted:
                (root / name).write_text(wanted, encoding="utf-8")


def kinds(ours: Installed, beside: Installed | None) -> Iterator[Kind]:
    """Give the tiers of orch23, those of the floor, and the copy."""
    hidden = (shutil.which("unshare") or "unshare", "-Urm", "sh", "-c", _HIDE, "sh")
    yield Kind(f"orch23, {OFF}", ours, sandbox="off")
    yield Kind(f"orch23, {LANDLOCK}", ours, before=hidden)
    yield Kind(f"orch23, {NAMESPACES}", ours, sandbox="namespaces")
    if beside is not None:
        yield Kind(f"floor, {OFF}", beside)
        yield Kind(f"floor, {NAMESPACES}", beside, after=("--namespaces",))
    yield Kind(COPY, ours)


@dataclass(frozen=True, slots=True)
class ManyInputs:
    """Measures the cases of all kinds in turns."""

    kinds: tuple[Kind, ...]
    cache: Path
    stopwatch: Runner
    say: Callable[[str], None]

    def at(self, size: int, rounds: int) -> list[Measurement]:
        """Measure with a folder of this many files."""
        roots = {kind.name: self.cache / "work" / f"many-{place}" for place, kind in enumerate(self.kinds)}
        runs: dict[tuple[str, str], list[Run]] = {}
        faults: dict[tuple[str, str], str] = {}
        for kind in self.kinds:
            _write(roots[kind.name], size)
        for case in CASES:
            self.say(f"  {size:,} input files: {case}")
            for number in range(1 if case == FIRST else rounds):
                for kind in random.sample(self.kinds, len(self.kinds)):
                    if kind.argv(case) is not None and (kind.name, FIRST) not in faults:
                        run = self._run(kind, roots[kind.name], case, number)
                        runs.setdefault((kind.name, case), []).append(run)
                        if (run.code != 0) is not (case in {FAILING, TWICE}):
                            faults[kind.name, case] = f"exit status {run.code}: {self.stopwatch.said()[-200:]}"
            if case == FIRST:
                time.sleep(SETTLED_S)
        for root in roots.values():
            shutil.rmtree(root, ignore_errors=True)
        return [
            measurement(
                tool=name,
                size=size,
                scenario=case,
                runs=() if (name, case) in faults else found,
                outcome=FAILED if (name, case) in faults else RIGHT,
                note=faults.get((name, case), ""),
            )
            for (name, case), found in runs.items()
        ]

    def _run(self, kind: Kind, root: Path, case: str, number: int) -> Run:
        argv = kind.argv(case)
        assert argv is not None
        variables = environment(kind.tool.tool, kind.tool.program, self.cache)
        kind.prepare(root, case, number)
        return self.stopwatch.run(argv, root, variables, _LIMIT_S)


def _write(root: Path, size: int) -> None:
    shutil.rmtree(root, ignore_errors=True)
    (root / "src").mkdir(parents=True)
    for number in range(size):
        folder = root / _FOLDER / f"p{number // _PER_FOLDER}" / "lib"
        if number % _PER_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"f{number}.js").write_text(f"module.exports = {number};\n" * 12, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Measure, and print."""
    size, rounds = (*map(int, arguments), *(20_000, 3)[len(arguments) :])
    cache = cache_folder()
    ours, beside = install(TRUSTED, cache), install(floor.FLOOR, cache)
    assert isinstance(ours, Installed)
    assert isinstance(beside, Installed)
    with Stopwatch(cache / "output") as stopwatch:
        measure = ManyInputs(tuple(kinds(ours, beside)), cache, stopwatch, lambda text: print(text, file=sys.stderr))
        for one in measure.at(size, rounds):
            took = (
                f"{milliseconds(one.cpu.middle):>9} ms CPU {milliseconds(one.wall.middle):>9} ms wall"
                if one.wall_s
                else one.note
            )
            print(
                f"{one.scenario:<36} {one.tool:<22} {took}" + (f" {mebibytes(one.memory):>5} MiB" if one.wall_s else "")
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
