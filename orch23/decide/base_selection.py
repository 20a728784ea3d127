"""Choose the files that a stage starts from, and rebuild recorded outputs on them; keep the work of users.

Git may have merged the branches of several users, whichever lock file the merge left (ADR 19).
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.decide.ownership import is_proven, may_write_outputs_of
from orch23.decide.project_state import ObsoleteFiles, ProjectState
from orch23.decide.stage_view import StageTree
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.paths import match_any
from orch23.model.pipeline import Stage, family_of
from orch23.model.record import Record, same_result, starts_from, written_paths
from orch23.plan.nodes import grouped, reads_of
from orch23.resolve.resolution import ResolvedStage, is_discovered
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.model.llm import Exchange
    from orch23.resolve.prompt_inputs import AuthorTexts


class BaseSelection(Struct, frozen=True):
    """Chooses the base of a stage (ADR 19). Reads the state; never writes.

    A base maps each path whose start version has moved to its bytes. Other paths start from the original, or from the
    version of the item before.
    """

    state: ProjectState

    def in_force(self, name: str) -> Mapping[str, FileEntry]:
        """Return the moved bases of a stage: of its record, or of the kept failure that is on disk."""
        state = self.state
        if not self._has_base(name):
            return {}
        record = self._kept_failure(name) or state.former.get(name)
        bases = self._of_record(name, record) if record is not None else {}
        return self._on_disk(state.stage(name), bases) if state.stage(name).is_editor else bases

    def _on_disk(self, stage: Stage, bases: Mapping[str, FileEntry]) -> Mapping[str, FileEntry]:
        """Return the bases of a program with `edits`: where the disk has a file of the user, that one, or none.

        That is one which no run made, or made of other files of the user, such as an older result that a checkout
        brought back. What a model wrote later is its result.
        """
        state, former = self.state, self.state.former.get(stage.name)
        last: Mapping[str, FileEntry] = former.outputs if former is not None else {}
        link = stage.chain
        members = state.plan.chains[link.chain] if link else ()
        models = {name: written_paths(state.former.get(name)) for name in members if state.stage(name).discovers}
        later = [models.get(name, ()) for name in (members[link.index + 1 :] if link else ())]
        of_models, of_later = frozenset[str]().union(*models.values()), frozenset[str]().union(*later)
        starts: dict[str, FileEntry | None] = dict(bases)
        known = filter(stage.takes_edits_of, (*last, *bases, *state.known_originals))
        for path in sorted(self._editable(stage).union(known)):
            entry, incoming = state.store.workspace.entry(path), state.incoming_version(stage.name, path)
            start, is_left = bases.get(path, incoming), self._is_left_to(stage, path)
            if entry is None:
                # A model before it that no longer writes the file gives it back, as it does alone.
                is_deleted = not any(state.locked.deleting(path)) and path not in of_models
                if is_left or (is_deleted and start is not None and incoming == state.original(path)):
                    starts[path] = state.known_originals[path] = None
            elif is_left:
                starts[path] = entry
            # A file that is older than the version of a model before it was edited without what the model changed.
            elif incoming != state.original(path) and not (former and starts_from(former, path, incoming)):
                continue
            elif path not in of_later and entry not in (start, *self._older_versions(stage, path)):
                is_last = entry == last.get(path)
                if former and is_last and starts_from(former, path, start):
                    continue
                is_own = state.ownership.is_known(path, entry) and not state.ownership.is_accepted(path, entry)
                # Its last result is a base if it has bytes of the user that the result of a model before it lacks now.
                if self._has_users_bytes(path, entry, start) if is_own else not is_last:
                    starts[path] = entry
        return self._moved(stage.name, starts)

    def _is_left_to(self, stage: Stage, path: str) -> bool:
        """Return whether only stages that have ended, of other commands, wrote or deleted a file, and it stays."""
        state, known = self.state, (None, getattr(stage.step, "declared", None))
        made = (*state.locked.owning(path), *state.locked.deleting(path))
        is_theirs = any(state.plan.is_declared(one.stage) or one.manifest.get("command") in known for one in made)
        return bool(made) and not is_theirs and not ObsoleteFiles(state).is_obsolete(path)

    def _editable(self, stage: Stage) -> set[str]:
        files = self.state.store.workspace.writable_files
        return {path for pattern in stage.edits for path in files(pattern, ignored=False)}

    def _of_record(self, name: str, record: Record) -> dict[str, FileEntry]:
        """Return the moved bases of a record that still apply: the version that each one replaced is the same."""
        bases = record.bases.items()
        return {path: base.start for path, base in bases if self.state.incoming_version(name, path) == base.instead_of}

    def _has_base(self, name: str) -> bool:
        return self.state.stage(name).chain is not None or bool(self.state.plan.upstream_of_chains.get(name))

    def _kept_failure(self, name: str) -> Record | None:
        """Return the record of the stage's kept failure, if its files are those on disk."""
        state, stage = self.state, self.state.stage(name)
        if stage.on_failure != "keep":
            return None
        on_disk = state.store.workspace.entry
        for record in state.store.records.labelled(name):
            if record.is_kept_failure and record.outputs and all(on_disk(p) == e for p, e in record.outputs.items()):
                return record
        return None

    def alternatives(
        self, name: str, identity: str, in_force: Mapping[str, FileEntry]
    ) -> Iterator[Mapping[str, FileEntry]]:
        """Yield the other bases that the stage's records, under any name, started from, the original among them."""
        if not self._has_base(name) or self.state.stage(name).is_editor:
            return
        records = (*self.state.locked.of_identity(identity), *self.state.store.records.by_identity(identity))
        seen = [in_force]
        # A result of a stage with `edits` does not say what a file was that it did not change.
        kept = in_force if self.state.stage(name).edits else {}
        for record in (None, *records):
            others = {path: entry for path, entry in kept.items() if path not in written_paths(record)}
            start = {**others, **(self._of_record(name, record) if record else {})}
            if start not in seen:
                seen.append(start)
                yield start

    def for_next_run(
        self, name: str, in_force: Mapping[str, FileEntry], *, repeats: bool = False
    ) -> Mapping[str, FileEntry]:
        """Return the bases of a stage that has to run: the user's bytes where there are some, else those in force.

        With `repeats`, its result is up to date and it is forced to run: it does not start from that result.
        """
        state, stage = self.state, self.state.stage(name)
        if stage.is_editor:  # it starts from what is on disk, where the bytes of its base are lost
            starts = ((path, state.start_version(name, path)) for path in self._editable(stage))
            lost = [path for path, start in starts if start is not None and not state.has_bytes(path, start)]
            return self._moved(name, {**in_force, **{path: state.store.workspace.entry(path) for path in lost}})
        if not self._has_base(name) or not self._follows_the_disk(stage):
            return in_force
        # Neither the stage nor another item of its chain has a result in the lock file.
        items = state.plan.chains.get(state.chain_of(name) or "", (name,))
        is_new = self._kept_failure(name) is None and state.former.keys().isdisjoint(items)
        for path in [*state.known_originals] if is_new and stage.edits else ():
            made = (*state.locked.owning(path), *state.locked.deleting(path))
            # A file that only ended stages wrote is a source: it is also gone if they, or the user, deleted it.
            ended = match_any(stage.edits, path) and not any(state.plan.is_declared(one.stage) for one in made)
            if ended and state.store.workspace.entry(path) is None:
                state.known_originals[path] = None
        # Files on disk that the stage may start from, or see before a later stage edits them.
        patterns = (*reads_of(stage), *stage.outputs) if stage.chain else reads_of(stage)
        # `edits` match no file that git ignores: it would be shown to the model that reads the same pattern.
        all_files = stage.required_outputs if stage.edits else patterns
        files = state.store.workspace.writable_files
        paths = frozenset[str]().union(*(files(one, ignored=one in all_files) for one in patterns))
        moved = {
            path: self._next_base(stage, path, is_new=is_new, repeats=repeats) or in_force.get(path)
            for path in sorted(paths)
        }
        return self._moved(name, {**in_force, **moved})

    def of_files(self, name: str) -> Mapping[str, FileEntry]:
        """Return the bases of a stage that starts from the files as they are, also where a later stage wrote them."""
        state, view = self.state, StageTree(self.state, name)
        paths = filter(view.sees_chain, state.known_originals) if self._follows_the_disk(state.stage(name)) else ()
        return self._moved(name, {path: state.store.workspace.entry(path) for path in [*paths]})

    def accepted_in(self, record: Record, name: str, in_force: Mapping[str, FileEntry]) -> Mapping[str, FileEntry]:
        """Return the bases of a stage that starts from the accepted edits of a record, and elsewhere as so far."""
        edits = {path: record.outputs[path] for path in record.accepted} if self._has_base(name) else {}
        return self._moved(name, {**in_force, **edits})

    def _moved(self, name: str, starts: Mapping[str, FileEntry | None]) -> dict[str, FileEntry]:
        incoming = self.state.incoming_version
        return {path: entry for path, entry in starts.items() if entry is not None and entry != incoming(name, path)}

    def _next_base(self, stage: Stage, path: str, *, is_new: bool, repeats: bool) -> FileEntry | None:
        """Return the file on disk if the next run starts from it; None if the base so far stays."""
        state = self.state
        if not StageTree(state, stage.name).sees_chain(path) or ObsoleteFiles(state).is_obsolete(path):
            return None
        there, start = state.store.workspace.entry(path), state.start_version(stage.name, path)
        # Never to the original or the result of an earlier item: these are older than its input (ADR 19, rule 5).
        if there is None or there == start or there in self._older_versions(stage, path):
            return None
        if repeats and self.state.ownership.is_known(path, there):
            starts = self.state.ownership.is_accepted(path, there)
        else:
            starts = self._starts_from(stage, path, there, start, is_new=is_new)
        return there if starts or self._has_users_bytes(path, there, start) else None

    def _older_versions(self, stage: Stage, path: str) -> list[FileEntry | None]:
        """Return the versions of earlier items of a chain, what they started from, and the original; None: no file."""
        state, writers = self.state, list[str]()
        versions: list[FileEntry | None] = []
        for name in state.plan.earlier_items(stage.name):
            record = state.results.get(name)
            if record is not None and (path in record.outputs or path in record.deleted):
                versions.append(record.outputs.get(path))
                writers.append(name)
            elif path in state.moved_bases.get(name, ()):
                writers.append(name)
        if not versions:
            return []
        return [state.original(path), *(state.start_version(name, path) for name in writers), *versions]

    def _has_users_bytes(self, path: str, there: FileEntry, start: FileEntry | None) -> bool:
        """Return whether runs made the file on disk from bytes of the user that the stage would not start from."""
        makers = self._makers(path)
        if str(there) not in makers:
            return False
        known = set(_lineage(path, start, makers))
        return any(_is_of_user(path, text, makers) and text not in known for text in _lineage(path, there, makers))

    def _makers(self, path: str) -> Mapping[str, list[Record]]:
        """Return the records with an output at a path, by version; the store adds versions that the lock lacks."""
        found = grouped((str(record.outputs[path]), record) for record in self.state.locked.owning(path))
        locked = set(found)
        for record in self.state.store.records.owners(path):
            text = str(record.outputs[path])
            if text not in locked or path in record.accepted:
                found.setdefault(text, []).append(record)
        return found

    def _starts_from(self, stage: Stage, path: str, there: FileEntry, start: FileEntry | None, *, is_new: bool) -> bool:
        """Return whether the next run starts from the file on disk, and not from its base so far."""
        ownership = self.state.ownership
        if ownership.is_accepted(path, there):
            return True
        # A file that only the stage has written does not become its own base (ADR 19, rule 4).
        own = ownership.is_known(path, there)
        in_chain = stage.chain is not None and self.state.declared.in_chain(stage.chain.chain, path)
        if is_new and in_chain and not (own and self.state.has_declared_owner(path)):
            return True
        is_own_alone = own and start is None and not self.state.was_given_up(path, there, chained=True)
        return not is_own_alone and ownership.equals_head(path, there)

    def _follows_the_disk(self, stage: Stage) -> bool:
        """Return whether no earlier item has a new result in this build, which would not be on disk yet."""
        state = self.state
        for name in state.plan.earlier_items(stage.name):
            today, former = state.results.get(name), state.former.get(name)
            if today is None or name in state.unsettled:
                return False
            if name in state.ran and (former is None or not same_result(former, today)):
                return False
        return True


def _lineage(path: str, entry: FileEntry | None, makers: Mapping[str, list[Record]]) -> Iterator[str]:
    """Yield a version of a path, the versions that its runs started from, and so on back to the first."""
    left, seen = [str(entry)] if entry is not None else [], set[str]()
    while left:
        text = left.pop()
        if text in seen:
            continue
        seen.add(text)
        yield text
        for record in makers.get(text, ()):
            base = record.manifest.get(f"base:{path}")
            starts = [base] if isinstance(base, str) else []
            starts += [str(record.bases[path].start)] if path in record.bases else []
            # After `reset`, a record has no manifest: without a moved base, it started from the original.
            original = record.originals.get(path)
            left += starts or ([str(original)] if original is not None else [])


def _is_of_user(path: str, text: str, makers: Mapping[str, list[Record]]) -> bool:
    """Return whether a version of a path is the user's: accepted, or found there by a run and made by none.

    A version that is known only as the start of a later item, after an earlier one, does not count: an item made it
    whose record is lost.
    """
    if records := makers.get(text, ()):
        return any(path in record.accepted for record in records)
    every = itertools.chain.from_iterable(makers.values())
    return any(one == path and start is not None and str(start) == text for r in every for one, start in r.starts)


def rebuild_outputs(state: ProjectState, resolved: ResolvedStage, record: Record) -> bool:
    """Rebuild a record's outputs from its exchanges, into `state.rebuilt`. Return whether they came out the same."""
    step = resolved.stage.step
    transcripts = step.transcripts if is_llm(step) else None
    try:
        tree = {path: state.read(path, entry) for path, entry in resolved.base.items()}
    except MissingBytesError:
        return False
    # Without exchanges nothing can be replayed: a command has to run again.
    if not record.exchanges:
        return False
    for fingerprint in record.exchanges:
        exchange = state.store.exchanges.get(fingerprint, transcripts)
        if exchange is None or not _apply_exchange(resolved, exchange, tree):
            return False
    made = {path: digest_bytes(data) for path, data in tree.items()}
    if any(made.get(path) != entry.digest for path, entry in record.outputs.items()):
        return False
    for path, entry in record.outputs.items():
        state.rebuilt[entry.digest.sha256] = tree[path]
    return True


def _apply_exchange(resolved: ResolvedStage, exchange: "Exchange", tree: dict[str, bytes]) -> bool:
    from orch23.model.llm import Proposal  # noqa: PLC0415 - only for responses of models
    from orch23.proposal.proposal import judge_response  # noqa: PLC0415 - as above
    from orch23.proposal.proposal_files import ProposalScope  # noqa: PLC0415 - as above
    from orch23.resolve.prompt_inputs import EXPLORES  # noqa: PLC0415 - as above

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
    if exchange.request.get("returns") == EXPLORES:
        return True
    shown = {path: data.decode("utf-8", errors="surrogateescape") for path, data in tree.items()}
    judged = judge_response(
        exchange.response,
        exchange.stop,
        ProposalScope(cwd=stage.cwd, write_scope=stage.fence, base=shown, edits=stage.edits),
        step=stage.step,
        outputs=stage.outputs,
    )
    if not isinstance(judged, Proposal):
        return False
    for write in judged.writes:
        tree[write.path] = write.content.encode("utf-8")
    for path in judged.deletes:
        tree.pop(path, None)
    return True


def texts_of_user(state: ProjectState, resolved: ResolvedStage, paths: Collection[str]) -> dict[str, str]:
    """Return the files on disk of these paths that a run starts from and a user accepted, or wrote and committed."""
    found: dict[str, str] = {}
    ownership, on_disk = state.ownership, state.store.workspace.entry
    for path in sorted(paths):
        entry = resolved.base.get(path)
        if entry is None or on_disk(path) != entry:
            continue
        if ownership.is_accepted(path, entry) or (
            not ownership.is_known(path, entry) and ownership.equals_head(path, entry)
        ):
            found[path] = state.read(path, entry).decode("utf-8", "replace")
    return found


def unshown_files(
    state: ProjectState, sources: "AuthorTexts", resolved: ResolvedStage, texts: Mapping[str, str]
) -> tuple[str, ...]:
    """Return which of these files of a user a model would replace though its prompt does not show them.

    A response in edits has to quote what it replaces. A file that matches a pattern of `edits` can be changed only if
    the prompt shows it.
    """
    step = resolved.stage.step
    texts = {path: text for path, text in texts.items() if not is_discovered(resolved.stage, f"base:{path}")}
    if not texts or not is_llm(step) or step.returns == "edits" or resolved.broken:
        return ()
    from orch23.resolve.prompt_files import shown_text, shows  # noqa: PLC0415 - only for files of a user

    former = state.former.get(resolved.stage.name)
    last = former.outputs if former is not None else {}
    own = tuple(one for one in resolved.given if one.path in texts and last.get(one.path) == resolved.base[one.path])
    text = shown_text(
        resolved.stage, step, resolved.given, own, sources, state.plan.pipeline.vars, resolved.facts.accepts
    )
    return tuple(path for path, wanted in texts.items() if not shows(text, wanted))


def recall(state: ProjectState, stage: Stage, own: Collection[str]) -> bool:
    """Add what committed lock files record of a stage that has a file with bytes of a user, before it runs.

    Return whether that is more than is known. `own` are the paths of its outputs and last result.
    """
    name, ownership, on_disk = stage.name, state.ownership, state.store.workspace.entry
    # Released files are sources, whatever earlier lock files say.
    if name in state.lock.retained or name in state.lock.released or stage.is_editor:
        return False
    # A model starts from each file in its folders: also from one that another branch made and the last result lacks.
    patterns = stage.outputs if stage.chain is not None or name not in state.former else ()
    paths = {*own}.union(*map(state.store.workspace.writable_files, patterns))
    there = ((path, entry) for path in paths if (entry := on_disk(path)) is not None)
    if all(ownership.is_known(path, e) and not ownership.is_accepted(path, e) for path, e in there):
        return False
    more: list[Record] = []
    # In another branch, the last item may have been another one.
    members = state.plan.chains[stage.chain.chain] if stage.chain else (name,)
    mine = {one for one in members if family_of(one) == family_of(name)}
    for record in ownership.past_records(mine - state.done.keys()):
        # A stage with a newer record owns its files again.
        is_over = record.is_released and (name in state.former or any(not one.is_released for one in more))
        known = (*state.locked.records, *state.locked.released, *more)
        is_over |= record.is_released and record.stage != name
        if not is_over and record not in known and may_write_outputs_of(stage, record):
            more.append(record)
    state.locked.add(more)
    vars(ownership).pop("_blob_ids", None)  # they name more bytes of git
    fixed = state.lock.originals()
    for record in reversed(more):
        found = ((path, one) for path, one in record.originals.items() if path not in fixed)
        # A later result of `edits` may not start from a file that a user has deleted since.
        state.known_originals.update((path, one) for path, one in found if not stage.edits or on_disk(path))
    return bool(more)


def accepted_elsewhere(state: ProjectState, record: Record) -> tuple[str, ...]:
    """Return accepted files that a result would replace, if the own store lacks the result or the accepted edit.

    Then two users made them, and only the one who merged knows which is wanted.
    """
    records = state.store.records
    if state.link(record.stage) is None or state.is_shared(record):
        return ()
    target = state.target(record.stage, record)
    there = ((path, entry) for path in target if (entry := state.on_disk(path)) is not None and entry != target[path])
    others = [(path, entry) for path, entry in there if state.ownership.is_accepted(path, entry)]
    if others and is_proven(record, records):
        others = [(p, e) for p, e in others if not any(p in one.accepted for one in records.having(p, e))]
    return tuple(path for path, _ in others)
