"""A build is refused before its first stage if it would surely call a model that cannot be called."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import pytest

from orch23.attempt.conversation import Conversations, RequestBuilder
from orch23.decide.dry_run import Preview, preview
from orch23.engine.call_preflight import CallPreflight, llm_steps
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, ExitCode, Orch23Error, ProviderError
from orch23.model.llm import Exchange
from orch23.model.pipeline import Condition, Pipeline, Price, Retry, Stage, StopConditions
from orch23.model.step import Grant
from orch23.plan.planner import build_plan
from orch23.providers.adapter import ProviderContext
from orch23.resolve.prompt_inputs import AttemptContext
from orch23.steps.llm.spec import LLMStep
from orch23.steps.registry import kinds_of
from orch23.text.secrets import Secrets
from tests.doubles import FakeProvider, NoFiles
from tests.unit.engine.rig import ROOT, Project, answer, asks, entry, stage

pytestmark = pytest.mark.needs("vendors")

KEYS = {"ANTHROPIC_API_KEY": "a-key", "OPENAI_API_KEY": "a-key"}
VENDOR = LLMStep(provider="anthropic", model="some-model", prompt="p.j2")
OWN_SERVER = LLMStep(provider="anthropic", model="m", prompt="p.j2", base_url="https://models.example.com/v1")
SERVER = Grant(kind="server", name="https://models.example.com", keys=("ANTHROPIC_API_KEY",))
DOWNLOAD = Grant(kind="download", name="https://files.example.com")


class Bench:
    """Readiness over a project; `looks` counts how often the preview was made."""

    def __init__(self, *nodes: Any, environ: Any = None, granted: Sequence[Grant] = (), **more: Any) -> None:
        stop = more.pop("stop", StopConditions())
        self.project = Project(*nodes, files={"src": "1"}, stop=stop, prices=more.pop("prices", {}))
        self.project.texts["p.j2"] = "write"
        self.looks = 0
        self.asked: list[tuple[Grant, ...]] = []
        self.consents: bool = more.pop("consents", False)
        self.budget = more.pop("budget", None)
        setting = ProviderContext(
            environ=KEYS if environ is None else environ,
            root=ROOT,
            read_answers=lambda _path: {},
            notice=lambda _event: None,
            is_granted=lambda grant: grant in granted,
            files=NoFiles(),
        )
        exchanges: Any = self.project.store.exchanges
        self.conversations = Conversations(
            setting=setting, exchanges=exchanges, meter=cast("Any", None), secrets=Secrets(), **more
        )

    def check(self) -> None:
        CallPreflight(
            pipeline=self.project.pipeline,
            conversations=self.conversations,
            sources=self.project,
            contents=self.project.store.contents,
            budget=self.budget,
            ask_consent=self.ask,
        ).check(self.project.opened().state.plan, self.look)

    def refused(self, kind: type[Orch23Error] = ConfigurationError) -> list[Diagnostic]:
        with pytest.raises(kind) as caught:
            self.check()
        return list(caught.value.diagnostics)

    def look(self) -> Preview:
        self.looks += 1
        return preview(self.project.opened())

    def ask(self, grants: Sequence[Grant]) -> bool:
        self.asked.append(tuple(grants))
        return self.consents

    def record(self, name: str) -> None:
        """Record an answer to the first request of a stage."""
        opened = self.project.opened()
        resolved = opened.decider.decide(name).resolved
        step = resolved.stage.step
        assert isinstance(step, LLMStep)
        conversation = self.conversations.open(resolved, 1, set())
        questions = RequestBuilder(Secrets(), self.project, Pipeline(name="p", file="p.yaml", stages=()))
        this = AttemptContext(given=resolved.given, model=step.model)
        request, _ = questions.build(resolved, step, this, conversation.params)
        assert request is not None
        self.project.store.exchanges.put(
            Exchange(fingerprint=request.fingerprint(), stage=name, request={}, response="x"), None
        )


def fetch(sha256: str = "0" * 64) -> Stage:
    keys: Any = {"url": "https://files.example.com/x", "sha256": sha256}
    return stage("f", step=kinds_of(())["fetch"](**keys))


# ---- keys and libraries ---------------------------------------------------------------------------------


def test_a_missing_key_stops_the_build_and_is_reported_once_for_all_stages() -> None:
    problems = Bench(asks("a", step=VENDOR), asks("b", step=VENDOR), environ={}).refused()
    (no_key,) = [one for one in problems if one.code == "E412"]
    assert (no_key.subject, [one.message for one in no_key.related]) == ("a", ["`b` needs it too"])
    assert "--replay" in (no_key.hint or "")
    assert "--provider" in (no_key.hint or "")


def test_on_a_machine_that_has_all_it_needs_no_preview_is_made() -> None:
    bench = Bench(asks("a", step=VENDOR))
    bench.check()
    assert bench.looks == 0


def test_nothing_is_missing_if_the_response_is_recorded_or_the_stage_would_not_run() -> None:
    bench = Bench(asks("a", step=VENDOR), environ={})
    bench.record("a")
    bench.check()
    unmet = Bench(asks("a", step=VENDOR, requires=(Condition("file_exists", "gone"),)), environ={})
    unmet.check()
    assert (bench.looks, unmet.looks) == (1, 1)


def test_a_stage_with_inputs_that_do_not_exist_yet_is_not_refused() -> None:
    bench = Bench(stage("first", "src"), asks("b", "first", step=VENDOR), environ={})
    bench.check()
    assert bench.looks == 1


def test_a_replay_needs_no_key() -> None:
    bench = Bench(asks("a", step=VENDOR), environ={}, replay=True)
    bench.check()
    assert bench.looks == 0


def test_the_models_of_escalate_count_and_not_the_one_of_the_step() -> None:
    one = asks("a", step=VENDOR, retry=Retry(max=1, escalate=("cheap", "dear")))
    plan, _ = build_plan(Project(one).pipeline)
    assert plan is not None
    assert [step.model for step in llm_steps(plan)] == ["cheap", "dear"]


# ---- offline --------------------------------------------------------------------------------------------


def test_offline_a_model_beyond_this_machine_is_refused_and_one_on_it_is_not() -> None:
    (problem,) = Bench(asks("a", step=VENDOR), offline=True).refused(ProviderError)
    assert (problem.code, problem.subject) == ("E423", "a")
    bench = Bench(asks("a", step=LLMStep(provider="scripted", model="m", prompt="p.j2", answers="x")), offline=True)
    bench.check()


@pytest.mark.needs("fetch")
def test_offline_a_download_is_refused_unless_the_store_has_the_file() -> None:
    bench = Bench(fetch(), offline=True, granted=[DOWNLOAD])
    assert [one.code for one in bench.refused(ProviderError)] == ["E455"]
    there = entry("the file")
    bench = Bench(fetch(there.digest.sha256), offline=True)
    bench.project.store.contents.put(b"the file")
    bench.check()


# ---- consent --------------------------------------------------------------------------------------------


@pytest.mark.needs("fetch")
def test_a_sure_call_without_consent_stops_the_build() -> None:
    bench = Bench(asks("a", step=OWN_SERVER), fetch())
    problems = bench.refused(ConsentError)
    assert [(one.code, one.subject) for one in problems] == [("E426", "a"), ("E426", "f")]
    assert bench.asked == [(SERVER, DOWNLOAD)], "the user was asked about all of it at once"


@pytest.mark.needs("fetch")
def test_consent_on_the_terminal_is_enough_and_earlier_consent_is_not_requested_again() -> None:
    bench = Bench(asks("a", step=OWN_SERVER), fetch(), consents=True)
    bench.check()
    assert len(bench.asked) == 1
    bench = Bench(asks("a", step=OWN_SERVER), fetch(), granted=[SERVER, DOWNLOAD])
    bench.check()
    assert (bench.asked, bench.looks) == ([], 0)


def test_a_possible_call_without_consent_does_not_stop_the_build() -> None:
    bench = Bench(stage("first", "src"), asks("z", "first", step=OWN_SERVER))
    bench.project.provider = FakeProvider([answer(z="z")])
    assert bench.project.build().exit_code is ExitCode.OK
    bench.project.disk["src"] = "2"
    bench.check()
    assert bench.asked == [(SERVER,)]


# ---- money ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"budget": Decimal(1)}, "E424"),
        ({"stop": StopConditions(max_cost_usd=Decimal(1))}, "E424"),
        ({}, ""),
        ({"budget": Decimal(1), "prices": {"m": Price(input=Decimal(1), output=Decimal(1))}}, ""),
    ],
)
def test_under_a_limit_of_cost_a_model_without_a_price_is_refused(more: Any, code: str) -> None:
    bench = Bench(asks("a", step=OWN_SERVER), granted=[SERVER], **more)
    if not code:
        bench.check()
        return
    assert [one.code for one in bench.refused()] == [code]


def test_a_cost_limit_of_another_stage_does_not_count() -> None:
    limited = StopConditions(max_cost_usd=Decimal(1))
    free = asks("a", step=OWN_SERVER)
    bench = Bench(free, stage("b", stop=limited), granted=[SERVER])
    bench.check()
    assert bench.looks == 1, "what is known without looking does not decide it"
