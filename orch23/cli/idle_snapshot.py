"""Write a snapshot after a build whose next run has nothing to do."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.partial_build import PAIR, TABLE, is_cut, table_name
from orch23.cli.project_loading import Project
from orch23.decide.secrets import secrets_from
from orch23.engine.build import Build
from orch23.engine.dependency_index import OutdatedIndexError
from orch23.engine.idle_build import AtRest, Table, at_rest, look_back, table_of
from orch23.model.digest import digest_bytes
from orch23.model.errors import SafetyError
from orch23.model.event import (
    Event,
    EventData,
    Observer,
    Planned,
    RunFinished,
    RunStarted,
    StageDecided,
    StageFinished,
    StagesAdded,
    Warned,
    run_finished,
    run_started,
)
from orch23.model.pipeline import DEFAULT_PIPELINE
from orch23.model.plan import Decision
from orch23.model.plugins import plugin_modules
from orch23.report.diagnostics import render_diagnostics
from orch23.report.marks import Style, marks_for
from orch23.report.plan_text import plan_text
from orch23.report.plan_view import models_of, plan_view
from orch23.snapshot.fast_path import SNAPSHOT_FOLDER as SNAPSHOTS
from orch23.snapshot.fast_path import (
    command_identity,
    environment_digests,
    program_identity,
    remove_snapshots,
    write_snapshot,
)
from orch23.snapshot.stat_snapshot import OWNER, StatSnapshot, signature
from orch23.store.project_store import STORE_NAME, STORE_VERSION, may_hold_secret
from orch23.store.run_logs import format_timestamp, line_without_checksum
from orch23.store.workspace import Workspace

_IDLE = (RunStarted, Planned, StageDecided, StagesAdded, Warned, RunFinished)
"""Events that a build with nothing to do has too."""
_TOKEN_BYTES = 16


class IdleSnapshotWriter(Struct, kw_only=True):
    """An observer that hears whether a build does anything.

    If it does, all that was kept of the pipeline is dropped before. What it looked at is kept if the next one has
    nothing to do: it had nothing to do itself, or everything is decided once more after it.

    `screen` shows the build, and hears all that this one does. `idle_screen` makes one that shows a build with
    nothing to do, given how it may write; without it, only what such a build said is remembered.
    """

    console: Console
    project: Project
    screen: Observer
    idle_screen: Callable[[Callable[[str], None]], Observer] | None
    _began: RunStarted | None = None
    _ended: RunFinished | None = None
    _moved: bool = False
    _warned: bool = False

    def notice(self, event: Event) -> None:
        """Take one event."""
        self.screen.notice(event)
        match event.data:
            case RunStarted():
                self._began = event.data
            case RunFinished():
                self._ended = event.data
            case Warned(of_steps=of_steps):
                self._warned = self._warned or not of_steps
            case _:
                pass
        if not self._moved and not _is_idle(event.data):
            self._moved = True
            remove_snapshots(str(self.project.settings.root), self.project.pipeline.file)

    def end(self, build: Build) -> None:
        """Keep what this build looked at, if the next one has nothing to do and says nothing but that."""
        ended = self._ended
        if ended is None or ended.exit_code != 0 or self.console.argv[:1] != ("build",):
            return  # with options before the command it is not asked like this again
        asked = command_identity(str(Path.cwd()), list(self.console.argv))
        if asked is None:
            return
        partial, warnings = self.project.partial, self.project.loaded.warnings
        if (self._moved and (self._warned or self.idle_screen is None)) or (partial is not None and warnings):
            return
        assert self._began is not None
        rest = at_rest(build, self._began, ended, self.project.part, moved=self._moved)
        told = self._told(rest) if rest is not None else ""
        if rest is None or "\x1b" in told:
            return
        looks = StatSnapshot(self.console.began_ns)
        root, here = self.project.settings.root, Path.cwd()
        workspace = self.project.store.workspace
        read_once = self._read_once(build)
        if any(not _is_still(workspace, file, sha256) for file, sha256 in read_once.items()):
            return
        if not self._look_back(looks) or not look_back(looks, self.project.store, self.project.facts.looked_at):
            return
        looks.environ = environment_digests(os.environ)
        if partial is not None:
            written = {*read_once, *workspace.written_paths}
            try:
                looks = partial.renewed(looks, written, **_journal(rest.began, rest.ended))
            except OutdatedIndexError:  # it was removed meanwhile: nothing is remembered
                return
        else:
            looks.facts = {
                "root": str(root),
                "question": asked,
                "program": program_identity(),
                "encoding": sys.stderr.encoding,
                "pipeline": self.project.pipeline.file,
                "told": told,
                "warnings": self._warnings(),
                "models": "\n".join(models_of(self.project.pipeline.stages)),
                **self._plans(build, rest.decisions),
                **_journal(rest.began, rest.ended),
            }
        os.chdir(root)
        try:
            self._keep(looks, None if warnings else rest)
        finally:
            os.chdir(here)

    def _keep(self, looks: StatSnapshot, rest: AtRest | None) -> None:
        """Write a snapshot, and its table of the index unless a secret is in it; without `rest` it has none.

        From the root, for the holder of the build lock.
        """
        looks.facts.pop(PAIR, None)
        store, loaded = self.project.store, self.project.loaded
        name, token, table = table_name(looks), os.urandom(_TOKEN_BYTES).hex(), Table()
        if rest is not None:
            text = loaded.sources.get(self.project.pipeline.file, "")
            part = self.project.part
            table = table_of(rest, part, token=token, text=text, read=loaded.digests, is_cut=is_cut)
        suspects = secrets_from(self.project.settings.environ).may_contain
        if may_hold_secret(table.parts(), suspects):
            table = Table()
        if table.has_rows():
            looks.facts[PAIR] = token
        kept = {name, *(f"{TABLE}{path.name}" for path in _files(Path(SNAPSHOTS)))}
        store.save_index(
            fresh={name: table.fresh} if table.fresh is not None else {},
            changed={name: table.changed} if table.changed is not None else {},
            dropped=tuple(one for one in store.index.tables() if one.startswith(TABLE) and one not in kept),
            suspects=suspects,
        )
        write_snapshot(looks)

    def _told(self, rest: AtRest) -> str:
        """Return what a build with nothing to do shows: what this one showed, or, if it did something, the next one."""
        if not self._moved or self.idle_screen is None:
            return "".join(self.console.err_written)
        told = [self._warnings()]
        screen = self.idle_screen(told.append)
        screen.notice(run_started(replace(rest.began, at_rest=rest.ended.stages)))
        screen.notice(run_finished(rest.ended))
        return self.console.redact("".join(told))

    def _read_once(self, build: Build) -> dict[str, str]:
        """Return the sha256, in hex, of the files that were read or written outside of `Workspace`, by their path.

        They were read long ago: what is there now may be an edit on which nothing was decided.
        """
        lock = build.session.lock_path.relative_to(self.project.settings.root).as_posix()
        digests = {file: digest.sha256 for file, digest in self.project.loaded.digests.items()}
        version = digest_bytes(STORE_VERSION).sha256
        return {**digests, f"{STORE_NAME}/VERSION": version, lock: build.committer.written_lock_sha256}

    def _warnings(self) -> str:
        return "".join(self.console.notes) + render_diagnostics(
            self.project.loaded.warnings, self.project.loaded.sources
        )

    def _look_back(self, looks: StatSnapshot) -> bool:
        """Add the program, and what tells which project this is; False if some of it is too young to be believed."""
        settings = self.project.settings
        named = [settings.pipeline_path, *([settings.vars_file] if settings.vars_file is not None else [])]
        read = {settings.root / file for file in self.project.loaded.digests}
        files = [path for path in named if path not in read]  # by a link
        if any(path.resolve() not in read for path in named):  # it leads elsewhere by now
            return False
        libraries = [*_libraries()]
        modules = {name: not _is_beneath(name, libraries) for name in _program(self.project.pipeline.plugins)}
        files += [Path(sys.executable), *libraries]
        files += sorted({Path(name).parent for name, edited in modules.items() if not edited})
        files += self._decided_on_the_project(looks)
        if not all(looks.add_path(str(path)) for path in files):
            return False
        return all(looks.add_unhashed_file(name) for name, edited in modules.items() if edited)

    def _decided_on_the_project(self, looks: StatSnapshot) -> list[Path]:
        """Return the files that decided, by being there or not, which project this is; add who owns the folders."""
        project, files = self.console.found[0], []
        for folder in (project.start, *project.start.parents):
            files += [folder / "orch23.toml", folder / "pyproject.toml"]
            looks.outside[str(folder / ".git")] = signature(str(folder / ".git"), OWNER)
            if folder != project.start:
                looks.outside[str(folder)] = signature(str(folder), OWNER)
        if not project.is_named and project.pipeline is not None:
            above, its = (project.start, *project.start.parents), project.pipeline.parent.resolve()
            files += [folder / DEFAULT_PIPELINE for folder in takewhile(lambda folder: folder != its, above)]
        return files

    def _plans(self, build: Build, decisions: Mapping[str, Decision]) -> dict[str, str]:
        """Return what `plan` says of a project at rest, without colours and with them."""
        plan = build.session.state.plan
        skipped = build.options.selection.skipped(plan)
        view = plan_view(plan, decisions, keys={}, estimates=None, dead=(), skipped=skipped)
        marks = marks_for(sys.stderr.encoding)
        styles = {"plan": Style(marks=marks), "plan in colour": Style(marks=marks, color=True)}
        return {name: self.console.redact(plan_text(view, style)) for name, style in styles.items()}


def _is_idle(data: EventData) -> bool:
    return data.status.is_idle if isinstance(data, StageFinished) else isinstance(data, _IDLE)


def _journal(began: RunStarted, ended: RunFinished) -> dict[str, str]:
    """Return the two lines of a run that does nothing, with what is to be put in the place of that run's."""
    moment = format_timestamp(datetime.fromtimestamp(0, UTC))
    return {
        "key": began.key,
        "run id": began.run_id,
        "moment": moment,
        "began": line_without_checksum(run_started(began), 1, moment),
        "ended": line_without_checksum(run_finished(ended), 2, moment),
    }


def _is_still(workspace: Workspace, file: str, sha256: str) -> bool:
    """Return whether a file has these bytes."""
    try:
        return workspace.has_digest(file, sha256)
    except SafetyError:  # a folder became a link
        return False


def _program(plugins: tuple[str, ...]) -> Iterator[str]:
    """Give the files of orch23 and of plugins that are loaded."""
    tops = {"orch23", "orch23_checks"} | plugin_modules(plugins)
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] in tops:
            yield file


def _is_beneath(file: str, folders: list[Path]) -> bool:
    """Say whether a file was installed into one of these folders: its folder tells when it is replaced."""
    return any(file.startswith(f"{folder}/") for folder in folders)


def _files(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from folder.iterdir()


def _libraries() -> Iterator[Path]:
    """Give the folders that the libraries that it uses are installed in."""
    for folder in dict.fromkeys(sys.path):
        if folder.endswith(("site-packages", "dist-packages")):
            yield Path(folder)
