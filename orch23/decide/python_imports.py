"""Find the modules that a Python file imports, and the distributions that a project depends on."""

import ast
import re
from collections.abc import Iterable, Iterator

from orch23.decide.source_syntax import python_tree
from orch23.model.digest import Json
from orch23.model.parsing import json_at, parse_toml

DEPENDENCY_FILES = ("pyproject.toml", "setup.cfg", "requirements*.txt", "requirements/*.txt")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")
_LISTED = re.compile(r"^install_requires\s*=(.*(?:\n[ \t]+.*)*)", re.MULTILINE)
# A file with one of these may import a module that one of its texts names.
_DYNAMIC = re.compile(r"import_module|__import__|importorskip|pytest_plugins|find_spec|run_module|resolve_name|patch\(")


def imported_modules(text: str, *, certainly: bool = False) -> dict[str, int]:
    """Return the top-level modules that a file imports, or may import by a name in a text, with the first line of each.

    With `certainly`, only those of statements outside of blocks.
    """
    tree = python_tree(text)
    found: dict[str, int] = {}
    if isinstance(tree, ast.Module):
        is_dynamic = _DYNAMIC.search(text) is not None
        for node in tree.body if certainly else ast.walk(tree):
            for name in imported_names(node, is_dynamic=is_dynamic):
                if all(map(str.isidentifier, name.split("."))):
                    found.setdefault(name.partition(".")[0], getattr(node, "lineno", 1))
    return found


def imported_names(node: ast.AST, *, is_dynamic: bool = False) -> list[str]:
    """Return the whole names of the modules that a statement imports, with `is_dynamic` also any text."""
    match node:
        case ast.Import():
            return [one.name for one in node.names]
        case ast.ImportFrom(level=0):
            return [node.module or ""]
        case ast.Constant(value=str() as name) if is_dynamic:
            return [name]
        case _:
            return []


def module_name(distribution: str) -> str:
    """Return the name of a distribution as a module has it: `a_b` for `A.b`."""
    return re.sub(r"[-_.]+", "_", distribution).lower()


def dependencies(path: str, text: str) -> frozenset[str]:
    """Return the distributions that one of `DEPENDENCY_FILES` requires, normalized; without the project itself."""
    if path.endswith(".cfg"):
        text = "\n".join(_LISTED.findall(text))
    if not path.endswith(".toml"):
        return frozenset(_distributions(text.splitlines()))
    try:
        document = parse_toml(text)
        found = frozenset(_distributions(_requirements(document, inside=False)))
    except (ValueError, RecursionError):
        return frozenset()
    return found - {module_name(str(json_at(document, "project", "name") or ""))}


def _requirements(value: Json, *, inside: bool) -> Iterator[str]:
    """Yield the requirements in tables of a pyproject.toml, also those of tools: `[tool.poetry.dependencies]`."""
    match value:
        case str() if inside:
            yield value
        case list():
            for one in value:
                yield from _requirements(one, inside=inside)
        case dict():
            for key, one in value.items():
                yield from (key,) if inside and not isinstance(one, list) else ()
                yield from _requirements(one, inside=inside or "depend" in key or key == "requires")


def _distributions(lines: Iterable[str]) -> Iterator[str]:
    return (module_name(found[1]) for line in lines if (found := _REQUIREMENT.match(line)))
