"""Add to errors at an expression which of its vars are set outside of the pipeline, and where."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location, Related


def with_var_notes(
    diagnostics: Sequence[Diagnostic], origins: Mapping[str, str], sources: Mapping[str, str], file: str
) -> tuple[Diagnostic, ...]:
    """Return diagnostics about a pipeline file, with a note for each var that `--set` or a file of vars has set.

    `origins` are those of the vars, `sources` the texts by file. A diagnostic with related places stays as it is.
    """
    outside = {name: origin for name, origin in origins.items() if not origin.startswith(f"{file}:")}
    if not outside:
        return tuple(diagnostics)
    lines = sources.get(file, "").split("\n")
    return tuple(
        replace(one, related=tuple(_notes(one.location, lines, outside)))
        if one.location is not None and one.location.file == file and not one.related
        else one
        for one in diagnostics
    )


def _notes(place: Location, lines: Sequence[str], outside: Mapping[str, str]) -> Iterator[Related]:
    from orch23.load.overrides import set_note  # noqa: PLC0415 - only for errors
    from orch23.resolve.expressions import members_used  # noqa: PLC0415 - as above

    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    text = line[place.column - 1 : place.column - 1 + place.length]
    for name in sorted(members_used(text, "vars") & outside.keys()):
        yield set_note(name, _location(outside[name]))


def _location(origin: str) -> Location | None:
    """Return the place that an origin such as `vars.yaml:3` names; None for an option of the command line."""
    file, _, line = origin.rpartition(":")
    return Location(file, int(line), 1) if file and line.isdecimal() else None
