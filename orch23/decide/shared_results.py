"""The port of a build to results of stages that other machines have made, in a shared cache (ADR 73).

The feature `cache` implements it. Only a build with a shared cache loads this module.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from orch23.model.digest import Digest
from orch23.model.event import Observer
from orch23.model.parsing import NaturalNumber
from orch23.model.record import Record
from orch23.resolve.resolution import ResolvedStage


class ResultOrigin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a result took when it was made: seconds, model calls, tokens, and US dollars (empty if not known)."""

    seconds: float = 0.0
    calls: NaturalNumber = 0
    tokens: NaturalNumber = 0
    cost: str = ""


class SharedResults(Protocol):
    """The results of a build in a shared cache, all of them verified. Safe for calls from several threads.

    No error of it stops a build: the stage is built.
    """

    @property
    def verifies(self) -> bool:
        """Whether results are verified again before they are used."""

    def faults_of(self, resolved: ResolvedStage) -> tuple[str, ...]:
        """Return why the result of a stage is not shared; none if it is."""

    def may_store(self, resolved: ResolvedStage) -> bool:
        """Return whether a new result of a stage is stored."""

    def find(self, resolved: ResolvedStage, locked: Sequence[Record]) -> Record | None:
        """Return the result of a stage; it must be one of the `locked` results of its key, if there are any.

        While it is looked up, this raises an error that the walk of the feature handles: it decides the stage later.
        """

    def has(self, record: Record) -> bool:
        """Return whether a result is there, as far as it was looked up."""

    def has_bytes(self, digest: Digest) -> bool:
        """Return whether bytes are there that were not downloaded: a plan downloads none."""

    def read(self, digest: Digest) -> bytes | None:
        """Return bytes that were not downloaded, without storing them; None if there are none, or too many."""

    def confirm(self, record: Record) -> None:
        """Count a result that is there, and whose files are on disk already."""

    def use(self, record: Record) -> None:
        """Count a result that is used."""

    def share(
        self,
        resolved: ResolvedStage,
        record: Record,
        about: ResultOrigin,
        sandboxes: Collection[str],
        *,
        is_verified: bool,
    ) -> None:
        """Store a result that passed in the background; not if it has user edits or secrets.

        Its processes ran in these sandboxes. `is_verified`: an earlier run made it.
        """

    def finish(self) -> None:
        """Wait for what is being stored, and report what the build did."""

    def close(self) -> None:
        """Wait for nothing, and release all resources. Nothing is found from now on."""


class OpenedCache(Struct, frozen=True):
    """The results in a shared cache, None if it is not used. `pass_to` passes events about it on, also earlier ones."""

    results: SharedResults | None
    pass_to: Callable[[Observer], None]
