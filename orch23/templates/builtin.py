"""The templates that come with orch23, as the catalogue beside this file lists them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode

HERE = Path(__file__).parent
# No registrar gives out names below `.invalid` (RFC 2606), so nobody can ever answer in our place.
URL = "https://orch23.invalid/templates/"


class Builtin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told of a template without opening it. A question has help, default and choices, as far as given."""

    name: str
    summary: str
    version: str
    questions: Mapping[str, Mapping[str, Any]]
    files: tuple[str, ...]
    next: str

    @property
    def url(self) -> str:
        """Give the address that answers files hold: the same on every machine."""
        return f"{URL}{self.name}.git"

    @property
    def bundle(self) -> Path:
        """Give the git bundle that the address means here."""
        return HERE / f"{self.name}.bundle"


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    orch23_templates: int
    templates: tuple[Builtin, ...]


def builtins() -> Mapping[str, Builtin]:
    """Return the templates by name."""
    read = decode((HERE / "catalogue.json").read_bytes(), type=_Catalogue)
    return {one.name: one for one in read.templates}
