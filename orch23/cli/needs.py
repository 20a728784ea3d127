"""Find every pipeline of a project, and what their lock files and today's plans need of the store."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from orch23.cli.wiring import Settings, open_project, open_reading
from orch23.engine.memory import lock_path
from orch23.engine.preview import preview
from orch23.model.decision import Fresh, Restore, VerifyOnly
from orch23.model.errors import CorruptStateError, Orch23Error
from orch23.model.event import StageDecided, StageFinished, StageHeld, StageStarted
from orch23.model.record import Record
from orch23.store.collection import Needs
from orch23.store.journal import interrupted_journals, journals, newest_journal, pipeline_of
from orch23.store.lock_file import read_lock
from orch23.store.lock_files import files_of


class _Found(Struct):
    """What is needed, as far as it was found."""

    keys: set[str] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def needs_of(root: Path, logs: Path, environ: Mapping[str, str]) -> Needs:
    """Return what all pipelines of a project need: by their lock files, by what runs left, by today's plans.

    Raises:
        CorruptStateError: a lock file or a journal is damaged, so what is needed is not known.

    """
    found = _Found()
    locks, pipelines = files_of(root)
    pipelines |= {name for path in journals(logs) if (name := pipeline_of(path)) and (root / name).is_file()}
    locks |= {lock_path(root, name) for name in pipelines}
    for path in sorted(locks):
        for record in read_lock(path).records.values():
            found.keys.add(record.key)
            found.records.append(record)
    for name in sorted(pipelines):
        _by_journals(found, logs, name)
        _by_plan(found, Settings(root=root, pipeline_path=root / name, environ=environ), name)
    return Needs(
        keys=frozenset(found.keys),
        records=tuple(found.records),
        stale=frozenset(found.stale),
        notes=tuple(found.notes),
    )


def _by_journals(found: _Found, logs: Path, name: str) -> None:
    """Take the results of the newest run, and of those that were cut off: no lock file may have them yet."""
    runs = [newest_journal(logs, name), *(lines for _, lines in interrupted_journals(logs, name))]
    for line in (line for lines in runs for line in lines):
        match line.event.data:
            case StageDecided(key=key) | StageStarted(key=key) | StageHeld(key=key) | StageFinished(key=key):
                found.keys.add(key)
            case _:
                pass


def _by_plan(found: _Found, settings: Settings, name: str) -> None:
    try:
        project = open_project(settings)
        try:
            seen = preview(open_reading(project))
        finally:
            project.git.close()
    except CorruptStateError:
        raise
    except Orch23Error as error:
        why = error.diagnostics[0].message
        found.notes.append(f"{name} cannot be planned ({why}): what its lock file and its last run need is kept")
        return
    found.keys |= {appraised.resolved.key for appraised in seen.appraised.values()}
    for stage, decision in seen.decisions.items():
        if isinstance(decision, Fresh | Restore | VerifyOnly):
            found.records.append(decision.record)
            found.keys.add(decision.record.key)
        if not isinstance(decision, Fresh):
            found.stale.add(stage.partition("@")[0])
