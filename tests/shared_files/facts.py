"""Whose the bytes at a path are, and what a run starts from, by the rules of ADR 19."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.shared_files.values import Bases, Files, Lock, Made, Stage, Store, UnsureError, same, stages_of


class Facts:
    """What is known in one command on one pipeline. `head` holds the files of git's HEAD, none without git."""

    def __init__(
        self,
        pipeline: str,
        *,
        disk: Mapping[str, str],
        head: Mapping[str, str],
        locks: Mapping[str, Lock],
        store: Store,
        in_git: Iterable[str] = (),
        overwrite: bool = False,
        forced: str = "",
        resamples: bool = False,
        past: Callable[[], Sequence[Lock]] = tuple,
    ) -> None:
        self.pipeline, self.head, self.locks, self.store = pipeline, head, locks, store
        self.disk: Files = dict(disk)
        self.lock = locks.get(pipeline, Lock())
        self.declared, self.skipped = stages_of(disk[f"{pipeline}.yaml"])
        self.in_git = set(in_git)
        self.overwrite, self.forced, self.resamples = overwrite, forced, resamples
        self.repeats: set[str] = set()
        self.past = past
        self.results: dict[str, Made] = {}
        self.ends: dict[str, str] = {}
        self.calls: set[tuple[Any, ...]] = set()
        self.bases: dict[str, dict[str, str]] = {}
        self.held: list[tuple[Stage, Made, str]] = []
        self.incoming: str | None = None
        self.gone: set[str] = set()
        self.forgotten: set[str] = set()
        self.stale: set[str] = set()
        self.core_of: dict[str, tuple[Any, ...]] = {}
        self.versions: list[str | None] = []
        self.follows = True
        self.begun: dict[str, Mapping[str, str | None]] = {}

    # ---- stages with `edits`: see `edits.py` ----

    def matching_edits(self, stage: Stage) -> Made | None:
        """Return the record of a stage with `edits` that wins."""
        raise NotImplementedError

    def made_from(self, stage: Stage, base: Mapping[str, str | None]) -> list[Made]:
        """Return today's results of a stage with `edits` on a base."""
        raise NotImplementedError

    def is_made_from(self, stage: Stage, made: Made, base: Mapping[str, str | None]) -> bool:
        """Return whether a result of a stage with `edits` is today's on a base."""
        raise NotImplementedError

    # ---- small questions ----

    def makers(self, path: str, text: str) -> list[Made]:
        """Return the results that have these bytes at a path."""
        every = [*self.lock.all(), *self.store.records, *self.store.retained]
        return [made for made in every if made.outputs.get(path) == text]

    def is_own(self, path: str) -> bool:
        """Return whether a run wrote the bytes on disk."""
        return any(path not in made.accepted for made in self.makers(path, self.disk[path]))

    def is_accepted(self, path: str) -> bool:
        """Return whether a user wrote the bytes on disk, and they were verified and recorded."""
        makers = self.makers(path, self.disk[path])
        return any(path in made.accepted for made in makers)

    def is_head(self, path: str) -> bool:
        """Return whether the bytes on disk are those of HEAD."""
        return path in self.head and self.head[path] == self.disk.get(path)

    def original(self, path: str) -> str | None:
        """Return what was at a path before any stage of this pipeline wrote it, or what a user wrote after programs.

        A file that only stages made which have ended is a source for those with `edits`.
        """
        if path in self.forgotten:
            return None
        there = self.disk.get(path)
        writers = [made for made in self.lock.all() if path in made.written]
        removed = writers and there is not None and self._becomes(path) == "removed"
        # A result that left the file as it was says what it has instead.
        makers = self.makers(path, there) if there is not None and not self._instead_of_file(path) else []
        if self._is_source(path, writers or makers) and not removed:
            return there
        return self._recorded_original(path)

    def _is_source(self, path: str, makers: Sequence[Made]) -> bool:
        """Return whether all results with a file are of stages that have ended, and no new stage may have them."""
        declared = {stage.name for stage in self.declared}
        heirs = [stage for stage in self.declared if self.lock.of(stage.name) is None]
        found = any(stage.edits and stage.covers(path) for stage in self.declared)
        found &= not any(path in stage.literal_outputs and not stage.edits for stage in self.declared)
        every = [one for one in (*self.store.records, *self.store.retained) if path in one.outputs]
        by_programs = all(one.edits and one.core[0] != "llm" for one in every)
        if found and by_programs and path in self.disk and self._given_up(path, in_place=False):
            return True
        return (
            found
            and bool(makers)
            and not any(
                made.stage in declared
                or any(one.kind == made.core[0] and all(map(one.covers, made.written)) for one in heirs)
                for made in makers
            )
        )

    def _recorded_original(self, path: str) -> str | None:
        writers = [made for made in self.lock.all() if path in made.written]
        names = {one.name for one in self.declared if one.edits and one.kind != "llm"}
        ended = {made.stage for made in writers if made.edits and made.core[0] != "llm"}
        names |= ended - {one.name for one in self.declared}
        there = self.disk.get(path)
        if writers and all(made.stage in names and made in self.lock.results.values() for made in writers):
            # Its result, also if the user took over the same bytes before, by `orch23 release`.
            is_result = any(there is None if path in m.deleted else m.outputs[path] == there for m in writers)
            if not is_result and (there is None or not self.makers(path, there) or self.is_accepted(path)):
                return there
        for made in self.lock.all():
            # A result of `edits` that was recalled does not start from a file that was deleted since.
            if path in made.originals and not (made.edits and there is None and made in self.lock.others):
                return made.originals[path]
        text = self.disk.get(path)
        if text is not None:
            if instead := self._instead_of_file(path):
                return instead[0]
            makers = [made for made in self.makers(path, text) if path in made.originals]
            if makers:
                return makers[0].originals[path]
            if self.makers(path, text):
                return None
        return text

    def _instead_of_file(self, path: str) -> list[str | None]:
        """Return what results of the lock file would have started from, had they not started from the file on disk."""
        text = self.disk[path]
        known = (*self.lock.results.values(), *self.lock.retained.values()) if self.makers(path, text) else ()
        pairs = ((dict(made.start).get(path), dict(made.instead).get(path, text)) for made in known)
        return [instead for start, instead in pairs if start == text != instead]

    def was_a_base(self, path: str) -> bool:
        """Return whether a run started from the bytes on disk."""
        every = [*self.lock.all(), *self.store.records, *self.store.retained]
        return any((path, self.disk[path]) in made.start for made in every)

    def edited(self, stage: Stage) -> list[str]:
        """Return the outputs whose bytes a user wrote and no one has decided on yet."""
        former = self.lock.of(stage.name)
        if stage.edits:  # what its result does not have is a source, and a program starts from what is there
            made = former or (self.matching_edits(stage) if stage.kind == "llm" else None)
            if made is None or stage.kind != "llm":
                return []
            runs = self.matching_edits(stage) is None or stage.family == self.forced
            again = {path for path in made.deleted if former is not None and runs and self._is_edited(path)}
            if again and self.resamples:
                message = "a new response that is still due: the next build is forced, too"
                raise UnsureError(message)
            return sorted({path for path in made.outputs if self._is_edited(path)} | again)
        paths = {*stage.literal_outputs, *(former.outputs if former else ())}
        paths |= {path for path, text in self.store.released if stage.covers(path) and self.disk.get(path) == text}
        paths |= {path for made in self.lock.all() for path in made.outputs if stage.covers(path)}
        return [path for path in sorted(paths) if self._is_edited(path, in_place=stage.kind == "llm")]

    def _is_edited(self, path: str, *, in_place: bool = True) -> bool:
        if path not in self.disk:
            return False
        if self.makers(path, self.disk[path]):
            return self._given_up(path, in_place=in_place)
        if not in_place:
            return True
        return self.disk[path] != self.original(path) and not self.was_a_base(path)

    def _given_up(self, path: str, *, in_place: bool) -> bool:
        """Return whether bytes of a run are the user's: released, or committed after their stage ended."""
        names = {stage.name for stage in self.declared}
        locked = {**self.lock.retained, **self.lock.results}
        having = [name for name, made in locked.items() if made.outputs.get(path) == self.disk[path]]
        if any(name in names for name in having):
            return False
        if (path, self.disk[path]) in self.store.released:
            return True
        return in_place and bool(having) and self.is_head(path)

    def is_decided(self, path: str) -> bool:
        """Return whether the user has decided on an edit: committed, accepted or released it."""
        return self.is_head(path) or self.is_accepted(path)

    def core(self, stage: Stage, inputs: Mapping[str, str]) -> tuple[Any, ...]:
        """Return all of a stage's key but the base."""
        return (stage.kind, stage.outputs, stage.command, tuple(sorted(inputs.items())), stage.item)

    # ---- the base ----

    def in_force(self, stage: Stage) -> Bases:
        """Return the base in force: of the newest kept failure or the result of the lock, else the originals."""
        if stage.kind != "llm":
            return ()
        former = self.lock.of(stage.name)
        return self._base_of(stage, self._failure_on_disk(stage) or former)

    def _failure_on_disk(self, stage: Stage) -> Made | None:
        """Return the kept failure of a stage, if its files are those on disk; a reset may have retained it."""
        every = [*self.store.retained, *self.store.records]
        kept = [made for made in every if stage.keep and made.failed and made.stage == stage.name]
        return kept[-1] if kept and kept[-1].is_on(self.disk) else None

    def _base_of(self, stage: Stage, made: Made | None) -> Bases:
        """Return the base of a result, as far as what it replaced is still what is there."""
        if stage.kind != "llm":
            return ()
        start = dict(made.start) if made is not None else {}
        instead = dict(made.instead) if made is not None else {}
        base: dict[str, str | None] = {}
        there = {path for path in self.disk if stage.covers(path) and self.original(path) is not None}
        if stage.edits:
            there |= {path for known in self.lock.all() for path in known.originals if stage.covers(path)}
        for path in {*stage.literal_outputs, *there, *start}:
            comes = self.comes(stage, path)
            base[path] = start[path] if path in start and instead.get(path) == comes else comes
        return tuple(sorted(base.items()))

    def comes(self, stage: Stage, path: str) -> str | None:
        """Return what a stage starts from where no base has moved: of a chain the result of the item before."""
        return self.incoming if stage.chain else self.original(path)

    def _matching(self, stage: Stage, core: tuple[Any, ...]) -> Made | None:
        """Return the record that wins: of the base in force, else of the base of an earlier record, newest first."""
        if stage.edits:
            return self.matching_edits(stage)
        bases = [self.in_force(stage)]
        locked = sorted(self.lock.results.items(), key=lambda one: one[0] != stage.name)
        every = [*(made for _, made in locked), *self.lock.others, *reversed(self.store.records)]
        bases += [self._base_of(stage, made) for made in every if made.identity == (stage.kind, stage.outputs)]
        for base in dict.fromkeys(bases):
            found = [m for m in every if m.core == core and same(m.start, base) and not m.failed]
            at_rest = [m for m in found if m.is_on(self.disk)]
            if found:
                return (at_rest or found)[0]
        return None

    def recall(self, stage: Stage) -> None:
        """Learn what committed lock files know of a stage with a file that no one is known to have made."""
        if stage.name in self.lock.retained or (stage.edits and stage.kind != "llm"):
            return
        former = self.lock.results.get(stage.name)
        mine = {*stage.literal_outputs, *(former.outputs if former else ())}
        mine |= set(filter(stage.covers, self.disk)) if stage.kind == "llm" or not former else set()
        if any(p in self.disk and (not self.makers(p, self.disk[p]) or self.is_accepted(p)) for p in mine):
            for made in [lock.results[stage.name] for lock in self.past() if stage.name in lock.results]:
                if made not in self.lock.all():
                    self.lock = replace(self.lock, others=(*self.lock.others, made))

    def accepted_elsewhere(self, made: Made) -> list[str]:
        """Return accepted files that a result would replace, if the store lacks the result or the accepted edit."""
        known = [*self.store.records, *self.store.retained]
        others = [p for p, text in made.outputs.items() if self.disk.get(p) not in (None, text) and self.is_accepted(p)]
        if not any(replace(one, stage=made.stage) == made for one in known):
            return others
        return [p for p in others if not any(p in m.accepted and m.outputs[p] == self.disk[p] for m in known)]

    def _moved(self, stage: Stage) -> dict[str, str | None]:
        """Return the base of a run, by rules 3 and 4."""
        force = self.in_force(stage)
        base = dict(force)
        known = self.lock.retained.get(stage.name)
        again = known is not None and stage.name not in self.lock.results and known.core == self.core_of[stage.name]
        if again and known is not None and known.accepted:
            again = False  # a user's bytes are in it
        as_then = known is not None and same(known.start, force)
        if stage.edits:
            again = as_then = known is not None and not known.accepted and self.is_made_from(stage, known, base)
            again = again and stage.name not in self.lock.results
        if again and as_then and (self.overwrite or not self.edited(stage)):
            return base  # after a reset: the same request again
        if not self.follows:
            return base
        new = self._is_new(stage)
        base |= dict.fromkeys(self._forget(stage, base) if new and stage.edits else ())
        for path in {**dict.fromkeys(p for p in self.disk if stage.covers(p)), **base}:
            if path not in self.disk or path in self.gone:
                continue
            start = base.get(path, self.comes(stage, path))
            if stage.name in self.repeats and self.makers(path, self.disk[path]):
                # A forced run starts from a user's bytes alone: its own result is not the base of the same request.
                starts = self.is_accepted(path) or self._has_users_bytes(path, start)
            else:
                starts = self._starts_from(stage, path, start, new=new)
            if starts:
                base[path] = self.disk[path]
        return base

    def _forget(self, stage: Stage, base: Iterable[str]) -> set[str]:
        """Return the files that only ended stages wrote and that are gone: a stage does not start from them."""
        names = {one.name for one in self.declared}
        kept = {path for made in self.lock.all() if made.stage in names for path in made.written}
        self.forgotten |= {path for path in base if stage.covers(path) and path not in {*kept, *self.disk}}
        return self.forgotten.intersection(base)

    def _is_new(self, stage: Stage) -> bool:
        """Return whether the lock file has no result of the stage; an item of a chain that had one is no new chain."""
        names = {one.name for one in self.declared if one.family == stage.family} if stage.chain else {stage.name}
        return all(self.lock.of(name) is None for name in names) and not self._failure_on_disk(stage)

    def _starts_from(self, stage: Stage, path: str, start: str | None, *, new: bool) -> bool:
        """Return whether a run starts from the bytes on disk instead of from its base so far."""
        if len(self.versions) > 1 and self.disk[path] in self.versions:
            return False  # older than the results of earlier items
        if self._has_users_bytes(path, start):
            return True
        if self.is_accepted(path):
            return True
        own = bool(self.makers(path, self.disk[path]))
        if own and (path in self._ended() and self._becomes(path) == "removed"):
            return False
        if new and not (own and self._has_owner_today(path)):
            return True
        return not (own and start is None) and self.is_head(path)

    def _has_users_bytes(self, path: str, start: str | None) -> bool:
        """Return whether runs made what is on disk from a user's bytes that the stage would not start from."""
        if not self.makers(path, self.disk[path]):
            return False
        known = self._lineage(path, start)
        return any(self._is_of_user(path, text) for text in self._lineage(path, self.disk[path]) - known)

    def _lineage(self, path: str, text: str | None) -> set[str]:
        """Return a version of a path, and all that runs made it from."""
        found: set[str] = set()
        left = {text} if text is not None else set()
        while left:
            found |= left
            before = {dict(made.start).get(path) for one in left for made in self._likeliest(path, one)}
            left = {one for one in before if one is not None} - found
        return found

    def _likeliest(self, path: str, text: str) -> list[Made]:
        every = self.makers(path, text)
        locked = [made for made in self.lock.all() if made.outputs.get(path) == text]
        return [*locked, *(made for made in every if path in made.accepted)] if locked else every

    def _is_of_user(self, path: str, text: str) -> bool:
        makers = self._likeliest(path, text)
        return not makers or any(path in made.accepted for made in makers)

    def _has_owner_today(self, path: str) -> bool:
        names = {stage.name for stage in self.declared}
        known = {**self.lock.retained, **self.lock.results}.items()
        merged = any(path in made.outputs for made in self.lock.others if made.stage in names)
        return merged or any(path in made.outputs for name, made in known if name in names)

    # ---- the end of ownership ----

    def others(self, path: str) -> bool:
        """Return whether another pipeline owns a path by its lock file and still declares it as an output."""
        for name, lock in self.locks.items():
            if name == self.pipeline or f"{name}.yaml" not in self.disk:
                continue
            declared, skipped = stages_of(self.disk[f"{name}.yaml"])
            for stage, made in {**lock.retained, **lock.results}.items():
                if path in made.outputs and any(one.name == stage and one.covers(path) for one in declared):
                    return True
                if path in made.outputs and any(one.name == stage for one in skipped):
                    message = "another pipeline has switched the stage off"
                    raise UnsureError(message)
        return False

    def _ended(self) -> dict[str, list[Made]]:
        """Return the files of stages that are not declared any more, and that no other stage of today makes."""
        names = {stage.name for stage in self.declared}
        found: dict[str, list[Made]] = {}
        for name, made in {**self.lock.retained, **self.lock.results}.items():
            if name in names:
                continue
            for path in made.outputs:
                if not any(path in one.outputs for one in self.results.values()):
                    found.setdefault(path, []).append(made)
        return found

    def _becomes(self, path: str) -> str:
        """Return what becomes of a file whose stage ended."""
        if path not in self.disk:
            return "gone"
        makers = self.makers(path, self.disk[path])
        if self._recorded_original(path) is not None or any(path in made.accepted for made in self._everything()):
            return "released"
        if path in self.head or any(dict(made.start).get(path) is not None for made in self._everything()):
            return "released"
        literal = any(path in stage.inputs for stage in self.declared)
        if literal and not any(stage.covers(path) for stage in self.skipped):
            return "released"
        if self.others(path):
            return "left"
        return "removed" if makers else "left"

    def _everything(self) -> list[Made]:
        return [*self.lock.all(), *self.store.records, *self.store.retained]

    def _ending(self) -> tuple[set[str], set[str], set[str]]:
        becomes = {path: self._becomes(path) for path in self._ended()}
        return (
            {path for path, word in becomes.items() if word == "released"},
            {path for path, word in becomes.items() if word == "removed"},
            {path for path, word in becomes.items() if word == "left"},
        )
