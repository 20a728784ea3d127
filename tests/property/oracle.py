"""A tiny pipeline language: what its programs and its model compute, and the YAML that declares them.

No code of the engine is used here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROMPT = "ask.md.j2"
PROMPT_TEXT = """\
{"rev": "%s", "item": {{ item | tojson }}, "brief": {{ (brief.kind if brief else "") | tojson }}, "inputs": [
{%% for one in inputs %%}[{{ one.path | tojson }}, {{ one.slice | tojson }}, {{ one.text | tojson }}]{{ "" if loop.last else "," }}
{%% endfor %%}]}
"""
PAGE = "page.txt.j2"
PAGE_TEXT = "page %s{%% for one in inputs %%}|{{ one.path }}#{{ one.slice }}={{ one.text }}{%% endfor %%}"


# ---- what programs and the model compute -----------------------------------------------------------


def run_program(argv: Sequence[str], files: Mapping[str, str]) -> tuple[int, dict[str, str]]:
    """Return the exit code and the files that a program of the tiny language writes; files outside of tests/ are its input."""
    match tuple(argv):
        case ("join", tag, out):
            text = "".join(text for path, text in sorted(files.items()) if not path.startswith("tests/"))
            return 0, {out: f"{tag}({text})"}
        case ("head", out):
            text = "".join(text for _, text in sorted(files.items()))
            return 0, {out: text[:3]}
        case ("split", tag, folder):
            text = "".join(text for _, text in sorted(files.items()))
            return 0, {f"{folder}{letter}.txt": f"{tag}{letter}" for letter in sorted(set(text) & set("abcd")) or ["none"]}
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
    """Return what the model makes of one file: it keeps what is there, adds what it was shown, and mends on a brief."""
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
        "upper": {"inputs": ["src/a.txt"], "outputs": ["build/a.txt"], "shell": ["join", sketch.tag("upper"), "build/a.txt"]},
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
            "verify": {"inputs": ["tests/all.txt"], "steps": [{"shell": ["check", "tests/all.txt", "build/all.txt"]}]},
        },
        "page": {
            "inputs": ["spec.md#One", {"list": "src/**"}, {"list": "work/**"}],
            "outputs": ["build/page.txt"],
            "render": {"template": PAGE},
        },
        "solo": {
            "inputs": ["src/a.txt"],
            "outputs": ["alone/solo.txt"],
            "llm": {**llm, "returns": "files"},
            "verify": {"inputs": ["tests/solo.txt"], "steps": [{"shell": ["check", "tests/solo.txt", "alone/solo.txt"]}]},
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
            "verify": {"inputs": ["tests/code.txt"], "steps": [{"shell": ["check", "tests/code.txt", "${{ task.files[0] }}"]}]},
            "retry": 1,
        },
        "par": {
            "foreach": {"from": "src/pars.json", "as": "one"},
            "inputs": ["src/b.txt"],
            "outputs": ["out/${{ one }}.txt"],
            "shell": ["join", sketch.tag("par"), "out/${{ one }}.txt"],
        },
        "fin": {
            "inputs": ["work/**", "alone/**", "out/**"],
            "outputs": ["build/fin.txt"],
            "shell": ["join", sketch.tag("fin"), "build/fin.txt"],
        },
    }
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
