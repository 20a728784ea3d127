"""What differs between the project now and at a revision, by stage: a value that reports write down."""

from typing import Literal

from msgspec import Struct

from orch23.model.manifest import Reason


class AffectedStage(Struct, frozen=True, kw_only=True):
    """A stage (or item) that is affected: of another key (`changed`), new (`added`), or perhaps (`downstream`).

    `after` are the affected stages whose results it may read; of one that is downstream those alone of which it is not
    known how they differ.
    """

    stage: str
    why: Literal["changed", "added", "downstream"]
    reasons: tuple[Reason, ...] = ()
    after: tuple[str, ...] = ()


class Affected(Struct, frozen=True, kw_only=True):
    """The affected stages in the order of the plan, out of `count`; `removed` are those that the revision had alone.

    `comparable` is false where the revision has no such pipeline, or an invalid one: then every stage is new.
    """

    name: str
    file: str
    since: str
    commit: str
    count: int
    stages: tuple[AffectedStage, ...] = ()
    removed: tuple[str, ...] = ()
    comparable: bool = True
