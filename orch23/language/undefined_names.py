"""Find names in a prompt or template that no rendering of it defines, without rendering it."""

import contextlib
from collections.abc import Collection, Iterator

import jinja2
from jinja2 import meta, nodes

from orch23.model.diagnostic import Diagnostic, Location, did_you_mean, fix_of_hint, quoted_names
from orch23.resolve.templates import TEMPLATE_GLOBALS, template_environment


def undefined_names(path: str, text: str, names: Collection[str]) -> Iterator[Diagnostic]:
    """Yield an error for each name that is used but is neither one of `names` nor set by the template itself."""
    # An unknown filter, or too deep an expression: that is reported when the file is rendered.
    with contextlib.suppress(jinja2.TemplateSyntaxError, RecursionError):
        yield from list(_undefined(path, text, names))


def _undefined(path: str, text: str, names: Collection[str]) -> Iterator[Diagnostic]:
    tree = template_environment().parse(text)
    known = {*names, *TEMPLATE_GLOBALS}
    # A template may ask whether a name is defined.
    tests = (test for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined"))
    asked = {test.node.name for test in tests if isinstance(test.node, nodes.Name)}
    missing = meta.find_undeclared_variables(tree) - known - asked
    for found in tree.find_all(nodes.Name):
        if found.name in missing:
            missing.remove(found.name)
            hint = did_you_mean(found.name, known) or f"known here: {quoted_names(sorted(names))}"
            line = text.split("\n")[found.lineno - 1]
            column = max(0, line.find(found.name)) + 1
            place = Location(path, found.lineno, column, len(found.name))
            yield Diagnostic("E832", f"`{found.name}` is not defined", place, hint, fix=fix_of_hint(found.name, hint))
