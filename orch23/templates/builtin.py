"""The templates that come with orch23, as the catalogue beside this file lists them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

HERE = Path(__file__).parent
# No registrar gives out names below `.invalid` (RFC 2606), so nobody can ever answer in our place.
URL = "https://orch23.invalid/templates/"


class Builtin(Struct, frozen=True, kw_only=True):
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


def builtins() -> Mapping[str, Builtin]:
    """Return the templates by name."""
    read = json.loads((HERE / "catalogue.json").read_text(encoding="utf-8"))
    found = [Builtin(**{**one, "files": tuple(one["files"])}) for one in read["templates"]]
    return {one.name: one for one in found}
