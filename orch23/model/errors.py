"""Exceptions that stop orch23, its exit codes, and exit codes that a pipeline sets."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from orch23.model.diagnostic import Diagnostic, Severity


class ExitCode(IntEnum):
    """The exit codes of the command line, the only numbers it ends with."""

    OK = 0
    FAILED = 1
    SAFETY = 2
    CORRUPT = 3
    LIMIT = 4
    PROVIDER = 5
    DECISION = 6
    USAGE = 64
    INVALID = 65
    NOT_FOUND = 66
    BUG = 70
    MACHINE = 74
    BUSY = 75
    CONSENT = 77
    CONFIG = 78
    SIGHUP = 129
    SIGINT = 130
    SIGTERM = 143


class Orch23Error(Exception):
    """Something that stops the tool, told as diagnostics; the subclass says the exit code."""

    exit_code = ExitCode.BUG

    def __init__(self, *diagnostics: Diagnostic) -> None:
        """Keep the diagnostics, all of those that were found."""
        super().__init__("\n".join(str(d) for d in diagnostics))
        self.diagnostics = diagnostics


class InvalidInputError(Orch23Error):
    """The pipeline, a spec or a plan is not valid."""

    exit_code = ExitCode.INVALID


class NotFoundError(Orch23Error):
    """A file, stage or run that was named does not exist."""

    exit_code = ExitCode.NOT_FOUND


class UsageError(Orch23Error):
    """The command line asks for something that makes no sense."""

    exit_code = ExitCode.USAGE


class CorruptStateError(Orch23Error):
    """The journal, the store's version or the lock file is damaged beyond healing."""

    exit_code = ExitCode.CORRUPT


class SafetyError(Orch23Error):
    """A step or a promotion tried to leave its bounds."""

    exit_code = ExitCode.SAFETY


class ProviderError(Orch23Error):
    """A provider failed, or replay met a request of which there is no recording."""

    exit_code = ExitCode.PROVIDER


class LimitError(Orch23Error):
    """A stop condition of the run was reached."""

    exit_code = ExitCode.LIMIT


class ConfigurationError(Orch23Error):
    """A credential, an interpreter or a tool that the pipeline needs is missing."""

    exit_code = ExitCode.CONFIG


class ConsentError(Orch23Error):
    """The user has not consented to what a pipeline would run, or where it would send a key."""

    exit_code = ExitCode.CONSENT


class BusyError(Orch23Error):
    """Another build holds the lock of this project."""

    exit_code = ExitCode.BUSY


class MissingBytesError(Exception):
    """The bytes of a digest are not (or no longer) in the store; the caller heals by making them again."""

    def __init__(self, sha256: str) -> None:
        """Keep the digest that was asked for."""
        super().__init__(sha256)
        self.sha256 = sha256


FIXED_EXIT_CODES = frozenset(
    {ExitCode.OK, ExitCode.SAFETY, ExitCode.CONSENT, ExitCode.SIGHUP, ExitCode.SIGINT, ExitCode.SIGTERM}
)
"""What no pipeline can give another number: success, a safety violation, missing consent to the pipeline, signals."""

MIN_CUSTOM_EXIT_CODE, MAX_CUSTOM_EXIT_CODE = 1, 125
"""The numbers that a pipeline may give: 126 and above mean something to shells."""


def custom_exit_code(code: ExitCode, diagnostics: Iterable[Diagnostic], families: Mapping[str, int]) -> int:
    """Return the number to end with: of the first error that a family fits, by the longest; else the code as it is."""
    if code in FIXED_EXIT_CODES:
        return code
    for one in diagnostics:
        fitting = [family for family in families if one.code.startswith(family)]
        if fitting and one.severity is Severity.ERROR:
            return families[max(fitting, key=len)]
    return code
