"""The rules of ADR 19 as a small program: who owns a file, what a run starts from, what becomes of it at the end.

Written from the text of the rules; no code of the engine is used. The model keeps a state of its own: what a store
knows belongs to a folder, what a lock file knows to the bytes of that lock file, since git brings old ones back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.shared_files.build import Building
from tests.shared_files.values import Forecast, Lock, Made, Stage, UnsureError


class Rules(Building):
    """One command on one pipeline, foreseen."""

    # ---- other commands ----

    def accept(self, name: str) -> Forecast:  # noqa: C901, PLR0912  what the rules leave open is listed here
        """Verify and record the edits of a stage; a foreach stands for its items."""
        found = [stage for stage in self.declared if name in (stage.name, stage.family)]
        if self._is_refused():
            return Forecast(65, self.disk, self.lock)
        results, code = dict(self.lock.results), 0
        if not found:
            return Forecast(64, self.disk, self.lock)  # it is switched off
        if any(self.others(path) for stage in self.declared for path in stage.literal_outputs):
            message = "accept beside a refused stage"
            raise UnsureError(message)
        if any(stage.chain for stage in found):
            return self._accept_chain(found)
        for stage in found:
            if self.edited(stage):
                self.recall(stage)
        edited = {stage: self.edited(stage) for stage in found}
        if any(stage.family.startswith(("page", "lit")) for stage in found):
            message = "accept of the output of a stage that reads outputs of others"
            raise UnsureError(message)
        decided = all(self.is_head(p) for paths in edited.values() for p in paths) and found[0].kind == "llm"
        given = {path for path, _ in self.store.released}
        if any((path, self.disk[path]) in self.store.released for paths in edited.values() for path in paths) or any(
            self._is_new(stage) and any(map(stage.covers, given)) for stage in found
        ):
            message = "accept of what is released"
            raise UnsureError(message)
        if not any(edited.values()) or decided:
            if any(paths for paths in edited.values()) or self._holds_accepted(found):
                message = "accept of what is committed, or accepted already"
                raise UnsureError(message)
            return Forecast(64, self.disk, self.lock)
        for stage in found:
            made_today = self._matching(stage, self.core(stage, self.inputs_of(stage, dict(self.in_force(stage)))))
            if (made_today is None or not stage.literal_outputs) and self._is_new(stage) and edited[stage]:
                message = "accept of a new stage"
                raise UnsureError(message)
            # A renamed stage that is fresh keeps its record under the former name.
            named = (made for made in self.lock.all() if made.identity == (stage.kind, stage.outputs))
            former = self.lock.of(stage.name) or next(named, None)
            has_to_run = stage.kind == "llm" and made_today is None and edited[stage]
            if has_to_run and any(map(self.is_head, edited[stage])):
                message = "accept of some edits of a stage beside committed ones"
                raise UnsureError(message)
            if has_to_run and former is not None and former.outputs.keys() - {*edited[stage]}:
                return Forecast(64, self.disk, self.lock)  # a model would have to make the others
        for stage, paths in edited.items():
            if paths and not all(self.is_head(path) and stage.kind == "llm" for path in paths):
                made = self.accepted(stage, self.core(stage, self.inputs_of(stage, dict(self.in_force(stage)))), paths)
                if made is None:
                    code = 1
                else:
                    self.store.add(made, self.pipeline)
                    results[stage.name] = made
        retained = {name: made for name, made in self.lock.retained.items() if name not in results}
        return Forecast(code, self.disk, Lock(results, retained))

    def _holds_accepted(self, found: Sequence[Stage]) -> bool:
        before_reset = [made for stage in found if (made := self.lock.retained.get(stage.name)) is not None]
        return any(made.accepted for made in before_reset) or any(
            self.is_accepted(path)
            for stage in found
            for path in self.disk
            if stage.covers(path) and stage.kind != "llm"
        )

    def _accept_chain(self, items: Sequence[Stage]) -> Forecast:
        path = items[0].outputs[0]
        if not self._is_edited(path):
            return Forecast(64, self.disk, self.lock)
        message = "accept of a chain"
        raise UnsureError(message)

    def reset(self, *, outputs: bool) -> Forecast:
        """Forget the results, but not whose the files are."""
        if outputs and self._is_refused():
            return Forecast(65, self.disk, self.lock)
        if outputs:
            target, _ = self._to_take(force=False)
            if self._are_lost(target):
                return Forecast(66, self.disk, self.lock)
            for path, original in target.items():
                self._put(path, original)
        retained = {**self.lock.retained, **self.lock.results}
        every = [*self.store.records, *self.store.retained]
        self.store.retained = [replace(made, failed=True) for made in every if self._some_on_disk(made)]
        self.store.records = []
        starts = {
            text for m in [*every, *retained.values()] for text in (*m.originals.values(), *dict(m.start).values())
        }
        self.store.contents &= starts  # with the responses there are copies of what runs started from
        self.store.contents |= {text for m in every for p, text in m.outputs.items() if p in m.accepted}
        return Forecast(0, self.disk, Lock({}, retained))

    def _some_on_disk(self, made: Made) -> bool:
        return any(self.disk.get(path) == text for path, text in made.outputs.items())

    def clean(self, *, force: bool) -> Forecast:
        """Take back what the stages made."""
        if self._is_refused():
            return Forecast(65, self.disk, self.lock)
        target, modified = self._to_take(force=force)
        if modified and not force:
            return Forecast(6, self.disk, self.lock)
        if self._are_lost({**target, **modified}):
            return Forecast(66, self.disk, self.lock)
        for path, original in {**target, **modified}.items():
            self.store.contents |= {self.disk[path]} if path in self.disk else set()
            self._put(path, original)
        return Forecast(0, self.disk, self.lock)

    def _are_lost(self, target: Mapping[str, str | None]) -> bool:
        """Return whether bytes that have to come back are in neither the store nor git: then nothing is removed."""
        return any(text is not None and not self._obtainable(text) for text in target.values())

    def _put(self, path: str, text: str | None) -> None:
        if text is None:
            self.disk.pop(path, None)
        else:
            self.disk[path] = text

    def _to_take(self, *, force: bool) -> tuple[dict[str, str | None], dict[str, str | None]]:
        locked = {made.stage for made in self.lock.all()}
        if self.lock != self.store.wrote.get(self.pipeline) and any(m.stage not in locked for m in self.store.records):
            message = "clean with a lock file that a merge replaced: results that only the store has count again"
            raise UnsureError(message)
        names = [stage.name for stage in self.declared]
        made_here, off = [*self.store.records, *self.store.retained], {stage.family for stage in self.skipped}
        kept = [m for m in made_here if m.failed and m.stage in names and m.pipeline == self.pipeline]
        # The lock file of a clone does not suffice to remove files of a stage that no one declares.
        known = [
            made
            for made in self.lock.all()
            if made.stage in names or any(replace(one, failed=made.failed) == made for one in made_here)
        ]
        known += [made for made in self.lock.all() if made.stage.partition("@")[0] in off]
        records = [*known, *kept]
        target: dict[str, str | None] = {}
        modified: dict[str, str | None] = {}
        for path in {path for made in records for path in made.outputs if path in self.disk}:
            having = sorted(
                (made for made in reversed(records) if path in made.written),
                key=lambda made: made.outputs.get(path) == self.disk[path],
            )
            newest = {made.stage: made for made in having}
            # A stage gives back what its last run started from; of a chain, the last item with a moved base does.
            chain = sorted(newest.values(), key=lambda made: made.stage in names and names.index(made.stage))
            starts = [made.originals.get(path) for made in chain]
            bases = [(dict(made.start).get(path), dict(made.instead).get(path)) for made in chain]
            starts += [start for start, instead in bases if start != instead]
            original = next((text for text in reversed(starts) if text is not None), None)
            if any(made.edits for made in chain) and self.others(path):
                message = "a file of `edits` that another pipeline has"
                raise UnsureError(message)
            if self.disk[path] == original or self.others(path):
                continue
            if not self.makers(path, self.disk[path]):
                by_program = any(made.edits and made.core[0] != "llm" and path in made.outputs for made in records)
                modified |= {} if by_program else {path: original}
            elif not self.is_accepted(path) or force:
                target[path] = original
        for made in records:
            gone = {path: {**made.originals, **dict(made.start)}.get(path) for path in made.deleted - self.disk.keys()}
            target |= {path: text for path, text in gone.items() if text is not None}
        return target, modified

    def release(self, name: str) -> Forecast:
        """Give the files of a stage to the user."""
        if self._is_refused():
            message = "release beside an input that is missing"
            raise UnsureError(message)
        known = {
            n: m for n, m in {**self.lock.retained, **self.lock.results}.items() if name in (n, n.partition("@")[0])
        }
        every = [*self.store.records, *self.store.retained]
        kept = [m for m in every if m.failed and name in (m.stage, m.stage.partition("@")[0])]
        found = False
        for made in [*known.values(), *kept]:
            there = {path: self.disk[path] for path in made.outputs if path in self.disk}
            if there:
                found = True
                self.store.released |= set(there.items())
                given = replace(made, outputs=there, accepted=frozenset(there), failed=True, pipeline=self.pipeline)
                self.store.retained.append(given)
        if not found:
            return Forecast(66, self.disk, self.lock)
        results = {n: m for n, m in self.lock.results.items() if n not in known}
        retained = {n: m for n, m in self.lock.retained.items() if n not in known}
        return Forecast(0, self.disk, Lock(results, retained))
