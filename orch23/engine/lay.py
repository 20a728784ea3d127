"""Make a record's bytes again from its recorded answers: lay them in order on the base and compare digests."""

from orch23.engine.world import World
from orch23.model.digest import digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.llm import Exchange, Proposal
from orch23.model.record import Record
from orch23.resolve.resolution import Resolved
from orch23.steps.registry import is_llm


def lay(world: World, resolved: Resolved, record: Record) -> bool:
    """Make a record's outputs from its exchanges, into `world.laid`. Say whether they came out the same."""
    step = resolved.stage.step
    transcripts = step.transcripts if is_llm(step) else None
    try:
        tree = {path: world.read(path, entry) for path, entry in resolved.base.items()}
    except MissingBytesError:
        return False
    if not record.exchanges:
        return False
    for fingerprint in record.exchanges:
        exchange = world.store.exchanges.get(fingerprint, transcripts)
        if exchange is None or not _lay_one(resolved, exchange, tree):
            return False
    made = {path: digest_bytes(data) for path, data in tree.items()}
    if any(made.get(path) != entry.digest for path, entry in record.outputs.items()):
        return False
    for path, entry in record.outputs.items():
        world.laid[entry.digest.sha256] = tree[path]
    return True


def _lay_one(resolved: Resolved, exchange: Exchange, tree: dict[str, bytes]) -> bool:
    """Lay one exchange on the tree; say whether it could be."""
    from orch23.decide.proposal import judge_answer  # noqa: PLC0415 - for answers of models alone

    stage = resolved.stage
    if exchange.outcome == "accepted_by_hand":
        for path, text in exchange.files.items():
            if text is None:
                tree.pop(path, None)
            else:
                tree[path] = text.encode("utf-8")
        return True
    if not is_llm(stage.step):
        return False
    shown = {path: data.decode("utf-8", errors="surrogateescape") for path, data in tree.items()}
    judged = judge_answer(
        exchange.response,
        exchange.stop,
        step=stage.step,
        cwd=stage.cwd,
        fence=stage.fence,
        outputs=stage.outputs,
        base=shown,
        validate=None,
    )
    if not isinstance(judged, Proposal):
        return False
    for write in judged.writes:
        tree[write.path] = write.content.encode("utf-8")
    for path in judged.deletes:
        tree.pop(path, None)
    return True
