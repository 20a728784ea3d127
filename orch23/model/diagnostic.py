"""The one shape of every complaint: code, severity, place, message, way out."""

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How much a diagnostic matters: an error blocks, a warning does not, a note explains."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Location(Struct, frozen=True, order=True):
    """A place in a text file; line and column count from 1, `length` is the characters to underline."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        """Give `file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"


class Related(Struct, frozen=True):
    """A second place that a diagnostic speaks of, with a few words on its part in it."""

    message: str
    location: Location | None


class Diagnostic(Struct, frozen=True):
    """One complaint. `field` names the part of an artifact that is meant where there is no text location."""

    code: str
    message: str
    location: Location | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR
    related: tuple[Related, ...] = ()
    subject: str | None = None

    def __str__(self) -> str:
        """Give one line, without the source excerpt."""
        place = f"{self.location}: " if self.location else ""
        subject = f"{self.subject}: " if self.subject else ""
        way_out = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.severity}[{self.code}]: {subject}{self.message}{way_out}"


def errors(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return those diagnostics that block."""
    return tuple(d for d in diagnostics if d.severity is Severity.ERROR)
