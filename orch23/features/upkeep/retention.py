"""What `gc` keeps: the limits of `--keep`, and what lock files, runs and plans need; and what a build says of it."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from orch23.cli.project_loading import Project, ProjectSettings, open_for_reading, open_project
from orch23.cli.store_size import current_size
from orch23.decide.dry_run import Preview, preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.engine.build import Build
from orch23.features.upkeep.garbage_collection import GarbageCollector, GcLimits, GcRoots
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import CorruptStateError, Orch23Error, UsageError
from orch23.model.event import Event, StageDecided, StageFinished, StageStarted, StageWithheld, Warned
from orch23.model.plan import Fresh, Restore, VerifyOnly
from orch23.report.values import format_size
from orch23.store.lock_file import find_lock_files, lock_path, read_lock
from orch23.store.project_store import DEFAULT_CAP_BYTES, KEEP_VARIABLE, ProjectStore
from orch23.store.run_logs import journal_paths, journal_pipeline, latest_runs

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(B|[KMGT]I?B)", re.IGNORECASE | re.ASCII)
_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?([mhdw])", re.ASCII)
_RUNS = re.compile(r"(\d{1,9}) ?runs?", re.ASCII)
_POWERS = "BKMGT"
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NS = 1_000_000_000
ReplayNeeds: TypeAlias = Callable[[Project, OpenPipeline, Preview], GcRoots]
"""Return what a replay of a pipeline needs."""

# The user is warned only if `gc` would free more than this fraction of the limit.
_WARN_SHARE = 100
_WITH_KEY = (StageDecided, StageStarted, StageWithheld, StageFinished)


def parse_keep(texts: Sequence[str], now_ns: int, *, answers: bool = False) -> GcLimits:
    """Return the limits of `--keep`: at most one size, one age and one number of runs, with their defaults.

    Raises:
        UsageError: a text is none of these, or there are two of a kind.
    """
    found: dict[str, int] = {}
    for text in texts:
        kind, number = _limit(text)
        if kind in found:
            hint = "give at most one size, one age and one number of runs"
            raise UsageError(Diagnostic("E641", f"`--keep` was given two {kind}s", hint=hint))
        found[kind] = number
    age = found.get("age")
    return GcLimits(
        max_bytes=found.get("size", None if age is not None else DEFAULT_CAP_BYTES),
        used_since_ns=None if age is None else now_ns - age,
        runs=found.get("run number", GcLimits().runs),
        responses=answers,
    )


def size_limit(environ: Mapping[str, str]) -> int | None:
    """Return the size limit of the store, from the environment or the default; None if only an age is set."""
    texts = environ.get(KEEP_VARIABLE, "").split()
    try:
        return parse_keep(texts, 0).max_bytes
    except UsageError:  # `orch23 gc` reports it
        return DEFAULT_CAP_BYTES


def _limit(text: str) -> tuple[str, int]:
    """Return `size` and bytes, `age` and nanoseconds, or `run number` and a number."""
    if (runs := _RUNS.fullmatch(text.strip())) is not None:
        return "run number", int(runs[1])
    if (size := _SIZE.fullmatch(text.strip())) is not None:
        unit = size[2].upper()
        return "size", int(float(size[1]) * (1024 if "I" in unit else 1000) ** _POWERS.index(unit[0]))
    if (age := _AGE.fullmatch(text.strip())) is not None:
        return "age", int(float(age[1]) * _SECONDS[age[2]] * _NS)
    hint = "write a size such as `5GB` or `800MiB`, an age such as `12h`, `30d` or `8w`, or a number such as `20runs`"
    raise UsageError(Diagnostic("E641", f"`--keep {text}` is no size, age or number of runs", hint=hint))


def warn_of_full_store(store: ProjectStore, build: Build, environ: Mapping[str, str], now_s: int) -> None:
    """Warn if the store is larger than its limit, with what `orch23 gc` would free. Only under the build lock."""
    limit = size_limit(environ)
    if limit is None or current_size(store, limit, now_s) <= limit:
        return
    # Only the plan of this pipeline is known: a full plan of each pipeline, as in `gc`, would slow down every build.
    keys = frozenset(record.key for record in build.opened.state.results.values())
    try:
        chosen = GarbageCollector(store).select(
            _lock_needs(store.root, *find_lock_files(store.root), keys), GcLimits(max_bytes=limit)
        )
    except Orch23Error:  # another pipeline's lock file is damaged: `orch23 gc` reports it
        return
    if chosen.freed_bytes > limit // _WARN_SHARE:
        message = (
            f"the store holds {format_size(chosen.size_bytes)}, over {format_size(limit)}: "
            f"`orch23 gc` would free up to {format_size(chosen.freed_bytes)}"
        )
        build.observer.notice(Event(Warned(), message, level="warning"))


def _lock_needs(root: Path, locks: Collection[Path], pipelines: Collection[str], keys: frozenset[str]) -> GcRoots:
    paths = sorted({*locks, *(lock_path(root, name) for name in pipelines)})
    records = tuple(record for path in paths for record in read_lock(path).records.values())
    return GcRoots(keys=keys | {record.key for record in records}, records=records)


def project_needs(
    root: Path, logs: Path, environ: Mapping[str, str], replay_needs: ReplayNeeds | None = None
) -> GcRoots:
    """Return what all pipelines of a project need, by their lock files, journals and current plans.

    With `replay_needs`, also what replays need; without the plan of one pipeline, that is not known.

    Raises:
        CorruptStateError: a lock file or a journal is damaged, so the roots are not known.
    """
    locks, pipelines = find_lock_files(root, b"" if replay_needs is None else b"transcripts")
    pipelines |= {name for path in journal_paths(logs) if (name := journal_pipeline(path)) and (root / name).is_file()}
    parts = [_lock_needs(root, locks, pipelines, frozenset())]
    for name in sorted(pipelines):
        settings = ProjectSettings(root=root, pipeline_path=root / name, environ=environ)
        parts += [_journal_needs(logs, name), _plan_needs(settings, name, replay_needs)]
    found: dict[str, Any] = {}
    for name in GcRoots.__struct_fields__:
        kind = tuple if name in ("records", "notes") else frozenset
        found[name] = kind(chain.from_iterable(getattr(part, name) for part in parts))
    return GcRoots(**{**found, "transcripts": frozenset() if found["notes"] else found["transcripts"]})


def _journal_needs(logs: Path, name: str) -> GcRoots:
    # Results of a run are in the lock file when it ends; a run that was killed has them only in its journal.
    runs = latest_runs(logs, name)
    events = (line.event.data for _, lines in runs for line in lines)
    keys = frozenset(data.key for data in events if isinstance(data, _WITH_KEY))
    return GcRoots(keys=keys, runs=frozenset(run for run, _ in runs))


def _plan_needs(settings: ProjectSettings, name: str, replay_needs: ReplayNeeds | None) -> GcRoots:
    try:
        project = open_project(settings)
        # Also what the next build would use is kept, although no lock file has it yet.
        with closing(project.git):
            opened = open_for_reading(project)
            seen = preview(opened)
            replay = GcRoots() if replay_needs is None else replay_needs(project, opened, seen)
    # Damage stops `gc`: it could remove what is needed. A pipeline with errors keeps what its lock file names.
    except CorruptStateError:
        raise
    except Orch23Error as error:
        why = error.diagnostics[0].message
        note = f"{name} cannot be planned ({why}): what its lock file and its last run need is kept"
        return GcRoots(notes=(note,))
    decisions = seen.decisions.values()
    records = tuple(one.record for one in decisions if isinstance(one, Fresh | Restore | VerifyOnly))
    keys = {decided.resolved.key for decided in seen.decided_stages.values()}
    stale = (stage.partition("@")[0] for stage, one in seen.decisions.items() if not isinstance(one, Fresh))
    return replace(
        replay,
        keys=frozenset(keys | {record.key for record in records}),
        records=records,
        stale=replay.stale | frozenset(stale),
    )
