"""The values of model: identities, names, locations, exit codes."""

from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from orch23.model import errors, plan
from orch23.model.action import Action, Interpreter, StepLimits
from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.diagnostic import errors as blocking
from orch23.model.digest import Digest, FileEntry, Json, digest_bytes
from orch23.model.event import EVENT_KINDS, BatchEvent, Notice
from orch23.model.event_data import EventData
from orch23.model.llm import CachePolicy, Message, Proposal, ProposedWrite, Request, RetryFeedback
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Stage
from orch23.model.record import LockFile, Reason, Record, core_of, identity_of, is_verify_aspect, key_of
from orch23.model.step import Grant
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep

ENTRY = FileEntry(digest_bytes(b"x"))
OTHER = FileEntry(digest_bytes(b"y"))

# ---- an action's identity -------------------------------------------------------------------------

ACTION = Action(argv=("true",), inputs={"a": ENTRY}, python=Interpreter("python3"))
ACTION_CHANGES: dict[str, object] = {
    "argv": ("false",),
    "inputs": {"a": OTHER},
    "working_directory": "sub",
    "output_folders": ("out",),
    "env": {"A": "1"},
    "scratch": ("*.tmp",),
    "network": True,
    "tools": {"a.py": ENTRY},
    "reports": True,
    "python": Interpreter("python3", "3.12"),
    "writable": (),
    "programs": {"jq": "0" * 64},
    "results": ("build/*.xml",),
    "reads": True,
}
NO_PART_OF_AN_ACTION: dict[str, object] = {
    "min_tier": "namespaces",
    "timeout_s": 1.0,
    "sandbox": False,
    "limits": StepLimits(memory=1),
    "tool_caches": ("npm",),
    "cache_mode": "fill",
    "views_of": "a",
    "declared": ("0" * 64,),
}


@pytest.mark.parametrize("name", ACTION_CHANGES)
def test_what_an_action_does_is_its_identity(name: str) -> None:
    assert replace(ACTION, **{name: ACTION_CHANGES[name]}).digest() != ACTION.digest()


@pytest.mark.parametrize("name", NO_PART_OF_AN_ACTION)
def test_limits_and_absolute_paths_are_no_part_of_an_actions_identity(name: str) -> None:
    changed = replace(ACTION, **{name: NO_PART_OF_AN_ACTION[name]})
    assert changed.digest() == ACTION.digest()


def test_every_field_of_an_action_is_known_to_matter_or_not() -> None:
    assert set(Action.__struct_fields__) == ACTION_CHANGES.keys() | NO_PART_OF_AN_ACTION.keys()


def test_the_executable_bit_of_an_input_changes_an_action() -> None:
    assert replace(ACTION, inputs={"a": replace(ENTRY, executable=True)}).digest() != ACTION.digest()


# ---- a request's fingerprint ----------------------------------------------------------------------

REQUEST = Request(
    provider="p", model="m", endpoint="", system="s", messages=(Message("user", "a"),), identity=(Message("user", "a"),)
)
REQUEST_CHANGES: dict[str, object] = {
    "provider": "q",
    "model": "n",
    "endpoint": "e",
    "api": "a",
    "system": "t",
    "system_identity": "t",
    "identity": (Message("user", "b"),),
    "params": {"max_tokens": 1},
    "returns": "json",
    "schema": {"type": "object"},
    "sample": 1,
    "program": {"tools/ask.py": "0"},
}


@pytest.mark.parametrize("name", REQUEST_CHANGES)
def test_everything_that_changes_a_response_changes_the_fingerprint(name: str) -> None:
    changed = replace(REQUEST, **{name: REQUEST_CHANGES[name]})
    assert changed.fingerprint() != REQUEST.fingerprint()


# How the prompt cache of a vendor is used does not change a response.
CACHE_CHANGES = {
    "stable": 1,
    "family": 1,
    "beginnings": (1,),
    "is_repeated": False,
    "system_users": "stages",
    "cache": CachePolicy(ttl="1h"),
}


# Nor does how soon it is needed, how it arrives, how long it is, or why this provider is called.
CALL_CHANGES = {
    "pace": "batch",
    "is_live": False,
    "input_tokens": 7,
    "is_final": True,
    "fallback": True,
    "adopts": True,
}


@pytest.mark.parametrize("name", CALL_CHANGES)
def test_how_a_call_is_made_does_not_change_the_fingerprint(name: str) -> None:
    assert replace(REQUEST, **{name: CALL_CHANGES[name]}).fingerprint() == REQUEST.fingerprint()


@pytest.mark.parametrize("name", CACHE_CHANGES)
def test_the_use_of_a_prompt_cache_does_not_change_the_fingerprint(name: str) -> None:
    assert replace(REQUEST, **{name: CACHE_CHANGES[name]}).fingerprint() == REQUEST.fingerprint()


def test_the_fingerprint_has_the_identity_of_messages_and_not_the_messages_as_sent() -> None:
    tried = REQUEST_CHANGES.keys() | CACHE_CHANGES.keys() | CALL_CHANGES.keys()
    assert set(Request.__struct_fields__) == tried | {"messages", "added", "schema_identity"}
    sent = replace(REQUEST, messages=(Message("user", "a, and a traceback in another Python's words"),))
    assert sent.fingerprint() == REQUEST.fingerprint()


def test_the_fingerprint_has_the_identity_of_a_system_prompt_if_that_has_one() -> None:
    sent = replace(REQUEST, system="the same with other delimiters", system_identity=REQUEST.system)
    assert sent.fingerprint() == REQUEST.fingerprint()


def test_the_fingerprint_has_the_identity_of_a_schema_if_that_has_one() -> None:
    earlier = replace(REQUEST, schema={"type": "object"})
    sent = replace(earlier, schema={"type": "null"}, schema_identity=earlier.schema)
    assert sent.fingerprint() == earlier.fingerprint() != REQUEST.fingerprint()


def test_the_same_files_in_another_order_are_the_same_proposal() -> None:
    a, b = ProposedWrite("a", "1"), ProposedWrite("b", "2")
    one, other = Proposal("x", (a, b), ("d", "e")), Proposal("y", (b, a), ("e", "d"))
    assert one.digest() == other.digest()
    assert one.digest() != Proposal("x", (a,), ("d", "e")).digest()
    assert one.digest() != Proposal("x", (a, b), ("d",)).digest()


def test_two_failures_are_the_same_whatever_their_excerpts_say() -> None:
    brief = RetryFeedback(kind="verify_failed", command="pytest", excerpt="0.1s", failing=("b", "a"))
    assert brief.identity() == replace(brief, excerpt="0.2s", exit_code=1, failing=("a", "b")).identity()
    assert brief.identity() != replace(brief, failing=("a",)).identity()


# ---- manifests ------------------------------------------------------------------------------------

MANIFEST: dict[str, Json] = {"kind": "shell", "outputs": ["o"], "item": None, "input:a": "1", "verify": ["v"]}


def test_a_key_is_of_the_whole_manifest_in_any_order() -> None:
    assert key_of(MANIFEST) == key_of(dict(reversed(MANIFEST.items())))
    assert key_of(MANIFEST) != key_of({**MANIFEST, "input:a": "2"})


@pytest.mark.parametrize(
    ("aspect", "expected"),
    [
        ("verify", True),
        ("verify:tests/a.py", True),
        ("verify.steps", True),
        ("verify.input:a", True),
        ("ensures", True),
        ("input:verify", False),
        ("verifying", False),
        ("requires", False),
    ],
)
def test_verification_has_aspects_of_its_own(aspect: str, expected: bool) -> None:
    assert is_verify_aspect(aspect) is expected


def test_the_core_changes_with_everything_but_verification() -> None:
    assert core_of({**MANIFEST, "verify": ["w"], "verify:x": "1", "ensures": []}) == core_of(MANIFEST)
    assert core_of({**MANIFEST, "input:b": "1"}) != core_of(MANIFEST)


def test_the_identity_stays_while_inputs_come_and_go() -> None:
    assert identity_of({**MANIFEST, "input:b": "1", "env:A": "1"}) == identity_of(MANIFEST)
    for aspect in ("kind", "outputs", "item"):
        assert identity_of({**MANIFEST, aspect: "other"}) != identity_of(MANIFEST)


# ---- pipelines ------------------------------------------------------------------------------------


def test_a_stage_belongs_to_the_family_it_was_declared_as() -> None:
    step = ShellStep(("true",))
    assert Stage(name="code@T1@x", step=step).family == "code"
    assert Stage(name="code", step=step).family == "code"


def test_a_node_is_found_at_its_place_or_at_its_nearest_ancestors() -> None:
    stage, outputs = Location("p.yaml", 3, 1), Location("p.yaml", 5, 7)
    pipeline = Pipeline(name="p", file="p.yaml", stages=(), locations={"stages/a": stage, "stages/a/outputs": outputs})
    assert pipeline.locate("stages", "a", "outputs", 0) == outputs
    assert pipeline.locate("stages", "a@T1", "inputs") == stage
    assert pipeline.locate("stages", "b") is None
    assert pipeline.locate() is None


def test_values_are_frozen() -> None:
    values = (Pipeline(name="p", file="f", stages=()), ForeachStage(name="s", foreach=Foreach(), body={}, kind="llm"))
    for value in (*values, ACTION, REQUEST, ENTRY, Reason("forced")):
        with pytest.raises(AttributeError):
            setattr(value, value.__struct_fields__[0], "other")


def test_what_a_grant_tells_the_user_is_not_compared() -> None:
    grant = Grant(kind="program", name="p", keys=("K",), sha256="00", network=True, reads=("/r",))
    same = replace(grant, detail="p -x", files=("f",))
    assert grant == same
    assert hash(grant) == hash(same)
    changes: dict[str, object] = {
        "kind": "server",
        "name": "q",
        "keys": (),
        "sha256": "",
        "network": False,
        "reads": (),
    }
    assert changes.keys() == set(Grant.__struct_fields__) - {"detail", "files"}
    assert all(replace(grant, **{name: value}) != grant for name, value in changes.items())


# ---- records and decisions ------------------------------------------------------------------------


def test_the_lock_knows_version_0_of_every_path_that_a_record_names() -> None:
    first = Record(stage="a", key="k", manifest={}, originals={"x": ENTRY, "y": None})
    second = Record(stage="b", key="l", manifest={}, originals={"z": OTHER})
    assert LockFile({"b": second, "a": first}).originals() == {"x": ENTRY, "y": None, "z": OTHER}


def test_each_decision_has_a_label_of_its_own() -> None:
    labels = [variant.label for variant in get_args(plan.Decision)]
    assert labels == ["fresh", "restore", "verify", "run", "maybe", "expand", "blocked", "edited", "skipped"]


def test_no_event_type_is_there_twice() -> None:
    bases = (Notice, BatchEvent)
    types = [kind for base in (EventData, *bases) for kind in base.__subclasses__() if kind not in bases]
    assert set(EVENT_KINDS.values()) == set(types)
    assert len(EVENT_KINDS) == len(types)
    assert {"run_started", "plan", "stage_decided", "run_finished"} <= set(EVENT_KINDS)


# ---- diagnostics ----------------------------------------------------------------------------------


def test_a_diagnostic_is_one_line_of_place_code_message_and_way_out() -> None:
    full = Diagnostic("E802", "unknown key `need`", Location("p.yaml", 15, 5), "did you mean `needs`?", subject="test")
    assert str(full) == "p.yaml:15:5: error[E802]: test: unknown key `need` (did you mean `needs`?)"
    assert str(Diagnostic("W101", "odd", severity=Severity.WARNING)) == "warning[W101]: odd"


def test_only_errors_block() -> None:
    error, warning = Diagnostic("E1", "a"), Diagnostic("W1", "b", severity=Severity.WARNING)
    assert blocking((warning, error, Diagnostic("N1", "c", severity=Severity.NOTE))) == (error,)


def test_an_error_tells_all_of_its_diagnostics() -> None:
    first, second = Diagnostic("E1", "a"), Diagnostic("E2", "b")
    error = errors.InvalidInputError(first, second)
    assert error.diagnostics == (first, second)
    assert str(error) == "error[E1]: a\nerror[E2]: b"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.Orch23Error, 70),
        (errors.InvalidInputError, 65),
        (errors.NotFoundError, 66),
        (errors.UsageError, 64),
        (errors.CorruptStateError, 3),
        (errors.SafetyError, 2),
        (errors.ProviderError, 5),
        (errors.LimitError, 4),
        (errors.ConfigurationError, 78),
        (errors.BusyError, 75),
        (errors.ConsentError, 77),
    ],
)
def test_what_stops_the_tool_has_its_exit_code(kind: type[errors.Orch23Error], code: int) -> None:
    assert kind.exit_code == code


def test_every_kind_of_error_is_in_the_table_above() -> None:
    ours = [kind for kind in errors.Orch23Error.__subclasses__() if kind.__module__ == errors.__name__]
    assert len(ours) == 10


def test_missing_bytes_say_what_they_are_about() -> None:
    assert errors.MissingBytesError("ab").sha256 == "ab"


def test_digests_sort_by_content() -> None:
    assert Digest("a", 9) < Digest("b", 1)


def test_where_a_pipeline_keeps_its_transcripts_is_found_once() -> None:
    llm = LLMStep(provider="scripted", model="m", prompt="p", transcripts="kept/b")
    stages = (
        Stage(name="a", step=llm),
        ForeachStage(
            name="each",
            foreach=Foreach(source="l.json"),
            kind="llm",
            body={"llm": {"transcripts": "kept/a"}},
        ),
    )
    pipeline = Pipeline(name="p", file="p.yaml", stages=stages, transcripts=("kept/c",))
    assert pipeline.transcript_folders == ("kept/a", "kept/b", "kept/c")
    assert pipeline.transcript_folders is pipeline.transcript_folders  # it is asked for with every stage
    assert msgspec.msgpack.encode(pipeline) == msgspec.msgpack.encode(replace(pipeline))
