"""Remember what a build looked at that found everything fresh, so that the next one need not decide it again."""

import os
import sys
from collections.abc import Iterator
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.wiring import Project
from orch23.engine.build import Build
from orch23.model.dataclass import dataclass
from orch23.model.decision import Decision, Fresh
from orch23.model.event import Event, Observer
from orch23.report.diagnostics import render
from orch23.report.marks import Style, marks_for
from orch23.report.plan_text import plan_text
from orch23.report.plan_view import plan_view
from orch23.snapshot.looks import THERE, Looks, signature
from orch23.snapshot.reply import drop, environment, keep, question
from orch23.store.journal import timestamp, unsealed_line

_DULL = frozenset({"run_started", "stage_decided", "stages_added", "stage_finished", "warning", "run_finished"})
_AT_REST = frozenset({"fresh", "skipped"})


@dataclass(slots=True, kw_only=True)
class Rest:
    """An observer that hears whether a build does anything.

    If it does not, what it looked at is kept. If it does, all that was kept of the pipeline is dropped before.

    `screen` shows the build, and hears all that this one does.
    """

    console: Console
    project: Project
    screen: Observer
    _events: dict[str, Event] = field(default_factory=dict)
    _moved: bool = False

    def notice(self, event: Event) -> None:
        """Take one event."""
        self.screen.notice(event)
        status = event.data.get("status")
        idle = event.type in _DULL and (event.type != "stage_finished" or status in _AT_REST)
        if not idle and not self._moved:
            self._moved = True
            drop(str(self.project.settings.root), self.project.pipeline.file)
        if event.type in ("run_started", "run_finished"):
            self._events[event.type] = event

    def end(self, build: Build) -> None:
        """Keep what this build looked at, if it did nothing and said nothing that depends on who reads it."""
        told = "".join(self.console.told)
        ended = self._events.get("run_finished")
        if self._moved or ended is None or ended.data.get("exit_code") != 0 or "\x1b" in told:
            return
        if self.console.argv[:1] != ("build",):  # with options before it, it is not asked like this again
            return
        looks = Looks(self.console.began_ns)
        root, here = self.project.settings.root, Path.cwd()
        if not self._look_back(looks, build, here) or not self.project.store.workspace.look_back(looks):
            return
        looks.environ = environment(os.environ)
        looks.facts = {
            "root": str(root),
            "question": question(str(here), list(self.console.argv)),
            "encoding": sys.stderr.encoding,
            "pipeline": self.project.pipeline.file,
            "told": told,
            "warnings": render(self.project.loaded.warnings, self.project.loaded.sources),
            **self._plans(build),
            **self._journal(),
        }
        os.chdir(root)
        try:
            keep(looks)
        finally:
            os.chdir(here)

    def _look_back(self, looks: Looks, build: Build, here: Path) -> bool:
        """Add what was looked at outside of the workspace; False if some of it is too young to be believed."""
        settings, store = self.project.settings, self.project.store
        files = [settings.pipeline_path, build.session.lock_path, *sorted(self.project.facts.looked_at)]
        files += [settings.vars_file] if settings.vars_file is not None else []
        files += [store.folder / name for name in ("VERSION", "promote.json", "rooms")]
        files += [*sorted(store.contents.read_from), *_program()]
        for folder in (here, *here.parents):
            files += [folder / "orch23.toml", folder / "pyproject.toml"]
            looks.outside[str(folder / ".git")] = signature(str(folder / ".git"), THERE)
        return all(looks.take(str(path)) for path in files)

    def _plans(self, build: Build) -> dict[str, str]:
        """Return what `plan` says of a project at rest, without colours and with them."""
        world, selection = build.session.world, build.options.selection
        wanted = selection.nodes(world.plan)
        fresh: dict[str, Decision] = {n: Fresh(world.results[n]) for n in world.plan.order if n in wanted}
        view = plan_view(world.plan, fresh, keys={}, estimates=None, dead=(), skipped=selection.skipped(world.plan))
        marks = marks_for(sys.stderr.encoding)
        styles = {"plan": Style(marks=marks), "plan in colour": Style(marks=marks, color=True)}
        return {name: self.console.plain(plan_text(view, style)) for name, style in styles.items()}

    def _journal(self) -> dict[str, str]:
        """Return the two lines of a run that does nothing, with what is to be put in the place of this run's."""
        began, ended = self._events["run_started"], self._events["run_finished"]
        moment = timestamp(datetime.fromtimestamp(0, UTC))
        run_id = str(began.data["run_id"])
        return {
            "key": str(began.data["key"]),
            "run id": run_id,
            "moment": moment,
            "began": unsealed_line(began, 1, moment),
            "ended": unsealed_line(ended, 2, moment),
        }


def _program() -> Iterator[Path]:
    """Give the files of orch23 as it is loaded, and the folders that the libraries it uses are installed in."""
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] == "orch23":
            yield Path(file)
    yield Path(sys.executable)
    for folder in dict.fromkeys(sys.path):
        if folder.endswith(("site-packages", "dist-packages")):
            yield Path(folder)
