"""What the calls of later stages need is loaded while earlier stages run, and nothing that no call may need."""

import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.attempt.conversation import Conversations
from orch23.model.errors import ExitCode
from orch23.model.llm import Exchange, Response
from orch23.model.pipeline import Stage
from orch23.plan.planner import Selection
from orch23.providers.adapter import ProviderContext
from orch23.steps.llm.spec import LLMStep
from orch23.store.exchanges import Exchanges
from orch23.text.secrets import Secrets
from tests.doubles import CONSENT, FakeProvider
from tests.unit.engine.rig import Project, answer, asks, model, stage

LONG = 30.0


def loading(project: Project) -> list[str]:
    """Return the list of stages whose calls the next builds prepare, to read it after `joined`."""
    found: list[str] = []
    project.load = lambda stages: found.extend(one.name for one in stages)
    return found


def joined(names: list[str]) -> list[str]:
    for thread in threading.enumerate():
        if thread.name == "orch23-prepare":
            thread.join(LONG)
            assert not thread.is_alive()
    return names


def answering(*nodes: Stage, **more: Any) -> Project:
    """Return a project whose model writes the file of each stage."""
    project = Project(*nodes, files={"src": "1"}, **more)
    project.texts["p.j2"] = "Write."
    project.provider = FakeProvider(lambda _request: Response(text=answer(ask="A")))
    return project


# ---- of which stages --------------------------------------------------------------------------------


def test_a_build_loads_what_a_later_call_needs_while_the_first_stage_runs() -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    loaded = threading.Event()
    called: list[str] = []

    def load(stages: Sequence[Stage]) -> None:
        called.extend(one.name for one in stages)
        loaded.set()

    def wait(_files: Mapping[str, str]) -> dict[str, str]:
        assert loaded.wait(LONG)
        return {"a": "a"}

    project.load, project.programs["a"] = load, wait
    assert project.build().exit_code is ExitCode.OK
    assert called == ["ask"]


def test_a_call_that_waits_for_a_job_is_prepared() -> None:
    project = answering(stage("a", "src"), asks("ask"))
    names = loading(project)
    assert project.build(jobs=1).exit_code is ExitCode.OK
    assert joined(names) == ["ask"]


def test_a_call_that_starts_first_is_not_prepared() -> None:
    project = answering(asks("ask", "src"))
    names = loading(project)
    assert project.build().exit_code is ExitCode.OK
    assert joined(names) == []


def test_a_build_prepares_calls_once() -> None:
    project = answering(stage("a", "src"), stage("b", "a"), stage("c", "b"), asks("ask", "c"))
    names = loading(project)
    assert project.build().exit_code is ExitCode.OK
    assert joined(names) == ["ask"]


def test_a_stage_with_a_record_is_not_prepared() -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    project.programs["a"] = lambda _files: {"a": "always the same"}
    assert project.build().exit_code is ExitCode.OK
    names = loading(project)
    project.disk["src"] = "2"
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.statuses()["ask"]) == (["a"], "fresh")
    assert joined(names) == []


def test_a_build_with_nothing_to_do_prepares_nothing() -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    project.build()
    project.lock = replace(project.lock, records={})
    names = loading(project)
    assert project.build().exit_code is ExitCode.OK
    assert project.ran() == []
    assert joined(names) == []


def test_a_stage_that_is_not_selected_is_not_prepared() -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    names = loading(project)
    assert project.build(selection=Selection(targets=("a",))).exit_code is ExitCode.OK
    assert joined(names) == []


def test_a_build_without_model_calls_prepares_nothing() -> None:
    project = answering(stage("a", "src"), stage("b", "a"))
    names = loading(project)
    assert project.build().exit_code is ExitCode.OK
    assert joined(names) == []


def test_a_plan_prepares_nothing() -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    names = loading(project)
    project.plan()
    assert joined(names) == []


# ---- how it ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ImportError("no library"), SystemExit(3)], ids=["error", "exit"])
def test_an_error_is_left_to_the_call(error: BaseException) -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    tried = threading.Event()

    def fail(_stages: Sequence[Stage]) -> None:
        tried.set()
        raise error

    def wait(_files: Mapping[str, str]) -> dict[str, str]:
        assert tried.wait(LONG)
        return {"a": "a"}

    project.load, project.programs["a"] = fail, wait
    assert project.build().exit_code is ExitCode.OK
    assert project.statuses() == {"a": "built", "ask": "built"}


@pytest.mark.parametrize("how", ["failure", "interrupt"])
def test_a_build_does_not_wait_for_a_library_at_its_end(how: str) -> None:
    project = answering(stage("a", "src"), asks("ask", "a"))
    begun, ended = threading.Event(), threading.Event()

    def load(_stages: Sequence[Stage]) -> None:
        begun.set()
        ended.wait(LONG)

    def end(_files: Mapping[str, str]) -> Any:
        assert begun.wait(LONG)
        if how == "interrupt":
            build.interrupt(2)
            project.executor.stopped.wait(LONG)
        return project.completed(code=1, text="no")

    project.load, project.programs["a"] = load, end
    build = project.builder()
    result = build.run()
    assert not ended.is_set()
    assert result.exit_code == (130 if how == "interrupt" else ExitCode.FAILED)
    (thread,) = (one for one in threading.enumerate() if one.name == "orch23-prepare")
    assert thread.daemon, "a process that exits does not wait for it"
    ended.set()
    joined([])


# ---- of which calls ---------------------------------------------------------------------------------


class Calls:
    """Prepares calls of stages in a folder; `loaded` are the providers whose libraries were loaded."""

    def __init__(self, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exchanges = Exchanges(folder / "exchanges", folder)
        self.root = folder
        self.loaded: list[str] = []
        self.problems: tuple[Any, ...] = ()
        monkeypatch.setattr("orch23.attempt.conversation.adapter_for", self.adapter_for)
        monkeypatch.setattr("orch23.attempt.conversation.readiness_errors", lambda *_: self.problems)

    def adapter_for(self, step: LLMStep) -> Any:
        if step.provider == "command":
            return SimpleNamespace(prepare=None)
        return SimpleNamespace(prepare=lambda _setting: self.loaded.append(f"{step.provider} {step.model}"))

    def prepare(self, *stages: Stage, is_granted: bool = True, **more: Any) -> list[str]:
        setting = ProviderContext(
            environ={},
            root=self.root,
            read_answers=lambda _path: {},
            notice=lambda _event: None,
            **{**CONSENT, "is_granted": lambda _grant: is_granted},
        )
        facts: dict[str, Any] = {"setting": setting, "exchanges": self.exchanges, "meter": None, "secrets": Secrets()}
        Conversations(**facts, **more).prepare(stages)
        return self.loaded

    def record(self, stage_name: str, transcripts: str | None = None) -> None:
        number = len(list(self.root.rglob("*.json")))
        exchange = Exchange(fingerprint=f"{number:064}", request={}, response="A", stage=stage_name)
        self.exchanges.put(exchange, transcripts)


@pytest.fixture
def calls(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(tmp_path, monkeypatch)


def call(name: str, **more: Any) -> Stage:
    facts = {"provider": "anthropic", "model": "m", "prompt": "p.j2", "command": (), **more}
    return asks(name, step=model(**facts))


@pytest.mark.needs("vendors")
def test_each_provider_is_prepared_once(calls: Calls) -> None:
    stages = [call("a"), stage("shell"), call("b"), call("c", provider="openai"), call("d", provider="command")]
    assert calls.prepare(*stages) == ["anthropic m", "openai m"]


@pytest.mark.needs("vendors")
def test_the_model_of_the_first_attempt_is_prepared(calls: Calls) -> None:
    one = call("a")
    assert calls.prepare(replace(one, retry=replace(one.retry, escalate=("small", "large")))) == ["anthropic small"]


@pytest.mark.needs("vendors")
def test_a_stage_with_a_recorded_exchange_is_not_prepared(calls: Calls) -> None:
    calls.record("a")
    calls.record("each@one", "answers")
    assert calls.prepare(call("a"), call("each@two", transcripts="answers")) == []
    assert calls.prepare(call("a"), call("other")) == ["anthropic m"]


@pytest.mark.needs("vendors")
def test_committed_exchanges_are_those_of_the_stages_that_name_their_folder(calls: Calls) -> None:
    calls.record("a", "answers")
    (calls.exchanges._local("0" * 64)).unlink()
    assert calls.prepare(call("a", transcripts="answers")) == []
    assert calls.prepare(call("a")) == ["anthropic m"]


def test_a_damaged_exchange_is_left_to_the_call(calls: Calls) -> None:
    calls.record("a", "answers")
    (calls.root / "answers" / f"{0:064}.json").write_text("{")
    calls.record("b", "answers")
    assert calls.prepare(call("b", transcripts="answers")) == []
    assert calls.exchanges.damaged == []


@pytest.mark.needs("vendors")
def test_a_new_sample_of_a_recorded_exchange_is_prepared(calls: Calls) -> None:
    calls.record("a")
    assert calls.prepare(call("a", mode="record")) == ["anthropic m"]
    assert calls.prepare(call("a"), resample={"a": ()}) == ["anthropic m"] * 2


@pytest.mark.needs("vendors")
@pytest.mark.parametrize(
    ("facts", "more"),
    [
        ({"mode": "replay"}, {}),
        ({}, {"replay": True}),
        ({}, {"offline": True}),
        ({"base_url": "https://models.example"}, {"is_granted": False}),
    ],
    ids=["mode", "replay", "offline", "consent"],
)
def test_a_call_that_is_not_allowed_is_not_prepared(calls: Calls, facts: dict[str, Any], more: dict[str, Any]) -> None:
    assert calls.prepare(call("a", **facts), **more) == []


def test_a_call_that_lacks_its_key_is_not_prepared(calls: Calls) -> None:
    calls.problems = ("no key",)
    assert calls.prepare(call("a")) == []
