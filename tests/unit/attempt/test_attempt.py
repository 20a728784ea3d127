"""The attempts of one stage: what each one starts from, when there is a further one, and what is the result."""

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from msgspec import UNSET, Struct
from msgspec.structs import replace

from orch23.attempt.attempt import (
    AttemptHistory,
    AttemptInput,
    AttemptLoop,
    AttemptResult,
    Models,
    StageResult,
    StepRunner,
)
from orch23.attempt.conversation import RequestBuilder
from orch23.attempt.failures import Failure, command_failed, failure_of, fit_feedback
from orch23.attempt.process_runner import Files
from orch23.attempt.run_events import Reporter
from orch23.attempt.safeguards import NetworkAccess, Safeguards
from orch23.attempt.verification import Verifier
from orch23.model.action import Action
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import ProviderError
from orch23.model.event import AttemptFinished, AttemptStarted, Event
from orch23.model.llm import Response, Usage
from orch23.model.pipeline import BriefLimits, Condition, Pipeline, Retry, Stage, WriteScope
from orch23.model.step import Step
from orch23.resolve.resolution import ResolvedStage
from orch23.text.secrets import Secrets
from tests.doubles import FakeProvider, MemoryContents
from tests.unit.engine.rig import FACTS, ROOT, MemoryConversations, MemoryExchanges, answer, entry, limit, model


class Scripted(Step, Struct, frozen=True):
    """A step of which each attempt leaves what the test says; `turns` is what the attempts got."""

    kind: ClassVar[str] = "scripted"
    run: ClassVar[str] = "tests.unit.attempt.test_attempt:SCRIPTED"
    passes: list[AttemptResult]
    turns: list[AttemptInput]


class _Scripted(StepRunner):
    def attempt(self, _attempts: AttemptLoop, step: Scripted, turn: AttemptInput) -> AttemptResult:
        step.turns.append(turn)
        return step.passes[min(len(step.turns), len(step.passes)) - 1]

    def forbidden(self, _attempts: AttemptLoop, _step: Scripted) -> tuple[Diagnostic, ...]:
        return (Diagnostic("E601", "the step would send a secret"),)


SCRIPTED = _Scripted()


def acted(_step: object, files: Files) -> Action:
    return Action(argv=(), inputs=files)


class Bench:
    """Attempts over a scripted step and a scripted verification; `verified` is what that was given."""

    def __init__(
        self, *passes: AttemptResult, base: Files | None = None, verdicts: Iterable[Failure | None] = (), **more: Any
    ) -> None:
        self.turns: list[AttemptInput] = []
        facts: dict[str, Any] = {"step": Scripted(list(passes), self.turns), "outputs": ("out",), **more}
        self.resolved = ResolvedStage(
            stage=Stage(name="s", fence=WriteScope(("out", "more/")), **facts),
            manifest={},
            key="k",
            core="c",
            identity="",
            facts=FACTS,
            files={},
            base=base or {},
            verify_files={},
            given=(),
        )
        self.events: list[Event] = []
        self.artifacts: dict[str, str] = {}
        self.verified: list[tuple[Files, Files, int]] = []
        self.verdicts = iter(verdicts)
        self.secrets = Secrets({"TOKEN": "wunderbar-4711"})
        self.contents, self.exchanges = MemoryContents(), MemoryExchanges()
        self.paced: list[str] = []
        self.allowed = 99
        self.folders: set[str] = set()
        self.provider = FakeProvider()
        self.texts = {"p.j2": "write out{% if brief %} since {{ brief.excerpt }}{% endif %}"}
        self.history = AttemptHistory()
        self.settled: Callable[[], object] = list
        self.problems: tuple[Diagnostic, ...] = ()

    def attempts(self) -> AttemptLoop:
        safeguards = Safeguards(
            secrets=self.secrets,
            protected=(),
            begin_attempt=self.pace,
            network=NetworkAccess(partial_dir=ROOT, environ={}, trust_command=str),
        )
        questions = RequestBuilder(self.secrets, cast("Any", self), Pipeline(name="p", file="p.yaml", stages=()))
        return AttemptLoop(
            resolved=self.resolved,
            runner=cast(
                "Any", SimpleNamespace(contents=self.contents, tree=self, take_ran=lambda: UNSET, action_of=acted)
            ),
            verifier=cast("Verifier", self),
            models=Models(
                requests=questions,
                conversations=cast("Any", MemoryConversations(self.provider, self.exchanges)),
                validate=lambda _path, _value: (),
            ),
            safeguards=safeguards,
            report=Reporter(observer=self, artifacts=cast("Any", self), redact=self.secrets.redact).of_stage("s"),
            history=self.history,
        )

    def run(self, **more: Any) -> StageResult:
        return self.attempts().run(**more)

    # as a verifier
    def verify(self, result: Files, tree: Files, attempt: int = 0) -> Failure | None:
        self.settled()
        self.verified.append((result, tree, attempt))
        return next(self.verdicts, None)

    def unfixable(self) -> tuple[Diagnostic, ...]:
        return self.problems

    # as an observer, as what keeps artifacts, as a ledger
    def notice(self, event: Event) -> None:
        self.events.append(event)

    def keep(self, _stage: str, attempt: int, name: str, text: str) -> None:
        self.artifacts[f"{attempt}/{name}"] = text

    def pace(self, stage: str) -> None:
        self.paced.append(stage)
        if len(self.paced) > self.allowed:
            raise limit()

    # as a tree, and as the author's files
    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> dict[str, FileEntry]:
        del exclude
        return {pattern: FileEntry(digest_bytes(b""))} if pattern in self.folders else {}

    def links(self, _pattern: str) -> tuple[str, ...]:
        return ()

    def read(self, _path: str, wanted: FileEntry) -> bytes:
        return self.contents.get(wanted.digest)

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        return self.texts.get(path), None


def wrong(text: str = "no", kind: str = "verify_failed", **more: Any) -> Failure:
    return replace(command_failed(kind, "make", exit_code=1, output=text), **more)


def left(text: str, **more: Any) -> AttemptResult:
    return AttemptResult({"out": entry(text)}, **more)


def recorded(outputs: Files) -> StageResult:
    return StageResult(outputs=outputs, deleted=(), exchanges=(), attempts=0)


def codes(done: StageResult) -> list[str]:
    assert done.failure is not None
    return [one.code for one in done.failure.diagnostics]


# ---- one attempt after the other ---------------------------------------------------------------------


def test_an_attempt_that_passes_is_the_only_one() -> None:
    bench = Bench(left("one"), retry=Retry(max=3))
    done = bench.run()
    assert (done.failure, done.attempts, done.outputs) == (None, 1, {"out": entry("one")})
    assert bench.paced == ["s"]


def test_the_next_attempt_gets_the_failure_and_starts_from_the_files_of_the_failed_one() -> None:
    bench = Bench(left("one", response="A"), left("two"), verdicts=[wrong("line 7 is wrong")], retry=Retry(max=3))
    done = bench.run()
    assert (done.failure, done.attempts, done.outputs) == (None, 2, {"out": entry("two")})
    first, second = bench.turns
    assert (first.failure, first.previous_response, first.start) == (None, None, {})
    assert second.failure is not None
    assert second.failure.feedback.excerpt == "line 7 is wrong"
    assert (second.attempt, second.previous_response, second.start) == (2, "A", {"out": entry("one")})


def test_from_the_baseline_each_attempt_starts_where_the_first_did() -> None:
    base = {"out": entry("base")}
    retry = Retry(max=1, start_from="baseline")
    bench = Bench(left("one", exchanges=("x1",)), left("two"), base=base, verdicts=[wrong()], retry=retry)
    bench.run()
    assert [(turn.start, turn.exchanges) for turn in bench.turns] == [(base, ()), (base, ())]


def test_the_exchanges_of_a_result_that_is_gone_on_from_are_handed_on() -> None:
    bench = Bench(left("one", exchanges=("x1",)), left("two"), verdicts=[wrong()], retry=Retry(max=1))
    bench.run()
    assert bench.turns[1].exchanges == ("x1",)


@pytest.mark.parametrize(("most", "note"), [(0, ""), (1, "retries exhausted"), (2, "retries exhausted")])
def test_there_are_no_more_attempts_than_the_first_and_the_retries(most: int, note: str) -> None:
    bench = Bench(left("x"), verdicts=[wrong(f"failure {n}") for n in range(9)], retry=Retry(max=most))
    done = bench.run()
    assert (done.attempts, len(bench.turns), done.note) == (most + 1, most + 1, note)
    assert done.failure is not None
    assert done.failure.feedback.excerpt == f"failure {most}", "the last one counts"


@pytest.mark.parametrize(
    ("failure", "retry", "note"),
    [
        (wrong(kind="timeout"), Retry(max=5, when=("verify_failed",)), "timeout is not in retry.when"),
        (wrong(retryable=False), Retry(max=5), "not retryable"),
        (wrong(), Retry(max=5, no_progress=2), "no progress: the same failure 2 times in a row"),
    ],
)
def test_a_failure_that_another_attempt_cannot_help_is_the_last(failure: Failure, retry: Retry, note: str) -> None:
    bench = Bench(left("x"), verdicts=[failure] * 9, retry=retry)
    done = bench.run()
    assert (done.note, done.attempts) == (note, retry.no_progress or 1)


def test_truncated_in_when_is_a_response_that_was_cut_off_and_nothing_else() -> None:
    cut = failure_of("llm_output_invalid", [Diagnostic("E219", "cut off")])
    passes = [AttemptResult({}, failure=replace(cut, cut_off=True)), AttemptResult({}, failure=cut), left("ok")]
    done = Bench(*passes, retry=Retry(max=5, when=("verify_failed", "truncated"))).run()
    assert (done.attempts, done.note) == (2, "llm_output_invalid is not in retry.when")


def test_a_repeated_proposal_is_no_progress_if_no_progress_is_limited() -> None:
    passes = [left("x", proposal="P"), left("y", proposal="Q"), left("x", proposal="P"), left("z", proposal="R")]
    failures = [wrong(f"failure {n}") for n in range(9)]
    done = Bench(*passes, verdicts=failures, retry=Retry(max=9, no_progress=5)).run()
    assert (done.attempts, done.note) == (3, "no progress: this response was made before")
    assert Bench(*passes, verdicts=failures, retry=Retry(max=3)).run().attempts == 4


def test_a_pass_that_failed_by_itself_is_not_verified() -> None:
    bench = Bench(
        AttemptResult({}, failure=failure_of("llm_output_invalid", [Diagnostic("E200", "no JSON")])), left("ok")
    )
    bench.resolved = replace(bench.resolved, stage=replace(bench.resolved.stage, retry=Retry(max=1)))
    assert bench.run().attempts == 2
    assert [attempt for _, _, attempt in bench.verified] == [2]


def test_a_limit_stops_before_the_next_attempt_and_not_after_it() -> None:
    bench = Bench(left("x"), verdicts=[wrong()] * 9, retry=Retry(max=9))

    bench.allowed = 2
    with pytest.raises(Exception, match="nothing is left"):
        bench.run()
    assert len(bench.turns) == 2


# ---- what may not begin -------------------------------------------------------------------------------


def test_a_stage_with_broken_inputs_is_not_attempted() -> None:
    bench = Bench(left("x"))
    bench.resolved = replace(bench.resolved, broken=(Diagnostic("E301", "an input is missing"),))
    done = bench.run()
    assert (bench.turns, bench.paced, done.attempts, codes(done)) == ([], [], 0, ["E301"])
    assert bench.attempts().verify_recorded({}, ()) is not None, "nor is its recorded result verified"


def test_a_stage_with_an_unmet_requirement_is_not_attempted() -> None:
    there, absent = Condition("file_exists", "there"), Condition("file_absent", "gone")
    bench = Bench(left("x"), requires=(there, absent))
    bench.resolved = replace(bench.resolved, manifest={"requires:file_exists:there": True})
    done = bench.run()
    assert (bench.turns, done.attempts, codes(done)) == ([], 0, ["E318"])
    assert done.failure is not None
    assert "file_absent gone: it is there" in done.failure.feedback.excerpt
    assert not done.failure.retryable


def test_a_folder_in_place_of_a_required_file_is_reported_with_the_fix() -> None:
    bench = Bench(left("x"), requires=(Condition("file_exists", "docs"),))
    bench.folders = {"docs/**"}
    failure = bench.run().failure
    assert failure is not None
    assert (failure.diagnostics[0].message, "`docs/`" in (failure.diagnostics[0].hint or "")) == (
        "requires file_exists docs: it is a folder",
        True,
    )


def test_a_step_that_would_send_a_secret_is_refused_before_anything_is_stored() -> None:
    done = Bench(left("x")).attempts().forbidden()
    assert done is not None
    assert (codes(done), done.attempts) == (["E601"], 0)


# ---- tests that cannot pass -----------------------------------------------------------------------------


NEVER = Diagnostic("E325", "has a syntax error", subject="test_a.py")


def test_no_model_is_called_if_its_tests_cannot_pass() -> None:
    bench = model_bench([], retry=Retry(max=2))
    bench.problems = (NEVER,)
    done = bench.run()
    assert (codes(done), done.attempts) == (["E325"], 0)
    assert bench.provider.requests == []


def test_no_model_is_called_if_a_recorded_result_can_never_pass() -> None:
    bench = model_bench([], retry=Retry(max=2))
    done = bench.run(start=(recorded({}), wrong(diagnostics=(NEVER,), retryable=False)))
    assert (codes(done), done.attempts) == (["E325"], 0)
    assert bench.provider.requests == []


def test_a_program_runs_whatever_its_tests_are() -> None:
    bench = Bench(left("x"))
    bench.problems = (NEVER,)
    assert bench.run().failure is None


# ---- a recorded result first ----------------------------------------------------------------------------


def test_a_recorded_result_that_does_not_pass_any_more_briefs_the_first_attempt_and_is_where_it_starts() -> None:
    bench = Bench(left("two"))
    bench.run(start=(recorded({"out": entry("recorded")}), wrong("the new test is red")))
    (turn,) = bench.turns
    assert turn.failure is not None
    assert (turn.attempt, turn.failure.feedback.excerpt, turn.start) == (
        1,
        "the new test is red",
        {"out": entry("recorded")},
    )


def test_a_recorded_result_is_verified_together_with_the_unchanged_files_of_its_base() -> None:
    base = {"kept": entry("k"), "deleted": entry("d"), "out": entry("old")}
    bench = Bench(base=base)
    assert bench.attempts().verify_recorded({"out": entry("new")}, ("deleted",)) is None
    assert bench.verified == [({"out": entry("new")}, {"kept": entry("k"), "out": entry("new")}, 0)]


# ---- the result ---------------------------------------------------------------------------------------


def test_a_result_has_the_changed_files_and_the_literal_outputs() -> None:
    base = {"out": entry("same"), "more/same": entry("s"), "more/gone": entry("g"), "more/edited": entry("1")}
    tree = {"out": entry("same"), "more/same": entry("s"), "more/edited": entry("2"), "more/new": entry("n")}
    done = Bench(AttemptResult(tree), base=base).run()
    assert set(done.outputs) == {"out", "more/edited", "more/new"}
    assert done.deleted == ("more/gone",)


def test_a_path_that_was_written_with_the_bytes_of_its_base_is_part_of_the_result_also_later() -> None:
    base = {"more/a": entry("a"), "more/b": entry("b")}
    wrote = AttemptResult(base, written=frozenset({"more/a"}))
    assert set(Bench(wrote, base=base).run().outputs) == {"more/a"}
    bench = Bench(wrote, AttemptResult(base), base=base, verdicts=[wrong()], retry=Retry(max=1))
    assert set(bench.run().outputs) == {"more/a"}


def test_the_files_of_a_failed_program_are_its_result_but_no_attempt_starts_from_them() -> None:
    failed = AttemptResult({}, failure=wrong(), leftover={"more/half": entry("h")})
    bench = Bench(failed, retry=Retry(max=1))
    done = bench.run()
    assert (done.outputs, done.partial) == ({"more/half": entry("h")}, True)
    assert bench.turns[1].start == {}


# ---- reports --------------------------------------------------------------------------------------------


def test_each_attempt_is_reported_and_its_failure_is_kept_without_secrets() -> None:
    bench = Bench(left("x"), verdicts=[wrong("the token is wunderbar-4711")], retry=Retry(max=1))
    bench.run()
    reported = [event.data for event in bench.events]
    assert [type(one) for one in reported] == [AttemptStarted, AttemptFinished, AttemptStarted, AttemptFinished]
    assert [one.passed for one in reported if isinstance(one, AttemptFinished)] == [False, True]
    assert list(bench.artifacts) == ["1/failure.txt", "1/action.json"]
    kept = json.loads(bench.artifacts["1/action.json"])
    assert (kept["action"]["argv"], list(kept["outputs"])) == ([], ["out"])
    assert "$ make" in bench.artifacts["1/failure.txt"]
    assert "wunderbar" not in bench.artifacts["1/failure.txt"]


def test_the_brief_says_where_the_next_attempt_may_write() -> None:
    bench = Bench(left("x"), verdicts=[wrong()], retry=Retry(max=1))
    bench.run()
    failure = bench.turns[1].failure
    assert failure is not None
    assert failure.feedback.constraints == ("write only: out, more/",)


# ---- with a model ---------------------------------------------------------------------------------------


def model_bench(answers: list[Any], *, retry: Retry, **step: Any) -> Bench:
    bench = Bench(retry=retry, step=model(**step))
    bench.provider = FakeProvider(answers)
    return bench


def contents(bench: Bench, outputs: Files) -> Mapping[str, str]:
    return {path: bench.contents.get(one.digest).decode() for path, one in outputs.items()}


def test_the_failure_is_in_the_second_request_and_not_in_the_first() -> None:
    bench = model_bench([answer(out="one"), answer(out="two")], retry=Retry(max=1))
    bench.verdicts = iter([wrong("line 7 is wrong")])
    done = bench.run()
    first, second = [request.messages[0].content for request in bench.provider.requests]
    assert ("line 7" in first, "line 7 is wrong" in second) == (False, True)
    assert (contents(bench, done.outputs), done.attempts) == ({"out": "two"}, 2)
    assert done.exchanges == tuple(request.fingerprint() for request in bench.provider.requests)


def test_an_invalid_response_is_no_exchange_of_the_result() -> None:
    bench = model_bench(["this is no JSON", answer(out="two")], retry=Retry(max=1))
    done = bench.run()
    assert (done.failure, done.exchanges) == (None, (bench.provider.requests[1].fingerprint(),))
    outcomes = [bench.exchanges.all[request.fingerprint()].outcome for request in bench.provider.requests]
    assert outcomes == ["invalid", "accepted"]


def test_a_response_whose_verification_failed_is_recorded_as_failed() -> None:
    bench = model_bench([answer(out="one"), answer(out="two")], retry=Retry(max=1))
    late = Diagnostic("E301", "failed with ValueError: of what", subject="tests/test_a.py::test_one")
    bench.verdicts = iter([failure_of("verify_failed", [late])])
    recorded = bench.exchanges.all
    seen: list[list[str]] = []
    bench.settled = lambda: seen.append([one.outcome for one in recorded.values()])
    bench.run()
    kept = [recorded[request.fingerprint()] for request in bench.provider.requests]
    assert [(one.outcome, one.diagnostics) for one in kept] == [
        ("failed", ("[E301] tests/test_a.py::test_one",)),
        ("accepted", ()),
    ]
    assert seen == [["pending"], ["failed", "pending"]], "before each verification"


def test_a_later_attempt_asks_the_model_that_is_named_for_it() -> None:
    bench = model_bench(
        [answer(out="one"), answer(out="two"), answer(out="x")], retry=Retry(max=2, escalate=("s", "l"))
    )
    bench.verdicts = iter([wrong("1"), wrong("2")])
    bench.run()
    assert [request.model for request in bench.provider.requests] == ["s", "l", "l"]


def refusal() -> Response:
    return Response(text="I will not", stop="refusal", usage=Usage(1, 1), provenance="fake")


def test_after_a_refusal_the_next_model_gets_the_same_prompt() -> None:
    bench = model_bench(
        [answer(out="one"), refusal(), refusal(), answer(out="two")], retry=Retry(max=3, escalate=("s", "m", "l", "xl"))
    )
    bench.verdicts = iter([wrong("line 7")])
    done = bench.run()
    assert (done.failure, done.attempts) == (None, 4)
    requests = bench.provider.requests
    assert [request.model for request in requests] == ["s", "m", "l", "xl"]
    assert {request.messages for request in requests[1:]} == {requests[1].messages}, "with the failure of the first"
    assert "since line 7" in requests[3].messages[0].content
    outcomes = [bench.exchanges.all[request.fingerprint()].outcome for request in requests]
    assert outcomes == ["failed", "refused", "refused", "accepted"]


@pytest.mark.parametrize("escalate", [(), ("s",), ("s", "s", "l")])
def test_the_same_model_is_not_called_again_after_a_refusal(escalate: tuple[str, ...]) -> None:
    bench = model_bench([refusal()], retry=Retry(max=3, when=("agent_error",), escalate=escalate))
    done = bench.run()
    assert (codes(done), done.attempts, done.note) == (["E220"], 1, "not retryable")


def test_a_refusal_of_the_last_attempt_is_the_failure() -> None:
    bench = model_bench([refusal(), refusal()], retry=Retry(max=1, escalate=("s", "m", "l")))
    done = bench.run()
    assert (codes(done), done.attempts) == (["E220"], 2)


def test_usage_is_summed_over_all_attempts_also_of_a_failed_stage() -> None:
    cheap = Response(text="no JSON", usage=Usage(10, 5), cost="0.25", provenance="fake")
    bench = model_bench([cheap, replace(cheap, text="neither")], retry=Retry(max=1))
    done = bench.run()
    assert done.failure is not None
    assert (done.usage.calls, done.usage.input_tokens, done.usage.cost) == (2, 20, Decimal("0.50"))


def test_a_provider_error_ends_the_attempts() -> None:
    bench = model_bench([ProviderError(Diagnostic("E401", "it is down"))], retry=Retry(max=5))
    with pytest.raises(ProviderError):
        bench.run()
    assert len(bench.provider.requests) == 1


def test_the_brief_is_cut_to_the_limits_of_the_step() -> None:
    limits = BriefLimits(limit=100, head=60, tail=20)
    bench = model_bench([answer(out="one"), answer(out="two")], brief=limits, retry=Retry(max=1))
    bench.verdicts = iter([wrong("#" * 5000)])
    bench.run()
    assert bench.provider.requests[1].messages[0].content.count("#") == 80


# ---- the counts of tests ------------------------------------------------------------------------------------


def red(*names: str, headline: str) -> Failure:
    failure = command_failed("verify_failed", "pytest", exit_code=1, output="the tests", failing=names)
    return replace(failure, headline=headline, parts=("a cause", "another cause"))


def test_the_feedback_has_the_counts_of_earlier_attempts() -> None:
    bench = Bench(
        left("1"),
        left("2"),
        left("3"),
        verdicts=[red("a", "b", headline="2 failed"), wrong("no", kind="timeout"), red("a", headline="1 failed")],
        retry=Retry(max=2),
    )
    done = bench.run()
    assert done.failure is not None
    assert done.failure.feedback.excerpt == (
        "1 failed (attempt 1: 2 failed; attempt 2: timeout)\n\na cause\n\nanother cause"
    )
    first = bench.turns[1].failure
    assert first is not None
    assert first.feedback.excerpt == "2 failed\n\na cause\n\nanother cause"


def test_feedback_has_the_paths_of_a_response_and_the_identity_those_of_the_project() -> None:
    failure = failure_of("write_scope_violation", [Diagnostic("E204", "is not `ws/a.py`", subject="ws/t.py")])
    feedback = fit_feedback(failure, Stage(name="s", step=Scripted([], []), cwd="ws")).feedback
    assert feedback.diagnostics == ("[E204] t.py: is not `a.py`.",)
    assert feedback.excerpt == "[E204] t.py: is not `a.py`."
    assert feedback.identity()["diagnostics"] == ["[E204] ws/t.py"], "recorded responses are found as before"
    again = fit_feedback(replace(failure, feedback=feedback), Stage(name="s", step=Scripted([], []), cwd="ws"))
    assert again.feedback == feedback


# ---- from the best attempt ------------------------------------------------------------------------------------


def best(*passes: AttemptResult, verdicts: Iterable[Failure], retries: int = 3) -> Bench:
    bench = Bench(*passes, verdicts=verdicts, retry=Retry(max=retries, start_from="best"), base={"out": entry("0")})
    bench.run()
    return bench


def ran(count: int) -> Failure:
    names = [f"t{n}" for n in range(count)]
    return replace(red(*names, headline=f"{count} failed"), failed_tests=count)


def starts(bench: Bench) -> list[str]:
    return [next(text for text in "0123" if turn.start == {"out": entry(text)}) for turn in bench.turns]


def reported(turn: AttemptInput) -> str:
    assert turn.failure is not None
    return turn.failure.feedback.excerpt


def test_from_best_the_attempt_with_the_fewest_failing_tests_is_the_start() -> None:
    bench = best(
        left("1", response="r1"), left("2", response="r2"), left("3", response="r3"), verdicts=map(ran, (3, 57, 2, 1))
    )
    assert starts(bench) == ["0", "1", "1", "3"]
    assert [turn.previous_response for turn in bench.turns] == [None, "r1", "r1", "r3"]
    assert reported(bench.turns[1]) == "3 failed\n\na cause\n\nanother cause"
    assert reported(bench.turns[2]) == (
        "attempt 3 starts again from attempt 1 (3 failed); attempt 2: 57 failed\n\n3 failed\n\na cause\n\nanother cause"
    )
    assert reported(bench.turns[3]).startswith("2 failed (attempt 1: 3 failed; attempt 2: 57 failed)")


def test_of_equally_good_attempts_the_latest_is_the_start() -> None:
    bench = best(left("1"), left("2"), left("3"), verdicts=map(ran, (3, 3, 3, 3)))
    assert starts(bench) == ["0", "1", "2", "3"]


def test_a_refused_response_is_never_the_best_and_its_errors_are_reported() -> None:
    refused = AttemptResult({"out": entry("2")}, failure=wrong("E208", kind="llm_output_invalid"), response="r2")
    bench = best(left("1", response="r1"), left("2"), refused, left("3"), verdicts=map(ran, (3, 57, 1)))
    assert starts(bench)[:3] == ["0", "1", "1"]
    assert reported(bench.turns[3]) == (
        "attempt 4 starts from attempt 1 (3 failed), since the last response was refused\n\nE208"
    )
    assert bench.turns[3].previous_response == "r2"


def test_a_failure_without_tests_is_not_better_than_one_with_failing_tests() -> None:
    bench = best(left("1"), left("2"), left("3"), verdicts=[ran(9), wrong("a check"), ran(1)], retries=2)
    assert starts(bench) == ["0", "1", "1"]
    assert reported(bench.turns[2]).startswith(
        "attempt 3 starts again from attempt 1 (9 failed); attempt 2: verify_failed"
    )


def test_a_recorded_result_can_be_the_best() -> None:
    bench = Bench(left("2"), left("3"), verdicts=[ran(5), ran(4)], retry=Retry(max=1, start_from="best"))
    bench.run(start=(recorded({"out": entry("1")}), ran(2)))
    assert starts(bench) == ["1", "1"]
    assert reported(bench.turns[1]).startswith(
        "attempt 2 starts again from the recorded result (2 failed); attempt 1: 5"
    )
