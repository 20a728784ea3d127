"""Find the line of a prompt at which its renderings begin to differ, without rendering it.

Providers reuse the work of a request up to there. A line after it is paid for in full by each attempt, or by each item.
"""

from collections.abc import Collection, Iterator

import jinja2
from jinja2 import nodes
from msgspec import Struct, field

from orch23.resolve.templates import template_environment

INPUTS = "inputs"


class VolatileLine(Struct):
    """The first line of a prompt with a name whose value differs, and what the text after it is made of.

    `shows_all`: all inputs are shown after it; otherwise those with these keys. `literal` are the characters of the
    prompt file. What depends on a name that differs is not counted, except on `inputs`, which may differ in part.
    """

    path: str
    line: int
    name: str
    literal: int = 0
    shows_all: bool = False
    keys: set[str] = field(default_factory=set)


def find_volatile_line(files: Collection[tuple[str, str]], names: Collection[str]) -> VolatileLine | None:
    """Return the first line of prompt files, as pairs of path and text, that depends on one of these names."""
    search = _Search(frozenset(names))
    for path, text in files:
        try:
            body = template_environment().parse(text).body
        except jinja2.TemplateSyntaxError:
            return None  # it is reported when the prompt is rendered
        search.path = path
        search.read(body)
    return search.found


class _Search(Struct):
    """A search, in the order of the text. `means` are the names behind variables that the template sets."""

    names: frozenset[str]
    path: str = ""
    found: VolatileLine | None = None
    means: dict[str, frozenset[str]] = field(default_factory=dict)

    def read(self, body: Collection[nodes.Node]) -> None:
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self._write(part)
                case nodes.If():
                    self._branch(node, node.test, *(one.test for one in node.elif_))
                case nodes.For():
                    self._set(node.target, node.iter)
                    self._branch(node, node.iter, *([node.test] if node.test else []))
                case nodes.With() | nodes.FilterBlock() | nodes.Scope() | nodes.ScopedEvalContextModifier():
                    self._define(node)
                    self.read(node.body)
                case _:
                    self._define(node)

    def _define(self, node: nodes.Node) -> None:
        match node:
            case nodes.Assign():
                self._set(node.target, node.node)
            case nodes.AssignBlock():
                self._set(node.target, *node.body)
            case nodes.Macro():
                self.means[node.name] = self._names_in(*node.body)
            case nodes.With():
                for target, value in zip(node.targets, node.values, strict=True):
                    self._set(target, value)

    def _branch(self, node: nodes.If | nodes.For, *conditions: nodes.Node) -> None:
        if self._is_volatile(*conditions) or (isinstance(node, nodes.For) and self._ends_with_inputs(node.iter)):
            return
        for one in [node, *getattr(node, "elif_", ())]:
            self.read(one.body)
        self.read(node.else_)

    def _write(self, part: nodes.Expr) -> None:
        if isinstance(part, nodes.TemplateData):
            if self.found is not None:
                self.found.literal += len(part.data)
        elif not self._is_volatile(part) and not self._ends_with_inputs(part) and self.found is not None:
            self.found.keys |= set(_single_inputs(part))
            self.found.shows_all = self.found.shows_all or self._shows_all_inputs(part)

    def _set(self, target: nodes.Node, *values: nodes.Node) -> None:
        for name in _names_of(target):
            self.means[name] = self._names_in(*values)

    def _is_volatile(self, *parts: nodes.Node) -> bool:
        """Return whether parts depend on a name that differs. The first one found is the line that is looked for."""
        for part in parts:
            if hits := (self._names_in(part) & self.names) - {INPUTS}:
                if self.found is None:
                    self.found = VolatileLine(self.path, part.lineno, min(hits))
                return True
        return False

    def _ends_with_inputs(self, part: nodes.Node) -> bool:
        """Return whether the shared text ends within the inputs that a part shows, because these differ in part."""
        if self.found is not None or INPUTS not in self.names or not self._shows_all_inputs(part):
            return False
        self.found = VolatileLine(self.path, part.lineno, INPUTS)
        return True

    def _shows_all_inputs(self, part: nodes.Node) -> bool:
        return INPUTS in self._names_in(part) and not any(_single_inputs(part))

    def _names_in(self, *parts: nodes.Node) -> frozenset[str]:
        names = {name for part in parts for name in _names_of(part)}
        return frozenset().union(*(self.means.get(name, frozenset({name})) for name in names))


def _names_of(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, nodes.Name):
        yield node.name
    yield from (one.name for one in node.find_all(nodes.Name))


def _single_inputs(node: nodes.Node) -> Iterator[str]:
    """Yield the keys of inputs that an expression looks up one by one."""
    items = ([node] if isinstance(node, nodes.Getitem) else []) + list(node.find_all(nodes.Getitem))
    for one in items:
        if isinstance(one.node, nodes.Name) and one.node.name == INPUTS and isinstance(one.arg, nodes.Const):
            yield str(one.arg.value)
