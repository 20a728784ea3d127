"""Limit the steps and the memory of templates and expressions.

A template cannot loop forever. But nested loops can take hours, and texts and lists that double themselves can take all
memory. So loops, calls and filters spend steps of a budget, and the size of a value is checked before it is made.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeAlias, cast

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer
from msgspec import Struct

MAX_TEMPLATE_STEPS = 200_000
MAX_RENDERED_TEXT = 4 << 20
MAX_TEMPLATE_VALUES = 100_000
MAX_FILTER_NUMBER = 10_000
MAX_ROUND_DIGITS = 300
MAX_INTEGER_BITS = 4096
_CHARACTERS_A_STEP = 256
_STEPS_A_CALL = 5

SIZE_FILTER = "orch23_weighed"
COUNT_FILTER = "orch23_counted"

_Filter: TypeAlias = Callable[..., Any]
_Value: TypeAlias = Any


class TemplateLimitError(ValueError):
    """A template takes too many steps, or makes a value that is too large."""


class _Budget(Struct):
    left: int = MAX_TEMPLATE_STEPS


_BUDGET: ContextVar[_Budget | None] = ContextVar("orch23_template_budget", default=None)


@contextmanager
def step_budget() -> Iterator[None]:
    """Set one budget for everything that is rendered in this context."""
    token = _BUDGET.set(_Budget())
    try:
        yield
    finally:
        _BUDGET.reset(token)


def spend_steps(steps: int) -> None:
    """Subtract steps from the budget of the current rendering.

    Raises:
        TemplateLimitError: the budget is spent.
    """
    now = _BUDGET.get()
    if now is None:
        return
    now.left -= steps
    if now.left < 0:
        _refuse(f"the template takes over {MAX_TEMPLATE_STEPS:,} steps")


def check_size(value: _Value) -> _Value:
    """Return a value unchanged if it is not too large. A value that is contained twice counts twice.

    Raises:
        TemplateLimitError: it has too many values or characters.
    """
    values, characters, open_ = 0, 0, [value]
    while open_:
        one = open_.pop()
        values += 1
        if isinstance(one, str):
            characters += len(one)
        elif isinstance(one, Mapping):
            if len(one) > MAX_TEMPLATE_VALUES:
                _refuse(f"a value would have over {MAX_TEMPLATE_VALUES:,} values")
            open_ += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            open_ += one
        elif isinstance(one, range):
            values += len(one)
        _check_length(characters)
        if values + len(open_) > MAX_TEMPLATE_VALUES * 2:
            _refuse(f"a value would have over {MAX_TEMPLATE_VALUES:,} values")
    spend_steps(values + characters // _CHARACTERS_A_STEP)
    return value


def check_output(value: _Value) -> _Value:
    """Return a value that a template writes unchanged, if it is not too large and nothing in it is undefined."""
    check_size(value)
    open_ = [value] if isinstance(value, Mapping | list | tuple) else []
    while open_:
        one = open_.pop()
        if isinstance(one, Mapping):
            open_ += one.values()
        elif isinstance(one, list | tuple):
            open_ += one
        else:
            refuse_undefined(one)
    return value


def refuse_undefined(value: object) -> None:
    """Raise the error of an undefined name, which has the name and the line."""
    if isinstance(value, jinja2.Undefined):
        str(value)


def _check_length(characters: int) -> None:
    if characters > MAX_RENDERED_TEXT:
        _refuse(f"a value would have over {MAX_RENDERED_TEXT:,} characters")


def _refuse(why: str) -> NoReturn:
    raise TemplateLimitError(why)


def count_rounds(value: _Value) -> _Value:
    """Return the iterable of a loop, and spend a step for each round."""
    if isinstance(value, jinja2.Undefined):
        return value
    if isinstance(value, Sized):
        spend_steps(len(value))
        return value
    return _counting(value)


def _counting(value: Iterable[_Value]) -> Iterator[_Value]:
    for one in value:
        spend_steps(1)
        yield one


def join_limited(parts: Iterable[str]) -> str:
    """Join the parts of a text up to the maximum: of a macro, a block, a `{% set %}`."""
    out, size = [], 0
    for part in parts:
        size += len(part)
        _check_length(size)
        out.append(part)
    return "".join(out)


def check_call(function: _Value, arguments: Iterable[_Value]) -> None:
    """Spend the steps of a call, and check the size of the text that a method of a text would return."""
    given = tuple(arguments)
    spend_steps(
        _STEPS_A_CALL + sum(len(one) for one in given if isinstance(one, list | tuple | str)) // _CHARACTERS_A_STEP
    )
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, str):
        spend_steps(len(owner) // _CHARACTERS_A_STEP)
        if name == "replace":
            _replaced(owner, *given)
        elif name == "join" and given:
            _joining(given[0], owner)
        elif name == "translate":
            _refuse("`translate` makes a text of any size; use `replace`")


def add_limited(left: _Value, right: _Value) -> _Value:
    """Add two values; the size of texts and lists is checked."""
    if isinstance(left, str | list | tuple):
        check_size(left)
        check_size(right)
    return left + right


def multiply_limited(left: float, right: float) -> int | float:
    """Multiply two numbers; the size of an integer is checked."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
        _refuse(f"a number would have over {MAX_INTEGER_BITS} bits")
    return left * right


def limit_filter(name: str, function: _Filter) -> _Filter:
    """Return a filter that checks the size of its arguments and of its result."""
    check = _CHECKS.get(name)

    @functools.wraps(function)
    def wrapped(*arguments: _Value, **options: _Value) -> _Value:
        given = [one for one in arguments if not isinstance(one, _OF_JINJA)]
        for one in (*given, *options.values()):
            check_size(one)
        if check is not None:
            check(*given, **options)
        return function(*arguments, **options)

    return wrapped


_OF_JINJA = (jinja2.Environment, nodes.EvalContext, jinja2.runtime.Context)


def _replaced(text: _Value, old: _Value = "", new: _Value = "", _count: _Value = None) -> None:
    _check_length(len(str(text)) + str(text).count(str(old)) * len(str(new)))


def _joining(values: _Value, between: _Value = "", _attribute: _Value = None, **options: _Value) -> None:
    between = options.get("d", between)
    if isinstance(values, Sized):
        _check_length(len(values) * len(str(between)))


def _indented(text: _Value, width: _Value = 4, *_flags: _Value, **options: _Value) -> None:
    given: _Value = options.get("width", width)
    size = len(given) if isinstance(given, str) else int(given)
    _check_length(size * (str(text).count("\n") + 2))


def _numbered(_value: _Value, *arguments: _Value, **options: _Value) -> None:
    for one in (*arguments, *options.values()):
        if isinstance(one, int) and abs(one) > MAX_FILTER_NUMBER:
            _refuse(f"{one} is over {MAX_FILTER_NUMBER:,}")


def _rounded(_value: _Value, precision: _Value = 0, _method: _Value = "", **options: _Value) -> None:
    if abs(int(cast("_Value", options.get("precision", precision)))) > MAX_ROUND_DIGITS:
        _refuse(f"a precision is over {MAX_ROUND_DIGITS} digits")


_CHECKS: Mapping[str, Callable[..., None]] = {
    "batch": _numbered,
    "slice": _numbered,
    "tojson": _numbered,
    "indent": _indented,
    "join": _joining,
    "replace": _replaced,
    "round": _rounded,
}


class LimitInserter(NodeTransformer):
    """Inserts the filters that check sizes and count rounds into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's name
        """Count the rounds of a loop."""
        self.generic_visit(node)
        node.iter = _filtered(node.iter, COUNT_FILTER)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:  # noqa: N802 - likewise
        """Check the size of a concatenation."""
        self.generic_visit(node)
        node.nodes = [_filtered(one, SIZE_FILTER) for one in node.nodes]
        return node

    def visit_List(self, node: nodes.List | nodes.Dict | nodes.Tuple) -> nodes.Expr:  # noqa: N802 - likewise
        """Check the size of a list, mapping or tuple: `{% set l = [l, l] %}` doubles it."""
        self.generic_visit(node)
        is_target = isinstance(node, nodes.Tuple) and node.ctx != "load"  # of an assignment
        return node if is_target or not node.items else _filtered(node, SIZE_FILTER)

    visit_Dict = visit_Tuple = visit_List  # noqa: N815 - likewise


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast("nodes.Expr", node), name, [], [], None, None, lineno=node.lineno)
