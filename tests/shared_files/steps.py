"""The steps of a history: what users do to a project and its repository."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.project import Outcome
from tests.repository import EchoModel, Repository
from tests.shared_files.merges import Part, merge
from tests.shared_files.setup import (
    KEYS,
    LLM_SLOTS,
    PATHS,
    SPECS,
    Setup,
    Step,
    formatted,
    item,
    pipeline_text,
    slot_of,
    spec_text,
    stage_text,
    tidy,
)
from tests.shared_files.values import Lock, Store

# ---- what went wrong -------------------------------------------------------------------------------


class BrokenError(AssertionError):
    """An invariant does not hold, or a build did something else than the rules say."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def require(holds: object, kind: str, text: str) -> None:
    """Fail with a kind and a text unless something holds."""
    if not holds:
        raise BrokenError(kind, text)


# ---- playing ---------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What one run of orch23 did."""

    outcome: Outcome
    ends: dict[str, str]
    decisions: dict[str, str]
    restored: set[str]
    bases: list[dict[str, str]]


@dataclass
class Steps:
    """A project, what users do to it, and what the model knows of it."""

    folder: Path
    setup: Setup
    say: Callable[[str], None] = lambda _text: None
    edits: int = 0
    clones: int = 0
    lost: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    by_hand: set[str] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)
    """The bytes that a user wrote last at a path, as long as they are there."""

    def __post_init__(self) -> None:
        """Place the project."""
        self.taken: dict[tuple[Path, str], Lock] = {}
        self.model = EchoModel()
        self.repository = Repository(self.folder / "p")
        self.stores: dict[Path, Store] = {}
        self.locks: dict[str, Lock] = {}
        self.blobs: dict[str, str] = {}
        self.committed_texts: set[str] = set()
        self.head: dict[str, str] = {}
        self.repository.write(self.setup.files())
        if self.setup.git:
            self.repository.init()
            self._make_commit()

    # ---- the project as it is ----

    def disk(self) -> dict[str, str]:
        """Return all files but those that orch23 and git keep for themselves."""
        found = {}
        root = str(self.repository.root)
        stack = [""]
        while stack:
            folder = stack.pop()
            with os.scandir(f"{root}/{folder}") as entries:
                for entry in entries:
                    path = f"{folder}{entry.name}"
                    if path in (".git", ".orch23", "logs"):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(f"{path}/")
                    else:
                        found[path] = Path(entry.path).read_text()
        return found

    @property
    def store(self) -> Store:
        """Return what the model knows of the store of today's folder."""
        return self.store_of(self.repository.root)

    def store_of(self, root: Path) -> Store:
        """Return what the model knows of the store of a folder."""
        return self.stores.setdefault(root, Store())

    def known_locks(self, disk: Mapping[str, str]) -> dict[str, Lock]:
        """Return what the lock files on disk know."""
        found = {}
        for name in "ab":
            text = disk.get(f"{name}.lock")
            if text is None:
                found[name] = self.taken.get((self.repository.root, name), Lock())
                for made in found[name].results.values():
                    older = [one for one in self.store.records if one.stage == made.stage and one.is_on(disk)]
                    if older and not made.is_on(disk):
                        self.lose("the lock file is gone, and an older result is on disk as a whole: that one counts")
            elif text in self.locks:
                found[name] = self.locks[text]
            else:
                self.lose("a lock file that the model has not seen")
        return found

    def lose(self, why: str) -> None:
        """Give up to foresee; the invariants are still checked."""
        self.lost = self.lost or why

    def _make_commit(self, *paths: str) -> None:
        for text in self.disk().values():
            self.blobs[blob(text)] = text
        self.repository.commit(*paths)
        self._read_head()

    def _read_head(self) -> None:
        listed = self.repository.git("ls-tree", "-r", "-z", "HEAD")
        found = [line.partition("\t")[::2] for line in listed.split("\0") if line]
        self.head = {path: self.blobs[words.split()[2]] for words, path in found}
        self.committed_texts.update(self.head.values())

    def declared(self, name: str) -> dict[str, Any]:
        """Return the stages of a pipeline file."""
        path = f"{name}.yaml"
        if not self.repository.exists(path):
            return {}
        return dict(json.loads(self.repository.read(path))["stages"])

    def _redeclare(self, name: str, stages: Mapping[str, Any]) -> None:
        self.repository.write({f"{name}.yaml": pipeline_text(name, stages)})

    def _home(self, slot: str) -> tuple[str, str] | None:
        """Return the pipeline and the name of a slot's stage, None where it is not declared."""
        for name in "ab":
            for stage in self.declared(name):
                if slot_of(stage) == slot:
                    return name, stage
        return None

    # ---- steps ----

    def play(self, step: Step) -> bool:
        """Play a step; return whether there was anything to do."""
        kind, *rest = step
        done = getattr(self, f"_{kind}")(*rest)
        self.counts[kind] += done is not False
        return done is not False

    def _spec(self, slot: str, revision: str) -> bool:
        if slot in ("tidy", "polish"):
            return self._change(slot, lambda body: body.update(shell=tidy(slot, revision)))
        text = spec_text(slot, revision)
        if self.repository.read(SPECS[slot]) == text:
            return False
        self.repository.write({SPECS[slot]: text})
        return True

    def _edit(self, path: str, line: str = "# u{}\n") -> bool:
        self.edits += 1
        before = self.repository.read(path) if self.repository.exists(path) else ""
        if not before and "site" in path:
            return False  # a file of one's own in a folder that a stage owns is another story
        text = before + line.format(self.edits)
        self.repository.write({path: text})
        self.written[path] = text
        self.by_hand.add(text)
        return True

    def _drop_line(self, path: str) -> bool:
        """Write a line for which a program deletes the file."""
        done = self._edit(path, "# drop u{}\n")
        self.written.pop(path)
        return done

    def _break(self, path: str) -> bool:
        return self._edit(path, "# bad u{}\n") if self.repository.exists(path) else False

    def _delete(self, path: str) -> bool:
        if not self.repository.exists(path):
            return False
        self.repository.delete(path)
        self.written.pop(path, None)
        return True

    def _revert(self, path: str) -> bool:
        if path not in self.head or self.disk().get(path) == self.head[path]:
            return False
        self.repository.git("checkout", "-q", "HEAD", "--", path)
        self.written.pop(path, None)
        if self.head[path] in self.by_hand:
            self.written[path] = self.head[path]
        return True

    def _rename(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        pipeline, name = found
        other = slot if name.endswith("2") else f"{slot}2"
        self._redeclare(pipeline, {other if n == name else n: b for n, b in self.declared(pipeline).items()})
        return True

    def _drop(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        pipeline, name = found
        self._redeclare(pipeline, {n: b for n, b in self.declared(pipeline).items() if n != name})
        return True

    def _add(self, slot: str) -> bool:
        if self._home(slot) is not None:
            return False
        self._redeclare("a", {slot: stage_text(slot, self.setup), **self.declared("a")})
        return True

    def _change(self, slot: str, change: Callable[[dict[str, Any]], None]) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        pipeline, name = found
        stages = self.declared(pipeline)
        before = json.dumps(stages[name])
        change(stages[name])
        self._redeclare(pipeline, stages)
        return json.dumps(stages[name]) != before

    def _switch(self, slot: str) -> bool:
        def change(body: dict[str, Any]) -> None:
            if "if" in body:
                del body["if"]
            else:
                body["if"] = False

        return self._change(slot, change)

    def _keep(self, slot: str) -> bool:
        def change(body: dict[str, Any]) -> None:
            if "llm" not in body or body.get("foreach", {}).get("promote") == "together":
                return
            if "on_failure" in body:
                del body["on_failure"]
            else:
                body["on_failure"] = "keep"

        return self._change(slot, change)

    def _items(self, slot: str, names: Sequence[tuple[str, str]]) -> bool:
        def change(body: dict[str, Any]) -> None:
            body["foreach"]["in"] = [item(slot, name, revision) for name, revision in names]

        return self._change(slot, change)

    def _move(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None or not self.setup.two:
            return False
        pipeline, name = found
        other = "b" if pipeline == "a" else "a"
        body = self.declared(pipeline)[name]
        self._redeclare(pipeline, {n: b for n, b in self.declared(pipeline).items() if n != name})
        self._redeclare(other, {**self.declared(other), name: body})
        return True

    def _share(self, slot: str) -> bool:
        """Declare a stage in the other pipeline as well, or take it out there again; the list of items may differ."""
        found = self._home(slot)
        if found is None or not self.setup.two or found[0] != "a":
            return False
        stages = self.declared("b")
        name = f"{slot}2" if found[1] == slot else slot
        there = [stage for stage in stages if slot_of(stage) == slot]
        if there:
            self._redeclare("b", {stage: body for stage, body in stages.items() if stage not in there})
        else:
            body = {**self.declared("a")[found[1]], "desc": "shared"}
            if "foreach" in body:
                return False
            self._redeclare("b", {**stages, name: {**body, "salt": "b"}})
        return True

    def _branch(self, name: str) -> bool:
        if not self.setup.git:
            return False
        self._make_commit()
        known = self.repository.git("branch", "--format=%(refname:short)").split()
        self.repository.git("checkout", "-q", *([] if name in known else ["-b"]), name)
        self._read_head()
        disk = self.disk()
        self.written = {path: text for path, text in self.written.items() if disk.get(path) == text}
        return True

    def _lockless(self, name: str) -> bool:
        """Delete a lock file; the store of the folder knows as much, so what follows is as if it was there."""
        text = self.disk().get(f"{name}.lock")
        if text is None:
            return False
        if text not in self.locks:
            self.lose("a lock file that the model has not seen")
        self._take_lock((self.repository.root, name), self.locks.get(text, Lock()))
        self.repository.delete(f"{name}.lock")
        return True

    def _take_lock(self, place: tuple[Path, str], known: Lock) -> None:
        self.taken[place] = known
        store = self.store_of(place[0])
        names = {made.stage for made in known.all()} | {"zero-a", "zero-b"}
        ended = [made.stage for made in store.records if made.stage not in names]
        if ended:
            self.lose("the lock file is gone, and a stage that had ended counts again")
        if known.retained:
            self.lose("the lock file is gone beside a reset: the store has only what was on disk")
        if known.others or any(made not in store.records for made in known.results.values()):
            self.lose("the lock file is gone, and with it results of others that no build of this folder has read")
        if any(path in made.outputs for made in known.results.values() for path, _ in store.released):
            self.lose("the lock file is gone, which alone knows that a released file has an owner again")

    def _format(self, slot: str) -> bool:
        """Change all outputs of a stage, as a formatter does."""
        disk = self.disk()
        there = [path for path in PATHS[slot] if path in disk and not disk[path].endswith("f\n")]
        edited = [self._edit(path, "# u{} f\n") for path in there]
        return any(edited)

    def _hook(self, slot: str) -> bool:
        """Format the outputs of a stage, as a hook of git does: they are not edits if the stage has this formatter."""
        disk = self.disk()
        there = {path: formatted(disk[path]) for path in PATHS[slot] if path in disk and slot in LLM_SLOTS}
        there = {path: text for path, text in there.items() if text != disk[path]}
        self.repository.write(there)
        self.written |= {path: text for path, text in there.items() if path in self.written}
        return bool(there)

    def _key(self, slot: str, key: str) -> bool:
        """Add a key to a stage, or take it out again."""

        def change(body: dict[str, Any]) -> None:
            if key in body:
                del body[key]
            elif {key, *body} & {"once", "on_edit"} != {"once", "on_edit"}:
                body[key] = KEYS[key]

        return self._change(slot, change)

    def _merge(self, theirs: Part, mine: Part, lock: str, files: str) -> bool:
        return merge(self, theirs, mine, lock, files)

    def _clone(self, how: str) -> bool:
        if not self.setup.git:
            return False
        self._make_commit()
        self.clones += 1
        former = self.repository
        self.repository = former.clone(self.folder / f"clone{self.clones}", store=how == "store")
        self.stores[self.repository.root] = (
            self.store_of(former.root).copy() if how == "store" else Store(complete=False)
        )
        if how == "store":
            before = {name: lock for (root, name), lock in self.taken.items() if root == former.root}
            self.taken |= {(self.repository.root, name): lock for name, lock in before.items()}
        if self.setup.transcripts:
            self.stores[self.repository.root].responses |= self.stores.get(former.root, Store()).responses
        return True


def internal(path: str) -> bool:
    """Return whether a file is one that orch23 keeps among the others."""
    return path.endswith(".lock") or path.startswith("kept/")


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the paths at which two trees differ."""
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def blob(text: str) -> str:
    """Return git's name for some bytes."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
