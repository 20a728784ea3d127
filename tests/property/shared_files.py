"""Histories of a project whose files users, git and several stages share, played through the real thing.

    python -m tests.property.shared_files --seeds 0-2000

After every step the invariants of `Player` are checked, and builds are compared with the rules of `ownership.py`. A
history that fails is shortened and printed as a script that can be read and played again.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.project import Outcome
from tests.property.ownership import Forecast, Lock, Rules, Store, UnsureError, stages_of
from tests.repository import LLM, PROMPT, PROMPT_TEXT, EchoModel, Repository

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
Step = tuple[Any, ...]
LENGTH = 16

PAGE = "page.txt.j2"
PAGE_TEXT = "{% for one in inputs %}<{{ one.path }}>{{ one.text }}{% endfor %}"
SPECS = {"feature": "FEATURE.md", "gen": "GEN.md", "site": "SITE.md", "copy": "COPY.md"}
EXISTED = {"src/m.py": "# base of m\n", "src/app.py": "# base of app\n"}
ITEMS = ("x", "y", "z")
SLOTS = ("feature", "gen", "site", "chain", "par", "copy", "page", "lit")
REVISIONS = ("p", "q", "r", "bad")
SITES = ("a p|b p", "a p", "a q|b p", "b q", "a p|c p", "a bad|b p")
PATHS = {
    "feature": ("src/m.py",),
    "gen": ("src/gen.py",),
    "site": ("site/a.py", "site/b.py", "site/c.py"),
    "chain": ("src/app.py",),
    "par": tuple(f"tests/test_{one}.py" for one in ITEMS),
    "copy": ("build/copy.txt",),
    "page": ("build/page.txt",),
    "lit": ("build/lit.txt",),
}


# ---- the pipeline files ----------------------------------------------------------------------------


def spec_text(slot: str, revision: str) -> str:
    """Return the text of a slot's spec."""
    if slot == "site":
        words = [part.split() for part in revision.split("|")]
        return "".join(f"site/{name}.py: {text}\n" for name, text in words)
    return f"{PATHS[slot][0]}: {revision}\n"


def item(slot: str, name: str, revision: str) -> dict[str, Any]:
    """Return an item of a foreach."""
    path = "src/app.py" if slot == "chain" else f"tests/test_{name}.py"
    return {"id": name, "files": [path], "text": revision}


def stage_text(slot: str, setup: "Setup") -> dict[str, Any]:
    """Return the declaration of a slot's stage, as it is at first."""
    where = {"site": "site/", "chain": "src/app.py", "par": "${{ one.files[0] }}"}.get(slot, PATHS[slot][0])
    asked: dict[str, Any] = {
        "llm": {"context": {"own_outputs": setup.own_outputs}},
        "retry": 0,
        "verify": [{"shell": f"! grep -rq bad {where}"}],
    }
    if setup.transcripts:
        asked["llm"] |= {"transcripts": "kept"}
    match slot:
        case "feature" | "gen":
            return {"inputs": [SPECS[slot]], "outputs": list(PATHS[slot]), **asked}
        case "site":
            return {"inputs": [SPECS[slot]], "outputs": ["site/"], **asked}
        case "chain" | "par":
            how: dict[str, Any] = {"in": [item(slot, name, "p") for name in ITEMS[:2]], "key": "id", "as": "one"}
            if slot == "chain":
                how["order"] = "sequential"
            elif setup.together:
                how["promote"] = "together"
            return {
                "foreach": how,
                "outputs": ["src/app.py" if slot == "chain" else "tests/test_${{ one.id }}.py"],
                **asked,
            }
        case "copy":
            return {"inputs": ["COPY.md"], "outputs": ["build/copy.txt"], "shell": "cat COPY.md > build/copy.txt"}
        case "page":
            reads = ["src/*.py", "tests/*.py", "site/*.py"]
            return {"inputs": reads, "outputs": ["build/page.txt"], "render": PAGE}
        case "lit":
            return {
                "inputs": ["src/gen.py"],
                "outputs": ["build/lit.txt"],
                "shell": "cat src/gen.py > build/lit.txt",
            }
    raise AssertionError(slot)


@dataclass(frozen=True)
class Setup:
    """What of a project does not change in its history."""

    slots: tuple[str, ...]
    git: bool = True
    together: bool = False
    own_outputs: bool = False
    transcripts: bool = False
    two: bool = False

    def files(self) -> dict[str, str]:
        """Return the files of the project before its first build."""
        found = {**EXISTED, PROMPT: PROMPT_TEXT, PAGE: PAGE_TEXT, "README.md": "hello\n"}
        found |= {path: spec_text(slot, SITES[0] if slot == "site" else "p") for slot, path in SPECS.items()}
        found["a.yaml"] = pipeline_text("a", {slot: stage_text(slot, self) for slot in self.slots})
        if self.two:
            found["b.yaml"] = pipeline_text("b", {})
        return found


def pipeline_text(name: str, stages: Mapping[str, Any]) -> str:
    """Return a pipeline file; one stage is always there, so that no file is without stages."""
    zero = {"inputs": ["README.md"], "outputs": [f"build/zero-{name}.txt"], "render": PAGE}
    document = {
        "version": 1,
        "name": name,
        "jobs": 1,
        "defaults": {"llm": dict(LLM)},
        "stages": {**stages, f"zero-{name}": zero},
    }
    return json.dumps(document, indent=1) + "\n"


def slot_of(family: str) -> str:
    """Return the slot of a stage, which may have been renamed."""
    return family.rstrip("2")


# ---- histories -------------------------------------------------------------------------------------


def make_setup(chance: random.Random) -> Setup:
    """Draw a project."""
    count = chance.choice([1, 1, 2, 2, 3, 4])
    slots = tuple(slot for slot in SLOTS if slot in chance.sample(SLOTS, count))
    if not set(slots) & {"feature", "gen", "site", "chain", "par"}:
        slots = (chance.choice(["feature", "gen", "site", "chain", "par"]), *slots)
    if "lit" in slots and "gen" not in slots:
        slots = (*slots, "gen")
    return Setup(
        slots=slots,
        git=chance.random() < 0.85,
        together=chance.random() < 0.5,
        own_outputs=chance.random() < 0.2,
        transcripts=chance.random() < 0.15,
        two=chance.random() < 0.3,
    )


WEIGHTS = {
    "spec": 12,
    "edit": 9,
    "break": 1,
    "delete": 2,
    "revert": 3,
    "accept": 7,
    "commit": 9,
    "rename": 4,
    "drop": 4,
    "add": 5,
    "switch": 3,
    "items": 6,
    "move": 4,
    "branch": 3,
    "clone": 2,
    "reset": 2,
    "clean": 2,
    "release": 2,
    "keep": 2,
    "build": 30,
}


def make_steps(chance: random.Random, setup: Setup, length: int, without: Sequence[str] = ()) -> list[Step]:
    """Draw a history: changes, with builds in between."""
    steps: list[Step] = [("build", "a")]
    kinds = [kind for kind in WEIGHTS if kind not in without]
    weights = [WEIGHTS[kind] for kind in kinds]
    while len(steps) < length:
        steps.append(make_step(chance, setup, chance.choices(kinds, weights)[0]))
    return [*steps, ("build", "a"), *([("build", "b")] if setup.two else [])]


def make_step(chance: random.Random, setup: Setup, kind: str) -> Step:
    """Draw one step; whether there is anything to do is seen when it is played."""
    slot = chance.choice(setup.slots)
    path = chance.choice(PATHS[slot])
    match kind:
        case "spec":
            written = [one for one in setup.slots if one in SPECS]
            if not written:
                return make_step(chance, setup, "items")
            slot = chance.choice(written)
            return (
                kind,
                slot,
                chance.choices(
                    SITES if slot == "site" else REVISIONS, [4, 4, 4, 1, 1, 1][: 6 if slot == "site" else 4]
                )[0],
            )
        case "edit" | "break" | "delete" | "revert":
            return (kind, path)
        case "accept" | "rename" | "drop" | "add" | "switch" | "keep" | "release":
            return (kind, slot)
        case "items":
            listed = [one for one in setup.slots if one in ("chain", "par")]
            if not listed:
                return ("edit", path)
            names = [name for name in ITEMS if chance.random() < 0.65] or ["x"]
            chance.shuffle(names)
            revisions = [chance.choices(REVISIONS, [5, 3, 1, 1])[0] for _ in names]
            return (kind, chance.choice(listed), tuple(zip(names, revisions, strict=True)))
        case "commit":
            return (kind, chance.choices(["all", "outputs", "sources"], [8, 1, 1])[0])
        case "move":
            return (kind, slot) if setup.two else ("edit", path)
        case "branch":
            return (kind, chance.choice(["main", "one", "two"]))
        case "clone":
            return (kind, chance.choice(["bare", "store"]))
        case "reset":
            return (kind, chance.choice(["", "--outputs"]))
        case "clean":
            return (kind, chance.choice(["", "", "--force"]))
        case _:
            pipeline = "b" if setup.two and chance.random() < 0.4 else "a"
            return ("build", pipeline, *(["--overwrite-edited"] if chance.random() < 0.05 else []))


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
class Player:
    """Plays the steps of one history and checks, after each of them, what always has to hold."""

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
        """Lay the project."""
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
                found[name] = Lock()
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
        stages = {stage: body for stage, body in stages.items() if not stage.startswith("zero")}
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

    def _commit(self, what: str) -> bool:
        if not self.setup.git:
            return False
        disk = self.disk()
        outputs = [path for paths in PATHS.values() for path in paths if path in disk or path in self.head]
        sources = [p for p in disk.keys() | self.head.keys() if p not in outputs and not p.endswith(".lock")]
        before = self._plans()
        paths = {"all": (), "outputs": outputs, "sources": sources}[what]
        if what != "all" and not paths:
            return False
        self._make_commit(*paths)
        self._same_plans(before, "commit")
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
        if self.setup.transcripts:
            self.stores[self.repository.root].responses |= self.stores.get(former.root, Store()).responses
        return True

    # ---- commands of orch23 ----

    def orch23(self, *argv: str) -> Seen:
        """Run orch23 and check what holds of every command."""
        journals = len(self.repository.journals())
        calls = len(self.model.calls)
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            outcome = self.repository.run(*argv)
        self.say(f"    $ orch23 {' '.join(argv)}  -> {outcome.code}")
        for line in (outcome.out + outcome.err).splitlines():
            self.say(f"      | {line}")
        require(outcome.code in (0, 1, 6, 64, 65, 66), "code", f"{argv} exited with {outcome.code}:\n{outcome.err}")
        ends: dict[str, str] = {}
        decisions: dict[str, str] = {}
        if len(self.repository.journals()) > journals:
            for event in self.repository.events():
                if event["type"] == "stage_finished":
                    ends[event["role"]] = event["data"]["status"]
                elif event["type"] == "stage_decided":
                    decisions[event["role"]] = event["data"]["decision"]
        restored = {name for name, end in ends.items() if end in ("restored", "held")}
        bases = [dict(asked.base) for asked in self.model.calls[calls:]]
        self._no_leftovers(argv)
        return Seen(outcome, ends, decisions, restored, bases)

    def _no_leftovers(self, argv: Sequence[str]) -> None:
        for folder, folders, names in os.walk(self.repository.root):
            if folder == str(self.repository.root) and ".git" in folders:
                folders.remove(".git")
            temps = [name for name in names if name.startswith(".orch23-") and name.endswith(".tmp")]
            require(not temps, "I5", f"{argv} left temporary files {temps} in {folder}")
            require("promote.json" not in names, "I5", f"{argv} left a promotion unfinished")
            if folder.endswith("/.orch23/rooms"):
                require(not folders, "I5", f"{argv} left sandbox directories {folders}")

    def _build(self, pipeline: str, *flags: str) -> bool:
        if not self.repository.exists(f"{pipeline}.yaml"):
            return False
        before = self.disk()
        forecast = self._foresee(pipeline, before, lambda rules: rules.build(), overwrite=bool(flags))
        planned = self._plan(pipeline, *flags)
        seen = self.orch23("build", f"{pipeline}.yaml", "-k", *flags)
        after = self.disk()
        self._nothing_is_lost(pipeline, before, after, seen, forced=bool(flags))
        self._ended_stages_revert_nothing(pipeline, before, after)
        self._as_planned(planned, seen)
        if forecast is not None:
            self._as_foreseen(forecast, pipeline, before, after, seen)
        self._learn(after, forecast, pipeline)
        self.counts[f"exit {seen.outcome.code}"] += 1
        if seen.outcome.code in (0, 1, 6) and not flags:
            self._again(pipeline, seen, after)
        if seen.outcome.code == 0 and forecast is not None and self.counts["exit 0"] % 4 == 0:
            self._clean_build(pipeline, after)
        return True

    def _plan(self, pipeline: str, *flags: str) -> tuple[int, dict[str, str]]:
        outcome = self.repository.run("plan", "--json", f"{pipeline}.yaml", *flags)
        if outcome.code:
            return outcome.code, {}
        return 0, {one["stage"]: one["action"] for one in outcome.json()["stages"]}

    def _plans(self) -> dict[str, tuple[int, dict[str, str]]]:
        return {name: self._plan(name) for name in "ab" if self.repository.exists(f"{name}.yaml")}

    def _same_plans(self, before: Mapping[str, tuple[int, dict[str, str]]], step: str) -> None:
        """I4: a commit or an accept alone makes nothing stale."""
        for name, (code, planned) in before.items():
            if code or not planned or set(planned.values()) - {"fresh", "skipped"}:
                continue
            now = self._plan(name)
            require(now[1] == planned, "I4", f"after a {step} the plan of {name}.yaml changed from {planned} to {now}")

    def _as_planned(self, planned: tuple[int, dict[str, str]], seen: Seen) -> None:
        """I4: a build does what the plan said."""
        code, actions = planned
        require(
            bool(code) == (seen.outcome.code in (65, 66)),
            "I4",
            f"plan exited with {code}, build with {seen.outcome.code}",
        )
        stopped = {"failed", "edited", "held", "blocked"} & set(seen.ends.values())
        for name, action in actions.items():
            did = seen.decisions.get(name) or seen.ends.get(name, "")
            if not seen.ends and action in ("fresh", "skipped"):
                continue  # the build had nothing to do and has no journal
            if action == "maybe":
                agrees = did in {"fresh", "restore", "verify", "run", "blocked"} or bool(stopped)
            else:
                found = action == "run" and did == "restore" and not self.store.complete  # bytes of another stage
                agrees = found or did == action or (did in ("blocked", "failed") and bool(stopped)) or not did
            require(agrees, "I4", f"{name}: plan said {action}, build did {did or 'nothing'} ({seen.ends})")

    def _again(self, pipeline: str, seen: Seen, after: Mapping[str, str]) -> None:
        """I4: a second build does nothing, or reports the same again."""
        calls = len(self.model.calls)
        again = self.orch23("build", f"{pipeline}.yaml", "-k")
        require(
            len(self.model.calls) == calls, "I4", f"a second build asked the model again: {self.model.calls[calls:]}"
        )
        now = self.disk()
        require(now == after, "I4", f"a second build changed {differing(after, now)}")
        require(
            again.outcome.code == seen.outcome.code or seen.restored,
            "I4",
            f"exit {seen.outcome.code}, then {again.outcome.code}",
        )
        stuck = {name: end for name, end in seen.ends.items() if end in ("failed", "edited", "held", "blocked")}
        still = {name: end for name, end in again.ends.items() if end in ("failed", "edited", "held", "blocked")}
        require(stuck == still, "I4", f"stuck {stuck}, then {still}")
        moving = {name: end for name, end in again.ends.items() if end in ("built", "restored", "verified")}
        require(not moving, "I4", f"a second build did {moving}")
        status = self.repository.run("status", "--exit-code", f"{pipeline}.yaml")
        require(
            (status.code == 0) == (again.outcome.code == 0), "I4", f"status {status.code}, build {again.outcome.code}"
        )
        if again.outcome.code == 0:
            text = again.outcome.out + again.outcome.err
            require("up to date" in text, "I4", f"a second build had something to do:\n{text}")

    def _accept(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        pipeline, name = found
        before = self.disk()
        forecast = self._foresee(pipeline, before, lambda rules: rules.accept(name))
        planned = self._plan(pipeline)[1]
        seen = self.orch23("accept", f"{pipeline}.yaml", name)
        after = self.disk()
        require(not seen.bases, "I4", f"accept asked the model: {seen.bases}")
        changed = differing(before, after)
        require(not [path for path in changed if not internal(path)], "I1", f"accept changed {changed}")
        if forecast is not None:
            require(
                seen.outcome.code == forecast.code,
                "model: accept",
                f"accept: foreseen {forecast.code}, got {seen.outcome.code}\n{seen.outcome.err}",
            )
        self._learn(after, forecast, pipeline)
        if seen.outcome.code == 0:
            now = self._plan(pipeline)[1]
            if slot == "chain":
                return True  # the edit is the last made item's; a later one that was never made has to run
            stale = {
                n: a
                for n, a in now.items()
                if n.partition("@")[0] == name and a not in ("fresh", "maybe", planned.get(n))
            }
            require(not stale, "I4", f"after accept {stale}, before it {planned}")
        return seen.outcome.code != 64

    def _reset(self, flag: str) -> bool:
        return self._each("reset", flag, lambda rules: rules.reset(outputs=bool(flag)))

    def _clean(self, flag: str) -> bool:
        return self._each("clean", flag, lambda rules: rules.clean(force=bool(flag)))

    def _each(self, command: str, flag: str, ask: Callable[[Rules], Forecast]) -> bool:
        """Run a command on every pipeline. I1: it takes back what stages made, and nothing that a user wrote."""
        for name in "ab":
            if not self.repository.exists(f"{name}.yaml"):
                continue
            before = self.disk()
            forecast = self._foresee(name, before, ask)
            seen = self.orch23(command, *([flag] if flag else []), f"{name}.yaml")
            after = self.disk()
            for path in differing(before, after):
                if internal(path):
                    continue
                mine = self.written.get(path) == before.get(path)
                require(not mine or flag == "--force", "I1", f"{command} discarded the user's {path}: {before[path]!r}")
                self.written.pop(path, None)
            self._compare(command, forecast, after, seen)
            self._learn(after, forecast, name)
        return True

    def _compare(self, command: str, forecast: Forecast | None, after: Mapping[str, str], seen: Seen) -> None:
        if forecast is None:
            return
        wrong = [path for path in differing(forecast.files, after) if not internal(path)]
        told = [(path, "foreseen", forecast.files.get(path), "got", after.get(path)) for path in wrong]
        text = f"foreseen {forecast.code}, got {seen.outcome.code}\n{seen.outcome.err}"
        require(forecast.code == seen.outcome.code, f"model: {command}", text)
        require(not wrong, f"model: {command}", f"{command}: {told}")

    def _release(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        before = self.disk()
        forecast = self._foresee(found[0], before, lambda rules: rules.release(found[1]))
        seen = self.orch23("release", f"{found[0]}.yaml", found[1])
        after = self.disk()
        changed = differing(before, after)
        require(not [path for path in changed if not internal(path)], "I1", f"release changed {changed}")
        self._compare("release", forecast, after, seen)
        self._learn(after, forecast, found[0])
        return seen.outcome.code == 0

    # ---- the invariants of a build ----

    def _nothing_is_lost(
        self, pipeline: str, before: Mapping[str, str], after: Mapping[str, str], seen: Seen, *, forced: bool
    ) -> None:
        """I1: bytes that a user wrote or committed change only by a run that started from them, or as the rules allow."""
        for path in differing(before, after):
            old, new = before.get(path), after.get(path)
            if internal(path) or old is None:
                continue
            self.counts["changed"] += 1
            if forced:
                self.written.pop(path, None)
                continue
            theirs = self.written.get(path) == old
            at_head = self.head.get(path) == old
            marks = {line for line in old.splitlines() if line.startswith(("# u", "# bad u"))}
            kept = {line for line in (new or "").splitlines()}
            from_it = new is not None and new.startswith(old)
            if from_it:
                self.written.pop(path, None)
                continue
            covering = [s for s in stages_of(before[f"{pipeline}.yaml"])[0] if s.covers(path)]
            restored = any(seen.ends.get(s.name) == "restored" for s in covering)
            newer = any(seen.ends.get(s.name) in ("built", "restored", "verified") for s in covering)
            if restored:
                self.counts["restored over"] += theirs or at_head
                undecided = theirs and not at_head and not self._was_accepted(path, old)
                require(
                    not undecided,
                    "I1",
                    f"a restore discarded an edit of {path} that no one decided on: {old!r} -> {new!r}",
                )
                self.written.pop(path, None)
                continue
            if new is None and newer and not theirs and not marks:
                continue  # the newer result of a folder has no such file
            if theirs:
                raise BrokenError("I1", f"the user's bytes of {path} are gone: {old!r} -> {new!r} ({seen.ends})")
            if (
                at_head
                and not (newer and any(s.kind != "llm" for s in covering))
                and not self._created_again(path, pipeline, old)
            ):
                raise BrokenError("I1", f"committed bytes of {path} are gone: {old!r} -> {new!r} ({seen.ends})")
            if marks - kept and all(stage.kind == "llm" for stage in covering):
                raise BrokenError("lineage", f"{path} lost the user's lines {sorted(marks - kept)}: {old!r} -> {new!r}")

    def _was_accepted(self, path: str, text: str) -> bool:
        return any(path in made.accepted and made.outputs[path] == text for made in self.store.records) or bool(
            self.lost
        )

    def _created_again(self, path: str, pipeline: str, old: str) -> bool:
        """Return whether the file is one that only a stage has written: it is generated again, by rule 4."""
        del pipeline
        return path not in EXISTED and not any(line.startswith(("# u", "# bad u")) for line in old.splitlines())

    def _ended_stages_revert_nothing(self, pipeline: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """I2: a file that is committed and that no stage declares stays as it is."""
        declared = [s for name in "ab" if f"{name}.yaml" in before for s in stages_of(before[f"{name}.yaml"])[0]]
        for path, text in before.items():
            if internal(path) or any(stage.covers(path) for stage in declared):
                continue
            if path in self.head:
                require(
                    after.get(path) == text,
                    "I2",
                    f"{path} is committed and no stage makes it; {pipeline} made {after.get(path)!r} of {text!r}",
                )

    # ---- the model ----

    def _foresee(
        self, pipeline: str, disk: Mapping[str, str], ask: Callable[[Rules], Forecast], *, overwrite: bool = False
    ) -> Forecast | None:
        locks = self.known_locks(disk)
        if self.lost:
            return None
        rules = Rules(
            pipeline,
            disk=disk,
            head=self.head,
            locks=locks,
            store=self.store,
            in_git=self.committed_texts,
            overwrite=overwrite,
        )
        try:
            return ask(rules)
        except UnsureError as why:
            self.lose(str(why))
            return None

    def _as_foreseen(
        self, forecast: Forecast, pipeline: str, before: Mapping[str, str], after: Mapping[str, str], seen: Seen
    ) -> None:
        self.counts["foreseen"] += 1
        text = f"foreseen {forecast.ends} ({forecast.code}), got {seen.ends} ({seen.outcome.code})"
        require(forecast.code == seen.outcome.code, "model: code", f"{pipeline}: {text}")
        for name, end in forecast.ends.items():
            got = seen.ends.get(name)
            if got is None and end in ("fresh", "skipped"):
                continue
            require(got == end, "model: end", f"{name}: {text}")
        require(
            forecast.calls == len(seen.bases),
            "model: calls",
            f"foreseen {forecast.calls} with {forecast.bases}, got {seen.bases}; {text}",
        )
        for base in seen.bases:
            require(base in list(forecast.bases.values()), "model: base", f"shown {base}, foreseen {forecast.bases}")
        wanted = {path: t for path, t in forecast.files.items() if not internal(path)}
        there = {path: t for path, t in after.items() if not internal(path)}
        bad = differing(wanted, there)
        require(
            not bad,
            "model: files",
            f"{[(p, before.get(p), 'foreseen', wanted.get(p), 'got', there.get(p)) for p in bad]}; {text}",
        )

    def _learn(self, disk: Mapping[str, str], forecast: Forecast | None, pipeline: str) -> None:
        """Remember what the lock file that is on disk now knows."""
        text = disk.get(f"{pipeline}.lock")
        if forecast is None or text is None:
            return
        if text in self.locks and self.locks[text] != forecast.lock:
            self.counts["lock files that stand for two states"] += 1
        self.locks[text] = forecast.lock

    # ---- the clean build ----

    def _clean_build(self, pipeline: str, after: Mapping[str, str]) -> None:
        """I3: sources, released files and recorded responses alone give the same outputs where no edit is involved."""
        lock = self.locks[after[f"{pipeline}.lock"]] if f"{pipeline}.lock" in after else Lock()
        if any(lock_text in after for lock_text in [f"{name}.lock" for name in "ab" if name != pipeline]):
            return
        owned = {path: made for made in lock.results.values() for path in made.outputs}
        moved = {
            path
            for path, made in owned.items()
            if path in made.accepted or any(dict(made.start).get(p) != made.originals.get(p) for p in dict(made.start))
        }
        if moved:
            return
        clean = Repository(self.folder / "clean")
        files = {path: text for path, text in after.items() if path not in owned and not path.endswith(".lock")}
        for path, made in owned.items():
            original = made.originals.get(path)
            if original is not None:
                files[path] = original
        clean.write(files)
        for folder in ("exchanges",):
            if (self.repository.root / ".orch23" / folder).exists():
                shutil.copytree(self.repository.root / ".orch23" / folder, clean.root / ".orch23" / folder)
        here, calls = self.repository, len(self.model.calls)
        self.repository = clean
        try:
            seen = self.orch23("build", f"{pipeline}.yaml", "-k")
            found = self.disk()
        finally:
            self.repository = here
            shutil.rmtree(clean.root)
        self.counts["clean builds"] += 1
        require(seen.outcome.code == 0, "I3", f"a clean build exited with {seen.outcome.code}: {seen.outcome.err}")
        wrong = [path for path in owned if found.get(path) != after[path]]
        require(not wrong, "I3", f"a clean build gives {[(p, after[p], found.get(p)) for p in wrong]}")
        complete = self.stores.get(here.root, Store()).complete
        require(
            len(self.model.calls) == calls or not complete,
            "I3",
            f"a clean build called the model: {self.model.calls[calls:]}",
        )


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


# ---- runs ------------------------------------------------------------------------------------------


@dataclass
class Played:
    """What came of a history: None, or what went wrong and at which step."""

    counts: Counter[str]
    lost: str = ""
    broken: str = ""
    kind: str = ""
    at: int = 0


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Leave out what makes writes durable: the machine does not die here."""
    with patch("os.fsync", lambda _fd: None), patch("orch23.store.promote.sync_filesystem", lambda _p: None):
        yield


def play(setup: Setup, steps: Sequence[Step], say: Callable[[str], None] = lambda _text: None) -> Played:
    """Play a history from the beginning."""
    with tempfile.TemporaryDirectory(prefix="shared", dir=RAM) as folder, quick():
        player = Player(Path(folder), setup, say)
        with player.model.answering():
            for number, step in enumerate(steps):
                say(f"  {number}: {' '.join(map(str, step))}")
                try:
                    player.play(step)
                except BrokenError as broken:
                    return Played(player.counts, player.lost, str(broken), broken.kind, number)
                except (AssertionError, Exception) as error:  # noqa: BLE001  whatever it is, the history is printed
                    return Played(
                        player.counts, player.lost, f"{type(error).__name__}: {error}", type(error).__name__, number
                    )
    return Played(player.counts, player.lost)


def shorten(setup: Setup, steps: Sequence[Step], kind: str) -> tuple[Setup, list[Step]]:
    """Drop steps and slots as long as the history still goes wrong in the same way."""
    steps = list(steps)
    again = True
    while again:
        again = False
        for size in (4, 2, 1):
            start = len(steps) - size
            while start >= 0:
                fewer = steps[:start] + steps[start + size :]
                if fewer and play(setup, fewer).kind == kind:
                    steps, again = fewer, True
                start -= 1
        for slot in setup.slots:
            slots = tuple(one for one in setup.slots if one != slot)
            less = replace(setup, slots=slots)
            if slots and play(less, steps).kind == kind:
                setup, again = less, True
    return setup, steps


def history(seed: int, length: int = LENGTH, without: Sequence[str] = ()) -> tuple[Setup, list[Step]]:
    """Return the history of a seed, without slots and kinds of steps that are not wanted."""
    chance = random.Random(seed)
    setup = make_setup(chance)
    slots = tuple(slot for slot in setup.slots if slot not in without) or ("feature",)
    setup = replace(setup, slots=slots)
    return setup, make_steps(chance, setup, length, without)


def script(setup: Setup, steps: Sequence[Step]) -> str:
    """Return a history as text that `--script` plays again."""
    return "\n".join([f"setup {setup}", *(f"  {step}" for step in steps)])


def main(argv: Sequence[str] | None = None) -> int:
    """Play a range of seeds, and print what goes wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-200", help="first and last seed, such as 0-2000")
    parser.add_argument("--length", type=int, default=LENGTH, help="steps of a history")
    parser.add_argument("--stop", type=int, default=10, help="stop after so many failures")
    parser.add_argument("--without", default="", help="slots and kinds of steps to leave out, such as release,chain")
    parser.add_argument("--long", action="store_true", help="do not shorten what goes wrong")
    parser.add_argument("--show", action="store_true", help="show all that is played")
    asked = parser.parse_args(argv)
    first, _, last = asked.seeds.partition("-")
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    began = time.monotonic()
    number = 0
    for seed in range(int(first), int(last or first) + 1):
        setup, steps = history(seed, asked.length, asked.without.split(","))
        played = play(setup, steps, print if asked.show else lambda _text: None)
        counts += played.counts
        number += 1
        lost[played.lost or "nothing"] += 1
        if played.broken:
            kinds[played.kind] += 1
            print(f"seed {seed}, step {played.at}: {played.broken[:2000]}")
            if not asked.long:
                setup, steps = shorten(setup, steps[: played.at + 1], played.kind)
                print(script(setup, steps))
                again = play(setup, steps)
                print(f"  => {again.broken[:3000]}\n", flush=True)
            if kinds.total() >= asked.stop:
                break
    print(f"{number} histories in {time.monotonic() - began:.0f} s; broken: {dict(kinds) or 'none'}")
    print(f"foreseen until: {dict(lost)}")
    print(f"steps: {dict(sorted(counts.items()))}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
