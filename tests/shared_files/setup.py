"""Projects and histories, drawn at random: pipeline files with stages of every kind, and steps to take."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.repository import LLM, PROMPT, PROMPT_TEXT
from tests.shared_files.merges import FILES, LOCKS

Step = tuple[Any, ...]
LENGTH = 16

PAGE = "page.txt.j2"
PAGE_TEXT = "{% for one in inputs %}<{{ one.path }}>{{ one.text }}{% endfor %}"
SPECS = {"feature": "FEATURE.md", "gen": "GEN.md", "site": "SITE.md", "copy": "COPY.md", "work": "WORK.md"}
EXISTED = {"src/m.py": "# base of m\n", "src/app.py": "# base of app\n"}
EDITED = ("work/near/a.py", "work/near/b.py", "work/far/c.py", "tidy/a.py", "tidy/b.py")
"""Files of the user that stages with `edits` may change."""
ITEMS = ("x", "y", "z")
SLOTS = ("feature", "gen", "site", "chain", "par", "copy", "page", "lit")
EDIT_SLOTS = ("work", "tidy", "polish")
LLM_SLOTS = ("feature", "gen", "site", "chain", "par", "work")
KEYS: Mapping[str, Any] = {
    "once": True,
    "on_edit": "rerun",
    "format": [{"shell": "xargs -r sed -i \"s/^s('\\(.*\\)')$/s( '\\1' )/\" < $ORCH23_CHANGED"}],
}
"""Keys that a history of stages with `edits` adds and removes; see `formatted`."""
REVISIONS = ("p", "q", "r", "bad")
WORKS = ("a p", "a p|b q", "a q|n p", "n q", "a p|b delete it", "b delete it|n p", "a p|c2 p", "a bad|n p")
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
    "work": ("work/near/a.py", "work/near/b.py", "work/far/c.py", "work/far/n.py"),
    "tidy": ("tidy/a.py", "tidy/b.py", "tidy/n.py", "tidy/made.py"),
    "polish": ("work/near/a.py", "work/near/b.py", "work/near/made.py"),
}


# ---- the pipeline files ----------------------------------------------------------------------------


def formatted(text: str) -> str:
    """Return a text as the formatter of `KEYS` writes it."""
    return re.sub(r"^s\('(.*)'\)$", r"s( '\1' )", text, flags=re.MULTILINE)


def spec_text(slot: str, revision: str) -> str:
    """Return the text of a slot's spec."""
    if slot == "site":
        words = [part.split() for part in revision.split("|")]
        return "".join(f"site/{name}.py: {text}\n" for name, text in words)
    if slot == "work":
        parts = [part.partition(" ") for part in revision.split("|")]
        return "".join(f"work/{'near' if name in 'ab' else 'far'}/{name}.py: {text}\n" for name, _, text in parts)
    return f"{PATHS[slot][0]}: {revision}\n"


def tidy(slot: str, revision: str) -> str:
    """Return a command that adds a last line to each file, creates a file, and deletes those with a line `# drop`."""
    folder = "tidy" if slot == "tidy" else "work/near"
    line = f"# tidy {revision}"
    return (
        f'cd {folder}; test -e made.py || echo "made {revision}" > made.py; '
        f"for one in *.py; do if grep -q '^# drop' $one; then rm $one; "
        f"else grep -q '^{line}$' $one || echo '{line}' >> $one; fi; done"
    )


def item(slot: str, name: str, revision: str) -> dict[str, Any]:
    """Return an item of a foreach."""
    path = "src/app.py" if slot == "chain" else f"tests/test_{name}.py"
    return {"id": name, "files": [path], "text": revision}


def stage_text(slot: str, setup: "Setup") -> dict[str, Any]:
    """Return the declaration of a slot's stage, as it is at first."""
    return {**_stage_text(slot, setup), **{key: KEYS[key] for one, key in setup.keys if one == slot}}


def _stage_text(slot: str, setup: "Setup") -> dict[str, Any]:  # noqa: C901  a table
    where = {"site": "site/", "chain": "src/app.py", "par": "${{ one.files[0] }}"}.get(slot, PATHS[slot][0])
    asked: dict[str, Any] = {
        "llm": {"context": {"own_outputs": setup.own_outputs}},
        "retry": 0,
        "verify": [{"shell": f"! grep -rq bad {where}"}],
    }
    if setup.transcripts:
        asked["llm"] |= {"transcripts": "kept"}
    if slot in EDIT_SLOTS:
        return _edit_stage(slot, asked)
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


def _edit_stage(slot: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    if slot == "work":
        shown = {"inputs": ["WORK.md", "work/near/*.py"], "edits": ["work/**"], **asked}
        return {**shown, "llm": {**asked["llm"], "returns": "files"}, "verify": [{"shell": "! grep -rq bad work"}]}
    if slot == "tidy":
        return {"edits": ["tidy/*.py"], "shell": tidy(slot, "p")}
    return {"edits": ["work/near/*.py"], "shell": tidy(slot, "p")}


@dataclass(frozen=True)
class Setup:
    """What of a project does not change in its history."""

    slots: tuple[str, ...]
    git: bool = True
    together: bool = False
    own_outputs: bool = False
    transcripts: bool = False
    two: bool = False
    keys: tuple[tuple[str, str], ...] = ()
    """What is added to the stages of slots, of `KEYS`."""

    def files(self) -> dict[str, str]:
        """Return the files of the project before its first build."""
        found = {**EXISTED, PROMPT: PROMPT_TEXT, PAGE: PAGE_TEXT, "README.md": "hello\n"}
        first = {"site": SITES[0], "work": WORKS[0]}
        found |= {path: spec_text(slot, first.get(slot, "p")) for slot, path in SPECS.items()}
        if not set(EDIT_SLOTS).isdisjoint(self.slots):
            found |= {path: f"# base of {path}\n" for path in EDITED}
        found["a.yaml"] = pipeline_text("a", {slot: stage_text(slot, self) for slot in self.slots})
        if self.two:
            found["b.yaml"] = pipeline_text("b", {})
        return found


def pipeline_text(name: str, stages: Mapping[str, Any]) -> str:
    """Return a pipeline file; one stage is always there, so that no file is without stages."""
    stages = {stage: body for stage, body in stages.items() if not stage.startswith("zero")}
    work = [stage for stage in stages if slot_of(stage) == "work"]
    stages = {n: {"needs": work, **b} if slot_of(n) == "polish" and work else b for n, b in stages.items()}
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
    "share": 2,
    "branch": 3,
    "merge": 3,
    "clone": 2,
    "reset": 2,
    "clean": 2,
    "release": 2,
    "keep": 4,
    "lockless": 3,
    "forced": 4,
    "format": 3,
    "build": 30,
}
EDIT_WEIGHTS = {**WEIGHTS, "keep": 0, "key": 4, "hook": 4, "during": 1}


def make_steps(
    chance: random.Random, setup: Setup, length: int, without: Sequence[str] = (), weights: Mapping[str, int] = WEIGHTS
) -> list[Step]:
    """Draw a history: changes, with builds in between."""
    steps: list[Step] = [("build", "a")]
    kinds = [kind for kind in weights if kind not in without]
    while len(steps) < length:
        steps.append(make_step(chance, setup, chance.choices(kinds, [weights[kind] for kind in kinds])[0]))
    return [*steps, ("build", "a"), *([("build", "b")] if setup.two else [])]


def make_step(chance: random.Random, setup: Setup, kind: str) -> Step:  # noqa: C901, PLR0911, PLR0912  a table
    """Draw one step; whether there is anything to do is seen when it is played."""
    slot = chance.choice(setup.slots)
    path = chance.choice(PATHS[slot])
    match kind:
        case "spec":
            if slot in ("tidy", "polish"):
                return (kind, slot, chance.choice(REVISIONS[:3]))
            if slot == "work":
                return (kind, slot, chance.choice(WORKS))
            written = [one for one in setup.slots if one in SPECS and one != "work"]
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
        case "edit" if slot in ("tidy", "polish") and chance.random() < 0.1:
            return ("drop_line", path)
        case "edit" | "break" | "delete" | "revert":
            return (kind, path)
        case "key":
            keys = [key for key in KEYS if (slot in LLM_SLOTS if key != "once" else "polish" not in setup.slots)]
            return (kind, slot, chance.choice(keys)) if keys else ("edit", path)
        case "during":
            return (kind, "b" if setup.two and chance.random() < 0.4 else "a", path)
        case "accept" | "hook" | "rename" | "drop" | "add" | "switch" | "keep" | "release" | "format":
            return (kind, slot)
        case "items":
            listed = [one for one in setup.slots if one in ("chain", "par")]
            if not listed:
                return ("edit", path)
            names = [name for name in ITEMS if chance.random() < 0.65] or ["x"]
            chance.shuffle(names)
            revisions = [chance.choices(REVISIONS, [5, 3, 1, 1])[0] for _ in names]
            return (kind, chance.choice(listed), tuple(zip(names, revisions, strict=True)))
        case "lockless":
            return (kind, "b" if setup.two and chance.random() < 0.4 else "a")
        case "forced":
            return (kind, slot, chance.choice(["-f", "--resample"]))
        case "commit":
            return (kind, chance.choices(["all", "outputs", "sources"], [8, 1, 1])[0])
        case "move" | "share":
            return (kind, slot) if setup.two else ("edit", path)
        case "branch":
            return (kind, chance.choice(["main", "one", "two"]))
        case "merge":
            kinds = ("spec", "spec", "edit", "items", "accept")
            theirs, mine = (
                (*(make_step(chance, setup, chance.choice(kinds)) for _ in range(count)), ("build", "a"))
                for count in (1, chance.choice([1, 2]))
            )
            return (kind, theirs, mine, chance.choice(LOCKS), chance.choice(FILES))
        case "clone":
            return (kind, chance.choice(["bare", "store"]))
        case "reset":
            return (kind, chance.choice(["", "--outputs"]))
        case "clean":
            return (kind, chance.choice(["", "", "--force"]))
        case _:
            pipeline = "b" if setup.two and chance.random() < 0.4 else "a"
            return ("build", pipeline, *(["--overwrite-edited"] if chance.random() < 0.05 else []))


def edit_history(seed: int, length: int = LENGTH, without: Sequence[str] = ()) -> tuple[Setup, list[Step]]:
    """Return the history of a seed in which stages with `edits` take part."""
    chance = random.Random(f"edits {seed}")
    setup = make_setup(chance)
    others = (("work", setup.slots[0]), ("tidy", setup.slots[-1]))
    slots = chance.choice((("work",), ("tidy",), ("work", "tidy"), ("work", "polish"), EDIT_SLOTS, *others))
    more = ("gen",) if "lit" in slots else ()
    slots = tuple(slot for slot in (*slots, *more) if slot not in without)
    keys = tuple(
        (slot, key)
        for slot in slots
        if slot in (*LLM_SLOTS, "tidy", "polish")
        for key in chance.sample(tuple(KEYS), chance.choice((0, 0, 1, 1, 2)))
        if key not in without and (key == "once" or slot in LLM_SLOTS)
    )
    keys = tuple(one for one in keys if one[1] != "on_edit" or (one[0], "once") not in keys)
    # The files of a program that is done are edits for a model before it that is not.
    keys = tuple(one for one in keys if one != ("polish", "once") or ("work", "once") in keys)
    setup = replace(setup, slots=slots, keys=keys)
    return setup, make_steps(chance, setup, length, without, EDIT_WEIGHTS)


def history(seed: int, length: int = LENGTH, without: Sequence[str] = ()) -> tuple[Setup, list[Step]]:
    """Return the history of a seed, without slots and kinds of steps that are not wanted."""
    chance = random.Random(seed)
    setup = make_setup(chance)
    slots = tuple(slot for slot in setup.slots if slot not in without) or ("feature",)
    setup = replace(setup, slots=slots)
    return setup, make_steps(chance, setup, length, without)
