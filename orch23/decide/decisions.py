"""Resolve a stage, collect the facts about its records and files, and decide what to do with it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.base_selection import (
    BaseSelection,
    accepted_elsewhere,
    rebuild_outputs,
    recall,
    texts_of_user,
    unshown_files,
)
from orch23.decide.freshness import Candidate, DecisionFacts, decide
from orch23.decide.ownership import SCRIPT_MAKERS, is_proven, may_write_outputs_of
from orch23.decide.project_state import ProjectState
from orch23.decide.stage_view import StageTree
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, is_script
from orch23.model.errors import MissingBytesError
from orch23.model.parsing import YamlReader
from orch23.model.paths import match_any
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Decision, Done, Edited, Fresh, Maybe, Resample, Restore, Run, VerifyOnly, resample_of
from orch23.model.record import (
    Facts,
    Manifest,
    Reason,
    Record,
    core_of,
    key_of,
    program_of,
    retained_key,
    same_result,
    without_program,
    written_paths,
)
from orch23.plan.nodes import reads_with_exclusions, writes_of
from orch23.resolve.resolution import ResolvedStage, VisibleFiles, resolve_stage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.decide.earlier_build import EarlierBuild
    from orch23.decide.kept_stages import KeptStages
    from orch23.decide.shared_results import SharedResults
    from orch23.resolve.prompt_inputs import AuthorTexts

MANY_INPUTS = 1_000
_MOST_LARGE = 8
"""To resolve a stage with so many inputs takes longer than to compare what it reads; each takes some MB."""
FactsOf: TypeAlias = Callable[[Stage], Facts]


class DecidedStage(Struct, frozen=True):
    """A resolved stage with the decision on it.

    `maybe_formatted` are recorded results with the files on disk that may differ from them only by formatting: the
    decision holds if they differ by more.
    """

    resolved: ResolvedStage
    decision: Decision
    maybe_formatted: "tuple[tuple[Record, Mapping[str, FileEntry]], ...]" = ()


class StageDecider(Struct):
    """Resolves and decides the stages of one state, in the order of the plan.

    `earlier` is the last build with nothing to do: stages that nothing has affected since need no decision. `large` are
    some decided stages with many inputs, `kept` those of the build before this decision. `compared` are stages of which
    this build has compared edited files with the results, both formatted.
    """

    state: ProjectState
    facts_of: FactsOf
    sources: "AuthorTexts"
    read_yaml: YamlReader
    forced: Collection[str] = ()
    resample: Resample = {}
    overwrite_edited: bool = False
    failed_before: Mapping[str, str] = field(default_factory=dict)
    earlier: "EarlierBuild | None" = None
    compared: set[str] = field(default_factory=set)
    stale_chains: dict[str, bool] = field(default_factory=dict)
    walked_chains: dict[str, dict[str, Record]] = field(default_factory=dict)
    large: dict[str, ResolvedStage] = field(default_factory=dict)
    kept: "KeptStages | None" = None
    _edited_chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _items: dict[str, Mapping[str, Stage]] = field(default_factory=dict)

    def former_items(self, node: ForeachStage) -> Mapping[str, Stage]:
        """Return items of a foreach that this build or the last one has built, by name. All threads may call it."""
        if node.name in self._items:
            return self._items[node.name]
        return {} if self.earlier is None else self.earlier.items_of(node, self.state.plan.pipeline.vars)

    def keep_items(self, node: ForeachStage, items: tuple[Stage, ...]) -> None:
        """Keep items that a list would have, for its expansion."""
        if items:
            self._items[node.name] = {stage.name: stage for stage in items}

    def resolve(self, name: str) -> ResolvedStage:
        """Return a stage with its manifest, by the current state."""
        stage = self.state.stage(name)
        facts = self.facts_of(stage)
        if self.kept is not None and (kept := self.kept.take(self.state, name, facts)) is not None:
            return kept
        # Lost bytes are an error of the stages that need them. Others can still be decided and built.
        tree = _LossyTree(self.state, name)
        pipeline = self.state.plan.pipeline
        resolved = resolve_stage(stage, tree, facts, self.sources, pipeline=pipeline, read_yaml=self.read_yaml)
        resolved = self.as_of(resolved, self._records_of(resolved), tree)
        program = program_of(resolved.manifest)
        known = (program_of(one.manifest) for one in self._records_of(resolved) if program)
        # If no record has another program, this one made them: records of earlier versions name none (ADR 65).
        if program and all(one in ({}, program) for one in known):
            resolved = replace(resolved, earlier_key=key_of(without_program(resolved.manifest)))
        if not tree.lost:
            return resolved
        code, where = MissingBytesError.code, "in neither the store, the transcripts, the project nor git"
        lost = (
            Diagnostic(code, f"the bytes of `{path}` that are needed are {where}", hint=MissingBytesError.hint)
            for path in sorted(tree.lost)
        )
        return self._as_recorded(resolved) or replace(resolved, broken=(*resolved.broken, *lost))

    def as_of(
        self, resolved: ResolvedStage, records: Iterable[Record], tree: VisibleFiles | None = None
    ) -> ResolvedStage:
        """Return a stage with the discovered aspects of the first of these records that is today's."""
        stage = resolved.stage
        if not (stage.discovers or stage.depfile):
            return resolved
        from orch23.resolve.discovered import as_of_records, part_digest  # noqa: PLC0415 - only for such stages

        tree = tree or _LossyTree(self.state, stage.name)
        part_of = partial(part_digest, stage=stage, tree=tree, never_send=self.state.plan.pipeline.never_send)
        return as_of_records(resolved, records, part_of)

    def _records_of(self, resolved: ResolvedStage) -> Iterator[Record]:
        """Yield the records of a stage under any name: that of the lock file, then the others, the newest first."""
        state, name, identity = self.state, resolved.stage.name, resolved.identity
        if name in state.former:
            yield state.former[name]
        yield from state.locked.of_identity(identity)
        yield from (one for one in state.store.records.by_identity(identity) if not one.is_kept_failure)

    def _as_recorded(self, resolved: ResolvedStage) -> ResolvedStage | None:
        """Return a stage with lost bytes as its record has it, if only the rendered prompt is unknown.

        The inputs of the prompt have the same digests, so the prompt is the same.
        """
        for record in self._records_of(resolved):
            same = _unrendered(record.manifest) == _unrendered(resolved.manifest)
            if same and record.texts and record.texts == resolved.texts and not record.failed:
                return replace(resolved, manifest=record.manifest, key=record.key, core=core_of(record.manifest))
        return None

    def resolve_on(self, name: str, base: Mapping[str, FileEntry] | None = None) -> ResolvedStage:
        """Return a stage with its manifest, on a base that it has from now on: by default the one in force."""
        self.state.moved_bases[name] = BaseSelection(self.state).in_force(name) if base is None else base
        return self.resolve(name)

    def decide(self, name: str, *, need_intermediate: bool = False) -> DecidedStage:
        """Resolve and decide a stage on its base (ADR 19).

        Each path that the decision depends on is noted in the `reads` of the state.
        """
        state = self.state.tracked(name)
        own = replace(self, state=state, sources=_NotedSources(state, self.sources))
        decided = own._decide(name, need_intermediate=need_intermediate)  # noqa: SLF001 - of the same class
        if len(decided.resolved.files) >= MANY_INPUTS and len(self.large) < _MOST_LARGE:
            self.large[name] = decided.resolved
        # An edit beside a fresh result is that of a later stage of the chain.
        if not decided.resolved.stage.format or isinstance(decided.decision, Fresh):
            return decided
        return replace(decided, maybe_formatted=own._maybe_formatted(decided.resolved))  # noqa: SLF001 - as above

    def _maybe_formatted(self, resolved: ResolvedStage) -> "tuple[tuple[Record, Mapping[str, FileEntry]], ...]":
        """Return proven results with the edited files on disk that `format` might have made of theirs."""
        state, stage = self.state, resolved.stage
        if stage.chain is None or resolved.broken or self.overwrite_edited:
            return ()
        found = dict[str, tuple[Record, dict[str, FileEntry]]]()
        for path in () if stage.name in self.compared or self.waiting_on(stage.name) else self._edits_of(stage):
            makers = (n for n in reversed(state.plan.chains[stage.chain.chain]) if n in state.former)
            record = next((one for n in makers if path in (one := state.former[n]).outputs), None)
            there = state.store.workspace.entry(path)
            if record is None or there is None or record.failed or state.is_claim(record, stage):
                continue
            if there.digest != record.outputs[path].digest and state.has_bytes(path, record.outputs[path]):
                found.setdefault(record.stage, (record, {}))[1][path] = there
        return tuple(found.values())

    def settle_formatted(self, name: str, results: Iterable[Record]) -> None:
        """Note that edited files of a stage were compared; `results` have those that only formatting made different."""
        self.compared.add(name)
        for record in results:
            self.state.store.records.put(record)
            self.state.edited.difference_update(record.outputs)
        self._edited_chains.clear()
        self.state.unsettle(name)

    def _decide_done(self, name: str) -> DecidedStage:
        """Decide a stage whose last result is done: it runs, from the files on disk, if its task text has changed."""
        from orch23.decide.once import task_changes, task_of  # noqa: PLC0415 - few stages have `once`

        state = self.state
        resolved = self.resolve_on(name, BaseSelection(state).of_files(name))
        known, record = replace(self._known(resolved, need_intermediate=False), edited=()), state.done[name]
        if not known.forced and task_of(resolved, self.sources, state.plan.pipeline.vars) == record.task:
            if waiting := known.pending_upstream:
                return DecidedStage(resolved, Maybe(waiting, tuple(Reason("upstream_maybe", up) for up in waiting)))
            return DecidedStage(resolved, Done(state.former[name]))
        decision = decide(known)
        if isinstance(decision, Run) and not known.forced:
            decision = replace(decision, reasons=task_changes(record, resolved))
        return self._owned(resolved, decision, None)

    def _decide(self, name: str, *, need_intermediate: bool) -> DecidedStage:
        state, bases = self.state, BaseSelection(self.state)
        if name in state.done:
            return self._decide_done(name)
        in_force = bases.in_force(name)
        resolved = self.resolve_on(name, in_force)
        known = self._known(resolved, need_intermediate=need_intermediate)
        may_start_over = self._may_start_over(known, resolved)
        if (
            (known.edited or may_start_over)
            and (known.is_compared or not known.forced)
            and recall(state, resolved.stage, self._own_paths([name]))
        ):
            self._edited_chains.clear()
            return self._decide(name, need_intermediate=need_intermediate)
        if may_start_over:
            # A record of an earlier base wins: a reverted input restores its result at no cost (ADR 19, rule 2).
            others = () if known.ignores_records else bases.alternatives(name, resolved.identity, in_force)
            for start in others:
                other = self.resolve_on(name, start)
                if self.todays(other):
                    resolved, known = other, self._known(other, need_intermediate=need_intermediate)
                    break
            else:
                # `for_next_run` compares with the base in force, not with the last alternative.
                state.moved_bases[name] = in_force
                state.moved_bases[name] = bases.for_next_run(name, in_force, repeats=bool(known.current))
                if resolved.stage.edits or state.moved_bases[name] != in_force:  # its originals may be others
                    resolved = self.resolve(name)
                    known = self._known(resolved, need_intermediate=need_intermediate)
        decision = decide(self._without_started(known))
        if isinstance(decision, VerifyOnly) and decision.record.accepted and not decision.is_final:
            # If the user's edit does not pass a new verification, the stage runs: it starts from the edit.
            resolved = self.resolve_on(name, bases.accepted_in(decision.record, name, in_force))
            unshown = unshown_files(state, self.sources, resolved, self._users_texts(resolved))
            decision = replace(decision, adopted=decision.adopted or unshown)
        # A result that the user accepted is work of the user: `reset` must not make a model overwrite it.
        if isinstance(decision, Run) and not known.forced and not known.pending_upstream:
            decision = self._accepted_before_reset(resolved) or decision
        if (
            resolved.stage.on_edit == "rerun"
            and isinstance(decision, Fresh | Restore | VerifyOnly)
            and (paths := decision.adopted if isinstance(decision, VerifyOnly) else decision.record.accepted)
        ):
            edits = replace(decision.record, accepted=paths)
            resolved = self.resolve_on(name, bases.accepted_in(edits, name, in_force))
            known = self._known(resolved, need_intermediate=need_intermediate)
            reasons = tuple(Reason("base_changed", path, new=str(edits.outputs[path])) for path in paths)
            # The accepted result may have started from the edit as well, if that was committed before.
            made = tuple(one for one in known.current if not one.record.accepted)
            decision = decide(replace(known, current=made)) if made else Run(reasons)
        # A result of today's key whose bytes are lost is made again, and replaces the same files.
        is_again = isinstance(decision, Run) and known.current and not (known.ignores_records or known.pending_upstream)
        return self._owned(resolved, decision, known.current[0].record if is_again else None)

    def _may_start_over(self, known: DecisionFacts, resolved: ResolvedStage) -> bool:
        """Return whether no record counts on the base in force, so that the stage may have another base."""
        core = known.same_core
        if core and resolved.stage.chain and not core.record.accepted:
            # Formatted again, the result of an item would replace an edit of a later one, unless it starts from that.
            core = core if core.record.manifest.get("verify.format") == known.manifest.get("verify.format") else None
        if known.pending_upstream or (not known.ignores_records and (known.current or core)):
            return False
        retained = self.state.lock.retained.get(resolved.stage.name)
        if known.edited or retained is None:
            return True
        if any(problem.code == MissingBytesError.code for problem in resolved.broken):
            return False
        # A stage that `reset` dropped repeats its request: on another base the recorded response would not match.
        was_reset = retained.key == retained_key(resolved.key)
        is_verified_again = not known.ignores_records and self._accepted_before_reset(resolved) is not None
        return not was_reset or (bool(retained.accepted) and not is_verified_again)

    def _accepted_before_reset(self, resolved: ResolvedStage) -> VerifyOnly | None:
        """Return the decision to verify an accepted result that `reset` dropped and record it again, or None."""
        retained = self.state.lock.retained.get(resolved.stage.name)
        if retained is None or not retained.accepted or not resolved.stage.cache:
            return None
        if retained.key != retained_key(resolved.key) or not self._has_outputs(retained):
            return None
        record = replace(retained, key=resolved.key, manifest=resolved.manifest, failed=False)
        return VerifyOnly(record, (Reason("first_run"),), adopted=retained.accepted)

    def _has_outputs(self, record: Record) -> bool:
        return all(self.state.has_bytes(path, entry) for path, entry in record.outputs.items())

    def _without_started(self, known: DecisionFacts) -> DecisionFacts:
        """Return the facts without the edits that the stage starts from: a run keeps these."""
        view = StageTree(self.state, known.stage)
        if not known.edited or (known.current and not known.ignores_records and not known.pending_upstream):
            return known
        there = {path: self.state.store.workspace.entry(path) for path in known.edited}
        left = (p for p, entry in there.items() if entry is None or not view.has_started_from(p, entry))
        return replace(known, edited=tuple(left))

    def _owned(self, resolved: ResolvedStage, decision: Decision, again: Record | None) -> DecidedStage:
        """Return the decision, unless it or the result `again` would overwrite accepted or foreign files."""
        state, stage = self.state, resolved.stage
        if not isinstance(decision, Run | Restore | VerifyOnly):
            return DecidedStage(resolved, decision)
        # A stage without a chain has no base: it would overwrite accepted bytes instead of starting from them (ADR 19).
        if isinstance(decision, Run) and stage.chain is None and not self.overwrite_edited:
            former = state.former.get(stage.name)
            made = former.outputs if former is not None and not former.accepted else {}
            there = ((path, state.store.workspace.entry(path)) for path in sorted(self._own_paths([stage.name])))
            others = ((path, entry) for path, entry in there if entry is not None and entry != made.get(path))
            if accepted := tuple(path for path, entry in others if state.ownership.is_accepted(path, entry)):
                edits = decision.edits or Edited(())
                edits = replace(edits, paths=(*edits.paths, *accepted), accepted=accepted)
                decision = replace(decision, edits=edits)
        if isinstance(decision, Run) and (texts := self._users_texts(resolved)):
            from orch23.text.merge_conflicts import conflict_errors  # noqa: PLC0415 - only for edits of a user

            if marked := conflict_errors(texts):
                return DecidedStage(replace(resolved, broken=(*resolved.broken, *marked)), decision)
            if unshown := unshown_files(state, self.sources, resolved, texts):
                return DecidedStage(resolved, Edited(unshown, unshown=unshown))
        adopts = isinstance(decision, VerifyOnly) and decision.adopted
        replaced = again if isinstance(decision, Run) or adopts else decision.record
        if replaced is not None and not self.overwrite_edited and (kept := accepted_elsewhere(state, replaced)):
            return DecidedStage(resolved, Edited(kept, accepted=kept))
        recorded = () if isinstance(decision, Run) else decision.record.outputs
        # The error is reported when the stage runs: it must not stop stages that do not depend on this one.
        if refused := state.ownership_errors(stage.name, {*stage.literal_outputs, *recorded}):
            return DecidedStage(replace(resolved, broken=(*resolved.broken, *refused)), Run((Reason("first_run"),)))
        return DecidedStage(resolved, decision)

    def _users_texts(self, resolved: ResolvedStage) -> dict[str, str]:
        name = resolved.stage.name
        if self.overwrite_edited or resolved.stage.chain is None or self.waiting_on(name):
            return {}
        return texts_of_user(self.state, resolved, self._own_paths([name]))

    def is_edited_chain(self, stage: Stage) -> bool:
        """Return whether the user edited the stage's chain at a path that the stage may write."""
        return stage.chain is not None and not self.overwrite_edited and bool(self._edits_of(stage))

    def may_replace(self, path: str, there: FileEntry | None, stages: Iterable[str]) -> bool:
        """Return whether results of these stages may replace a file."""
        state = self.state
        if there is None or any(StageTree(state, name).has_started_from(path, there) for name in stages):
            return True
        if self.overwrite_edited:
            return True
        # No run made these bytes: only the original, from before the first run, may be replaced.
        if not state.ownership.is_known(path, there):
            return state.known_originals.get(path) == there
        # Only a result of the stage that owns an accepted edit replaces it.
        having = state.locked.having(path, there)
        return any(map(state.is_owner, having)) or not state.ownership.is_accepted(path, there)

    def _edits_of(self, stage: Stage) -> tuple[str, ...]:
        """Return the outputs that the user edited: no record and no base of a run has the bytes on disk."""
        names = (stage.name,) if stage.chain is None else self.state.plan.chains[stage.chain.chain]
        edited = self._edited_chains.get(names[0])
        if edited is None:
            edited = tuple(path for path in sorted(self._own_paths(names)) if self._is_edited(path, names[0]))
        if stage.chain is None:
            return edited
        self._edited_chains[names[0]] = edited
        mine = written_paths(self.state.former.get(stage.name))
        # What a stage with `edits` did not change is a source, or of another stage.
        writes = stage.required_outputs if stage.edits else writes_of(stage)
        own = (path for path in edited if path in mine or match_any(writes, path))
        return tuple(path for path in own if not stage.takes_edits_of(path))

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """Return the unsettled upstream stages whose outputs this one may read."""
        stage = self.state.stage(name)
        plan, unsettled, makers = self.state.plan, self.state.unsettled, self.state.declared.makers
        if not unsettled:
            return ()
        reads = [*reads_with_exclusions(stage), *((pattern, ()) for pattern in stage.outputs if stage.chain)]
        found = {up for pattern, exclude in reads for up in makers(pattern, exclude) & unsettled}
        upstream = plan.upstream[name]
        # A chain may have thousands of items: they are listed only where one of them was found.
        earlier = plan.earlier_items(name) if found.difference(upstream) else ()
        return tuple(filter(found.__contains__, dict.fromkeys((*upstream, *earlier))))

    def _known(self, resolved: ResolvedStage, *, need_intermediate: bool) -> DecisionFacts:
        name, state = resolved.stage.name, self.state
        waiting = self.waiting_on(name)
        locked = state.lock.records.get(name)
        # They take time to read: a stage with a record that waits for no other one needs none.
        relatives = () if locked and not waiting else state.store.records.by_identity(resolved.identity)
        # Without a record in the lock file, one of the store with the same identity shows what changed.
        previous = locked or next((r for r in relatives if not r.failed), None)
        current = self.todays(resolved)
        candidates = tuple(self._candidate(resolved, r, need_intermediate=need_intermediate) for r in current)
        core = self._same_core(resolved, locked) if not current else None
        stage = resolved.stage
        wanted = {path for candidate in candidates for path in candidate.target}
        paths = wanted | set(previous.outputs if previous else ())
        edited = () if self.overwrite_edited else self._edits_to_keep(stage, wanted, current)
        disk = {path: state.on_disk(path) for path in (*paths, *edited)}
        # Only a dry run has unsettled stages: a build waits for them and needs no other records.
        others = (*relatives, *state.locked.of_identity(resolved.identity)) if waiting else ()
        uncertain = (pattern for one in waiting for pattern in writes_of(state.plan.nodes[one]) if others)
        owning, deleting = state.locked.owning, state.locked.deleting
        return DecisionFacts(
            stage=name,
            manifest=resolved.manifest,
            current=candidates,
            same_core=core,
            previous=previous,
            disk=disk,
            foreign=frozenset(p for p, e in disk.items() if e is not None and self._is_foreign(stage, p, e)),
            edited=edited,
            existed=frozenset(
                p for p in edited if not (owning(p) or any(deleting(p)) or state.store.records.owners(p))
            ),
            is_committed=stage.chain is not None and self._are_decided(edited),
            is_compared=stage.chain is None,
            failed_before=self.failed_before.get(name) == resolved.key,
            forced=self._is_forced(stage),
            resample=resample_of(self.resample, name),
            cacheable=stage.cache,
            empty_caches=resolved.facts.empty_caches,
            uncertain=tuple(dict.fromkeys(uncertain)),
            pending_upstream=waiting,
            possible=others,
        )

    def _is_foreign(self, stage: Stage, path: str, entry: FileEntry) -> bool:
        """Return whether a file may be where the result of a stage has none."""
        # A file that the stage deletes, and that is as before: `clean` or a checkout gave it back.
        is_base = bool(stage.edits) and entry == self.state.start_version(stage.name, path)
        return not is_base and not self.state.ownership.is_known(path, entry)

    def _edits_to_keep(self, stage: Stage, wanted: Collection[str], current: Collection[Record]) -> tuple[str, ...]:
        """Return the user's edits that results of today's key would overwrite."""
        state, edited = self.state, self._edits_of(stage)
        former, more = state.former.get(stage.name), wanted
        if former is not None:  # where its last result deleted a file, a new one might do so again
            is_new = stage.discovers and (not current or self._is_forced(stage))
            more = former.deleted if is_new else ()
        elif stage.edits:  # the last editor of a chain also restores what those before it changed
            more = {path for record in current for path in written_paths(record)}
        others = (path for path in sorted(more) if path not in edited and not stage.takes_edits_of(path))
        edited = (*edited, *(path for path in others if self._is_edited(path, stage.name)))
        if not current:
            return edited
        # A later item of the chain keeps the edit; a program does so if it has started from this result before.
        follows = state.is_followed if stage.edits else lambda name, path, _: state.has_later_version(name, path)
        kept = {path for path in edited for one in current if follows(stage.name, path, one.outputs.get(path))}
        there = {path: state.store.workspace.entry(path) for path in edited if path not in kept}
        # A file that a result of today's key started from is not edited: its promotion group may withhold the result.
        starts = {(path, base.start) for record in current for path, base in record.bases.items()}
        results = starts.union(*(record.outputs.items() for record in current))
        return tuple(path for path, entry in there.items() if (path, entry) not in results)

    def todays(self, resolved: ResolvedStage) -> tuple[Record, ...]:
        """Return the records of today's key: the lock file's first, then the newest."""
        stage, records = resolved.stage, self.state.store.records
        keys = tuple(filter(None, (resolved.key, resolved.earlier_key)))
        # A renamed stage may use records of its former name if it may write all of their files (ADR 21).
        # One that is done has no files in this state: it is of no use under another name.
        done = self.state.done.keys() - {stage.name}
        locked = (r for key in keys for r in self.state.locked.of_key(key) if r.stage not in done)
        bounded = [r for r in locked if r.stage == stage.name or may_write_outputs_of(stage, r)]
        found = sorted(bounded, key=lambda r: r.stage != stage.name)
        stored = (r for key in keys for r in records.by_key(key) if not r.failed)
        found += [r for r in stored if may_write_outputs_of(stage, r) or is_proven(r, records)]
        # A record of the lock file counts only after a verification, which a shared result makes unnecessary.
        if self.state.shared is not None and not self.has_result(resolved):
            found += self._shared(self.state.shared, resolved, [r for r in bounded if not r.failed])
        unique: list[Record] = []
        executable = {(path, entry) for record in found for path, entry in record.outputs.items() if entry.executable}
        for record in (self._with_modes(record, executable) for record in found):
            if not any(same_result(record, one) for one in unique):
                unique.append(record if record.stage == stage.name else replace(record, stage=stage.name))
        return tuple(unique)

    def _with_modes(self, record: Record, executable: Collection[tuple[str, FileEntry]]) -> Record:
        """Return a result with scripts that are executable on disk or in another result; earlier versions made none."""
        entries = record.outputs.items() if record.manifest.get("kind") in SCRIPT_MAKERS else ()
        plain = ((path, replace(entry, executable=True)) for path, entry in entries if not entry.executable)
        found = ((p, e) for p, e in plain if (p, e) in executable or self.state.on_disk(p) == e)
        scripts = {p: e for p, e in found if self.state.has_bytes(p, e) and is_script(self.state.read(p, e))}
        return replace(record, outputs={**record.outputs, **scripts}) if scripts else record

    def _shared(
        self, results: "SharedResults", resolved: ResolvedStage, locked: Sequence[Record]
    ) -> tuple[Record, ...]:
        """Return the result of today's key in the shared cache, as the record that a run would have made here.

        If there are `locked` results, which the lock file names, it is one of them.
        """
        name = resolved.stage.name
        if not self.may_share(resolved) or (found := results.find(resolved, locked)) is None:
            return ()
        originals = self.state.originals(resolved, written_paths(found))
        return (replace(found, stage=name, originals=originals, bases=self.state.bases(name)),)

    def has_result(self, resolved: ResolvedStage) -> bool:
        """Return whether the local store has a result of today's key, with all of its bytes."""
        return any(self._has_outputs(r) for r in self.state.store.records.by_key(resolved.key) if not r.failed)

    def may_share(self, resolved: ResolvedStage) -> bool:
        """Return whether a result from elsewhere would be used."""
        stage = resolved.stage
        return stage.cache and not self._is_forced(stage) and not resolved.broken and not self.waiting_on(stage.name)

    def _is_forced(self, stage: Stage) -> bool:
        named = stage.name in self.forced or stage.family in self.forced
        return named or resample_of(self.resample, stage.name) is not None

    def _same_core(self, resolved: ResolvedStage, locked: Record | None) -> Candidate | None:
        if not resolved.stage.cache:
            return None
        # Only the verification changed: the result can be verified again instead of made again.
        found = [r for r in self.state.store.records.by_core(resolved.core) if not r.failed]
        if locked is not None and core_of(locked.manifest, locked.key) == resolved.core:
            found.insert(0, locked)
        candidates = (self._candidate(resolved, record, need_intermediate=True) for record in found)
        # The exit code of a command is its only proof: a claim of its result is not only verified again (ADR 60).
        usable = (one for one in candidates if is_llm(resolved.stage.step) or not one.is_claim)
        return next((candidate for candidate in usable if candidate.is_available), None)

    def _candidate(self, resolved: ResolvedStage, record: Record, *, need_intermediate: bool) -> Candidate:
        state, name = self.state, resolved.stage.name
        target = state.target(name, record)
        # A file that is on disk already need not be restored.
        needed = {p for p, e in target.items() if e is not None and state.on_disk(p) != e}
        needed.update(record.outputs if need_intermediate else ())
        available = all(
            state.has_bytes(path, entry)
            for path in needed
            if (entry := target.get(path) or record.outputs.get(path)) is not None
        )
        # A record that only the lock file has is verified first (ADR 21), so all of its outputs are needed.
        claim = state.is_claim(record, resolved.stage)
        lacking = claim and not self._has_outputs(record)
        rebuilt = (lacking or not available) and rebuild_outputs(state, resolved, record)
        return Candidate(
            record=record,
            target=target,
            is_available=available or rebuilt,
            is_claim=claim,
            is_shared=state.is_shared(record),
        )

    def _own_paths(self, names: Iterable[str]) -> frozenset[str]:
        records = [self.state.former[name] for name in names if name in self.state.former]
        literal = (self.state.stage(name).literal_outputs for name in names)
        return frozenset[str]().union(*literal, *(record.outputs for record in records))

    def _is_edited(self, path: str, name: str) -> bool:
        entry, link = self.state.store.workspace.entry(path), self.state.link(name)
        if entry is None:
            return False
        owning = self.state.locked.owning(path) if link is not None else ()
        # In a chain, the original and the base, such as a released file, are what a run starts from, and not edits.
        if any(entry in (r.originals.get(path), path in r.bases and r.bases[path].start) for r in owning):
            return False
        if self.state.ownership.is_known(path, entry):
            # A file of another, ended stage is not an edit. If that was an item, later items of its chain keep it.
            return self.state.was_given_up(path, entry, chained=link is not None and link.chain != name)
        return link is None or entry != self.state.original(path)

    def _are_decided(self, paths: tuple[str, ...]) -> bool:
        """Return whether the user committed all of these edits, or had them accepted or released."""
        ownership = self.state.ownership
        entries = ((path, self.state.store.workspace.entry(path)) for path in paths)
        decided = (e is not None and (ownership.is_accepted(p, e) or ownership.equals_head(p, e)) for p, e in entries)
        return bool(paths) and all(decided)


class _NotedSources(Struct, frozen=True):
    """The author's files. Reading one is noted in the state."""

    state: ProjectState
    sources: "AuthorTexts"

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        self.state.note(path)
        return self.sources.text(path)


class _LossyTree(StageTree, frozen=True):
    """A stage's tree in which lost bytes read as empty and are remembered: an error of that stage alone."""

    lost: set[str] = field(default_factory=set)

    def read(self, path: str, entry: FileEntry) -> bytes:
        try:
            return self.state.read(path, entry)
        except MissingBytesError:
            self.lost.add(path)
            return b""


def _unrendered(manifest: Manifest) -> Manifest:
    return {aspect: value for aspect, value in manifest.items() if aspect not in ("prompt", "system")}
