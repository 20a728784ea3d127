"""Read from journals which metrics files runs had, and these files from the store."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import UNSET, Struct

from orch23.features.metrics.values import MAX_METRICS_BYTES, MetricsError, over_size
from orch23.model.digest import Digest
from orch23.model.errors import MissingBytesError
from orch23.model.event import StageFinished
from orch23.model.ports import ContentStore
from orch23.store.run_logs import past_events, pipeline_journals

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
