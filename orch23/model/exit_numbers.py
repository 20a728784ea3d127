"""Turn an exit code into a template's own number, by the diagnostics that led to it."""

from collections.abc import Iterable, Mapping

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import ExitCode

FIXED = frozenset({ExitCode.OK, ExitCode.SAFETY, ExitCode.CONSENT, ExitCode.SIGHUP, ExitCode.SIGINT, ExitCode.SIGTERM})
"""What no pipeline can give another number: success, a safety violation, missing consent to the pipeline, signals."""

LEAST, MOST = 1, 125
"""The numbers that a pipeline may give: 126 and above mean something to shells."""


def exit_number(code: ExitCode, diagnostics: Iterable[Diagnostic], families: Mapping[str, int]) -> int:
    """Return the number to end with: of the first error that a family fits, by the longest; else the code as it is."""
    if code in FIXED:
        return code
    for one in diagnostics:
        fitting = [family for family in families if one.code.startswith(family)]
        if fitting and one.severity is Severity.ERROR:
            return families[max(fitting, key=len)]
    return code
