"""`architecture_stability`: layers in order, one owner a file, what was accepted keeps its place; it never raises."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.check import CheckInput
from orch23.model.diagnostic import Diagnostic
from orch23_checks.architecture_stability import ARCHITECTURE_STABILITY


def layer(name: str, *files: str, **changed: Any) -> dict[str, Any]:
    """Return a layer, by default one that stands on nothing and makes one file."""
    return {
        "name": name,
        "kind": "models",
        "purpose": "It is there.",
        "files": list(files or (f"{name}.py",)),
        **changed,
    }


def plan(*layers: Any) -> dict[str, Any]:
    """Return an architecture of these layers."""
    return {"execution_layers": list(layers)}


def found(value: Any, before: Any = None, **options: Any) -> list[tuple[str, str | None]]:
    """Return code and subject of each error."""
    data, old = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in (value, before))
    previous = {} if before is None else {"a.json": old}
    given_ = CheckInput(outputs={"a.json": data}, previous=previous, options=options)
    return [(one.code, one.subject) for one in ARCHITECTURE_STABILITY.run(given_)]


BELOW = layer("a", "a.py", "b.py")
ABOVE = layer("c", depends_on=["a"], uses=["b.py"])
TOP = layer("d", depends_on=["c"], uses=["a.py", "c.py"])


@pytest.mark.parametrize("value", [plan(BELOW), plan(BELOW, ABOVE, TOP), plan(layer("x"), layer("y"))])
def test_layers_in_order_have_no_error(value: Any) -> None:
    assert found(value) == []
    assert found(value, value) == []


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        (b"{", [("E313", "a.json")]),
        ([], [("E314", "a.json#")]),
        ({}, [("E314", "a.json#")]),
        (plan(), [("E314", "a.json#/execution_layers")]),
        (plan("a"), [("E314", "a.json#/execution_layers/0")]),
        (plan({**BELOW, "files": []}), [("E314", "a.json#/execution_layers/0/files")]),
        (plan({**BELOW, "kind": ""}), [("E314", "a.json#/execution_layers/0/kind")]),
        (plan(layer("a", depends_on=["a"])), [("E340", "a")]),
        (plan(layer("a", depends_on=["b"]), layer("b")), [("E340", "a")]),
        (plan(layer("a", depends_on=["b"]), layer("b", depends_on=["a"])), [("E340", "a")]),
        (plan(layer("a", depends_on=["gone", "lost"])), [("E340", "a"), ("E340", "a")]),
        (plan(layer("a"), layer("a", "b.py")), [("E341", "a")]),
        (plan(layer("a"), layer("b", "b.py", "a.py")), [("E341", "b")]),
        (plan(layer("a", "a.py", "a.py")), [("E341", "a")]),
        (plan(BELOW, layer("c", uses=["b.py"])), [("E342", "c")]),
        (plan(BELOW, layer("c", depends_on=["a"], uses=["z.py"])), [("E342", "c")]),
        (plan(layer("a", uses=["a.py"])), [("E342", "a")]),
    ],
)
def test_layers_that_cannot_be_made_one_after_the_other_are_refused(value: Any, problems: Any) -> None:
    assert found(value) == problems


@pytest.mark.parametrize(
    "after",
    [
        plan(BELOW, ABOVE, layer("e")),
        plan(layer("0"), {**BELOW, "depends_on": ["0"]}, ABOVE),
        plan({**BELOW, "files": ["b.py", "new.py", "a.py"]}, ABOVE),
        plan({**BELOW, "purpose": "It is new.", "intent": ["all"]}, ABOVE),
        plan(BELOW, {**ABOVE, "uses": []}),
        plan(BELOW, {**ABOVE, "depends_on": [], "uses": []}),
    ],
)
def test_an_accepted_architecture_may_grow_and_say_something_new(after: Any) -> None:
    assert found(after, plan(BELOW, ABOVE)) == []


@pytest.mark.parametrize(
    ("after", "problems"),
    [
        (plan(BELOW), [("E343", "c")]),
        (plan(BELOW, {**ABOVE, "name": "cc"}), [("E343", "c")]),
        (plan({**BELOW, "kind": "ui"}, ABOVE), [("E344", "a")]),
        (plan({**BELOW, "files": ["b.py"]}, ABOVE), [("E345", "a")]),
        (plan({**BELOW, "files": ["b.py"]}, {**ABOVE, "files": ["c.py", "a.py"]}), [("E345", "a")]),
        (plan(BELOW, {**ABOVE, "purpose": "It stands there."}), [("E346", "c")]),
    ],
)
def test_an_accepted_layer_keeps_its_place_and_its_words(after: Any, problems: Any) -> None:
    assert found(after, plan(BELOW, ABOVE)) == problems


def test_what_is_released_by_name_may_go_and_move() -> None:
    before = plan(BELOW, ABOVE)
    assert found(plan(BELOW), before, released=["c"]) == []
    assert found(plan({**BELOW, "files": ["b.py"]}, ABOVE), before, released=["a.py"]) == []
    assert found(plan(layer("x")), before, released=["a"]) == [("E343", "c")]


def test_a_line_of_an_input_releases_what_it_names() -> None:
    before, after = plan(BELOW, ABOVE), plan({**BELOW, "files": ["b.py"]})
    outputs, previous = ({"a.json": json.dumps(one).encode()} for one in (after, before))
    for line, codes in (
        (b"Remove it.\nRelease: `a.py`, c\n", []),
        (b"Release: c", ["E345"]),
        (b"I release: a.py, c", ["E345", "E343"]),
        (b"\xff\nRelease: a.py,c, ,", []),
    ):
        inputs = {"feedback/1.md": line, "request.md": b"Release: a.py, c"}
        given_ = CheckInput(outputs=outputs, previous=previous, inputs=inputs, options={"released_in": ["feedback/*"]})
        assert sorted(one.code for one in ARCHITECTURE_STABILITY.run(given_)) == sorted(codes)


def test_a_file_of_older_feedback_may_name_what_it_has_removed() -> None:
    outputs = {"a.json": json.dumps(plan(BELOW)).encode()}
    for texts, warnings in (
        ((b"Release: gone.py", b"Add x.\nRelease: a"), []),
        ((b"Release: gone.py", b"Release: a, zz.py,"), ["feedback/2.md:1:1"]),
        ((b"Relaese: gone.py", b""), ["feedback/1.md:1:1"]),
    ):
        inputs = {f"feedback/{number}.md": text for number, text in enumerate(texts, 1)}
        for previous, expected in ((outputs, warnings), ({}, [one for one in warnings if "1.md" in one])):
            options = {"released_in": ["feedback/*"]}
            given_ = CheckInput(outputs=outputs, previous=previous, inputs=inputs, options=options)
            assert [str(one.location) for one in ARCHITECTURE_STABILITY.run(given_)] == expected


@pytest.mark.parametrize("before", [b"{", {}, plan(), plan("a"), plan({"name": "c"})])
def test_an_architecture_accepted_by_another_schema_does_not_count(before: Any) -> None:
    assert found(plan(BELOW), before) == []


def error(after: Any, before: Any) -> Diagnostic:
    """Return the only error of an architecture after another one."""
    outputs, previous = ({"a.json": json.dumps(one).encode()} for one in (after, before))
    (only,) = ARCHITECTURE_STABILITY.run(CheckInput(outputs=outputs, previous=previous))
    return only


def test_an_error_has_what_to_keep_and_which_layer_makes_it_now() -> None:
    moved = plan({**BELOW, "files": ["b.py"], "purpose": "Other."}, {**ABOVE, "files": ["c.py", "a.py"]})
    assert error(moved, plan(BELOW, ABOVE)).message == "made `a.py`; `c` makes it now"
    other = plan({**BELOW, "purpose": "Other."})
    assert error(other, plan(BELOW)).hint == "keep its purpose word for word: It is there."


@pytest.mark.parametrize(
    "options", [{"file": 1}, {"released": "x"}, {"released": [1]}, {"released_in": 1}, {"strange": 1}]
)
def test_an_invalid_option_is_reported(options: dict[str, Any]) -> None:
    assert [code for code, _ in found(plan(BELOW), **options)] == ["E315"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*ABOVE]) | st.text(), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(JSON, JSON)
def test_no_json_makes_it_raise(one: Any, other: Any) -> None:
    for value in (one, plan(one), plan({**ABOVE, **dict.fromkeys(ABOVE, one)}), plan(BELOW, {**ABOVE, "uses": one})):
        found(value, other)
        found(plan(BELOW, ABOVE), value)
    found(plan(BELOW), plan(other), file=one, released=other)


@st.composite
def architectures(draw: st.DrawFn) -> dict[str, Any]:
    """Give an architecture that is right by itself: of up to three layers, each with one or two files of its own."""
    layers: list[dict[str, Any]] = []
    for name in draw(st.permutations("abc"))[: draw(st.integers(1, 3))]:
        files = draw(st.sampled_from([[f"{name}1"], [f"{name}1", f"{name}2"]]))
        below = draw(st.lists(st.sampled_from([one["name"] for one in layers]), unique=True)) if layers else []
        kind = draw(st.sampled_from(["models", "models", "models", "ui"]))
        layers.append(layer(name, *files, depends_on=below, kind=kind, purpose=draw(st.sampled_from("xxxy"))))
    return plan(*layers)


def reworded(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Say whether a layer has another purpose, and nothing else has changed of it."""
    return new != old and {**new, "purpose": old["purpose"]} == old


@given(architectures(), architectures())
def test_exactly_what_keeps_every_layer_kind_and_file_passes(before: Any, after: Any) -> None:
    assert found(before) == []
    now = {one["name"]: one for one in after["execution_layers"]}
    kept = all(
        one["name"] in now
        and now[one["name"]]["kind"] == one["kind"]
        and set(one["files"]) <= set(now[one["name"]]["files"])
        and not reworded(one, now[one["name"]])
        for one in before["execution_layers"]
    )
    assert (found(after, before) == []) == kept
