"""Store the grants of a project in the user's state directory, which no clone can write."""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from orch23.model.digest import canonical_json
from orch23.model.parsing import from_struct, parse_stored, refuse, to_struct
from orch23.model.step import Grant
from orch23.snapshot.signatures import sha256_hex
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_own, try_unlink, write_atomic

_MAX_BYTES = 1 << 20
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class _Grant(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["program", "tool", "server", "download", "cache", "cache-write"]
    name: str
    keys: tuple[str, ...]
    sha256: str
    network: bool
    reads: tuple[str, ...]


class _Form(Struct, frozen=True, forbid_unknown_fields=True):
    project: str
    grants: tuple[_Grant, ...]


class Grants(Struct, frozen=True):
    """The grants of one project, by its real path. `path` is None if there is no folder outside of the project.

    Only a regular file of this user that no other user may write is read; anything else grants nothing.
    """

    path: Path | None

    def read(self) -> frozenset[Grant]:
        """Return all grants; none from a damaged file."""
        data = None if self.path is None else read_own(self.path, _OTHERS_MAY_WRITE, _MAX_BYTES)
        if data is None:
            return frozenset()
        try:
            return frozenset(Grant(**asdict(one)) for one in to_struct(parse_stored(data), _Form).grants)
        except ValueError:
            return frozenset()

    def add(self, grants: Iterable[Grant], project: Path) -> None:
        """Add grants durably.

        Raises:
            ValueError: there is no `path`.
        """
        if self.path is None:
            refuse("BUG: there is no state directory")
        kept = sorted({*self.read(), *grants}, key=repr)
        listed = tuple(
            _Grant(one.kind, one.name, one.keys, one.sha256, network=one.network, reads=one.reads) for one in kept
        )
        data = canonical_json(from_struct(_Form(str(project), listed)))
        # The folder of the user may be a link.
        write_atomic(self.path.parent.resolve() / self.path.name, data + b"\n", mode=PRIVATE_FILE_MODE)

    def revoke(self) -> None:
        """Remove all grants."""
        if self.path is not None:
            try_unlink(self.path)


def user_folder(environ: Mapping[str, str], variable: str, usual: str) -> Path | None:
    """Return the folder that a variable of the XDG specification has, else `usual` below HOME; None without a home."""
    base, home = environ.get(variable, ""), environ.get("HOME", "")
    # The specification says that a relative path must be ignored.
    if base.startswith("/"):
        return Path(base)
    return Path(home, usual) if home.startswith("/") else None


def grants_of(root: Path, environ: Mapping[str, str]) -> Grants:
    """Return the grants of the project at `root`."""
    # By the real path: consent is the user's for this directory, not a property of the project (ADR 25).
    project, state = root.resolve(), user_folder(environ, "XDG_STATE_HOME", ".local/state")
    # With a state directory inside of the project, a clone could bring its own grants.
    if state is None or (state / "orch23").resolve().is_relative_to(project):
        return Grants(None)
    return Grants(state / "orch23" / "grants" / f"{sha256_hex(os.fsencode(project))[:32]}.json")
