"""Write a snapshot after a build whose next run has nothing to do."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.discovery import PIPELINES
from orch23.cli.parameters import fact_of
from orch23.cli.partial_build import PAIR, TABLE, can_split, table_name
from orch23.cli.project_loading import Project
from orch23.decide.dependency_index import OutdatedIndexError
from orch23.engine.build import Build
from orch23.engine.idle_build import IdleBuild, Table, add_read_paths, idle_build_of, table_of
from orch23.model.digest import digest_bytes
from orch23.model.errors import SafetyError
from orch23.model.event import (
    Event,
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
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import DEFAULT_PIPELINE
from orch23.model.plan import Decision
from orch23.model.plugins import plugin_modules
from orch23.report.values import Style, marks_for
from orch23.snapshot.fast_path import (
    SHOWN,
    command_identity,
    environment_digests,
    program_identity,
    remove_snapshots,
    write_snapshot,
)
from orch23.snapshot.fast_path import SNAPSHOT_FOLDER as SNAPSHOTS
from orch23.snapshot.signatures import ENTRIES, OWNER, RACY_NS, signature
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.project_store import STORE_NAME, STORE_VERSION, may_hold_secret
from orch23.store.run_logs import format_timestamp, line_without_checksum
from orch23.store.workspace import Workspace
from orch23.text.secrets import secrets_from

# Events of a build with nothing to do.
_IDLE = (RunStarted, Planned, StageDecided, StagesAdded, Warned, RunFinished)
_FORCING = frozenset({"ORCH23_BUILD_FORCE", "ORCH23_BUILD_RESAMPLE"})
_TOKEN_BYTES = 16
_PACKAGE = Path(__file__).parents[1]
_BELOW_PACKAGE = f"{_PACKAGE}/"


class IdleSnapshotWriter(Struct, kw_only=True):
    """An observer that removes the snapshots of a pipeline when a build does anything, and writes one at its end.

    It writes one only if the next build has nothing to do: this one had nothing to do itself, or its stages are
    decided again after it.

    `has_written` says whether it has written one.

    `screen` gets all events too. `idle_screen` makes a screen for a build with nothing to do, from a function that
    writes a text. Without it, only the output of a build with nothing to do is stored.
    """

    console: Console
    project: Project
    screen: Observer
    idle_screen: Callable[[Callable[[str], None]], Observer] | None
    _began: RunStarted | None = None
    _ended: RunFinished | None = None
    _skips: list[Event] = field(default_factory=list)
    _has_worked: bool = False
    _warned: bool = False
    has_written: bool = False

    def notice(self, event: Event) -> None:
        """Handle one event."""
        self.screen.notice(event)
        match event.data:
            case RunStarted():
                self._began = event.data
            case RunFinished():
                self._ended = event.data
            case Warned(of_steps=of_steps):
                self._warned = self._warned or not of_steps
            case StageFinished(status=StageStatus.SKIPPED):
                self._skips.append(event)
        # Removed before the build changes a file: if it is killed, no snapshot from before its changes is left.
        data, promised = event.data, getattr(event.data, "resample", UNSET)
        is_idle = data.status.is_idle if isinstance(data, StageFinished) else isinstance(data, _IDLE) and not promised
        if not self._has_worked and not is_idle:
            self._has_worked = True
            remove_snapshots(str(self.project.settings.root), self.project.pipeline.file)

    def end(self, build: Build) -> None:
        """Write the snapshot, if the next build has nothing to do. The caller holds the build lock."""
        began, ended = self._began, self._ended
        if began is None or ended is None or began.resample or not self._may_write(ended):
            return
        # Only now: with `-C` before the command, which is refused above, the working directory may be removed.
        identity = command_identity(str(Path.cwd()), list(self.console.argv))
        # What the command line forces is over, but the next build finds the same variables.
        if identity is None or not _FORCING.isdisjoint(self.console.environ):
            return
        idle = idle_build_of(build, began, ended, self.project.part, moved=self._has_worked)
        if idle is None:
            return
        output = self._idle_output(idle)
        # Output with colors cannot be repeated on another terminal, or into a file.
        if "\x1b" in output:
            return
        facts = _journal_lines(idle.began, idle.ended) | fact_of(self.console)
        if self.project.part is None:
            facts |= {
                "root": str(self.project.settings.root),
                "question": identity,
                "program": program_identity(),
                "encoding": sys.stderr.encoding,
                "pipeline": self.project.pipeline.file,
                "told": output,
                "warnings": self._warnings(),
                **self._plans(build, idle.decisions),
            }
        snapshot = self._snapshot(build, idle, facts)
        if snapshot is not None:
            with contextlib.chdir(self.project.settings.root):
                self._write(snapshot, idle)
                self.has_written = True

    @property
    def run_id(self) -> str:
        """The id of the run; empty before it starts."""
        return self._began.run_id if self._began is not None else ""

    def states(self, build: Build) -> StatSnapshot | None:
        """Return the states of the project's files that a build used, also of one that failed.

        None if one changed since. The caller holds the build lock, and `has_written` is false.
        """
        store, read_once = self.project.store, self._read_once(build)
        if not all(_is_unchanged(store.workspace, file, sha256) for file, sha256 in read_once.items()):
            return None
        # A file with the stamp of the one that was opened counts as unchanged, however young it is: `watch` builds at
        # the earliest when the time of an edit is past.
        snapshot = StatSnapshot(time.time_ns() + RACY_NS)
        if not store.workspace.add_to_snapshot(snapshot):
            return None
        snapshot.since_ns = self.console.began_ns
        snapshot.outside |= {str(path): was for path, was in self.project.facts.looked_at.items()}
        with contextlib.chdir(store.root):
            snapshot.outside |= {file: signature(file) for file in self.project.loaded.digests}
        return self._since_last(build, snapshot, {}, build.unaffected)

    def _may_write(self, ended: RunFinished) -> bool:
        """Return whether this build and its output allow a snapshot, whatever the next build does."""
        if ended.exit_code != 0 or self.console.argv[:1] != ("build",):  # the fast path knows no options before `build`
            return False
        if self.project.part is not None and self.project.loaded.warnings:
            return False
        # After a build that worked, the output of the next one is predicted. Its warnings cannot be.
        return not self._has_worked or (self.idle_screen is not None and not self._warned)

    def _snapshot(self, build: Build, idle: IdleBuild, facts: Mapping[str, str]) -> StatSnapshot | None:
        """Return the states of all files that this build used; None if one changed since, or is too new to be sure."""
        store = self.project.store
        # A file that changed during the build, and was not written by it, may be an edit that nothing was decided on.
        read_once = self._read_once(build)
        if not all(_is_unchanged(store.workspace, file, sha256) for file, sha256 in read_once.items()):
            return None
        snapshot = StatSnapshot(self.console.began_ns)
        looked_at = {**self.project.facts.looked_at, **build.opened.state.git.looked_at}
        if not self._add_program(snapshot) or not add_read_paths(snapshot, idle.store, looked_at):
            return None
        snapshot.environ = environment_digests(os.environ)
        return self._since_last(build, snapshot, facts, idle.unaffected)

    def _since_last(
        self, build: Build, snapshot: StatSnapshot, facts: Mapping[str, str], unaffected: Container[str]
    ) -> StatSnapshot | None:
        """Return a snapshot with what the last build of the command used besides; None if that is not known."""
        store, part, last = self.project.store, self.project.part, self.project.last_build
        if last is None:
            snapshot.facts = dict(facts)
            return snapshot
        written = {*self._read_once(build), *store.workspace.written_paths}

        def is_decided(name: str) -> bool:
            return name not in unaffected if part is None else name in part.names

        try:
            return last.merged_snapshot(snapshot, written, is_decided, **facts)
        except OutdatedIndexError:  # the index was removed meanwhile
            return None

    def _write(self, snapshot: StatSnapshot, idle: IdleBuild) -> None:
        """Write a snapshot, and its table of the index: after warnings or with a secret in it, an empty one.

        The caller holds the build lock; the working directory is the root.
        """
        snapshot.facts.pop(PAIR, None)
        store, loaded = self.project.store, self.project.loaded
        suspects = secrets_from(self.project.settings.environ).may_contain
        if self.project.part is None:
            store.save_index(suspects=suspects)  # before the rows of all stages are in memory
        name, token, table = table_name(snapshot), os.urandom(_TOKEN_BYTES).hex(), Table()
        if not loaded.warnings:
            text = loaded.sources.get(self.project.pipeline.file, "")
            part, last = self.project.part, self.project.last_build
            before = None if last is None else last.rows
            table = table_of(idle, part, before, token=token, text=text, read=loaded.digests, is_cut=can_split)
        # The index is a file in the project: secrets are neither stored nor logged.
        if may_hold_secret(table.parts(), suspects):
            table = Table()
        if table.parts():
            snapshot.facts[PAIR] = token
        # Each command line has a snapshot and a table; tables whose snapshot was removed are dropped.
        kept = {name, *(f"{TABLE}{path.name}" for path in Path(SNAPSHOTS).glob("*"))}
        store.save_index(
            fresh={name: table.fresh} if table.fresh is not None else {},
            changed={name: table.changed} if table.changed is not None else {},
            dropped=tuple(one for one in store.index.tables() if one.startswith(TABLE) and one not in kept),
            suspects=suspects,
        )
        write_snapshot(snapshot)

    def _idle_output(self, idle: IdleBuild) -> str:
        """Return what a build with nothing to do writes: the output of this one or, if it worked, of the next one."""
        if not self._has_worked or self.idle_screen is None:
            return "".join(self.console.err_written)
        written = [self._warnings()]
        screen = self.idle_screen(written.append)
        at_rest = {status: number for status, number in idle.ended.stages.items() if status != StageStatus.SKIPPED}
        for event in (run_started(replace(idle.began, at_rest=at_rest)), *self._skips, run_finished(idle.ended)):
            screen.notice(event)
        return self.console.redact("".join(written))

    def _read_once(self, build: Build) -> dict[str, str]:
        """Return the hex SHA-256 of the files that were read or written outside of `Workspace`, by path.

        They were read at the start of the build: an edit since then must not get into the snapshot as known.
        """
        lock = build.opened.lock_path.relative_to(self.project.settings.root).as_posix()
        digests = {file: digest.sha256 for file, digest in self.project.loaded.digests.items()}
        return {
            **digests,
            f"{STORE_NAME}/VERSION": digest_bytes(STORE_VERSION).sha256,
            lock: build.writer.written_lock_sha256,
        }

    def _warnings(self) -> str:
        notes, loaded = "".join(self.console.notes), self.project.loaded
        if not loaded.warnings:
            return notes
        from orch23.report.diagnostics import render_diagnostics  # noqa: PLC0415 - few pipelines have warnings

        return notes + render_diagnostics(loaded.warnings, loaded.sources)

    def _add_program(self, snapshot: StatSnapshot) -> bool:
        """Add the program, and the files that decide which project this is; False if one is too new to be sure."""
        settings = self.project.settings
        named = [settings.pipeline_path, *([settings.vars_file] if settings.vars_file is not None else [])]
        read = {settings.root / file for file in self.project.loaded.digests}
        files = [path for path in named if path not in read]
        # Such a file is a link. If it was changed since, the bytes that were read are those of its old target.
        if any(path.resolve() not in read for path in named):
            return False
        installed, edited = _program(self.project.pipeline.plugins)
        if (last := self.project.last_build) is not None:  # its snapshot has them: only what it lacks is added
            edited = sorted({*edited}.difference(last.stale_snapshot.snapshot.paths))
        elif self.console.was_parsed and self.console.stale_snapshot is not None:
            # The modules that parsed the command line in an earlier build are not loaded.
            earlier = self.console.stale_snapshot.snapshot
            installed += [Path(path) for path in earlier.outside if f"{path}/".startswith(_BELOW_PACKAGE)]
            edited += [path for path in earlier.paths if path.startswith(_BELOW_PACKAGE)]
        files += [Path(sys.executable), *installed, *self._project_markers(snapshot)]
        return all(map(snapshot.add_path, map(str, files))) and all(map(snapshot.add_unhashed_file, edited))

    def _project_markers(self, snapshot: StatSnapshot) -> list[Path]:
        """Return the files whose presence decides which project this is; add the owners of their folders."""
        project, files = self.console.found[0], []
        above = (project.start, *project.start.parents)
        for folder in above:
            files += [folder / "orch23.toml", folder / "pyproject.toml"]
            # Discovery ignores files and folders of other users, so a new owner changes which project this is.
            snapshot.outside[str(folder / ".git")] = signature(str(folder / ".git"), OWNER)
            if folder != project.start:
                snapshot.outside[str(folder)] = signature(str(folder), OWNER)
        if project.searched is not None:
            its = project.searched.resolve()
            below = [*takewhile(lambda folder: folder != its, above)]
            if project.pipeline is not None and project.pipeline.parent.resolve() == its:
                return [*files, *(folder / DEFAULT_PIPELINE for folder in below)]
            # The only file in `pipelines`: another one there, and any pipeline.yaml, would change which it is.
            files += [folder / DEFAULT_PIPELINE for folder in above]
            for folder in (*below, its):
                path = str(folder / PIPELINES)
                snapshot.outside[path] = signature(path, ENTRIES)
        return files

    def _plans(self, build: Build, decisions: Mapping[str, Decision]) -> dict[str, str]:
        """Return what the commands that show a plan write with nothing to do, without and with colors; the models."""
        from orch23.report.plan_text import plan_text, status_text  # noqa: PLC0415 - a build of a part keeps these texts
        from orch23.report.plan_view import models_of, plan_view  # noqa: PLC0415 - as above

        plan = build.opened.state.plan
        view = plan_view(plan, decisions, skipped=build.options.selection.skipped(plan))
        marks = marks_for(sys.stderr.encoding)
        plain, colored = Style(marks=marks), Style(marks=marks, color=True)
        texts = dict(zip(SHOWN, (plan_text, status_text), strict=True))
        shown = {
            name: self.console.redact(text_of(view, style))
            for command, text_of in texts.items()
            for name, style in ((command, plain), (f"{command} in colour", colored))
        }
        return {"models": "\n".join(models_of(self.project.pipeline.stages)), **shown}


def _journal_lines(began: RunStarted, ended: RunFinished) -> dict[str, str]:
    """Return the two journal lines of a run with nothing to do, and the texts in them that each run replaces."""
    timestamp = format_timestamp(datetime.fromtimestamp(0, UTC))
    return {
        "key": began.key,
        "run id": began.run_id,
        "moment": timestamp,
        "began": line_without_checksum(run_started(began), 1, timestamp),
        "ended": line_without_checksum(run_finished(ended), 2, timestamp),
    }


def _is_unchanged(workspace: Workspace, file: str, sha256: str) -> bool:
    try:
        return workspace.has_digest(file, sha256)
    except SafetyError:  # a link replaced one of its folders
        return False


def _program(plugins: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    """Return the folders of installed modules and libraries, and the files of all other modules, such as plugins."""
    libraries = [
        Path(folder) for folder in dict.fromkeys(sys.path) if folder.endswith(("site-packages", "dist-packages"))
    ]
    tops = {"orch23", "orch23_checks"} | plugin_modules(plugins)
    modules = {
        file
        for name, module in sys.modules.items()
        if name.partition(".")[0] in tops and (file := getattr(module, "__file__", None))
    }
    # An installer replaces files, which changes their folder: one `lstat` instead of one for each module.
    prefixes = tuple(f"{folder}/" for folder in libraries)
    installed = {file for file in modules if file.startswith(prefixes)}
    return [*libraries, *sorted({Path(file).parent for file in installed})], sorted(modules - installed)
