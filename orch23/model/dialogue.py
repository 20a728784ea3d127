"""What a later attempt continues, for stages with `retry: {style: conversation}` (ADR 42)."""

from collections.abc import Mapping

from msgspec import Struct

from orch23.model.event_data import SentFile
from orch23.model.llm import Request


class Dialogue(Struct, frozen=True, kw_only=True):
    """A request of a former attempt and its response; None: there was none, or a blank one, which no vendor accepts.

    `shown` has the digests of the inputs as its last message found them, by path and slice; `files` are those that its
    messages contain.
    """

    request: Request
    response: str | None
    shown: Mapping[tuple[str, str], str]
    files: tuple[SentFile, ...] = ()
