"""What the user has decided about projects, in the user's own state directory: nothing in a clone can change it."""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from orch23.model.consent import Grant
from orch23.model.digest import Json, canonical_json
from orch23.store.beneath import open_regular, read_all
from orch23.store.durable import PRIVATE_FILE, discard, write_atomic
from orch23.store.strict_json import parse

_MOST_BYTES = 1 << 20
_FIELDS = frozenset(Grant.__struct_fields__) - {"detail", "files"}
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def state_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the state directory of orch23: below `$XDG_STATE_HOME`, else `~/.local/state`. None without either."""
    base, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if base.startswith("/"):  # the XDG specification: a relative path is ignored
        return Path(base) / "orch23"
    return Path(home) / ".local" / "state" / "orch23" if home.startswith("/") else None


class Grants(Struct, frozen=True):
    """The grants of one project, by its real path. `path` is None where there is no place that a project cannot write.

    Only a regular file of this user that no other user may write is read; everything else is no grant.
    """

    path: Path | None

    def read(self) -> frozenset[Grant]:
        """Return all grants; a file that is damaged holds none."""
        data = None if self.path is None else _own_bytes(self.path)
        if data is None:
            return frozenset()
        try:
            return frozenset(_grant(one) for one in _listed(parse(data)))
        except (ValueError, TypeError):
            return frozenset()

    def add(self, grants: Iterable[Grant], project: Path) -> None:
        """Add grants durably. There must be a `path`."""
        if self.path is None:
            message = "BUG: there is no state directory"
            raise ValueError(message)
        kept = sorted({*self.read(), *grants}, key=repr)
        listed: list[Json] = [{name: _json(getattr(one, name)) for name in _FIELDS} for one in kept]
        data = canonical_json({"project": str(project), "grants": listed})
        write_atomic(self.path, data + b"\n", mode=PRIVATE_FILE)

    def revoke(self) -> None:
        """Remove all grants."""
        if self.path is not None:
            discard(self.path)


def grants_of(root: Path, environ: Mapping[str, str]) -> Grants:
    """Return the grants of the project at `root`."""
    project, state = root.resolve(), state_dir(environ)
    if state is None or state.resolve().is_relative_to(project):  # a clone could bring its own grants
        return Grants(None)
    return Grants(state / "grants" / f"{hashlib.sha256(os.fsencode(project)).hexdigest()[:32]}.json")


def _own_bytes(path: Path) -> bytes | None:
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    if descriptor is None:
        return None
    try:
        found = os.fstat(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
        os.close(descriptor)
        return None
    return read_all(descriptor, _MOST_BYTES)


def _listed(value: Json) -> list[Json]:
    listed = value.get("grants") if isinstance(value, Mapping) else None
    if not isinstance(listed, list):
        message = "not a list of grants"
        raise TypeError(message)
    return listed


def _grant(value: Json) -> Grant:
    if not isinstance(value, Mapping) or value.keys() != _FIELDS:
        message = "not a grant"
        raise TypeError(message)
    given = {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}
    return Grant(**given)  # type: ignore[arg-type] # compared as a whole: a field of another type equals no grant


def _json(value: object) -> Json:
    return list(value) if isinstance(value, tuple) else value  # type: ignore[return-value] # fields of a Grant
