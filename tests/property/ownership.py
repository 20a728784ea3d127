"""The rules of ADR 19 as a small program: who owns a file, what a run starts from, what becomes of it at the end.

Written from the text of the rules; no code of the engine is used. The model keeps a state of its own: what a store
knows belongs to a folder, what a lock file knows to the bytes of that lock file, since git brings old ones back.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from tests.repository import addition

Files = dict[str, str]
Bases = tuple[tuple[str, str | None], ...]

GREEN = frozenset({"fresh", "restored", "verified", "built", "skipped"})


class UnsureError(Exception):
    """The rules do not say what follows, or this model does not know them well enough; the invariants still hold."""


def passes(files: Mapping[str, str]) -> bool:
    """Return whether the verification of an llm stage passes."""
    return not any("bad" in text for text in files.values())


# ---- what is declared ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A stage or an item of today's pipeline file."""

    name: str
    family: str
    kind: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    item: str = ""
    keep: bool = False
    together: bool = False
    chain: bool = False
    command: str = ""

    def covers(self, path: str) -> bool:
        """Return whether a path is one of the stage's outputs, or in one of its folders."""
        return any(path == out or (out.endswith("/") and path.startswith(out)) for out in self.outputs)

    @property
    def literal_outputs(self) -> tuple[str, ...]:
        """Return the outputs that are files."""
        return tuple(out for out in self.outputs if not out.endswith("/"))


def stages_of(text: str) -> tuple[list[Stage], list[Stage]]:
    """Return the stages that a pipeline file declares, and those that it switches off; items are in their order."""
    declared: list[Stage] = []
    skipped: list[Stage] = []
    for name, body in json.loads(text)["stages"].items():
        kind = next(kind for kind in ("llm", "shell", "render") if kind in body)
        foreach = body.get("foreach")
        stage = Stage(
            name=name,
            family=name,
            kind=kind,
            outputs=tuple(body["outputs"]),
            inputs=tuple(body.get("inputs", ())),
            keep=body.get("on_failure") == "keep",
            command=str(body.get("shell") or body.get("render") or ""),
        )
        found = [stage]
        if foreach is not None:
            found = [
                replace(
                    stage,
                    name=f"{name}@{item['id']}",
                    outputs=(item["files"][0],),
                    item=json.dumps(item, sort_keys=True),
                    together=foreach.get("promote") == "together",
                    chain=foreach.get("order") == "sequential",
                )
                for item in foreach["in"]
            ]
        (skipped if body.get("if") is False else declared).extend(found)
    return declared, skipped


# ---- what was made ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A result: what it was made from (`core`, without the base), the bases, the outputs.

    `start` is what the run started from at each path; `accepted` are outputs that a user wrote.
    """

    stage: str
    core: tuple[Any, ...]
    start: Bases
    outputs: Mapping[str, str]
    originals: Mapping[str, str | None]
    accepted: frozenset[str] = frozenset()
    failed: bool = False
    instead: Bases = ()
    """What the run would have started from, had no base moved."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what the result is found by."""
        return (self.core, self.start)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return what tells a stage from others, whatever it is called and reads."""
        return (self.core[0], self.core[1])


@dataclass(frozen=True)
class Lock:
    """What a lock file knows: results by stage, and what a reset retained of them."""

    results: Mapping[str, Made] = field(default_factory=dict)
    retained: Mapping[str, Made] = field(default_factory=dict)

    def of(self, name: str) -> Made | None:
        """Return what is known of a stage."""
        return self.results.get(name) or self.retained.get(name)

    def all(self) -> list[Made]:
        """Return everything that is known."""
        return [*self.results.values(), *self.retained.values()]


@dataclass
class Store:
    """What `.orch23` of one folder knows: records (oldest first), recorded responses, bytes."""

    records: list[Made] = field(default_factory=list)
    retained: list[Made] = field(default_factory=list)
    responses: set[tuple[Any, ...]] = field(default_factory=set)
    contents: set[str] = field(default_factory=set)
    released: set[tuple[str, str]] = field(default_factory=set)
    complete: bool = True
    """Whether it has all responses that today's results were made of: not in a clone without the store."""

    def add(self, made: Made) -> None:
        """Keep a result and its bytes."""
        self.records.append(made)
        self.contents.update(made.outputs.values())
        self.contents.update(text for text in made.originals.values() if text is not None)
        self.contents.update(text for _, text in made.start if text is not None)

    def copy(self) -> "Store":
        """Return a copy, as of a folder that is copied."""
        return Store(
            [*self.records], [*self.retained], {*self.responses}, {*self.contents}, {*self.released}, self.complete
        )


@dataclass
class Forecast:
    """What a command must do."""

    code: int
    files: Files
    lock: Lock
    ends: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    bases: dict[str, dict[str, str]] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)


# ---- one command -----------------------------------------------------------------------------------


class Rules:
    """One command on one pipeline, foreseen. `head` holds the files of git's HEAD, empty without git."""

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
    ) -> None:
        self.pipeline, self.head, self.locks, self.store = pipeline, head, locks, store
        self.disk: Files = dict(disk)
        self.lock = locks.get(pipeline, Lock())
        self.declared, self.skipped = stages_of(disk[f"{pipeline}.yaml"])
        self.in_git = set(in_git)
        self.overwrite = overwrite
        self.results: dict[str, Made] = {}
        self.ends: dict[str, str] = {}
        self.calls: set[tuple[Any, ...]] = set()
        self.bases: dict[str, dict[str, str]] = {}
        self.held: list[tuple[Stage, Made, str]] = []
        self.incoming: str | None = None
        self.gone: set[str] = set()
        self.stale: set[str] = set()
        self.core_of: dict[str, tuple[Any, ...]] = {}
        self.versions: list[str | None] = []
        self.follows = True

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
        """Return what was at a path before any stage of this pipeline wrote it."""
        for made in self.lock.all():
            if path in made.originals:
                return made.originals[path]
        text = self.disk.get(path)
        if text is not None:
            makers = [made for made in self.makers(path, text) if path in made.originals]
            if makers:
                return makers[0].originals[path]
            if self.makers(path, text):
                return None
        return text

    def was_a_base(self, path: str) -> bool:
        """Return whether a run started from the bytes on disk."""
        every = [*self.lock.all(), *self.store.records, *self.store.retained]
        return any((path, self.disk[path]) in made.start for made in every)

    def edited(self, stage: Stage) -> list[str]:
        """Return the outputs whose bytes a user wrote and nobody has decided on yet."""
        former = self.lock.of(stage.name)
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

    # ---- a build ----

    def build(self) -> Forecast:
        """Go through all stages, those that read by a pattern last."""
        if self._missing_input():
            return Forecast(65, self.disk, self.lock)
        readers = [s for s in self.declared if s.family.startswith(("page", "lit"))]
        self._chain([stage for stage in self.declared if stage.chain])
        for stage in (s for s in self.declared if s not in readers and not s.chain):
            self._take(stage, {path: self.disk[path] for path in stage.inputs})
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

    def _missing_input(self) -> bool:
        made = [stage for stage in self.declared]
        for stage in self.declared:
            for path in stage.inputs:
                if any(sign in path for sign in "*?") or any(one.covers(path) for one in made):
                    continue
                if path not in self.disk:
                    return True
                if any(one.covers(path) for one in self.skipped):
                    message = "a literal input of a stage that is switched off"
                    raise UnsureError(message)
        return False

    def _take(self, stage: Stage, inputs: Mapping[str, str]) -> None:
        """Decide on one stage and do what is to be done."""
        core = self.core_of[stage.name] = self.core(stage, inputs)
        edited = [] if self.overwrite else self.edited(stage)
        made = self._matching(stage, core)
        if made is not None:
            edited = [p for p in edited if self.disk[p] not in (made.outputs.get(p), dict(made.start).get(p))]
            edited = [p for p in edited if p in made.outputs or (p, self.disk[p]) not in self.store.released]
        in_place = stage.kind == "llm"
        if made is not None and not edited:
            self._recall(stage, made)
        elif made is not None:
            rest = {path: text for path, text in made.outputs.items() if path not in edited}
            at_rest = all(self.disk.get(path) == text for path, text in rest.items())
            if in_place and at_rest and all(self.is_decided(path) for path in edited):
                self._decide_committed(stage, core, edited)
            else:
                self.ends[stage.name] = "edited"
        elif in_place and not edited and (known := self._before_reset(stage, core)) is not None:
            self._adopt(stage, known)
        elif in_place and any(self._moved(stage).get(path) != self.disk[path] for path in edited):
            self.ends[stage.name] = "edited"
            self.stale.add(stage.name)
        else:
            self._run(stage, core, inputs)

    def _before_reset(self, stage: Stage, core: tuple[Any, ...]) -> Made | None:
        """Return the accepted result that a reset dropped, if the stage is as it was then."""
        known = self.lock.retained.get(stage.name)
        if known is None or stage.name in self.lock.results or not known.accepted:
            return None
        same = known.core == core and _same(known.start, self.in_force(stage))
        return known if same and all(self._obtainable(text) for text in known.outputs.values()) else None

    def _adopt(self, stage: Stage, known: Made) -> None:
        if passes(known.outputs):
            self._settle(stage, replace(known, failed=False), "verified")
        else:
            self.ends[stage.name] = "failed"

    # ---- the base ----

    def in_force(self, stage: Stage) -> Bases:
        """Return the base in force: of the newest kept failure or the result of the lock, else the originals."""
        if stage.kind != "llm":
            return ()
        former = self.lock.of(stage.name)
        return self._base_of(stage, self._failure_on_disk(stage) or former)

    def _failure_on_disk(self, stage: Stage) -> Made | None:
        """Return the kept failure of a stage, if its files are those on disk."""
        kept = [m for m in self.store.records if m.failed and m.stage == stage.name]
        return kept[-1] if kept and self._is_kept(kept[-1]) else None

    def _base_of(self, stage: Stage, made: Made | None) -> Bases:
        """Return the base of a result, as far as what it replaced is still what is there."""
        if stage.kind != "llm":
            return ()
        start = dict(made.start) if made is not None else {}
        instead = dict(made.instead) if made is not None else {}
        base: dict[str, str | None] = {}
        there = {path for path in self.disk if stage.covers(path) and self.original(path) is not None}
        for path in {*stage.literal_outputs, *there, *start}:
            comes = self.comes(stage, path)
            base[path] = start[path] if path in start and instead.get(path) == comes else comes
        return tuple(sorted(base.items()))

    def comes(self, stage: Stage, path: str) -> str | None:
        """Return what a stage starts from where no base has moved: of a chain the result of the item before."""
        return self.incoming if stage.chain else self.original(path)

    def _is_kept(self, made: Made) -> bool:
        return all(self.disk.get(path) == text for path, text in made.outputs.items())

    def _matching(self, stage: Stage, core: tuple[Any, ...]) -> Made | None:
        """Return the record that wins: of the base in force, else of the base of an earlier record, newest first."""
        bases = [self.in_force(stage)]
        every = [*(m for m in self.lock.results.values()), *reversed(self.store.records)]
        bases += [self._base_of(stage, made) for made in every if made.identity == (stage.kind, stage.outputs)]
        for base in dict.fromkeys(bases):
            found = [m for m in every if m.core == core and _same(m.start, base) and not m.failed]
            at_rest = [m for m in found if all(self.disk.get(p) == text for p, text in m.outputs.items())]
            if found:
                return (at_rest or found)[0]
        return None

    def _moved(self, stage: Stage) -> dict[str, str | None]:
        """Return the base of a run, by rules 3 and 4."""
        force = self.in_force(stage)
        base = dict(force)
        known = self.lock.retained.get(stage.name)
        if stage.name not in self.lock.results and known is not None and known.core == self.core_of[stage.name]:
            if _same(known.start, force) and (self.overwrite or not self.edited(stage)):
                return base  # the same request again
        if not self.follows:
            return base
        new = self._is_new(stage)
        for path in {**dict.fromkeys(p for p in self.disk if stage.covers(p)), **base}:
            if path not in self.disk or path in self.gone:
                continue
            if self._starts_from(stage, path, base.get(path, self.comes(stage, path)), new=new):
                base[path] = self.disk[path]
        return base

    def _is_new(self, stage: Stage) -> bool:
        """Return whether the stage never had a result; an item of a chain that had one is no new chain."""
        if not self.lock.all() and any(made.stage == stage.name for made in self._everything()):
            return False  # the lock file is lost
        names = {one.name for one in self.declared if one.family == stage.family} if stage.chain else {stage.name}
        return all(self.lock.of(name) is None for name in names) and not self._failure_on_disk(stage)

    def _starts_from(self, stage: Stage, path: str, start: str | None, *, new: bool) -> bool:
        """Return whether a run starts from the bytes on disk instead of from its base so far."""
        if len(self.versions) > 1 and self.disk[path] in self.versions:
            return False  # older than the results of earlier items
        if self.is_accepted(path):
            return True
        own = bool(self.makers(path, self.disk[path]))
        if own and (path in self._ended() and self._becomes(path) == "removed"):
            return False
        if new and not (own and self._has_owner_today(path)):
            return True
        return not (own and start is None) and self.is_head(path)

    def _has_owner_today(self, path: str) -> bool:
        names = {stage.name for stage in self.declared}
        return any(
            path in made.outputs for name, made in {**self.lock.retained, **self.lock.results}.items() if name in names
        )

    # ---- a chain ----

    def _chain(self, items: Sequence[Stage]) -> None:
        """Go through the items of a sequential foreach, which all edit one file."""
        if not items:
            return
        path = items[0].outputs[0]
        edited = not self.overwrite and self._is_edited(path)
        decided = edited and self.is_decided(path)
        started = False
        self.incoming = self.original(path)
        self.versions = [self.incoming]
        stuck = ""
        for stage in items:
            core = self.core_of[stage.name] = self.core(stage, {})
            made = self._matching(stage, core)
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
                self.store.add(made)
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
                self.store.add(made)
                self.ends[stage.name] = "built"
            else:
                at_rest = not last or self.disk.get(path) == made.outputs[path]
                if not self._obtainable(made.outputs[path]):
                    message = "bytes are lost"
                    raise UnsureError(message)
                self.ends[stage.name] = "fresh" if at_rest else "restored"
                started = started or dict(made.start).get(path) == self.disk.get(path)
            locked = self.lock.of(stage.name)
            self.follows &= locked is not None and locked.outputs == made.outputs
            self.incoming = made.outputs[path]
            self.versions += [dict(made.start).get(path), self.incoming]
            self.results[stage.name] = replace(made, stage=stage.name)
            if last:
                self.disk[path] = self.incoming
        self.follows, self.incoming, self.versions = True, None, []

    # ---- what is done ----

    def _recall(self, stage: Stage, made: Made) -> None:
        wanted = {p: text for p, text in made.outputs.items() if self.disk.get(p) != text}
        gone = self._left_over(stage, made)
        if wanted or gone:
            if self._refused(stage, made.outputs):
                return
            if any(not self._obtainable(text) for text in wanted.values()):
                message = "bytes are lost"
                raise UnsureError(message)
        self._settle(stage, replace(made, stage=stage.name), "restored" if wanted or gone else "fresh")

    def _obtainable(self, text: str) -> bool:
        return text in self.store.contents or text in self.disk.values() or text in self.in_git

    def _refused(self, stage: Stage, paths: Iterable[str]) -> bool:
        """Return whether a path to be written is another pipeline's, which still declares it; then the stage fails."""
        for path in paths:
            former = self.lock.of(stage.name)
            if former is not None and path in former.outputs:
                continue
            if self.others(path):
                self.ends[stage.name] = "failed"
                return True
        return False

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

    def _decide_committed(self, stage: Stage, core: tuple[Any, ...], edited: Sequence[str]) -> None:
        """Verify an edit that is committed, and record it as accepted."""
        made = self.accepted(stage, core, edited)
        if made is None:
            self.ends[stage.name] = "failed"
            return
        self._settle(stage, made, "verified")

    def accepted(self, stage: Stage, core: tuple[Any, ...], edited: Sequence[str]) -> Made | None:
        """Return what an accepted edit is recorded as, or None if the verification fails."""
        former = self.lock.of(stage.name)
        outputs = {**(former.outputs if former else {}), **{path: self.disk[path] for path in edited}}
        still = {p for p in (former.accepted if former else ()) if self.disk.get(p) == outputs[p]}
        if stage.kind == "llm" and not passes(outputs):
            return None
        return Made(
            stage.name,
            core,
            self.in_force(stage),
            outputs,
            {path: self.original(path) for path in outputs} if stage.kind == "llm" else {},
            frozenset(edited) | still,
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
        if made.failed:
            self._fail(stage, made, keep=stage.keep)
        else:
            self._settle(stage, made, "built")

    def _ask(self, stage: Stage, core: tuple[Any, ...], inputs: Mapping[str, str]) -> Made:
        """Call the model, unless its response is recorded."""
        base = self._moved(stage)
        shown = {path: text for path, text in base.items() if text is not None}
        if any(not self._obtainable(text) for text in shown.values()):
            message = "bytes of a base are lost"
            raise UnsureError(message)
        question = (stage.item, tuple(sorted(inputs.items())), tuple(sorted(shown.items())))
        if question not in self.store.responses:
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
            self.store.add(made)
            self.disk.update(made.outputs)

    def _compute(self, stage: Stage, core: tuple[Any, ...], inputs: Mapping[str, str]) -> None:
        """Run a program or render: there is no base, so nothing that a user wrote is overwritten."""
        former = self.lock.of(stage.name)
        for path in stage.literal_outputs:
            if path not in self.disk or self.overwrite:
                continue
            not_own = not self.is_own(path)
            if not_own or self.is_accepted(path):
                self.ends[stage.name] = "edited"
                return
        originals: dict[str, str | None] = {}
        if former is None:
            originals = {path: self.original(path) for path in stage.literal_outputs}
        outputs = {path: computed(stage, inputs) for path in stage.literal_outputs}
        if self._refused(stage, outputs):
            return
        self._settle(stage, Made(stage.name, core, (), outputs, originals), "built")

    def _left_over(self, stage: Stage, made: Made) -> dict[str, str | None]:
        """Return the files of the former result that a newer one lacks: path -> what takes their place."""
        former = self.lock.of(stage.name)
        gone: dict[str, str | None] = {}
        for path in former.outputs if former else ():
            if path in made.outputs or path not in self.disk:
                continue
            if self.overwrite or (self.is_own(path) and not self.is_accepted(path)):
                gone[path] = dict(former.start).get(path) if former else None
        return gone

    def _settle(self, stage: Stage, made: Made, end: str) -> None:
        if end in ("built", "verified"):
            self.store.add(made)
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
        above = [s for s in self.declared if s is not stage and s.family != "zero" and _meets(stage, s)]
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

    # ---- the end of ownership ----

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
        if self.original(path) is not None or any(path in made.accepted for made in self._everything()):
            return "released"
        if path in self.head:
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

    # ---- other commands ----

    def accept(self, name: str) -> Forecast:
        """Verify and record the edits of a stage; a foreach stands for its items."""
        found = [stage for stage in self.declared if name in (stage.name, stage.family)]
        if self._missing_input():
            return Forecast(65, self.disk, self.lock)
        results, code = dict(self.lock.results), 0
        if not found:
            return Forecast(66, self.disk, self.lock)
        if any(stage.chain for stage in found):
            return self._accept_chain(found)
        edited = {stage: self.edited(stage) for stage in found}
        if any(stage.family.startswith(("page", "lit")) for stage in found):
            message = "accept of the output of a stage that reads outputs of others"
            raise UnsureError(message)
        decided = all(self.is_head(p) for paths in edited.values() for p in paths) and found[0].kind == "llm"
        if any((path, self.disk[path]) in self.store.released for paths in edited.values() for path in paths):
            message = "accept of what is released"
            raise UnsureError(message)
        if not any(edited.values()) or decided:
            if any(paths for paths in edited.values()) or self._holds_accepted(found):
                message = "accept of what is committed, or accepted already"
                raise UnsureError(message)
            return Forecast(64, self.disk, self.lock)
        for stage in found:
            made_today = self._matching(stage, self.core(stage, {p: self.disk[p] for p in stage.inputs}))
            if made_today is None and self._is_new(stage) and edited[stage]:
                message = "accept of a new stage"
                raise UnsureError(message)
        for stage, paths in edited.items():
            if paths and not all(self.is_head(path) and stage.kind == "llm" for path in paths):
                made = self.accepted(stage, self.core(stage, {p: self.disk[p] for p in stage.inputs}), paths)
                if made is None:
                    code = 1
                else:
                    self.store.add(made)
                    results[stage.name] = made
        retained = {name: made for name, made in self.lock.retained.items() if name not in results}
        return Forecast(code, self.disk, Lock(results, retained))

    def _holds_accepted(self, found: Sequence[Stage]) -> bool:
        return any(
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
        if outputs and self._missing_input():
            return Forecast(65, self.disk, self.lock)
        if outputs:
            for path, original in self._to_take(force=False)[0].items():
                self._put(path, original)
        retained = {**self.lock.retained, **self.lock.results}
        every = [*self.store.records, *self.store.retained]
        self.store.retained = [replace(made, failed=True) for made in every if self._some_on_disk(made)]
        self.store.records = []
        self.store.contents = {text for m in every for p, text in m.outputs.items() if p in m.accepted}
        self.store.contents |= {t for m in [*every, *retained.values()] for t in m.originals.values() if t is not None}
        return Forecast(0, self.disk, Lock({}, retained))

    def _some_on_disk(self, made: Made) -> bool:
        return any(self.disk.get(path) == text for path, text in made.outputs.items())

    def clean(self, *, force: bool) -> Forecast:
        """Take back what the stages made."""
        if self._missing_input():
            return Forecast(65, self.disk, self.lock)
        target, modified = self._to_take(force=force)
        if modified and not force:
            return Forecast(6, self.disk, self.lock)
        for path, original in {**target, **modified}.items():
            self.store.contents.add(self.disk[path])
            self._put(path, original)
        return Forecast(0, self.disk, self.lock)

    def _put(self, path: str, text: str | None) -> None:
        if text is None:
            self.disk.pop(path, None)
        else:
            self.disk[path] = text

    def _to_take(self, *, force: bool) -> tuple[dict[str, str | None], dict[str, str | None]]:
        names = {stage.name for stage in self.declared}
        kept = [m for m in [*self.store.records, *self.store.retained] if m.failed and m.stage in names]
        records = [*self.lock.all(), *kept]
        target: dict[str, str | None] = {}
        modified: dict[str, str | None] = {}
        for path in {path for made in records for path in made.outputs if path in self.disk}:
            originals = [made.originals.get(path) for made in records]
            original = next((text for text in originals if text is not None), None)
            if self.disk[path] == original:
                continue
            if not self.makers(path, self.disk[path]):
                modified[path] = original
            elif not self.is_accepted(path) or force:
                target[path] = original
        return target, modified

    def release(self, name: str) -> Forecast:
        """Give the files of a stage to the user."""
        if self._missing_input():
            return Forecast(65, self.disk, self.lock)
        known = {
            n: m for n, m in {**self.lock.retained, **self.lock.results}.items() if name in (n, n.partition("@")[0])
        }
        kept = [m for m in [*self.store.records, *self.store.retained] if m.failed and m.stage == name]
        found = False
        for made in [*known.values(), *kept]:
            there = {path: self.disk[path] for path in made.outputs if path in self.disk}
            if there:
                found = True
                self.store.released |= set(there.items())
                self.store.retained.append(replace(made, outputs=there, accepted=frozenset(there), failed=True))
        if not found:
            return Forecast(66, self.disk, self.lock)
        results = {n: m for n, m in self.lock.results.items() if n not in known}
        retained = {n: m for n, m in self.lock.retained.items() if n not in known}
        return Forecast(0, self.disk, Lock(results, retained))


def _same(one: Bases, other: Bases) -> bool:
    return {p: t for p, t in one if t is not None} == {p: t for p, t in other if t is not None}


def _meets(reader: Stage, writer: Stage) -> bool:
    for pattern in reader.inputs:
        for out in writer.outputs:
            if fnmatch(out, pattern) or (out.endswith("/") and pattern.startswith(out)):
                return True
    return False


def answered(stage: Stage, inputs: Mapping[str, str], base: Mapping[str, str]) -> Files:
    """Return what the echo model writes."""
    lines = [line for path, text in inputs.items() for line in text.splitlines()]
    if stage.item:
        item = json.loads(stage.item)
        lines = [f"{path}: {item['text']}" for path in item["files"]]
    wanted = [line.partition(": ")[::2] for line in lines]
    return {path: base.get(path, "") + addition(text) for path, text in wanted}


def computed(stage: Stage, inputs: Mapping[str, str]) -> str:
    """Return what a program of the pipelines, or a template, makes."""
    if stage.kind == "render":
        return "".join(f"<{path}>{text}" for path, text in inputs.items())
    return "".join(text for _, text in sorted(inputs.items()))
