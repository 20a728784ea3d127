"""What the bench knows of a build tool: how it gets the graph, and how it is called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from bench.graph import Graph


@dataclass(frozen=True, slots=True)
class FromTree:
    """orch23 itself, built from this tree, or from one of its commits."""

    commit: str = ""


@dataclass(frozen=True, slots=True)
class FromPypi:
    """A package that pip installs into an environment of its own."""

    requirement: str


@dataclass(frozen=True, slots=True)
class FromNpm:
    """A package that npm installs into a folder of its own."""

    requirement: str


@dataclass(frozen=True, slots=True)
class FromPath:
    """A program that is looked for on PATH, and how to get it."""

    hint: str


Source: TypeAlias = FromTree | FromPypi | FromNpm | FromPath


@dataclass(frozen=True, slots=True)
class Tool:
    """A build tool. `{program}` in its commands is where it is installed, `{jobs}` how many stages may run at once.

    `says_ran` is the pattern of the number of stages that ran, in what the tool prints; without it, outputs that were
    written again are counted. `only` names the scenarios that it takes part in; none means all. `repair` is how it is
    called to put an output right that somebody edited. With `cat`, it can be given the graph of `cat` too.
    """

    name: str
    program: str
    source: Source
    describe: Callable[[Graph], Mapping[str, str]]
    build: tuple[str, ...]
    plan: tuple[str, ...] | None = None
    prepare: tuple[str, ...] | None = None
    repair: tuple[str, ...] | None = None
    version: tuple[str, ...] = ("{program}", "--version")
    help: tuple[str, ...] = ("{program}", "--help")
    environment: Mapping[str, str] = field(default_factory=dict)
    serial: bool = False
    says_ran: str = ""
    remark: str = ""
    only: tuple[str, ...] = ()
    cat: bool = False

    @property
    def is_orch23(self) -> bool:
        """Return whether this is orch23: the floor is installed beside it."""
        return self.program == "orch23"


@dataclass(frozen=True, slots=True)
class Installed:
    """A tool that is there."""

    tool: Tool
    program: Path
    version: str

    def argv(self, command: tuple[str, ...], jobs: int = 1) -> tuple[str, ...]:
        """Return a command of the tool as it is to be run."""
        return tuple(word.replace("{program}", str(self.program)).replace("{jobs}", str(jobs)) for word in command)


@dataclass(frozen=True, slots=True)
class Missing:
    """A tool that could not be installed, and why."""

    tool: Tool
    reason: str
