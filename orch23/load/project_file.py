"""Read the settings of a project, which hold for all of its pipelines: `orch23.toml`, or `[tool.orch23]`."""

import os
from pathlib import Path

from orch23.model.diagnostic import Diagnostic, Location, did_you_mean
from orch23.model.errors import InvalidInputError
from orch23.model.fields import Problems
from orch23.model.parsing import as_mapping, parse_toml
from orch23.model.paths import normalize_pattern
from orch23.store.safe_files import read_regular

_KEY = "never_send"
_FORM = 'write `never_send = ["secrets/**"]`'
_MAX_BYTES = 1_048_576


def project_patterns(root: Path) -> tuple[str, ...]:
    """Return the patterns of `never_send` of a project, from `orch23.toml` and `pyproject.toml` in its root.

    Raises:
        InvalidInputError: a file is not valid, or has an unknown key or a path that cannot be used.
    """
    found = [*_read(root / "orch23.toml", is_shared=False), *_read(root / "pyproject.toml", is_shared=True)]
    return tuple(dict.fromkeys(found))


def withheld_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns with those of the files below: what a pattern matches may be a directory."""
    return (*map(normalize_pattern, patterns), *(f"{one}/**" for one in patterns if not one.endswith(("/", "/**"))))


def _read(path: Path, *, is_shared: bool) -> tuple[str, ...]:
    data = read_regular(Path(os.path.realpath(path)), _MAX_BYTES + 1) or b""  # also the target of a link
    if not data.strip() or (is_shared and b"orch23" not in data):
        return ()
    try:
        settings = parse_toml(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if is_shared and _KEY.encode() not in data:  # as `discovery` reads it: a file of other tools without our table
            return ()
        message, way = f"`{path.name}` is not valid TOML: {error}", "correct it; an empty file is valid, too"
        raise InvalidInputError(Diagnostic("E811", message, Location(path.name, 1, 1), way)) from None
    if is_shared or settings.keys() == {"tool"}:
        settings = dict(as_mapping(as_mapping(settings.get("tool")).get("orch23")))
    at = Problems("")
    for key in settings.keys() - {_KEY}:
        hint = did_you_mean(key, (_KEY,), f"remove it; the only key is `{_KEY}`")
        at.add(key, "E802", f"unknown key `{key}`", hint)
    value = settings.get(_KEY, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        at.add(_KEY, "E811", f"`{_KEY}` must be a list of strings", _FORM)
        value = []
    patterns = at.paths(_KEY, value)
    if at.found:
        lines = data.decode("utf-8").splitlines()
        raise InvalidInputError(
            *(Diagnostic(one.code, one.message, _place(path.name, lines, one.path), one.hint) for one in at.found)
        )
    return patterns


def _place(file: str, lines: list[str], path: str) -> Location:
    """Return the line that begins with a key, else the first one: the TOML reader states no places."""
    key = path.partition("/")[0]
    starts = (n for n, line in enumerate(lines, 1) if line.strip().strip("\"'").startswith(key))
    return Location(file, next(starts, 1), 1)
