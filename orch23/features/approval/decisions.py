"""Store what users decided about changes: approvals in the store, and both with the transcripts (ADR 88)."""

import contextlib
from pathlib import Path

from msgspec import Struct

from orch23.decide.project_state import ProjectState
from orch23.model.digest import FileEntry
from orch23.model.llm import Exchange
from orch23.model.parsing import from_struct, to_struct
from orch23.snapshot.signatures import sha256_hex
from orch23.store.exchanges import approval_fingerprint
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import PRIVATE_FILE_MODE, list_folder, read_regular, try_unlink, write_atomic


class Change(Struct, frozen=True, kw_only=True):
    """A change of the workspace that a build held: the files before and after.

    `members` are the stages whose results these are, each with the directory of its transcripts. `stage` is the first
    of its group with `approve`: a group has one change. Commands name it by `named`: `stage` has no part in it if it is
    done, or was not selected.
    """

    pipeline: str
    stage: str
    named: str
    digest: str
    members: dict[str, str | None]
    old: dict[str, FileEntry | None]
    new: dict[str, FileEntry | None]


class Decision(Struct, frozen=True, kw_only=True):
    """What a user decided about a change: who, and when. `text` is what a rejection says; empty if it is approved."""

    digest: str
    by: str
    at: str
    text: str = ""


def approval_of(store: ProjectStore, digest: str) -> Decision | None:
    """Return the approval of a change, by the digest of its files. Only what a command of this user wrote counts."""
    try:
        found = to_struct(store.key.decode(read_regular(store.approvals / f"{digest}.json") or b""), Decision)
    except ValueError:
        return None
    return found if found.digest == digest else None


def hold(store: ProjectStore, change: Change) -> None:
    """Store a change that waits; it replaces an earlier one of its stage. The caller holds the build lock."""
    data = store.key.encode(from_struct(change))
    write_atomic(_waiting(store, change.pipeline, change.stage), data, mode=PRIVATE_FILE_MODE)


def release(store: ProjectStore, pipeline: str, stage: str) -> None:
    """Delete the change of a stage that waits, since it is promoted."""
    try_unlink(_waiting(store, pipeline, stage))


def waiting_changes(state: ProjectState) -> list[Change]:
    """Return the changes of a pipeline that the last builds held, and that are neither approved nor in place.

    Only what a build of this user wrote counts.
    """
    found, store = list[Change](), state.store
    for path in list_folder(store.approvals / "waiting"):
        with contextlib.suppress(ValueError):
            found.append(to_struct(store.key.decode(read_regular(path) or b""), Change))
    own = (one for one in found if one.pipeline == state.plan.pipeline.file)
    left = (one for one in own if any(store.workspace.entry(path) != entry for path, entry in one.new.items()))
    return sorted((one for one in left if approval_of(store, one.digest) is None), key=lambda one: one.stage)


def is_rejected(store: ProjectStore, change: Change) -> bool:
    """Return whether a stage has to make a change again."""
    return any(rejection_of(store, change, name) is not None for name in change.members)


def rejection_of(store: ProjectStore, change: Change, stage: str) -> Exchange | None:
    """Return the rejection of a change that a stage has to make again: its words, and who said them and when.

    Raises:
        CorruptStateError: a committed transcript is damaged.
    """
    found = store.exchanges.get(approval_fingerprint(stage, change.digest), change.members[stage])
    return found if found is not None and found.outcome == "rejected" else None


def keep(store: ProjectStore, change: Change, stage: str, decision: Decision) -> None:
    """Store a decision about a change durably. It replaces an earlier one. The caller holds the build lock."""
    place = store.approvals / f"{decision.digest}.json"
    exchange = Exchange(
        fingerprint=approval_fingerprint(stage, decision.digest),
        stage=stage,
        request={},
        response=decision.text,
        outcome="rejected" if decision.text else "approved",
        provenance=f"{decision.by}, {decision.at}",
    )
    if decision.text:
        try_unlink(place)
    store.exchanges.put(exchange, change.members[stage])
    if not decision.text:
        write_atomic(place, store.key.encode(from_struct(decision)), mode=PRIVATE_FILE_MODE)


def _waiting(store: ProjectStore, pipeline: str, stage: str) -> Path:
    return store.approvals / "waiting" / f"{sha256_hex(f'{pipeline} {stage}'.encode())}.json"
