"""Evaluate the `${{ }}` expressions of a tree of plain values.

What goes in and comes out are plain values. Text of a spec or of a model is only ever a value here, never a template.
What evaluates is loaded with the first expression.
"""

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.model.parsing import strings_in
from orch23.resolve.expression_syntax import (
    UNKNOWN_MARK,
    EvaluationError,
    ExpressionSource,
    ExpressionValue,
    UnclosedExpressionError,
    split_expressions,
)


class ExpressionError(Struct, frozen=True):
    """What is wrong with an expression at a node of the tree."""

    path: str
    message: str
    hint: str | None = None
    code: str = "E841"


class RenderedTree(Struct, frozen=True):
    """A tree without expressions. `watched` maps the nodes made with a watched name to their source text.

    `moved` maps the nodes that a spliced list shifted to where they were written. `failed` are the nodes that have no
    value: MARK is in their place.
    """

    tree: Json
    errors: tuple[ExpressionError, ...] = ()
    watched: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, str] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    @property
    def unknown(self) -> frozenset[str]:
        """Give the nodes that no value is known of yet: those that failed, and those of a watched name."""
        return self.failed.union(self.watched)


# ---- trees ------------------------------------------------------------------------------------


def render_tree(tree: Json, names: Mapping[str, ExpressionValue], at: str) -> tuple[Json, tuple[ExpressionError, ...]]:
    """Evaluate every expression of a tree that stands at path `at`; a node that fails becomes MARK and an error."""
    rendered = render_watched(tree, names, at)
    return rendered.tree, rendered.errors


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
    """Evaluate a tree, and note which of its nodes come from the name `watch`.

    Scalars that use the name `defer` stay as they are written, to be rendered later; literal `${{` in all others is
    escaped again, so that the second pass gives what the first one meant. Nodes that use a var that is `lacking` fail
    without an error, as do those at the paths `failed`, which failed in the first pass: both are reported already.
    """
    walk = _Walk(names, watch, defer, lacking, failed)
    result = walk.value(tree, at, at)
    return RenderedTree(result, tuple(walk.errors), walk.watched, walk.moved, frozenset(walk.failed))


def has_expression(text: str) -> bool:
    """Say whether a scalar holds an expression (an escaped `$${{` is none)."""
    try:
        return any(isinstance(piece, ExpressionSource) for piece in split_expressions(text))
    except UnclosedExpressionError:
        return True


def uses_name(tree: Json, name: str) -> bool:
    """Say whether any expression in a tree uses a top-level name."""
    return any(name in uses for uses in _all_uses(tree))


def members_used(tree: Json, name: str) -> frozenset[str]:
    """Return the members of a mapping, such as `vars`, that the expressions of a tree use; `*` is any of them."""
    return frozenset(member for uses in _all_uses(tree) for member in uses.get(name, ()))


def node_at(tree: Json, path: str) -> Json:
    """Return the node of a tree at a path, or None."""
    for name in path.split("/"):
        if isinstance(tree, Mapping):
            tree = tree.get(name)
        elif isinstance(tree, Sequence) and not isinstance(tree, str) and name.isdigit() and int(name) < len(tree):
            tree = tree[int(name)]
        else:
            return None
    return tree


def possible_patterns(values: Iterable[Json]) -> tuple[str, ...]:
    """Return the path patterns that outputs or inputs rendered with WILD may turn out to mean.

    From the segment that holds something unknown on, anything is possible: `workspace/**`. Listings give no pattern,
    since they read no file.
    """
    found: dict[str, None] = {}
    for value in values:
        text = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(text, str) or not text or text.startswith("!"):
            continue  # an exclusion reads nothing
        path = text.partition("#")[0]
        if UNKNOWN_MARK in path:
            head = path[: path.index(UNKNOWN_MARK)]
            path = head[: head.rfind("/") + 1] + "**"
        found[path] = None
    return tuple(found)


# ---- the walk ---------------------------------------------------------------------------------


class _Walk:
    """The state of one rendering of a tree."""

    def __init__(
        self,
        names: Mapping[str, ExpressionValue],
        watch: str | None,
        defer: str | None,
        lacking: frozenset[str],
        failed_before: Container[str],
    ) -> None:
        self.errors: list[ExpressionError] = []
        self.watched: dict[str, str] = {}
        self.moved: dict[str, str] = {}
        self.failed: set[str] = set()
        self._names = names
        self._watch = watch
        self._defer = defer
        self._lacking = lacking
        self._failed_before = failed_before

    def value(self, tree: Json, at: str, written: str) -> Json:
        """Return a node rendered; `at` is its path in the result, `written` its path in the source."""
        if isinstance(tree, str):
            return self._text(tree, at, written)
        if isinstance(tree, Mapping):
            return {
                self._key(k, at, written): self.value(v, _below(at, k), _below(written, k)) for k, v in tree.items()
            }
        if isinstance(tree, Sequence):
            return self._list(tree, at, written)
        return tree

    def _key(self, key: str, at: str, written: str) -> str:
        if "${{" in key:
            self.failed.add(_below(at, key))
            self.errors.append(ExpressionError(_below(written, key), "a key may not hold an expression"))
        return key

    def _fail(self, at: str, error: ExpressionError | None) -> str:
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
        if written in self._failed_before:
            return self._fail(at, None)
        if "${{" not in text:
            return text
        try:
            pieces = split_expressions(text)
        except UnclosedExpressionError:
            hint = "close it with `}}`, or write `$${{` for the characters themselves"
            return self._fail(at, ExpressionError(written, "`${{` without its `}}`", hint))
        sources = [piece for piece in pieces if isinstance(piece, ExpressionSource)]
        try:
            uses = [_uses_of(source.text) for source in sources]
            if self._lacking and any(_are_among(one.get("vars", ()), self._lacking) for one in uses):
                return self._fail(at, None)
            used = {name for one in uses for name in one}
            if self._defer in used:
                return text
            if self._watch in used:
                self.watched[at] = text
            result = self._evaluate(pieces)
        except EvaluationError as fault:
            return self._fail(at, ExpressionError(written, fault.message, fault.hint, fault.code))
        return _escape(result) if self._defer is not None else result

    def _evaluate(self, pieces: "tuple[str | ExpressionSource, ...]") -> Json:
        if len(pieces) == 1 and isinstance(pieces[0], ExpressionSource):
            return _evaluate(pieces[0].text, self._names)
        parts = [p if isinstance(p, str) else _as_text(_evaluate(p.text, self._names), p.text) for p in pieces]
        return "".join(parts)


def _below(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key


def _are_among(used: Collection[str], lacking: frozenset[str]) -> bool:
    """Return whether some of the members of `vars` that an expression uses (`*`: any of them) are lacking."""
    return "*" in used or not lacking.isdisjoint(used)


def _evaluate(source: str, names: Mapping[str, ExpressionValue]) -> Json:
    from orch23.resolve.evaluation import evaluate  # noqa: PLC0415 - jinja2, for pipelines with expressions

    return evaluate(source, names)


def _uses_of(source: str) -> Mapping[str, frozenset[str]]:
    from orch23.resolve.evaluation import names_used  # noqa: PLC0415 - likewise

    return names_used(source)


def _as_text(value: Json, source: str) -> str:
    """Return a value as it stands inside a longer text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    kind = "null" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
    hint = "make it the whole value, or turn it into text (`| join(' ')`, `| tojson`, `| default('')`)"
    message = f"`{source.strip()}` is {kind}; inside a text only strings, numbers and booleans can stand"
    raise EvaluationError(message, hint)


def _escape(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace("${{", "$${{")
    if isinstance(value, Mapping):
        return {key: _escape(v) for key, v in value.items()}
    if isinstance(value, Sequence):
        return [_escape(v) for v in value]
    return value


def _all_uses(tree: Json) -> Iterator[Mapping[str, frozenset[str]]]:
    """Give the names of each expression of a tree; a malformed one has none, rendering will complain of it."""
    for text in (text for text in strings_in(tree) if "${{" in text):
        try:
            yield from [
                _uses_of(piece.text) for piece in split_expressions(text) if isinstance(piece, ExpressionSource)
            ]
        except (UnclosedExpressionError, EvaluationError):
            continue
