"""The schemas that the classes of the language give: strict, for editors, and for messages."""

from typing import Any

import jsonschema
import pytest

from orch23.language.reading import has_valid_form
from orch23.language.schema import pipeline_schema, published_schema, relaxed_schema
from orch23.language.schema_errors import language_errors


def nodes(node, path="#"):
    if isinstance(node, dict):
        yield path, node
        for key, below in node.items():
            yield from nodes(below, f"{path}/{key}")
    elif isinstance(node, list):
        for number, below in enumerate(node):
            yield from nodes(below, f"{path}/{number}")


@pytest.mark.parametrize("made", [pipeline_schema, published_schema, relaxed_schema])
def test_each_schema_is_draft_7(made):
    jsonschema.Draft7Validator.check_schema(made())
    assert made()["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_every_property_is_described():
    for made in (pipeline_schema, published_schema):
        for path, node in nodes(made()):
            for name, below in node.get("properties", {}).items() if "type" in node else ():
                assert below.get("description"), f"{path}/{name}"


E = "${{ vars.x }}"


@pytest.mark.parametrize(
    "stage",
    [
        {"shell": E, "inputs": E, "outputs": E, "cache": E, "timeout": E, "retry": E, "on_failure": E, "verify": E},
        {"shell": [E], "retry": {"max": E, "when": E, "from": E, "no_progress": E}, "env": {"A": E}, "salt": E},
        {
            "pytest": E,
            "inputs": [E, {"path": E, "optional": E}, {"list": E}],
            "requires": E,
            "ensures": {"file_exists": E},
        },
        {
            "llm": {
                "returns": E,
                "max_tokens": E,
                "seed": E,
                "temperature": E,
                "context": {"own_outputs": E},
                "base_url": E,
                "api": E,
                "secrets": E,
                "on_truncated": {"retries": E, "factor": E},
            },
            "stop_conditions": {"max_cost_usd": E, "max_tokens": E, "max_llm_calls": E, "max_wall": E},
        },
        {"render": E, "foreach": {"in": E, "order": E}, "allowed_paths": {"write": E}, "network": E, "tools": E},
        {"shell": E, "verify": {"steps": E, "inputs": E, "all": E}},
        {"shell": E, "verify": [{"check": E}, {"shell": E}, {"pytest": {"paths": E}}, {"ensures": E}]},
        {"shell": E, "verify": [{"commands": {"from": E, "allow": E}}, {"commands": {"from": [E], "allow": [E]}}]},
    ],
)
def test_an_expression_may_stand_wherever_a_scalar_or_list_may(stage):
    document: Any = {"version": 1, "stages": {"s": stage}}
    assert language_errors(document, relaxed_schema()) == ()
    assert list(jsonschema.Draft7Validator(published_schema()).iter_errors(document)) == []
    assert has_valid_form(document)


@pytest.mark.parametrize(
    "tree",
    [
        {"version": E, "stages": {"s": {"shell": "a"}}},
        {"version": 1, "name": E, "stages": {"s": {"shell": "a"}}},
        {"version": 1, "stages": E},
        {"version": 1, "stages": {"s": E}},
        {"version": 1, "stages": {"s": {"shell": "a", "foreach": {"in": [1], "as": E}}}},
        {"version": 1, "plugins": E, "stages": {"s": {"shell": "a"}}},
        {"version": 1, "plugins": ["a", E], "stages": {"s": {"shell": "a"}}},
        {"version": 1, "plugins": [f"acme-{E}"], "stages": {"s": {"shell": "a"}}},
        {"version": 1, "executor": E, "stages": {"s": {"shell": "a"}}},
    ],
)
def test_what_must_be_known_before_rendering_is_literal(tree):
    assert language_errors(tree, relaxed_schema())
    assert list(jsonschema.Draft7Validator(published_schema()).iter_errors(tree))
    assert not has_valid_form(tree)


def test_the_schema_alone_takes_what_the_loader_takes():
    text = {
        "version": 1,
        "stages": {"s": {"shell": ["a", 1], "timeout": "1h30m", "retry": 99, "verify": [{"check": "c"}]}},
    }
    assert list(jsonschema.Draft7Validator(pipeline_schema()).iter_errors(text)) == []


def test_words_are_in_the_order_in_which_they_are_declared():
    assert pipeline_schema()["definitions"]["llm"]["properties"]["returns"]["enum"] == [
        "files",
        "blocks",
        "edits",
        "json",
        "text",
        "code",
    ]


def test_keys_of_a_stage_come_before_those_it_shares_with_the_defaults():
    keys = list(pipeline_schema()["definitions"]["stage"]["properties"])
    assert (keys[0], keys[-1]) == ("llm", "salt")
    assert keys[keys.index("outputs") + 1 :][:5] == ["edits", "explore", "once", "approve", "metrics"]
