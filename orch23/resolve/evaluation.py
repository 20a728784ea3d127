"""Evaluate one expression with Jinja, and find the names that it uses."""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping

import jinja2
from jinja2 import nodes

from orch23.model.diagnostic import did_you_mean
from orch23.model.digest import Json
from orch23.resolve.expression_syntax import UNKNOWN, UNKNOWN_MARK, EvaluationError, ExpressionValue, Unknown
from orch23.resolve.templates import (
    MAX_RENDERED_TEXT,
    TEMPLATE_GLOBALS,
    expression_environment,
    first_line_of_error,
    hint_of_error,
)

MAX_EXPRESSION_VALUES = 100_000
MAX_EXPRESSION_LENGTH = 4096
MAX_EXPRESSION_DEPTH = 64


def evaluate(source: str, names: Mapping[str, ExpressionValue]) -> Json:
    """Return the value of one expression."""
    unknown = sorted(set(names_used(source)) - set(names))
    if unknown:
        known = ", ".join(f"`{name}`" for name in sorted(names))
        hint = did_you_mean(unknown[0], names) or f"known here: {known}"
        message = f"`{unknown[0]}` is not defined"
        raise EvaluationError(message, hint, "E840")
    hidden = [name for name, value in names.items() if value is UNKNOWN and name in names_used(source)]
    if hidden and not _is_transparent(source):
        return UNKNOWN_MARK
    try:
        result = _compiled(source)(dict(names))
        return _plain_value(result)
    except EvaluationError:
        raise
    except jinja2.UndefinedError as error:
        raise _undefined(error, source, names) from None
    except Exception as error:  # noqa: BLE001 - an expression may raise anything; all of it is its author's to mend
        message = f"`{source.strip()}` fails: {first_line_of_error(error)}"
        raise EvaluationError(message, hint_of_error(error, names)) from None


def _undefined(error: jinja2.UndefinedError, source: str, names: Mapping[str, ExpressionValue]) -> EvaluationError:
    """Say which name lacks the member, where it is one of the top-level names."""
    message, hint = first_line_of_error(error), hint_of_error(error, names)
    lacking = re.match(r"the mapping has no `(.+)`", message)
    for name, members in names_used(source).items() if lacking else ():
        owner = names.get(name)
        if lacking and lacking[1] in members and isinstance(owner, Mapping) and lacking[1] not in owner:
            known = ", ".join(f"`{member}`" for member in owner)
            hint = hint or (f"known here: {known}" if known else f"`{name}` is empty")
            return EvaluationError(f"`{name}` has no `{lacking[1]}`", hint, "E840")
    return EvaluationError(message, hint, "E840")


@functools.lru_cache(maxsize=4096)
def _parsed(source: str) -> nodes.Expr:
    if len(source) > MAX_EXPRESSION_LENGTH:
        message = f"the expression is over {MAX_EXPRESSION_LENGTH} characters"
        raise EvaluationError(message)
    if not source.strip():
        message = "the expression is empty"
        raise EvaluationError(message)
    try:
        body = expression_environment().parse("{{" + source + "\n}}").body
    except jinja2.TemplateSyntaxError as error:
        message = f"`{source.strip()}` is no expression: {first_line_of_error(error)}"
        raise EvaluationError(message, hint_of_error(error, {})) from None
    except RecursionError:
        message = "the expression is nested too deeply"
        raise EvaluationError(message) from None
    output = body[0] if len(body) == 1 else None
    if isinstance(output, nodes.Output) and len(output.nodes) == 1:
        _refuse_depth(output.nodes[0])
        return output.nodes[0]
    message = f"`{source.strip()}` is more than one expression"
    raise EvaluationError(message)


def _refuse_depth(tree: nodes.Node) -> None:
    """Refuse an expression that recursion could not walk: Jinja reads `a.b.b.b…` of any length."""
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_EXPRESSION_DEPTH):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return
    message = f"the expression is nested over {MAX_EXPRESSION_DEPTH} levels deep"
    raise EvaluationError(message)


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> Callable[[Mapping[str, object]], object]:
    _parsed(source)
    return expression_environment().compile_expression(source, undefined_to_none=False)


@functools.lru_cache(maxsize=4096)
def names_used(source: str) -> Mapping[str, frozenset[str]]:
    """Return the top-level names of an expression, each with the members taken from it (`*`: the whole)."""
    tree = _parsed(source)
    found = [tree, *tree.find_all(nodes.Name)]
    used: dict[str, set[str]] = {
        n.name: set() for n in found if isinstance(n, nodes.Name) and n.name not in TEMPLATE_GLOBALS
    }
    _note_members(tree, used)
    return {name: frozenset(members) for name, members in used.items()}


def _note_members(node: nodes.Node, used: dict[str, set[str]]) -> None:
    owner = getattr(node, "node", None)
    if isinstance(owner, nodes.Name) and owner.name in used:
        if isinstance(node, nodes.Getattr):
            used[owner.name].add(node.attr)
            return
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            used[owner.name].add(str(node.arg.value))
            return
    if isinstance(node, nodes.Name) and node.name in used:
        used[node.name].add("*")
    for child in node.iter_child_nodes():
        _note_members(child, used)


def _is_transparent(source: str) -> bool:
    """Say whether what is unknown in an expression stays visible in its result: no condition, comparison or call."""
    visible = (
        nodes.Name,
        nodes.Getattr,
        nodes.Getitem,
        nodes.Filter,
        nodes.Const,
        nodes.Concat,
        nodes.List,
        nodes.Slice,
    )
    tree = _parsed(source)
    return isinstance(tree, visible) and all(isinstance(n, visible) for n in tree.find_all(nodes.Expr))


def _plain_value(value: object) -> Json:
    """Return what an expression gave as plain values, or refuse it."""
    budget = [MAX_EXPRESSION_VALUES, MAX_RENDERED_TEXT]
    return _plain_node(value, budget, 0)


def _plain_node(value: object, budget: list[int], depth: int) -> Json:
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_EXPRESSION_DEPTH:
        message = "the result of the expression is too large"
        raise EvaluationError(message)
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises, with the words of the undefined name
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Unknown):
        return UNKNOWN_MARK
    if isinstance(value, str):
        budget[1] -= len(value)
        if budget[1] < 0:
            message = f"the result of the expression is over {MAX_RENDERED_TEXT} characters"
            raise EvaluationError(message)
        return str.__str__(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {str(key): _plain_node(v, budget, depth + 1) for key, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        return [_plain_node(v, budget, depth + 1) for v in value]
    message = f"the expression gives a {type(value).__name__}, which is no plain value"
    raise EvaluationError(message)
