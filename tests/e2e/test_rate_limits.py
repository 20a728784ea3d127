"""Whole builds against servers with rate limits: all stages are green, whatever the server refuses on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.model.errors import ExitCode
from tests.e2e.pipelines import green
from tests.openai_server import Asked, OpenAIServer, Reply, chat, error, response
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("vendors"),
]  # whole builds, many of them: `make test` runs them, `make check` does not

_PROGRAM = "from orch23.entry import run; run()"
_REPOSITORY = str(Path(__file__).parents[2])


class Bucket:
    """The rule of a server with a token bucket. It counts what it refused."""

    def __init__(self, size: int, period_s: float, *, states: bool = False) -> None:
        self.size, self.per_s, self.states = size, size / period_s, states
        self.level, self.at = float(size), time.monotonic()
        self.accepted = self.refused = 0
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Reply:
        with self._lock:
            now = time.monotonic()
            self.level = min(self.size, self.level + (now - self.at) * self.per_s)
            self.at = now
            if self.level < 1:
                self.refused += 1
                wait_ms = (1 - self.level) / self.per_s * 1000
                return error(429, f"try again in {wait_ms:.0f} ms", retry_after_ms=f"{wait_ms:.3f}")
            self.level -= 1
            self.accepted += 1
        return chat("an answer")


def refusing(count: int, reply: Reply) -> Callable[[Asked], Reply]:
    """Return the rule of a server that refuses the first requests."""
    left = [reply] * count

    def rule(_asked: Asked) -> Reply:
        return left.pop() if left else chat("an answer")

    return rule


def write(project: Project, url: str, stages: int, *, head: str = "", step: str = "", api: str = "chat") -> None:
    lines = [
        f"  ask{n}: {{outputs: [{n}.txt]{step}, llm: {{provider: openai, base_url: '{url}', api: {api}, model: m, "
        f"prompt: {n}.md.j2, returns: text}}}}\n"
        for n in range(stages)
    ]
    files = {f"{n}.md.j2": f"Question {n}." for n in range(stages)}
    project.write({**files, "pipeline.yaml": f"version: 1\nname: story\n{head}stages:\n{''.join(lines)}"})


def test_twenty_stages_at_ten_requests_in_a_period_are_all_green(project: Project) -> None:
    bucket = Bucket(10, 0.6)
    with OpenAIServer(rule=bucket) as server:
        write(project, server.url, 20)
        green(project.build("-j8"))
    assert (bucket.accepted, len(project.events_of("attempt_started"))) == (20, 20)
    assert bucket.refused == len(project.events_of("http_retry")) <= 40


@pytest.mark.thorough  # that of twenty stages stays
def test_three_hundred_calls_at_a_limit_are_all_green(project: Project) -> None:
    bucket = Bucket(20, 0.1)
    with OpenAIServer(rule=bucket) as server:
        write(project, server.url, 300, head="pools: {llm: 8}\n")
        green(project.build())
    assert bucket.accepted == 300


def test_with_rates_in_the_pipeline_nothing_is_refused_and_changing_them_makes_nothing_stale(project: Project) -> None:
    bucket = Bucket(10, 0.5)
    with OpenAIServer(rule=bucket) as server:
        write(project, server.url, 20, head="rates: {openai/m: {requests: 10/1s}}\n")
        green(project.build("-j8"))
        assert (bucket.accepted, bucket.refused) == (20, 0)
        write(project, server.url, 20, head="rates: {m: {requests: 11/min}}\n")
        again = project.build("-j8")
        green(again)
        assert len(server.asked) == 20


@pytest.mark.stride(3)
@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_server_that_refuses_the_first_requests_is_waited_for(project: Project, status: int) -> None:
    with OpenAIServer(rule=refusing(12, error(status, "later", retry_after_ms="1"))) as server:
        write(project, server.url, 12, head="defaults: {llm: {timeout: 5s}}\n")
        green(project.build("-j8"))
        assert len(server.asked) == 24
    assert len(project.events_of("attempt_started")) == 12


@pytest.mark.parametrize(
    "reply",
    [
        error(429, "no money", code="insufficient_quota", retry_after="1"),
        error(429, "no money", type="insufficient_quota"),
        error(429, "no money", code="billing_hard_limit_reached"),
        error(402, "no money"),
        error(400, "Your credit balance is too low to access the API."),
        error(403, "no money", type="billing_error"),
    ],
)
def test_an_empty_account_ends_the_build_after_exactly_one_request(project: Project, reply: Reply) -> None:
    with OpenAIServer(rule=lambda _asked: reply) as server:
        write(project, server.url, 1)
        outcome = project.build()
        assert (outcome.code, len(server.asked)) == (ExitCode.PROVIDER, 1)
    assert "E427" in outcome.err
    assert "add credit" in outcome.err


def test_a_refused_submission_waits_too(project: Project) -> None:
    with OpenAIServer(error(429, "later", retry_after_ms="5"), response("an answer")) as server:
        write(project, server.url, 1, api="responses")
        green(project.build())
        assert server.lines() == ["POST /v1/responses"] * 2


def test_a_wait_for_longer_than_some_seconds_is_shown_once_and_reserves_no_budget(project: Project) -> None:
    with OpenAIServer(rule=refusing(1, error(429, "try again in 3.2s", retry_after_ms="3200"))) as server:
        write(project, server.url, 1)
        outcome = project.build()
        green(outcome)
    assert outcome.err.count("waits for the rate limit of openai/m, ") == 1
    (shown,) = project.events_of("rate_limit_wait")
    assert (shown["role"], shown["data"]["wait_s"]) == ("ask0", pytest.approx(3.2, abs=1))
    kinds = [event["type"] for event in project.events()]
    between = kinds[kinds.index("rate_limit_wait") :]
    settled = kinds[: kinds.index("rate_limit_wait")]
    assert settled.count("call_reserved") == settled.count("call_settled") == 1
    assert between.index("call_reserved") > 0


def test_the_wall_time_of_a_stage_ends_a_wait(project: Project) -> None:
    with OpenAIServer(rule=lambda _asked: error(429, "later", retry_after_ms="400")) as server:
        write(project, server.url, 1, step=", stop_conditions: {max_wall: 1s}")
        outcome = project.build()
        assert outcome.code != ExitCode.OK
        assert 1 < len(server.asked) <= 4
    assert "max_wall" in outcome.err
    assert "later" in outcome.err


def test_the_wall_time_of_the_run_ends_a_wait(project: Project) -> None:
    with OpenAIServer(rule=lambda _asked: error(429, "later", retry_after_ms="400")) as server:
        write(project, server.url, 3, head="stop_conditions: {max_wall: 1s}\n")
        outcome = project.build("-j8")
        assert outcome.code == ExitCode.LIMIT
        assert len(server.asked) <= 6
    assert "error: [E504] the run exceeded max_wall, which is 1.0s (" in outcome.err


def test_a_wait_longer_than_the_wall_time_of_the_run_is_not_begun(project: Project) -> None:
    with OpenAIServer(rule=lambda _asked: error(429, "later", retry_after="90000")) as server:
        write(project, server.url, 1, head="stop_conditions: {max_wall: 2h}\n")
        outcome = project.build()
        assert len(server.asked) == 1
    assert outcome.code == ExitCode.PROVIDER
    assert "a wait of 25h 00m, longer than the 2h 00m that `max_wall` leaves" in outcome.err
    assert "E418" in outcome.err


def test_ctrl_c_ends_a_wait_at_once(project: Project) -> None:
    with OpenAIServer(rule=lambda _asked: error(429, "later", retry_after="500")) as server:
        write(project, server.url, 3)
        environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
        argv = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", "-j8"]
        with subprocess.Popen(
            argv, env={**environ, "ORCH23_TRUST": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as build:
            lines = iter(build.stderr or ())
            assert any("waits for the rate limit" in line for line in lines)
            build.send_signal(signal.SIGINT)
            # Without the end of the wait, the build would hang here.
            assert build.wait(60) == 128 + signal.SIGINT
            assert "interrupted" in "".join(lines)
