"""Decide whether tests cannot be collected because of a file that the stage cannot write: no attempt can pass them."""

import ast
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.paths import is_glob, static_prefix
from orch23.model.patterns import lazy_pattern
from orch23.text.excerpt import shorten_tree_paths
from orch23.text.python_imports import imported_names
from orch23.text.source_syntax import python_tree
from orch23.verdict.run_results import ReportedFailure

_UNFIXABLE = "E325"
_HINT = "correct it, and build again; until then, no response of a model can pass"
_SYNTAX_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError"})
_FAULT = lazy_pattern(
    r'^E\s+File "([^"\n]{1,1000})", line (\d{1,9})\n(?:^E .*\n){0,4}?^E\s+\w+: (.{1,300})$', re.MULTILINE
)
_FRAME = lazy_pattern(r"^(\S[^\n]{0,1000}?):(\d{1,9}): in (\S+)$", re.MULTILINE)
_NO_MODULE = lazy_pattern(r"^E\s+ModuleNotFoundError: No module named '([\w.]{1,300})'$", re.MULTILINE)
_NO_NAME = lazy_pattern(
    r"^E\s+ImportError: cannot import name '(\w{1,300})' from '([\w.]{1,300})' \(([^)\n]+)\)", re.MULTILINE
)
_LIBRARY = "/python/"
# Such a module may define names that its text does not have.
_DYNAMIC = ("import *", "__getattr__", "globals", "exec", "setattr", "vars(", "__dict__", "locals")


def syntax_error(path: str, line: int, fault: str) -> Diagnostic:
    """Return the error of a Python file for the tests that has a syntax error, and that the stage cannot write."""
    return _error(path, line, _syntax_message(fault))


def _syntax_message(fault: str) -> str:
    return f"has a syntax error: {fault} (the stage cannot write this file)"


def _error(path: str, line: int, message: str) -> Diagnostic:
    return Diagnostic(_UNFIXABLE, message, Location(path, max(1, line), 1), hint=_HINT, subject=path)


def collection_error(
    failures: Iterable[ReportedFailure],
    fixed: Mapping[str, str],
    cwd: str,
    can_write_module: Callable[[str], bool],
    unfound: Callable[[str], str | None],
) -> Diagnostic | None:
    """Return why tests cannot be collected whatever the stage writes, if that is certain; else None.

    `fixed` are the texts of the staged Python files that the stage cannot write, by path relative to `cwd`, the
    directory of the tests. `can_write_module` returns whether the stage may write a module of a name, `unfound` the
    only file that it can write for it, if it wrote that file. It is certain only for a syntax error in a fixed file,
    and for an import at the top level of one: of a module that is missing, or of a name that a fixed file or a library
    lacks.
    """
    for failure in failures:
        if failure.when == "collect":
            text = shorten_tree_paths(failure.text, cwd)
            found = _syntax(failure, text, fixed) or _import(text, fixed, can_write_module, unfound)
            if found is not None:
                path, line, message = found
                return _error(posixpath.normpath(f"{cwd}/{path}"), line, message)
    return None


def _syntax(failure: ReportedFailure, text: str, fixed: Mapping[str, str]) -> tuple[str, int, str] | None:
    if failure.error not in _SYNTAX_ERRORS:
        return None
    faults = [*_FAULT.finditer(text)]
    if not faults or (path := posixpath.normpath(faults[-1][1])) not in fixed:
        return None
    return path, int(faults[-1][2]), _syntax_message(faults[-1][3])


def _failed_import(text: str, fixed: Mapping[str, str]) -> tuple[str, int, ast.Import | ast.ImportFrom] | None:
    frames = [*_FRAME.finditer(text)]
    if not frames or frames[-1][3] != "<module>" or (path := posixpath.normpath(frames[-1][1])) not in fixed:
        return None
    line = int(frames[-1][2])
    statement = _import_at(fixed[path], line)
    return None if statement is None else (path, line, statement)


def _import(
    text: str, fixed: Mapping[str, str], can_write_module: Callable[[str], bool], unfound: Callable[[str], str | None]
) -> tuple[str, int, str] | None:
    found = _failed_import(text, fixed)
    if found is None:
        return None
    path, line, statement = found
    missing, lacking = _NO_MODULE.search(text), _NO_NAME.search(text)
    if missing and any(f"{name}.".startswith(f"{missing[1]}.") for name in imported_names(statement)):
        if can_write_module(_top(missing[1])):
            file = unfound(missing[1])
            message = f"imports `{missing[1]}`, but `{file}` is in no directory of `pythonpath`"
            return (path, line, message) if file else None
        return path, line, f"imports `{missing[1]}`, which does not exist (the stage cannot write it)"
    if lacking is None or not isinstance(statement, ast.ImportFrom) or statement.module != lacking[2]:
        return None
    if lacking[1] not in [one.name for one in statement.names] or can_write_module(_top(lacking[2])):
        return None
    message = f"imports `{lacking[1]}` from `{lacking[2]}`, which lacks it (the stage cannot write either file)"
    return (path, line, message) if _lacks(lacking[3], lacking[1], fixed) else None


def _top(module: str) -> str:
    return module.partition(".")[0]


def _import_at(source: str, line: int) -> ast.Import | ast.ImportFrom | None:
    tree = python_tree(source)
    if not isinstance(tree, ast.Module):
        return None
    for one in tree.body:
        if isinstance(one, ast.Import | ast.ImportFrom) and one.lineno <= line <= (one.end_lineno or one.lineno):
            return None if isinstance(one, ast.ImportFrom) and one.level else one
    return None


def _lacks(file: str, name: str, fixed: Mapping[str, str]) -> bool:
    """Return whether a file certainly does not define a name: a library, or a fixed file whose text lacks the word."""
    if file.startswith(_LIBRARY):
        return True
    text = fixed.get(posixpath.normpath(file))
    return text is not None and name not in text and not any(word in text for word in _DYNAMIC)


def may_be_module(name: str, patterns: Collection[str]) -> bool:
    """Return whether paths that match one of the patterns may be a module, or be in a package, of a name."""
    # A pattern or a directory can have any module, a literal path only those of its parts.
    return any(is_glob(one) or name in (level.rpartition("/")[2] for level in module_levels(one)) for one in patterns)


def module_levels(pattern: str) -> list[str]:
    """Return the directories and the module that a path or pattern names: `a`, `a/b` for `a/b.py` or `a/b/*.py`."""
    folder, _, name = (static_prefix(pattern) if is_glob(pattern) else pattern).rpartition("/")
    parts = [*filter(None, folder.split("/")), *filter(None, [name.partition(".")[0]])]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def unfound_file(name: str, patterns: Collection[str], staged: Collection[str]) -> str | None:
    """Return the only file that a stage can write for a module, if it is staged and Python did not find it there.

    None if the stage may write another Python file: that could be another file of this module, or change where Python
    looks for modules.
    """
    if any(is_glob(pattern) or pattern.endswith("/") for pattern in patterns):
        return None
    files = [path for path in patterns if path.endswith(".py")]
    if any(path not in staged or path.rpartition("/")[2] != f"{name}.py" for path in files):
        return None
    return next(iter(files), None)
