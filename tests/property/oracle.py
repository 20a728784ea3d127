"""The nine rules of the staleness as a small program of its own, for a tiny pipeline language: what a build must do.

Written from the text of the rules. No code of the engine is used here: the oracle reads what lies on the disk (files,
lock, records, answers) and says what each stage is, what is asked and run, and what the files are afterwards.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jinja2

from orch23.model.paths import match

PROMPT = "ask.md.j2"
PROMPT_TEXT = """\
{"rev": "%s", "item": {{ item | tojson }}, "brief": {{ (brief.kind if brief else "") | tojson }}, "inputs": [
{%% for one in inputs %%}[{{ one.path | tojson }}, {{ one.slice | tojson }}, {{ one.text | tojson }}]\
{{ "" if loop.last else "," }}
{%% endfor %%}]}
"""
PAGE = "page.txt.j2"
PAGE_TEXT = "page %s{%% for one in inputs %%}|{{ one.path }}#{{ one.slice }}={{ one.text }}{%% endfor %%}"


# ---- what programs and the model compute -----------------------------------------------------------


def run_program(argv: Sequence[str], files: Mapping[str, str]) -> tuple[int, dict[str, str]]:
    """Return the exit code and the files that a program of the tiny language writes. What is in tests/ is no input."""
    match tuple(argv):
        case ("join", tag, out):
            text = "".join(text for path, text in sorted(files.items()) if not path.startswith("tests/"))
            return 0, {out: f"{tag}({text})"}
        case ("head", out):
            text = "".join(text for _, text in sorted(files.items()))
            return 0, {out: text[:3]}
        case ("split", tag, folder):
            text = "".join(text for _, text in sorted(files.items()))
            return 0, {
                f"{folder}{letter}.txt": f"{tag}{letter}" for letter in sorted(set(text) & set("abcd")) or ["none"]
            }
        case ("check", test, out):
            return int(files[test] not in files.get(out, "")), {}
    raise AssertionError(argv)


def answer(question: Mapping[str, Any]) -> str:
    """Return what the model answers to a prompt of the tiny language, as a function of it alone."""
    item = question["item"]
    shown = {path: text for path, part, text in question["inputs"] if not part}
    if "items.txt" in str(sorted(shown)):
        tasks = [
            {"id": word[0], "files": [f"work/{letter}.txt" for letter in word[2:]]}
            for word in shown["src/items.txt"].split()
        ]
        return json.dumps({"rev": question["rev"], "saw": shown.get("work/p.txt"), "tasks": tasks})
    outputs = item["files"] if item else ["alone/solo.txt"]
    name = item["id"] if item else "solo"
    read = "".join(text for path, _, text in question["inputs"] if path not in outputs)
    writes = [
        {"path": path, "content": edited(shown.get(path, ""), question["rev"] + name, read, question["brief"])}
        for path in outputs
    ]
    return json.dumps({"summary": name, "writes": writes, "deletes": [], "error": None})


def edited(base: str, who: str, read: str, brief: str) -> str:
    """Return what the model makes of one file: it keeps what is there, adds what it was shown, and fixes on a brief."""
    return f"{base}[{who}:{read}{'!' if brief else ''}]"


# ---- the pipeline ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sketch:
    """What of the pipeline a history changes: which groups of stages there are, their tags, names and prompts."""

    groups: frozenset[str]
    tags: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    rev: str = "r1"
    page: str = "1"
    transcripts: bool = True
    together: frozenset[str] = frozenset()

    def tag(self, stage: str) -> str:
        return self.tags.get(stage, "T")

    def name(self, stage: str) -> str:
        return self.names.get(stage, stage)


GROUPS: Mapping[str, tuple[str, ...]] = {
    "shells": ("upper", "head", "split", "all"),
    "page": ("page",),
    "solo": ("solo",),
    "chain": ("plan", "code"),
    "par": ("par",),
    "fin": ("fin",),
}


def bodies(sketch: Sketch) -> dict[str, dict[str, Any]]:
    """Return the stages of a sketch, by their own names, as YAML has them."""
    llm = {"prompt": PROMPT}
    every: dict[str, dict[str, Any]] = {
        "upper": {
            "inputs": ["src/a.txt"],
            "outputs": ["build/a.txt"],
            "shell": ["join", sketch.tag("upper"), "build/a.txt"],
        },
        "head": {"inputs": ["build/a.txt"], "outputs": ["build/h.txt"], "shell": ["head", "build/h.txt"]},
        "split": {
            "inputs": ["src/b.txt"],
            "outputs": ["build/split/"],
            "shell": ["split", sketch.tag("split"), "build/split/"],
        },
        "all": {
            "inputs": ["build/h.txt", "build/split/**"],
            "outputs": ["build/all.txt"],
            "shell": ["join", sketch.tag("all"), "build/all.txt"],
            "verify": {
                "first": "off",
                "inputs": ["tests/all.txt"],
                "steps": [{"shell": ["check", "tests/all.txt", "build/all.txt"]}],
            },
        },
        "page": {
            "inputs": ["spec.md#One", {"list": "src/**"}, {"list": "work/**"}, {"list": "build/*"}],
            "outputs": ["build/page.txt"],
            "render": {"template": PAGE},
        },
        "solo": {
            "inputs": ["src/a.txt"],
            "outputs": ["alone/solo.txt"],
            "llm": {**llm, "returns": "files"},
            "verify": {
                "first": "off",  # each run is counted
                "inputs": ["tests/solo.txt"],
                "steps": [{"shell": ["check", "tests/solo.txt", "alone/solo.txt"]}],
            },
            "retry": 1,
        },
        "plan": {
            "inputs": ["src/items.txt", {"path": "work/p.txt", "optional": True}],
            "outputs": ["build/plan.json"],
            "llm": {**llm, "returns": "json"},
        },
        "code": {
            "foreach": {"from": "build/plan.json#/tasks", "key": "id", "as": "task", "order": "sequential"},
            "inputs": ["spec.md#Two"],
            "outputs": ["${{ task.files }}"],
            "allowed_paths": {"write": ["work/"]},
            "llm": {**llm, "returns": "files"},
            "verify": {
                "first": "off",  # each run is counted
                "inputs": ["tests/code.txt"],
                "steps": [{"shell": ["check", "tests/code.txt", "${{ task.files[0] }}"]}],
            },
            "retry": 1,
        },
        "par": {
            "foreach": {"from": "src/pars.json", "as": "one"},
            "inputs": ["src/b.txt"],
            "outputs": ["out/${{ one }}.txt"],
            "shell": ["join", sketch.tag("par") + "${{ one }}", "out/${{ one }}.txt"],
            "verify": {
                "first": "off",  # each run is counted
                "inputs": ["tests/par.txt"],
                "steps": [{"shell": ["check", "tests/par.txt", "out/${{ one }}.txt"]}],
            },
        },
        "fin": {
            "inputs": ["work/**", "alone/**", "out/**"],
            "outputs": ["build/fin.txt"],
            "shell": ["join", sketch.tag("fin"), "build/fin.txt"],
        },
    }
    for stage in sketch.together:
        every[stage]["foreach"]["promote"] = "together"
    wanted = [stage for group in GROUPS if group in sketch.groups for stage in GROUPS[group]]
    return {stage: every[stage] for stage in wanted if stage not in sketch.gone}


def author_files(sketch: Sketch) -> dict[str, str]:
    """Return what the author of the pipeline wrote: the pipeline, its prompt, its template."""
    llm: dict[str, Any] = {"provider": "command", "command": ["true"], "model": "tiny"}
    if sketch.transcripts:
        llm["transcripts"] = "kept"
    document = {
        "version": 1,
        "name": "tiny",
        "defaults": {"llm": llm},
        "jobs": 1,
        "stages": {sketch.name(stage): body for stage, body in bodies(sketch).items()},
    }
    return {
        "pipeline.yaml": json.dumps(document, indent=1),
        PROMPT: PROMPT_TEXT % sketch.rev,
        PAGE: PAGE_TEXT % sketch.page,
    }


# ---- what lies on the disk before a build ----------------------------------------------------------

Files = dict[str, str]  # path -> sha256


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Kept:
    """A record, as JSON has it."""

    stage: str
    manifest: Mapping[str, Any]
    outputs: Files
    deleted: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    originals: Mapping[str, str | None] = field(default_factory=dict)
    bases: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    texts: str = ""
    failed: bool = False


@dataclass
class State:
    """A project: its files, its lock, the records of its store (oldest first), what it holds besides.

    `held` is the store of bytes, `there` the files' own texts by path, `texts` all texts that can be had by their
    digest alone: those of the store and the versions 0 that are kept with the transcripts.
    """

    files: Files
    lock: dict[str, Kept]
    records: list[Kept]
    held: dict[str, str]
    there: dict[str, str]
    texts: dict[str, str]
    answers: dict[str, tuple[str, str]]

    def known(self, path: str, content: str) -> bool:
        return any(one.outputs.get(path) == content for one in (*self.lock.values(), *self.records))


def read_state(root: Path, files: Mapping[str, str]) -> State:
    """Read a project without the help of what wrote it."""
    lock = {}
    if "pipeline.lock" in files:
        document = json.loads(files["pipeline.lock"])
        blocks = {name: block for name, block in document["records"].items() if block is not None}
        lock = {name: _kept(_whole(document["defaults"], name, block)) for name, block in blocks.items()}
    numbered: dict[str, tuple[int, Any]] = {}
    for path in sorted((root / ".orch23/records").glob("*/*")):
        for line in path.read_text().splitlines():
            body = json.loads(line)["body"]
            digest = body.get("again") or sha(_canonical(body["record"]))
            numbered[digest] = (body["n"], body.get("record") or numbered[digest][1])
    records = [_kept(block) for _, block in sorted(numbered.values(), key=lambda one: one[0])]
    held = {path.name: path.read_text() for path in (root / ".orch23/cas").glob("*/*")}
    texts = dict(held)
    answers: dict[str, tuple[str, str]] = {}
    for folder in ("kept", ".orch23/exchanges"):
        for path in sorted((root / folder).glob("**/*")):
            if path.parent.name == "originals":
                texts[path.name] = path.read_text()
            elif path.suffix == ".json" and path.parent.name != "texts":
                body = json.loads(path.read_text())
                asked, response = body["request"]["messages"][0]["content"], body["response"]
                answers[path.stem] = (_text(path.parent, asked), _text(path.parent, response))
    state = State({p: sha(t) for p, t in files.items()}, lock, records, held, dict(files), texts, answers)
    for name, key in _interrupted(root).items():
        found = [one for one in numbered.values() if one[1]["key"] == key and not one[1]["failed"]]
        if found:
            state.lock[name] = _kept(max(found, key=lambda one: one[0])[1])
    return state


def _text(folder: Path, text: str) -> str:
    """Return a text of a transcript, which may be in a file of its own."""
    digest = text.removeprefix("sha256:")
    path = folder / "texts" / f"{digest}.json"
    return "\n".join(json.loads(path.read_text())["lines"]) if digest != text and path.exists() else text


def _whole(defaults: Mapping[str, Any], name: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block of a record with what it leaves out."""
    manifest = {**defaults["manifest"], **block["manifest"]}
    return {"stage": name, **defaults, **block, "manifest": {a: v for a, v in manifest.items() if v is not None}}


def _canonical(body: Any) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _kept(block: Mapping[str, Any]) -> Kept:
    return Kept(
        stage=block["stage"],
        manifest=block["manifest"],
        outputs={path: entry.partition(":")[0] for path, entry in block["outputs"].items()},
        deleted=tuple(block["deleted"]),
        answers=tuple(block["exchanges"]),
        originals={path: entry and entry.partition(":")[0] for path, entry in block["originals"].items()},
        bases={
            path: (start.partition(":")[0], before and before.partition(":")[0])
            for path, (start, before) in block.get("bases", {}).items()
        },
        texts=block.get("texts", ""),
        failed=block["failed"],
    )


def _interrupted(root: Path) -> dict[str, str]:
    """Return what runs that came to no end had finished, stage -> key: they had no time to write the lock."""
    done: dict[str, str] = {}
    for path in sorted((root / "logs").glob("*.jsonl"), reverse=True):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if lines and lines[-1]["type"] == "run_finished":
            break
        for line in reversed(lines):
            data = line["data"]
            if line["type"] == "stage_finished" and data["status"] in ("built", "restored", "verified", "fresh"):
                done.setdefault(line["role"], data["key"])
    return done


# ---- stages ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A stage or an item, rendered."""

    name: str
    own: str
    body: Mapping[str, Any]
    outputs: tuple[str, ...]
    needs: tuple[str, ...] = ()
    chain: str | None = None
    index: int = 0
    item: Any = None
    key: str = ""

    @property
    def together(self) -> bool:
        return bool(self.body.get("foreach", {}).get("promote") == "together")

    @property
    def kind(self) -> str:
        return next(kind for kind in ("shell", "llm", "render") if kind in self.body)

    @property
    def fence(self) -> tuple[str, ...]:
        return ("work/**",) if self.own == "code" else self.outputs

    def filled(self, text: str) -> str:
        return text.replace("${{ one }}", self.key).replace("${{ task.files[0] }}", self.outputs[0])

    @property
    def checks(self) -> tuple[tuple[str, ...], ...]:
        steps = self.body.get("verify", {}).get("steps", ())
        return tuple(tuple(self.filled(arg) for arg in step["shell"]) for step in steps)


@dataclass
class Forecast:
    """What a build must do."""

    decisions: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    programs: list[tuple[str, ...]] = field(default_factory=list)
    files: Files = field(default_factory=dict)


class LostError(Exception):
    """No one has a text any more that is needed."""


GREEN = ("fresh", "restored", "verified", "built")


class Oracle:
    """One build of a sketch, foreseen."""

    def __init__(self, sketch: Sketch, state: State, *, forced: Iterable[str] = (), overwrite: bool = False) -> None:
        self.sketch, self.state, self.overwrite = sketch, state, overwrite
        self.forced = set(forced)
        self.bodies = bodies(sketch)
        self.disk: Files = dict(state.files)
        self.results: dict[str, Kept] = {}
        self.tasks: dict[str, Task] = {}
        self.said = Forecast()
        self.made: set[str] = set()
        self.waiting: dict[str, tuple[Task, Kept, str]] = {}
        self.coming: dict[str, str | None] = {}
        self.starts: dict[str, Files] = {}
        self.in_place: dict[str, frozenset[str]] = {}
        self.ran: set[str] = set()
        environment = jinja2.Environment(keep_trailing_newline=True)
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # docs/prompts.md: as it is
        self.prompt = environment.from_string(PROMPT_TEXT % sketch.rev)

    # ---- the order ----

    def run(self) -> Forecast:
        """Go through everything; all lists are independent of the order but for what an edge demands."""
        plain = [own for own in self.bodies if "foreach" not in self.bodies[own] and own != "fin"]
        for own in plain:
            self._take(self._single(own))
        for own in ("code", "par"):
            if own in self.bodies:
                self._expand(own)
        if "fin" in self.bodies:
            needs = [t.name for t in self.tasks.values() if t.own in ("code", "par", "solo")]
            unexpanded = [n for n in self.said.ends if n in (self.sketch.name("code"), self.sketch.name("par"))]
            self._take(self._single("fin", (*needs, *unexpanded)))
        if all(end in GREEN for end in self.said.ends.values()):
            self._bury()
        self.said.files = self.disk
        return self.said

    def _single(self, own: str, needs: tuple[str, ...] = ()) -> Task:
        after = {"head": ("upper",), "all": ("head", "split")}.get(own, ())
        needs = (*needs, *(self.sketch.name(n) for n in after if n in self.bodies))
        body = self.bodies[own]
        return Task(
            self.sketch.name(own),
            own,
            body,
            tuple(body["outputs"]),
            needs,
            self.sketch.name(own) if "llm" in body else None,
        )

    def _expand(self, own: str) -> None:
        family, body = self.sketch.name(own), self.bodies[own]
        if own == "par":
            keys = json.loads(self.state.there["src/pars.json"])
            for key in keys:
                self._take(Task(f"{family}@{key}", own, body, (f"out/{key}.txt",), item=key, key=key))
            self._end_group(family, len(keys))
            return
        plan = self.sketch.name("plan")
        if self.said.ends[plan] not in GREEN:
            self.said.ends[family] = "blocked"
            return
        tasks = json.loads(self._text("build/plan.json", self.results[plan].outputs["build/plan.json"]))["tasks"]
        items = [
            Task(f"{family}@{t['id']}", own, body, tuple(t["files"]), (plan,), family, index, t, t["id"])
            for index, t in enumerate(tasks)
        ]
        items = [
            one if not i else dataclasses.replace(one, needs=(plan, items[i - 1].name)) for i, one in enumerate(items)
        ]
        self.tasks |= {one.name: one for one in items}
        for one in items:
            self._take(one)
        self._end_group(family, len(items))

    def _chain(self, task: Task) -> list[Task]:
        return [one for one in self.tasks.values() if one.chain == task.chain] if task.chain else [task]

    # ---- one stage ----

    def _take(self, task: Task) -> None:
        self.tasks[task.name] = task
        name, ends = task.name, self.said.ends
        stuck = [need for need in task.needs if need in ends and ends[need] not in GREEN]
        stuck = [need for need in stuck if need not in self.in_place or self._may_see(task, self.in_place[need])]
        if stuck and not (task.chain is not None and self._edits(task)):
            ends[name] = "blocked"
            return
        decision, record = self._decide(task)
        edits = self._left(task, record if decision in ("fresh", "restore") else None)
        if edits:
            self.said.decisions[name] = ends[name] = "edited"
            rest = {p: v for p, v in self._target(task, record).items() if p not in edits} if record else {}
            if record is not None and decision in ("fresh", "restore") and self._matches(rest):
                self.results[name], self.in_place[name] = record, edits
            return
        if stuck:
            ends[name] = "blocked"
            self.said.decisions[name] = decision
            return
        self.said.decisions[name] = decision
        if decision in ("fresh", "restore") and record is not None:
            self._arrive(task, record, {"fresh": "fresh", "restore": "restored"}[decision])
            return
        try:
            done = self._verified(task, record) if decision == "verify" and record else self._attempts(task, None, "")
        except LostError:
            done = None
        if done is None:
            ends[name] = "failed"
            return
        if done is not record:
            self.ran.add(name)
        self._arrive(task, done, "verified" if done is record else "built")

    def _arrive(self, task: Task, record: Kept, end: str) -> None:
        """Rule 6: what is promoted together waits, and counts for the others as if it were there."""
        self.results[task.name] = record
        if task.together:
            self.waiting[task.name] = (task, record, end)
            self.coming |= self._target(task, record) if end != "fresh" else {}
        else:
            self.said.ends[task.name] = "edited" if end != "fresh" and self._promote(task, record) else end

    def _end_group(self, family: str, size: int) -> None:
        """Rule 6: all of them reach the disk, or none; what lock and disk hold already is fresh all the same."""
        whole = len(self.waiting) + sum(name.partition("@")[0] == family for name in self.in_place) == size
        self.coming = {}
        left = {
            name
            for name, (task, record, end) in self.waiting.items()
            if whole and end != "fresh" and self._foreign(task, record)
        }
        for name, (task, record, end) in self.waiting.items():
            assert name.partition("@")[0] == family
            if whole and not left:
                if end != "fresh":
                    self._promote(task, record)
                self.said.ends[name] = end
                continue
            locked = self.state.lock.get(name)
            stands = end == "fresh" and locked is not None and self._matches(self._target(task, record))
            stands = stands and _same(locked.manifest, record.manifest, core=False) if locked else False
            self.said.ends[name] = "edited" if name in left else "fresh" if stands else "held"
        self.waiting = {}

    def _edits(self, task: Task) -> frozenset[str]:
        """Rule 8: the disk equals no record, of any key, of that path, nor what the lock's result started from."""
        if self.overwrite:
            return frozenset()
        paths = {p for t in self._chain(task) for p in t.outputs if not p.endswith("/")}
        paths |= {p for t in self._chain(task) for p in self._former(t.name)}
        edited = {path for path in paths if self._is_edited(path, task.chain is not None)}
        mine = self._former(task.name)
        return frozenset(p for p in edited if p in mine or any(match(one, p) for one in (*task.outputs, *task.fence)))

    def _former(self, name: str) -> Files:
        return self.state.lock[name].outputs if name in self.state.lock else {}

    def _is_edited(self, path: str, chained: bool) -> bool:
        there = self.state.files.get(path)
        if there is None or self.state.known(path, there):
            return False
        bases = [r.bases[path][0] for r in self.state.lock.values() if path in r.bases and path in r.outputs]
        return not (chained and (there == self.original(path) or there in bases))

    def _left(self, task: Task, record: Kept | None) -> frozenset[str]:
        """Return the edits that a stage leaves as they are; a run that starts from one leaves none there."""
        if record is None:
            return frozenset(p for p in self._edits(task) if not self._has_started(task, p, self.state.files[p]))
        edits = set(self._edits(task))
        if task.name not in self.state.lock and not self.overwrite:
            edits |= {p for p in self._target(task, record) if self._is_edited(p, task.chain is not None)}
        later = {p for one in self._chain(task) if one.index > task.index for p in one.outputs}
        return frozenset(p for p in edits if p not in later and record.outputs.get(p) != self.state.files[p])

    def _has_started(self, task: Task, path: str, there: str | None) -> bool:
        if task.chain is None:
            return False
        earlier = [one for one in self._chain(task) if one.index <= task.index]
        return any(self.starts.get(one.name, {}).get(path) == there for one in earlier) or self.original(path) == there

    def _may_see(self, task: Task, paths: frozenset[str]) -> bool:
        reads = [one["path"] if isinstance(one, dict) and "path" in one else one for one in task.body["inputs"]]
        reads = [one.partition("#")[0] for one in reads if isinstance(one, str)]
        reads += task.body.get("verify", {}).get("inputs", ())
        return any(match(one, path) for one in (*reads, *task.outputs, *task.fence) for path in paths)

    def _decide(self, task: Task) -> tuple[str, Kept | None]:
        if task.name in self.forced or task.name.partition("@")[0] in self.forced:
            return "run", None
        aspects = self._choose(task)
        if aspects is None:
            return "run", None
        todays = [one for one in self._records(task) if _same(one.manifest, aspects, core=False)]
        needed = self._needed_by_later(task)
        for record in todays:
            if self._matches(self._target(task, record)) and self._obtainable(task, record, needed):
                return "fresh", record
        for record in todays:
            if self._obtainable(task, record, needed):
                return "restore", record
        if not todays:
            for record in self._records(task):
                if _same(record.manifest, aspects, core=True) and self._obtainable(task, record, whole=True):
                    return "verify", record
        return "run", None

    # ---- the base (ADR 19) ----

    def _choose(self, task: Task) -> dict[str, Any] | None:
        """Return the aspects of a stage on its base: in force, or of an earlier record, or moved; None if unknown."""
        if task.chain is None and task.own != "plan":
            return self._lossy(task)
        lock = self.state.lock.get(task.name)
        in_force = self._in_force(task, lock) if lock is not None else {}
        self.starts[task.name] = in_force
        aspects = self._lossy(task)
        if self._usable(task, aspects):
            return aspects
        tried = [in_force]
        for start in ({}, *(self._in_force(task, one) for one in self._relatives(task))):
            if start in tried:
                continue
            tried.append(start)
            self.starts[task.name] = start
            other = self._lossy(task)
            if other is not None and any(_same(one.manifest, other, core=False) for one in self._records(task)):
                return other
        self.starts[task.name] = in_force
        self.starts[task.name] = self._moved(task, in_force)
        return aspects if self.starts[task.name] == in_force else self._lossy(task)

    def _usable(self, task: Task, aspects: dict[str, Any] | None) -> bool:
        if aspects is None:
            return False
        same = [one for one in self._records(task) if _same(one.manifest, aspects, core=False)]
        core = [one for one in self._records(task) if _same(one.manifest, aspects, core=True)]
        return bool(same) or any(self._obtainable(task, one, whole=True) for one in core)

    def _in_force(self, task: Task, record: Kept) -> Files:
        return {p: start for p, (start, before) in record.bases.items() if self._incoming(task, p) == before}

    def _relatives(self, task: Task) -> list[Kept]:
        """Return the records of what is the same stage under any name: of its kind, outputs and item."""
        same = {"kind": task.kind, "outputs": list(task.outputs), "item": task.item}
        every = (*self.state.lock.values(), *self.state.records)
        return [one for one in every if {name: one.manifest.get(name) for name in same} == same]

    def _moved(self, task: Task, in_force: Files) -> Files:
        """Rules 3 and 5 without git and without accepted bytes: a new stage, or one before a user's bytes."""
        chain = self._chain(task)
        earlier = [one for one in chain if one.index < task.index]
        for one in earlier:
            again = one.name in self.results and self._former(one.name) == self.results[one.name].outputs
            if one.name not in self.results or (one.name in self.ran and not again):
                return in_force
        if task.chain is None:
            return in_force
        is_new = not any(one.name in self.state.lock for one in chain)
        later = [self.state.lock[one.name] for one in chain if one.index > task.index and one.name in self.state.lock]
        moved = dict(in_force)
        for path in task.outputs:
            there = self.disk.get(path)
            if there is None or there == self._before(task, path) or self._dead(path):
                continue
            versions = [
                self.results[one.name].outputs[path] for one in earlier if path in self.results[one.name].outputs
            ]
            older = [self.original(path), *(self._before(one, path) for one in earlier), *versions] if versions else []
            known = self.state.known(path, there)
            owned = any(path in r.outputs and self._alive(name) for name, r in self.state.lock.items())
            if there in older:
                continue
            if (is_new and not (known and owned)) or (known and any(path in r.bases for r in later)):
                moved[path] = there
        return {p: v for p, v in moved.items() if v != self._incoming(task, p)}

    def _lossy(self, task: Task) -> dict[str, Any] | None:
        """Return the aspects of a stage; where texts are lost, those of a record that differs in the prompt alone."""
        try:
            return self._aspects(task)
        except LostError:
            pass
        if task.kind != "llm":
            return None
        try:
            given = [(p, s, "" if not s else t) for p, s, t in self._given(task, lossy=True)]
        except LostError:
            return None
        base = self._base(task)
        shown = [[p, s, False] for p, s, _ in given] + [[p, "", True] for p in base if p not in {g[0] for g in given}]
        texts = sha(_canonical([PROMPT_TEXT % self.sketch.rev, None, None, {}, shown]))
        for one in self._records(task):
            known = {a: v for a, v in one.manifest.items() if a != "prompt"}
            if one.texts == texts and _same(known, self._unrendered(task), core=False):
                return {**self._unrendered(task), "prompt": one.manifest["prompt"]}
        return None

    def _records(self, task: Task) -> list[Kept]:
        """The lock's first (the stage's own before the others), then the newest."""
        locked = sorted(self.state.lock.items(), key=lambda one: (one[0] != task.name, one[0]))
        return [record for _, record in locked] + [one for one in reversed(self.state.records) if not one.failed]

    def _needed_by_later(self, task: Task) -> bool:
        """Say whether a later item will be neither fresh nor restored, so that intermediate versions are needed."""
        later = [one for one in self._chain(task) if one.index > task.index]
        if not later or task.name not in self.tasks:
            return False
        settled = dict(self.results)
        starts = dict(self.starts)
        try:
            for one in [task, *later]:
                aspects = self._choose(one)
                if aspects is None:
                    return True
                todays = [r for r in self._records(one) if _same(r.manifest, aspects, core=False)]
                if one.name in self.forced or one.name.partition("@")[0] in self.forced:
                    return True
                usable = [r for r in todays if self._matches(self._target(one, r))]
                usable += [r for r in todays if self._obtainable(one, r, whole=False)]
                if not usable:
                    return True
                self.results[one.name] = usable[0]
        except LostError:
            return True
        else:
            return False
        finally:
            self.results, self.starts = settled, starts

    # ---- what a stage sees ----

    def original(self, path: str) -> str | None:
        """Rule 3: version 0, fixed by the lock; else what is there, unless a record has these bytes."""
        for record in self.state.lock.values():
            if path in record.originals:
                return record.originals[path]
        there = self.state.files.get(path)
        if there is None or not self.state.known(path, there):
            return there
        makers = [
            one for one in reversed(self.state.records) if one.outputs.get(path) == there and path in one.originals
        ]
        return makers[0].originals[path] if makers else None

    def _before(self, task: Task, path: str) -> str | None:
        return self.starts.get(task.name, {}).get(path) or self._incoming(task, path)

    def _incoming(self, task: Task, path: str) -> str | None:
        for one in reversed(self._chain(task)):
            record = self.results.get(one.name) if one.index < task.index else None
            if record is not None and path in record.outputs:
                return record.outputs[path]
        return self.original(path)

    def _owner(self, path: str) -> Kept | None:
        owners = [t for t in self.tasks.values() if t.name in self.results and path in self.results[t.name].outputs]
        return self.results[max(owners, key=lambda t: t.index).name] if owners else None

    def _dead(self, path: str) -> bool:
        """Rule 7: what a record in the lock owns, no stage does any more, and whose bytes still equal that record."""
        if self._owner(path) is not None:
            return False
        owning = [(name, r.outputs[path]) for name, r in self.state.lock.items() if path in r.outputs]
        gone = [name for name, content in owning if content == self.state.files.get(path)]
        gone = [name for name in gone if name in self.results or not self._alive(name)]
        if any(name in self.results for name in gone):
            return True
        return bool(gone) and not self._is_released(path)

    def _is_released(self, path: str) -> bool:
        """Return whether a file of an ended stage stays: it was there before, is named, or has a user's bytes."""
        if self._lock_original(path) is not None or any(path in r.bases for r in self.state.lock.values()):
            return True
        named = [one["path"] if isinstance(one, dict) and "path" in one else one for one in self._inputs()]
        return path in {one.partition("#")[0] for one in named if isinstance(one, str)}

    def _inputs(self) -> list[Any]:
        bodies_ = self.bodies.values()
        sources = [body["foreach"]["from"] for body in bodies_ if "from" in body.get("foreach", {})]
        checked = [one for body in bodies_ for one in body.get("verify", {}).get("inputs", ())]
        return [*sources, *checked, *(one for body in bodies_ for one in body["inputs"])]

    def _in_place_of(self, path: str) -> str | None:
        """Return what comes to a path that a newer result lacks; nothing where its stage has ended."""
        names = [n for n, r in self.state.lock.items() if n in self.results and path in r.outputs and n in self.tasks]
        for name in names:
            before = self._before(self.tasks[name], path) if self.tasks[name].chain else None
            if (found := before if before is not None else self._lock_original(path)) is not None:
                return found
        return None

    def _alive(self, name: str) -> bool:
        family = name.partition("@")[0]
        declared = {self.sketch.name(own): own for own in self.bodies}
        if "@" not in name:
            return family in declared and "foreach" not in self.bodies[declared[family]]
        if family not in declared or "foreach" not in self.bodies[declared[family]]:
            return False
        expanded = any(t.own == declared[family] for t in self.tasks.values())
        return name in self.tasks or (not expanded and declared[family] == "code")

    def view(self, task: Task, path: str) -> str | None:
        if task.chain is not None and path in task.outputs:
            return self._before(task, path)
        if any(match(pattern, path) for pattern in task.outputs):
            return None
        if task.own == "plan" and match("work/**", path) and "code" in self.bodies:
            return self.starts.get(task.name, {}).get(path) or self.original(path)
        owner = self._owner(path)
        if owner is not None:
            return owner.outputs[path]
        if self._dead(path):
            return self._in_place_of(path)
        return self.disk.get(path)

    def _lock_original(self, path: str) -> str | None:
        return next((r.originals[path] for r in self.state.lock.values() if path in r.originals), None)

    def _glob(self, task: Task, pattern: str) -> list[str]:
        paths = set(self.disk) | {p for r in self.results.values() for p in r.outputs}
        paths |= {p for r in self.state.lock.values() for p in r.originals}
        return [p for p in sorted(paths) if match(pattern, p) and self.view(task, p) is not None]

    def _listing(self, pattern: str) -> list[str]:
        """What a person has or had there: not what any stage of this pipeline makes or made, not what is dead."""
        there = {p for p in self.state.files if match(pattern, p)}
        fixed = [one for record in self.state.lock.values() for one in record.originals.items()]
        versions = {path for path, content in fixed if content is not None and match(pattern, path)}
        before = {p for p in there if self._in_chain(p) and self.original(p) is not None}
        return sorted({p for p in there if not self._is_made(p)} | before | versions)

    def _in_chain(self, path: str) -> bool:
        return match("work/**", path) or path == "alone/solo.txt"

    def _is_made(self, path: str) -> bool:
        literal = {p for b in self.bodies.values() if "llm" not in b and "foreach" not in b for p in b["outputs"]}
        if self._owner(path) is not None or path in literal:
            return True
        there = self.state.files[path]
        owning = [(name, r.outputs[path]) for name, r in self.state.lock.items() if path in r.outputs]
        if any(self._alive(name) for name, _ in owning):
            return True
        bodies_ = self.bodies.values()
        fences = [p for b in bodies_ for p in b.get("allowed_paths", {}).get("write") or b["outputs"]]
        may_be_written = any(match(p.replace("${{ one }}", "*"), path) for p in fences)
        if any(content == there for _, content in owning):
            return may_be_written or self._dead(path)
        return self.state.known(path, there) and may_be_written

    # ---- the key ----

    def _given(self, task: Task, lossy: bool = False) -> list[tuple[str, str, str]]:
        """Inputs in declared order: path, slice, text."""
        found = []
        for one in task.body["inputs"]:
            if isinstance(one, dict) and "list" in one:
                found.append((one["list"], "list", "".join(f"{p}\n" for p in self._listing(one["list"]))))
                continue
            path = one["path"] if isinstance(one, dict) else one
            path, _, heading = path.partition("#")
            for here in self._glob(task, path) if "*" in path else [path]:
                content = self.view(task, here)
                if content is not None:
                    text = content if lossy and not heading else _section(self._text(here, content), heading)
                    found.append((here, heading, text))
        return found

    def _base(self, task: Task) -> Files:
        if task.chain is None:
            return {}
        return {p: v for p in sorted(task.outputs) if (v := self._before(task, p)) is not None}

    def _question(self, task: Task, tree: Files, brief: str) -> str:
        given = self._given(task)
        own = [(path, "", self._text(path, content)) for path, content in sorted(tree.items())]
        inputs = [{"path": p, "slice": s, "text": t} for p, s, t in [*given, *own]]
        return self.prompt.render(item=task.item, brief={"kind": brief} if brief else None, inputs=inputs)

    def _aspects(self, task: Task) -> dict[str, Any]:
        aspects = self._unrendered(task)
        self._given(task)
        if task.kind == "llm":
            aspects["prompt"] = sha(self._question(task, self._base(task), ""))
        if task.kind == "render":
            aspects["prompt"] = sha(self._page(task))
        return aspects

    def _unrendered(self, task: Task) -> dict[str, Any]:
        aspects: dict[str, Any] = {"kind": task.kind, "outputs": list(task.outputs)}
        if task.item is not None:
            aspects["item"] = task.item
        for path, part, text in self._given(task, lossy=True):
            if part == "list":
                aspects[f"list:{path}"] = text.splitlines()
            else:
                aspects[f"slice:{path}#{part}" if part else f"input:{path}"] = sha(text) if part else text
        aspects |= {f"base:{path}": content for path, content in self._base(task).items()}
        if task.kind == "shell":
            aspects["command"] = [task.filled(arg) for arg in task.body["shell"]]
        if task.checks:
            aspects["verify"] = [{"shell": list(check)} for check in task.checks]
            for path in task.body["verify"]["inputs"]:
                aspects[f"verify.input:{path}"] = self.disk[path]
        return aspects

    def _page(self, task: Task) -> str:
        given = "".join(f"|{path}#{part}={text}" for path, part, text in self._given(task))
        return f"page {self.sketch.page}{given}"

    # ---- results ----

    def _target(self, task: Task, record: Kept) -> dict[str, str | None]:
        """What a result wants of the disk. An item promotes only the paths of which no later item makes a version."""
        later = {p for one in self._chain(task) if one.index > task.index for p in one.outputs}
        wanted: dict[str, str | None] = {p: v for p, v in record.outputs.items() if p not in later}
        former = self.state.lock.get(task.name)
        for path in former.outputs if former else ():
            if path not in record.outputs and path not in later and not self._elsewhere(task, path):
                before = self._before(task, path) if task.chain else None
                wanted[path] = before if before is not None else self._lock_original(path)
        chain = self._chain(task)
        if task.chain and chain[-1].name == task.name:
            for one in chain[:-1]:
                for path in self.results[one.name].outputs if one.name in self.results else ():
                    if path not in record.outputs and not any(path in left for left in self.in_place.values()):
                        wanted[path] = self._before(task, path)
        return wanted

    def _elsewhere(self, task: Task, path: str) -> bool:
        """Say whether a stage that is not of the task's chain has made the path today."""
        others = [
            t for t in self.tasks.values() if t.name in self.results and (t.chain is None or t.chain != task.chain)
        ]
        return any(path in self.results[t.name].outputs for t in others if t.name != task.name)

    def _there(self, path: str) -> str | None:
        """What is on the disk, or will be once what waits is promoted."""
        return self.coming.get(path, self.disk.get(path))

    def _matches(self, target: Mapping[str, str | None]) -> bool:
        for path, wanted in target.items():
            there = self._there(path)
            if there != wanted and not (wanted is None and there is not None and not self.state.known(path, there)):
                return False
        return True

    def _obtainable(self, task: Task, record: Kept, whole: bool) -> bool:
        target = self._target(task, record)
        needed = {p: v for p, v in target.items() if v is not None and self._there(p) != v}
        if whole:
            needed |= record.outputs
        if all(v in self.state.held or self.disk.get(p) == v for p, v in needed.items()):
            return True
        return self._placed(task, record)

    def _placed(self, task: Task, record: Kept) -> bool:
        """Rule 8: where bytes are lost, exchanges are placed in order; if their digests match, it is a restore."""
        if not record.answers or any(one not in self.state.answers for one in record.answers):
            return False
        base = self._base(task)
        try:
            tree = {path: self._text(path, content) for path, content in base.items()}
        except LostError:
            return False
        for one in record.answers:
            tree |= _writes(self.state.answers[one][1], task)
        if any(path not in tree or sha(tree[path]) != content for path, content in record.outputs.items()):
            return False
        self.state.texts |= {sha(text): text for text in tree.values()}
        return True

    def _promote(self, task: Task, record: Kept) -> bool:
        """Bring the disk to a result; say whether foreign bytes were left."""
        left = False
        for path, wanted in self._target(task, record).items():
            there = self.disk.get(path)
            if there == wanted:
                continue
            if not self._is_mine(task, path, there):
                left = left or wanted is not None
            elif wanted is None:
                del self.disk[path]
            else:
                self.disk[path] = wanted
        return left

    def _foreign(self, task: Task, record: Kept) -> bool:
        """Say whether a promotion would leave foreign bytes."""
        wanted = {p: v for p, v in self._target(task, record).items() if v is not None and self.disk.get(p) != v}
        return any(not self._is_mine(task, path, self.disk.get(path)) for path in wanted)

    def _is_mine(self, task: Task, path: str, there: str | None) -> bool:
        if there is None or self.overwrite or self.state.known(path, there):
            return True
        return self._has_started(task, path, there)

    def _bury(self) -> None:
        for path in {p for r in self.state.lock.values() for p in r.outputs}:
            if self._dead(path) and path in self.disk:
                before = self._in_place_of(path)
                if before is None:
                    del self.disk[path]
                else:
                    self.disk[path] = before

    # ---- running ----

    def _verified(self, task: Task, record: Kept) -> Kept | None:
        if self._check(task, record.outputs):
            return record
        tree = {p: v for p, v in self._base(task).items() if p not in record.deleted} | record.outputs
        return self._attempts(task, tree, "verify_failed")

    def _check(self, task: Task, outputs: Files) -> bool:
        files = {path: self._text(path, content) for path, content in outputs.items()}
        files |= {path: self.state.there[path] for path in task.body.get("verify", {}).get("inputs", ())}
        for check in task.checks:
            self.said.programs.append(check)
            if run_program(check, files)[0]:
                return False
        return True

    def _attempts(self, task: Task, tree: Files | None, brief: str) -> Kept | None:
        tree = self._base(task) if tree is None else tree
        answers: list[str] = []
        for _ in range(1 + int(task.body.get("retry", 0))):
            written = self._pass(task, tree, brief)
            tree = {**tree, **{path: self._keep(text) for path, text in written.items()}}
            outputs = {p: v for p, v in tree.items() if any(match(o, p) for o in task.outputs)}
            if self._check(task, outputs):
                return Kept(task.name, {}, outputs, answers=tuple(answers))
            brief = "verify_failed"
        return None

    def _pass(self, task: Task, tree: Files, brief: str) -> dict[str, str]:
        if task.kind == "render":
            return {task.outputs[0]: self._page(task)}
        if task.kind == "shell":
            argv = tuple(task.filled(arg) for arg in task.body["shell"])
            self.said.programs.append(argv)
            return run_program(argv, {path: text for path, _, text in self._given(task)})[1]
        question = self._question(task, tree, brief)
        if not any(asked == question for asked, _ in self.state.answers.values()):
            self.said.calls += 1
            self.state.answers[sha(question)] = (question, "")
        return _writes(answer(json.loads(question)), task)

    def _text(self, path: str, content: str) -> str:
        if content in self.state.texts:
            return self.state.texts[content]
        if self.state.files.get(path) != content:
            raise LostError(path)
        return self.state.there[path]

    def _keep(self, text: str) -> str:
        self.state.texts[sha(text)] = text
        return sha(text)


def _writes(response: str, task: Task) -> dict[str, str]:
    body = json.loads(response)
    if task.own == "plan":
        return {task.outputs[0]: json.dumps(body, indent=2, ensure_ascii=False) + "\n"}
    return {one["path"]: one["content"] for one in body["writes"]}


def _section(text: str, heading: str) -> str:
    if not heading:
        return text
    parts = text.split("# ")
    return next(f"# {part}" for part in parts if part.startswith(f"{heading}\n"))


KNOWN_PREFIXES = ("kind", "outputs", "item", "input", "slice", "list", "base", "command", "prompt", "verify")


def _same(then: Mapping[str, Any], now: Mapping[str, Any], *, core: bool) -> bool:
    """Compare a recorded manifest with what the oracle says that the key is made of."""
    return _known(then, core) == _known(now, core)


def _known(manifest: Mapping[str, Any], core: bool) -> dict[str, Any]:
    return dict(_aspect(manifest, core))


def _aspect(manifest: Mapping[str, Any], core: bool) -> Iterator[tuple[str, Any]]:
    for aspect, value in manifest.items():
        prefix = aspect.partition(":")[0].partition(".")[0]
        if prefix in KNOWN_PREFIXES and aspect != "verify.python" and not (core and prefix == "verify"):
            yield aspect, value
