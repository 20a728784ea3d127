"""Read JSON and TOML strictly, and convert JSON values to and from Structs.

The C scanner of `json` reads valid texts. A text that it refuses is read again by a slower reader, which finds the
position of the error.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json import JSONDecodeError, JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]  # there since 2.6, not in the stubs
from math import isfinite
from sys import intern
from typing import Annotated, Any, Final, Literal, NoReturn, TypeAlias, TypeVar
from uuid import UUID

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from orch23.model.digest import Json, json_builtin
from orch23.model.patterns import lazy_pattern

MAX_JSON_BYTES = 1_048_576
MAX_JSON_DEPTH = 64

JsonErrorKind: TypeAlias = Literal[
    "size", "bom", "empty", "syntax", "depth", "duplicate", "number", "trailing", "surrogate"
]
YamlReader: TypeAlias = Callable[[str], Json]
"""Text of a YAML file to its value; raises ValueError with the reason."""

_SPACE = lazy_pattern(r"[ \t\n\r]*")
_WORD = lazy_pattern(r"-?[A-Za-z]+")
_HALF = lazy_pattern(r"\\u[dD][89a-fA-F]")  # may be an escaped half of a surrogate pair
_DEEPEST = 200  # levels that the recursion of the reader can handle
_SHOWN = 40
_LONGEST_INT = 4300  # digits that int() of a text reads
_CLOSING = {"{": "}", "[": "]"}


class StrictJsonError(ValueError):
    """The text is not one JSON value; `kind` is the rule that it breaks, `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int, kind: JsonErrorKind) -> None:
        """Store the error and its position."""
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column
        self.kind: JsonErrorKind = kind


# Not msgspec: it accepts duplicate keys, refuses lone surrogates, and raises RecursionError (ADR 28).
def parse_json(
    text: str | bytes,
    *,
    max_bytes: int | None = MAX_JSON_BYTES,
    max_depth: int | None = MAX_JSON_DEPTH,
    lone_surrogates: bool = False,
    lenient: bool = False,
) -> Json:
    """Return the value of a JSON text (RFC 8259), read more strictly than by `json.loads`.

    Refused are duplicate keys, NaN and infinities (also as `1e999`), text before or after the value, lone surrogates
    unless they are allowed, a byte order mark, and texts over the limits of size and depth. Without a limit of depth a
    text may be as deep as the interpreter can read. Bytes are UTF-8. With `lenient`, raw control characters in strings
    and a comma after the last member are allowed: both have only one meaning.

    Raises:
        StrictJsonError: the first error of the text.
        UnicodeDecodeError: bytes are not UTF-8.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if max_bytes is not None and (len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes):
        _Reader(text, _DEEPEST).fail(f"the text is over {max_bytes} bytes", 0, "size")
    depth = _DEEPEST if max_depth is None else min(max_depth, _DEEPEST)
    if lone_surrogates or not _may_hold_half(text):
        with suppress(ValueError, OverflowError, RecursionError):  # it is read again, for the position of the error
            value: Json = _DECODER.decode(text)
            if max_depth is None or not _is_deeper(value, text, depth):
                return value
    return _Reader(text, depth, lone_surrogates=lone_surrogates, lenient=lenient).whole()


def parse_json_at(text: str, start: int) -> tuple[Json, int]:
    """Return the JSON value that begins at a position, read with `lenient`, and the position after it.

    Raises:
        StrictJsonError: it is not JSON.
    """
    return _Reader(text, MAX_JSON_DEPTH, lenient=True).value(start, 0)


def parse_stored(text: str | bytes) -> Json:
    """Return the value of a text that orch23 stored, of any size and depth: the reader of the file limits these.

    Half of a surrogate pair is allowed: a message of the journal may contain one.

    Raises:
        ValueError: it is not strict JSON, or not UTF-8.
    """
    return parse_json(text, max_bytes=None, max_depth=None, lone_surrogates=True)


def _may_hold_half(text: str) -> bool:
    """Return whether a text contains half of a surrogate pair, or an escape that may be one."""
    if _HALF.search(text) is not None:
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _is_deeper(value: Json, text: str, most: int) -> bool:
    if text.count("[") + text.count("{") <= most:
        return False
    level = [value]
    for _ in range(most + 1):
        below = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        if not below:
            return False
        level = [one for values in below for one in values]
    return True


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # Keys repeat: one string each.
    found = {intern(name) if name.isidentifier() else name: value for name, value in pairs}
    if len(found) != len(pairs):
        raise ValueError
    return found


def _finite(digits: str) -> float:
    if not isfinite(value := float(digits)):
        message = f"{_short(digits)} is too large for a number"
        raise OverflowError(message)
    return value


_DECODER = JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


class _Reader(Struct, frozen=True):
    """A text and its limit of depth; each method takes a position, and returns the position after what it read."""

    text: str
    max_depth: int
    lone_surrogates: bool = False
    lenient: bool = False

    def whole(self) -> Json:
        if self.text.startswith("\ufeff"):
            self.fail("the text starts with a byte order mark", 0, "bom")
        start = self.space(0)
        if start == len(self.text):
            self.fail("there is no value", start, "empty")
        value, end = self.value(start, 0)
        end = self.space(end)
        if end != len(self.text):
            self.fail("there is text after the value", end, "trailing")
        return value

    def fail(self, message: str, at: int, kind: JsonErrorKind) -> NoReturn:
        line = self.text.count("\n", 0, at) + 1
        raise StrictJsonError(message, line, at - self.text.rfind("\n", 0, at), kind)

    def fail_for(self, expected: str, at: int) -> NoReturn:
        there = next(iter(self.text[at : at + _SHOWN + 1].split(maxsplit=1)), "")
        if not there:
            self.fail("the text ends too early", at, "syntax")
        if there.startswith(("//", "/*", "#")):
            self.fail(f"{expected} is expected, not a comment", at, "syntax")
        # A longer word may be a secret, which is not recognized when it is cut.
        found = f", not {there!r}" if len(there) <= _SHOWN else ""
        self.fail(f"{expected} is expected{found}", at, "syntax")

    def space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return at if found is None else found.end()

    def value(self, at: int, depth: int) -> tuple[Json, int]:
        first = self.text[at : at + 1]
        if first == '"':
            return self.string(at)
        if first not in _CLOSING:
            return self.scalar(at)
        if depth >= self.max_depth:
            self.fail(f"nested deeper than {self.max_depth} levels", at, "depth")
        return self.members(at, depth + 1, _CLOSING[first])

    def members(self, at: int, depth: int, closing: str) -> tuple[Json, int]:
        found: dict[Any, Json] = {}  # of an array by its positions
        here = self.space(at + 1)
        more = self.text[here : here + 1] != closing
        here += not more
        while more:
            key: Any = len(found)
            if closing == "}":
                key, here = self.key(here, found)
            found[key], here = self.value(here, depth)
            here, more = self.separator(here, closing)
        return found if closing == "}" else [*found.values()], here

    def key(self, at: int, before: Container[str]) -> tuple[str, int]:
        if self.text[at : at + 1] != '"':
            self.fail_for("a key in double quotes", at)
        key, after = self.string(at)
        if key in before:
            self.fail(f"the key {key!r} is there twice", at, "duplicate")
        after = self.space(after)
        if self.text[after : after + 1] != ":":
            self.fail("a `:` is expected", after, "syntax")
        return key, self.space(after + 1)

    def separator(self, at: int, closing: str) -> tuple[int, bool]:
        at = self.space(at)
        char = self.text[at : at + 1]
        if char == closing:
            return at + 1, False
        if char != ",":
            self.fail_for(f"a `,` or a `{closing}`", at)
        following = self.space(at + 1)
        if self.lenient and self.text[following : following + 1] == closing:
            return following + 1, False
        return following, True

    def string(self, at: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, at + 1, not self.lenient)  # if strict, it refuses control characters
        except ValueError as error:
            self.fail(f"not a string: {getattr(error, 'msg', error)}", getattr(error, "pos", at), "syntax")
        if not self.lone_surrogates and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            self.fail("the string holds half of a surrogate pair", at, "surrogate")
        return value, end

    def scalar(self, at: int) -> tuple[Json, int]:
        word = found.group() if (found := _WORD.match(self.text, at)) else "null"
        if word.lstrip("-") in ("NaN", "Infinity"):
            self.fail(f"{word} is no JSON number", at, "number")
        if word not in ("true", "false", "null"):
            self.fail(f"a value is expected, not {_short(word)!r}", at, "syntax")
        try:
            return _DECODER.raw_decode(self.text, at)
        except JSONDecodeError:
            self.fail_for("a value", at)
        except OverflowError as error:
            self.fail(str(error), at, "number")
        except ValueError:
            self.fail(f"a number of more than {_LONGEST_INT} digits", at, "number")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


MAX_TOML_KEY_PARTS = 64
_TEXTS_AND_COMMENTS = lazy_pattern(
    r'"""(?:[^\\"]|\\.|"(?!""))*+(?:"""|\Z)|'
    r"'''.*?(?:'''|\Z)|"
    r'"(?:\\.|[^"\\\n])*+"?|'
    r"'[^'\n]*'?|"
    r"#[^\n]*",
    re.DOTALL,
)
# A text: compiling it takes 3 ms, and few runs read TOML. `re` keeps what it has compiled.
_LONG_KEY = "(?<![A-Za-z0-9_-])" + r"[ \t]*+\.[ \t]*+".join(["[A-Za-z0-9_-]++"] * (MAX_TOML_KEY_PARTS + 1))


class LongTomlKeyError(ValueError):
    """A dotted key has too many parts; `line` counts from 1."""

    def __init__(self, line: int) -> None:
        """Keep the line."""
        super().__init__(f"a key of more than {MAX_TOML_KEY_PARTS} parts")
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        ValueError: it is not TOML (`tomllib.TOMLDecodeError`), or a key is too long (`LongTomlKeyError`).
        RecursionError: it is nested too deeply.
    """
    # tomllib takes time that is quadratic in the parts of a dotted key.
    if text.count(".") >= MAX_TOML_KEY_PARTS:
        # A quoted part of a key counts as one, whatever it contains; line breaks are kept, to report the line.
        plain = _TEXTS_AND_COMMENTS.sub(lambda found: "s" + "\n" * found.group().count("\n"), text)
        long = re.search(_LONG_KEY, plain)
        if long is not None:
            raise LongTomlKeyError(plain.count("\n", 0, long.start()) + 1)
    import tomllib  # noqa: PLC0415 - only for texts in TOML

    return tomllib.loads(text)


def refuse(why: str) -> NoReturn:
    """Raise a ValueError: a text or a value is damaged, or of another form."""
    raise ValueError(why)


def strings_in(value: Json) -> Iterator[str]:
    """Yield every string in a value; keys are not included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | Sequence):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from strings_in(one)


def map_strings(value: Json, change: Callable[[str], str], *, keys: bool = False) -> Json:
    """Return a value with each of its strings changed; with `keys`, those of mappings too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(k) if keys else k: map_strings(one, change, keys=keys) for k, one in value.items()}
    return [map_strings(one, change, keys=keys) for one in value] if isinstance(value, Sequence) else value


def as_mapping(value: Json) -> Mapping[str, Json]:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def json_at(value: Json, *path: str | int) -> Json:
    """Return the value at a path of keys and positions; None if there is none."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list | tuple) and len(value) > step else None
        else:
            value = as_mapping(value).get(step)
    return value


JsonObject: TypeAlias = dict[str, Any]
"""A JSON object with values of any kind."""

NaturalNumber: TypeAlias = Annotated[int, Meta(ge=0)]
"""An integer, 0 or more."""

Value = TypeVar("Value")

# Types that msgspec would write as text. They are left as they are, and then the writer of JSON refuses them.
_NOT_JSON: Final = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)


def to_struct(value: Json, form: type[Value]) -> Value:
    """Return a parsed value as a Struct, or as another type that msgspec knows.

    Raises:
        ValueError: a field is missing, unknown or of another type. Only the first error is reported.
    """
    try:
        return convert(value, form)
    except ValidationError as error:
        message = f"is not valid: {error}"
        raise ValueError(message) from None


def from_struct(value: Struct) -> JsonObject:
    """Return a Struct as a JSON object, as `canonical_json` and `indented` take it.

    Raises:
        TypeError: it contains a value that is not JSON.
    """
    found: JsonObject = to_builtins(value, builtin_types=_NOT_JSON, enc_hook=json_builtin)
    return found
