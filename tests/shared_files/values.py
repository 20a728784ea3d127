"""What the rules of ADR 19 speak of: stages as declared, results as made, what a lock file and a store know."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from tests.repository import DELETED, addition

Files = dict[str, str]
Bases = tuple[tuple[str, str | None], ...]

GREEN = frozenset({"fresh", "restored", "verified", "built", "skipped", "done"})


class UnsureError(Exception):
    """The rules do not say what follows, or this model does not know them well enough; the invariants still hold."""


def passes(files: Mapping[str, str]) -> bool:
    """Return whether the verification of an llm stage passes."""
    return not any("bad" in text for text in files.values())


# ---- what is declared ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A stage or an item of today's pipeline file."""

    name: str
    family: str
    kind: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    item: str = ""
    keep: bool = False
    together: bool = False
    chain: bool = False
    command: str = ""
    edits: bool = False
    once: bool = False
    rerun: bool = False
    formats: bool = False

    def covers(self, path: str) -> bool:
        """Return whether a path is one of the stage's outputs, or in one of its folders."""
        return any(path == out or (out.endswith("/") and path.startswith(out)) for out in self.outputs)

    @property
    def literal_outputs(self) -> tuple[str, ...]:
        """Return the outputs that are files."""
        return tuple(out for out in self.outputs if not out.endswith("/"))


def stages_of(text: str) -> tuple[list[Stage], list[Stage]]:
    """Return the stages that a pipeline file declares, and those that it switches off; items are in their order."""
    declared: list[Stage] = []
    skipped: list[Stage] = []
    for name, body in json.loads(text)["stages"].items():
        kind = next(kind for kind in ("llm", "shell", "render") if kind in body)
        foreach, edits = body.get("foreach"), body.get("edits", ())
        stage = Stage(
            name=name,
            family=name,
            kind=kind,
            outputs=(*body.get("outputs", ()), *(pattern.partition("*")[0] for pattern in edits)),
            edits=bool(edits),
            once="once" in body,
            rerun="on_edit" in body,
            formats="format" in body,
            inputs=tuple(body.get("inputs", ())),
            keep=body.get("on_failure") == "keep",
            command=str(body.get("shell") or body.get("render") or "") + str(body.get("salt", "")),
        )
        found = [stage]
        if foreach is not None:
            found = [
                replace(
                    stage,
                    name=f"{name}@{item['id']}",
                    outputs=(item["files"][0],),
                    item=json.dumps(item, sort_keys=True),
                    together=foreach.get("promote") == "together",
                    chain=foreach.get("order") == "sequential",
                )
                for item in foreach["in"]
            ]
        (skipped if body.get("if") is False else declared).extend(found)
    return declared, skipped


# ---- what was made ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A result: what it was made from (`core`, without the base), the bases, the outputs.

    `start` is what the run started from at each path; `accepted` are outputs that a user wrote.
    """

    stage: str
    core: tuple[Any, ...]
    start: Bases
    outputs: Mapping[str, str]
    originals: Mapping[str, str | None]
    accepted: frozenset[str] = frozenset()
    failed: bool = False
    deleted: frozenset[str] = frozenset()
    instead: Bases = ()
    """What the run would have started from, had no base moved."""
    pipeline: str = field(default="", compare=False)
    """The pipeline that made it, of a result in a store."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what the result is found by."""
        return (self.core, self.start)

    @property
    def edits(self) -> bool:
        """Return whether a stage with `edits` made it."""
        return bool({"work/", "tidy/", "work/near/"}.intersection(self.core[1]))

    @property
    def written(self) -> set[str]:
        """Return the paths that it has a file at, or deleted one."""
        return {*self.outputs, *self.deleted}

    def is_on(self, disk: Mapping[str, str]) -> bool:
        """Return whether all its outputs are on disk."""
        return all(disk.get(path) == text for path, text in self.outputs.items())

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return what tells a stage from others, whatever it is called and reads."""
        return (self.core[0], self.core[1])


@dataclass(frozen=True)
class Lock:
    """What a lock file knows: results by stage, and what a reset retained of them."""

    results: Mapping[str, Made] = field(default_factory=dict)
    retained: Mapping[str, Made] = field(default_factory=dict)
    others: tuple[Made, ...] = ()
    """What else is known of the same stages: from the other side of a merge, or from commits."""

    def of(self, name: str) -> Made | None:
        """Return what is known of a stage."""
        return self.results.get(name) or self.retained.get(name)

    def all(self) -> list[Made]:
        """Return everything that is known."""
        return [*self.results.values(), *self.retained.values(), *self.others]


@dataclass
class Store:
    """What `.orch23` of one folder knows: records (oldest first), recorded responses, bytes."""

    records: list[Made] = field(default_factory=list)
    retained: list[Made] = field(default_factory=list)
    responses: set[tuple[Any, ...]] = field(default_factory=set)
    contents: set[str] = field(default_factory=set)
    released: set[tuple[str, str]] = field(default_factory=set)
    complete: bool = True
    """Whether it has all responses that today's results were made of: not in a clone without the store."""
    wrote: dict[str, Lock] = field(default_factory=dict)
    """What the lock file of each pipeline knew after the last command of this folder."""

    def add(self, made: Made, pipeline: str) -> None:
        """Keep a result and its bytes."""
        self.records.append(replace(made, pipeline=pipeline))
        self.contents.update(made.outputs.values())
        self.contents.update(text for text in made.originals.values() if text is not None)
        self.contents.update(text for _, text in made.start if text is not None)

    def copy(self) -> "Store":
        """Return a copy, as of a folder that is copied."""
        return Store(
            [*self.records],
            [*self.retained],
            {*self.responses},
            {*self.contents},
            {*self.released},
            self.complete,
            {**self.wrote},
        )


@dataclass
class Forecast:
    """What a command must do."""

    code: int
    files: Files
    lock: Lock
    ends: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    bases: dict[str, dict[str, str]] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)


# ---- what is computed ------------------------------------------------------------------------------


def same(one: Bases, other: Bases) -> bool:
    return {p: t for p, t in one if t is not None} == {p: t for p, t in other if t is not None}


def meets(reader: Stage, writer: Stage) -> bool:
    for pattern in reader.inputs:
        for out in writer.outputs:
            if fnmatch(out, pattern) or (out.endswith("/") and pattern.startswith(out)):
                return True
    return False


def answered(stage: Stage, inputs: Mapping[str, str], base: Mapping[str, str]) -> Files:
    """Return what the echo model writes."""
    lines = [line for path, text in inputs.items() for line in text.splitlines()]
    if stage.item:
        item = json.loads(stage.item)
        lines = [f"{path}: {item['text']}" for path in item["files"]]
    wanted = [line.partition(": ")[::2] for line in lines]
    return {path: base.get(path, "") + addition(text) for path, text in wanted if text != DELETED}


def computed(stage: Stage, inputs: Mapping[str, str]) -> str:
    """Return what a program of the pipelines, or a template, makes."""
    if stage.kind == "render":
        return "".join(f"<{path}>{text}" for path, text in inputs.items())
    return "".join(text for _, text in sorted(inputs.items()))
