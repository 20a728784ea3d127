"""Decide what to do with a stage, from its manifest, its records and the files on disk."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.digest import FileEntry, Json
from orch23.model.paths import may_overlap
from orch23.model.plan import Decision, Edited, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Manifest, Reason, ReasonCode, Record, is_verify_aspect

Target = Mapping[str, FileEntry | None]
"""What a record wants of the workspace: path -> entry, None for a path that must not hold its former bytes."""

_BY_ASPECT: Mapping[str, ReasonCode] = {
    "kind": "command_changed",
    "command": "command_changed",
    "cwd": "command_changed",
    "outputs": "command_changed",
    "fence": "command_changed",
    "scratch": "command_changed",
    "network": "command_changed",
    "prompt": "prompt_changed",
    "system": "prompt_changed",
    "provider": "model_changed",
    "model": "model_changed",
    "endpoint": "model_changed",
    "api": "model_changed",
    "params": "params_changed",
    "answers": "params_changed",
    "returns": "params_changed",
    "context": "params_changed",
    "schema": "schema_changed",
    "env": "env_changed",
    "python": "tool_changed",
    "pytest": "tool_changed",
    "tool": "tool_changed",
    "plugins": "tool_changed",
    "salt": "salt_changed",
    "action_format": "salt_changed",
    "base": "base_changed",
    "item": "input_changed",
    "requires": "input_changed",
    "list": "input_changed",
    "keys": "input_changed",
}


class Candidate(Struct, frozen=True, kw_only=True):
    """A record with what it wants of the workspace and whether the bytes can be had that are needed of it.

    Those are the bytes that the disk lacks and, where a later item of the chain is stale, an intermediate version.
    With `is_claim`, only the lock file has the record, so it has to be verified first.
    """

    record: Record
    target: Target
    is_available: bool
    is_claim: bool = False


class StageFacts(Struct, frozen=True, kw_only=True):
    """All that a decision rests on.

    `current` are the records of today's key, the lock's first, then the newest. `same_core` is a record that differs
    in verification alone. `previous` is the stage's last record of any key. `disk` answers for every path of every
    target. `edited` are outputs with a user's bytes, `existed` those of them that no stage has written.
    `is_committed`: the user committed all of them.

    `uncertain` are patterns of files that upstream stages may still change; `possible` are the records that may match
    once they have settled. Both are empty in a build.
    """

    stage: str
    manifest: Manifest
    current: tuple[Candidate, ...] = ()
    same_core: Candidate | None = None
    previous: Record | None = None
    disk: Mapping[str, FileEntry | None] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    edited: tuple[str, ...] = ()
    existed: frozenset[str] = frozenset()
    is_committed: bool = False
    failed_before: bool = False
    forced: bool = False
    cacheable: bool = True
    uncertain: tuple[str, ...] = ()
    pending_upstream: tuple[str, ...] = ()
    possible: tuple[Record, ...] = ()


def decide(known: StageFacts) -> Decision:
    """Return the decision. Today's key settles it; where upstream may change, only what holds whatever it writes."""
    if known.edited:
        return _edited(known)
    if known.forced:
        return Run((Reason("forced"),))
    if not known.cacheable:
        return Run((Reason("cache_disabled"),))
    if known.pending_upstream and _may_match(known):
        return Maybe(known.pending_upstream, tuple(Reason("upstream_maybe", name) for name in known.pending_upstream))
    settled = None if known.pending_upstream else _by_records(known)
    return settled or Run(_why(known))


def _edited(known: StageFacts) -> Decision:
    """Return what is to be done with a stage of which a user edited outputs: nothing, but for verifying a decided edit.

    The stage is in place if all but the edit is as a record of today's key says.
    """
    existed = tuple(path for path in known.edited if path in known.existed)
    found = None
    if not known.forced and known.cacheable and not known.pending_upstream:
        rests = ((c, {p: e for p, e in c.target.items() if p not in known.edited}) for c in known.current)
        found = next((c.record for c, rest in rests if not mismatched_paths(rest, known.disk, known.foreign)), None)
    if found is None or not known.is_committed or any(path not in found.outputs for path in known.edited):
        return Edited(known.edited, found, existed)
    edits = {path: entry for path in known.edited if (entry := known.disk.get(path)) is not None}
    reasons = tuple(Reason("output_edited", path, str(found.outputs[path]), str(edits[path])) for path in edits)
    return VerifyOnly(replace(found, outputs={**found.outputs, **edits}), reasons, adopted=known.edited)


def _by_records(known: StageFacts) -> Decision | None:
    """Return what the records of today's key, or of one that differs in verification alone, allow."""
    for candidate in known.current:
        if candidate.is_available and not mismatched_paths(candidate.target, known.disk, known.foreign):
            return _claim(candidate) or Fresh(candidate.record)
    for candidate in known.current:
        if candidate.is_available:
            return _claim(candidate) or Restore(candidate.record, _disk_reasons(candidate.target, known))
    if not known.current and known.same_core is not None and known.same_core.is_available:
        return VerifyOnly(known.same_core.record, _verify_reasons(known))
    return None


def _claim(candidate: Candidate) -> VerifyOnly | None:
    return VerifyOnly(candidate.record, (Reason("claim"),), claim=True) if candidate.is_claim else None


def mismatched_paths(
    target: Target, disk: Mapping[str, FileEntry | None], foreign: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the paths where the disk is not as the target wants. A person's file where nothing is wanted is fine."""
    allowed = frozenset(foreign)
    return tuple(
        path
        for path, wanted in sorted(target.items())
        if disk.get(path) != wanted and not (wanted is None and path in allowed)
    )


def change_reasons(then: Manifest, now: Manifest) -> tuple[Reason, ...]:
    """Return why two manifests differ: one reason an aspect, inputs first."""
    reasons = []
    for aspect in sorted(set(then) | set(now)):
        old, new = then.get(aspect), now.get(aspect)
        if old != new:
            reasons.append(_reason(aspect, old, new))
    return tuple(sorted(reasons, key=lambda r: (not r.code.startswith(("input", "base")), r.code, r.subject)))


def _reason(aspect: str, old: Json, new: Json) -> Reason:
    prefix, _, subject = aspect.partition(":")
    if is_verify_aspect(aspect):
        return Reason("verify_changed", aspect, old, new)
    if prefix in ("input", "slice"):
        code: ReasonCode = "input_added" if old is None else "input_removed" if new is None else "input_changed"
        return Reason(code, subject, old, new)
    by_kind: ReasonCode = "command_changed"  # what a kind of step has of its own
    return Reason(_BY_ASPECT.get(prefix, by_kind), subject or prefix, old, new)


def _why(known: StageFacts) -> tuple[Reason, ...]:
    """Return every reason for running: what changed since the last record, what is missing, what failed."""
    if known.previous is None:
        first = Reason("previous_failed") if known.failed_before else Reason("first_run")
        return (first,)
    reasons = list(change_reasons(known.previous.manifest, known.manifest))
    if known.failed_before:
        reasons.append(Reason("previous_failed"))
    if not reasons:
        reasons += _disk_reasons(dict(known.previous.outputs.items()), known)
    return tuple(reasons) or (Reason("output_missing"),)


def _verify_reasons(known: StageFacts) -> tuple[Reason, ...]:
    then = known.same_core.record.manifest if known.same_core else {}
    return tuple(r for r in change_reasons(then, known.manifest) if r.code == "verify_changed")


def _disk_reasons(target: Target, known: StageFacts) -> tuple[Reason, ...]:
    reasons = []
    for path in mismatched_paths(target, known.disk, known.foreign):
        there, wanted = known.disk.get(path), target[path]
        code: ReasonCode = "output_missing" if there is None else "output_edited"
        reasons.append(Reason(code, path, str(wanted) if wanted else None, str(there) if there else None))
    return tuple(reasons)


def _may_match(known: StageFacts) -> bool:
    """Say whether some record might be today's, or differ from it in verification alone, once upstream has settled."""
    return any(_agrees(record.manifest, known.manifest, known.uncertain) for record in known.possible)


def _agrees(then: Manifest, now: Manifest, uncertain: tuple[str, ...]) -> bool:
    return all(
        then.get(aspect) == now.get(aspect)
        for aspect in set(then) | set(now)
        if not is_verify_aspect(aspect) and not _is_uncertain(aspect, uncertain)
    )


def _is_uncertain(aspect: str, patterns: tuple[str, ...]) -> bool:
    prefix, _, subject = aspect.partition(":")
    match prefix:
        case "prompt" | "system":
            return True
        case "input" | "base":
            return _met(subject, patterns)
        case "slice" | "keys":
            return _met(subject.partition("#")[0], patterns)
        case "requires":
            return _met(subject.partition(":")[2], patterns)
        case _:
            return False


def _met(path: str, patterns: tuple[str, ...]) -> bool:
    return any(may_overlap(pattern, path) for pattern in patterns)
