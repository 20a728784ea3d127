"""One attempt's conversation: which sample is asked, what a cut answer costs, what a failed call leaves as it was."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.attempt.conversation import (
    CallResult,
    Conversations,
    RecordedConversation,
    find_recorded,
    shared_systems,
    with_more_tokens,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.event_data import RecordingMode
from orch23.model.llm import Exchange, Message, OnTruncated, Request, Response, Usage
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Stage
from orch23.model.record import Facts
from orch23.providers.adapter import CallContext, ProviderContext, ScriptedCase
from orch23.providers.recordings import RecordingProvider, ReplayOnlyProvider, UniqueCalls
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.llm.spec import LLMStep
from orch23.store.exchanges import Exchanges
from orch23.text.secrets import Secrets
from tests.doubles import CONSENT, FakeProvider, with_needs

STEP = LLMStep(provider="command", model="m", prompt="p.j2", command=("ask",))
CUT = Response(text="half an ans", stop="max_tokens", usage=Usage(3, 4))


def question(text: str = "hello", **params: Any) -> Request:
    said = (Message("user", text),)
    return Request(provider="command", model="m", endpoint="", system="", messages=said, identity=said, params=params)


class Counting:
    """A meter that takes whatever comes and remembers it."""

    def __init__(self) -> None:
        self.settled: list[Response] = []

    def settle(self, stage: str, response: Response) -> None:
        self.settled.append(response)

    def reserve(self, stage: str, request: Request) -> None: ...

    def deadline_s(self, _stage: str, asked_s: float) -> float:
        return asked_s

    def with_cost(self, request: Request, response: Response) -> Response:
        return response

    def release(self, stage: str) -> None: ...

    def settle_unusable(self, stage: str, usage: Usage, *, is_final: bool = True) -> None: ...

    def might_fit(self, stage: str, request: Request) -> bool:
        return True

    def forfeit(self, stage: str) -> None: ...


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answers: list[tuple[Request, Response]] = []
        self.written = ""

    def received(self, text: str) -> None:
        self.written += text

    def requested(self, request: Request) -> None:
        self.asked.append(request)

    def responded(self, request: Request, response: Response) -> None:
        self.answers.append((request, response))


class Bench:
    """A stage over transcripts on disk; each `attempt` is a conversation, `again` begins a further build."""

    def __init__(self, folder: Path) -> None:
        self.exchanges = Exchanges(folder / "exchanges", folder)
        self.again()

    def again(self, taken: frozenset[str] = frozenset()) -> None:
        self.once, self.asked, self.meter, self.heard = UniqueCalls(taken), set[str](), Counting(), Heard()

    def attempt(
        self, model: Any, mode: RecordingMode = "cached", *, more: OnTruncated | None = None
    ) -> RecordedConversation:
        recorded = RecordingProvider(inner=model, store=self.exchanges, stage="code", mode=mode, unique_calls=self.once)
        step = replace(STEP, on_truncated=more)
        return RecordedConversation(
            recorded=recorded, meter=self.meter, call=CallContext(step, "code"), params={}, used=self.asked
        )

    def ask(self, conversation: RecordedConversation, request: Request | None = None) -> CallResult:
        return conversation.complete(conversation.next_sample(request or question()), 10.0, self.heard)

    def kept(self, request: Request) -> Exchange | None:
        return self.exchanges.get(request.fingerprint(), None)

    def samples(self) -> list[tuple[bool, str]]:
        """Return of each sample of the question whether it is superseded, and its answer."""
        found, request = [], question()
        while (kept := self.kept(request)) is not None:
            found.append((kept.superseded, kept.response))
            request = replace(request, sample=request.sample + 1)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def nobody() -> FakeProvider:
    return FakeProvider(lambda request: pytest.fail(f"somebody was asked: {request}"))


def test_the_same_question_in_one_way_is_another_sample_and_replays_as_such(bench: Bench) -> None:
    model = FakeProvider(["one", "two"])
    assert [bench.ask(bench.attempt(model)).response.text for _ in range(2)] == ["one", "two"]
    for mode in ("cached", "replay"):
        bench.again()
        assert [bench.ask(bench.attempt(nobody(), mode)).response.text for _ in range(2)] == ["one", "two"]
        assert bench.meter.settled == []


# ---- new samples -----------------------------------------------------------------------------


def test_record_asks_for_the_next_sample_which_replay_and_cached_then_take(bench: Bench) -> None:
    bench.ask(bench.attempt(FakeProvider(["one"])))
    for round_, text in enumerate(["two", "three"], start=2):
        bench.again()
        assert bench.ask(bench.attempt(FakeProvider([text]), "record")).response.text == text
        assert [superseded for superseded, _ in bench.samples()] == [*[True] * (round_ - 1), False]
        for mode in ("cached", "replay"):
            bench.again()
            assert bench.ask(bench.attempt(nobody(), mode)).response.text == text


def test_record_calls_the_model_for_a_request_without_a_recording(bench: Bench) -> None:
    bench.ask(bench.attempt(FakeProvider(["one"]), "record"))
    assert bench.samples() == [(False, "one")]


def test_record_passes_over_every_sample_of_a_loop_and_its_own_loop_is_another(bench: Bench) -> None:
    first = FakeProvider(["one", "two"])
    for _ in range(2):
        bench.ask(bench.attempt(first))
    bench.again()
    second = FakeProvider(["three", "four"])
    for _ in range(2):
        bench.ask(bench.attempt(second, "record"))
    assert bench.samples() == [(True, "one"), (True, "two"), (False, "three"), (False, "four")]
    bench.again()
    assert [bench.ask(bench.attempt(nobody(), "replay")).response.text for _ in range(2)] == ["three", "four"]


def test_a_failed_call_leaves_the_recorded_response_in_force(bench: Bench) -> None:
    bench.ask(bench.attempt(FakeProvider(["one"])))
    bench.again()
    broken = FakeProvider([ProviderError(Diagnostic("E401", "no network"))])
    with pytest.raises(ProviderError):
        bench.ask(bench.attempt(broken, "record"))
    assert bench.samples() == [(False, "one")]
    bench.again()
    assert bench.ask(bench.attempt(nobody())).response.text == "one"


def test_record_reuses_the_new_sample_of_an_interrupted_run(bench: Bench) -> None:
    bench.ask(bench.attempt(FakeProvider(["one"])))
    bench.again()
    bench.ask(bench.attempt(FakeProvider(["two"]), "record"))
    own = replace(question(), sample=1).fingerprint()
    bench.again(frozenset({own}))
    assert bench.ask(bench.attempt(nobody(), "record")).response.text == "two"


def test_after_a_kill_before_the_old_response_is_marked_the_new_one_is_reused_and_the_old_one_marked(
    bench: Bench,
) -> None:
    bench.ask(bench.attempt(FakeProvider(["one"])))
    bench.again()
    bench.ask(bench.attempt(FakeProvider(["two"]), "record"))
    old = bench.kept(question())
    assert old is not None
    bench.exchanges.put(replace(old, superseded=False), None)
    bench.again(frozenset({replace(question(), sample=1).fingerprint()}))
    assert bench.ask(bench.attempt(nobody(), "record")).response.text == "two"
    assert bench.samples() == [(True, "one"), (False, "two")]


def test_two_stages_with_one_question_share_the_new_sample(bench: Bench) -> None:
    bench.ask(bench.attempt(FakeProvider(["one"])))
    bench.again()
    model = FakeProvider(["two"])
    assert bench.ask(bench.attempt(model, "record")).response.text == "two"
    bench.asked = set()
    other = replace(bench.attempt(model, "record"), call=CallContext(STEP, "other"))
    assert bench.ask(other).response.text == "two"
    assert bench.samples() == [(True, "one"), (False, "two")]


# ---- answers that were cut off ----------------------------------------------------------------------


def test_a_truncated_response_is_requested_again_with_more_tokens_and_both_are_counted(bench: Bench) -> None:
    model, more = FakeProvider([CUT, "whole"]), OnTruncated(1, 3)
    answered = bench.ask(bench.attempt(model, more=more), question(max_tokens=100))
    assert answered.response.text == "whole"
    assert answered.request.params == {"max_tokens": 300}
    assert [r.text for r in bench.meter.settled] == ["half an ans", "whole"]
    assert [r.params["max_tokens"] for r in bench.heard.asked] == [100, 300]
    assert [r.text for _, r in bench.heard.answers] == ["half an ans", "whole"]
    first = bench.kept(question(max_tokens=100))
    assert first is not None
    assert first.outcome == "truncated"


@pytest.mark.parametrize("mode", ["cached", "replay"])
def test_a_later_build_uses_the_same_recordings_and_calls_no_model(bench: Bench, mode: RecordingMode) -> None:
    more = OnTruncated(1, 2)
    bench.ask(bench.attempt(FakeProvider([CUT, "whole"]), more=more), question(max_tokens=100))
    bench.again()
    answered = bench.ask(bench.attempt(nobody(), mode, more=more), question(max_tokens=100))
    assert (answered.response.text, answered.response.replayed) == ("whole", True)
    assert bench.meter.settled == []
    assert len(bench.heard.answers) == 2


def test_if_only_the_truncated_response_is_recorded_only_the_other_is_requested(bench: Bench) -> None:
    bench.ask(bench.attempt(FakeProvider([CUT]), more=OnTruncated(0)), question(max_tokens=100))
    bench.again()
    model = FakeProvider(["whole"])
    bench.ask(bench.attempt(model, more=OnTruncated(1, 2)), question(max_tokens=100))
    assert [r.params["max_tokens"] for r in model.requests] == [200]


def test_a_truncated_response_is_retried_up_to_the_limit_and_the_last_one_is_judged(bench: Bench) -> None:
    model = FakeProvider([CUT, CUT, CUT])
    answered = bench.ask(bench.attempt(model, more=OnTruncated(2, 2)), question(max_tokens=100))
    assert [r.params["max_tokens"] for r in model.requests] == [100, 200, 400]
    assert answered.response.stop == "max_tokens"
    last = bench.kept(answered.request)
    assert last is not None
    assert last.outcome == "pending"


def test_without_a_token_limit_a_truncated_response_is_not_retried(bench: Bench) -> None:
    model = FakeProvider([CUT])
    assert bench.ask(bench.attempt(model, more=OnTruncated(1, 2))).response.stop == "max_tokens"


def test_resampling_a_truncated_response_repeats_both_calls_and_keeps_the_old_recordings(bench: Bench) -> None:
    more, asked = OnTruncated(1, 2), question(max_tokens=100)
    old = bench.ask(bench.attempt(FakeProvider([CUT, "old"]), more=more), asked)
    bench.again()
    new = bench.ask(bench.attempt(FakeProvider([CUT, "new"]), "record", more=more), asked)
    assert new.response.text == "new"
    assert getattr(bench.kept(old.request), "response", "") == "old"
    bench.again()
    assert bench.ask(bench.attempt(nobody(), "replay", more=more), asked).response.text == "new"


def test_a_recorded_response_with_more_tokens_of_another_stage_is_not_overwritten(bench: Bench) -> None:
    """The question with 200 tokens was asked by itself; the one with 100 comes to it by way of its cut answer."""
    more = OnTruncated(1, 2)
    bench.ask(bench.attempt(FakeProvider(["from elsewhere"])), question(max_tokens=200))
    bench.again()
    new = bench.ask(bench.attempt(FakeProvider([CUT, "new"]), "record", more=more), question(max_tokens=100))
    assert new.request.sample == 1
    assert getattr(bench.kept(question(max_tokens=200)), "response", "") == "from elsewhere"


def test_two_attempts_that_come_to_the_same_question_by_two_ways_ask_twice(bench: Bench) -> None:
    more, model = OnTruncated(1, 2), FakeProvider([CUT, "one", "two"])
    bench.ask(bench.attempt(model, more=more), question(max_tokens=100))
    again = bench.ask(bench.attempt(model, more=more), question(max_tokens=200))
    assert (again.response.text, again.request.sample) == ("two", 1)


# ---- looking ahead ------------------------------------------------------------------------------------


def test_find_recorded_predicts_what_the_build_does(bench: Bench) -> None:
    step = replace(STEP, on_truncated=OnTruncated(1, 2))
    asked = question(max_tokens=100)

    def ahead(mode: RecordingMode = "cached") -> tuple[list[str], int | None]:
        found, missing = find_recorded(
            RecordingProvider(inner=nobody(), store=bench.exchanges, stage="code", mode=mode), step, asked
        )
        limit = missing.params["max_tokens"] if missing else None
        return [one.response for one in found], limit if isinstance(limit, int) else None

    assert ahead() == ([], 100)
    bench.ask(bench.attempt(FakeProvider([CUT]), more=OnTruncated(0)), asked)
    assert ahead() == (["half an ans"], 200)
    bench.again()
    bench.ask(bench.attempt(FakeProvider(["whole"]), more=OnTruncated(1, 2)), asked)
    assert ahead() == (["half an ans", "whole"], None)
    assert ahead("record") == ([], 100)
    bench.again()
    bench.ask(bench.attempt(FakeProvider(["anew"]), "record", more=OnTruncated(1, 2)), asked)
    assert ahead() == (["anew"], None)


# ---- who may be asked -----------------------------------------------------------------------------------


def opened(folder: Path, step: LLMStep, name: str = "code@T1", **more: Any) -> RecordedConversation:
    setting = ProviderContext(
        environ={},
        root=folder,
        read_answers=lambda _path: {"code": [ScriptedCase(("x",))]},
        notice=lambda _event: None,
        **CONSENT,
    )
    conversations = Conversations(
        setting=setting, exchanges=Exchanges(folder / "e", folder), meter=Counting(), secrets=Secrets(), **more
    )
    stage = Stage(name=name, step=step, outputs=("out",))
    resolved = ResolvedStage(
        stage=stage,
        facts=Facts(),
        manifest={},
        key="k",
        core="c",
        identity="",
        files={},
        base={},
        verify_files={},
        given=(),
    )
    return conversations.open(resolved, 1, set())


@pytest.mark.parametrize(("provider", "refused"), [("command", True), ("scripted", False), with_needs("local", False)])
def test_offline_refuses_providers_that_may_be_remote(tmp_path: Path, provider: str, *, refused: bool) -> None:
    step = replace(STEP, provider=provider, answers="a.yaml" if provider == "scripted" else None)
    found = opened(tmp_path, step, offline=True).recorded.inner
    assert isinstance(found, ReplayOnlyProvider) is refused
    assert not isinstance(opened(tmp_path, step).recorded.inner, ReplayOnlyProvider)


def test_offline_says_what_is_missing_before_anything_is_reserved(tmp_path: Path) -> None:
    conversation = opened(tmp_path, STEP, offline=True)
    with pytest.raises(ProviderError) as caught:
        conversation.complete(conversation.next_sample(question()), 1.0, Heard())
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.subject) == ("E423", "code@T1")
    assert "--offline" in (diagnostic.hint or "")


@pytest.mark.parametrize(
    ("step_mode", "more", "mode", "hint"),
    [
        ("cached", {}, "cached", None),
        ("cached", {"replay": True}, "replay", "build without --replay"),
        ("record", {"replay": True, "resample": {"code": ()}}, "replay", "build without --replay"),
        ("replay", {}, "replay", "--resample code@T1"),
        ("cached", {"resample": {"code": ()}}, "record", None),
        ("cached", {"resample": {"code@T1": ()}}, "record", None),
        ("replay", {"resample": {"code@T1": ()}}, "record", None),
        ("cached", {"resample": {"code@T2": (), "cod": ()}}, "cached", None),
        ("record", {}, "record", None),
    ],
)
def test_the_command_line_is_stronger_than_the_stage_and_replay_than_all(
    tmp_path: Path, step_mode: RecordingMode, more: dict[str, Any], mode: RecordingMode, hint: str | None
) -> None:
    conversation = opened(tmp_path, replace(STEP, mode=step_mode), **more)
    inner = conversation.recorded.inner
    assert conversation.recorded.mode == mode
    assert isinstance(inner, ReplayOnlyProvider) is (hint is not None)
    assert hint is None or hint in getattr(inner, "hint", "")


@pytest.mark.parametrize(("limit", "most", "higher"), [(10, None, 20), (10, 15, 15), (10, 30, 20), (15, 15, None)])
def test_a_truncated_request_gets_more_tokens_up_to_the_maximum_of_its_model(
    limit: int, most: int | None, higher: int | None
) -> None:
    found = with_more_tokens(question(max_tokens=limit), "max_tokens", OnTruncated(1, 2), most)
    assert (found and found.params["max_tokens"]) == higher


def test_a_system_text_that_several_stages_use_is_shared() -> None:
    def asks(name: str, system: str | None) -> Stage:
        return Stage(name=name, step=replace(STEP, system=system))

    each = ForeachStage(name="each", foreach=Foreach(name="n"), body={"llm": {"system": "both.j2"}}, kind="llm")
    alone = ForeachStage(name="alone", foreach=Foreach(name="n"), body={"shell": "x"}, kind="shell")
    stages = (asks("a", "both.j2"), asks("b", "own.j2"), asks("c", None), each, alone)
    assert shared_systems(Pipeline(name="p", file="p.yaml", stages=stages)) == {"both.j2"}


# ---- requests to which feedback was appended ---------------------------------------------------------------


def with_feedback() -> Request:
    plain = question()
    text = Message("user", plain.messages[0].content + "\n\nit failed")
    return replace(plain, messages=(text,), identity=(text,), added=("\n\nit failed", "\n\nit failed"))


def test_a_recording_without_the_appended_feedback_is_used(bench: Bench) -> None:
    model = FakeProvider(["one", "two"])
    for _ in range(2):
        bench.ask(bench.attempt(model))
    for mode in ("cached", "replay"):
        bench.again()
        asked = [bench.ask(bench.attempt(nobody(), mode), one) for one in (question(), with_feedback())]
        assert [one.response.text for one in asked] == ["one", "two"]
        assert asked[1].request.messages == question().messages, "the request is shown as it was sent"


def test_without_any_recording_the_feedback_is_sent_and_recorded(bench: Bench) -> None:
    model = FakeProvider(["one", "two"])
    asked = [bench.ask(bench.attempt(model), one) for one in (question(), with_feedback())]
    assert [one.request.messages for one in asked] == [question().messages, with_feedback().messages]
    bench.again()
    again = [bench.ask(bench.attempt(nobody()), one).response.text for one in (question(), with_feedback())]
    assert again == ["one", "two"]


def test_a_new_sample_has_the_feedback(bench: Bench) -> None:
    model = FakeProvider(["one", "two"])
    for _ in range(2):
        bench.ask(bench.attempt(model))
    bench.again()
    model = FakeProvider(["three", "four"])
    asked = [bench.ask(bench.attempt(model, "record"), one) for one in (question(), with_feedback())]
    assert asked[1].request.messages == with_feedback().messages
    bench.again()
    again = [bench.ask(bench.attempt(nobody()), one).response.text for one in (question(), with_feedback())]
    assert again == ["three", "four"]


@pytest.mark.parametrize(
    ("transcripts", "way_out"),
    [
        (
            "tr",
            "commit the recording in `tr`; without a key, as in a fork, someone who has it can do so on your branch",
        ),
        (None, "with `llm.transcripts` set to a folder, and commit the recording there"),
    ],
)
@pytest.mark.parametrize("mode", ["replay", "cached"])
def test_the_way_out_of_a_missing_recording_leads_to_a_committed_one(
    tmp_path: Path, mode: RecordingMode, transcripts: str | None, way_out: str
) -> None:
    step = replace(STEP, mode=mode, transcripts=transcripts)
    inner = opened(tmp_path, step, replay=mode == "cached").recorded.inner
    assert way_out in getattr(inner, "hint", "")
