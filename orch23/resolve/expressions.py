"""Evaluate `${{ }}` in parsed values, and Jinja files as text: sandboxed, strict on undefined names, capped, without I/O.

This is the only module that knows Jinja; what goes in and comes out are plain values. Text of a spec or of a model is only
ever a value here, never a template.
"""

import difflib
import functools
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from orch23.model.digest import Json

MAX_TEXT = 4 << 20
MAX_VALUES = 100_000
MAX_EXPRESSION = 4096

_FILTERS = frozenset(
    """abs batch capitalize d default dictsort first float groupby indent int items join last length list lower map max
    min reject rejectattr replace reverse round select selectattr slice sort string sum title tojson trim truncate unique
    upper wordcount""".split()
)
_GLOBALS = frozenset({"range"})
# Methods that make a text of any size from a number.
_WIDE_METHODS = frozenset({"format", "format_map", "center", "ljust", "rjust", "zfill", "expandtabs"})
# A noncharacter: it survives upper, lower and trim, and no file of a project may hold it.
_MARK: Final = "\ufdd0"


@dataclass(frozen=True, slots=True)
class ExpressionError:
    """What is wrong with an expression at a node of the tree."""

    path: str
    message: str
    hint: str | None = None
    code: str = "E841"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A tree without expressions. `watched` maps the nodes made with a watched name to their source text.

    `moved` maps the nodes that a spliced list shifted to where they were written.
    """

    tree: Json
    errors: tuple[ExpressionError, ...] = ()
    watched: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, str] = field(default_factory=dict)


class TemplateProblem(Exception):  # noqa: N818 - a problem of the work, told to its author; not an error of the tool
    """A prompt or template file that cannot be rendered; `line` counts from 1, in the file `name`."""

    def __init__(self, line: int, message: str, hint: str | None = None, name: str = "") -> None:
        """Keep place, fact and way out."""
        super().__init__(f"{name}:{line}: {message}")
        self.line, self.message, self.hint, self.name = line, message, hint, name


class Wild:
    """What stands for an item that is not known yet: whatever is taken from it is as unknown."""

    __slots__ = ()

    def __str__(self) -> str:
        """Give the mark that `wild_patterns` looks for."""
        return _MARK

    __html__ = __str__


WILD: Final = Wild()

# Names may hold the placeholder of an unknown item beside plain values.
Value: TypeAlias = "Json | Wild"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known word, or None."""
    near = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None


# ---- trees ------------------------------------------------------------------------------------


def render_tree(tree: Json, names: Mapping[str, Value], at: str) -> tuple[Json, tuple[ExpressionError, ...]]:
    """Evaluate every expression of a tree that stands at path `at`; a node that fails becomes None and an error."""
    rendered = render_watched(tree, names, at)
    return rendered.tree, rendered.errors


def render_watched(
    tree: Json, names: Mapping[str, Value], at: str, *, watch: str | None = None, defer: str | None = None
) -> Rendered:
    """Evaluate a tree, and note which of its nodes come from the name `watch`.

    Scalars that use the name `defer` stay as they are written, to be rendered later; literal `${{` in all others is
    escaped again, so that the second pass gives what the first one meant.
    """
    walk = _Walk(names, watch, defer)
    result = walk.value(tree, at, at)
    return Rendered(result, tuple(walk.errors), walk.watched, walk.moved)


def has_expression(text: str) -> bool:
    """Say whether a scalar holds an expression (an escaped `$${{` is none)."""
    try:
        return any(isinstance(piece, _Source) for piece in _pieces(text))
    except _UnclosedError:
        return True


def mentions(tree: Json, name: str) -> bool:
    """Say whether any expression in a tree uses a top-level name."""
    return any(name in uses for uses in _all_uses(tree))


def members_used(tree: Json, name: str) -> frozenset[str]:
    """Return the members of a mapping, such as `vars`, that the expressions of a tree use; `*` is any of them."""
    return frozenset(member for uses in _all_uses(tree) for member in uses.get(name, ()))


def wild_patterns(values: Iterable[Json]) -> tuple[str, ...]:
    """Return the path patterns that outputs or inputs rendered with WILD may turn out to mean.

    From the segment that holds something unknown on, anything is possible: `workspace/**`. Listings give no pattern,
    since they read no file.
    """
    found: dict[str, None] = {}
    for value in values:
        text = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(text, str) or not text:
            continue
        path = text.partition("#")[0]
        if _MARK in path:
            head = path[: path.index(_MARK)]
            path = head[: head.rfind("/") + 1] + "**"
        found[path] = None
    return tuple(found)


# ---- files ------------------------------------------------------------------------------------


def render_text(
    source: str, names: Mapping[str, object], name: str, load: Callable[[str], str | None] | None = None
) -> str:
    """Render a prompt or template file. `{% include %}` and `{% import %}` work through `load`, if it is given.

    Raises:
        TemplateProblem: the template is malformed, uses what is not defined, or makes more than 4 MiB.

    """
    loader = jinja2.FunctionLoader(load if load is not None else _nothing)
    environment = _environment().overlay(loader=loader, cache_size=0)
    line = 1
    try:
        code = environment.compile(source, name, name)
        template = jinja2.Template.from_code(environment, code, environment.make_globals(None))
        out: list[str] = []
        size = 0
        for part in template.generate(dict(names)):
            size += len(part)
            if size > MAX_TEXT:
                raise TemplateProblem(line, f"the text is over {MAX_TEXT} characters", "give it less to show", name)
            out.append(part)
        return "".join(out)
    except TemplateProblem:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateProblem(error.lineno, _plain_message(error), _hint_of(error, names), error.name or name) from None
    except jinja2.TemplateNotFound as error:
        hint = "only files that the stage may see can be included"
        raise TemplateProblem(_line_of(error, name), f"there is no template `{error.name}`", hint, name) from None
    except Exception as error:  # noqa: BLE001 - a template may raise anything; all of it is its author's to mend
        raise TemplateProblem(_line_of(error, name), _plain_message(error), _hint_of(error, names), name) from None


def _nothing(name: str) -> None:
    """Find no template."""
    del name


def _line_of(error: BaseException, name: str) -> int:
    """Return the line of the template where an error rose; Jinja compiles with the lines of the source."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# ---- the walk ---------------------------------------------------------------------------------


class _Walk:
    """The state of one rendering of a tree."""

    def __init__(self, names: Mapping[str, Value], watch: str | None, defer: str | None) -> None:
        self.errors: list[ExpressionError] = []
        self.watched: dict[str, str] = {}
        self.moved: dict[str, str] = {}
        self._names = names
        self._watch = watch
        self._defer = defer

    def value(self, tree: Json, at: str, written: str) -> Json:
        """Return a node rendered; `at` is its path in the result, `written` its path in the source."""
        if isinstance(tree, str):
            return self._text(tree, at, written)
        if isinstance(tree, Mapping):
            return {self._key(key, written): self.value(v, f"{at}/{key}", f"{written}/{key}") for key, v in tree.items()}
        if isinstance(tree, Sequence):
            return self._list(tree, at, written)
        return tree

    def _key(self, key: str, written: str) -> str:
        if "${{" in key:
            self.errors.append(ExpressionError(f"{written}/{key}", "a key may not hold an expression"))
        return key

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
        if "${{" not in text:
            return text
        try:
            pieces = _pieces(text)
        except _UnclosedError:
            hint = "close it with `}}`, or write `$${{` for the characters themselves"
            self.errors.append(ExpressionError(written, "`${{` without its `}}`", hint))
            return None
        sources = [piece for piece in pieces if isinstance(piece, _Source)]
        try:
            used = {name for source in sources for name in _uses(source.text)}
            if self._defer in used:
                return text
            if self._watch in used:
                self.watched[at] = text
            result = self._evaluate(pieces)
        except _ExpressionFault as fault:
            self.errors.append(ExpressionError(written, fault.message, fault.hint, fault.code))
            return None
        return _escape(result) if self._defer is not None else result

    def _evaluate(self, pieces: "tuple[str | _Source, ...]") -> Json:
        if len(pieces) == 1 and isinstance(pieces[0], _Source):
            return _evaluate(pieces[0].text, self._names)
        parts = [p if isinstance(p, str) else _as_text(_evaluate(p.text, self._names), p.text) for p in pieces]
        return "".join(parts)


def _as_text(value: Json, source: str) -> str:
    """Return a value as it stands inside a longer text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    kind = "null" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
    hint = "make it the whole value, or turn it into text (`| join(' ')`, `| tojson`, `| default('')`)"
    message = f"`{source.strip()}` is {kind}; inside a text only strings, numbers and booleans can stand"
    raise _ExpressionFault(message, hint)


def _escape(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace("${{", "$${{")
    if isinstance(value, Mapping):
        return {key: _escape(v) for key, v in value.items()}
    if isinstance(value, Sequence):
        return [_escape(v) for v in value]
    return value


# ---- one text ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    """The text between `${{` and `}}`."""

    text: str


class _UnclosedError(Exception):
    """A `${{` without its `}}`."""


@functools.lru_cache(maxsize=4096)
def _pieces(text: str) -> "tuple[str | _Source, ...]":
    """Split a scalar into literal texts and expressions."""
    out: list[str | _Source] = []
    literal, at = "", 0
    while True:
        start = text.find("${{", at)
        if start < 0:
            break
        if start > at and text[start - 1] == "$":
            literal += text[at : start - 1] + "${{"
            at = start + 3
            continue
        end = _end_of(text, start + 3)
        literal += text[at:start]
        if literal:
            out.append(literal)
        literal, at = "", end + 2
        out.append(_Source(text[start + 3 : end]))
    literal += text[at:]
    if literal:
        out.append(literal)
    return tuple(out)


_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\}\}|[{}]""", re.DOTALL)


def _end_of(text: str, at: int) -> int:
    """Return where the `}}` of an expression is: outside of strings, and of the braces of a dict."""
    depth = 0
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token.group() == "{":
            depth += 1
        elif token.group()[0] == "}":
            if depth == 0 and token.group() == "}}":
                return token.start()
            if depth:
                depth -= 1
                at = token.start() + 1
    raise _UnclosedError


class _ExpressionFault(Exception):  # noqa: N818 - carried no further than this module, where it becomes an ExpressionError
    """An expression without a value."""

    def __init__(self, message: str, hint: str | None = None, code: str = "E841") -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


def _evaluate(source: str, names: Mapping[str, Value]) -> Json:
    """Return the value of one expression."""
    unknown = sorted(set(_uses(source)) - set(names))
    if unknown:
        known = ", ".join(f"`{name}`" for name in sorted(names))
        hint = did_you_mean(unknown[0], names) or f"known here: {known}"
        raise _ExpressionFault(f"`{unknown[0]}` is not defined", hint, "E840")
    hidden = [name for name, value in names.items() if value is WILD and name in _uses(source)]
    if hidden and not _is_transparent(source):
        return _MARK
    try:
        result = _compiled(source)(dict(names))
        return _plain_value(result)
    except _ExpressionFault:
        raise
    except jinja2.UndefinedError as error:
        raise _undefined(error, source, names) from None
    except Exception as error:  # noqa: BLE001 - an expression may raise anything; all of it is its author's to mend
        raise _ExpressionFault(f"`{source.strip()}` fails: {_plain_message(error)}", _hint_of(error, names)) from None


def _undefined(error: jinja2.UndefinedError, source: str, names: Mapping[str, Value]) -> _ExpressionFault:
    """Say which name lacks the member, where it is one of the top-level names."""
    message, hint = _plain_message(error), _hint_of(error, names)
    lacking = re.match(r"the mapping has no `(.+)`", message)
    for name, members in _uses(source).items() if lacking else ():
        owner = names.get(name)
        if lacking and lacking[1] in members and isinstance(owner, Mapping) and lacking[1] not in owner:
            known = ", ".join(f"`{member}`" for member in owner)
            hint = hint or (f"known here: {known}" if known else f"`{name}` is empty")
            return _ExpressionFault(f"`{name}` has no `{lacking[1]}`", hint, "E840")
    return _ExpressionFault(message, hint, "E840")


@functools.lru_cache(maxsize=4096)
def _parsed(source: str) -> nodes.Expr:
    if len(source) > MAX_EXPRESSION:
        message = f"the expression is over {MAX_EXPRESSION} characters"
        raise _ExpressionFault(message)
    if not source.strip():
        message = "the expression is empty"
        raise _ExpressionFault(message)
    try:
        body = _environment().parse("{{" + source + "\n}}").body
    except jinja2.TemplateSyntaxError as error:
        message = f"`{source.strip()}` is no expression: {_plain_message(error)}"
        raise _ExpressionFault(message, _hint_of(error, {})) from None
    except RecursionError:
        message = "the expression is nested too deeply"
        raise _ExpressionFault(message) from None
    output = body[0] if len(body) == 1 else None
    if isinstance(output, nodes.Output) and len(output.nodes) == 1:
        return output.nodes[0]
    message = f"`{source.strip()}` is more than one expression"
    raise _ExpressionFault(message)


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> Callable[[Mapping[str, object]], object]:
    _parsed(source)
    return _environment().compile_expression(source, undefined_to_none=False)


@functools.lru_cache(maxsize=4096)
def _uses(source: str) -> Mapping[str, frozenset[str]]:
    """Return the top-level names of an expression, each with the members taken from it (`*`: the whole)."""
    tree = _parsed(source)
    found = [tree, *tree.find_all(nodes.Name)]
    used: dict[str, set[str]] = {n.name: set() for n in found if isinstance(n, nodes.Name) and n.name not in _GLOBALS}
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


def _all_uses(tree: Json) -> Iterator[Mapping[str, frozenset[str]]]:
    """Give the names of each expression of a tree; a malformed one has none, rendering will complain of it."""
    for text in _texts(tree):
        try:
            yield from [_uses(piece.text) for piece in _pieces(text) if isinstance(piece, _Source)]
        except (_UnclosedError, _ExpressionFault):
            continue


def _texts(tree: Json) -> Iterator[str]:
    if isinstance(tree, str):
        if "${{" in tree:
            yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _texts(value)
    elif isinstance(tree, Sequence):
        for value in tree:
            yield from _texts(value)


def _is_transparent(source: str) -> bool:
    """Say whether what is unknown in an expression stays visible in its result: no condition, comparison or call."""
    visible = (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Const, nodes.Concat, nodes.List, nodes.Slice)
    tree = _parsed(source)
    return isinstance(tree, visible) and all(isinstance(n, visible) for n in tree.find_all(nodes.Expr))


def _plain_value(value: object) -> Json:
    """Return what an expression gave as plain values, or refuse it."""
    budget = [MAX_VALUES, MAX_TEXT]
    return _plain_node(value, budget, 0)


def _plain_node(value: object, budget: list[int], depth: int) -> Json:
    budget[0] -= 1
    if budget[0] < 0 or depth > 64:  # noqa: PLR2004 - as deep as YAML may be
        message = "the result of the expression is too large"
        raise _ExpressionFault(message)
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises, with the words of the undefined name
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Wild):
        return _MARK
    if isinstance(value, str):
        budget[1] -= len(value)
        if budget[1] < 0:
            message = f"the result of the expression is over {MAX_TEXT} characters"
            raise _ExpressionFault(message)
        return str.__str__(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {str(key): _plain_node(v, budget, depth + 1) for key, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        return [_plain_node(v, budget, depth + 1) for v in value]
    message = f"the expression gives a {type(value).__name__}, which is no plain value"
    raise _ExpressionFault(message)


# ---- Jinja ------------------------------------------------------------------------------------


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

    intercepted_binops = frozenset({"*", "**", "%"})

    def getattr(self, obj: object, attribute: str) -> object:
        """Prefer a mapping's member over its method, so that a var may be called `items`."""
        if obj is WILD:
            return WILD
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        """Take a member; anything taken from the unknown is unknown."""
        if obj is WILD or argument is WILD or (isinstance(obj, str) and _MARK in obj):
            return WILD
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Refuse also the methods that make a text of any width."""
        return attr not in _WIDE_METHODS and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: object, operator: str, left: object, right: object) -> object:
        """Multiply numbers only: a text or list times a number may be of any size."""
        del context
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "*":
                return left * right
            if operator == "%":
                return left % right
            if abs(right) <= 64 and abs(left) <= 1 << 32:  # noqa: PLR2004 - 2048 bits at most
                return left**right
        message = f"`{operator}` is for (small) numbers only"
        raise TypeError(message)


def _under(value: object, prefix: object) -> object:
    """Join a path, or each path of a list, below a prefix."""
    if not isinstance(prefix, str):
        message = "`under` needs a prefix that is a string"
        raise TypeError(message)
    base = prefix.rstrip("/")
    if isinstance(value, Wild):
        return f"{base}/{_MARK}"
    if isinstance(value, str):
        return f"{base}/{value}"
    if isinstance(value, Iterable) and not isinstance(value, Mapping | jinja2.Undefined):
        return [_under(element, prefix) for element in value]
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises
    message = "`under` needs a path or a list of paths"
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
        or (isinstance(value, str) and _MARK in value)
        or (isinstance(value, list | tuple) and _is_wild(value))
        for value in values
    )


@functools.cache
def _environment() -> _Environment:
    environment = _Environment(undefined=_Missing, keep_trailing_newline=True, autoescape=False, cache_size=0)
    environment.filters = {name: _knows_wild(f) for name, f in environment.filters.items() if name in _FILTERS}
    environment.filters["under"] = _under
    environment.globals = {name: environment.globals[name] for name in _GLOBALS}
    return environment


def _plain_message(error: Exception) -> str:
    """Return the first line of an error's own words."""
    text = str(error.message) if isinstance(error, jinja2.TemplateError) and error.message else str(error)
    words = text.split("\n", 1)[0].split("; did you mean", 1)[0] or type(error).__name__
    return words.replace("'end of print statement'", "end")


def _hint_of(error: Exception, names: Mapping[str, object]) -> str | None:
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
    return did_you_mean(lacking[1], [*_FILTERS, "under"]) if lacking else None
