"""Money that cannot run away: limits of calls, tokens and cost hold whatever a provider does and whenever it ends."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from orch23.model.event import Event
from orch23.model.llm import Request, Response, Usage
from orch23.providers.prices import worst_case
from orch23.store.exchanges import Exchanges
from orch23.store.run_logs import Journal
from tests.e2e.pipelines import ends, green, pipeline, prompt
from tests.loopback import Reply, error_reply, events_reply, loopback, message_events, message_reply
from tests.project import Project

pytestmark = [pytest.mark.usefixtures("priced_programs"), pytest.mark.needs("vendors")]
PRICES = "prices: {echo: {input: 1, output: 1}}\n"  # a millionth of a dollar a token, in or out
MILLION = Decimal(1_000_000)
ONE = 1024 + 16 + len(b"ask00\nanswer") + 100
"""What a request of `story` can take, in tokens: around it, around its message, its bytes, its answer."""


def most(request: Request) -> Usage:
    """Return the most that a request can take."""
    room = request.params["max_tokens"]
    assert isinstance(room, int)
    return Usage(worst_case(request, None).tokens - room, room)


def little(_request: Request) -> Usage:
    return Usage(3, 2)


@dataclass
class Model:
    """A model that answers at once, and keeps the bill in a file: it is written before the answer leaves it."""

    bill: Path
    took: Callable[[Request], Usage] = most
    text: Callable[[Request], str] = lambda request: request.messages[-1].content
    held: Callable[[Request], object] = lambda _request: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, request: Request, _deadline_s: float, _on_text: Callable[[str], None]) -> Response:
        usage = self.took(request)
        with self._lock, self.bill.open("a") as bill:
            bill.write(f"{request.messages[-1].content.splitlines()[0]} {usage.total}\n")
        self.held(request)
        return Response(text=self.text(request), usage=usage)


@contextmanager
def asking(model: Model) -> Iterator[None]:
    """Let this model answer in the place of every provider."""
    with patch("orch23.providers.command.CommandAdapter.make", lambda *_: model):
        yield


@pytest.fixture
def bill(project: Project) -> Path:
    return project.root.parent / "bill.txt"


def charged(bill: Path) -> list[int]:
    """Return the tokens of all requests that ever reached the model, each a millionth of a dollar."""
    return [int(line.split()[1]) for line in bill.read_text().splitlines()] if bill.exists() else []


def asked(bill: Path) -> list[str]:
    return [line.split()[0] for line in bill.read_text().splitlines()]


def story(project: Project, count: int, *, limits: str = "", prices: str = PRICES) -> int:
    """Write a pipeline of stages that need nothing of each other; return what a request of one can take, in tokens."""
    stages = "".join(
        f"  a{n:02}: {{outputs: [a{n:02}.txt], llm: {{prompt: p{n:02}.md.j2, returns: text, max_tokens: 100}}}}\n"
        for n in range(count)
    )
    prompts = {f"p{n:02}.md.j2": prompt(f"ask{n:02}", "answer") for n in range(count)}
    project.write(pipeline(stages, prompts, head=f"{prices}stop_conditions: {{{limits}}}\n"))
    return ONE


def dollars(tokens: int) -> str:
    return format(Decimal(tokens) / MILLION, "f")


def last(project: Project, kind: str) -> Any:
    return project.events_of(kind)[-1]["data"]


# ---- many at once ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_always_takes_the_most_never_passes_the_budget(project: Project, bill: Path) -> None:
    each = story(project, 20, limits="max_cost_usd: 0.009")
    with asking(Model(bill)):
        stopped = project.build("-j4")
        assert stopped.code == 4
        assert set(charged(bill)) == {each}, "the size that the other tests reckon with"
        assert len(charged(bill)) == 9000 // each, "all that fits is asked for"
        assert sum(charged(bill)) <= 9000
        for said in ("E502", "$0.009", "could cost $0.0012 (", "--budget", "the next build continues"):
            assert said in stopped.err, said
        assert sorted(ends(project).values()) == ["built"] * 7 + ["cancelled"] * 13
        finished = last(project, "run_finished")
        assert (finished["status"], finished["calls"], finished["tokens"]) == ("limit", 7, 7 * each)
        assert Decimal(finished["cost"]) == Decimal(7 * each) / MILLION
        assert finished["limits"]["max_cost_usd"] == "0.009"
        assert project.build("-j4").code == 4, "and has spent another budget"
        green(project.build("-j4"))
    assert sorted(asked(bill)) == [f"ask{n:02}" for n in range(20)], "nothing is asked for twice"


def test_a_reservation_that_does_not_fit_waits_for_the_others_to_take_less(project: Project, bill: Path) -> None:
    each = story(project, 12, limits=f"max_tokens: {ONE * 3 // 2}")
    with asking(Model(bill, took=little)):
        green(project.build("-j4"))
    assert sum(charged(bill)) == 12 * 5
    reserved = [event["data"]["tokens"] for event in project.events_of("call_reserved")]
    assert reserved == [each] * 12
    kinds = [event["type"] for event in project.events() if event["type"] in {"call_reserved", "call_settled"}]
    assert kinds == ["call_reserved", "call_settled"] * 12, "no two at once: they would not fit"


def test_the_budget_of_the_command_line_stands_in_the_place_of_the_pipeline_s(project: Project, bill: Path) -> None:
    each = story(project, 3, limits="max_cost_usd: 0.000001")
    with asking(Model(bill)):
        assert project.build("-j1").code == 4
        assert charged(bill) == []
        assert project.build("-j1", "--budget", dollars(2 * each)).code == 4
        assert len(charged(bill)) == 2
        green(project.build("-j1", "--budget", dollars(each)))


def test_a_request_whose_worst_case_alone_is_too_much_sends_nothing(project: Project, bill: Path) -> None:
    story(project, 1, limits="max_cost_usd: 0.001")
    with asking(Model(bill, took=little)):
        stopped = project.build()
    assert stopped.code == 4
    assert charged(bill) == []
    assert project.events_of("call_reserved") == []
    assert "to $0.0012 at least, or lower llm.max_tokens" in stopped.err


def test_recorded_answers_cost_nothing_and_reserve_nothing(project: Project, bill: Path) -> None:
    story(project, 3)
    with asking(Model(bill)):
        green(project.build())
        project.delete("pipeline.lock")
        green(project.build("--budget", "0.000001", "--force", "a00", "--force", "a01", "--force", "a02"))
    assert len(charged(bill)) == 3
    assert project.events_of("call_reserved") == []
    finished = last(project, "run_finished")
    assert (finished["calls"], finished["cost"]) == (0, "0")
    assert Decimal(finished["saved"]) == Decimal(sum(charged(bill))) / MILLION


def test_a_finished_run_leaves_nothing_to_the_next(project: Project, bill: Path) -> None:
    each = story(project, 2, limits=f"max_tokens: {2 * ONE}")
    with asking(Model(bill)):
        green(project.build())
        for n in range(2):
            project.replace(f"p0{n}.md.j2", "answer", "reply.")
        green(project.build())
    assert charged(bill) == [each] * 4


def test_answers_that_cannot_be_used_are_charged_like_any(project: Project, bill: Path) -> None:
    project.write(
        pipeline(
            "  a: {outputs: [a.txt], retry: 9, llm: {prompt: p.md.j2, returns: files, max_tokens: 100}}\n",
            {"p.md.j2": prompt("ask", "{{ attempt }}")},
            head=PRICES + "stop_conditions: {max_cost_usd: 0.005}\n",
        )
    )
    with asking(Model(bill, text=lambda _request: "no JSON")):
        assert project.build().code == 4
    assert 2 <= len(charged(bill)) < 9
    assert sum(charged(bill)) <= 5000


def test_an_answer_that_cannot_be_kept_is_charged_and_holds_no_one_up(project: Project, bill: Path) -> None:
    story(project, 2, limits=f"max_tokens: {ONE * 3 // 2}")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with asking(Model(bill, took=little)), patch.object(Exchanges, "put", full_disk):
        project.build("-j2", "-k")
    settled = project.events_of("call_settled")
    assert settled[0]["data"]["forfeited"] is True
    assert len(settled) == len(project.events_of("call_reserved"))


# ---- one stage ------------------------------------------------------------------------------------------


def test_a_limit_of_a_stage_fails_it_and_the_others_go_on(project: Project, bill: Path) -> None:
    project.write(
        pipeline(
            """\
  a:
    outputs: [a.txt]
    retry: 5
    stop_conditions: {max_llm_calls: 2}
    llm: {prompt: a.md.j2, returns: text, max_tokens: 100}
    verify: [{shell: 'false'}]
  b: {needs: [a], outputs: [b.txt], shell: echo b > b.txt}
  c: {outputs: [c.txt], llm: {prompt: c.md.j2, returns: text, max_tokens: 100}}
""",
            {"a.md.j2": prompt("a", "{{ attempt }}"), "c.md.j2": prompt("c", "c")},
            head=PRICES,
        )
    )
    with asking(Model(bill)):
        stopped = project.build("-j1", "-k")
    assert stopped.code == 4
    assert asked(bill) == ["a", "a", "c"]
    assert ends(project) == {"a": "failed", "b": "blocked", "c": "built"}
    (failed,) = [event["data"] for event in project.events_of("stage_finished") if event["role"] == "a"]
    assert (failed["calls"], Decimal(failed["cost"])) == (2, Decimal(sum(charged(bill)[:2])) / MILLION)
    assert "E501" in stopped.err + stopped.out
    assert "of the stage" in stopped.err + stopped.out


@pytest.mark.slow
def test_the_wall_time_of_a_stage_is_over_all_of_its_attempts(project: Project) -> None:
    project.write(
        pipeline(
            """\
  a: {outputs: [a.txt], retry: 50, stop_conditions: {max_wall: 1s}, shell: sleep 0.3; exit 1}
  b: {outputs: [b.txt], shell: echo b > b.txt}
"""
        )
    )
    stopped = project.build("-j1", "-k")
    assert stopped.code == 4
    assert ends(project) == {"a": "failed", "b": "built"}
    assert "E504" in stopped.err + stopped.out
    assert 2 <= len(project.events_of("attempt_started")) - 1 <= 5


def test_without_a_price_nothing_is_sent_under_a_limit_of_cost(project: Project, bill: Path) -> None:
    story(project, 2, limits="max_cost_usd: 5", prices="")
    with asking(Model(bill)):
        stopped = project.build()
        assert stopped.code == 78
        assert "E424" in stopped.err + stopped.out
        assert charged(bill) == []
        story(project, 2, prices="")
        green(project.build())
    assert last(project, "run_finished")["unpriced"] == 2


# ---- runs that are cut off --------------------------------------------------------------------------------

_KILLED = 137


def build_and_die(project: Project, model: Model, target: int) -> tuple[int, int]:
    """Build in a child that dies at its step `target`: an event, an answer that is kept, a request that arrived.

    Return its exit code, and how many steps it took if it did not die.
    """
    count_file = project.root.parent / "steps.txt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the child runs only what follows
        child = os.fork()
    if child == 0:
        code = 99
        try:
            seen = _die_at(target, model)
            with asking(model):
                code = project.build("-j1").code
            count_file.write_text(str(len(seen)))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(count_file.read_text()) if count_file.exists() else 0


def _die_at(target: int, model: Model) -> list[None]:
    seen: list[None] = []

    def step(*_: object) -> None:
        seen.append(None)
        if len(seen) == target:
            os._exit(_KILLED)

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def before_and_after(*args: Any, **kwargs: Any) -> Any:
            step()
            done = real(*args, **kwargs)
            step()
            return done

        setattr(owner, name, before_and_after)

    counted(Journal, "notice")
    counted(Exchanges, "put")
    model.held = step
    return seen


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_run_and_the_one_that_goes_on_keep_one_budget(project: Project, bill: Path) -> None:
    each = story(project, 5, limits="max_cost_usd: 0.004")
    whole, steps = build_and_die(project, Model(bill), -1)
    assert (whole, len(charged(bill))) == (4, 3)
    assert steps > 60
    interrupted = 0
    for target in range(1, steps, 5):
        _start_over(project, bill)
        code, _ = build_and_die(project, Model(bill), target)
        assert code == _KILLED
        before = len(charged(bill))
        with asking(Model(bill)):
            project.build("-j1")
        assert sum(charged(bill)) <= 4000, f"killed at step {target} of {steps}, after {before} requests"
        assert len(charged(bill)) >= 3 - 1, "and little of it is lost"
        interrupted += 0 < before < 3
        took = last(project, "run_finished")
        counted = sum(one["tokens"] + one["possible_tokens"] for one in (took, took["before"]))
        assert counted >= sum(charged(bill)), "never too little is counted"
        assert set(charged(bill)) == {each}
    assert interrupted > 3, "some were killed in the middle of it"


def _start_over(project: Project, bill: Path) -> None:
    bill.unlink(missing_ok=True)
    for path in sorted((project.root / "logs").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for path in sorted((project.root / ".orch23").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in ("pipeline.lock", *(f"a{n:02}.txt" for n in range(20))):
        (project.root / name).unlink(missing_ok=True)


@pytest.mark.slow
def test_an_interrupt_ends_who_waits_and_counts_what_was_under_way(project: Project, bill: Path) -> None:
    each = story(project, 2, limits=f"max_tokens: {ONE * 3 // 2}")
    let_go = threading.Event()

    def hold(_request: Request) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        let_go.wait(20)

    with asking(Model(bill, took=little, held=hold)):
        assert project.build("-j2").code == 130
    names = {thread.name for thread in threading.enumerate()} & {"orch23-stage-a00", "orch23-stage-a01"}
    assert len(names) == 1, "the one that the model holds; the other waited for it, and has ended"
    with asking(Model(bill, took=little)):
        stopped = project.build("-j1")
    assert stopped.code == 4, "what was under way may have been charged in full"
    assert last(project, "run_finished")["before"]["possible_tokens"] == each
    let_go.set()
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(20)


@pytest.mark.slow
def test_the_end_of_the_run_s_wall_time_lets_no_one_ask_who_waited(project: Project, bill: Path) -> None:
    story(project, 2, limits=f"max_wall: 1s, max_tokens: {ONE * 3 // 2}")
    over = threading.Event()
    real = Journal.notice

    def notice(journal: Journal, event: Event) -> None:
        real(journal, event)
        if "E504" in event.message:
            over.set()

    with asking(Model(bill, took=little, held=lambda _request: over.wait(20))), patch.object(Journal, "notice", notice):
        assert project.build("-j2").code == 4
    assert len(charged(bill)) == 1
    assert sorted(ends(project).values()) == ["built", "cancelled"], "what was paid for is kept"


# ---- a real adapter -----------------------------------------------------------------------------------------

KEY = {"ANTHROPIC_API_KEY": "sk-test-0123456789"}


def claude(project: Project, url: str, limits: str) -> None:
    llm = f"{{provider: anthropic, model: claude-sonnet-5-5, base_url: '{url}', prompt: p.md.j2, returns: text}}"
    project.write(
        {
            "pipeline.yaml": (
                f"version: 1\nname: story\nstop_conditions: {{{limits}}}\nstages:\n"
                f"  a: {{outputs: [a.txt], llm: {llm}}}\n"
            ),
            "p.md.j2": "Say hello.\n",
        }
    )


def settled(project: Project) -> list[tuple[int, bool, bool]]:
    data = [event["data"] for event in project.events_of("call_settled")]
    return [(one["calls"], one["forfeited"], one["released"]) for one in data]


@pytest.mark.slow
def test_a_full_server_costs_nothing_and_of_a_cut_stream_the_rest_is_possible(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    cut = events_reply(message_events("Hel", usage={"input_tokens": 20})[:4], whole=False)
    full: Reply = error_reply(429, "rate_limit_error", headers={"retry-after": "0"})
    answer = message_reply("Hello.", model="claude-sonnet-5-5", usage={"input_tokens": 20}, output_tokens=30)
    with loopback(full, cut, answer) as server:
        claude(project, server.url, "max_cost_usd: 2")
        built = project.build(env=KEY)
        green(built)
        assert len(server.asked) == 3
    assert settled(project) == [(0, False, True), (0, True, False), (1, False, False), (1, False, False)]
    reserved = [event["data"]["cost"] for event in project.events_of("call_reserved")]
    finished = last(project, "run_finished")
    true_cost = (20 * Decimal(2) + 30 * Decimal(10)) / MILLION  # what the table says of this model
    cut_cost = (20 * Decimal(2) + 1 * Decimal(10)) / MILLION  # the first event of the stream had these tokens
    assert finished["calls"] == 2
    assert Decimal(finished["cost"]) == true_cost + cut_cost
    assert Decimal(finished["possible_cost"]) == Decimal(reserved[1]) - cut_cost
    known, possible = f"${true_cost + cut_cost:.4f}", f"at most ${Decimal(reserved[1]) - cut_cost:.4f} more"
    assert f"2 calls, 20+30 tokens, {known} of $2.00, {possible}\n" in built.err
    assert f"{known}, {possible}" in project.run("runs").out
    assert f"paid {known}, {possible}" in project.run("show", "a", "--cost").out
    assert Decimal(last(project, "llm_response")["cost"]) == true_cost


@pytest.mark.needs("inspecting")
def test_a_response_without_a_count_of_tokens_may_have_cost_the_whole_reservation(project: Project) -> None:
    with loopback(message_reply("Hello.", model="claude-sonnet-5-5", usage={"input_tokens": 0})) as server:
        claude(project, server.url, "max_cost_usd: 2")
        built = project.build(env=KEY)
        green(built)
    (reserved,) = [event["data"]["cost"] for event in project.events_of("call_reserved")]
    finished = last(project, "run_finished")
    assert (finished["calls"], finished["cost"], finished["possible_cost"]) == (1, "0", reserved)
    possible = f"at most ${Decimal(reserved):.4f} more"
    assert f"1 call, 0+7 tokens, $0 of $2.00, {possible}\n" in built.err
    assert f"$0, {possible}" in project.run("runs").out
    cost = project.run("show", "a", "--cost").out
    assert f": 1 call, 0 recorded responses, 0+7 tokens, paid $0, {possible}" in cost


@pytest.mark.needs("inspecting")
@pytest.mark.parametrize("stop", ["tool_use", "pause_turn", "model_context_window_exceeded"])
def test_a_response_that_cannot_be_used_costs_what_the_server_counted(project: Project, stop: str) -> None:
    answer = message_reply("Hel", stop=stop, model="claude-sonnet-5-5", usage={"input_tokens": 20}, output_tokens=30)
    with loopback(answer) as server:
        claude(project, server.url, "max_cost_usd: 2")
        assert project.build(env=KEY).code == 5
        assert len(server.asked) == 1
    finished = last(project, "run_finished")
    assert Decimal(finished["cost"]) == (20 * Decimal(2) + 30 * Decimal(10)) / MILLION
    assert (finished["calls"], finished["tokens"], finished["possible_cost"]) == (1, 50, "0")
    assert "1 call, 1 of them without a usable response" in project.run("show", "a", "--cost").out


@pytest.mark.slow
def test_a_try_after_a_charged_fault_needs_sandbox_dir_in_the_budget(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    cut = events_reply(message_events("Hel")[:4], whole=False)
    with loopback(cut, message_reply("Hello.")) as server:
        claude(project, server.url, "max_cost_usd: 0.5")
        stopped = project.build(env=KEY)
        assert len(server.asked) == 1
    assert stopped.code == 4
    assert "E502" in stopped.err
