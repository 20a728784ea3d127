"""Submitting a batch while the vendor refuses it, or when its reply does not come: waiting, searching, giving up."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from orch23.features.batches import calls as batch_calls
from tests.batch_server import BatchServer
from tests.e2e.pipelines import green
from tests.features.batches.test_batches import (
    LIST,
    SUBMIT,
    WAITING,
    build,
    killed_while_submitting,
    server,
    start,
    story,
)
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

BUSY = {"type": "error", "error": {"type": "rate_limit_error", "message": "too many batches"}}
OOPS = {"type": "error", "error": {"type": "api_error", "message": "oops"}}


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once, and take a vendor's list as complete at once."""
    monkeypatch.setattr(batch_calls, "_DELAYS_S", (0.0, 0.0))
    monkeypatch.setattr(batch_calls, "_SEARCH_DELAYS_S", (0.0, 0.0))
    monkeypatch.setattr(batch_calls, "_LISTED_AFTER_S", 0.0)


def said(outcome: Outcome) -> str:
    return outcome.out + outcome.err


def files(project: Project) -> list[str]:
    return [path.name for path in (project.root / ".orch23/batches").glob("*")]


def finished(project: Project) -> Any:
    return project.events_of("run_finished")[0]["data"]


def retries(project: Project) -> list[int]:
    return [one["data"]["status"] for one in project.events_of("http_retry")]


# ---- refused for the rate or load -----------------------------------------------------------------


@pytest.mark.stride(3)
@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refused_batch_waits_like_an_ordinary_request(project: Project, status: int) -> None:
    with server() as vendor:
        story(project, vendor.url)
        vendor.broken = [(status, BUSY)] * 5
        assert build(project).code == WAITING
        assert vendor.lines == [SUBMIT] * 6
        assert retries(project) == [status] * 5
        vendor.end()
        green(build(project))
    ended = finished(project)
    assert (ended["calls"], ended["cost"], ended["before"]["possible_cost"]) == (2, "0.12", "0")


@pytest.mark.needs("vendors")
def test_the_other_servers_get_their_batches_first(project: Project) -> None:
    from tests.features.batches import test_openai_batches as openai  # noqa: PLC0415 - of the feature

    with server() as busy, openai.server() as other:
        story(project, busy.url, "a b")
        text = project.read("pipeline.yaml")
        first, _, second = text.partition("  b:")
        second = second.replace("provider: anthropic", "provider: openai, api: responses").replace(busy.url, other.url)
        project.write({"pipeline.yaml": f"{first}  b:{second}"})
        # Until the other server has its batch, this one refuses.
        busy.refuses = lambda _line: None if other.batches else (429, BUSY)
        assert build(project).code == WAITING
        assert (busy.submitted, other.submitted) == ([1], [1])
        assert busy.lines == [SUBMIT, SUBMIT]


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(402, "billing_error", "E427"), (400, "credit balance is too low", "E427"), (413, "too large", "E415")],
)
def test_a_refusal_that_no_wait_changes_fails_at_once(project: Project, status: int, kind: str, code: str) -> None:
    with server() as vendor:
        story(project, vendor.url)
        vendor.refuses = lambda _line: (status, {"type": "error", "error": {"type": kind, "message": kind}})
        outcome = build(project)
        assert outcome.code == 5
        assert code in said(outcome)
        assert vendor.lines == [SUBMIT]
    assert files(project) == []
    assert finished(project)["possible_cost"] == "0"


def test_a_wait_that_is_certainly_too_long_is_not_begun(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a")
        vendor.refuses = lambda _line: (429, BUSY, {"retry-after": "3000"})
        outcome = build(project)
        assert outcome.code == 5
        assert "E418" in said(outcome)
        assert "the batch was not submitted: " in said(outcome)
        assert "requires a wait of 50m 00s, longer than the 10m 00s that a build waits" in said(outcome)
        assert vendor.lines == [SUBMIT]
        assert files(project) == []
        project.replace("pipeline.yaml", "stages:\n", "stop_conditions: {max_wall: 20m}\nstages:\n")
        assert re.search("longer than the (20m 00|19m 5[0-9])s that `max_wall` leaves", said(build(project)))
        vendor.refuses = lambda _line: None
        assert build(project).code == WAITING
    assert finished(project)["before"]["possible_cost"] == "0"


def test_a_wait_ends_with_the_wall_time_of_the_run(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a", top="stop_conditions: {max_wall: 1s}\n")
        vendor.refuses = lambda _line: (429, BUSY)
        outcome = build(project)
        assert outcome.code == 4
        assert "E504" in said(outcome)
        assert vendor.submitted == []
    assert files(project) == []
    assert finished(project)["possible_cost"] == "0"


# ---- killed ---------------------------------------------------------------------------------------


@pytest.fixture
def waiting_for_the_rate(project: Project) -> Iterator[tuple[Project, BatchServer, "subprocess.Popen[bytes]"]]:
    """A build whose batch was refused, and that waits for half a minute."""
    with server() as vendor:
        story(project, vendor.url)
        vendor.broken = [(429, BUSY, {"retry-after": "30"})]
        process = start(project)
        assert process.stderr is not None
        while b"waits for the rate limit of anthropic/m" not in process.stderr.readline():
            assert process.poll() is None
        yield project, vendor, process


def test_a_build_that_is_killed_during_the_wait_has_submitted_nothing(
    waiting_for_the_rate: tuple[Project, BatchServer, "subprocess.Popen[bytes]"],
) -> None:
    project, vendor, process = waiting_for_the_rate
    process.kill()
    process.communicate()
    assert files(project) == []
    assert build(project).code == WAITING
    assert vendor.lines == [SUBMIT, SUBMIT], "there is nothing to search for"
    vendor.end()
    green(build(project))
    assert (finished(project)["cost"], finished(project)["before"]["possible_cost"]) == ("0.12", "0")


def test_ctrl_c_ends_the_wait(waiting_for_the_rate: tuple[Project, BatchServer, "subprocess.Popen[bytes]"]) -> None:
    project, vendor, process = waiting_for_the_rate
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert b"in a batch that anthropic may have" not in err
    assert vendor.lines == [SUBMIT]
    assert finished(project)["possible_cost"] == "0", "nothing was sent"
    assert build(project).code == WAITING
    assert vendor.submitted == [2]


def test_a_build_that_is_killed_in_a_later_try_has_its_batch_on_disk(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        vendor.broken = [(429, BUSY)]
        killed_while_submitting(project, vendor)
        assert vendor.lines == [SUBMIT, SUBMIT]
        assert build(project).code == WAITING
        vendor.end()
        green(build(project))
        assert vendor.submitted == [2]
    assert (finished(project)["cost"], finished(project)["before"]["possible_cost"]) == ("0.12", "0")


def test_a_batch_that_is_not_listed_yet_is_not_submitted_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as vendor:
        story(project, vendor.url)
        killed_while_submitting(project, vendor)
        (batch,) = vendor.batches
        vendor.batches.clear()
        monkeypatch.setattr(batch_calls, "_LISTED_AFTER_S", 3600.0)
        assert "a batch that anthropic may have" in build(project).err
        vendor.batches.append(batch)  # the vendor lists it some seconds later
        vendor.end()
        green(build(project))
        assert vendor.submitted == [2]


# ---- replies of unknown meaning -------------------------------------------------------------------


def test_a_batch_whose_reply_was_an_error_is_searched_for_and_sent_again(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a")
        vendor.broken = [(500, OOPS)]
        outcome = build(project)
        assert outcome.code == WAITING
        assert "it is not known whether the batch was submitted" in said(outcome)
        assert vendor.lines == [SUBMIT, LIST, SUBMIT]
        vendor.end()
        green(build(project))
    assert (finished(project)["cost"], finished(project)["before"]["possible_cost"]) == ("0.06", "0")


def test_a_batch_that_fails_three_times_is_given_up(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a")
        vendor.refuses = lambda line: (500, OOPS) if line == SUBMIT else None
        outcome = build(project)
        assert outcome.code == 5
        assert "the batch was not submitted: " in said(outcome)
        assert vendor.lines == [SUBMIT, LIST] * 3
    assert files(project) == []
    assert finished(project)["possible_cost"] == "0"


def test_a_batch_that_the_vendor_may_have_is_not_sent_again(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        vendor.lost = [(502, OOPS)]
        assert "a batch that anthropic may have" in build(project).err
        assert vendor.submitted == [2]
        vendor.end()
        green(build(project))
        assert vendor.submitted == [2]
    assert (finished(project)["cost"], finished(project)["before"]["possible_cost"]) == ("0.12", "0")


def test_a_batch_that_cannot_be_searched_for_is_left_for_the_next_build(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        vendor.refuses = lambda _line: (500, OOPS)
        outcome = build(project)
        assert outcome.code == 5
        assert "it is not known whether the batch was submitted" in said(outcome)
        assert len(files(project)) == 1
        vendor.refuses = lambda _line: None
        assert build(project).code == WAITING
        assert vendor.submitted == [2]


def test_a_server_that_cannot_be_reached_is_tried_three_times(project: Project) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        story(project, f"http://127.0.0.1:{closed.getsockname()[1]}", "a")
        outcome = build(project)
    assert outcome.code == 5
    assert "the batch was not submitted: " in said(outcome)
    assert len(retries(project)) == 2
    assert files(project) == []


# ---- polling and downloading ----------------------------------------------------------------------


@pytest.mark.stride(5)
@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("part", ["msgbatch_1", "results"])
def test_a_poll_or_download_that_fails_leaves_the_batch(project: Project, part: str, status: int) -> None:
    with server() as vendor:
        story(project, vendor.url)
        assert build(project).code == WAITING
        vendor.end()
        vendor.refuses = lambda line: (status, OOPS) if line.endswith(f"/{part}") else None
        outcome = build(project)
        assert outcome.code == WAITING
        assert "could not be looked at" in outcome.err
        vendor.refuses = lambda _line: None
        green(build(project))
        assert vendor.submitted == [2]
    assert (finished(project)["cost"], finished(project)["before"]["possible_cost"]) == ("0.12", "0")


def test_wait_goes_on_after_a_poll_that_fails(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        broken = [(503, OOPS)]
        vendor.on_poll = vendor.end
        vendor.refuses = lambda line: broken.pop() if line.startswith("GET") and broken else None
        green(build(project, "--wait"))
        assert vendor.submitted == [2]
