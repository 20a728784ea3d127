"""Describe the first difference between a request and a recorded one, in one line."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from orch23.model.digest import Json, json_builtin
from orch23.model.patterns import lazy_pattern

_WORDS = {
    "provider": "the provider",
    "endpoint": "the endpoint",
    "api": "the interface",
    "model": "the model",
    "system": "the system prompt",
    "messages": "the prompt",
    "params": "a parameter",
    "returns": "`returns`",
    "schema": "the schema",
    "program": "the program",
    "sample": "the sample",
}
REQUEST_PARTS = tuple(_WORDS)
_DELIMITER = lazy_pattern(r"^--- (begin|end) [0-9a-f]{8,}+(.*?)(?: sha256=[0-9a-f]{64})? ---$", re.MULTILINE)
_WIDTH = 60
_BEFORE = 20


def describe_difference(then: Mapping[str, Json], now: Mapping[str, Json], redact: Callable[[str], str]) -> str:
    """Return the first difference between the parts of two requests, as a clause; an empty text if there is none.

    `redact` removes secrets. It gets each text whole: half of a secret is not recognized.
    """
    for name in REQUEST_PARTS:
        one, other = _plain(then.get(name)), _plain(now.get(name))
        if one != other:
            return _clause(name, one, other, redact)
    return ""


def distance(then: Mapping[str, Json], now: Mapping[str, Json]) -> tuple[int, int, int]:
    """Return how far two requests are apart; zeros if they are equal.

    These are the parts that differ, the lines of prompts that only one has, and the characters after the common ones.
    """
    parts = sum(_plain(then.get(name)) != _plain(now.get(name)) for name in REQUEST_PARTS)
    one, other = (_bare("\n".join(map(text_of_messages, (of.get("system"), of.get("messages"))))) for of in (then, now))
    lines = Counter(one.split("\n"))
    lines.subtract(other.split("\n"))
    return parts, sum(map(abs, lines.values())), max(len(one), len(other)) - first_difference(one, other)


def _clause(name: str, then: Json, now: Json, redact: Callable[[str], str]) -> str:
    match name:
        case "messages" | "system":
            return _texts(_WORDS[name], redact(text_of_messages(then)), redact(text_of_messages(now)))
        case "schema":
            return _texts(_WORDS[name], redact(_indented(then)), redact(_indented(now)))
        case "params" if isinstance(then, Mapping) and isinstance(now, Mapping):
            return _params(then, now, redact)
        case "program":
            return _files(then if isinstance(then, Mapping) else {}, now if isinstance(now, Mapping) else {})
        case "sample":
            return f"it is for sample {now}, and sample {then} is recorded"
        case _:
            return f"{_WORDS[name]} is {_short(now, redact)}, was {_short(then, redact)}"


def _params(then: Mapping[str, Json], now: Mapping[str, Json], redact: Callable[[str], str]) -> str:
    absent = object()
    names = sorted({*then, *now})
    name = next(name for name in names if then.get(name, absent) != now.get(name, absent))
    if name not in then:
        return f"`{name}` is {_short(now[name], redact)}, and was not given"
    if name not in now:
        return f"`{name}` is not given, and was {_short(then[name], redact)}"
    if name == "answer":
        return "the scripted response differs"
    return f"`{name}` is {_short(now[name], redact)}, was {_short(then[name], redact)}"


def _files(then: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    """Return how the first file of a program differs. The digest of an executable file ends with `+x`."""
    path = next(one for one in sorted({*then, *now}) if then.get(one) != now.get(one))
    old, new = (str(of.get(path, "")) for of in (then, now))
    became = {"": "is gone", f"{old}+x": "became executable", old.removesuffix("+x"): "is not executable any more"}
    return f"`{path}` {became.get(new, 'changed') if old else 'was not there'}"


def _texts(what: str, then: str, now: str) -> str:
    """Return where two texts differ, with both lines shortened to that place."""
    if then == now:
        return f"{what} differs in redacted text"
    # Report the text of a data block, not its delimiter, which has a hash of the text.
    if _bare(then) != _bare(now):
        then, now = _bare(then), _bare(now)
    olds, news = then.split("\n"), now.split("\n")
    line = first_difference(olds, news)
    place = f"{what} differs at line {line + 1}"
    is_new, is_gone = (not set(some[line : line + 1]) <= set(others) for some, others in ((news, olds), (olds, news)))
    if line == len(olds) or (is_new and not is_gone):
        return f"{place}: {_quoted(news[line], 0)} was not there"
    if line == len(news) or (is_gone and not is_new):
        return f"{place}: {_quoted(olds[line], 0)} is gone"
    at = first_difference(olds[line], news[line])
    return f"{place}: {_quoted(news[line], at)} was {_quoted(olds[line], at)}"


def _bare(text: str) -> str:
    """Return a text whose block delimiters do not depend on the data."""
    return _DELIMITER.sub(r"--- \1\2 ---", text)


def first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the first place where two sequences differ: the length of the shorter if it is a prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _quoted(text: str, at: int) -> str:
    start = max(0, at - _BEFORE) if len(text) > _WIDTH else 0
    cut = text[start : start + _WIDTH]
    return f"'{'...' if start else ''}{cut}{'...' if start + _WIDTH < len(text) else ''}'"


def _short(value: Json, redact: Callable[[str], str]) -> str:
    text = redact(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))
    return f"`{text[:_WIDTH]}{'...' if len(text) > _WIDTH else ''}`" if text else "empty"


def text_of_messages(value: Json) -> str:
    """Return the contents of the messages of a request, or a system prompt."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        return ""
    return "\n\n".join(str(one.get("content", "")) for one in value if isinstance(one, Mapping))


def _indented(value: Json) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)


def _plain(value: Json) -> Json:
    """Return a value with lists in place of tuples."""
    plain: Json = json.loads(json.dumps(value, default=json_builtin))
    return plain
