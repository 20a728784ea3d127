"""Two stages with an equal request in a batch: it is sent and paid for once, and both get its result."""

import os
import signal
from typing import Any

import pytest

from orch23.engine import deferred_stages
from orch23.store.exchanges import Exchanges
from tests.batch_server import errored, succeeded
from tests.e2e.pipelines import green
from tests.features.batches.test_batches import WAITING, build, server, start, story
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not


def equal_story(project: Project, url: str, more: str = "", top: str = "") -> None:
    """Write a pipeline whose stages a and b make the same request."""
    story(project, url, "a b", more, top)
    project.edit("b.md", "a")


def test_one_paid_request_serves_both(project: Project) -> None:
    with server() as vendor:
        equal_story(project, vendor.url)
        assert build(project).code == WAITING
        assert vendor.submitted == [1]
        vendor.end()
        green(build(project))
        assert vendor.submitted == [1]
    assert project.read("all.txt") == "about a\nabout a\n"
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["calls"], ended["cost"], ended["before"]["possible_cost"]) == (1, "0.06", "0")


@pytest.mark.parametrize(
    ("result", "paid"),
    [
        (errored("invalid_request_error", "no such model"), "0"),
        (succeeded("x", "model_context_window_exceeded"), "0.06"),
    ],
)
def test_a_result_without_a_response_fails_both(project: Project, result: object, paid: str) -> None:
    with server() as vendor:
        equal_story(project, vendor.url)
        assert build(project).code == WAITING
        vendor.end(Write=result)
        assert build(project, "-k").code == 5
        assert vendor.submitted == [1], "it is not sent for the other stage in the same build"
        failed = [one["role"] for one in project.events_of("stage_finished") if one["data"]["status"] == "failed"]
        assert sorted(failed) == ["a", "b"]
        ended = project.events_of("run_finished")[0]["data"]
        assert (ended["cost"], ended["possible_cost"]) == (paid, "0")
        assert build(project).code == WAITING
        assert vendor.submitted == [1, 1]


def test_a_batch_that_is_refused_fails_both(project: Project) -> None:
    with server() as vendor:
        equal_story(project, vendor.url)
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
        vendor.refuses = lambda _line: (400, body)
        assert build(project, "-k").code == 5
        assert len(vendor.lines) == 1


def test_an_expired_request_is_sent_again_once(project: Project) -> None:
    with server() as vendor:
        equal_story(project, vendor.url)
        assert build(project).code == WAITING
        vendor.end(Write={"type": "expired"})
        assert build(project).code == WAITING
        assert vendor.submitted == [1, 1]
        vendor.end()
        green(build(project))
        assert vendor.submitted == [1, 1]
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["calls"], ended["cost"], ended["before"]["possible_cost"]) == (1, "0.06", "0")


def kill_when_recording(order: str, moment: str) -> None:
    """Kill this process when it records the response.

    The stages that wait for the result go on in the order of their names, or in the opposite one.
    """
    stages: Any = deferred_stages.DeferredStages
    exchanges: Any = Exchanges
    looked, put = stages.looked, exchanges.put

    def put_and_die(*args: Any) -> None:
        if moment == "after":
            put(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    deferred_stages._FIRST_DELAY_S = 0.0
    exchanges.put = put_and_die
    stages.looked = lambda self, ready: sorted(
        looked(self, ready), key=lambda pair: pair[0].stage.name, reverse=order == "second"
    )


@pytest.mark.stride(3)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("order", ["first", "second"])
def test_a_kill_while_one_of_them_takes_the_response(project: Project, order: str, moment: str) -> None:
    with server() as vendor:
        equal_story(project, vendor.url)
        vendor.on_poll = vendor.end
        process = start(project, "--wait", "-j1", before=lambda: kill_when_recording(order, moment))
        _, reported = process.communicate()
        assert process.returncode == -signal.SIGKILL, reported
        green(build(project))
        assert vendor.submitted == [1]
    assert project.read("all.txt") == "about a\nabout a\n"
    total = project.events_of("run_finished")[0]["data"]
    assert (total["calls"], total["cost"], total["possible_cost"]) == (1, "0.06", "0")
    assert (total["before"]["calls"], total["before"]["possible_cost"]) == (0, "0")
