"""Read durations and token counts of earlier runs from journals, for estimates.

A damaged line is skipped here: estimates can do without it. `read_journal` reports damage.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.model.parsing import JsonObject, NaturalNumber, parse_stored, to_struct
from orch23.model.stage_status import StageStatus
from orch23.store.run_logs import journal_paths

MAX_RUNS = 5
# With more names than this, it is faster to parse all lines than to search each line for all names.
_MAX_NAMES = 64
# Only the first bytes of a journal are read: `plan` must not wait for the journals of very long runs.
_MAX_JOURNAL_BYTES = 8_000_000
_KINDS = (b'"type":"stage_finished"', b'"type":"llm_response"')


class StageStatistics(Struct, frozen=True, kw_only=True):
    """Of a stage, newest run first: the seconds of each build, and the (input, output) tokens of each response."""

    durations_s: tuple[float, ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()


_NOTHING = StageStatistics()


class _Line(Struct, frozen=True):
    type: str
    role: str
    data: JsonObject


class _Began(Struct, frozen=True):
    pipeline: str


class _Response(Struct, frozen=True):
    input_tokens: NaturalNumber = 0
    output_tokens: NaturalNumber = 0


class _Ended(Struct, frozen=True):
    status: StageStatus
    duration_s: float | None = None
    calls: int = 0
    recorded: int = 0


_Form = TypeVar("_Form", bound=Struct)


class _Found(Struct):
    durations_s: list[float] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)


def read_statistics(
    logs: Path, pipeline_file: str, stages: Collection[str], newest: int = MAX_RUNS
) -> Mapping[str, StageStatistics]:
    """Return the statistics of these stages in a pipeline's newest runs; those of a foreach cover all of its items."""
    found: dict[str, _Found] = {}
    families = {json.dumps(name.partition("@")[0], ensure_ascii=False)[:-1].encode() for name in stages}
    about = tuple(b'"role":' + family for family in families)
    for data in _journals_of(logs, pipeline_file, newest):
        for event in _events(data, about if len(about) < _MAX_NAMES else (b'"role":',)):
            for name in dict.fromkeys((event.role, event.role.partition("@")[0])):
                _note(found.setdefault(name, _Found()), event)
    pasts = {
        name: StageStatistics(durations_s=tuple(one.durations_s), tokens=tuple(one.tokens))
        for name, one in found.items()
    }
    return {name: past for name, past in pasts.items() if past != _NOTHING}


def statistics_of(past: Mapping[str, StageStatistics], stage: str) -> StageStatistics:
    """Return the statistics of a stage; if it never ran, those of the other items of its foreach."""
    return past.get(stage) or past.get(stage.partition("@")[0]) or _NOTHING


def _journals_of(logs: Path, pipeline_file: str, newest: int) -> Iterator[bytes]:
    left = newest
    for path in journal_paths(logs):
        if left == 0:
            return
        try:
            with path.open("rb") as stream:
                first = _parsed(stream.readline())
                began = None if first is None else _decoded(first.data, _Began)
                if began is None or began.pipeline != pipeline_file:
                    continue
                yield stream.read(_MAX_JOURNAL_BYTES)
        except OSError:
            continue
        left -= 1


def _events(data: bytes, about: tuple[bytes, ...]) -> Iterator[_Line]:
    for line in data.split(b"\n"):
        if not any(role in line for role in about) or not any(kind in line for kind in _KINDS):
            continue
        if (event := _parsed(line)) is not None:
            yield event


def _note(found: _Found, event: _Line) -> None:
    if event.type == "llm_response":
        response = _decoded(event.data, _Response)
        if response is not None and (response.input_tokens or response.output_tokens):
            found.tokens.append((response.input_tokens, response.output_tokens))
    elif (duration_s := _build_seconds(_decoded(event.data, _Ended))) is not None:
        found.durations_s.append(duration_s)


def _build_seconds(ended: _Ended | None) -> float | None:
    if ended is None or ended.status is not StageStatus.BUILT:
        return None
    # A stage that replayed all of its responses is quick: its duration says nothing about a build that calls a model.
    return None if ended.recorded > 0 and not ended.calls else ended.duration_s


def _parsed(line: bytes) -> _Line | None:
    try:
        return to_struct(parse_stored(line), _Line)
    except ValueError:
        return None


def _decoded(value: Json, form: type[_Form]) -> _Form | None:
    """Return the fields of an event, or None if one of them has another type."""
    try:
        return to_struct(value, form)
    except ValueError:
        return None
