"""Build tools that run in this process: one that goes by contents, one by times, and what they do wrong on request."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

from bench.measure import Run
from bench.tool import FromPath, Installed, Tool

State = tuple[bytes | int | None, ...]


def tool(name: str, *, plan: bool = False) -> Installed:
    """Make a tool of a double: its first word is its name."""
    made = Tool(
        name=name,
        program=name,
        source=FromPath("a double"),
        describe=lambda graph: {"described": "".join(f"{one.output} {' '.join(one.inputs)}\n" for one in graph.stages)},
        build=("{program}", "-j{jobs}"),
        plan=("{program}", "plan") if plan else None,
    )
    return Installed(made, Path(name), "1")


class Everything(dict[tuple[Path, str], tuple[State, ...]]):
    """What a tool knows that takes every output for built."""

    def get(self, key: tuple[Path, str], default: Any = None) -> Any:
        """Return something that equals whatever it is compared with."""
        del key, default
        return ANY


class Builders:
    """A stopwatch that builds by itself, for each tool as its way of looking at files says."""

    def __init__(
        self,
        looks: Mapping[str, Callable[[Path], State]],
        *,
        late: Sequence[str] = (),
        plan_code: int = 0,
        keeps: bool = False,
    ) -> None:
        self.keeps = keeps
        self.texts: dict[Path, str] = {}
        self.plan_code = plan_code
        self.looks = looks
        self.late = late
        self.calls: list[tuple[str, ...]] = []
        self.known: dict[tuple[Path, str], tuple[State, ...]] = {}

    def run(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> Run:
        """Build what has changed in the eyes of the tool."""
        del environment, limit_s
        self.calls.append(tuple(argv))
        if argv[0] in self.late:
            return Run(150.0, 1.0, 1 << 20, -15, late=True)
        if argv[1] == "plan":
            return Run(0.01, 0.01, 1 << 20, self.plan_code, late=False)
        text = (folder / "described").read_text(encoding="utf-8")
        for line in self.texts.setdefault(folder, text).splitlines() if self.keeps else text.splitlines():
            output, *inputs = line.split()
            self._bring_up_to_date(folder, inputs, output, self.looks[argv[0]])
        return Run(0.01, 0.01, 1 << 20, 0, late=False)

    def said(self) -> str:
        """Say nothing."""
        return ""

    def _bring_up_to_date(
        self, folder: Path, inputs: Sequence[str], output: str, look: Callable[[Path], State]
    ) -> None:
        files = [folder / path for path in (*inputs, output)]
        if self.known.get((folder, output)) == tuple(look(file) for file in files):
            return
        lines = {line for file in files[:-1] for line in file.read_text().splitlines()}
        files[-1].write_text("".join(f"{line}\n" for line in sorted(lines)))
        self.known[folder, output] = tuple(look(file) for file in files)


def by_contents(file: Path) -> State:
    """Look at the bytes."""
    return (file.read_bytes() if file.exists() else None,)


def by_time_and_size(file: Path) -> State:
    """Look at what an edit can put back."""
    status = file.stat() if file.exists() else None
    return (None,) if status is None else (status.st_mtime_ns, status.st_size)
