"""The result of one check of `doctor`."""

from msgspec import Struct


class DoctorFinding(Struct, frozen=True):
    """The result of one check; `hint` says what to do if it is not `ok`."""

    name: str
    value: str
    ok: bool = True
    hint: str = ""
