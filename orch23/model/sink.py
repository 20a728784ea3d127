"""Receivers of a run, which plugins may add: see docs/plugins.md."""

from typing import TYPE_CHECKING, ClassVar

from orch23.model.event import Event

if TYPE_CHECKING:
    from orch23.model.run_facts import EndedRun


class Sink:
    """A receiver of a run: its events, then its facts. Output formats, documents and spans are sinks.

    Each method does nothing if a sink does not define it. Events come one at a time, maybe from several threads.
    `leaves_out` has the types of events that a sink of orch23 does not handle, `notice` for all notices: a test names
    each type that it forgot.
    """

    __slots__ = ()
    leaves_out: ClassVar[str] = ""

    def notice(self, event: Event) -> None:
        """Receive the next event."""

    def finish(self, run: "EndedRun") -> None:
        """Receive the facts of the run, after its last event."""
