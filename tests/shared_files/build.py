"""What a build does, by the rules of ADR 19."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

from tests.shared_files.edits import Editing
from tests.shared_files.values import (
    GREEN,
    Bases,
    Forecast,
    Lock,
    Made,
    Stage,
    UnsureError,
    answered,
    computed,
    meets,
    passes,
    same,
)


class RefusedError(Exception):
    """A stage would write a path that another pipeline owns."""


class Building(Editing):
    """One build, foreseen."""

    # ---- a build ----

    def build(self) -> Forecast:
        """Foresee the build; a path of another pipeline that would be written refuses all of it."""
        before, responses, records = dict(self.disk), set(self.store.responses), list(self.store.records)
        try:
            return self._build()
        except RefusedError:
            self.store.responses, self.store.records = responses, records
            return Forecast(65, before, self.lock)

    def _build(self) -> Forecast:
        """Go through all stages, those that read by a pattern last."""
        families = {stage.family.rstrip("2") for stage in (*self.declared, *self.skipped)}
        if {"work", "polish"} <= families:
            message = "a chain of stages with edits"
            raise UnsureError(message)
        if self._is_refused():
            return Forecast(65, self.disk, self.lock)
        readers = [s for s in self.declared if s.family.startswith(("page", "lit"))]
        self._chain([stage for stage in self.declared if stage.chain])
        for stage in (s for s in self.declared if s not in readers and not s.chain):
            if stage.edits and stage.kind != "llm":
                self.edit_by_program(stage)
            else:
                self._take(stage, self.inputs_of(stage, dict(self.in_force(stage))))
        self._end_groups()
        for stage in readers:
            self._read(stage)
        for stage in self.skipped:
            self.ends[stage.family] = "skipped"
        green = all(end in GREEN for end in self.ends.values())
        results = {**self.lock.results, **self.results}
        retained = {name: made for name, made in self.lock.retained.items() if name not in self.results}
        released, removed, left = self._ending()
        if green:
            for path in removed:
                del self.disk[path]
            names = {stage.name for stage in self.declared}
            results = {name: made for name, made in results.items() if name in names}
            retained = {name: made for name, made in retained.items() if name in names}
        return Forecast(
            self._code(),
            self.disk,
            Lock(results, retained),
            self.ends,
            len(self.calls),
            self.bases,
            *((released, removed, left) if green else ()),
        )

    def _code(self) -> int:
        ends = set(self.ends.values())
        return 6 if "edited" in ends else 1 if "failed" in ends else 0

    def _is_refused(self) -> bool:
        if len({stage.name for stage in self.declared}) < len(self.declared):
            return True  # git merged two items with one key
        literal = [(path, stage.family) for stage in self.declared for path in stage.outputs]
        if len(dict(literal)) < len(set(literal)):
            return True  # two stages of one pipeline write one path
        for stage in self.declared:
            for path in stage.inputs:
                if any(sign in path for sign in "*?") or any(one.covers(path) for one in self.declared):
                    continue
                if path not in self.disk:
                    return True
                if any(one.covers(path) for one in self.skipped):
                    message = "a literal input of a stage that is switched off"
                    raise UnsureError(message)
        return False

    def _take(self, stage: Stage, inputs: Mapping[str, str]) -> None:  # noqa: C901, PLR0912  one decision, in its order
        """Decide on one stage and do what is to be done."""
        core = self.core_of[stage.name] = self.core(stage, inputs)
        made = self._matching(stage, core)
        edited = [] if self.overwrite else self.edited(stage)
        self._check_lost_owner(stage)
        if stage.family == self.forced:
            if stage.kind != "llm":
                self.recall(stage)
                edited = [] if self.overwrite else self.edited(stage)
            self._force(stage, core, inputs, edited)
            return
        if edited or not self._matches_in_force(stage, core):
            self.recall(stage)
            made = self._matching(stage, core)
            edited = [] if self.overwrite else self.edited(stage)
        if made is not None:
            edited = [p for p in edited if self.disk[p] not in (made.outputs.get(p), dict(made.start).get(p))]
            edited = [p for p in edited if p in made.outputs or (p, self.disk[p]) not in self.store.released]
        in_place = stage.kind == "llm"
        there = [p for p, text in (made.outputs if made else {}).items() if self.disk.get(p) not in (None, text)]
        if in_place and self.lock.of(stage.name) is None and any(self.is_accepted(path) for path in there):
            message = "a new stage with an old result, on accepted bytes"
            raise UnsureError(message)
        if made is not None and not edited and stage.rerun and made.accepted:
            self._run(stage, core, inputs)
        elif made is not None and not edited:
            self._recall(stage, made)
        elif made is not None:
            if self._refused(stage, {*stage.literal_outputs, *made.outputs}):
                return
            rest = {path: text for path, text in made.outputs.items() if path not in edited}
            at_rest = all(self.disk.get(path) == text for path, text in rest.items())
            if in_place and not at_rest and all(self.is_decided(p) for p in made.outputs if p in self.disk):
                message = "a result whose files users decided on one by one"
                raise UnsureError(message)
            if in_place and at_rest and all(self.is_decided(path) for path in edited):
                if stage.rerun:
                    self._run(stage, core, inputs)
                else:
                    self._decide_committed(stage, core, edited)
            else:
                self.ends[stage.name] = "edited"
        elif not edited and (known := self._before_reset(stage, core)) is not None:
            self._adopt(stage, known)
        elif in_place and any(self._moved(stage).get(path) != self.disk[path] for path in edited):
            self.ends[stage.name] = "edited"
            self.stale.add(stage.name)
        else:
            self._run(stage, core, inputs)

    def _check_lost_owner(self, stage: Stage) -> None:
        """Give up on a stage that the lock file lacks and the store has, with bytes of a user at its path."""
        if self.lock.of(stage.name) is not None or self.overwrite:
            return
        users = [p for p in self.disk if stage.covers(p) and (self.is_accepted(p) or not self.makers(p, self.disk[p]))]
        known = [made for made in self.store.records if made.identity == (stage.kind, stage.outputs)]
        if any(path in made.outputs for made in known for path in users):
            message = "a user's bytes at a path of a result that only the store knows"
            raise UnsureError(message)

    def _force(self, stage: Stage, core: tuple[Any, ...], inputs: Mapping[str, str], edited: Sequence[str]) -> None:
        """Run a stage whatever is recorded; it starts from a user's bytes, as any other run does."""
        matching = self._matches_in_force(stage, core)
        if matching:
            self.repeats.add(stage.name)
            edited = [p for p in edited if all(self.disk[p] != made.outputs.get(p) for made in matching)]
        in_place = stage.kind == "llm"
        if edited and (not in_place or any(self._moved(stage).get(path) != self.disk[path] for path in edited)):
            if self.resamples:
                message = "a new response that is still due: the next build is forced, too"
                raise UnsureError(message)
            self.ends[stage.name] = "edited"
            self.stale.add(stage.name)
        else:
            self._run(stage, core, inputs)

    def _matches_in_force(self, stage: Stage, core: tuple[Any, ...]) -> list[Made]:
        """Return the results of today's key on the base in force."""
        if stage.edits:
            return self.made_from(stage, dict(self.in_force(stage)))
        records = [*self.lock.results.values(), *self.store.records]
        return [m for m in records if m.core == core and same(m.start, self.in_force(stage)) and not m.failed]

    def _before_reset(self, stage: Stage, core: tuple[Any, ...]) -> Made | None:
        """Return the accepted result that a reset dropped, if the stage is as it was then."""
        known = self.lock.retained.get(stage.name)
        if known is None or stage.name in self.lock.results or not known.accepted:
            return None
        as_then = known.core == core and same(known.start, self.in_force(stage))
        if stage.edits:
            as_then = self.is_made_from(stage, known, dict(self.in_force(stage)))
        return known if as_then and all(self._obtainable(text) for text in known.outputs.values()) else None

    def _adopt(self, stage: Stage, known: Made) -> None:
        if stage.kind != "llm" or passes(known.outputs):
            self._settle(stage, replace(known, failed=False), "verified")
        else:
            self.ends[stage.name] = "failed"

    # ---- a chain ----

    def _chain(self, items: Sequence[Stage]) -> None:  # noqa: C901, PLR0912, PLR0915  one walk, in its order
        """Go through the items of a sequential foreach, which all edit one file."""
        if not items:
            return
        path = items[0].outputs[0]
        if items[0].rerun:
            message = "a chain with on_edit"
            raise UnsureError(message)
        if items[0].family == self.forced:
            message = "a forced chain"
            raise UnsureError(message)
        if any(released == path for released, _ in self.store.released):
            message = "a chain on released bytes"
            raise UnsureError(message)
        edited = not self.overwrite and self._is_edited(path)
        decided = edited and self.is_decided(path)
        started = False
        self.incoming = self.original(path)
        self.versions = [self.incoming]
        stuck = ""
        for stage in items:
            core = self.core_of[stage.name] = self.core(stage, {})
            made = self._matching(stage, core)
            others = path in self.disk and (not self.makers(path, self.disk[path]) or self.is_accepted(path))
            if others and self.past() and (made is None or edited or self.accepted_elsewhere(made)):
                message = "a chain whose file a user wrote, with committed lock files"
                raise UnsureError(message)
            last = stage is items[-1]
            if stuck:
                self.ends[stage.name] = stuck
                continue
            if made is not None and edited and last and made.outputs[path] != self.disk[path]:
                if not decided:
                    self.ends[stage.name] = "edited"
                else:
                    self._decide_committed(stage, core, [path])
                continue
            if made is None and not edited and (known := self._before_reset(stage, core)) is not None:
                made = replace(known, failed=False)
                self.store.add(made, self.pipeline)
                self.ends[stage.name] = "verified"
            elif made is None:
                started = started or self._moved(stage).get(path) == self.disk.get(path)
                if edited and not started:
                    stuck = self.ends[stage.name] = "edited"
                    continue
                made = self._ask(stage, core, {})
                if made.failed:
                    stuck = "blocked"
                    self._fail(stage, made, keep=stage.keep and last)
                    continue
                self.store.add(made, self.pipeline)
                self.ends[stage.name] = "built"
            else:
                at_rest = not last or self.disk.get(path) == made.outputs[path]
                if not self._obtainable(made.outputs[path]):
                    message = "bytes are lost"
                    raise UnsureError(message)
                self.ends[stage.name] = "fresh" if at_rest else "restored"
                started = started or dict(made.start).get(path) == self.disk.get(path)
            locked = [one for one in self.lock.results.values() if one.key == made.key]  # maybe under another name
            former = self.lock.of(stage.name)
            locked += [former] if former is not None else []
            ran = self.ends[stage.name] == "built"
            self.follows &= not ran or any(one.outputs == made.outputs for one in locked)
            self.incoming = made.outputs[path]
            self.versions += [dict(made.start).get(path), self.incoming]
            self.results[stage.name] = replace(made, stage=stage.name)
            if last:
                self.disk[path] = self.incoming
        self.follows, self.incoming, self.versions = True, None, []

    # ---- what is done ----

    def _recall(self, stage: Stage, made: Made) -> None:
        if stage.kind == "llm" and not self.overwrite and self.accepted_elsewhere(made):
            self.ends[stage.name] = "edited"
            self.stale.add(stage.name)
            return
        wanted = {p: text for p, text in made.outputs.items() if self.disk.get(p) != text}
        gone = self._left_over(stage, made)
        gone |= {path: None for path in made.deleted if self.comes_back(stage, path)}
        if wanted or gone:
            if self._refused(stage, made.outputs):
                return
            if any(not self._obtainable(text) for text in wanted.values()):
                message = "bytes are lost"
                raise UnsureError(message)
            if stage.edits and any(p in self.disk and not self.makers(p, self.disk[p]) for p in wanted):
                message = "an earlier result, and a user's file that the last one left"
                raise UnsureError(message)
        self._settle(stage, replace(made, stage=stage.name), "restored" if wanted or gone else "fresh")

    def _obtainable(self, text: str) -> bool:
        return text in self.store.contents or text in self.disk.values() or text in self.in_git

    def _refused(self, stage: Stage, paths: Iterable[str]) -> bool:
        """Return whether a path to be written is another pipeline's, which still declares it; then the stage fails."""
        for path in paths:
            owning = [made for made in self.lock.all() if path in made.outputs]
            if owning and (path not in self.disk or any(m.outputs[path] == self.disk[path] for m in owning)):
                continue
            if self.others(path):
                if path in stage.literal_outputs:
                    raise RefusedError(path)
                self.ends[stage.name] = "failed"
                return True
        return False

    def _decide_committed(self, stage: Stage, core: tuple[Any, ...], edited: Sequence[str]) -> None:
        """Verify an edit that is committed, and record it as accepted."""
        made = self.accepted(stage, core, edited)
        if made is None:
            self.ends[stage.name] = "failed"
            return
        self._settle(stage, made, "verified")

    def accepted(self, stage: Stage, core: tuple[Any, ...], edited: Sequence[str]) -> Made | None:
        """Return what an accepted edit is recorded as, or None if the verification fails."""
        former = self.lock.of(stage.name) or self._matching(stage, core)
        outputs = {**(former.outputs if former else {}), **{path: self.disk[path] for path in edited}}
        still = {p for p in (former.accepted if former else ()) if self.disk.get(p) == outputs[p]}
        if stage.kind == "llm" and not passes(outputs):
            return None
        deleted = (former.deleted if former is not None else frozenset()) - {*edited}
        return Made(
            stage.name,
            core,
            self.in_force(stage) if not stage.edits else self.start_of(stage, outputs),
            outputs,
            {path: self.original(path) for path in {*outputs, *deleted}} if stage.kind == "llm" else {},
            frozenset(edited) | still,
            deleted=deleted,
            instead=self._instead(stage, self.in_force(stage)),
        )

    def _instead(self, stage: Stage, base: Iterable[tuple[str, str | None]]) -> Bases:
        return tuple((path, self.comes(stage, path)) for path, _ in base)

    def _run(self, stage: Stage, core: tuple[Any, ...], inputs: Mapping[str, str]) -> None:
        if stage.kind != "llm":
            self._compute(stage, core, inputs)
            return
        if self._refused(stage, stage.literal_outputs):
            return
        made = self._ask(stage, core, inputs)
        if self._refused(stage, made.outputs):
            return
        if made.failed:
            self._fail(stage, made, keep=stage.keep)
        else:
            self._settle(stage, made, "built")

    def _ask(self, stage: Stage, core: tuple[Any, ...], inputs: Mapping[str, str]) -> Made:
        """Call the model, unless its response is recorded."""
        base = self._moved(stage)
        if stage.edits:
            return self.edit_by_model(stage, base)
        shown = {path: text for path, text in base.items() if text is not None}
        if any(not self._obtainable(text) for text in shown.values()):
            message = "bytes of a base are lost"
            raise UnsureError(message)
        question = (stage.item, tuple(sorted(inputs.items())), tuple(sorted(shown.items())))
        if question not in self.store.responses or (self.resamples and stage.family == self.forced):
            self.calls.add(question)
            self.store.responses.add(question)
        self.bases[stage.name] = shown
        outputs = answered(stage, inputs, shown)
        originals = {path: self.original(path) for path in outputs}
        start = tuple(sorted(base.items()))
        instead = self._instead(stage, start)
        return Made(
            stage.name, core, start, outputs, originals, failed=not passes({**shown, **outputs}), instead=instead
        )

    def _fail(self, stage: Stage, made: Made, *, keep: bool) -> None:
        self.ends[stage.name] = "failed"
        if keep:
            self.store.add(made, self.pipeline)
            self.disk.update(made.outputs)

    def _compute(self, stage: Stage, core: tuple[Any, ...], inputs: Mapping[str, str]) -> None:
        """Run a program or render: without a base, no bytes of a user are replaced but by the same bytes."""
        former = self.lock.of(stage.name)
        if self._refused(stage, stage.literal_outputs):
            return
        outputs = {path: computed(stage, inputs) for path in stage.literal_outputs}
        for path in stage.literal_outputs:
            if path not in self.disk or self.overwrite or self.disk[path] == outputs[path]:
                continue
            if former is not None and not former.accepted and former.outputs.get(path) == self.disk[path]:
                continue  # the last run made it, whatever was accepted before
            if not self.is_own(path) or self.is_accepted(path):
                self.ends[stage.name] = "edited"
                return
        originals: dict[str, str | None] = {}
        if former is None:
            originals = {path: self.original(path) for path in stage.literal_outputs}
        if self._refused(stage, outputs):
            return
        self._settle(stage, Made(stage.name, core, (), outputs, originals), "built")

    def _left_over(self, stage: Stage, made: Made) -> dict[str, str | None]:
        """Return the files of the former result that a newer one lacks: path -> what takes their place."""
        former = self.lock.of(stage.name)
        merged = [one for one in self.lock.others if one.stage == stage.name]
        gone: dict[str, str | None] = {}
        for one in [*([former] if former is not None else []), *merged]:
            # A file of its last result that was there before is as before, also if the user deleted it.
            for path in (one.written if stage.edits else set()) - made.written - self.disk.keys():
                if self.begun[stage.name].get(path) is not None:
                    gone[path] = self.begun[stage.name][path]
            for path in one.outputs.keys() - made.written & self.disk.keys():
                if self.overwrite and one is former and not self.is_own(path):
                    message = "an edited file of an earlier result, overwritten"
                    raise UnsureError(message)
                if one is not former and dict(made.start).get(path) is not None:
                    message = "a file that another branch made of an edit, which the kept result lacks"
                    raise UnsureError(message)
                if (self.overwrite and one is former) or (self.is_own(path) and not self.is_accepted(path)):
                    starts = self.begun[stage.name] if stage.edits else {**dict(one.start), **dict(made.start)}
                    gone.setdefault(path, starts.get(path))
        return gone

    def _settle(self, stage: Stage, made: Made, end: str) -> None:
        # What only the lock file had is in the store from now on.
        if end in ("built", "verified") or made not in self.store.records:
            self.store.add(made, self.pipeline)
        if stage.together:
            self.held.append((stage, made, end))
            self.ends[stage.name] = end
            return
        self._promote(stage, made, end)

    def _promote(self, stage: Stage, made: Made, end: str) -> None:
        for path, text in self._left_over(stage, made).items():
            if text is None:
                del self.disk[path]
            else:
                self.disk[path] = text
        for path in made.deleted:
            if self.comes_back(stage, path) or end == "built":
                self.disk.pop(path, None)
        self.disk.update(made.outputs)
        self.results[stage.name] = made
        self.ends[stage.name] = end

    def _end_groups(self) -> None:
        for stage, made, end in self.held:
            group = [one for one in self.declared if one.family == stage.family]
            failed = any(self.ends[one.name] == "failed" for one in group)
            waits = any(self.ends[one.name] == "edited" and one.name in self.stale for one in group)
            known = self.lock.results.get(stage.name)
            stands = end == "fresh" and known is not None and known.key == made.key
            if (failed or waits) and not stands:
                self.ends[stage.name] = "held"
            else:
                self._promote(stage, made, end)

    # ---- readers ----

    def _read(self, stage: Stage) -> None:
        """Take a stage that reads files of others: by a pattern, or by the name."""
        above = [s for s in self.declared if s is not stage and s.family != "zero" and meets(stage, s)]
        stuck = [s for s in above if self.ends[s.name] not in GREEN]
        if stuck:
            self.ends[stage.name] = "blocked"
            return
        gone = {path for path in self._ended() if self._becomes(path) == "removed"}
        read = {
            path: text
            for pattern in stage.inputs
            for path, text in sorted(self.disk.items())
            if path not in gone and not stage.covers(path) and fnmatch(path, pattern)
        }
        self._take(stage, read)
