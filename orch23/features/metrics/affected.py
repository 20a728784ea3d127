"""Run `affected`: list the stages whose keys differ since a git revision."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.opening import open_for_command
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview, preview
from orch23.decide.ownership import check_left_out
from orch23.decide.project_state import ObsoleteFiles
from orch23.execute.git_revision import GitRevision, lock_at, open_revision
from orch23.features.metrics.revision_view import (
    AffectedStage,
    ManifestReader,
    PlanManifests,
    RevisionArtifacts,
    RevisionView,
    artifact_paths,
    compare_manifests,
)
from orch23.features.metrics.states import bytes_of_artifacts, pipeline_at
from orch23.model.errors import (
    ConfigurationError,
    ExitCode,
    InvalidInputError,
    MissingBytesError,
    Orch23Error,
    SafetyError,
)
from orch23.model.parsing import from_struct
from orch23.model.plan import Done, Fresh, Restore
from orch23.model.record import LockFile
from orch23.model.text import visible
from orch23.report.plan_json import reason_document
from orch23.report.plan_view import first_reason, reason_text
from orch23.report.values import json_document
from orch23.resolve.resolution import is_discovered
from orch23.store.input_files import AuthorFiles
from orch23.store.lock_file import lock_path, read_lock


class AffectedStages(Struct, frozen=True, kw_only=True, rename={"file": "pipeline"}):
    """The affected stages in the order of the plan, out of `count`; `removed` are stages that only the revision has.

    `comparable` is false if the revision has no such pipeline, or an invalid one: then every stage is new.
    """

    name: str
    file: str
    since: str
    commit: str
    comparable: bool
    stages: tuple[AffectedStage, ...]
    removed: tuple[str, ...]
    count: int


def _affected_text(affected: AffectedStages) -> str:
    since = f"{visible(affected.since)} ({affected.commit[:12]})"
    if not affected.stages and not affected.removed:
        return f"{affected.name}: no stage is affected since {since}\n"
    head = f"{affected.name}: {len(affected.stages)} of {affected.count} stages are affected since {since}"
    lines = [head if affected.comparable else f"{head}: {affected.file} is missing or not valid there"]
    width = max((len(one.stage) for one in affected.stages), default=0)
    lines += [f"  {one.stage:{width}}  {_why(one)}" for one in affected.stages]
    lines += [f"  {name:{width}}  no longer declared" for name in affected.removed]
    return "".join(f"{line}\n" for line in lines)


def _affected_json(affected: AffectedStages) -> str:
    document = from_struct(affected)
    del document["count"]
    stages = [{**from_struct(one), "reasons": [*map(reason_document, one.reasons)]} for one in affected.stages]
    return json_document({"orch23_affected": 1, **document, "stages": stages})


def _why(one: AffectedStage) -> str:
    match one.why:
        case "added":
            return "new"
        case "changed":
            return first_reason(tuple(reason_text(reason) for reason in one.reasons))
        case "downstream":
            return f"after {', '.join(one.after)}"


def list_affected(console: Console, *, args: PipelineArguments, revision: str, as_json: bool, exit_code: bool) -> int:
    """List stages that changed since a git revision."""
    project, _ = open_for_command(console, args, most_stages=0)
    check_left_out(project.git, project.pipeline, project.pipeline.stages)
    with open_revision(project.store.root, revision) as then:
        found = _compare(project, then, revision)
    console.write_out(_affected_json(found) if as_json else _affected_text(found))
    return ExitCode.FAILED if exit_code and (found.stages or found.removed) else ExitCode.OK


def _compare(project: Project, revision: GitRevision, name: str) -> AffectedStages:
    pipeline, root, tools = project.pipeline, project.store.root, project.tools
    place = lock_path(root, pipeline.file)
    lock, lock_then = read_lock(place), lock_at(revision, place.relative_to(root).as_posix())
    before = pipeline_at(project, revision)
    build = _previewed(project)
    # Results that a build would take today count as built, even if the lock file is older.
    decided, ends = ({}, {}) if build is None else (build.decided_stages, build.decisions)
    taken = {name: end.record for name, end in ends.items() if isinstance(end, Fresh | Restore)}
    lock = LockFile({**lock.records, **taken})
    is_dead = (lambda _path: False) if build is None else ObsoleteFiles(build.state).is_obsolete
    reader = ManifestReader(
        facts_of=tools.facts_of, sources_of=lambda view: AuthorFiles(view.read), read_yaml=tools.read_yaml
    )
    disk, bytes_of = project.store.workspace, bytes_of_artifacts(project, revision)
    # Artifacts are compared by the lock files: the working tree has only the current ones.
    paths = artifact_paths((before, pipeline), (lock, lock_then))
    artifacts = partial(RevisionArtifacts, paths=paths, bytes_of=bytes_of)
    now = reader.manifests_of(
        pipeline, lambda plan: RevisionView(disk, artifacts(plan=plan, lock=lock, files=disk, is_dead=is_dead))
    )
    then = None
    if before is not None:
        old = partial(artifacts, lock=lock_then, files=revision, today=now.artifacts)
        with suppress(InvalidInputError, ConfigurationError, SafetyError):  # of the pipeline then, or of lost files
            then = reader.manifests_of(before, lambda plan: RevisionView(revision, old(plan=plan)))
            then, now = _with_discovered(then, lock_then, now, decided)
    stages, removed = compare_manifests(then, now, taken)
    return AffectedStages(
        name=pipeline.name,
        file=pipeline.file,
        since=name,
        commit=revision.commit,
        count=len(now.plan.nodes),
        stages=stages,
        removed=removed,
        comparable=then is not None,
    )


def _previewed(project: Project) -> Preview | None:
    """Return what a build would do; None if the plan has errors."""
    with suppress(Orch23Error, MissingBytesError):
        return preview(open_for_reading(project))
    return None


def _with_discovered(
    then: PlanManifests, lock: LockFile, now: PlanManifests, decided: Mapping[str, DecidedStage]
) -> tuple[PlanManifests, PlanManifests]:
    """Return the manifests with the aspects that runs found, as the lock file of then and today's decisions name them.

    A stage that is done has the manifest of then: nothing of it is looked at any more.
    """
    before, today = {**then.manifests}, {**now.manifests}
    for name in before.keys() & decided.keys() & lock.records.keys():
        resolved = decided[name].resolved
        for manifests, found in ((before, lock.records[name].manifest), (today, resolved.manifest)):
            more = {aspect: value for aspect, value in found.items() if is_discovered(resolved.stage, aspect)}
            manifests[name] = {**manifests[name], **more}
            if resolved.stage.depfile:  # of its inputs, those count that the result names
                mine = manifests[name].items()
                manifests[name] = {one: value for one, value in mine if one in found or not one.startswith("input:")}
        if isinstance(decided[name].decision, Done):
            today[name] = before[name]
    return replace(then, manifests=before), replace(now, manifests=today)
