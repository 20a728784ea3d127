"""Store what users decided about changes: approvals in the store, and both with the transcripts (ADR 88)."""

from msgspec import Struct

from orch23.model.llm import Exchange
from orch23.model.parsing import from_struct, to_struct
from orch23.model.pipeline import Stage
from orch23.steps.registry import is_llm
from orch23.store.exchanges import approval_fingerprint
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, try_unlink, write_atomic


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


def rejection_of(store: ProjectStore, stage: Stage, digest: str) -> Decision | None:
    """Return the rejection of a change that a stage has to make again.

    Raises:
        CorruptStateError: a committed transcript is damaged.
    """
    found = store.exchanges.get(approval_fingerprint(stage.name, digest), _transcripts(stage))
    if found is None or found.outcome != "rejected":
        return None
    by, _, at = found.provenance.rpartition(", ")
    return Decision(by=by, at=at, text=found.response)


def keep(store: ProjectStore, stage: Stage, digest: str, decision: Decision) -> None:
    """Store a decision about a change durably. It replaces an earlier one. The caller holds the build lock."""
    place = store.approvals / f"{digest}.json"
    exchange = Exchange(
        fingerprint=approval_fingerprint(stage.name, digest),
        stage=stage.name,
        request={},
        response=decision.text,
        outcome="rejected" if decision.text else "approved",
        provenance=f"{decision.by}, {decision.at}",
    )
    if decision.text:
        try_unlink(place)
    store.exchanges.put(exchange, _transcripts(stage))
    if not decision.text:
        data = store.key.encode(from_struct(_Approval(digest=digest, by=decision.by, at=decision.at)))
        write_atomic(place, data, mode=PRIVATE_FILE_MODE)


def _transcripts(stage: Stage) -> str | None:
    return stage.step.transcripts if is_llm(stage.step) else None
