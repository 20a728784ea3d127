"""An action is the same after it went through messages, and all that determines what it does changes its digest."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.action import PYTHON, TOOLS_FOLDER, Action, Interpreter, StepLimits
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.reapi.actions import ActionBlobs, action_blobs, action_of
from orch23.reapi.messages import (
    ActionProto,
    Command,
    Directory,
    Duration,
    FileNode,
    Platform,
    Property,
    digest_of,
    digest_proto,
)
from orch23.reapi.wire import DecodeError, Message, decode, encode
from tests.reapi_oracle import oracle_of

ONE, TWO = FileEntry(digest_bytes(b"1")), FileEntry(digest_bytes(b"2"), executable=True)
ACTION = Action(
    argv=(PYTHON, "-m", "pytest", TOOLS_FOLDER),
    inputs={"src/a.py": ONE, "bin/run": TWO, "linked": FileEntry(ONE.digest, link="src/a.py")},
    python=Interpreter.of("/opt/python/bin/python3", "3.12", "8"),
    working_directory="src",
    output_folders=("build/", "src/out/"),
    env={"B": "2", "A": "1"},
    scratch=("*.pyc",),
    timeout_s=2.5,
    tools={"plugin.py": ONE},
    reports=True,
    writable=("build/", "src/log.txt"),
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NAMES = st.sampled_from(["a", "b", "c", "é"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
ENTRIES = st.builds(FileEntry, st.sampled_from([ONE.digest, TWO.digest]), st.booleans(), st.just("") | PATHS)
TOOLS = st.builds(FileEntry, st.just(ONE.digest), st.booleans())
SIZES = st.integers(0, 1 << 62)
ACTIONS = st.builds(
    Action,
    argv=st.lists(TEXTS).map(tuple),
    inputs=st.dictionaries(PATHS, ENTRIES, max_size=4),
    python=st.builds(Interpreter.of, st.none() | TEXTS, TEXTS, TEXTS),
    working_directory=st.just(".") | PATHS,
    output_folders=st.lists(PATHS | PATHS.map("{}/".format), max_size=2).map(tuple),
    env=st.dictionaries(TEXTS, TEXTS, max_size=3),
    scratch=st.lists(TEXTS, max_size=2).map(tuple),
    timeout_s=st.integers(0, 10**16).map(lambda nanos: nanos / 10**9),
    network=st.booleans(),
    tools=st.dictionaries(NAMES, TOOLS, max_size=2),
    reports=st.booleans(),
    sandbox=st.booleans(),
    limits=st.builds(StepLimits, memory=SIZES, address_space=st.none() | SIZES),
    writable=st.none() | st.lists(PATHS | PATHS.map("{}/".format), max_size=2).map(tuple),
)


def read(made: ActionBlobs) -> Action:
    return action_of(made.digest, made.blobs.__getitem__)


def message(made: ActionBlobs) -> ActionProto:
    return decode(ActionProto, made.blobs[made.digest])


def command(made: ActionBlobs) -> Command:
    return decode(Command, made.blobs[digest_of(message(made).command_digest)])


@given(ACTIONS)
def test_an_action_is_the_same_after_it_went_through_messages(action: Action) -> None:
    try:
        made = action_blobs(action)
    except ValueError:
        with pytest.raises(ValueError, match="is a file and a folder"):
            action_blobs(action)
        return
    assert read(made) == action
    assert all(digest_bytes(data) == digest for digest, data in made.blobs.items())


def test_an_action_has_this_digest() -> None:
    assert action_blobs(ACTION).digest == Digest(
        "c6841b78489f50f425dcfc5d20a85dddb0f39e9b047c582bb8302b04bf64920c", 515
    )
    assert action_blobs(Action(argv=("true",), inputs={})).digest == Digest(
        "dc209a321e020c88bedb3c0210abc31d7e8968d734d6020833b3a4315f3ad7aa", 401
    )


def test_equal_actions_have_equal_messages() -> None:
    other = replace(ACTION, inputs=dict(reversed(list(ACTION.inputs.items()))), env={"A": "1", "B": "2"})
    assert action_blobs(other) == action_blobs(ACTION)


def test_protobuf_reads_an_action_as_a_server_would() -> None:
    made = action_blobs(ACTION)
    action = oracle_of("ActionProto").FromString(made.blobs[made.digest])
    digest = Digest(action.command_digest.hash, action.command_digest.size_bytes)
    asked = oracle_of("Command").FromString(made.blobs[digest])
    assert list(asked.arguments) == list(ACTION.argv)
    assert [(one.name, one.value) for one in asked.environment_variables] == [("A", "1"), ("B", "2")]
    assert asked.working_directory == "tree/src"
    assert list(asked.output_paths) == ["../build", "log.txt", "out"]
    assert (action.timeout.seconds, action.timeout.nanos) == (2, 500_000_000)
    expected = [("orch23-pytest", "8"), ("orch23-python", "3.12"), ("orch23-sandbox", "B")]
    assert [(one.name, one.value) for one in action.platform.properties] == expected
    assert asked.platform == action.platform
    root = oracle_of("Directory").FromString(
        made.blobs[Digest(action.input_root_digest.hash, action.input_root_digest.size_bytes)]
    )
    assert [one.name for one in root.directories] == ["tools", "tree"]


def test_no_path_of_this_machine_is_in_the_messages() -> None:
    assert not any(b"/opt" in data for data in action_blobs(ACTION).blobs.values())


CHANGES: dict[str, Any] = {
    "argv": ("true",),
    "inputs": {"src/a.py": ONE},
    "python": Interpreter("3.12", "3.12", "8"),
    "working_directory": ".",
    "output_folders": ("build/",),
    "env": {"A": "1", "B": "3"},
    "scratch": (),
    "timeout_s": 2.25,
    "network": True,
    "tools": {"plugin.py": TWO},
    "reports": False,
    "sandbox": False,
    "min_tier": "namespaces",
    "limits": StepLimits(processes=1),
    "writable": None,
    "programs": {"jq": "0" * 64},
}


@pytest.mark.parametrize("name", Action.__struct_fields__)
def test_every_part_of_an_action_changes_its_digest(name: str) -> None:
    assert action_blobs(replace(ACTION, **{name: CHANGES[name]})).digest != action_blobs(ACTION).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": {"linked": ONE, "src/a.py": ONE, "bin/run": TWO}},  # a file instead of a link
        {"inputs": {**ACTION.inputs, "linked": FileEntry(ONE.digest, link="elsewhere")}},
        {"inputs": {**ACTION.inputs, "bin/run": FileEntry(TWO.digest)}},
        {"python": Interpreter.of("/opt/python/bin/python3", "3.12", "9")},
        {"python": Interpreter.of("/opt/python/bin/python3", "3.13", "8")},
        {"output_folders": ("build", "src/out/")},
        {"writable": ("build", "src/log.txt")},
    ],
)
def test_a_small_change_changes_the_digest_too(changes: dict[str, Any]) -> None:
    made = action_blobs(replace(ACTION, **changes))
    assert made.digest != action_blobs(ACTION).digest
    assert read(made) == replace(ACTION, **changes)


OUTSIDE = ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "a\0b"]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    "fields",
    [
        lambda path: {"inputs": {path: ONE}},
        lambda path: {"inputs": {"a": FileEntry(ONE.digest, link=path)}},
        lambda path: {"tools": {path: ONE}},
        lambda path: {"working_directory": path},
        lambda path: {"output_folders": (path,)},
        lambda path: {"writable": (path,)},
    ],
)
def test_an_action_with_a_path_outside_of_its_tree_is_refused(path: str, fields: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match=r"leads out|directory"):
        action_blobs(Action(**{"argv": ("true",), "inputs": {}, **fields(path)}))


@pytest.mark.parametrize("timeout_s", [-1.0, float("inf"), float("nan"), float("-inf")])
def test_a_timeout_that_is_no_time_is_refused(timeout_s: float) -> None:
    with pytest.raises(ValueError, match=r"timeout|NaN"):
        action_blobs(replace(ACTION, timeout_s=timeout_s))


def test_a_tool_is_a_file() -> None:
    with pytest.raises(ValueError, match="link"):
        action_blobs(replace(ACTION, tools={"a": FileEntry(ONE.digest, link="b")}))


def changed(made: ActionBlobs, **values: Any) -> ActionBlobs:
    """Return the messages with another action message."""
    return with_message(made, replace(message(made), **values))


def with_message(made: ActionBlobs, other: Message) -> ActionBlobs:
    data = encode(other)
    return ActionBlobs(digest_bytes(data), {**made.blobs, digest_bytes(data): data})


def with_command(made: ActionBlobs, **values: Any) -> ActionBlobs:
    added = with_message(made, replace(command(made), **values))
    return changed(ActionBlobs(made.digest, added.blobs), command_digest=digest_proto(added.digest))


@pytest.mark.parametrize(
    "change",
    [
        lambda made: changed(made, do_not_cache=True),
        lambda made: changed(made, salt=b""),
        lambda made: changed(made, salt=message(made).salt.replace(b'"format":1', b'"format":2')),
        lambda made: changed(made, salt=message(made).salt.replace(b"{", b'{"clock":false,', 1)),
        lambda made: changed(made, salt=message(made).salt.replace(b'["build/","src/out/"]', b'["../a"]')),
        lambda made: changed(made, salt=b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        lambda made: changed(made, timeout=None),
        lambda made: changed(made, timeout=Duration(seconds=-1)),
        lambda made: changed(made, platform=None),
        lambda made: changed(made, platform=Platform(properties=(Property(name="orch23-sandbox", value="C"),))),
        lambda made: changed(made, command_digest=None),
        lambda made: changed(made, input_root_digest=digest_proto(digest_bytes(b""))),
        lambda made: with_command(made, working_directory="tree/../.."),
        lambda made: with_command(made, output_paths=("/etc",)),
        lambda made: with_command(made, environment_variables=(Property(name="A"), Property(name="A", value="1"))),
    ],
)
def test_messages_that_are_no_action_of_this_version_are_refused(change: Callable[[ActionBlobs], ActionBlobs]) -> None:
    with pytest.raises(DecodeError):
        read(change(action_blobs(ACTION)))


def test_an_unknown_field_is_refused_since_it_could_be_a_restriction() -> None:
    made = action_blobs(ACTION)
    data = made.blobs[made.digest] + b"\x98\x06\x05"
    with pytest.raises(DecodeError, match="this version"):
        read(ActionBlobs(digest_bytes(data), {**made.blobs, digest_bytes(data): data}))


def test_a_file_beside_the_tree_is_refused() -> None:
    made = action_blobs(ACTION)
    root = decode(Directory, made.blobs[digest_of(message(made).input_root_digest)])
    added = with_message(made, replace(root, files=(FileNode(name="other", digest=digest_proto(ONE.digest)),)))
    with pytest.raises(DecodeError, match="this version"):
        read(changed(ActionBlobs(made.digest, added.blobs), input_root_digest=digest_proto(added.digest)))
