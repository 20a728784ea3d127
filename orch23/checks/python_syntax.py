"""The check `python_syntax`: Python outputs must parse and define the required names."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from orch23.checks.check import Check, CheckInput, byte_location, text_items, unknown_options, wrong_option
from orch23.model.diagnostic import Diagnostic, Location, Severity, Suggestions
from orch23.model.digest import Json
from orch23.text.source_syntax import parse_python

_NAME = "python_syntax"
_OPTIONS = {"defines": "Mapping of a path to the names that the file must define at its top level."}


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    found = list(unknown_options(_NAME, given.options, tuple(_OPTIONS)))
    wanted, wrong = _wanted(given.options)
    found.extend(wrong)
    paths = sorted(path for path in given.outputs if path.endswith(".py"))
    for path in paths:
        parsed = _parse(path, given.outputs[path])
        if isinstance(parsed, Diagnostic):
            found.append(parsed)
        else:
            found.extend(_missing(path, parsed, wanted.get(path, ())))
    found.extend(
        wrong_option(_NAME, "defines", f"names `{path}`, which is not a Python output", "correct the path")
        for path in sorted(set(wanted) - set(paths))
    )
    if not paths and not wanted:
        message, hint = "there is no `.py` file among the outputs", "remove the check, or add the output"
        found.append(Diagnostic("W310", message, None, hint, Severity.WARNING, subject=f"check `{_NAME}`"))
    return tuple(found)


PYTHON_SYNTAX = Check(
    _NAME,
    1,
    _run,
    summary="Each `.py` output parses, and defines the required names.",
    codes=("E311", "E312", "W310"),
    options=_OPTIONS,
    example="""- check: python_syntax
  with: {defines: {src/app.py: [main, Config]}}
""",
)


def _wanted(options: Mapping[str, Json]) -> tuple[dict[str, tuple[str, ...]], tuple[Diagnostic, ...]]:
    defines = options.get("defines", {})
    hint = "write `defines: {src/app.py: [main, Config]}`"
    if not isinstance(defines, Mapping):
        return {}, (wrong_option(_NAME, "defines", "is not a mapping from path to names", hint),)
    listed = {path: text_items(names) for path, names in defines.items()}
    wanted = {path: names for path, names in listed.items() if names is not None}
    missing = (f"has no list of names for `{path}`" for path in listed if path not in wanted)
    return wanted, tuple(wrong_option(_NAME, "defines", what, hint) for what in missing)


def _parse(path: str, data: bytes) -> ast.Module | Diagnostic:
    null = data.find(b"\0")
    # Versions of Python differ in the message, and none has the place.
    if null >= 0:
        return _syntax_error(path, "contains a null byte", byte_location(path, data, null))
    try:
        return parse_python(data, path)
    except SyntaxError as error:
        return _syntax_error(path, error.msg or "invalid syntax", _place(path, error))
    except (RecursionError, MemoryError, ValueError):
        return _syntax_error(path, "is nested too deeply for Python's parser", Location(path, 1, 1))


def _syntax_error(path: str, message: str, location: Location) -> Diagnostic:
    hint = "write the whole file again, as Python that parses"
    return Diagnostic("E311", f"not valid Python: {message}", location, hint, subject=path)


def _place(path: str, error: SyntaxError) -> Location:
    line, column = max(error.lineno or 1, 1), max(error.offset or 1, 1)
    same_line = error.end_lineno == error.lineno
    length = (error.end_offset or 0) - column if same_line else 1
    return Location(path, line, column, max(length, 1))


def _missing(path: str, module: ast.Module, wanted: Sequence[str]) -> Iterator[Diagnostic]:
    bound = frozenset(_bound(module.body))
    suggestions = Suggestions(bound)
    for name in wanted:
        if name not in bound:
            near = suggestions.nearest(name)
            hint = f"rename `{near[0]}`?" if near else f"define `{name}` at the top level of the file"
            yield Diagnostic("E312", f"does not define `{name}`", hint=hint, subject=path)


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind, including those in blocks of `if`, `try`, `with` and loops."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
            case _:
                yield from _bound_within(statement)


def _bound_within(statement: ast.stmt) -> Iterator[str]:
    for child in ast.iter_child_nodes(statement):
        match child:
            case ast.stmt():
                yield from _bound([child])
            case ast.ExceptHandler() | ast.match_case():
                yield from _bound(child.body)
            case ast.expr() | ast.withitem():
                stored = (node for node in ast.walk(child) if isinstance(node, ast.Name))
                yield from (node.id for node in stored if isinstance(node.ctx, ast.Store))
