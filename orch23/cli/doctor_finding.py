"""The result of one check of `doctor`."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from orch23.model.errors import ConfigurationError


class DoctorFinding(Struct, frozen=True):
    """The result of one check; `hint` says what to do if it is not `ok`."""

    name: str
    value: str
    ok: bool = True
    hint: str = ""


def caught(name: str, check: Callable[[], Iterator[DoctorFinding]]) -> Iterator[DoctorFinding]:
    """Give the findings of a check, and why it cannot go on."""
    try:
        yield from check()
    except ConfigurationError as error:
        first = error.diagnostics[0]
        yield DoctorFinding(name, first.message, ok=False, hint=first.hint or "")
