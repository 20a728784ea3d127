"""A reviewed edit changes at most 15 lines of a lock file, counted by `git diff --numstat`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project import scripted
from tests.repository import Repository

MOST_LINES = 15
_PROMPT = "Write it.\n{% for one in inputs %}{{ one.path }}\n{{ one.text }}{% endfor %}\n"


def llm(inputs: list[str], output: str, **more: Any) -> dict[str, Any]:
    step = {"returns": "text", "transcripts": "transcripts", **more.pop("llm", {})}
    return {"inputs": inputs, "outputs": [output], "llm": step, **more}


STAGES: Mapping[str, Any] = {
    # A stage with several inputs, and a chain of four stages after it.
    "plan": llm(["spec.md", "style.md", "api.md", "glossary.md"], "plan.md"),
    "code": llm(["plan.md", "api.md"], "src/code.txt", verify=[{"shell": "test -s src/code.txt"}]),
    "pack": {"inputs": ["src/code.txt"], "outputs": ["pack.txt"], "shell": "cat src/code.txt > pack.txt"},
    "notes": llm(["pack.txt"], "notes.md"),
    "page": {"inputs": ["notes.md"], "outputs": ["page.html"], "render": {"template": "page.j2"}},
    # Items of a list, with a slice of a file each.
    "list": {"inputs": ["list.md"], "outputs": ["list.json"], "shell": "cat list.md > list.json"},
    "docs": {
        "foreach": {"from": "list.json", "as": "word"},
        "inputs": ["words.md#${{ word }}"],
        "outputs": ["docs/${{ word }}.md"],
        "llm": {"returns": "text", "transcripts": "transcripts"},
    },
    # Stages that edit one file in turn.
    "steps": {
        "foreach": {"in": ["one", "two", "three"], "as": "step", "order": "sequential"},
        "inputs": ["steps/${{ step }}.md"],
        "outputs": ["chain.txt"],
        "llm": {"returns": "text", "transcripts": "transcripts"},
    },
}
WORDS = ("ant", "bee", "cat")


def files(stages: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, str]:
    given = {name: [text] for name, text in answers.items()}
    return {**scripted(stages, given), "pipeline.md.j2": _PROMPT}


ANSWERS = {
    "plan": "plan 1\n",
    "code": "code 1\n",
    "notes": "notes 1\n",
    **{f"docs@{word}": f"{word} 1\n" for word in (*WORDS, "dog")},
    **{f"steps@{step}": f"{step} 1\n" for step in ("one", "two", "three")},
}
SOURCES = {
    "spec.md": "1\n2\n3\n4\n5\n6\n",
    "style.md": "short\n",
    "api.md": "get\nput\n",
    "glossary.md": "word\n",
    "page.j2": "<p>{{ inputs[0].text }}</p>\n",
    "list.md": json.dumps(WORDS),
    "words.md": "".join(f"## {word}\n\nabout {word}\n\n" for word in (*WORDS, "dog")),
    **{f"steps/{step}.md": f"do {step}\n" for step in ("one", "two", "three")},
}


def answered(project: Repository, **answers: str) -> None:
    """Let the model answer some stages otherwise from now on; the names of items have `__` for `@`."""
    known = {name: texts[0] for name, texts in json.loads(project.read("pipeline.answers.yaml")).items()}
    changed = {name.replace("__", "@"): text for name, text in answers.items()}
    project.write({"pipeline.answers.yaml": files({}, {**known, **changed})["pipeline.answers.yaml"]})


def source(path: str, old: str, new: str, **answers: str) -> Callable[[Repository], None]:
    def edit(project: Repository) -> None:
        project.replace(path, old, new)
        answered(project, **answers)

    return edit


def by_hand(path: str, text: str, stage: str, **answers: str) -> Callable[[Repository], None]:
    def edit(project: Repository) -> None:
        project.edit(path, text)
        assert project.run("accept", stage).code == 0
        answered(project, **answers)

    return edit


def stage(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Repository], None]:
    def edit(project: Repository) -> None:
        document = json.loads(project.read("pipeline.yaml"))
        change(document["stages"][name] if name else document["stages"])
        project.edit("pipeline.yaml", json.dumps(document, indent=2))

    return edit


EDITS: dict[str, Callable[[Repository], None]] = {
    "a line of a spec, the same response": source("spec.md", "3\n", "3 more\n"),
    "a line of a spec, another response": source("spec.md", "3\n", "3 more\n", plan="plan 2\n"),
    "a line of a spec, all stages": source(
        "spec.md", "3\n", "4\n", plan="plan 2\n", code="code 2\n", notes="notes 2\n"
    ),
    "five lines of a spec": source("spec.md", "1\n2\n3\n4\n5\n", "a\nb\nc\nd\ne\n", plan="plan 2\n"),
    "an input of two stages": source("api.md", "get\n", "get\npost\n", plan="plan 2\n", code="code 2\n"),
    "an input that changes no response": source("glossary.md", "word", "words"),
    "a slice of one item": source("words.md", "about ant", "about ants", docs__ant="ant 2\n"),
    "the slices of all items": lambda project: project.edit("words.md", SOURCES["words.md"].replace("about", "on")),
    "the first step of a chain": source("steps/one.md", "do one", "do one well", steps__one="one 2\n"),
    "the last step of a chain": source("steps/three.md", "do three", "do three well", steps__three="three 2\n"),
    "a template": source("page.j2", "<p>", "<p class='x'>"),
    "an item more": source("list.md", '"cat"', '"cat", "dog"'),
    "an item less": source("list.md", ', "cat"', ""),
    "a plan by hand": by_hand("plan.md", "plan 1\nmine\n", "plan"),
    "code by hand, and what follows": by_hand("src/code.txt", "mine\n", "code", notes="notes 2\n"),
    "the last file of a chain by hand": by_hand("chain.txt", "three 1\nmine\n", "steps@three"),
    "an item by hand": by_hand("docs/bee.md", "bee 1\nmine\n", "docs@bee"),
    "a command": stage("pack", lambda one: one.update(shell="cat src/code.txt src/code.txt > pack.txt")),
    "an input more": stage("notes", lambda one: one["inputs"].append("style.md")),
    "a stage more": stage("", lambda all_: all_.update(last=llm(["style.md"], "last.md"))),
    "a parameter": stage("plan", lambda one: one["llm"].update(system="style.md")),
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    project = Repository(tmp_path_factory.mktemp("lines") / "project")
    project.write({**SOURCES, **files(STAGES, {**ANSWERS, "last": "last\n"})})
    assert project.build().code == 0
    project.init()
    project.commit()
    return project


def changed_lines(project: Repository) -> int:
    added, removed, _ = project.git("diff", "--numstat", "--", "pipeline.lock").split(maxsplit=2)
    return int(added) + int(removed)


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_a_reviewed_edit_changes_at_most_15_lines_of_the_lock_file(
    name: str, before: Repository, tmp_path: Path
) -> None:
    project = before.clone(tmp_path / "project", store=True)
    EDITS[name](project)
    built = project.build()
    assert built.code == 0, built.err
    assert 0 < changed_lines(project) <= MOST_LINES
