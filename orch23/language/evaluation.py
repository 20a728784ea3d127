"""Evaluate one expression with Jinja, and find the names that it uses."""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

import jinja2
from jinja2 import nodes
from msgspec import Struct

from orch23.model.diagnostic import nearest_names, question, quoted_names
from orch23.model.digest import Json
from orch23.model.text import join_first
from orch23.resolve.expression_syntax import UNKNOWN, UNKNOWN_MARK, EvaluationError, ExpressionValue, Unknown
from orch23.resolve.template_limits import MAX_RENDERED_TEXT, refuse_undefined
from orch23.resolve.templates import TEMPLATE_GLOBALS, expression_environment, first_line_of_error, hint_of_error

E_UNDEFINED = "E840"
# An expression may use the data of a model, so its time and memory are limited.
MAX_EXPRESSION_VALUES = 100_000
MAX_EXPRESSION_LENGTH = 4096
MAX_EXPRESSION_DEPTH = 64
_MOST_NAMED = 20
# An expression of only these nodes shows an unknown value in its result. Others could hide it.
_VISIBLE = (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Const, nodes.Concat, nodes.List, nodes.Slice)


def evaluate(source: str, names: Mapping[str, ExpressionValue]) -> Json:
    """Return the value of one expression.

    Raises:
        EvaluationError: it is malformed, uses an unknown name, fails, or its value is too large or not plain.
    """
    used = names_used(source)
    undefined = sorted(set(used) - set(names))
    if undefined:
        raise _undefined_name(undefined[0], used[undefined[0]], names)
    if any(names[name] is UNKNOWN for name in used):
        # `${{ t.kind == "x" }}` must not become `false` while `t` is unknown: later it may be `true`.
        tree = _parsed(source)
        if not all(isinstance(one, _VISIBLE) for one in (tree, *tree.find_all(nodes.Expr))):
            return UNKNOWN_MARK
    try:
        return _plain_value(_compiled(source)(dict(names)), _Size(), 0)
    except EvaluationError:
        raise
    except jinja2.UndefinedError as error:
        raise _undefined_error(error, used, names) from None
    except Exception as error:  # noqa: BLE001 - an expression may raise anything; its author has to fix all of it
        message = f"`{source.strip()}` fails: {first_line_of_error(error)}"
        raise EvaluationError(message, hint_of_error(error, names)) from None


def _undefined_name(name: str, members: frozenset[str], names: Mapping[str, ExpressionValue]) -> EvaluationError:
    message = f"`{name}` is not defined"
    owner = next((one for one, value in names.items() if isinstance(value, Mapping) and name in value), None)
    near = [f"{owner}.{name}"] if owner else nearest_names(name, sorted(names))
    if near:
        hint = question(near)
    elif name == "env":
        var = next(iter(sorted(members - {"*"})), "NAME")
        hint = f"an expression does not see the environment: declare `vars: {{{var}: VALUE}}`, write `vars.{var}`, and "
        hint += f"set it with `--set {var}=VALUE`"
    else:
        hint = f"known here: {quoted_names(sorted(names))}"
    return EvaluationError(message, hint, E_UNDEFINED, name=name, near=near[0] if len(near) == 1 else "")


def _refuse(why: str) -> NoReturn:
    raise EvaluationError(why)


def _undefined_error(
    error: jinja2.UndefinedError, used: Mapping[str, frozenset[str]], names: Mapping[str, ExpressionValue]
) -> EvaluationError:
    """Return the error of a missing member. It names the top-level mapping that lacks the member, if there is one."""
    message, hint = first_line_of_error(error), hint_of_error(error, names)
    missing = re.match(r"the mapping has no `(.+)`", message)
    member = missing[1] if missing else ""
    for name, members in used.items():
        owner = names.get(name)
        if member and member in members and isinstance(owner, Mapping) and member not in owner:
            near = nearest_names(member, sorted(owner))
            hint = _known_members(name, member, owner)
            if near:
                hint = f"{question(near)} {hint}"
            elif owner and name == "vars":
                hint = f"{hint}: use one of these, or declare `{member}` there"
            message = f"`{name}` has no `{member}`"
            return EvaluationError(
                message, hint, E_UNDEFINED, name=f"{name}.{member}", near=near[0] if len(near) == 1 else ""
            )
    return EvaluationError(message, hint, E_UNDEFINED)


def _known_members(name: str, member: str, owner: Mapping[str, Json]) -> str:
    if not owner and name == "vars":
        return f"declare it at the top of the file: `vars: {{{member}: VALUE}}`"
    if not owner:
        return f"`{name}` is empty"
    return f"`{name}` has {join_first([f'`{one}`' for one in sorted(owner)], _MOST_NAMED)}"


@functools.lru_cache(maxsize=4096)
def _parsed(source: str) -> nodes.Expr:
    if len(source) > MAX_EXPRESSION_LENGTH:
        _refuse(f"the expression is over {MAX_EXPRESSION_LENGTH} characters")
    if not source.strip():
        _refuse("the expression is empty")
    try:
        body = expression_environment().parse("{{" + source + "\n}}").body
    except jinja2.TemplateSyntaxError as error:
        message = f"`{source.strip()}` is not an expression: {first_line_of_error(error)}"
        raise EvaluationError(message, hint_of_error(error, {})) from None
    except RecursionError:
        message = "the expression is nested too deeply"
        raise EvaluationError(message) from None
    output = body[0] if len(body) == 1 else None
    if isinstance(output, nodes.Output) and len(output.nodes) == 1:
        _refuse_depth(output.nodes[0])
        return output.nodes[0]
    _refuse(f"`{source.strip()}` is more than one expression")


def _refuse_depth(tree: nodes.Node) -> None:
    """Refuse a deep expression: Jinja parses `a.b.b.b…` of any length, but the code that walks it is recursive."""
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_EXPRESSION_DEPTH):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return
    _refuse(f"the expression is nested over {MAX_EXPRESSION_DEPTH} levels deep")


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> Callable[[Mapping[str, object]], object]:
    _parsed(source)
    return expression_environment().compile_expression(source, undefined_to_none=False)


@functools.lru_cache(maxsize=4096)
def names_used(source: str) -> Mapping[str, frozenset[str]]:
    """Return the top-level names of an expression, each with its members that are used (`*`: the whole value)."""
    tree = _parsed(source)
    found = [tree, *tree.find_all(nodes.Name)]
    used: dict[str, set[str]] = {
        n.name: set() for n in found if isinstance(n, nodes.Name) and n.name not in TEMPLATE_GLOBALS
    }
    _note_members(tree, used)
    return {name: frozenset(members) for name, members in used.items()}


def _note_members(node: nodes.Node, used: dict[str, set[str]]) -> None:
    owner, member = getattr(node, "node", None), _member_of(node)
    if isinstance(owner, nodes.Name) and owner.name in used and member is not None:
        used[owner.name].add(member)
        return
    if isinstance(node, nodes.Name) and node.name in used:
        used[node.name].add("*")
    for child in node.iter_child_nodes():
        _note_members(child, used)


def _member_of(node: nodes.Node) -> str | None:
    match node:
        case nodes.Getattr():
            return node.attr
        case nodes.Getitem(arg=nodes.Const()):
            return str(node.arg.as_const())
    return None


class _Size(Struct):
    """The remaining size of a value: the number of values in it, and of characters in its texts."""

    values: int = MAX_EXPRESSION_VALUES
    characters: int = MAX_RENDERED_TEXT


def _plain_value(value: object, left: _Size, depth: int) -> Json:
    """Return the value of an expression as plain values, or refuse it."""
    left.values -= 1
    if left.values < 0 or depth > MAX_EXPRESSION_DEPTH:
        _refuse("the result of the expression is too large")
    refuse_undefined(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {str(key): _plain_value(v, left, depth + 1) for key, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, Mapping | str | bytes):
        return [_plain_value(v, left, depth + 1) for v in value]
    return _plain_scalar(value, left)


def _plain_scalar(value: object, left: _Size) -> Json:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Unknown):
        return UNKNOWN_MARK
    if isinstance(value, str):
        left.characters -= len(value)
        if left.characters < 0:
            _refuse(f"the result of the expression is over {MAX_RENDERED_TEXT} characters")
        return str.__str__(value)  # a subclass, such as Markup, becomes plain text
    _refuse(f"the expression gives a {type(value).__name__}, which is not a plain value")
