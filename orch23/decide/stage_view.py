"""Show the files of a project as one stage sees them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.project_state import ObsoleteFiles, ProjectState
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import SafetyError
from orch23.model.paths import PatternSet, is_glob, match, match_any, normalize_pattern
from orch23.model.pipeline import ForeachStage, Stage, family_of
from orch23.plan.nodes import WriterIndex, writes_of


class StageTree(Struct, frozen=True):
    """The files of a project as one stage sees them: the `Tree` port of `resolve`."""

    state: ProjectState
    name: str

    def entry(self, path: str) -> FileEntry | None:
        """Return the file that the stage reads at a path, or None, and note that the decision depends on it."""
        self.state.note(path)
        return self.input_of(path)

    def input_of(self, path: str) -> FileEntry | None:
        """Return the file that the stage reads at a path. Links of the user are followed inside the project.

        Raises:
            SafetyError: a link leads out of the project or in a circle, or to a file of a stage that may run later.
        """
        try:
            # orch23 opens each file from the root downwards and follows no link of the path by itself (docs/safety.md).
            entry = self.version(path)
        except SafetyError:  # a directory of the path is a link
            entry = None
        real = self.state.store.workspace.resolved_path(path) if entry is None else None
        if real is None or real == path:
            return entry
        self._refuse_later_output(path, real)
        entry = self.version(real)
        return None if entry is None else replace(entry, link=real)

    def inputs_of(
        self, paths: Sequence[str], reads: Iterable[tuple[str, tuple[str, ...]]]
    ) -> Mapping[str, FileEntry | None]:
        """Return what `input_of` returns for each of many paths, which these patterns match, with their exclusions."""
        state = self.state
        makers = frozenset[str]().union(*(state.declared.makers(pattern, exclude) for pattern, exclude in reads))
        written = PatternSet(one for name in makers for one in writes_of(state.plan.nodes[name]))
        # Of all other paths, each stage sees the file on disk.
        made = {*filter(state.owners.get, paths), *state.locked.owned(paths), *written.matches_of(paths)}
        known = state.store.workspace.unchanged([path for path in paths if path not in made])
        return known if len(known) == len(paths) else {p: known.get(p) or self.input_of(p) for p in paths}

    def _refuse_later_output(self, path: str, real: str) -> None:
        """Refuse a link to an output that the stage does not wait for: the plan cannot see this dependency."""
        plan = self.state.plan
        if not self.state.declared.outputs.contains(real):
            return
        before = {self.name, *plan.upstream[self.name], *plan.earlier_items(self.name)}
        if makers := [one for one in WriterIndex(plan.all_nodes).writers_of(real) if one not in before]:
            message = f"input {path!r} of stage `{self.name}` is a link to {real!r}, which stage `{makers[0]}` makes"
            raise SafetyError(Diagnostic("E691", message, hint=f"name {real!r} in `inputs` instead of the link"))

    def version(self, path: str) -> FileEntry | None:
        """Return the version of a path that the stage sees, or None. Links are not followed."""
        state, stage = self.state, self.state.plan.nodes[self.name]
        owners, link = state.owners.get(path, []), state.link(self.name)
        if link is None:
            # Outside of a chain a stage does not see its own outputs: its key must not depend on its last result.
            if isinstance(stage, Stage) and self._is_own(stage, path):
                return None
        elif state.declared.in_chain(link.chain, path) or any(state.chain_of(o) == link.chain for o in owners):
            return state.start_version(self.name, path)
        if visible := self._visible_owners(path):
            return state.version_by(max(visible, key=state.position), path)
        if any(state.declared.in_chain(chain, path) for chain in self._later_chains()):
            return state.start_version(self.name, path)
        obsolete = ObsoleteFiles(state)
        return obsolete.replacement_of(path) if obsolete.is_obsolete(path) else state.store.workspace.entry(path)

    def maker(self, path: str) -> str | None:
        """Return the stage whose file this one sees at a path, or None if no stage made it."""
        owners = [owner for owner in self._visible_owners(path) if owner != self.name]
        return max(owners, key=self.state.position) if owners else None

    def _visible_owners(self, path: str) -> list[str]:
        above = self._later_chains()
        owners = [(owner, self.state.chain_of(owner) or owner) for owner in self.state.owners.get(path, ())]
        return [one for one, chain in owners if chain not in above or self.state.position(one) < above[chain]]

    def _later_chains(self) -> Mapping[str, int]:
        """Return the chains that edit files in place after this stage has read them, with how many members it sees."""
        return self.state.plan.upstream_of_chains.get(self.name, {})

    def _is_own(self, stage: Stage, path: str) -> bool:
        record = self.state.former.get(self.name)
        return match_any(stage.outputs, path) or (record is not None and path in record.outputs)

    def sees_chain(self, path: str) -> bool:
        """Return whether the stage starts from a path, or sees it as it was before a later stage edits it in place."""
        chain = self.state.chain_of(self.name)
        chains = (*((chain,) if chain else ()), *self._later_chains())
        return any(self.state.declared.in_chain(one, path) for one in chains)

    def has_started_from(self, path: str, entry: FileEntry) -> bool:
        """Return whether the stage, or an earlier item of its chain, starts from these bytes, or made them."""
        state, link = self.state, self.state.link(self.name)
        before = [self.name] if link is None else [*state.plan.earlier_items(self.name), self.name]
        made = (state.results[one].outputs.get(path) for one in before if one in state.results)
        if entry in (*(state.moved_bases.get(one, {}).get(path) for one in before), *made):
            return True
        # Version 0 as it was when the stage was resolved: the file may have changed since.
        return link is not None and state.known_originals.get(path) == entry

    def made_by_chain(self, path: str) -> bool:
        """Return whether the bytes at a path in the stage's write scope are a version of its chain, not the user's."""
        entry = self.state.store.workspace.entry(path)
        return (
            entry is not None and self.state.link(self.name) is not None and self.state.ownership.is_known(path, entry)
        )

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> dict[str, FileEntry]:
        """Return the files that a glob matches for the stage, by path, also those that are not on disk yet."""
        listing = self.state.store.workspace.listing(pattern, self.state.declared.outputs, exclude)
        candidates = self._candidates(pattern, listing)
        wanted = [path for path in candidates if not match_any(exclude, path)] if exclude else candidates
        self.state.note(*wanted)
        found = self.inputs_of(wanted, [(pattern, exclude)])
        return {path: entry for path, entry in found.items() if entry is not None}

    def versions(self) -> dict[str, FileEntry]:
        """Return the base of the stage in its chain: path -> the version that its outputs start from."""
        stage = self.state.plan.nodes[self.name]
        patterns = stage.outputs if isinstance(stage, Stage) else ()
        edits = stage.edits if isinstance(stage, Stage) else ()
        files = self.state.store.workspace.writable_files
        there = ((one, files(one, ignored=one not in edits)) for one in patterns)
        found = {path: self.version(path) for one, paths in there for path in self._candidates(one, paths)}
        return {path: entry for path, entry in found.items() if entry is not None}

    def links(self, pattern: str) -> tuple[str, ...]:
        """Return the links on disk, also broken ones, that a pattern matches."""
        return self.state.store.workspace.links(pattern)

    def _candidates(self, pattern: str, on_disk: Sequence[str]) -> Sequence[str]:
        """Return the sorted paths that a pattern may match for the stage; those on disk are sorted."""
        state = self.state
        bases: Mapping[str, FileEntry] = state.moved_bases.get(self.name, {})
        if not is_glob(pattern):
            path = normalize_pattern(pattern)
            is_known = path in bases or path in state.owners or state.known_originals.get(path) is not None
            return [path] if is_known or path in on_disk else []
        originals = (path for path, entry in state.known_originals.items() if entry is not None)
        others = [path for paths in (bases, state.owners, originals) for path in paths if match(pattern, path)]
        return sorted({*on_disk, *others}) if others else on_disk

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths of a listing: without files that the pipeline made, with originals that it edits."""
        state = self.state
        listing = state.store.workspace.listing(pattern, state.declared.outputs, exclude)
        before = {path for path, entry in state.known_originals.items() if entry is not None and match(pattern, path)}
        before.update(
            path
            for path in listing
            if not self._is_made(path) or (self._has_original(path) and state.original(path) is not None)
        )
        return tuple(sorted(before))

    def _is_made(self, path: str) -> bool:
        """Return whether the file at a path is this pipeline's own.

        The lock file decides. Where it does not have the path, the store does: the lock file can be lost. A file that
        the lock file gives to an ended stage is the user's, unless this build removes it.
        """
        state, written = self.state, self.state.declared.written
        if state.owners.get(path) or path in written.made or state.has_declared_owner(path):
            return True
        entry = state.store.workspace.entry(path)
        if any(record.outputs[path] == entry for record in state.locked.owning(path)):
            return written.contains(path) or ObsoleteFiles(state).is_obsolete(path)
        return entry is not None and bool(state.store.records.having(path, entry)) and written.contains(path)

    def _has_original(self, path: str) -> bool:
        """Return whether a chain may write a path: only then it has a version 0."""
        plan = self.state.plan
        unexpanded = (node.name for node in plan.unexpanded if node.foreach.sequential)
        return any(self.state.declared.in_chain(chain, path) for chain in (*plan.chains, *unexpanded))

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry, as `ProjectState.read` does."""
        return self.state.read(path, entry)


def files_at_stake(state: ProjectState, node: ForeachStage, items: tuple[Stage, ...] = ()) -> tuple[str, ...]:
    """Return the files of the last items of a chain that are not, or in another form, among its new items."""
    values = {one.name: one.item and one.item.value for one in items}
    last = [record for name, record in state.former.items() if family_of(name) == node.name and node.foreach.sequential]
    gone = [one for one in last if one.stage not in values or values[one.stage] != one.manifest.get("item")]
    return tuple(sorted({path for record in gone for path in record.outputs}))
