"""Validators of JSON schemas whose time is bounded: patterns by RE2, long lists by hashing, all work by a count.

Both schemas and values may come from a model. Python's `re` backtracks: `^(a+)+$` takes hours for forty characters.
RE2 takes a time that is linear in the text. It has no look-arounds: patterns with them are searched for by `re`, in
texts so short that backtracking stays cheap.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import attrs
from jsonschema import Draft7Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from orch23.checks.schema_drafts import DEFAULT_DRAFT, REFERENCES, draft_fault, draft_of, schemas_in
from orch23.model.digest import Json
from orch23.model.parsing import as_mapping
from orch23.model.text import json_pointer

# The memory that RE2 may take for one pattern and its caches.
MAX_PATTERN_BYTES = 8 << 20
# Instructions of the pattern times bytes of the text. RE2's worst case is linear in this product: `.{1000}` five times
# over 200 KB took 48 s, and the limit about 5 s.
MAX_WORK = 1_000_000_000
# Ways that `re` may try in a text. With n repetitions and m choices, none of them in a repetition, there are at most
# len(text) ** (n + 1) * 2 ** m. This many take about 4 s.
MAX_WAYS = 200_000_000
MAX_LOOK_AROUND_TEXT = 2_000
# Keys or items that `unevaluated...` compares with each other: about a second.
MAX_UNEVALUATED = 5_000
# Schemas that are applied to a part of a value: alternatives in each other can take exponentially many. About 20 s.
MAX_STEPS = 3_000_000
# In place of look-arounds, a schema can combine patterns.
PATTERN_HINT = 'in place of `(?!x)` write `"not": {"pattern": "^x"}`, of `(?=x)` a second pattern in `allOf`'

_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_TOKENS = re.compile(
    r"(?P<reference>\\[1-9gk]|\(\?P=|\(\?\()|\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?"
    r"|(?P<open>\((?:\?(?:[:=!>]|<[=!]|P?<\w++>))?)|(?P<close>\))|(?P<repeat>[*+]|\{\d*+,?\d*+\})|(?P<choice>[?|])|.",
    re.DOTALL,
)
_ESCAPES = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\.", re.DOTALL)


class PatternError(ValueError):
    """A pattern that is not supported, or that is too large for a text."""


@functools.lru_cache(maxsize=64)
def compile_regex(pattern: str) -> Callable[[str], bool]:
    r"""Return a function that returns whether a text contains a match.

    The syntax is RE2's: that of ECMA 262 without backreferences and repetitions of more than 1,000. Look-arounds are
    supported in short texts, if no repetition or alternative is in a repetition.
    `\d`, `\w` and `\b` mean ASCII, and `$` is only the end of the text, as in ECMA 262 and not as in Python.

    Raises:
        PatternError: the pattern is not supported; or, from the function, it is too large for so long a text.
    """
    import re2  # noqa: PLC0415 - a library that only a schema with patterns needs

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, MAX_PATTERN_BYTES
    try:
        compiled = re2.compile(_ESCAPES.sub(_re2_escapes, pattern), options)
    except re2.error as error:
        longest = _longest_text(pattern) if _LOOK_AROUND.search(pattern) else None
        if longest is not None:
            return _search_short_text(pattern, longest)
        message = f"`{pattern[:80]}` is not supported by RE2 ({error.args[0].decode()})"
        raise PatternError(message) from None
    except UnicodeError:
        message = f"`{pattern[:80]}` has half of a surrogate pair"
        raise PatternError(message) from None

    def search(text: str) -> bool:
        data = text.encode("utf-8", "surrogatepass")
        if compiled.programsize * len(data) > MAX_WORK:
            message = f"`{pattern[:80]}` is too large for a text of {len(data):,} bytes"
            raise PatternError(message)
        return compiled.search(data) is not None

    return search


def _longest_text(pattern: str) -> int | None:
    """Return the length of texts in which Python's engine tries at most MAX_WAYS ways, or None if no length is safe.

    None if a repetition has a choice in it, as in `(a+)+` or `(a|a)*`, and for backreferences: the ways to try are then
    exponential in the text.
    """
    ways, repetitions, has_choice = 1, 0, False
    groups = [False]  # for each open group, whether it has a choice
    for token in _TOKENS.finditer(pattern):
        kind = token.lastgroup
        if kind == "reference" or (kind == "repeat" and has_choice):
            return None
        if kind == "open":
            groups.append(False)
        elif kind == "choice":
            ways *= 2
        elif kind == "repeat":
            repetitions += 1
        if kind in ("choice", "repeat"):
            groups[-1] = True
        has_choice = kind == "close" and len(groups) > 1 and groups.pop()
        groups[-1] |= has_choice
    return min(MAX_LOOK_AROUND_TEXT, int((MAX_WAYS / ways) ** (1 / (repetitions + 1)))) if ways < MAX_WAYS else None


def _search_short_text(pattern: str, longest: int) -> Callable[[str], bool]:
    """Return a search by Python's engine that refuses texts in which backtracking could take long."""
    try:
        compiled = re.compile(pattern, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"`{pattern[:80]}` is not a regular expression ({error})"
        raise PatternError(message) from None

    def search(text: str) -> bool:
        if len(text) > longest:
            message = f"`{pattern[:80]}` has look-arounds: it is searched for in at most {longest} characters"
            raise PatternError(message)
        return compiled.search(text) is not None

    return search


def _re2_escapes(escapes: re.Match[str]) -> str:
    r"""Return `\x{e9}` for `\u00e9`, which RE2 does not have, and any other escape as it is."""
    if escapes[1] is None:
        return escapes[0]
    text = bytes.fromhex(escapes[1].replace("\\u", "")).decode("utf-16-be")
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def undeclared_keys(instance: Mapping[str, object], schema: Mapping[str, Any]) -> list[str]:
    """Return the keys of an object that a schema names neither by themselves nor by a pattern."""
    known = schema.get("properties", {})
    searches = [compile_regex(pattern) for pattern in schema.get("patternProperties", {})]
    return [key for key in instance if key not in known and not any(search(key) for search in searches)]


SchemaValidator: TypeAlias = Draft7Validator
"""A validator of any draft: those of the library have the same methods."""

# A value of a JSON document can have any type, so a narrower type would be wrong.
_Value: TypeAlias = Any
_SHOWN = 200
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_Rule: TypeAlias = Callable[..., Any]
# An empty registry: without it a reference to elsewhere would be fetched over the network.
_NO_OTHER_FILES: Registry[Any] = Registry()


def make_validator(schema: Mapping[str, Json] | bool) -> SchemaValidator:  # noqa: FBT001 - a schema may be true or false
    """Return the validator of a schema of its draft, whose references must stay inside the schema.

    Validating raises `PatternError` for a pattern that cannot be searched for in a bounded time, and for a value that
    takes too many steps.
    """
    draft = draft_of(schema) or DEFAULT_DRAFT
    steps = 0

    # The library would select the draft again by a `$schema` below, with validators whose time has no bound.
    def evolve(self: _Value, **changes: _Value) -> _Value:
        nonlocal steps
        steps += 1
        if steps > MAX_STEPS:
            message = "this value takes too many steps by the schema: write a flatter one"
            raise PatternError(message)
        return attrs.evolve(self, **changes)

    longest = min((_longest_text(one) or 0 for one in _key_patterns(schema)), default=MAX_UNEVALUATED)
    rules = {word: rule for word, rule in draft.validator.VALIDATORS.items() if word in _UNEVALUATED}
    words = _BOUNDED_WORDS | {word: _sized(word, rule, longest) for word, rule in rules.items()}
    bounded: _Value = validators.extend(draft.validator, words)  # type: ignore[no-untyped-call] # not in the stubs
    bounded.evolve = evolve
    made: SchemaValidator = bounded(schema, registry=_NO_OTHER_FILES)
    return made


def schema_fault(schema: Json) -> tuple[str, str] | None:
    """Return why a value cannot be used as a schema of its draft, and the JSON pointer of the cause; None if it can."""
    draft = draft_of(schema) or DEFAULT_DRAFT
    try:
        if fault := draft_fault(schema):
            return fault
        # Without formats: jsonschema would test patterns with Python's `re`, which does not know `\p{L}`.
        draft.validator.check_schema(cast("Mapping[str, Any]", schema), format_checker=FormatChecker(formats=()))
        if slow := next((one for one in _key_patterns(schema) if _longest_text(one) is None), None):
            return f"with `unevaluatedProperties`, the pattern `{slow[:80]}` could take long: write a simpler one", ""
        return next(_faults(schema), None)
    except SchemaError as error:
        message = f"this is not a JSON schema of {draft.name}: {first_line(error.message)}"
        return message, json_pointer(error.absolute_path)
    except RecursionError:
        return "the schema is nested too deeply", ""
    except ValueError as error:  # an `$id` such as `http://[`, which urllib does not parse
        return f"the schema has an invalid `$id`: {first_line(str(error))}", ""


def _faults(schema: Json) -> Iterator[tuple[str, str]]:
    """Yield each reference that leads out of the schema or back to itself, and each pattern that is not supported."""
    for one, at, resolver in schemas_in(schema):
        for word in REFERENCES:
            target = one.get(word)
            if isinstance(target, str) and (fault := _reference_fault(resolver, target)):
                yield f"`{word}` leads to `{first_line(target)}`, {fault}", f"{at}/{word}"
        for pattern in (one.get("pattern"), *as_mapping(one.get("patternProperties"))):
            try:
                compile_regex(pattern if isinstance(pattern, str) else "")
            except PatternError as error:
                yield f"the pattern {error}", at


def _key_patterns(schema: Json) -> Iterator[str]:
    """Yield the patterns for keys of a schema with `unevaluatedProperties`."""
    found = [one for one, _, _ in schemas_in(schema)]
    if any("unevaluatedProperties" in one for one in found):
        yield from (text for one in found for text in as_mapping(one.get("patternProperties")))


def _reference_fault(resolver: _Value, target: str) -> str | None:
    """Return what is wrong with a reference, also in a chain: in draft 7 all keywords beside `$ref` are ignored."""
    seen: set[int] = set()
    reference: object = target
    while isinstance(reference, str):
        try:
            found = resolver.lookup(reference)
        except (Unresolvable, TypeError, ValueError):  # TypeError: a pointer through a number
            return None if seen else "which is not in it"  # `_faults` reports the later reference itself
        if not isinstance(found.contents, Mapping | bool):
            return "which is not a schema"
        if id(found.contents) in seen:
            return "and from there back to itself"
        seen.add(id(found.contents))
        resolver = found.resolver
        reference = found.contents.get("$ref") if isinstance(found.contents, Mapping) else None
    return None


def first_line(text: str) -> str:
    """Return the beginning of a message of a library: a part of a schema may be in it."""
    line = text.split("\n", 1)[0]
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _pattern(validator: _Value, pattern: str, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not compile_regex(pattern)(value):
        yield ValidationError("does not match")


def _of_patterns(validator: _Value, patterns: _Value, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for pattern, below in patterns.items():
        search = compile_regex(pattern)
        for key, member in value.items():
            if search(key):
                yield from validator.descend(member, below, path=key, schema_path=pattern)


def _additional(validator: _Value, below: _Value, value: _Value, schema: _Value) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    extra = undeclared_keys(value, schema)
    if validator.is_type(below, "object"):
        for key in extra:
            yield from validator.descend(value[key], below, path=key)
    elif not below and extra:
        yield ValidationError("has keys that are not known")


def _unique(validator: _Value, wanted: _Value, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if wanted and validator.is_type(value, "array"):
        # Texts that are the same for equal values: 1 and 1.0 are equal, 1 and true are not.
        texts = {json.dumps(_numbered(one), sort_keys=True) for one in value}
        if len(texts) < len(value):
            yield ValidationError("holds the same item twice")


def _numbered(value: _Value) -> _Value:
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: _numbered(one) for key, one in value.items()}
        case list() | tuple():
            return [_numbered(one) for one in value]
        case _:
            return value


def _sized(word: str, rule: _Rule, longest: int) -> _Rule:
    """Return a rule of the library, which compares each key with each, for values that it judges in a bounded time."""

    def sized(validator: _Value, below: _Value, value: _Value, schema: _Value) -> Iterator[ValidationError]:
        if isinstance(value, Mapping | list) and len(value) > MAX_UNEVALUATED:
            message = f"`{word}` is applied to at most {MAX_UNEVALUATED:,} keys or items"
            raise PatternError(message)
        if isinstance(value, Mapping) and any(len(key) > longest for key in value):
            message = f"`{word}` with patterns is applied to keys of at most {longest:,} characters"
            raise PatternError(message)
        yield from rule(validator, below, value, schema) or ()

    return sized


_BOUNDED_WORDS = {
    "pattern": _pattern,
    "patternProperties": _of_patterns,
    "additionalProperties": _additional,
    "uniqueItems": _unique,
}
