"""Changes that wait for a user, and what users decided about them (ADR 88)."""

import contextlib

from msgspec import Struct

from orch23.decide.project_state import ProjectState
from orch23.model.digest import FileEntry
from orch23.model.llm import Exchange
from orch23.store.exchanges import user_fingerprint
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import list_folder, read_regular


class Change(Struct, frozen=True, kw_only=True):
    """A change of the workspace that a build held: the files before and after, and the digest of both.

    `members` are the stages whose results these are, each with the directory of its transcripts. Commands name the
    change by `stage`, which is one of them.
    """

    pipeline: str
    stage: str
    digest: str
    members: dict[str, str | None]
    old: dict[str, FileEntry | None]
    new: dict[str, FileEntry | None]


def approval_of(store: ProjectStore, digest: str) -> Exchange | None:
    """Return the approval of a change, by its digest. Only what a command of this user wrote counts."""
    try:
        found = store.key.decode(read_regular(store.approvals / f"{digest}.json") or b"", Exchange)
    except ValueError:
        return None
    return found if found.fingerprint == user_fingerprint("approval", found.stage, digest) else None


def rejection_of(store: ProjectStore, change: Change, stage: str) -> Exchange | None:
    """Return the rejection of a change that a stage has to make again: its words, and who said them and when.

    Raises:
        CorruptStateError: a committed transcript is damaged.
    """
    found = store.exchanges.get(user_fingerprint("approval", stage, change.digest), change.members[stage])
    return found if found is not None and found.outcome == "rejected" else None


def is_rejected(store: ProjectStore, change: Change) -> bool:
    """Return whether a stage has to make a change again."""
    return any(rejection_of(store, change, name) is not None for name in change.members)


def waiting_changes(state: ProjectState) -> list[Change]:
    """Return the changes of a pipeline that its last builds held, and that are neither approved nor in place.

    Only what a build of this user wrote counts.
    """
    found, store = list[Change](), state.store
    for path in list_folder(store.approvals / "waiting"):
        with contextlib.suppress(ValueError):
            found.append(store.key.decode(read_regular(path) or b"", Change))
    own = (one for one in found if one.pipeline == state.plan.pipeline.file)
    left = (one for one in own if any(store.workspace.entry(path) != entry for path, entry in one.new.items()))
    return sorted((one for one in left if approval_of(store, one.digest) is None), key=lambda one: one.stage)
