"""The port to what is known of actions that run on other machines."""

from orch23.model.digest import Digest


class RunningActions:
    """Where actions run on other machines, so that the build after a killed one finds them. Never raises.

    Safe for calls from several threads. `engine` names the engine with its address, `place` the execution there. This
    class keeps nothing: it is for an executor without a project.
    """

    def take(self, engine: str, action: Digest) -> str:
        """Return the place of an action that an earlier build left running, only once; empty if there is none."""
        del engine, action
        return ""

    def note(self, engine: str, action: Digest, place: str) -> None:
        """Keep a place until it is forgotten."""

    def forget(self, engine: str, place: str) -> None:
        """Remove a place: its result was fetched, or it was cancelled or lost."""


NOTHING_RUNS = RunningActions()
