"""The action of `affected`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import open_wanted
from orch23.cli.wiring import Project, open_reading, swap_of
from orch23.engine.affected import affected_stages
from orch23.engine.made import BytesOf, Made, made_by
from orch23.engine.memory import lock_path
from orch23.engine.moment import Keying, Moment
from orch23.engine.preview import preview
from orch23.execute.git import Revision, open_revision
from orch23.load.pipeline import parse_pipeline
from orch23.load.yaml_text import decode
from orch23.model.affected import Affected
from orch23.model.decision import Fresh, Restore
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import CorruptStateError, ExitCode, MissingBytesError, NotFoundError, Orch23Error
from orch23.model.pipeline import Pipeline
from orch23.model.record import LockFile, Record
from orch23.report.affected import affected_json, affected_text
from orch23.store.author_files import AuthorFiles
from orch23.store.lock_file import parse_lock, read_lock


def run(
    console: Console,
    *,
    wanted: Wanted,
    revision: str,
    as_json: bool,
    exit_code: bool,
) -> int:
    """Name the stages whose keys differ since a git revision, and those after them."""
    project, _ = open_wanted(console, wanted, most_stages=0)
    with open_revision(project.store.root, revision) as then:
        found = _compare(project, then, revision)
    console.answer(affected_json(found) if as_json else affected_text(found))
    return ExitCode.FAILED if exit_code and (found.stages or found.removed) else ExitCode.OK


def _compare(project: Project, revision: Revision, name: str) -> Affected:
    pipeline, root, machinery = project.pipeline, project.store.root, project.machinery
    place = lock_path(root, pipeline.file)
    lock, lock_then = read_lock(place), _lock_at(revision, place.relative_to(root).as_posix())
    before = _pipeline_at(project, revision)
    settled, is_dead = _settled(project)
    lock = LockFile({**lock.records, **settled})
    keying = Keying(
        facts_of=machinery.facts_of,
        sources_of=lambda moment: AuthorFiles(root, moment),
        read_yaml=machinery.read_yaml,
    )
    disk, paths, bytes_of = (
        project.store.workspace,
        made_by((before, pipeline), (lock, lock_then)),
        _bytes_of(project, revision),
    )
    made_now = partial(Made, paths=paths, lock=lock, files=disk, bytes_of=bytes_of, is_dead=is_dead)
    now = keying.keyed(pipeline, lambda plan: Moment(disk, made_now(plan=plan)))
    made_then = partial(Made, paths=paths, lock=lock_then, files=revision, bytes_of=bytes_of, today=now.made)
    then = None if before is None else keying.keyed_then(before, lambda plan: Moment(revision, made_then(plan=plan)))
    stages, removed = affected_stages(then, now, settled)
    return Affected(
        name=pipeline.name,
        file=pipeline.file,
        since=name,
        commit=revision.commit,
        count=len(now.plan.nodes),
        stages=stages,
        removed=removed,
        comparable=then is not None,
    )


def _settled(project: Project) -> tuple[dict[str, Record], Callable[[str], bool]]:
    """Return the results that a plan takes as today's, by stage, and whether a file is about to be removed.

    Nothing of both where the plan has errors.
    """
    try:
        session = open_reading(project)
        decisions = preview(session).decisions
    except (Orch23Error, MissingBytesError):
        return {}, lambda _path: False
    found = {name: one.record for name, one in decisions.items() if isinstance(one, Fresh | Restore)}
    return found, session.world.dead


def _bytes_of(project: Project, revision: Revision) -> BytesOf:
    """Return where the bytes of a made file are looked for: in the store, on disk, in git. Nothing is fetched."""

    def bytes_of(path: str, entry: FileEntry) -> bytes | None:
        try:
            return project.store.sources.read(path, entry)
        except MissingBytesError:
            pass
        try:
            data = revision.read(path)
        except NotFoundError:  # a partial clone
            return None
        return data if data is not None and digest_bytes(data) == entry.digest else None

    return bytes_of


def _pipeline_at(project: Project, revision: Revision) -> Pipeline | None:
    """Return the pipeline as it was, with the vars of the command line; None if there was none, or an invalid one."""
    settings, file = project.settings, project.pipeline.file
    text = _text_at(revision, file)
    if text is None:
        return None
    vars_name = "" if settings.vars_file is None else _below(settings.vars_file, settings.root)
    return parse_pipeline(
        text,
        file,
        sets=settings.sets,
        vars_text=_text_at(revision, vars_name) if vars_name else None,
        vars_name=vars_name,
        swap=swap_of(settings),
    ).pipeline


def _lock_at(revision: Revision, path: str) -> LockFile:
    """Return the lock file as it was; empty if there was none, or a damaged one: it only says what is made."""
    data = revision.read(path)
    try:
        return LockFile() if data is None else parse_lock(data, path)
    except CorruptStateError:
        return LockFile()


def _text_at(revision: Revision, path: str) -> str | None:
    data = revision.read(path)
    if data is None:
        return None
    text, refused = decode(data, path)
    return None if refused else text


def _below(path: Path, root: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()
