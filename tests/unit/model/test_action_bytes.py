"""An action and its outcome are the same after they went through bytes; bytes that lead out of a tree are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.action import (
    Action,
    ActionOutcome,
    ActionResult,
    Cancelled,
    Completed,
    EngineUnavailable,
    InputsChanged,
    Interpreter,
    Output,
    StepLimits,
    TimedOut,
    outcome_from_bytes,
    outcome_to_bytes,
)
from orch23.model.diagnostic import Diagnostic, Location, Related, Severity
from orch23.model.digest import Digest, FileEntry, canonical_json, digest_bytes

texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = texts.filter(lambda name: name not in ("", ".", "..") and "/" not in name and "\0" not in name)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
digests = st.builds(
    Digest, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(min_value=0, max_value=1 << 50)
)
entries = st.builds(FileEntry, digests, st.booleans(), st.just("") | paths)
files = st.dictionaries(paths, entries, max_size=3)
seconds = st.floats(min_value=0, max_value=1e9)
sizes = st.integers(min_value=0, max_value=1 << 62)
places = st.none() | st.builds(Location, texts, sizes, sizes, sizes)
diagnostics = st.builds(
    Diagnostic,
    texts,
    texts,
    places,
    st.none() | texts,
    st.sampled_from(Severity),
    st.lists(st.builds(Related, texts, places), max_size=2).map(tuple),
    st.none() | texts,
)


def tuples(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=3).map(tuple)


actions = st.builds(
    Action,
    argv=tuples(texts),
    inputs=files,
    python=st.builds(Interpreter.of, st.none() | texts, texts, texts),
    working_directory=st.just(".") | paths,
    output_folders=tuples(paths | paths.map("{}/".format)),
    env=st.dictionaries(texts, texts, max_size=3),
    scratch=tuples(texts),
    timeout_s=seconds,
    network=st.booleans(),
    tools=st.dictionaries(names, entries, max_size=3),
    reports=st.booleans(),
    sandbox=st.booleans(),
    min_tier=st.sampled_from(["landlock", "namespaces"]),
    limits=st.builds(StepLimits, memory=sizes, address_space=st.none() | sizes),
    writable=st.none() | tuples(paths | paths.map("{}/".format)),
    programs=st.dictionaries(names, texts, max_size=2),
    declared=tuples(texts),
)
outputs = st.builds(Output, texts, sizes, st.none() | digests)
results = st.builds(
    ActionResult,
    exit_code=st.integers(-255, 255),
    written=files,
    removed=tuples(paths),
    output=outputs,
    report=st.none() | digests,
    violations=tuples(diagnostics),
    duration_s=seconds,
    touched=tuples(texts),
    tier=texts,
)
outcomes: st.SearchStrategy[ActionOutcome] = st.one_of(
    st.builds(Completed, results),
    st.builds(TimedOut, outputs, seconds, files, tuples(paths)),
    st.builds(Cancelled),
    st.builds(InputsChanged, tuples(texts)),
    st.builds(
        EngineUnavailable,
        texts,
        st.sampled_from(["spawn", "length", "room", "sandbox"]),
        st.none() | diagnostics,
    ),
)


@pytest.mark.slow
@given(actions)
def test_an_action_is_the_same_after_it_went_through_bytes(action: Action) -> None:
    data = action.to_bytes()
    decoded = Action.from_bytes(data)
    assert decoded == action
    assert decoded.digest() == action.digest()
    assert decoded.to_bytes() == data


@given(outcomes)
def test_an_outcome_is_the_same_after_it_went_through_bytes(outcome: ActionOutcome) -> None:
    data = outcome_to_bytes(outcome)
    decoded = outcome_from_bytes(data)
    assert type(decoded) is type(outcome)
    assert decoded == outcome
    assert outcome_to_bytes(decoded) == data


def test_every_field_is_in_the_bytes_and_so_is_what_is_left_at_its_default() -> None:
    written = json.loads(Action(argv=("true",), inputs={}).to_bytes())
    assert set(written) == set(Action.__struct_fields__)
    assert list(written) == sorted(written)


ENTRY = FileEntry(digest_bytes(b"x"))
OUTSIDE = ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "", "a\0b"]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    "fields",
    [
        lambda path: {"inputs": {path: ENTRY}},
        lambda path: {"inputs": {"a": FileEntry(ENTRY.digest, link=path)}},
        lambda path: {"tools": {path: ENTRY}},
        lambda path: {"working_directory": path},
        lambda path: {"output_folders": (path,)},
        lambda path: {"writable": (path,)},
    ],
)
def test_an_action_with_a_path_outside_of_its_tree_is_refused(path: str, fields: Any) -> None:
    made = fields(path)
    if made.get("inputs", {}).get("a", ENTRY).link == path == "":
        return  # no link
    action = Action(**{"argv": ("true",), "inputs": {}, **made})
    with pytest.raises(ValueError, match=r"leads out|directory"):
        Action.from_bytes(action.to_bytes())


def test_the_name_of_a_tool_has_no_directory() -> None:
    action = Action(argv=("true",), inputs={}, tools={"a/b": ENTRY})
    with pytest.raises(ValueError, match="directory"):
        Action.from_bytes(action.to_bytes())


@pytest.mark.parametrize("path", OUTSIDE)
def test_an_outcome_with_a_path_outside_of_its_tree_is_refused(path: str) -> None:
    for outcome in (
        Completed(ActionResult(exit_code=0, written={path: ENTRY})),
        Completed(ActionResult(exit_code=0, written={}, removed=(path,))),
        TimedOut(Output(""), 1.0, {path: ENTRY}),
        TimedOut(Output(""), 1.0, {}, (path,)),
    ):
        with pytest.raises(ValueError, match="leads out"):
            outcome_from_bytes(outcome_to_bytes(outcome))


DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b'{"type": "completed"}', b'{"type": "other"}', b"nul", DEEP]
)
def test_other_bytes_are_neither(data: bytes) -> None:
    for decode in (Action.from_bytes, outcome_from_bytes):
        with pytest.raises(ValueError):
            decode(data)


def test_a_text_that_is_not_unicode_cannot_be_sent() -> None:
    with pytest.raises(ValueError):
        Action(argv=("\udc80",), inputs={}).to_bytes()


def test_an_unknown_field_is_refused_since_it_could_be_a_restriction() -> None:
    action = json.loads(Action(argv=("true",), inputs={}).to_bytes())
    limited = {**action, "limits": {**action["limits"], "sockets": 0}}
    for newer in ({**action, "no_clock": True}, limited):
        with pytest.raises(ValueError, match="canonical"):
            Action.from_bytes(canonical_json(newer))
    assert Action.from_bytes(canonical_json(action)) == Action(argv=("true",), inputs={})


@pytest.mark.parametrize(("old", "new"), [(b"{", b"{ "), (b'"network":false', b'"network":true,"network":false')])
def test_a_value_has_one_form_as_bytes(old: bytes, new: bytes) -> None:
    data = Action(argv=("true",), inputs={}).to_bytes()
    with pytest.raises(ValueError, match="canonical"):
        Action.from_bytes(data.replace(old, new, 1))
    assert Action(argv=("true",), inputs={}, timeout_s=300).to_bytes() == data


@pytest.mark.parametrize("path", ["/usr/bin/python3", "./python", ".venv/", "~/env"])
def test_a_path_of_an_interpreter_is_neither_sent_nor_accepted(path: str) -> None:
    action = Action(argv=("python",), inputs={}, python=Interpreter.of(path, "3.12"))
    data = action.to_bytes()
    assert path.encode() not in data
    assert action.python.is_by_path
    declared = str(action.python.declared).encode()
    with pytest.raises(ValueError, match="names its interpreter by a path"):
        Action.from_bytes(data.replace(declared, path.encode()))
    with pytest.raises(ValueError, match="names its interpreter by a path"):
        Interpreter(path)


def test_a_name_of_an_interpreter_is_sent_as_it_is() -> None:
    assert Interpreter.of("python3.12", "3.12", "8") == Interpreter("python3.12", "3.12", "8")
    assert not Interpreter.of("python3.12").is_by_path
    assert Interpreter.of(None) == Interpreter()
    assert Interpreter.of("a/b").declared != Interpreter.of("a/c").declared
