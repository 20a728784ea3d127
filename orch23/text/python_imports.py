"""Find the modules that a Python file imports, and the distributions that a project depends on."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from orch23.model.digest import Json
from orch23.model.parsing import as_mapping, json_at, parse_toml
from orch23.text.source_syntax import python_tree

_LISTS = ("*requirements*.txt", "*requirements*.in", "requirements/*.txt", "requirements/*.in")
_OF_CONDA = ("environment.yml", "environment.yaml")
DEPENDENCY_FILES = ("pyproject.toml", "setup.cfg", "setup.py", "Pipfile", *_OF_CONDA, *_LISTS)
# Not a path, nor an address: `app @ file:.` is in the project.
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*+)(?![/:+]|\s*+(?:\[[^]]*+\])?+\s*+@\s*+file:)")
_OF_SETUP = ("install_requires", "extras_require", "setup_requires", "tests_require")
_EXAMPLE = re.compile(r"\s*>>> ?(.*)")
# If a file has one of these, a text of any file may name a module that is imported; for the last, one of it with a dot.
_LOADING = re.compile(r"import_module|__import__|importorskip|find_spec|run_module|resolve_name")
_PATCHING = re.compile(r"patch(?:\(|\.dict|\.multiple)|\.(?:set|del)attr")


def loads_by_name(text: str) -> bool:
    """Return whether a file may import a module that a text names, which may be in another file."""
    return _LOADING.search(text) is not None


def imported_modules(text: str, *, certainly: bool = False) -> dict[str, int]:
    """Return the top-level modules that a file imports, with the first line of each.

    With `certainly`, only those of statements outside of blocks.
    """
    return _first_lines((name, node) for node in _nodes(text, top=certainly) for name in imported_names(node))


def modules_in_texts(text: str, *, is_loaded: bool) -> dict[str, int]:
    """Return the modules that texts of a file may name to import them; `is_loaded` if some file `loads_by_name`."""
    if not (is_loaded := is_loaded or "pytest_plugins" in text) and not _PATCHING.search(text):
        return {}
    found = ((node.value, node) for node in _nodes(text) if isinstance(node, ast.Constant))
    return _first_lines((name, node) for name, node in found if isinstance(name, str) and (is_loaded or "." in name))


def doctest_lines(text: str) -> str:
    """Return the lines of a text that are examples of doctest and parse alone; others are empty."""
    found = map(_EXAMPLE.match, text.splitlines() if ">>>" in text else ())
    return "\n".join(one[1] if one and isinstance(python_tree(one[1]), ast.Module) else "" for one in found)


def _nodes(text: str, *, top: bool = False) -> Iterable[ast.AST]:
    tree = python_tree(text)
    return (tree.body if top else ast.walk(tree)) if isinstance(tree, ast.Module) else ()


def _first_lines(found: Iterable[tuple[str, ast.AST]]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for name, node in found:
        if all(map(str.isidentifier, name.split("."))):
            lines.setdefault(name.partition(".")[0], getattr(node, "lineno", 1))
    return lines


def imported_names(node: ast.AST) -> list[str]:
    """Return the whole names of the modules that a statement imports."""
    match node:
        case ast.Import():
            return [one.name for one in node.names]
        case ast.ImportFrom(level=0):
            return [node.module or ""]
        case _:
            return []


# The distributions of modules of another name.
_DISTRIBUTIONS: Final[Mapping[str, str]] = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}


def distribution_of(module: str) -> str:
    """Return the distribution that has a module: a well-known one of another name, else the one of its name."""
    return _DISTRIBUTIONS.get(module, module)


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
    if name == "Pipfile":
        document = parse_toml(text)
        return _tables({f"{key}-dependencies": document.get(key) for key in ("packages", "dev-packages")}), ()
    if name == "setup.py":
        return _of_setup(text)
    if name == "setup.cfg":
        return _of_config(text)
    if name in _OF_CONDA:
        return re.findall(r"""^[ \t]*-[ \t]*["']?(.*)""", text.partition("dependencies:")[2], re.MULTILINE), ()
    return text.splitlines(), ()


def _of_setup(text: str) -> tuple[Iterable[str], Iterable[str]]:
    """Return the texts in the arguments of a setup.py; the keys of a mapping are extras."""
    given = [node for node in _nodes(text) if isinstance(node, ast.keyword)]
    values = [one.value for one in given if one.arg in _OF_SETUP]
    lists = [part for one in values for part in (one.values if isinstance(one, ast.Dict) else [one])]
    found = (node.value for one in lists for node in ast.walk(one) if isinstance(node, ast.Constant))
    names = (one.value.value for one in given if one.arg == "name" and isinstance(one.value, ast.Constant))
    return (line for value in found for line in str(value).splitlines()), map(str, names)


def _of_config(text: str) -> tuple[Iterable[str], Iterable[str]]:
    import configparser  # noqa: PLC0415 - only for projects with such a file

    config = configparser.RawConfigParser(strict=False)
    with suppress(configparser.Error):
        config.read_string(text)
    extras = config.items("options.extras_require") if config.has_section("options.extras_require") else ()
    values = [*(config.get("options", key, fallback="") for key in _OF_SETUP), *(value for _, value in extras)]
    return (line for value in values for line in value.splitlines()), (config.get("metadata", "name", fallback=""),)


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
    places = source if isinstance(source, list) else [source]
    return any(json_at(one, key) for one in places for key in ("path", "workspace"))
