"""One build of `watch`: what it may do, and how it has ended."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.cli.shared_budget import SharedBudget
from orch23.snapshot.stat_snapshot import StatSnapshot

if TYPE_CHECKING:
    from orch23.cli.build_parts import BuildRequest
    from orch23.cli.project_loading import Project


class WatchedBuild(Struct, kw_only=True):
    """One build of `watch`. Without `llm`, and once `budget` is used up, it `holds` the stages that would call a model.

    `on_signal` gets the number of a signal that the build has received. When it has ended, `run_id` is that of its run
    (empty if it did not start), and `read` the states of the files that it used: None if the build wrote a snapshot, or
    is `outdated`, since one of them changed after it was read. With `is_whole`, it has loaded the whole pipeline.
    """

    llm: bool
    budget: SharedBudget
    on_signal: Callable[[int], None]
    holds: bool = True
    run_id: str = ""
    read: StatSnapshot | None = None
    outdated: bool = False
    is_whole: bool = True

    def limited(self, request: "BuildRequest", project: "Project") -> "BuildRequest":
        """Return the request with the limits of this build."""
        # The pipeline is read again for each build: the user may have changed its limit.
        self.holds = not (self.llm and self.budget.begin(project.pipeline.stop.max_cost_usd))
        shared = None if self.holds else self.budget
        return replace(request, holds=self.holds, replay=self.holds, budget=self.budget.given, shared_budget=shared)

    def end(self, project: "Project", run_id: str, read: StatSnapshot | None, *, has_snapshot: bool) -> None:
        """Note how it has ended. The caller holds the build lock."""
        self.run_id, self.read, self.is_whole = run_id, read, project.partial is None
        self.outdated = read is None and not has_snapshot
