"""What a failed attempt ran and wrote, as its folder keeps it for `orch23 shell` and `orch23 show --withheld`."""

import msgspec
from msgspec import Struct

from orch23.model.action import Action, check_inside
from orch23.model.digest import FileEntry
from orch23.store.run_logs import AttemptFiles

KEPT_ATTEMPT = "action.json"


class KeptAttempt(Struct, frozen=True):
    """The action that failed, without a command if it was no process, and the stage's own files.

    The store has their bytes, at least until `orch23 gc`.
    """

    action: Action
    outputs: dict[str, FileEntry]


def read_kept(files: AttemptFiles, stage: str, attempt: int) -> KeptAttempt | None:
    """Return what is kept of a failed attempt; None if nothing is, or it is damaged or of another version."""
    found = files.read(stage, attempt, KEPT_ATTEMPT)
    try:
        kept = msgspec.json.decode(b"" if found is None else found[0], type=KeptAttempt)
        kept.action.check_paths()
        check_inside(kept.outputs)
    except (ValueError, RecursionError):
        return None
    return kept
