"""The schema: one for checking, editors and the reference page."""

from pathlib import Path

import jsonschema
import pytest

from orch23.load.complaints import complaints
from orch23.load.schema import reference_page, relaxed_schema, schema
from orch23.model.pipeline import (
    BriefLimits,
    CommandsStep,
    Fence,
    Foreach,
    LLMStep,
    OnTruncated,
    Price,
    PytestStep,
    Retry,
    Stage,
    StopConditions,
)
from orch23.model.step_limits import StepLimits
from orch23.resolve.stages import STAGE_KEYS

ROOT = Path(__file__).parents[3]


def nodes(node, path="#"):
    if isinstance(node, dict):
        yield path, node
        for key, below in node.items():
            yield from nodes(below, f"{path}/{key}")
    elif isinstance(node, list):
        for number, below in enumerate(node):
            yield from nodes(below, f"{path}/{number}")


def test_both_schemas_are_draft_7():
    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.Draft7Validator.check_schema(relaxed_schema())
    assert schema()["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_every_property_is_described():
    for path, node in nodes(schema()):
        for name, below in node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ():
            shown = below if "$ref" not in below else schema()["definitions"][below["$ref"].rpartition("/")[2]]
            assert shown.get("description"), f"{path}/{name}"


def test_the_page_in_the_docs_is_the_one_that_the_schema_gives():
    assert (ROOT / "docs/pipeline-reference.md").read_text("utf-8") == reference_page()


def test_the_page_names_every_key():
    page = reference_page()
    for _, node in nodes(schema()):
        for name in node.get("properties", {}) if isinstance(node.get("properties"), dict) else ():
            assert f"| `{name}`" in page, name


def fields_of(*values):
    return {name for value in values for name in value.__struct_fields__}


def test_schema_reader_and_model_have_the_same_keys():
    definitions = schema()["definitions"]
    assert set(definitions["stage"]["properties"]) == STAGE_KEYS | {"foreach"}
    renamed = {"step", "item", "chain", "name", "fence", "timeout_s", "stop"}
    assert fields_of(Stage) - renamed <= set(definitions["stage"]["properties"])
    llm = set(definitions["llm"]["properties"])
    assert fields_of(LLMStep) - llm == {"timeout_s", "own_outputs", "max_files", "max_bytes"}
    assert llm - fields_of(LLMStep) == {"timeout", "context"}
    assert set(definitions["llm"]["properties"]["brief"]["properties"]) == fields_of(BriefLimits)
    assert set(definitions["pytest"]["oneOf"][0]["properties"]) == fields_of(PytestStep)
    assert set(definitions["stage"]["properties"]["allowed_paths"]["properties"]) == fields_of(Fence)
    foreach = set(definitions["stage"]["properties"]["foreach"]["properties"])
    named = {"source": "from", "values": "in", "name": "as", "sequential": "order", "needs_field": "needs"}
    named |= {"together": "promote"}
    assert {named.get(field, field) for field in fields_of(Foreach) - {"pointer"}} == foreach
    retry = set(definitions["stage"]["properties"]["retry"]["oneOf"][1]["properties"])
    assert (retry - {"from"}) | {"start_from"} == fields_of(Retry)
    stop = set(schema()["properties"]["stop_conditions"]["properties"])
    assert {name.removesuffix("_s") if name == "max_wall_s" else name for name in fields_of(StopConditions)} == stop
    for owner in ("stage", "defaults"):
        below = set(definitions[owner]["properties"]["stop_conditions"]["properties"])
        assert below == stop - {"max_failed_stages"}
    limits = [set(definitions[owner]["properties"]["limits"]["properties"]) for owner in ("stage", "defaults")]
    assert limits == [fields_of(StepLimits)] * 2
    commands = set(definitions["step"]["properties"]["commands"]["properties"])
    assert (commands - {"from"}) | {"commands", "source"} == fields_of(CommandsStep)
    assert set(definitions["price"]["properties"]) == fields_of(Price)
    assert set(definitions["llm"]["properties"]["on_truncated"]["properties"]) == fields_of(OnTruncated)


def test_nothing_of_this_version_is_put_off():
    later = {name for _, node in nodes(schema()) for name in node.get("x-later", ())}
    assert not later & (fields_of(Stage, LLMStep, StopConditions, Retry) | {"prices", "stop_conditions"})


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
    assert complaints({"version": 1, "stages": {"s": stage}}, relaxed_schema()) == ()


@pytest.mark.parametrize(
    "tree",
    [
        {"version": E, "stages": {"s": {"shell": "a"}}},
        {"version": 1, "name": E, "stages": {"s": {"shell": "a"}}},
        {"version": 1, "stages": E},
        {"version": 1, "stages": {"s": E}},
        {"version": 1, "stages": {"s": {"shell": "a", "foreach": {"in": [1], "as": E}}}},
    ],
)
def test_what_must_be_known_before_rendering_is_literal(tree):
    assert complaints(tree, relaxed_schema())


def test_the_schema_alone_takes_what_the_loader_takes():
    text = {
        "version": 1,
        "stages": {"s": {"shell": ["a", 1], "timeout": "1h30m", "retry": 99, "verify": [{"check": "c"}]}},
    }
    assert list(jsonschema.Draft7Validator(schema()).iter_errors(text)) == []
