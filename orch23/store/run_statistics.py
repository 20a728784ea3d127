"""Read durations and token counts of earlier runs from journals, for estimates.

A damaged line is passed over here; whoever builds on a journal reads it with `read_journal`, which complains.
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
_MANY = 64  # so many names are not looked for in each line
_MOST_BYTES = 8_000_000  # of one journal; a plan does not wait for more
_KINDS = (b'"type":"stage_finished"', b'"type":"llm_response"')


class StageStatistics(Struct, frozen=True, kw_only=True):
    """What a stage took, newest run first: the seconds of each run that built it, (input, output) of each answer."""

    durations_s: tuple[float, ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()


_NOTHING = StageStatistics()


class _Line(Struct, frozen=True):
    type: str
    role: str
    data: JsonObject


class _Began(Struct, frozen=True):
    pipeline: str


class _Answered(Struct, frozen=True):
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
    answers: list[tuple[int, int]] = field(default_factory=list)


def read_statistics(
    logs: Path, pipeline_file: str, stages: Collection[str], newest: int = MAX_RUNS
) -> Mapping[str, StageStatistics]:
    """Return what these stages, and each foreach with all of its items together, took in a pipeline's newest runs."""
    found: dict[str, _Found] = {}
    families = {json.dumps(name.partition("@")[0], ensure_ascii=False)[:-1].encode() for name in stages}
    about = tuple(b'"role":' + family for family in families)
    for data in _journals_of(logs, pipeline_file, newest):
        for event in _events(data, about if len(about) < _MANY else (b'"role":',)):
            for name in dict.fromkeys((event.role, event.role.partition("@")[0])):
                _note(found.setdefault(name, _Found()), event)
    pasts = {
        name: StageStatistics(durations_s=tuple(one.durations_s), tokens=tuple(one.answers))
        for name, one in found.items()
    }
    return {name: past for name, past in pasts.items() if past != _NOTHING}


def statistics_of(past: Mapping[str, StageStatistics], stage: str) -> StageStatistics:
    """Return what a stage took; what the other items of its foreach took, where it never ran itself."""
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
                yield stream.read(_MOST_BYTES)
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
        answer = _decoded(event.data, _Answered)
        if answer is not None and (answer.input_tokens or answer.output_tokens):
            found.answers.append((answer.input_tokens, answer.output_tokens))
        return
    ended = _decoded(event.data, _Ended)
    replayed = ended is not None and not ended.calls and ended.recorded > 0  # quick, since no model was called
    if ended is not None and ended.status is StageStatus.BUILT and not replayed and ended.duration_s is not None:
        found.durations_s.append(ended.duration_s)


def _parsed(line: bytes) -> _Line | None:
    try:
        return to_struct(parse_stored(line), _Line)
    except ValueError:
        return None


def _decoded(value: Json, form: type[_Form]) -> _Form | None:
    """Return the fields of an event that are looked for, None if one of them is of another type."""
    try:
        return to_struct(value, form)
    except ValueError:
        return None
