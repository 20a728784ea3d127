"""What `explain` says of one stage, as values: every aspect of its key then and now, the differences, the causes."""

from collections.abc import Mapping
from difflib import unified_diff
from typing import Literal, TypeAlias

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.manifest import Manifest
from orch23.report.plan_view import PlanLine

Change: TypeAlias = Literal["same", "changed", "added", "removed"]

_MOST_DIFF_LINES = 200


class Aspect(Struct, frozen=True):
    """One ingredient of a key."""

    name: str
    then: Json
    now: Json

    @property
    def change(self) -> Change:
        """Say what became of it."""
        if self.then == self.now:
            return "same"
        if self.then is None:
            return "added"
        return "removed" if self.now is None else "changed"


class TextDiff(Struct, frozen=True):
    """The difference of two texts behind an aspect, as lines of a unified diff."""

    subject: str
    lines: tuple[str, ...]


class Cause(Struct, frozen=True):
    """One link of the chain from a stage to its root causes: the stage it speaks of, its depth, its clause."""

    stage: str
    depth: int
    clause: str


class Question(Struct, frozen=True, kw_only=True):
    """The request that the first attempt of a stage makes: its parts, long texts by their digest.

    `answers` are the recorded exchanges that it leads to. Where it also leads to one that is not recorded, `difference`
    says how that one differs from the nearest that is; `missing` says that there is such a one.
    """

    fingerprint: str
    parts: Mapping[str, Json]
    answers: tuple[str, ...] = ()
    missing: bool = False
    difference: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that there is to say on why a stage is as it is. `key_then` is empty where it never had a result."""

    line: PlanLine
    key_then: str = ""
    aspects: tuple[Aspect, ...] = ()
    diffs: tuple[TextDiff, ...] = ()
    causes: tuple[Cause, ...] = ()
    question: Question | None = None


def aspects_of(then: Manifest, now: Manifest) -> tuple[Aspect, ...]:
    """Return every aspect of two manifests, what changed first."""
    found = [Aspect(name, then.get(name), now.get(name)) for name in sorted(set(then) | set(now))]
    return tuple(sorted(found, key=lambda aspect: (aspect.change == "same", aspect.name)))


def text_diff(subject: str, then: str, now: str) -> TextDiff:
    """Return the difference of two texts, cut where it is very long."""
    found = list(unified_diff(then.splitlines(), now.splitlines(), "then", "now", lineterm=""))
    if len(found) > _MOST_DIFF_LINES:
        found = [*found[:_MOST_DIFF_LINES], f"... {len(found) - _MOST_DIFF_LINES} more lines"]
    return TextDiff(subject, tuple(found))


def changed(aspects: tuple[Aspect, ...]) -> Mapping[str, Aspect]:
    """Return the aspects that changed, by name."""
    return {aspect.name: aspect for aspect in aspects if aspect.change != "same"}
