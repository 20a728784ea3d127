"""What stages with `edits` start from and make: their results are the files that they changed (ADR 87)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.repository import DELETED
from tests.shared_files.facts import Facts
from tests.shared_files.values import Made, Stage, UnsureError, answered, passes

_NEAR = "work/near/"
"""The files of this folder are inputs of the stage with a model: it sees no others, and can change no others."""


class Editing(Facts):
    """One build, as far as stages with `edits` go."""

    # ---- which results are today's ----

    def inputs_of(self, stage: Stage, base: Mapping[str, str | None]) -> dict[str, str]:
        """Return the inputs of a stage: a file that it may change is as in its base."""
        read = {path: self.disk[path] for path in stage.inputs if "*" not in path}
        if stage.edits:
            read |= {path: text for path, text in sorted(base.items()) if path.startswith(_NEAR) and text is not None}
        return read

    def is_made_from(self, stage: Stage, made: Made, base: Mapping[str, str | None]) -> bool:
        """Return whether a result is today's on a base: only the files that it wrote or deleted count."""
        core = self.core(stage, self.inputs_of(stage, base) if stage.kind == "llm" else {})
        return made.core == core and all(base.get(path) == text for path, text in made.start if path in made.written)

    def made_from(self, stage: Stage, base: Mapping[str, str | None]) -> list[Made]:
        """Return today's results on a base: those of the lock file first, then the newest."""
        locked = sorted(self.lock.results.items(), key=lambda one: one[0] != stage.name)
        every = [*(made for _, made in locked), *self.lock.others, *reversed(self.store.records)]
        return [made for made in every if not made.failed and self.is_made_from(stage, made, base)]

    def matching_edits(self, stage: Stage) -> Made | None:
        """Return the record that wins: of the base in force, else of the base of an earlier record."""
        force = dict(self.in_force(stage))
        every = [*self.lock.results.values(), *self.lock.others, *reversed(self.store.records)]
        bases = [force]
        for made in every:
            if made.identity == (stage.kind, stage.outputs):
                kept = {path: text for path, text in force.items() if path not in made.written}
                bases.append({**dict(self._base_of(stage, made)), **kept})
        for base in bases:
            if found := self.made_from(stage, base):
                self.begun[stage.name] = base
                at_rest = [one for one in found if self.is_at_rest(one)]
                return (at_rest or found)[0]
        return None

    def is_at_rest(self, made: Made) -> bool:
        """Return whether the disk has the files of a result."""
        return made.is_on(self.disk) and self.disk.keys().isdisjoint(made.deleted)

    def start_of(self, stage: Stage, written: Any) -> tuple[tuple[str, str | None], ...]:
        """Return the base in force, also of the files that a result has."""
        force = dict(self.in_force(stage))
        return tuple(sorted({**dict.fromkeys(written), **force}.items()))

    def comes_back(self, stage: Stage, path: str) -> bool:
        """Return whether a file that a stage deletes is there as before: it is deleted again."""
        if path not in self.disk:
            return False
        force = dict(self.in_force(stage)).get(path)
        return self.disk[path] in (force, self.original(path)) or bool(self.makers(path, self.disk[path]))

    # ---- a model ----

    def edit_by_model(self, stage: Stage, base: Mapping[str, str | None]) -> Made:
        """Call the model, unless its response is recorded."""
        self.begun[stage.name] = base
        inputs = self.inputs_of(stage, base)
        if any(text is not None and not self._is_there(text) for text in base.values()):
            message = "bytes of a base are lost"
            raise UnsureError(message)
        shown = {path: text for path, text in inputs.items() if path.startswith(_NEAR)}
        question = (stage.item, tuple(sorted(inputs.items())))
        if question not in self.store.responses or (self.resamples and stage.family == self.forced):
            self.calls.add(question)
            self.store.responses.add(question)
        self.bases[stage.name] = shown
        outputs = answered(stage, {"WORK.md": inputs["WORK.md"]}, shown)
        lines = (line.partition(": ")[::2] for line in inputs["WORK.md"].splitlines())
        deleted = {path for path, text in lines if text == DELETED}
        there = {path for path, text in base.items() if text is not None}
        # It can neither change what it has not seen, nor delete what is not there.
        refused = {path for path in outputs if path in there and path not in shown} | (deleted - there)
        tree = {path: text for path, text in base.items() if text is not None and path not in deleted}
        start = tuple(sorted({**dict.fromkeys({*outputs, *deleted}), **base}.items()))
        return Made(
            stage.name,
            self.core(stage, inputs),
            start,
            outputs,
            {path: self.original(path) for path in {*outputs, *deleted}},
            failed=bool(refused) or not passes({**tree, **outputs}),
            deleted=frozenset(deleted),
            instead=tuple((path, self.comes(stage, path)) for path, _ in start),
        )

    def _is_there(self, text: str) -> bool:
        return text in self.store.contents or text in self.disk.values() or text in self.in_git

    # ---- a program ----

    def edit_by_program(self, stage: Stage) -> None:
        """Take a program that edits what is there: a user's file is its base, and a reason to run."""
        last = self.lock.of(stage.name)
        start, comes = self._begun(stage, last)
        base = _texts(tuple(start.items()))
        core = self.core_of[stage.name] = self.core(stage, {})
        every = [*self.lock.results.values(), *self.lock.others, *reversed(self.store.records)]
        whole = [m for m in every if not m.failed and m.core == core and _texts(m.start) == base]
        found = [made for made in whole if self.is_at_rest(made)] or whole
        runs = not found or stage.family == self.forced
        if runs and last is None and any(one.core == core for one in self.lock.all()):
            message = "a program under another name, whose base had moved"
            raise UnsureError(message)
        made = self._ran(stage, core, base, start, comes) if runs else replace(found[0], stage=stage.name)
        if any(map(self.others, made.written)):
            message = "a file that another pipeline has"
            raise UnsureError(message)
        wanted: dict[str, str | None] = dict.fromkeys(made.deleted)
        for path in (last.written if last is not None else set()) - made.written:
            if path in self.disk and self.makers(path, self.disk[path]) and not self.is_accepted(path):
                wanted[path] = start.get(path)
        wanted |= made.outputs
        changed = {path: text for path, text in wanted.items() if self.disk.get(path) != text}
        needed = [*base.values()] if runs else [text for text in changed.values() if text is not None]
        if not all(map(self._is_there, needed)):
            message = "bytes are lost"
            raise UnsureError(message)
        self.disk = {path: text for path, text in {**self.disk, **changed}.items() if text is not None}
        if runs or made not in self.store.records:
            self.store.add(made, self.pipeline)
        self.results[stage.name] = made
        self.ends[stage.name] = "built" if runs else "restored" if changed else "fresh"

    def _begun(self, stage: Stage, last: Made | None) -> tuple[dict[str, str | None], dict[str, str | None]]:
        """Return what a program starts from at each path, and what was there before any stage wrote it."""
        mine = last.outputs if last is not None else {}
        start: dict[str, str | None] = {}
        comes: dict[str, str | None] = {}
        known = {path for made in self.lock.all() for path in made.originals}
        removed = {path for made in self.lock.all() for path in made.deleted}
        for path in sorted(filter(stage.covers, self.disk.keys() | known)):
            there, comes[path] = self.disk.get(path), self.original(path)
            start[path] = comes[path]
            if last is not None and path in dict(last.start) and dict(last.instead).get(path) == comes[path]:
                start[path] = dict(last.start)[path]
            if there is None and path not in removed and start[path] is not None:
                # The user deleted a file that was there before; one that a stage created or deleted is as it was.
                start[path] = comes[path] = None
            elif there not in (None, start[path], mine.get(path)) and self._is_base(path, start[path]):
                start[path] = there
            if self._is_left_to(stage, path):
                start[path] = there
        return start, comes

    def _is_left_to(self, stage: Stage, path: str) -> bool:
        """Return whether only stages that have ended, of other commands, made a file, and it stays."""
        made, declared = [one for one in self.lock.all() if path in one.written], {one.name for one in self.declared}
        is_theirs = any(one.stage in declared or one.core[2] == stage.command for one in made)
        return bool(made) and not is_theirs and (path not in self.disk or self._becomes(path) != "removed")

    def _is_base(self, path: str, so_far: str | None) -> bool:
        """Return whether a program starts from what is on disk: a file of a user, or made of one."""
        is_own = bool(self.makers(path, self.disk[path])) and not self.is_accepted(path)
        return not is_own or self._has_users_bytes(path, so_far)

    def _ran(
        self,
        stage: Stage,
        core: tuple[Any, ...],
        base: Mapping[str, str],
        start: Mapping[str, str | None],
        comes: Mapping[str, str | None],
    ) -> Made:
        revision = stage.command.partition("# tidy ")[2].partition("$")[0]
        after = {"tidy/made.py": f"made {revision}\n", **base}
        for path, text in sorted(after.items()):
            if any(line.startswith("# drop") for line in text.splitlines()):
                del after[path]
            elif f"# tidy {revision}" not in text.splitlines():
                after[path] = f"{text}# tidy {revision}\n"
        outputs = {path: text for path, text in after.items() if base.get(path) != text}
        deleted = frozenset(base.keys() - after.keys())
        originals = {path: comes.get(path) for path in {*outputs, *deleted}}
        begun = tuple(sorted({**start, **dict.fromkeys(outputs.keys() - start.keys())}.items()))
        instead = tuple((path, comes.get(path)) for path, _ in begun)
        return Made(stage.name, core, begun, outputs, originals, deleted=deleted, instead=instead)


def _texts(start: tuple[tuple[str, str | None], ...]) -> dict[str, str]:
    return {path: text for path, text in start if text is not None}
