"""Set Jinja up for expressions and templates: a sandbox without files, chance or results of any size.

`WILD` is what stands for a value that is not known yet; here it is made sure that nothing known is made of it.
"""

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from orch23.resolve import blocks, bounds
from orch23.resolve.nearest import did_you_mean
from orch23.resolve.wild import MARK, WILD, Wild

MAX_TEXT = bounds.MAX_TEXT

_FILTERS_TEXT = """
    abs batch capitalize d default dictsort first float groupby indent int items join last length list lower map
    max min reject rejectattr replace reverse round select selectattr slice sort string sum title tojson trim
    truncate unique upper wordcount
"""
_FILTERS = frozenset(_FILTERS_TEXT.split())
# Of prompts and templates alone: a value of a pipeline is no text with data in it.
_OF_FILES = {"block": blocks.block, "blocks": blocks.blocks}
_GUARDS = {bounds.WEIGHED: bounds.weighed, bounds.COUNTED: bounds.counted}
GLOBALS = frozenset({"range"})
# Methods that make a text of any size from a number.
_WIDE_METHODS = frozenset({"format", "format_map", "center", "ljust", "rjust", "zfill", "expandtabs"})


class _Missing(jinja2.StrictUndefined):
    """An undefined value that says what could have been meant."""

    __slots__ = ()

    def _near(self) -> str | None:
        """Return a hint from the members of the mapping that lacks this one."""
        owner = self._undefined_obj
        name = self._undefined_name
        return did_you_mean(name, owner) if isinstance(owner, Mapping) and isinstance(name, str) else None

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return str(self._undefined_hint)
        if self._undefined_obj is missing:
            return f"`{self._undefined_name}` is not defined"
        near = self._near()
        owner = "the mapping" if isinstance(self._undefined_obj, Mapping) else "the value"
        return f"{owner} has no `{self._undefined_name}`" + (f"; {near}" if near else "")


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja without what could read files, spend memory by a number, or give two answers for one question."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(bounds.joined)

    def compile(self, source: str | nodes.Template, *args: Any, **kwargs: Any) -> Any:
        """Compile a template with what counts its steps and weighs its values."""
        name, filename = (*args, None, None)[:2]
        read = self.parse(source, name, filename) if isinstance(source, str) else source
        guarded = bounds.Guard().visit(read)
        guarded.set_environment(self)
        return super().compile(guarded, *args, **kwargs)

    def call(self, context: Any, called: Any, *args: object, **kwargs: object) -> object:
        """Call a function or a method of a template."""
        bounds.call(called, (*args, *kwargs.values()))
        return super().call(context, called, *args, **kwargs)

    def getattr(self, obj: object, attribute: str) -> object:
        """Prefer a mapping's member over its method, so that a var may be called `items`."""
        if obj is WILD:
            return WILD
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if attribute in _WIDE_METHODS:
            return self.unsafe_undefined(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        """Take a member; anything taken from the unknown is unknown."""
        if obj is WILD or argument is WILD or (isinstance(obj, str) and MARK in obj):
            return WILD
        if argument in _WIDE_METHODS and not isinstance(obj, Mapping):
            return self.unsafe_undefined(obj, str(argument))
        return super().getitem(obj, argument)

    def call_binop(self, context: object, operator: str, left: object, right: object) -> object:
        """Add what is not too large, and multiply numbers only: a text times a number may be of any size."""
        del context
        if operator == "+":
            return bounds.plus(left, right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "*":
                return bounds.times(left, right)
            if operator == "%":
                return left % right
            if abs(right) <= 64 and abs(left) <= 1 << 32:  # noqa: PLR2004 - 2048 bits at most
                return left**right
        message = f"`{operator}` is for (small) numbers only"
        raise TypeError(message)


def _under(value: object, prefix: object) -> object:
    """Join a path, the `path` of a condition, or each of a list of these, below a prefix."""
    if not isinstance(prefix, str):
        message = "`under` needs a prefix that is a string"
        raise TypeError(message)
    base = prefix.rstrip("/")
    if isinstance(value, Wild):
        return f"{base}/{MARK}"
    if isinstance(value, str):
        return f"{base}/{value}"
    if isinstance(value, Mapping) and "path" in value:
        return {**value, "path": _under(value["path"], prefix)}
    if isinstance(value, Iterable) and not isinstance(value, Mapping | jinja2.Undefined):
        return [_under(element, prefix) for element in value]
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises
    message = "`under` needs a path, a condition, or a list of them"
    raise TypeError(message)


def _as_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in its own order. Jinja's filter would sort it and write `<`, `&` and `'` as for HTML."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=_plain)


def _plain(value: object) -> object:
    """Show json the mappings and sequences that are not dict and list."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises
    message = "`tojson` needs what JSON has: texts, numbers, booleans, lists and mappings"
    raise TypeError(message)


def _knows_wild(function: Callable[..., object]) -> Callable[..., object]:
    """Let a filter pass the unknown on instead of making something known of it."""

    @functools.wraps(function)
    def wrapped(*args: object, **kwargs: object) -> object:
        return WILD if _is_wild([*args, *kwargs.values()]) else function(*args, **kwargs)

    return wrapped


def _is_wild(values: Collection[object]) -> bool:
    return any(
        value is WILD
        or (isinstance(value, str) and MARK in value)
        or (isinstance(value, list | tuple) and _is_wild(value))
        for value in values
    )


@functools.cache
def environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of expressions; what is evaluated in it leaves nothing behind."""
    made = template_environment().overlay()
    left_out = {*_OF_FILES, *_GUARDS}
    made.filters = {name: _knows_wild(function) for name, function in made.filters.items() if name not in left_out}
    made.filters |= {"under": _under, **_GUARDS}
    return made


@functools.cache
def template_environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of prompt and template files; nothing in it is unknown."""
    made = _Environment(
        undefined=_Missing, keep_trailing_newline=True, autoescape=False, cache_size=0, finalize=bounds.shown
    )
    usual = {name: function for name, function in made.filters.items() if name in _FILTERS} | {"tojson": _as_json}
    made.filters = {name: bounds.bounded(name, function) for name, function in usual.items()}
    made.filters |= {"under": _under, **_OF_FILES, **_GUARDS}
    made.globals = {name: made.globals[name] for name in GLOBALS}
    return made


def plain_message(error: Exception) -> str:
    """Return the first line of an error's own words."""
    text = str(error.message) if isinstance(error, jinja2.TemplateError) and error.message else str(error)
    words = text.split("\n", 1)[0].split("; did you mean", 1)[0] or type(error).__name__
    return words.replace("'end of print statement'", "end")


def hint_of(error: Exception, names: Mapping[str, object]) -> str | None:
    """Return a way out of an error, where its words give one."""
    text = str(error)
    _, found, near = text.partition("; did you mean")
    if found:
        return f"did you mean{near}"
    unknown = re.match(r"`(\w+)` is not defined", text)
    if unknown:
        known = ", ".join(f"`{name}`" for name in sorted(names))
        return did_you_mean(unknown[1], names) or f"known here: {known}"
    lacking = re.match(r"No filter named '(\w+)'", text)
    return did_you_mean(lacking[1], [*_FILTERS, "under", *_OF_FILES]) if lacking else None
