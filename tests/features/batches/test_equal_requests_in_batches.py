"""Two stages with an equal request in a batch: it is sent and paid for once, and both get its result."""

import os
import signal
import subprocess
import sys

import pytest

from tests.batch_server import errored, succeeded
from tests.e2e.pipelines import green
from tests.features.batches.test_batches import KEY, REPOSITORY, WAITING, build, server, story
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


# The stages that wait for the result go on in the order of their names, or in the opposite one, and the build is killed
# when it records the response.
_KILLED = """\
import os, signal, sys
from orch23.engine import deferred_stages
from orch23.entry import run
from orch23.store.exchanges import Exchanges

order, moment, *sys.argv[1:] = sys.argv[1:]
looked, put = deferred_stages.DeferredStages.looked, Exchanges.put
deferred_stages._FIRST_DELAY_S = 0.0

def put_and_die(*args):
    if moment == "after":
        put(*args)
    os.kill(os.getpid(), signal.SIGKILL)

Exchanges.put = put_and_die
deferred_stages.DeferredStages.looked = lambda self, ready: sorted(
    looked(self, ready), key=lambda pair: pair[0].stage.name, reverse=order == "second"
)
run()
"""


@pytest.mark.stride(5)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("order", ["first", "second"])
def test_a_kill_while_one_of_them_takes_the_response(project: Project, order: str, moment: str) -> None:
    with server() as vendor:
        equal_story(project, vendor.url)
        vendor.on_poll = vendor.end
        environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": REPOSITORY, "ORCH23_TRUST": "1"}
        command = [sys.executable, "-c", _KILLED, order, moment, "-C", str(project.root), "build", "--wait", "-j1"]
        ended = subprocess.run(command, env={**environ, **KEY}, capture_output=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        green(build(project))
        assert vendor.submitted == [1]
    assert project.read("all.txt") == "about a\nabout a\n"
    total = project.events_of("run_finished")[0]["data"]
    assert (total["calls"], total["cost"], total["possible_cost"]) == (1, "0.06", "0")
    assert (total["before"]["calls"], total["before"]["possible_cost"]) == (0, "0")
