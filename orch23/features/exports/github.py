"""The output format `github`: a build in the log of GitHub Actions, with a group and annotations."""

import os.path
import secrets
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from orch23.model.diagnostic import Location
from orch23.model.event import ORCH23_ROLE, Event, FinishedStage, RunFinished, RunStarted, StageStarted, Warned
from orch23.model.event_data import EventProblem
from orch23.model.pipeline import family_of
from orch23.model.run_facts import EndedRun
from orch23.model.sink import Sink
from orch23.model.text import visible
from orch23.report.diagnostics import workflow_command
from orch23.report.failures import failed_tests
from orch23.report.formats import Format, View
from orch23.report.live import PLAIN
from orch23.report.stage_text import command_line
from orch23.report.values import pluralize, truncate

# GitHub shows so many annotations of each level for a step.
_MOST: Final = 10
_MAX_TEXT: Final = 3_000


class GitHubScreen(Struct, Sink, kw_only=True):
    """Passes events to a screen of text, and writes workflow commands around its lines.

    The lines of stages are in a group. At the end, each stage that failed is an annotation of its place in the
    pipeline, and each failed test one of its place; stages that it blocked are not. Between these commands, GitHub
    ignores all others (`token`): what a step prints cannot command anything.
    """

    view: View
    screen: Sink
    token: str
    _is_grouped: bool = False
    _warnings: list[str] = field(default_factory=list)

    def notice(self, event: Event) -> None:
        """Show one event."""
        match event.data:
            case RunStarted():
                self.view.tell(workflow_command("stop-commands", self.token))
            case StageStarted() if not self._is_grouped:
                self._is_grouped = True
                self._command(workflow_command("group", f"{visible(self.view.pipeline.name)}: stages"))
            case Warned():
                where = "" if event.role == ORCH23_ROLE else f"{event.role}: "
                kind = {"error": "error", "info": "notice"}.get(event.level, "warning")
                self._warnings.append(workflow_command(kind, visible(f"{where}{event.message}")))
            case RunFinished() if self._is_grouped:
                self._command(workflow_command("endgroup"))
        self.screen.notice(event)

    def finish(self, run: EndedRun) -> None:
        """Write the annotations."""
        # Commands stay possible: later steps of the same shell script may use them.
        self.view.tell(f"{workflow_command(self.token)}{''.join(self._annotations(run.failures))}")

    def _command(self, command: str) -> None:
        self.view.tell(f"{workflow_command(self.token)}{command}{workflow_command('stop-commands', self.token)}")

    def _annotations(self, failed: list[FinishedStage]) -> Iterator[str]:
        # The last one that is shown counts the others.
        shown = failed if len(failed) <= _MOST else failed[: _MOST - 1]
        for end in shown:
            yield workflow_command("error", visible(_description(end)), self._properties(end))
        located = [(end, one, one.location) for end in shown for one in failed_tests(end.data) if one.location]
        for end, test, place in located[: _MOST - len(shown)]:
            yield workflow_command("error", visible(test.message), self._properties_of(end, test, place))
        if shown != failed:
            more = pluralize(len(failed) - len(shown), "more stage")
            yield workflow_command("error", f"{more} failed: see the log, or the summary of the job")
        yield from self._warnings[:_MOST]

    def _properties(self, end: FinishedStage) -> dict[str, str]:
        first = truncate(end.message.partition("\n")[0], 160)
        title = {"title": visible(f"{end.name}: {first}")}
        place = self.view.pipeline.locate("stages", end.name)
        if place is None:
            return title
        # Paths of annotations are relative to the root of the repository.
        return {**title, "file": str(self.view.folder / place.file), "line": str(place.line), "col": str(place.column)}

    def _properties_of(self, end: FinishedStage, test: EventProblem, place: Location) -> dict[str, str]:
        """Return the place of a failed test: its path is relative to the `cwd` of its stage."""
        stage = next((one for one in self.view.pipeline.stages if one.name == family_of(end.name)), None)
        file = os.path.normpath(self.view.folder / getattr(stage, "cwd", ".") / place.file)
        return {"title": visible(f"{end.name}: {test.subject}"), "file": file, "line": str(place.line)}


def _description(end: FinishedStage) -> str:
    hints = dict.fromkeys(one.hint for one in end.data.problems if one.hint and one.hint not in end.data.failure)
    parts = (command_line(end.data), end.data.failure.strip() or end.message, *hints)
    return truncate("\n".join(filter(None, parts)), _MAX_TEXT)


GITHUB = Format(make=lambda view: GitHubScreen(view=view, screen=PLAIN.make(view), token=secrets.token_hex(16)))
