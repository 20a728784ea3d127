"""Find the modules that a Python file imports, and the distributions that a project depends on."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from orch23.decide.source_syntax import python_tree
from orch23.model.digest import Json
from orch23.model.parsing import as_mapping, json_at, parse_toml

DEPENDENCY_FILES = ("pyproject.toml", "setup.cfg", "requirements*.txt", "requirements/*.txt")
# Not a path, nor an address: `app @ file:.` is in the project.
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*+)(?![/:+]|\s*(?:\[[^]]*\])?\s*@\s*file:)")
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


def dependencies(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the distributions that files of a project require, normalized, each with its first file.

    Without the project itself and its own parts: these are no libraries.
    """
    found: dict[str, str] = {}
    own: set[str] = set()
    for path, text in texts.items():
        try:
            required, parts = _read(path.rpartition("/")[2], text)
            own.update(map(module_name, parts))
            for line in required:
                if name := _REQUIREMENT.match(line):
                    found.setdefault(module_name(name[1]), path)
        except (ValueError, RecursionError):  # the tools of its form refuse it too
            continue
    return {name: path for name, path in found.items() if name not in own}


def _read(name: str, text: str) -> tuple[Iterable[str], Iterable[str]]:
    """Return the requirements in a file, and the names of the project and its own parts."""
    if name.endswith(".toml"):
        document = parse_toml(text)
        names = [json_at(document, "project", "name"), json_at(document, "tool", "poetry", "name")]
        sources = as_mapping(json_at(document, "tool", "uv", "sources"))
        parts = (key for key, source in sources.items() if _is_own(source))
        return _tables(document), (*_texts(names), *parts)
    if name.endswith(".cfg"):
        return (found for lines in _LISTED.findall(text) for found in lines.splitlines()), ()
    return text.splitlines(), ()


def _tables(value: Json) -> Iterator[str]:
    """Yield the requirements in tables of a pyproject.toml, also those of tools: `[tool.poetry.dependencies]`."""
    for key, one in as_mapping(value).items():
        if key in ("dependency-groups", "optional-dependencies"):
            yield from (text for group in as_mapping(one).values() for text in _texts(group))
        elif key == "requires" or key.endswith("dependencies"):
            yield from _texts(one)
            for name, wanted in as_mapping(one).items():
                # The keys of a table are distributions, or groups with lists of texts.
                yield from _texts(wanted) or (() if _is_own(wanted) else (name,))
        elif key != "dynamic":  # has only names of files
            yield from _tables(one)


def _texts(value: Json) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _is_own(source: Json) -> bool:
    """Return whether the place of a distribution is a directory of the project."""
    places = source if isinstance(source, list) else [source]
    return any(json_at(one, key) for one in places for key in ("path", "workspace"))
