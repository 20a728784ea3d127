"""Decide what to do with a stage, from its manifest, its records and the files on disk."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.digest import FileEntry, Json
from orch23.model.paths import PatternSet
from orch23.model.plan import Decision, Edited, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Manifest, Reason, ReasonCode, Record, is_verify_aspect

# What a record requires of the workspace: path -> entry; None for a path that must not have its old bytes.
Target = Mapping[str, FileEntry | None]

# All others are about the command: those of every stage, and those that only one step kind has.
_BY_ASPECT: Mapping[str, ReasonCode] = {
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
    """A record, what it requires of the workspace, and whether the missing bytes are available.

    Missing are those that the disk lacks and, if a later item of the chain is stale, an intermediate version.
    `is_claim`: only the lock file has the record, so it must be verified first. `is_shared`: a shared cache has it, and
    this machine has not used it yet; with `is_claim`, it must be verified first, too.
    """

    record: Record
    target: Target
    is_available: bool
    is_claim: bool = False
    is_shared: bool = False


class DecisionFacts(Struct, frozen=True, kw_only=True):
    """All facts for a decision.

    `current` are the records of the current key, that of the lock file first, then the newest. `same_core` is a record
    that differs only in verification. `previous` is the stage's last record of any key. `disk` has every path of every
    target. `edited` are outputs with a user's bytes, `existed` those of them that no stage has written.
    `is_committed`: the user committed all of them. `is_compared`: a run starts from no file on
    disk, so its result shows whether there are edits.

    `empty_caches` are the caches of tools that only a run of the stage fills.

    With `resample`, it is forced, and its model is called again.

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
    is_compared: bool = False
    failed_before: bool = False
    forced: bool = False
    resample: tuple[str, ...] | None = None
    cacheable: bool = True
    empty_caches: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    pending_upstream: tuple[str, ...] = ()
    possible: tuple[Record, ...] = ()

    @property
    def ignores_records(self) -> bool:
        """Whether the stage runs although a record may match."""
        return self.forced or not self.cacheable or bool(self.empty_caches)


def decide(known: DecisionFacts) -> Decision:
    """Return the decision. While upstream stages may still write, it holds whatever they write."""
    if not known.edited:
        return _unedited(known)
    edited, otherwise = _edited(known), _unedited(replace(known, edited=()))
    # Bytes that equal those that the stage makes now are not an edit: git may have merged them (ADR 19). A run starts
    # from a committed edit, but whether the stage runs is unknown while upstream stages may still write.
    is_kept = known.is_compared or (known.is_committed and known.pending_upstream)
    if is_kept and isinstance(edited, Edited) and edited.record is None:
        return replace(otherwise, edits=edited) if isinstance(otherwise, Run | Maybe) else edited
    return edited


def _unedited(known: DecisionFacts) -> Decision:
    if known.forced:
        return Run((Reason("forced" if known.resample is None else "resample"),), resample=known.resample)
    if not known.cacheable:
        return Run((Reason("cache_disabled"),))
    if known.empty_caches:
        return Run(_why(known))
    if not known.pending_upstream:
        # Never by a flag or a time: only by records of the current key and the bytes on disk (ADR 3).
        return _by_records(known) or Run(_why(known))
    # A record may match, or differ only in verification, once upstream has settled.
    uncertain = PatternSet(known.uncertain)
    if any(_agrees(record.manifest, known.manifest, uncertain) for record in known.possible):
        return Maybe(known.pending_upstream, tuple(Reason("upstream_maybe", name) for name in known.pending_upstream))
    return Run(_why(known))


def _edited(known: DecisionFacts) -> Decision:
    # A build never overwrites a user edit. A committed one is verified and recorded as accepted (ADR 19).
    existed = tuple(path for path in known.edited if path in known.existed)
    found = _record_of_the_rest(known)
    if found is None or not known.is_committed or not found.outputs.keys() >= set(known.edited):
        return Edited(known.edited, found, existed)
    edits = {path: entry for path in known.edited if (entry := known.disk.get(path)) is not None}
    reasons = tuple(Reason("output_edited", path, str(found.outputs[path]), str(edits[path])) for path in edits)
    return VerifyOnly(replace(found, outputs={**found.outputs, **edits}), reasons, adopted=known.edited)


def _record_of_the_rest(known: DecisionFacts) -> Record | None:
    if known.ignores_records or known.pending_upstream:
        return None
    for candidate in known.current:
        rest = {path: entry for path, entry in candidate.target.items() if path not in known.edited}
        if not mismatched_paths(rest, known.disk, known.foreign):
            return candidate.record
    return None


def _by_records(known: DecisionFacts) -> Decision | None:
    """Return what the records of the current key allow, or one that differs only in verification."""
    available = [candidate for candidate in known.current if candidate.is_available]
    for candidate in available:
        if not mismatched_paths(candidate.target, known.disk, known.foreign):
            return _claim(candidate) or Fresh(candidate.record)
    if available:
        best = available[0]
        return _claim(best) or Restore(best.record, _restore_reasons(best, known))
    if not known.current and known.same_core is not None and known.same_core.is_available:
        record = known.same_core.record
        changed = change_reasons(record.manifest, known.manifest)
        return VerifyOnly(record, tuple(reason for reason in changed if reason.code == "verify_changed"))
    return None


def _restore_reasons(best: Candidate, known: DecisionFacts) -> tuple[Reason, ...]:
    """Return what changed since the last result, if an earlier one is restored; else how its files differ on disk."""
    changed = change_reasons(known.previous.manifest, known.manifest) if known.previous is not None else ()
    if best.is_shared:
        # This machine never had the files, so that they are missing says nothing.
        return (Reason("shared_cache"), *changed)
    return changed or tuple(_disk_reasons(best.target, known))


def _claim(candidate: Candidate) -> VerifyOnly | None:
    if not candidate.is_claim:
        return None
    if candidate.is_shared:
        return VerifyOnly(candidate.record, (Reason("shared_cache"),), shared=True)
    return VerifyOnly(candidate.record, (Reason("claim"),), claim=True)


def mismatched_paths(
    target: Target, disk: Mapping[str, FileEntry | None], foreign: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the paths where the disk differs from the target. A user's file at a path without an entry is allowed."""
    allowed = frozenset(foreign)
    return tuple(
        path
        for path, wanted in sorted(target.items())
        if disk.get(path) != wanted and not (wanted is None and path in allowed)
    )


def change_reasons(then: Manifest, now: Manifest) -> tuple[Reason, ...]:
    """Return why two manifests differ: one reason for each aspect, inputs first, then the provider and the model."""
    aspects = sorted([one for one in then if now.get(one) != then[one]] + [one for one in now if one not in then])
    reasons = [_reason(aspect, then.get(aspect), now.get(aspect)) for aspect in aspects if aspect != "matched"]
    before, today = then.get("matched"), now.get("matched")
    if isinstance(before, list) and isinstance(today, list):
        # By the names of the files, of which a removed one may be an input too.
        changed = {*map(str, before)}.symmetric_difference(map(str, today)) - {one.subject for one in reasons}
        reasons += [Reason("input_added" if one in today else "input_removed", one) for one in sorted(changed)]
    return tuple(sorted(reasons, key=_rank))


def _rank(reason: Reason) -> tuple[int, str, str]:
    # Another provider or model has other parameters, another API and another endpoint: these follow from it.
    if reason.code.startswith(("input", "base")):
        return 0, reason.code, reason.subject
    telling = ("provider", "model")
    if reason.code == "model_changed" and reason.subject in telling:
        return 1 + telling.index(reason.subject), "", ""
    return 1 + len(telling), reason.code, reason.subject


def _reason(aspect: str, old: Json, new: Json) -> Reason:
    prefix, _, subject = aspect.partition(":")
    if is_verify_aspect(aspect):
        return Reason("verify_changed", aspect, old, new)
    if prefix in ("input", "slice", "program", "explored"):
        code: ReasonCode = "input_added" if old is None else "input_removed" if new is None else "input_changed"
        return Reason(code, subject, old, new)
    return Reason(_BY_ASPECT.get(prefix, "command_changed"), subject or prefix, old, new)


def _why(known: DecisionFacts) -> tuple[Reason, ...]:
    if known.previous is None:
        return (Reason("previous_failed" if known.failed_before else "first_run"),)
    reasons = [*change_reasons(known.previous.manifest, known.manifest)]
    reasons += [Reason("tool_cache_empty", name) for name in known.empty_caches]
    if known.failed_before:
        reasons.append(Reason("previous_failed"))
    return tuple(reasons or _disk_reasons(known.previous.outputs, known)) or (Reason("output_missing"),)


def _disk_reasons(target: Target, known: DecisionFacts) -> Iterator[Reason]:
    for path in mismatched_paths(target, known.disk, known.foreign):
        there, wanted = known.disk.get(path), target[path]
        code: ReasonCode = "output_missing" if there is None else "output_edited"
        yield Reason(code, path, str(wanted) if wanted else None, str(there) if there else None)


def _agrees(then: Manifest, now: Manifest, uncertain: PatternSet) -> bool:
    return all(
        then.get(aspect) == now.get(aspect)
        for aspect in {*then, *now}
        if not is_verify_aspect(aspect) and not _is_uncertain(aspect, uncertain)
    )


def _is_uncertain(aspect: str, patterns: PatternSet) -> bool:
    prefix, _, subject = aspect.partition(":")
    match prefix:
        case "prompt" | "system" | "matched":
            return True
        case "input" | "base" | "program":
            return patterns.may_overlap(subject)
        case "slice" | "keys" | "explored":
            return patterns.may_overlap(subject.partition("#")[0])
        case "requires":
            return patterns.may_overlap(subject.partition(":")[2])
        case _:
            return False
