"""Keep a user's edit of outputs as a result: as an exchange that no model was called for."""

from orch23.engine.running import Files
from orch23.engine.session import Session
from orch23.model.llm import Exchange
from orch23.resolve.resolution import Resolved
from orch23.steps.registry import is_llm
from orch23.store.exchanges import hand_fingerprint


def keep_edit(session: Session, resolved: Resolved, outputs: Files) -> str:
    """Keep accepted files as an exchange, so that they can be laid again, and return its fingerprint."""
    store, step = session.store, resolved.stage.step
    texts: dict[str, str | None] = {}
    for path, entry in outputs.items():
        texts[path] = session.world.read(path, entry).decode("utf-8", errors="replace")
    fingerprint = hand_fingerprint(resolved.stage.name, texts)
    exchange = Exchange(
        fingerprint=fingerprint,
        stage=resolved.stage.name,
        request={},
        response="",
        outcome="accepted_by_hand",
        provenance="accepted by hand",
        files=texts,
    )
    store.exchanges.put(exchange, step.transcripts if is_llm(step) else None)
    return fingerprint
