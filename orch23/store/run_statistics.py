"""Read durations and token counts of earlier runs from journals, for estimates.

A damaged line is skipped here: estimates can do without it. `read_journal` reports damage.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct

from orch23.model.event import LlmRequest, LlmResponse, StageFinished
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import family_of
from orch23.store.run_logs import past_events, pipeline_journals, stage_mark

_MAX_RUNS = 5
# With more names than this, it is faster to parse all lines than to search each line for all names.
_MAX_NAMES = 64
# Only the first bytes of a journal are read: `plan` must not wait for the journals of very long runs.
_MAX_JOURNAL_BYTES = 8_000_000


class StageStatistics(Struct, frozen=True, kw_only=True):
    """The seconds of each build of a stage, and the (input, output) tokens of each response; newest run first."""

    durations_s: tuple[float, ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()


def read_statistics(
    logs: Path, pipeline_file: str, stages: Collection[str], models: Mapping[str, Collection[str]]
) -> Mapping[str, StageStatistics]:
    """Return the statistics of these stages in a pipeline's 5 newest runs; those of a foreach cover all of its items.

    `models` has the models of a stage, by its name without the item, as `provider model`: its calls of others do not
    count, since they say nothing about these. A stage that is not among them calls any.
    """
    durations_s: defaultdict[str, list[float]] = defaultdict(list)
    tokens: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    marks = {stage_mark(family_of(name)) for name in stages}
    marks = marks if len(marks) < _MAX_NAMES else set()
    kinds = (StageFinished, LlmResponse, LlmRequest)
    for path in islice(pipeline_journals(logs, pipeline_file), _MAX_RUNS):
        others = set[str]()  # stages that have called another model in this run
        for line, data in past_events(path, *kinds, marks=marks, max_bytes=_MAX_JOURNAL_BYTES):
            role, family = line.event.role, family_of(line.event.role)
            if isinstance(data, LlmRequest):
                model = f"{data.provider} {data.model}"
                if model not in models.get(family, (model,)):
                    others.add(role)
            for name in {role, family} if role not in others else ():
                match data:
                    case LlmResponse(input_tokens=given, output_tokens=written) if given or written:
                        tokens[name].append((given, written))
                    # Recorded responses are quick: their duration says nothing about a build that calls a model.
                    case StageFinished(status=StageStatus.BUILT, recorded=0, duration_s=float() as seconds):
                        durations_s[name].append(seconds)
    return {
        name: StageStatistics(durations_s=tuple(durations_s[name]), tokens=tuple(tokens[name]))
        for name in durations_s.keys() | tokens.keys()
    }


def statistics_of(past: Mapping[str, StageStatistics], stage: str) -> StageStatistics:
    """Return the statistics of a stage; if it never ran, those of the other items of its foreach."""
    return past.get(stage) or past.get(family_of(stage)) or StageStatistics()
