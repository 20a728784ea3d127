"""`plan` says what the prompt cache should save, and counts on it; it claims nothing where no cache is known."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.project import Project

ITEMS = tuple(f"unit{number}" for number in range(6))
RULES = "Each function has a docstring, annotations of all arguments, and no side effects.\n" * 500
PIPELINE = """\
version: 1
name: cached
prices: {claude-opus-5: {input: 100, output: 200, cache_read: 10, cache_write: 125}}
stages:
  code:
    foreach: {in: [ITEMS], as: unit}
    inputs: [rules.md, "${{ unit }}.md"]
    outputs: ["${{ unit }}.txt"]
    llm: {provider: anthropic, model: claude-opus-5, prompt: code.md.j2, returns: text MORE}
"""
PROMPT = (
    "{{ inputs['rules.md'] | block }}\n{% for one in inputs if one.path != 'rules.md' %}{{ one | block }}{% endfor %}\n"
)
# The shared prefix is the block of the rules, with the lines around it.
PREFIX_TOKENS = (len(RULES) + 250) / 4


def project(root: Path, more: str = "", rules: str = RULES) -> Project:
    notes = {f"{name}.md": f"{name} adds its two arguments.\n" for name in ITEMS}
    pipeline = PIPELINE.replace("ITEMS", ", ".join(ITEMS)).replace(" MORE", more)
    return Project(root).write({"pipeline.yaml": pipeline, "code.md.j2": PROMPT, "rules.md": rules, **notes})


def savings(project: Project) -> list[Decimal]:
    outcome = project.run("plan", "--json")
    assert outcome.code in (0, 1), outcome.err
    stages = json.loads(outcome.out)["stages"]
    return [Decimal(one["estimate"]["cache_saving_usd"]) for one in stages]


@pytest.mark.slow
@pytest.mark.parametrize(("more", "write"), [("", 125), (", cache: {ttl: 1h}", 200)])
def test_the_first_item_writes_and_the_others_read(tmp_path: Path, more: str, write: int) -> None:
    story = project(tmp_path, more)
    first, *others = savings(story)
    assert float(first) == pytest.approx(PREFIX_TOKENS * (100 - write) / 1e6, rel=0.02)
    assert len(set(others)) == 1
    assert float(others[0]) == pytest.approx(PREFIX_TOKENS * (100 - 10) / 1e6, rel=0.02)
    total = sum(others, first)
    assert f" the prompt cache should save ~${total:.2f} of first attempts\n" in story.run("plan").out


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "rules"),
    [
        (", cache: off", RULES),
        (", cache: {share: false}", RULES),
        pytest.param(", pace: batch", RULES, marks=pytest.mark.needs("batches")),
        (', base_url: "https://gateway.example"', RULES),
        ("", RULES[:400]),
    ],
    ids=["off", "not shared", "batch", "another server", "below the minimum"],
)
def test_nothing_is_claimed_without_a_cache(tmp_path: Path, more: str, rules: str) -> None:
    story = project(tmp_path, more, rules)
    assert set(savings(story)) == {Decimal(0)}
    assert "prompt cache" not in story.run("plan").out
