"""Read from the journals what the stages of a pipeline took when they last ran: for estimates, and for nothing else.

A damaged line is passed over here; whoever builds on a journal reads it with `read_journal`, which complains.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.store.journal import journals

NEWEST = 5
_MANY = 64  # so many names are not looked for in each line
_MOST_BYTES = 8_000_000  # of one journal; a plan does not wait for more
_KINDS = (b'"type":"stage_finished"', b'"type":"llm_response"')


class Past(Struct, frozen=True, kw_only=True):
    """What a stage took, newest run first: the seconds of each run that built it, (input, output) of each answer."""

    durations_s: tuple[float, ...] = ()
    answers: tuple[tuple[int, int], ...] = ()


_NOTHING = Past()


class _Found(Struct):
    durations_s: list[float] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)


def read_past(logs: Path, pipeline_file: str, stages: Collection[str], newest: int = NEWEST) -> Mapping[str, Past]:
    """Return what these stages, and each foreach with all of its items together, took in a pipeline's newest runs."""
    found: dict[str, _Found] = {}
    families = {json.dumps(name.partition("@")[0], ensure_ascii=False)[:-1].encode() for name in stages}
    about = tuple(b'"role":' + family for family in families)
    for data in _journals_of(logs, pipeline_file, newest):
        for event in _events(data, about if len(about) < _MANY else (b'"role":',)):
            role = event.get("role")
            if isinstance(role, str):
                for name in dict.fromkeys((role, role.partition("@")[0])):
                    _note(found.setdefault(name, _Found()), event)
    pasts = {name: Past(durations_s=tuple(one.durations_s), answers=tuple(one.answers)) for name, one in found.items()}
    return {name: past for name, past in pasts.items() if past != _NOTHING}


def past_of(past: Mapping[str, Past], stage: str) -> Past:
    """Return what a stage took; what the other items of its foreach took, where it never ran itself."""
    return past.get(stage) or past.get(stage.partition("@")[0]) or _NOTHING


def _journals_of(logs: Path, pipeline_file: str, newest: int) -> Iterator[bytes]:
    left = newest
    for path in journals(logs):
        if left == 0:
            return
        try:
            with path.open("rb") as stream:
                first = _value(stream.readline())
                data = first.get("data") if first is not None else None
                if not isinstance(data, Mapping) or data.get("pipeline") != pipeline_file:
                    continue
                yield stream.read(_MOST_BYTES)
        except OSError:
            continue
        left -= 1


def _events(data: bytes, about: tuple[bytes, ...]) -> Iterator[Mapping[str, Json]]:
    for line in data.split(b"\n"):
        if not any(role in line for role in about) or not any(kind in line for kind in _KINDS):
            continue
        if (value := _value(line)) is not None:
            yield value


def _value(line: bytes) -> Mapping[str, Json] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, Mapping) else None


def _note(found: _Found, event: Mapping[str, Json]) -> None:
    data = event.get("data")
    if not isinstance(data, Mapping):
        return
    if event.get("type") == "llm_response":
        tokens = (_whole(data.get("input_tokens")), _whole(data.get("output_tokens")))
        if any(tokens):
            found.answers.append(tokens)
        return
    spent = data.get("duration_s")
    replayed = not data.get("calls") and bool(data.get("recorded"))  # quick, since nobody was asked
    if data.get("status") == "built" and not replayed and isinstance(spent, int | float):
        found.durations_s.append(float(spent))


def _whole(value: Json) -> int:
    return value if isinstance(value, int) and value > 0 else 0
