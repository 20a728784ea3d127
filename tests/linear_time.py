"""Find the patterns of the product, feed them texts of one shape in growing sizes, and compare the CPU time."""

import ast
import contextlib
import gc
import importlib
import inspect
import pkgutil
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from re import _constants as sre  # type: ignore[attr-defined]  # the tree of a pattern is not public
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import orch23
import orch23_checks
from orch23.model import patterns

Function: TypeAlias = Callable[[str], object]
# Multiples of 6: a text of quotes alone is Python source at each size, or at none.
SIZES: Final = (100_002, 200_004, 400_008)
_METHODS: Final = frozenset({"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
_COMPILERS: Final = frozenset({"compile", "lazy_pattern"})
# Of a pattern whose use is not seen, in a container for example.
_ANY_USE: Final = ("finditer", "fullmatch")
_LEAST_S: Final = 0.02
_MOST_GROWTH: Final = 2.5
_QUICK_GROWTH, _QUICK_LEAST_S = 8.0, 0.000_3


class UsedPattern(NamedTuple):
    """A pattern of a module, with the way it is used: a method of `re.Pattern`."""

    place: str
    text: str | bytes
    flags: int
    method: str

    def __call__(self, text: str) -> None:
        """Use the pattern on a text."""
        compiled: re.Pattern[Any] = re.compile(self.text, self.flags)
        given = text.encode("utf-8", "surrogatepass") if isinstance(self.text, bytes) else text
        if self.method in ("sub", "subn"):
            getattr(compiled, self.method)(given[:0], given)
        elif self.method == "finditer":
            for _ in compiled.finditer(given):
                pass
        else:
            getattr(compiled, self.method)(given)

    def parsed(self) -> Any:
        """Return the tree of the pattern."""
        flags = self.flags & ~re.UNICODE if isinstance(self.text, bytes) else self.flags
        return parser.parse(self.text, flags)


# ---- patterns ---------------------------------------------------------------------------------------


def product_modules() -> Iterator[ModuleType]:
    """Yield each module of the product, but for programs that run when they are imported."""
    for package in (orch23, orch23_checks):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                with contextlib.suppress(ModuleNotFoundError):
                    yield importlib.import_module(found.name)


def used_patterns(modules: list[ModuleType]) -> tuple[list[UsedPattern], list[str]]:
    """Return each pattern with each of its uses, and the places of patterns whose text is not known."""
    # Each tree is walked once: that takes longer than all the rest.
    trees = {module: tuple(ast.walk(ast.parse(inspect.getsource(module)))) for module in modules}
    uses = {module: _uses(nodes) for module, nodes in trees.items()}
    public: defaultdict[str, set[str]] = defaultdict(set)
    for of_module in uses.values():
        for name, methods in of_module.items():
            public[name] |= methods
    found: dict[tuple[str | bytes, int, str], str] = {}
    unknown: list[str] = []
    for module, nodes in trees.items():
        for name, value in _named_values(module):
            for text, flags in _compiled(value):
                short = name.rpartition(".")[2]
                for method in (uses[module] if short.startswith("_") else public).get(short) or _ANY_USE:
                    found.setdefault((text, flags, method), f"{module.__name__}.{name}")
        for place, literal, flags, method in _literals(module, nodes):
            if literal is None:
                unknown.append(place)
            else:
                for one in (method,) if method else _ANY_USE:
                    found.setdefault((literal, flags, one), place)
    return [UsedPattern(place, *key) for key, place in found.items()], unknown


def _uses(nodes: Iterable[ast.AST]) -> Mapping[str, set[str]]:
    """Return the methods that are called on each name: `_NAME.search(text)`, `self._name.sub(...)`."""
    uses: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in _METHODS:
            owner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            uses[name].add(node.attr)
    return uses


def _named_values(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        yield name, value
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from ((f"{name}.{inner}", one) for inner, one in vars(value).items())


def _compiled(value: Any) -> Iterator[tuple[str | bytes, int]]:
    """Yield text and flags of each compiled pattern in a value: also in containers and Structs."""
    if isinstance(value, re.Pattern):
        yield value.pattern, value.flags
    elif isinstance(value, patterns._LazyPattern):
        yield value._text, re.compile(value._text, value._flags).flags
    elif isinstance(value, Mapping):
        for one in (*value.keys(), *value.values()):
            yield from _compiled(one)
    elif isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from _compiled(one)
    elif not isinstance(value, type) and hasattr(type(value), "__struct_fields__"):
        for name in type(value).__struct_fields__:
            yield from _compiled(getattr(value, name))


def _literals(module: ModuleType, nodes: Collection[ast.AST]) -> Iterator[tuple[str, str | bytes | None, int, str]]:
    """Yield place, text, flags and method of each call of `re`, and of each `pattern=` of msgspec."""
    # Values of modules and classes are found as such, with their uses.
    bodies = [one.body for one in nodes if isinstance(one, ast.Module | ast.ClassDef)]
    named = {
        id(part)
        for body in bodies
        for one in body
        if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None
        for part in ast.walk(one.value)
    }
    for node in nodes:
        if not isinstance(node, ast.Call) or id(node) in named:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        of_re = (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("re", "re2")
        )
        is_call = node.args and ((of_re and name in _METHODS | _COMPILERS) or name == "lazy_pattern")
        place = f"{module.__name__}.{_function_of(nodes, node)}" if is_call or name == "Meta" else ""
        if name == "Meta":
            for keyword in node.keywords:
                if keyword.arg == "pattern":
                    yield place, _text(module, keyword.value), re.compile("").flags, "search"
        elif is_call:
            text = _text(module, node.args[0])
            given = [*node.args[1:], *(one.value for one in node.keywords if one.arg == "flags")]
            flags = 0
            for one in given:
                with contextlib.suppress(Exception):
                    value = _value(module, one)
                    flags = value if isinstance(value, re.RegexFlag) else flags
            if text is not None:
                flags = re.compile(text, flags).flags
            yield place, text, flags, name if name in _METHODS else ""


def _function_of(nodes: Iterable[ast.AST], node: ast.expr) -> str:
    kinds = (ast.FunctionDef, ast.ClassDef)
    around = [one for one in nodes if isinstance(one, kinds) and one.lineno <= node.lineno <= (one.end_lineno or 0)]
    return ".".join(one.name for one in sorted(around, key=lambda one: one.lineno)) or str(node.lineno)


def _value(module: ModuleType, node: ast.expr) -> Any:
    return eval(compile(ast.Expression(node), module.__name__, "eval"), dict(vars(module)))


def _text(module: ModuleType, node: ast.expr) -> str | bytes | None:
    """Return the text of a pattern, where values of a call are samples; None if it is not known."""
    with contextlib.suppress(Exception):
        value = _value(module, node)
        value = value.pattern if isinstance(value, re.Pattern) else value
        return value if isinstance(value, str | bytes) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_part(module, one) for one in node.values]
        with contextlib.suppress(re.error):
            re.compile("".join(parts))
            return "".join(parts)
    return None


def _part(module: ModuleType, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    with contextlib.suppress(Exception):
        return str(_value(module, node.value))
    return "3" if "len" in ast.unparse(node) else "name"


# ---- texts ------------------------------------------------------------------------------------------

_RUNS = ("a", "A", "0", " ", "\n", ".", "-", "/", '"', "`", "<", "é")
_PAIRS = ("a ", "a.", "a/", "a:", "a\n", " \n", "0.", '{"', '\\"')


def shapes(pattern: UsedPattern | None = None) -> Iterator[Callable[[int], str]]:
    """Yield functions that make a text of a size: runs, pairs, and near misses of a pattern."""
    for one in (*_RUNS, *_PAIRS):
        yield _repeated(one)
    if pattern is None:
        return
    tree = pattern.parsed()
    sample = _sample(tree)
    for one in (sample, sample[:-1], sample[:-1] + "\0"):
        if one:
            yield _repeated(one)
    yield from _inflated(tree)


def _inflated(tree: Any) -> Iterator[Callable[[int], str]]:
    """Yield, for each repetition without a bound, texts that begin as the pattern does and then only repeat."""
    for before, body in _repeats(tree, ""):
        for unit in dict.fromkeys((_sample(body), _last(body))):
            if unit:
                yield _repeated(unit, before)
                yield _repeated(before + unit * 20)


def _repeated(unit: str, before: str = "") -> Callable[[int], str]:
    return lambda size: before + unit * max(1, size // len(unit))


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, Any]]:
    for kind, given in tree:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            if given[1] == sre.MAXREPEAT:
                yield before, given[2]
            yield from _repeats(given[2], before)
        elif kind is sre.SUBPATTERN:
            yield from _repeats(given[3], before)
        elif kind is sre.ATOMIC_GROUP:
            yield from _repeats(given, before)
        elif kind is sre.BRANCH:
            for one in given[1]:
                yield from _repeats(one, before)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repeats(given[1], before)
        before += _sample([(kind, given)])


def _sample(tree: Any) -> str:
    """Return a text that a part of a pattern matches, more or less."""
    text = ""
    for kind, given in tree:
        if kind is sre.LITERAL:
            text += chr(given)
        elif kind is sre.NOT_LITERAL:
            text += "a" if given != ord("a") else "b"
        elif kind is sre.ANY:
            text += "a"
        elif kind is sre.IN:
            text += _of_class(given)
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            text += _sample(given[2]) * max(given[0], min(1, given[1]))
        elif kind is sre.SUBPATTERN:
            text += _sample(given[3])
        elif kind is sre.ATOMIC_GROUP:
            text += _sample(given)
        elif kind is sre.BRANCH:
            text += _sample(given[1][0])
    return text


def _last(tree: Any) -> str:
    """Return a character of the last class of a part of a pattern."""
    return _sample(list(tree)[-1:])[-1:]


def _of_class(given: Any) -> str:
    """Return a character of a class: a plain one, if it has such."""
    codes = (*map(ord, "a0A_ ./-:=\"'\n,;"), *range(33, 9_000))
    return chr(next((code for code in codes if _in_class(given, code)), ord("a")))


def _in_class(given: Any, code: int) -> bool:
    negated = any(kind is sre.NEGATE for kind, _ in given)
    found = False
    for kind, value in given:
        if kind is sre.LITERAL:
            found |= value == code
        elif kind is sre.RANGE:
            found |= value[0] <= code <= value[1]
        elif kind is sre.CATEGORY:
            char = chr(code)
            word, digit, space = char.isalnum() or char == "_", char.isdigit(), char.isspace()
            found |= {
                sre.CATEGORY_WORD: word,
                sre.CATEGORY_NOT_WORD: not word,
                sre.CATEGORY_DIGIT: digit,
                sre.CATEGORY_NOT_DIGIT: not digit,
                sre.CATEGORY_SPACE: space,
                sre.CATEGORY_NOT_SPACE: not space,
            }[value]
    return found != negated


_WORDS = (
    "</think><think>",
    "```a.py\n",
    "- a\n",
    '{"a":',
    "[",
    "<<<<<<< SEARCH\n",
    "a: b\n",
    "E   x\n",
    "a: not found\n",
    "${{",
    '<file path="a.py">\n',
    "</file>\n",
    '{"path": "a.py", "content": ["\n',
    "&lt;",
)


def word_shapes() -> Iterator[Callable[[int], str]]:
    """Yield functions that make texts of a size of the words of responses, messages and data."""
    for one in _WORDS:
        yield _repeated(one)


def functions_of_a_text(modules: Iterable[ModuleType], packages: Collection[str]) -> Iterator[tuple[str, Function]]:
    """Yield each function of these packages whose one required parameter is a text or bytes, private ones too."""
    for module in modules:
        if module.__name__.split(".")[1:2] and module.__name__.split(".")[1] in packages:
            for name, function in vars(module).items():
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    kind = _only_parameter(function)
                    if kind in ("str", "bytes"):
                        yield f"{module.__name__}.{name}", _of_bytes(function) if kind == "bytes" else function


def _only_parameter(function: Any) -> str:
    """Return the kind of the one required parameter of a function; an empty text if it has none or several."""
    with contextlib.suppress(TypeError, ValueError):
        given = inspect.signature(function).parameters.values()
        required = [
            one for one in given if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        if len(required) == 1:
            return getattr(required[0].annotation, "__name__", str(required[0].annotation))
    return ""


def _of_bytes(function: Any) -> Function:
    return lambda text: function(text.encode("utf-8", "surrogatepass"))


def refusing(function: Function) -> Function:
    """Return a function that calls another, drops its errors, and reads all that an iterator yields."""

    def feed(text: str) -> None:
        # To refuse a text must take linear time too.
        with contextlib.suppress(Exception):
            found = function(text)
            if isinstance(found, Iterator):
                for _ in found:
                    pass

    return feed


def repeats_without_bound(pattern: UsedPattern) -> bool:
    """Return whether a pattern has a repetition without a bound; else it takes linear time with any method."""
    return next(_repeats(pattern.parsed(), ""), None) is not None


# ---- time -------------------------------------------------------------------------------------------


def _seconds(function: Function, text: str, times: int) -> float:
    best = float("inf")
    gc.disable()  # it takes more of a large text
    try:
        for _ in range(times):
            start = time.process_time()
            function(text)
            best = min(best, time.process_time() - start)
    finally:
        gc.enable()
    return best


def _steady_growth(function: Function, small: str, large: str, rounds: int) -> tuple[float, float]:
    """Return the median growth of the time from a text to a larger one, and the least time of the larger.

    Each round times both, one after the other: a machine that is slow for a while is slow for both.
    """
    pairs = [(_seconds(function, small, 2), _seconds(function, large, 1)) for _ in range(rounds)]
    return statistics.median(now / max(before, 1e-6) for before, now in pairs), min(now for _, now in pairs)


def quick_growth(function: Function, shape: Callable[[int], str], largest: int = 16_000) -> float:
    """Return the growth of the time from a text to one of four times its size, if it is too large twice; else 0.

    It begins with small texts and stops early: a larger text could take minutes.
    """
    before, size, was_large = 1.0, 64, False
    while size <= largest or was_large:
        now = _seconds(function, shape(size), 1)
        found = now / before
        if now > _QUICK_LEAST_S and found > _QUICK_GROWTH and now <= 1:
            found, now = _steady_growth(function, shape(size // 4), shape(size), 7)
        is_large = now > _QUICK_LEAST_S and found > _QUICK_GROWTH
        if is_large and (was_large or now > 1):
            return found
        before, size, was_large = max(now, 1e-6), 4 * size, is_large
    return 0


def growth(function: Function, shape: Callable[[int], str]) -> float:
    """Return the growth of the time for a doubling of a long text, if it is too large and long enough; else 0."""
    if found := quick_growth(function, shape):
        return found / 2
    before = float("inf")
    for size in SIZES:
        now = _seconds(function, shape(size), 1)
        if now > _LEAST_S and now > _MOST_GROWTH * before:
            found, now = _steady_growth(function, shape(size // 2), shape(size), 5)
            if now > _LEAST_S and found > _MOST_GROWTH:
                return found
        before = now
    return 0
