"""Read metrics files in the workspace, at a git revision, or as a run left them, by the journals and from the store."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import UNSET, Struct

from orch23.cli.project_loading import Project, model_override_of, read_yaml
from orch23.decide.list_expansion import expand_each, first_plan
from orch23.execute.git_revision import GitRevision, lock_at
from orch23.features.metrics.revision_view import ReadEntry
from orch23.features.metrics.values import (
    MAX_METRICS_BYTES,
    ComparedState,
    MetricsError,
    MetricValues,
    over_size,
    read_metrics,
)
from orch23.load.pipeline import parse_pipeline
from orch23.load.yaml_errors import decode_text
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.errors import InvalidInputError, MissingBytesError, NotFoundError, SafetyError
from orch23.model.event import StageFinished
from orch23.model.parsing import YamlReader
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.ports import ContentStore
from orch23.store.lock_file import lock_path
from orch23.store.run_logs import past_events, pipeline_journals
from orch23.store.safe_files import read_and_close

# `report` must not read the journals of years to find a pipeline without metrics.
_MAX_JOURNALS = 500


class StageFile(Struct, frozen=True):
    """A metrics file of a run: the stage that has it, and the SHA-256 of its bytes."""

    stage: str
    sha256: str


class RunMetrics(Struct, frozen=True):
    """The metrics files of the stages that were up to date at the end of a run, by path.

    Stages that did not take part in the run, since nothing had affected them, are not named.
    """

    run_id: str
    files: Mapping[str, StageFile]


def runs_with_metrics(logs: Path, pipeline_file: str, newest: str) -> Iterator[RunMetrics]:
    """Yield the runs of a pipeline that name metrics files, from the run `newest` on, newest first.

    At most 500 journals are read. A damaged line is skipped: comparisons can do without it.
    """
    for path in islice(pipeline_journals(logs, pipeline_file, newest), _MAX_JOURNALS):
        # Items of a chain may write the same path: the last one wrote what is there now.
        files: dict[str, StageFile] = {}
        for line, end in past_events(path, StageFinished, marks=(b'"metrics":{',)):
            files |= files_of(line.event.role, end)
        if files:
            yield RunMetrics(path.stem, files)


def stage_keys(logs: Path, pipeline_file: str, newest: str, stages: Collection[str]) -> dict[str, str]:
    """Return the keys with which stages were up to date at the end of the run `newest`, as far as journals name them.

    They lead to the results of runs for which no metrics were declared.
    """
    found: dict[str, str] = {}
    for path in islice(pipeline_journals(logs, pipeline_file, newest), _MAX_JOURNALS):
        if found.keys() >= set(stages):
            break
        ends = {line.event.role: end for line, end in past_events(path, StageFinished)}
        green = {stage: end.key for stage, end in ends.items() if stage in stages and end.status.is_green and end.key}
        found = {**green, **found}
    return found


def files_of(stage: str, ended: StageFinished) -> dict[str, StageFile]:
    """Return the metrics files that the end of a stage names, by path."""
    named = {} if ended.metrics is UNSET else ended.metrics
    return {path: StageFile(stage, sha256) for path, sha256 in named.items()}


def stored_metrics(contents: ContentStore, sha256: str) -> bytes:
    """Return the bytes of a metrics file in the store.

    Raises:
        MetricsError: they are not there, or too many.
    """
    data = b""
    try:
        for chunk in contents.get_chunks(Digest(sha256, 0)):
            data += chunk
            if len(data) > MAX_METRICS_BYTES:
                raise MetricsError(over_size())
    except MissingBytesError:
        message = "is no longer in the store"
        raise MetricsError(message, is_lost=True) from None
    return data


def bytes_of_artifacts(project: Project, revision: GitRevision) -> ReadEntry:
    """Return the reader of artifacts: from the store, the working tree or git. Fetches nothing."""

    def bytes_of(path: str, entry: FileEntry) -> bytes | None:
        # The store first: it has the bytes of results that were never committed.
        with suppress(MissingBytesError):
            return project.store.sources.read(path, entry)
        data = None
        with suppress(NotFoundError):  # a partial clone does not have it
            data = revision.read(path)
        return data if data is not None and digest_bytes(data) == entry.digest else None

    return bytes_of


def pipeline_at(project: Project, revision: GitRevision) -> Pipeline | None:
    """Return the pipeline at a revision, with the vars of the command line; None if it is missing or not valid."""
    settings, file = project.settings, project.pipeline.file
    text = _text_at(revision, file)
    if text is None:
        return None
    vars_file = settings.vars_file
    vars_name = "" if vars_file is None else vars_file.resolve().relative_to(settings.root.resolve()).as_posix()
    return parse_pipeline(
        text,
        file,
        sets=settings.sets,
        vars_text=_text_at(revision, vars_name) if vars_name else None,
        vars_name=vars_name,
        override=model_override_of(settings),
    ).pipeline


def _text_at(revision: GitRevision, path: str) -> str | None:
    data = revision.read(path)
    if data is None:
        return None
    text, refused = decode_text(data, path)
    return None if refused else text


def declared_metrics(
    pipeline: Pipeline, read: Callable[[str], bytes | None], read_yaml: YamlReader
) -> Mapping[str, str]:
    """Return the stage of each metrics file, by path, in the order of the pipeline. `read` returns a file's bytes.

    A foreach whose list does not exist, or has errors, has no metrics files.

    Raises:
        InvalidInputError: the graph has errors.
    """
    if not any("metrics" in one.body if isinstance(one, ForeachStage) else one.metrics for one in pipeline.stages):
        return {}
    plan, problems = first_plan(pipeline, lambda *where: read(where[-1]), read_yaml)
    if plan is None:
        raise InvalidInputError(*problems)
    for one in expand_each(plan, lambda *where: read(where[-1]), read_yaml):
        plan = one.plan
    place = {stage.name: number for number, stage in enumerate(pipeline.stages)}
    nodes = (plan.nodes[name] for name in sorted(plan.order, key=lambda name: place[family_of(name)]))
    return {path: node.name for node in nodes if isinstance(node, Stage) for path in node.metrics}


class MetricsState(Struct, frozen=True, kw_only=True):
    """The metrics files in one state of the project: which it declares, with their stages, and how they are read.

    `read` returns None if there is no file, and raises MetricsError if it cannot be read.
    """

    state: ComparedState
    declared: Mapping[str, str]
    read: Callable[[str], bytes | None]

    def values(self, path: str) -> MetricValues | None:
        """Return the values of a file; None if there is no such file.

        Raises:
            MetricsError: the file cannot be read.
        """
        data = self.read(path)
        return None if data is None else read_metrics(data, path, read_yaml)


def workspace_metrics(project: Project) -> MetricsState:
    """Return the metrics files on disk.

    Raises:
        InvalidInputError: the graph of the pipeline has errors.
    """
    workspace = project.store.workspace

    def read(path: str) -> bytes | None:
        try:
            descriptor = workspace.open(path)
        except SafetyError as error:
            raise MetricsError(error.diagnostics[0].message) from error
        return None if descriptor is None else read_and_close(descriptor, MAX_METRICS_BYTES + 1)

    declared = declared_metrics(project.pipeline, workspace.read, read_yaml)
    return MetricsState(state=ComparedState(kind="workspace"), declared=declared, read=read)


def revision_metrics(project: Project, revision: GitRevision, name: str) -> MetricsState:
    """Return the metrics files at a revision: those that are committed, else those of the lock file there.

    If the pipeline there is missing or not valid, it declares none.
    """
    lock = lock_path(project.store.root, project.pipeline.file).relative_to(project.store.root).as_posix()
    recorded = {path: entry for one in lock_at(revision, lock).records.values() for path, entry in one.outputs.items()}

    def read(path: str) -> bytes | None:
        data = None
        with suppress(NotFoundError):  # a partial clone does not have it
            data = revision.read(path)
        if data is None and path in recorded:
            return stored_metrics(project.store.contents, recorded[path].digest.sha256)
        return data

    def read_list(path: str) -> bytes | None:
        with suppress(MetricsError):
            return read(path)
        return None

    declared: Mapping[str, str] = {}
    with suppress(InvalidInputError):
        pipeline = pipeline_at(project, revision)
        declared = {} if pipeline is None else declared_metrics(pipeline, read_list, read_yaml)
    state = ComparedState(kind="revision", name=name, id=revision.commit)
    return MetricsState(state=state, declared=declared, read=read)


def run_metrics(project: Project, run: str, name: str, wanted: Mapping[str, str]) -> MetricsState:
    """Return the metrics files as a run left them; `wanted` are files with their stages that may be asked for.

    A file that the run did not name is the same as after the run before it: nothing had affected its stage.
    """
    logs, file = project.store.logs, project.pipeline.file
    own: Mapping[str, StageFile] = {}
    digests: dict[str, str] = {}
    for number, one in enumerate(runs_with_metrics(logs, file, run)):
        if one.run_id == run:
            own = one.files
        elif number and not wanted.keys() - digests.keys():
            break
        digests = {**{path: file.sha256 for path, file in one.files.items()}, **digests}
    missing = {path: stage for path, stage in wanted.items() if path not in digests}
    recorded = _recorded(project, run, missing) if missing else {}

    def read(path: str) -> bytes | None:
        candidates = {digests[path]} if path in digests else recorded.get(path, set())
        if len(candidates) > 1:
            message = "is not known: metrics were not declared, and its stage had several results with the same key"
            raise MetricsError(message, is_lost=True)
        return stored_metrics(project.store.contents, candidates.pop()) if candidates else None

    declared = {path: one.stage for path, one in own.items()}
    return MetricsState(state=ComparedState(kind="run", name=name, id=run), declared=declared, read=read)


def _recorded(project: Project, run: str, missing: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the digests that files may have had when a run ended that did not name them, by the keys of their stages.

    A stage that ran several times with one key may have several results.
    """
    keys = stage_keys(project.store.logs, project.pipeline.file, run, set(missing.values()))
    known = {path: project.store.records.by_key(keys[stage]) for path, stage in missing.items() if stage in keys}
    return {
        path: {one.outputs[path].digest.sha256 for one in records if path in one.outputs}
        for path, records in known.items()
    }
