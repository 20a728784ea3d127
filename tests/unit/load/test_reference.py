"""The page in the docs that describes every key."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch23.language.schema import document_classes, pipeline_schema
from orch23.load.pipeline import load_pipeline
from orch23.model.pipeline import Stage
from orch23.model.record import Facts
from orch23.resolve.resolution import _declared
from scripts.pipeline_reference import definition, keys_by_name, reference_page, reference_sections

ROOT = Path(__file__).parents[3]
EXAMPLES = {
    title: {key: one.example for key, one in keys_by_name(document_classes()[name]).items()}
    for title, name, _ in reference_sections()
}


def keys(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        properties = node.get("properties")
        yield from properties if isinstance(properties, dict) and "type" in node else ()
        for below in node.values():
            yield from keys(below)


@pytest.mark.needs("fetch")
def test_the_page_in_the_docs_is_the_one_that_the_schema_gives() -> None:
    assert (ROOT / "docs/pipeline-reference.md").read_text("utf-8") == reference_page()


def test_the_page_names_every_key() -> None:
    page = reference_page()
    found = set(keys(pipeline_schema()))
    assert len(found) > 100
    for name in found:
        assert f"| `{name}`" in page, name


def test_the_page_says_which_keys_are_of_a_later_version() -> None:
    assert "Not in this version yet, and refused: `matrix`, `pinned`, `samples`." in reference_page()


def test_every_key_has_an_example() -> None:
    examples = {title: {key for key, example in found.items() if example} for title, found in EXAMPLES.items()}
    assert examples == {title: set(definition(name)["properties"]) for title, name, _ in reference_sections()}


def test_the_page_says_of_each_key_that_is_not_in_the_key_that_it_is_not() -> None:
    classes = document_classes().items()
    outside = {(name, key) for name, kind in classes for key, one in keys_by_name(kind).items() if not one.in_key}
    said = {
        (name, key)
        for name in document_classes()
        for key, node in definition(name)["properties"].items()
        if re.search("(Not|Never) part of the key", node.get("description", ""))
    }
    assert ("stage", "promote") in outside
    assert outside == said


STEPS = ("llm", "shell", "pytest", "render", "fetch")
LLM = {"provider": "anthropic", "model": "claude-opus-4-8", "prompt": "p.md", "returns": "code"}
# What some keys need beside them.
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("`llm`", "schema"): {"returns": "json"},
    ("`llm`", "only_json"): {"returns": "files"},
    ("A stage", "format"): {"llm": LLM},
    ("A stage", "metrics"): {"outputs": ["build/scores.json"]},
    ("A stage", "edits"): {"outputs": []},
    ("A stage", "reruns"): {"test_results": {"tap": "stdout"}},
    ("A stage", "explore"): {"llm": LLM},
    ("A stage", "once"): {"outputs": [], "edits": ["src/**"]},
    ("`llm`", "answers"): {"provider": "scripted", "model": "scripted"},
    **{("`llm`", key): {"provider": "command", "command": ["x"]} for key in ("command", "read", "pass_env", "network")},
    **{
        ("`llm`", key): {"provider": "openai", "model": "m"}
        for key in ("base_url", "api", "background", "endpoint_alias")
    },
    **{("`llm`", key): {"provider": "local", "model": "smollm2"} for key in ("seed", "temperature")},
    ("`llm.on_truncated`", "factor"): {"retries": 1},
    ("A step of `verify`", "with"): {"check": "python_syntax"},
    **{("A step of `verify`", key): {"shell": "x"} for key in ("if", "test_results", "findings", "reruns")},
    ("`test_results`", "regex"): {"line": "(?P<id>.+) (?P<outcome>.+)"},
    ("`test_results`", "line"): {"regex": "stdout"},
    ("`depfile`", "syntax"): {"path": "$TMPDIR/deps.d"},
    ("A condition in a list", "kind"): {"path": "a"},
    ("A condition in a list", "path"): {"kind": "file_exists"},
    ("`foreach`", "in"): {},
    ("An input", "list"): {},
    ("`commands` of a step", "from"): {"allow": ["python"]},
    ("`commands` of a step", "allow"): {"from": "build/plan.json#/checks"},
    ("A model's price in `prices`", "input"): {"output": 1},
}
ALWAYS: dict[str, dict[str, Any]] = {
    "`llm`": LLM,
    "`fetch`": {"url": "https://example.org/a", "sha256": "0a" * 32},
    "`foreach`": {"from": "l.json"},
    "`explore`": {"files": ["src/**"]},
    "`verify`": {"steps": [{"shell": "x"}]},
    "An input": {"path": "a.json"},
    "A tool with a version": {"name": "node", "version": ">=22"},
    "A model's price in `prices`": {"input": 1, "output": 1},
    "`llm.brief`": {"limit": 10_000},
}


def stage_with(title: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a stage with a mapping of the language at its place."""
    name = title.strip("`")
    item = value.get("as", "item")
    places: dict[str, dict[str, Any]] = {
        "A stage": value,
        "`llm`": {"llm": value},
        "`retry`": {"llm": LLM, "retry": value},
        "`explore`": {"llm": LLM, "explore": value},
        "`foreach`": {"foreach": value, "outputs": [f"src/${{{{ {item} }}}}"]},
        "An input": {"inputs": [value]},
        "`verify`": {"verify": value, **({"edits": ["tests/**"]} if "fails_on_base" in value else {})},
        "A tool with a version": {"tools": [value]},
        "A step of `verify`": {"verify": [value]},
        "`commands` of a step": {"inputs": ["build/plan.json"], "verify": [{"commands": value}]},
        "A condition in a list": {"requires": [value]},
        "`stop_conditions` of a stage": {"stop_conditions": value},
    }
    placed = {"llm": LLM | {name.removeprefix("llm."): value}} if name.startswith("llm.") else {name: value}
    stage = {"outputs": ["src/x"], "shell": "x"} | places.get(title, placed)
    if sum(step in stage for step in STEPS) > 1:
        del stage["shell"]
    return stage


def document_with(title: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a pipeline with a mapping of the language at its place."""
    whole: dict[str, Any] = {"version": 1, "vars": {"docs": True, "strict": True}, "pools": {"database": 1}}
    simple = {"a": {"outputs": ["src/x"], "shell": "x"}}
    match title:
        case "The file":
            return {**whole, "stages": simple, **value}
        case "`defaults`" | "`stop_conditions`" | "`cache`":
            return {**whole, "stages": simple, title.strip("`"): value}
        case "A model's price in `prices`":
            return {**whole, "stages": simple, "prices": {"m": value}}
        case "A pool in `pools`":
            return {**whole, "stages": simple, "pools": {**whole["pools"], "gpu": value}}
        case "The limits of a provider or model in `rates`":
            return {**whole, "stages": simple, "rates": {"anthropic": value}}
        case _:
            other = {"migrate": {"outputs": ["src/y"], "shell": "x"}}
            return {**whole, "stages": {"a": stage_with(title, value), **other}}


def case(title: str, key: str) -> object:
    """Return the case of a key; the address of a shared cache and a depfile need their features."""
    needed = ["cache"] if (title, key) in {("The file", "cache"), ("`cache`", "url")} else []
    needed += ["depfiles"] if "depfile" in (title.strip("`"), key) else []
    return pytest.param(title, key, marks=[pytest.mark.needs(*needed)])


@pytest.mark.parametrize(
    ("title", "key"), [case(title, key) for title, examples in EXAMPLES.items() for key in examples]
)
def test_every_example_is_valid(title: str, key: str, tmp_path: Path) -> None:
    example = yaml.safe_load(f"{key}: {EXAMPLES[title][key]}".replace(": off", ": 'off'"))  # YAML 1.1 says false
    value = {**ALWAYS.get(title, {}), **BESIDE.get((title, key), {}), **example}
    if (title, key) in {("`foreach`", "in"), ("An input", "list")}:
        value = example
    if (title, key) == ("The file", "plugins"):
        assert example == {"plugins": ["acme-tools"]}  # not installed; its kind is checked below
        value = {"plugins": []}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(document_with(title, value)))
    loaded = load_pipeline(tmp_path / "p.yaml", tmp_path)
    assert loaded.pipeline.stages


def aspects(title: str, value: dict[str, Any], root: Path) -> list[dict[str, Any]]:
    """Return what a pipeline with a mapping of the language declares of the key of each of its stages."""
    (root / "p.yaml").write_text(yaml.safe_dump(document_with(title, value)))
    stages = load_pipeline(root / "p.yaml", root).pipeline.stages
    return [dict(_declared(stage, Facts())) for stage in stages if isinstance(stage, Stage)]


@pytest.mark.parametrize(
    ("title", "key"),
    [
        case(title, key)
        for title, name, _ in reference_sections()
        for key, one in keys_by_name(document_classes()[name]).items()
        if not one.in_key
    ],
)
def test_a_key_that_is_declared_outside_of_the_key_changes_none(title: str, key: str, tmp_path: Path) -> None:
    given = yaml.safe_load(f"{key}: {EXAMPLES[title][key]}")
    value = {**ALWAYS.get(title, {}), **BESIDE.get((title, key), {}), **given}
    other = {**value, "url": "https://example.org/b.zip"} if key == "url" else {k: value[k] for k in value if k != key}
    found = aspects(title, value, tmp_path)
    assert found == aspects(title, other, tmp_path)
    assert found
