"""The classes of the language and the schema that follows from them: the same documents are good to both."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from orch23.language.document import ForeachDocument, LimitsDocument
from orch23.language.pipeline_document import (
    PipelineDocument,
    PoolDocument,
    PriceDocument,
    RatesDocument,
    RunStopConditionsDocument,
    SettingsDocument,
    SharedCacheDocument,
    full_form,
)
from orch23.language.reading import NodeSet, form_errors, has_valid_form
from orch23.language.schema import dereference, pipeline_schema, published_schema, relaxed_schema, schema_of
from orch23.language.schema_errors import _OwnValidator, language_errors
from orch23.language.stages import BuiltStage, make_stage
from orch23.model.action import DEFAULT_LIMITS, StepLimits
from orch23.model.fields import Problems
from orch23.model.language import Document, keys_of, read_fields
from orch23.model.llm import OnTruncated
from orch23.model.pipeline import LOCAL_EXECUTOR, Foreach, Retry, Stage, StopConditions
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.registry import kinds_of, missing_kind
from orch23.steps.shell.spec import ShellStep
from tests.documents import COMMON, EXPRESSIONS, FETCH, LLM, ODD, PYTEST, WHOLE, broken_documents

DOCUMENTS = 1_000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 400
DRIVES = 4
"""The documents are broken by as many seeds, so that several processes can share them."""


def fits(document: Any) -> bool:
    try:
        msgspec.convert(document, full_form())
    except msgspec.ValidationError:
        return False
    return True


def test_the_document_that_has_every_key_is_good() -> None:
    assert fits(WHOLE)
    assert language_errors(WHOLE, schema_of(full_form())) == ()
    assert keys_below(WHOLE) >= {key for kind in kinds(Document) for key in keys_of(kind)}


def kinds(owner: type[Document]) -> list[type[Document]]:
    below = (kind for kind in owner.__subclasses__() if kind.__module__.startswith("orch23.") and not of_plugin(kind))
    return [one for kind in below for one in (kind, *kinds(kind))]


def of_plugin(kind: type[Document]) -> bool:
    """Return whether a class was derived with step kinds of a plugin, by another test in this process."""
    base = kind.__bases__[0]
    added = set(keys_of(kind)) - set(keys_of(base)) if kind.__name__ == base.__name__ else set()
    return not added <= set(kinds_of(()))


def keys_below(value: Any) -> set[str]:
    below = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return (set(value) if isinstance(value, Mapping) else set()).union(*map(keys_below, below))


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRIVES))
def test_msgspec_and_the_schema_take_the_same_documents(seed: int) -> None:
    rules, good = schema_of(full_form()), 0
    for document in broken_documents(seed, DOCUMENTS // DRIVES):
        found = language_errors(document, rules)
        assert fits(document) == (found == ()), (found, document)
        good += not found
    assert DOCUMENTS // DRIVES // 10 < good < DOCUMENTS // DRIVES // 2, "both kinds of documents are tried"


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRIVES))
def test_documents_with_expressions_are_the_same_to_all_three(seed: int) -> None:
    good = 0
    for document in broken_documents(seed, DOCUMENTS // DRIVES // 2, (*EXPRESSIONS, *ODD[:4])):
        found = language_errors(document, relaxed_schema())
        assert has_valid_form(document) == (found == ()), (found, document)
        assert _OwnValidator(published_schema()).is_valid(document) == (found == ()), (found, document)
        good += not found
    assert good > DOCUMENTS // DRIVES // 20


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("jobs", 1.0),
        ("jobs", True),
        ("version", 1.0),
        ("version", True),
        ("version", "1"),
        ("name", "x\n"),
        ("name", "..."),
        ("stop_conditions", {"max_wall": "5m\n"}),
        ("stop_conditions", {"max_tokens": "4k\n"}),
        ("stop_conditions", {"max_cost_usd": "2.50\n"}),
        ("prices", {"m": {"input": "1\n", "output": 1}}),
        ("defaults", {"limits": {"memory": "1GiB\n"}}),
        ("vars", {"a\n": 1}),
        ("exit_codes", {"E1\n": 3}),
        ("stop_conditions", {"max_cost_usd": float("inf")}),
        ("stop_conditions", {"max_tokens": True}),
        ("pools", {"a": None}),
        ("defaults", None),
        ("defaults", {"cwd": " \t"}),
        ("defaults", {"retry": 1.5}),
    ],
)
def test_in_the_corners_both_are_as_strict(key: str, value: Any) -> None:
    document = {"version": 1, "stages": {"s": {"shell": "x"}}, key: value}
    assert not fits(document)
    assert language_errors(document, schema_of(full_form()))


def test_what_a_document_does_not_say_has_the_default_of_the_value() -> None:
    shell = make_stage("s", {"shell": ["x"]})
    assert shell == BuiltStage(Stage(name="s", step=ShellStep(("x",))))
    needed: Any = {"provider": "p", "model": "m", "prompt": "p.md"}
    llm = make_stage("s", {"llm": {**needed, "on_truncated": {}}, "retry": {}, "outputs": ["o"]}).stage
    assert llm is not None
    assert llm.step == LLMStep(**needed, on_truncated=OnTruncated())
    assert llm.retry == Retry()
    assert StepLimits(**read_fields(LimitsDocument(), Problems(""))) == DEFAULT_LIMITS
    pytest_step = make_stage("s", {"pytest": {}}).stage
    assert pytest_step is not None
    assert pytest_step.step == PytestStep()
    assert StopConditions(**read_fields(RunStopConditionsDocument(), Problems(""))) == StopConditions()
    assert read_fields(SettingsDocument(), Problems("")) == {"executor": LOCAL_EXECUTOR, "never_send": ()}
    assert declared(ForeachDocument, "name") == Foreach().name


def declared(kind: type[Document], name: str) -> Any:
    return next(field.default for field in msgspec.structs.fields(kind) if field.name == name)


def test_the_rest_of_a_stage_is_read_although_its_form_is_broken() -> None:
    body: Any = {"shel": 1, "shell": ["a"], "cache": "x", "inputs": [3, "../b"], "outputs": ["/c"], "retry": 99}
    found = [(problem.path, problem.code) for problem in make_stage("s", body).problems]
    assert sorted(found) == [
        ("stages/s/cache", "E811"),
        ("stages/s/inputs/0", "E811"),
        ("stages/s/inputs/1", "E850"),
        ("stages/s/outputs/0", "E850"),
        ("stages/s/retry", "W801"),
        ("stages/s/shel", "E802"),
    ]


def test_what_is_missing_does_not_hide_the_rest() -> None:
    body: Any = {"render": {}, "outputs": ["/c"], "verify": [{"commands": {"allow": []}}]}
    found = [(problem.path, problem.code) for problem in make_stage("s", body).problems]
    assert sorted(found) == [
        ("stages/s/outputs/0", "E850"),
        ("stages/s/render/template", "E810"),
        ("stages/s/verify/0/commands/allow", "E812"),
        ("stages/s/verify/0/commands/from", "E810"),
    ]


def test_a_key_that_became_null_is_absent_but_not_where_it_decides() -> None:
    made = make_stage("s", {"shell": ["a"], "cache": None, "cwd": None, "allowed_paths": {"write": None}})
    assert made.problems == ()
    assert [(p.path, p.code) for p in make_stage("s", {"shell": ["a"], "if": None}).problems] == [
        ("stages/s/if", "E811")
    ]


@pytest.mark.needs("fetch")
def test_the_author_files_of_a_stage_are_keys_of_its_document() -> None:
    properties = pipeline_schema()["definitions"]["stage"]["properties"]
    kinds_there = kinds_of(())
    of_steps = [(name, key) for name in kinds_there for key in kinds_there[name].author_keys]
    for part, key in (*of_steps, ("retry", "prompt")):
        below = dereference(properties[part], pipeline_schema())
        branches = [dereference(branch, pipeline_schema()) for branch in below.get("oneOf", (below,))]
        assert any(key in branch.get("properties", ()) for branch in branches), (part, key)
    body: Any = {"provider": "p", "model": "m", "prompt": "a", "system": "b", "schema": "c", "returns": "json"}
    llm = make_stage("s", {"llm": body, "outputs": ["o"], "retry": {"prompt": "d"}}).stage
    render = make_stage("s", {"render": "t", "outputs": ["o"]}).stage
    assert llm is not None
    assert render is not None
    assert list(llm.author_files.values()) == ["a", "b", "c", "d"]
    assert render.author_files == {("render", "template"): "t"}


FENCE = {"write": ["x.py", "*.json"], "protect": ["p"], "delete": ["x.py"], "read": ["docs/**"]}
STAGE = {**COMMON, "cache": True, "allowed_paths": FENCE, "outputs": ["x.py"], "desc": "d", "needs": ["n"]}
INPUTS = ["a", {"path": "c.json", "optional": True, "schema": "s.json"}, {"list": "d/**"}]
CHECKS = [
    {"check": "c", "with": {"a": 1}},
    {"pytest": {key: value for key, value in PYTEST.items() if key != "report"}},
    {"ensures": {"file_exists": "a", "file_absent": ["b"]}},
    {"commands": {"from": ["pytest -q"], "allow": ["pytest"]}},
    *({"shell": "s", "test_results": {form: "stdout"}} for form in ("junit", "tap", "go")),
    {"shell": "s", "test_results": {"regex": "stdout", "line": "(?P<id>a) (?P<outcome>b)"}},
    {"shell": "s", "findings": {"sarif": "stdout"}, "reruns": 2},
]
RETRY = {
    "max": 2,
    "when": ["timeout"],
    "prompt": "r",
    "from": "baseline",
    "no_progress": 2,
    "escalate": ["m"],
    "style": "conversation",
}
VERIFY = {"inputs": ["t"], "all": True, "steps": CHECKS}
EXPLORE = {"files": ["src/**"], "turns": 2, "tokens": "20k"}
BODIES: list[dict[str, Any]] = [
    {
        **STAGE,
        "promote": "each",
        "llm": LLM,
        "retry": RETRY,
        "explore": EXPLORE,
        "format": [{"shell": "f"}],
    },
    {
        **STAGE,
        "on_failure": "rollback",
        "approve": True,
        "pytest": PYTEST,
        "inputs": INPUTS,
        "outputs": ["x.py", "m.json"],
        "metrics": ["m.json"],
    },
    {
        **STAGE,
        "promote": "each",
        "render": {"template": "t"},
        "verify": {
            "inputs": ["t"],
            "all": True,
            "first": "off",
            "may_fail": ["a"],
            "fails_on_base": ["x.py"],
            "steps": CHECKS,
        },
    },
    {**STAGE, "promote": "each", "shell": "s", "inputs": INPUTS, "depfile": {"path": "$TMPDIR/d", "syntax": "ninja"}},
    *([{**STAGE, "promote": "each", "fetch": FETCH, "inputs": INPUTS}] if missing_kind("fetch") is None else []),
]


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_every_key_that_is_declared_is_read(body: dict[str, Any]) -> None:
    whole = make_stage("s", body)
    assert whole.problems == ()
    places = [place for place in mapping_keys(body, ()) if place[-1] not in ("promote", "on_failure")]
    assert len(places) > 30
    unread = [place for place in places if make_stage("s", without(body, place)) == whole]
    assert unread == []


def test_bodies_that_are_tried_have_every_key_of_a_stage() -> None:
    tried = set().union(*map(keys_below, BODIES))
    of_the_file = (PipelineDocument, SettingsDocument, PoolDocument, PriceDocument, RatesDocument, SharedCacheDocument)
    owners = [kind for kind in kinds(Document) if not (kind in of_the_file or issubclass(kind, PipelineDocument))]
    declared_keys = {key for kind in owners if kind is not ForeachDocument for key in keys_of(kind)}
    # `edits` and `allowed_paths.write` are not in one stage, nor are `once` and `on_edit`.
    assert declared_keys - tried == {"foreach", "if", "max_failed_stages", "edits", "once"}


def test_no_key_of_this_version_is_of_a_later_one() -> None:
    assert [kind for kind in kinds(Document) if set(kind.later) & set(keys_of(kind))] == []


def mapping_keys(value: Any, at: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [place for key, inner in pairs for place in mapping_keys(inner, (*at, key))]
    return [*((*at, key) for key in (value if isinstance(value, dict) else ())), *below]


def without(value: Any, place: tuple[Any, ...]) -> Any:
    copied = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1:
        del copied[place[0]]
    else:
        copied[place[0]] = without(copied[place[0]], place[1:])
    return copied


def test_a_document_that_only_the_classes_refuse_is_an_error_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orch23.language.schema_errors.language_errors", lambda _tree, _schema: ())
    assert [one.code for one in form_errors({"version": 2})] == ["E811"]
    assert [one.code for one in make_stage("s", {"shell": 3}).problems] == ["E811"]


@pytest.mark.slow
def test_many_errors_of_one_stage_do_not_take_the_square_of_their_number() -> None:
    body: Any = {"shell": ["x"], "outputs": [1] * 30_000 + ["/a"] * 30_000}
    codes = [problem.code for problem in make_stage("s", body).problems]
    assert (codes.count("E811"), codes.count("E850")) == (30_000, 30_000)


def test_a_node_concerns_those_in_it_and_those_that_hold_it() -> None:
    nodes = NodeSet.at(["stages/s/a/0", "stages/s/b"])
    assert [path for path in ("stages", "stages/s/a", "stages/s/a/0", "stages/s/b/c") if not nodes.touches(path)] == []
    assert [path for path in ("stages/s/a/1", "stages/s/bc", "stages/t", "", "stages/s/c") if nodes.touches(path)] == []
