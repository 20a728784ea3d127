"""Store what users decided about changes: approvals in the store, and both with the transcripts (ADR 88)."""

import contextlib
from pathlib import Path

from msgspec import Struct

from orch23.model.digest import FileEntry
from orch23.model.llm import Exchange
from orch23.model.parsing import from_struct, to_struct
from orch23.snapshot.signatures import sha256_hex
from orch23.store.exchanges import approval_fingerprint
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import PRIVATE_FILE_MODE, list_folder, read_regular, try_unlink, write_atomic


class Member(Struct, frozen=True, kw_only=True):
    """A stage whose result is promoted with others: its key, whether a model made it, and where exchanges are kept."""

    key: str
    asks_model: bool
    transcripts: str | None


class Change(Struct, frozen=True, kw_only=True):
    """A change of the workspace that a build held: the files before and after, and the results that it promotes.

    `stage` is the first of its group with `approve`: a group has one change.
    """

    pipeline: str
    stage: str
    digest: str
    members: dict[str, Member]
    old: dict[str, FileEntry | None]
    new: dict[str, FileEntry | None]

    @property
    def named(self) -> str:
        """The stage by which commands name it. `stage` has no part in it if it is done, or was not selected."""
        others = sorted(self.members, key=lambda name: (not self.members[name].asks_model, name))
        return self.stage if self.stage in self.members else others[0]


class Decision(Struct, frozen=True, kw_only=True):
    """What a user decided about a change: who, and when. `text` is what a rejection says; empty if it is approved."""

    by: str
    at: str
    text: str = ""


class _Approval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    digest: str
    by: str
    at: str


def approval_of(store: ProjectStore, digest: str) -> Decision | None:
    """Return the approval of a change, by the digest of its files. Only what a command of this user wrote counts."""
    try:
        found = to_struct(store.key.decode(read_regular(store.approvals / f"{digest}.json") or b""), _Approval)
    except ValueError:
        return None
    return Decision(by=found.by, at=found.at) if found.digest == digest else None


def hold(store: ProjectStore, change: Change) -> None:
    """Store a change that waits; it replaces an earlier one of its stage. The caller holds the build lock."""
    data = store.key.encode(from_struct(change))
    write_atomic(_waiting(store, change.pipeline, change.stage), data, mode=PRIVATE_FILE_MODE)


def release(store: ProjectStore, pipeline: str, stage: str) -> None:
    """Delete the change of a stage that waits, since it is promoted."""
    try_unlink(_waiting(store, pipeline, stage))


def waiting_changes(store: ProjectStore, pipeline: str) -> list[Change]:
    """Return the changes of a pipeline that the last builds held, and that are neither approved nor in place.

    Only what a build of this user wrote counts.
    """
    found, on_disk = list[Change](), store.workspace.entry
    for path in list_folder(store.approvals / "waiting"):
        with contextlib.suppress(ValueError):
            found.append(to_struct(store.key.decode(read_regular(path) or b""), Change))
    own = sorted((one for one in found if one.pipeline == pipeline), key=lambda one: one.stage)
    left = (one for one in own if any(on_disk(path) != entry for path, entry in one.new.items()))
    return [one for one in left if approval_of(store, one.digest) is None]


def is_rejected(store: ProjectStore, change: Change) -> bool:
    """Return whether a stage has to make a change again."""
    return any(rejection_of(store, name, one, change.digest) is not None for name, one in change.members.items())


def rejection_of(store: ProjectStore, stage: str, member: Member, digest: str) -> Decision | None:
    """Return the rejection of a change that a stage has to make again.

    Raises:
        CorruptStateError: a committed transcript is damaged.
    """
    found = store.exchanges.get(approval_fingerprint(stage, digest), member.transcripts)
    if found is None or found.outcome != "rejected":
        return None
    by, _, at = found.provenance.rpartition(", ")
    return Decision(by=by, at=at, text=found.response)


def keep(store: ProjectStore, change: Change, stage: str, decision: Decision) -> None:
    """Store a decision about a change durably. It replaces an earlier one. The caller holds the build lock."""
    place = store.approvals / f"{change.digest}.json"
    exchange = Exchange(
        fingerprint=approval_fingerprint(stage, change.digest),
        stage=stage,
        request={},
        response=decision.text,
        outcome="rejected" if decision.text else "approved",
        provenance=f"{decision.by}, {decision.at}",
    )
    if decision.text:
        try_unlink(place)
    store.exchanges.put(exchange, change.members[stage].transcripts)
    if not decision.text:
        data = store.key.encode(from_struct(_Approval(digest=change.digest, by=decision.by, at=decision.at)))
        write_atomic(place, data, mode=PRIVATE_FILE_MODE)


def _waiting(store: ProjectStore, pipeline: str, stage: str) -> Path:
    return store.approvals / "waiting" / f"{sha256_hex(f'{pipeline} {stage}'.encode())}.json"
