"""Evaluate the `${{ }}` expressions of a tree of plain values.

Text of a spec or of a model is only a value here, never a template. Jinja is loaded with the first expression.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.model.fields import Problem, path_below
from orch23.model.parsing import json_at, map_strings, strings_in
from orch23.model.paths import patterns_between
from orch23.resolve.expression_syntax import (
    E_EXPRESSION,
    UNKNOWN,
    UNKNOWN_MARK,
    EvaluationError,
    ExpressionSource,
    ExpressionValue,
    UnclosedExpressionError,
    split_expressions,
)


class RenderedTree(Struct, frozen=True):
    """A tree without expressions. `watched` maps the nodes made with a watched name to their source text.

    In a text of several pieces, only those with that name stay expressions. `moved` maps the nodes that a spliced list
    shifted to the paths where they are written. `failed` are the nodes without a value: UNKNOWN_MARK is in their place.
    """

    tree: Json
    errors: tuple[Problem, ...] = ()
    watched: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, str] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    @property
    def unknown(self) -> frozenset[str]:
        """Return the nodes whose value is not known: those that failed, and those that use the watched name."""
        return self.failed.union(self.watched)


def render_watched(
    tree: Json,
    names: Mapping[str, ExpressionValue],
    at: str,
    *,
    watch: str | None = None,
    defer: str | None = None,
    lacking: frozenset[str] = frozenset(),
    failed: Container[str] = (),
) -> RenderedTree:
    """Evaluate a tree, and note which of its nodes use the name `watch`.

    Scalars that use the name `defer` stay as they are written, to be rendered in a second pass; literal `${{` in all
    others is escaped again, so that the second pass does not evaluate it. Nodes that use a var that is `lacking` fail
    without an error, as do those at the paths `failed`, which failed in the first pass: both are reported already.
    """
    walk = _Walk(names=names, watch=watch, defer=defer, lacking=lacking, failed_before=failed)
    result = walk.value(tree, at, at)
    return RenderedTree(result, tuple(walk.errors), walk.watched, walk.moved, frozenset(walk.failed))


def has_expression(text: str) -> bool:
    """Return whether a scalar has an expression. An escaped `$${{` is not one."""
    try:
        return any(isinstance(piece, ExpressionSource) for piece in split_expressions(text))
    except UnclosedExpressionError:
        return True


def uses_name(tree: Json, name: str) -> bool:
    """Return whether any expression in a tree uses a top-level name."""
    return any(name in uses for uses in _all_uses(tree))


def members_used(tree: Json, name: str) -> frozenset[str]:
    """Return the members of a mapping, such as `vars`, that the expressions of a tree use; `*` is any of them."""
    return frozenset(member for uses in _all_uses(tree) for member in uses.get(name, ()))


def node_at(tree: Json, path: str) -> Json:
    """Return the node of a tree at a path, or None."""
    for name in path.split("/"):
        is_position = isinstance(tree, list | tuple) and name.isdecimal()
        tree = json_at(tree, int(name) if is_position else name)
    return tree


def possible_patterns(values: Iterable[Json]) -> tuple[str, ...]:
    """Return the path patterns that outputs or inputs may have once their unknown values are known.

    An unknown value may be any text, also with directories. Listings and exclusions give no pattern, since they read no
    file.
    """
    found: dict[str, None] = {}
    for value in values:
        text = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(text, str) or not text or text.startswith("!"):
            continue
        path = text.partition("#")[0]
        head, unknown, _ = path.partition(UNKNOWN_MARK)
        found |= dict.fromkeys(patterns_between(head, path.rpartition(UNKNOWN_MARK)[2]) if unknown else (path,))
    return tuple(found)


class _Walk(Struct, kw_only=True):
    names: Mapping[str, ExpressionValue]
    watch: str | None
    defer: str | None
    lacking: frozenset[str]
    failed_before: Container[str]
    errors: list[Problem] = field(default_factory=list)
    watched: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def value(self, tree: Json, at: str, written: str) -> Json:
        """Return a node rendered; `at` is its path in the result, `written` its path in the source."""
        if isinstance(tree, str):
            return self._text(tree, at, written)
        if isinstance(tree, Mapping):
            return {
                self._key(k, at, written): self.value(v, path_below(at, k), path_below(written, k))
                for k, v in tree.items()
            }
        if isinstance(tree, Sequence):
            return self._list(tree, at, written)
        return tree

    def _key(self, key: str, at: str, written: str) -> str:
        if "${{" in key:
            self.failed.add(path_below(at, key))
            self.errors.append(Problem(path_below(written, key), E_EXPRESSION, "a key cannot have an expression"))
        return key

    def _fail(self, at: str, error: Problem | None) -> str:
        """Note that a node has no value; without an error where that is reported already."""
        self.failed.add(at)
        if error is not None:
            self.errors.append(error)
        return UNKNOWN_MARK

    def _list(self, tree: Sequence[Json], at: str, written: str) -> list[Json]:
        out: list[Json] = []
        for number, item in enumerate(tree):
            path, source = f"{at}/{len(out)}", f"{written}/{number}"
            result = self.value(item, path, source)
            # A list as the value of one item is spliced: `[a, ${{ vars.more }}]` is one flat list.
            if isinstance(item, str) and isinstance(result, list):
                watched = self.watched.pop(path, None)
                for element in result:
                    place = f"{at}/{len(out)}"
                    self.moved[place] = source
                    if watched is not None:
                        self.watched[place] = watched
                    out.append(element)
                continue
            if path != source:
                self.moved[path] = source
            out.append(result)
        return out

    def _text(self, text: str, at: str, written: str) -> Json:
        if written in self.failed_before:
            return self._fail(at, None)
        if "${{" not in text:
            return text
        try:
            return self._evaluated(text, split_expressions(text), at)
        except UnclosedExpressionError:
            hint = "close it with `}}`, or write `$${{` for the characters themselves"
            return self._fail(at, Problem(written, E_EXPRESSION, "`${{` without its `}}`", hint))
        except EvaluationError as error:
            found = Problem(written, error.code, error.message, error.hint, name=error.name, near=error.near)
            return self._fail(at, found)

    def _evaluated(self, text: str, pieces: "tuple[str | ExpressionSource, ...]", at: str) -> Json:
        uses = [_uses_of(piece.text) for piece in pieces if isinstance(piece, ExpressionSource)]
        lacking = self.lacking and {"*", *self.lacking}
        if lacking and any(not lacking.isdisjoint(one.get("vars", ())) for one in uses):
            return self._fail(at, None)
        used = frozenset().union(*uses)
        if self.defer in used:
            return text
        if self.watch in used:
            self.watched[at] = text
        result = self._joined(pieces, at)
        # In the first of two passes, a literal `${{` in the value of a var must not become an expression of the second.
        return result if self.defer is None else map_strings(result, lambda one: one.replace("${{", "$${{"))

    def _joined(self, pieces: "tuple[str | ExpressionSource, ...]", at: str) -> Json:
        """Return the value of a single expression, or the text of several pieces."""
        if len(pieces) == 1 and isinstance(pieces[0], ExpressionSource):
            return _evaluate(pieces[0].text, self.names)
        parts = [p if isinstance(p, str) else _as_text(_evaluate(p.text, self.names), p.text) for p in pieces]
        if at in self.watched:  # what a var gives is the author's text, like a literal
            self.watched[at] = "".join(
                part if isinstance(p, str) or self.watch not in _uses_of(p.text) else f"${{{{{p.text}}}}}"
                for p, part in zip(pieces, parts, strict=True)
            )
        return "".join(parts)


def _evaluate(source: str, names: Mapping[str, ExpressionValue]) -> Json:
    from orch23.language.evaluation import evaluate  # noqa: PLC0415 - jinja2, for pipelines with expressions

    value = evaluate(source, names)
    return _open_ended(value) if UNKNOWN in names.values() else value


def _open_ended(value: Json) -> Json:
    """Return a value whose texts end with the mark if they have it: a method may shorten what comes after it."""
    if isinstance(value, str):
        return f"{value}{UNKNOWN_MARK}" if UNKNOWN_MARK in value else value
    return [_open_ended(one) for one in value] if isinstance(value, Sequence) else value


def _uses_of(source: str) -> Mapping[str, frozenset[str]]:
    from orch23.language.evaluation import names_used  # noqa: PLC0415 - likewise

    return names_used(source)


def _as_text(value: Json, source: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    kind = "null" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
    way = "default('', true)" if value is None else "tojson" if isinstance(value, Mapping) else "join(' ')"
    hint = f"make it the whole value, or turn it into text: `${{{{ {source.strip()} | {way} }}}}`"
    message = f"`{source.strip()}` is {kind}; a longer text can only contain strings, numbers and booleans"
    raise EvaluationError(message, hint)


def _all_uses(tree: Json) -> Iterator[Mapping[str, frozenset[str]]]:
    """Yield the names of each expression of a tree. A malformed one is skipped: rendering reports it."""
    for text in (text for text in strings_in(tree) if "${{" in text):
        try:
            pieces = split_expressions(text)
            yield from [_uses_of(piece.text) for piece in pieces if isinstance(piece, ExpressionSource)]
        except (UnclosedExpressionError, EvaluationError):
            continue
