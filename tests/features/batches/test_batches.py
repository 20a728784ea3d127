"""Whole builds whose requests are sent in batches: waiting, collected, killed, cancelled."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orch23.features.batches import calls as batch_calls
from tests.batch_server import BatchServer, KeptBatch, errored, succeeded
from tests.e2e.pipelines import green
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

WAITING = 7
KEY = {"ANTHROPIC_API_KEY": "a-key-for-tests"}
SUBMIT = "POST /v1/messages/batches"
LIST = "GET /v1/messages/batches"
_PROGRAM = "from orch23.entry import run; run()"
REPOSITORY = str(Path(__file__).parents[3])


def now() -> str:
    return datetime.now(UTC).isoformat()


def server() -> BatchServer:
    return BatchServer(lambda params: f"about {params['messages'][0]['content'].split()[-1]}", now=now())


def story(project: Project, url: str, names: str = "a b", more: str = "", top: str = "") -> None:
    stages = "".join(
        f"""\
  {name}:
    inputs: [{name}.md]
    outputs: [{name}.txt]
    llm: {{provider: anthropic, model: m, prompt: p.j2, returns: text, base_url: "{url}", max_tokens: 100,
          pace: batch{more}}}
"""
        for name in names.split()
    )
    project.write(
        {
            "p.j2": "Write about {{ inputs[0].text }}",
            **{f"{name}.md": name for name in names.split()},
            "pipeline.yaml": f"""\
version: 1
name: story
prices: {{m: {{input: 1000, output: 2000}}}}
{top}stages:
{stages}  join:
    inputs: [{", ".join(f"{name}.txt" for name in names.split())}]
    outputs: [all.txt]
    shell: cat *.txt > all.txt
""",
        }
    )


def build(project: Project, *argv: str) -> Outcome:
    return project.build(*argv, env=KEY)


def start(project: Project, *argv: str) -> "subprocess.Popen[bytes]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": REPOSITORY, "ORCH23_TRUST": "1"}
    command = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", *argv]
    return subprocess.Popen(command, env={**environ, **KEY}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def journal_of(project: Project) -> list[str]:
    """Return the lines of the newest journal."""
    return project.journals()[-1].read_text().splitlines()


def cost(project: Project, stage: str) -> str:
    return project.run("show", stage, "--cost").out


def waits(project: Project, vendor: BatchServer, names: str = "a b", **more: str) -> Outcome:
    story(project, vendor.url, names, **more)
    outcome = build(project)
    assert outcome.code == WAITING, outcome.err
    return outcome


def test_the_example_of_the_docs_is_valid(project: Project) -> None:
    page = (Path(REPOSITORY) / "docs/batches.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    files = {"topics.json": '["rivers", "lakes"]', "p.md.j2": "Write about {{ item }}"}
    project.write({**files, "pipeline.yaml": f"version: 1\nname: topics\n{example}"})
    assert project.plan() == {"summarize@lakes": "run", "summarize@rivers": "run"}


# ---- waiting and going on -------------------------------------------------------------------------


def test_a_build_submits_one_batch_waits_and_a_later_one_goes_on(project: Project) -> None:
    with server() as vendor:
        first = waits(project, vendor)
        assert vendor.lines == [SUBMIT]
        assert vendor.submitted == [2]
        assert "waiting: 2 requests of a, b in batch msgbatch_1 of anthropic, since 20" in first.err
        assert "`orch23 build` collects what is done and goes on" in first.err
        assert "2 awaiting" in first.err
        again = build(project)
        assert again.code == WAITING
        assert vendor.submitted == [2], "nothing is submitted twice"
        vendor.end()
        green(build(project))
        assert vendor.submitted == [2]
    assert project.read("all.txt") == "about a\nabout b\n"
    # 100 tokens of input and 10 of output, at half of $1,000 and $2,000 a million.
    assert "1 call, 0 recorded responses, 100+10 tokens, paid $0.06" in cost(project, "a")
    assert "prices: pipeline, batch" in cost(project, "a")
    assert build(project).code == 0
    assert not list((project.root / ".orch23/batches").glob("*.json"))


def test_a_batch_has_the_requests_of_the_ordinary_interface_and_its_recordings_are_shared(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        (batch,) = vendor.batches
        params = next(iter(batch.requests.values()))
        assert (params["model"], params["max_tokens"], "stream" in params) == ("m", 100, False)
        assert vendor.headers[0]["authorization"] == f"Bearer {KEY['ANTHROPIC_API_KEY']}"
        names = {one["data"]["fingerprint"] for one in project.events_of("llm_request")}
        assert set(batch.requests) == names
        vendor.end()
        green(build(project))
        text = (
            project.read("pipeline.yaml").replace(", \n          pace: batch", "").replace("pace: batch", "timeout: 9s")
        )
        project.write({"pipeline.yaml": text})
        green(build(project, "--force", "a", "--replay"))


@pytest.mark.needs("exports")
def test_waiting_is_shown_by_runs_status_plan_and_log(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        assert "  waiting  " in project.run("runs").out
        assert "batch_submitted" in project.run("log").out
        for command in ("status", "plan"):
            assert "waiting: 2 requests of a, b in batch msgbatch_1" in project.run(command).out
            (shown,) = json.loads(project.run(command, "--json").out)["waiting"]
            assert (shown["batch_id"], shown["requests"], shown["stages"]) == ("msgbatch_1", 2, ["a", "b"])
        assert '<skipped message="its request is in a batch" />' in build(project, "--output", "junit").out
        log = project.run("log").out
        assert "batch_waiting" in log
        state = json.loads(next(iter((project.root / "logs").glob("*/state.json"))).read_text())
        assert state["stages"]["a"]["status"] == "awaiting"
        assert state["phase"] != "failed"


def test_stages_that_can_make_progress_come_first(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        late = """\
  early:
    outputs: [c.md]
    shell: echo c > c.md
  c:
    inputs: [c.md]
    outputs: [c.txt]
    llm: {provider: anthropic, model: m, prompt: p.j2, returns: text, base_url: "URL", max_tokens: 100, pace: batch}
"""
        project.write({"pipeline.yaml": project.read("pipeline.yaml") + late.replace("URL", vendor.url)})
        assert build(project).code == WAITING
        assert vendor.submitted == [3], "one batch with the request that had to wait for a command"
        assert project.exists("c.md")


def test_an_attempt_after_a_failure_waits_for_a_batch_of_its_own(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a")
        check = "    verify: [{shell: 'grep -q again a.txt'}]\n    retry: 1\n  join:"
        project.replace("pipeline.yaml", "  join:", check)
        assert build(project).code == WAITING
        vendor.end()
        assert build(project).code == WAITING
        assert vendor.submitted == [1, 1]
        vendor.end(Write=succeeded("again"))
        green(build(project))
        assert vendor.submitted == [1, 1]
    assert project.read("a.txt") == "again\n"


def test_all_items_of_a_list_are_in_one_batch_whatever_the_jobs_are(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a")
        items = """\
  each:
    foreach: {in: [ITEMS], as: word}
    outputs: ["${{ word }}.out"]
    llm: {provider: anthropic, model: m, prompt: q.j2, returns: text, base_url: "URL", max_tokens: 100, pace: batch}
"""
        words = ", ".join(f"w{number}" for number in range(30))
        text = items.replace("ITEMS", words).replace("URL", vendor.url)
        project.write({"q.j2": "Write about {{ item }}", "pipeline.yaml": project.read("pipeline.yaml") + text})
        assert build(project, "-j2").code == WAITING
        assert vendor.submitted == [31]
        assert "31 requests of a, each@w0, each@w1" in project.run("status").out
        vendor.end()
        green(build(project))
        assert project.read("w29.out") == "about w29\n"


@pytest.mark.parametrize("again", [("--resample", "a"), ()])
def test_a_response_is_requested_again_by_resample_in_a_batch_of_its_own(
    project: Project, again: tuple[str, ...]
) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end()
        green(build(project))
        assert build(project, "--resample", "a").code == WAITING
        vendor.end(a=succeeded("another"))
        green(build(project, *again))
        assert vendor.submitted == [1, 1]
    assert project.read("a.txt") == "another\n"


def test_wait_polls_until_all_is_done(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        vendor.on_poll = vendor.end
        green(build(project, "--wait"))
        assert vendor.submitted == [2]
    assert "paid $0.06" in cost(project, "a")
    assert project.events_of("run_finished")[0]["data"]["possible_cost"] == "0"


def test_an_interrupted_build_records_the_results_that_no_stage_has_taken(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        project.replace("pipeline.yaml", "  b:\n", "    verify: [{shell: 'sleep 60'}]\n  b:\n")
        assert build(project).code == WAITING
        vendor.end()
        process = start(project, "-j1")
        while not any("files_proposed" in one for one in journal_of(project)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
        ended = project.events_of("run_finished")[0]["data"]
        assert (ended["calls"], ended["cost"], ended["possible_cost"]) == (2, "0.12", "0")
        assert not list((project.root / ".orch23/batches").glob("*.json"))


def test_a_batch_is_collected_whatever_the_runs_in_between_and_the_limits(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        vendor.end()
        assert build(project, "--replay").code == 5, "not a run that the next one continues"
        project.edit("b.md", "z")
        outcome = build(project, "--budget", "0.13", "-k")
        assert outcome.code == 4, "the new request does not fit, but what is paid for is recorded"
        ended = project.events_of("run_finished")[0]["data"]
        assert (ended["calls"], ended["cost"], ended["possible_cost"]) == (2, "0.12", "0")
        assert project.read("a.txt") == "about a\n"
        assert vendor.submitted == [2]
        assert "at most" not in project.run("runs").out


def test_a_batch_is_collected_by_a_build_without_any_stage_that_calls_a_model(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end()
        project.write({"pipeline.yaml": "version: 1\nname: story\nstages: {s: {shell: [touch, s], outputs: [s]}}\n"})
        green(build(project))
    assert len(project.events_of("call_settled")) == 1
    assert not list((project.root / ".orch23/batches").glob("*.json"))


def test_an_interrupted_wait_leaves_the_batch(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        process = start(project, "--wait")
        vendor.on_poll = lambda: process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
        assert vendor.submitted == [2]
        assert not [line for line in vendor.lines if "cancel" in line]
        vendor.end()
        vendor.on_poll = lambda: None
        green(build(project))
        assert vendor.submitted == [2]


# ---- money ----------------------------------------------------------------------------------------


def test_reservations_stay_while_a_build_waits_and_are_settled_once(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a", top="stop_conditions: {max_cost_usd: 0.99}\n")
        ended = project.events_of("run_finished")[0]["data"]
        assert ended["status"] == "waiting"
        assert float(ended["possible_cost"]) > 0.5
        assert ended["cost"] == "0"
        vendor.end()
        green(build(project))
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["calls"], ended["cost"], ended["possible_cost"]) == (1, "0.06", "0")
    assert ended["before"]["possible_cost"] == "0", "the reservation was settled, and not counted beside the cost"


def test_the_list_of_runs_shows_no_possible_cost_once_a_later_build_has_collected_it(project: Project) -> None:
    def rows() -> list[str]:
        return [" ".join(row.split()[3:]) for row in project.run("runs").out.splitlines()]

    with server() as vendor:
        waits(project, vendor, "a b")
        assert build(project).code == WAITING
        *_, first = rows()
        assert "2 calls, $0, at most $" in first
        vendor.end()
        green(build(project))
        *_, first = rows()
        assert "waiting pipeline.yaml" in first
        assert "call" not in first
        assert "$" not in first
        assert "2 calls, $0.12" in rows()[0]
        # The same request again, in a later run: it says nothing about the earlier ones.
        assert build(project, "--resample", "a").code == WAITING
        assert project.run("cancel", env=KEY).code == 0
        assert not [row for row in rows() if "at most" in row]


def test_the_reservation_of_a_batch_counts_in_the_builds_that_wait_for_it(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a", top="stop_conditions: {max_cost_usd: 0.99}\n")
        more = project.read("pipeline.yaml").partition("  a:\n")[2].partition("  join:")[0].replace("a.", "c.")
        project.write({"c.md": "c", "pipeline.yaml": f"{project.read('pipeline.yaml')}  c:\n{more}"})
        outcome = build(project)
        assert outcome.code == 4
        assert "E502" in outcome.out + outcome.err
        assert vendor.submitted == [1]
        assert project.events_of("run_finished")[0]["data"]["status"] == "waiting"
        vendor.end()
        assert build(project, "-j4").code == WAITING
        assert vendor.submitted == [1, 1], "what the first took leaves enough for the other"


def test_what_does_not_fit_into_the_budget_is_not_submitted(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a", top="stop_conditions: {max_cost_usd: 0.1}\n")
        outcome = build(project)
        assert outcome.code == 4
        assert "E502" in outcome.out + outcome.err
        assert vendor.lines == []


def test_a_result_whose_inputs_were_edited_is_recorded_and_paid_and_not_used(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        project.edit("a.md", "z")
        vendor.end()
        assert build(project).code == WAITING
        assert vendor.submitted == [1, 1], "the new request is made as usual"
        assert not project.exists("a.txt")
        settled = [one["data"] for one in project.events_of("call_settled")]
        assert [(one["cost"], one["released"]) for one in settled] == [("0.06", False)]
        vendor.end()
        green(build(project))
        assert project.read("a.txt") == "about z\n"
        project.edit("a.md", "a")
        green(build(project))
        assert vendor.submitted == [1, 1], "the response to the old request was recorded"
    assert project.read("a.txt") == "about a\n"


# ---- crashes --------------------------------------------------------------------------------------


def killed_while_submitting(project: Project, vendor: BatchServer, *, arrives: bool = True) -> None:
    """Kill a build between the request that submits its batch and the reply to it."""
    process = start(project)

    def kill(batch: KeptBatch) -> None:
        if not arrives:
            vendor.batches.remove(batch)
        process.kill()
        process.wait()

    vendor.on_submit = kill
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    vendor.on_submit = lambda _batch: None


def test_a_batch_whose_reply_was_lost_is_found_again_and_not_paid_twice(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        killed_while_submitting(project, vendor)
        assert vendor.submitted == [2]
        again = build(project)
        assert again.code == WAITING
        assert vendor.submitted == [2], "a batch that may be ours is awaited before anything is submitted"
        assert "a batch that anthropic may have" in again.err
        vendor.end()
        green(build(project))
        assert vendor.submitted == [2]
    assert project.read("all.txt") == "about a\nabout b\n"
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["calls"], ended["cost"], ended["before"]["possible_cost"]) == (2, "0.12", "0")


@pytest.fixture
def listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the vendor's list of batches as complete, also for one that was sent just now."""
    monkeypatch.setattr(batch_calls, "_LISTED_AFTER_S", 0.0)


@pytest.mark.usefixtures("listed_at_once")
def test_a_batch_that_never_arrived_is_submitted_again(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        killed_while_submitting(project, vendor, arrives=False)
        assert build(project).code == WAITING
        assert LIST in vendor.lines
        assert vendor.submitted == [2]
        vendor.end()
        green(build(project))
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["calls"], ended["cost"], ended["before"]["possible_cost"]) == (2, "0.12", "0")


@pytest.mark.usefixtures("listed_at_once")
def test_the_batch_of_someone_else_is_not_taken(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        killed_while_submitting(project, vendor, arrives=False)
        other = {name: {"messages": [{"content": "x"}]} for name in "xy"}
        vendor.batches.append(KeptBatch("msgbatch_other", other, now(), "ended"))
        assert build(project).code == WAITING
        assert vendor.submitted == [2, 2]
        vendor.end()
        green(build(project))


@pytest.mark.usefixtures("listed_at_once")
def test_a_batch_of_the_same_size_that_was_created_later_is_not_awaited(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        killed_while_submitting(project, vendor, arrives=False)
        other = {name: {"messages": [{"content": "x"}]} for name in "xy"}
        later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
        vendor.batches.append(KeptBatch("msgbatch_other", other, later))
        assert "submitted 2 requests" in build(project).err


def test_a_result_that_no_stage_took_is_recorded_when_another_stage_fails(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        vendor.end(a=errored("api_error", "oops"), b=succeeded("fine"))
        assert build(project, "-j1").code == 5
        assert build(project).code == WAITING
        assert vendor.submitted == [2, 1]
        assert project.read("b.txt") == "fine\n"


# ---- results that are none ------------------------------------------------------------------------


def test_a_refused_request_fails_its_stage_and_costs_nothing(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        vendor.end(a=errored("invalid_request_error", "no such model"), b=succeeded("fine"))
        outcome = build(project, "-k")
        assert outcome.code == 5
        assert "E415" in outcome.out + outcome.err
        assert "the batch refused the request: no such model" in outcome.out + outcome.err
        assert project.read("b.txt") == "fine\n"
        (released,) = [one["data"] for one in project.events_of("call_settled") if one["role"] == "a"]
        assert (released["released"], released["cost"]) == (True, "0")
        assert build(project).code == WAITING, "the next build sends it again"
        assert vendor.submitted == [2, 1]


def test_an_expired_request_costs_nothing_and_is_sent_again(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end(Write={"type": "expired"})
        assert build(project).code == WAITING
        assert vendor.submitted == [1, 1]
        vendor.end()
        green(build(project))
    assert "1 call, 0 recorded responses, 100+10 tokens, paid $0.06" in cost(project, "a")


def test_a_response_without_a_usable_text_is_charged(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end(Write=succeeded("x", "model_context_window_exceeded"))
        outcome = build(project)
        assert outcome.code == 5
        assert "is full" in outcome.out + outcome.err
    assert "1 of them without a usable response" in cost(project, "a")
    assert "paid $0.06" in cost(project, "a")


def test_a_batch_that_the_server_refuses_is_not_kept(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url, "a")
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": "too large"}}
        vendor.broken = [(400, body)]
        outcome = build(project)
        assert outcome.code == 5
        assert "the batch was not submitted" in outcome.out + outcome.err
        assert build(project).code == WAITING
        assert vendor.lines == [SUBMIT, SUBMIT]


def test_results_at_another_address_are_not_fetched_with_the_key(project: Project) -> None:
    with server() as vendor, server() as other:
        waits(project, vendor, "a")
        vendor.elsewhere = other.url
        vendor.end()
        outcome = build(project)
        assert outcome.code == 5
        assert "not at" in outcome.out + outcome.err
        assert other.lines == []


def test_a_poll_that_fails_leaves_the_batch_for_the_next_build(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end()
        vendor.broken = [(529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})]
        outcome = build(project)
        assert outcome.code == WAITING
        assert "could not be looked at" in outcome.err
        green(build(project))
        assert vendor.submitted == [1]


def test_a_batch_that_the_vendor_does_not_have_any_more_is_sent_again_only_after_cancel(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        kept = list(vendor.batches)
        vendor.batches.clear()
        for _ in range(2):
            outcome = build(project, "-k")
            assert outcome.code == 5
            assert "batch msgbatch_1 cannot be collected: " in outcome.out + outcome.err
            assert "run `orch23 cancel`, and build again" in outcome.out + outcome.err
        assert vendor.lines.count(SUBMIT) == 1
        assert project.run("cancel", env=KEY).code == 0
        assert "at most" not in project.run("runs").out
        vendor.batches += kept
        assert build(project).code == WAITING
        assert vendor.lines.count(SUBMIT) == 2


# ---- cancelling, and builds that must not call ----------------------------------------------------


def test_cancel_stops_the_batch_and_keeps_what_was_done(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        (batch,) = vendor.batches
        done = next(name for name, one in batch.requests.items() if one["messages"][0]["content"].endswith("a"))
        batch.results[done] = succeeded("about a")
        outcome = project.run("cancel", env=KEY)
        assert outcome.code == 0, outcome.err
        assert "POST /v1/messages/batches/msgbatch_1/cancel" in vendor.lines
        ended = project.events_of("run_finished")[0]["data"]
        assert (ended["cost"], ended["possible_cost"]) == ("0.06", "0")
        assert outcome.out == "cancelled 1 batch: 1 response recorded, $0.06\n"
        assert "waiting" not in project.run("status").out
        assert build(project).code == WAITING
        assert vendor.submitted == [2, 1], "the recorded response is used, and only the other request is sent"
        vendor.end()
        green(build(project))
    assert project.run("cancel", env=KEY).out == "there is no batch to cancel\n"


def test_a_second_cancel_waits_for_the_first_one(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        (batch,) = vendor.batches
        batch.status = "canceling"
        # The vendor may refuse to cancel what it is cancelling, and ends the batch later.
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": "it is being cancelled"}}
        vendor.refuses = lambda line: (400, body) if line.endswith("/cancel") else None
        polls: list[int] = []

        def end_later() -> None:
            polls.append(len(polls))
            if len(polls) == 3:
                vendor.end(Write={"type": "canceled"})

        vendor.on_poll = end_later
        assert project.run("cancel", env=KEY).out == "cancelled 1 batch: 0 responses recorded, $0\n"


def test_a_batch_whose_results_are_gone_can_be_cancelled(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end()
        vendor.shown = {"results_url": None}
        outcome = build(project)
        assert outcome.code == 5
        assert "the vendor keeps them for 29 days" in outcome.out + outcome.err
        assert "run `orch23 cancel`" in outcome.out + outcome.err
        assert project.run("cancel", env=KEY).code == 0
        assert build(project).code == WAITING
        assert vendor.submitted == [1, 1]


def test_offline_and_replay_neither_submit_nor_collect(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        assert build(project, "--replay").code == 5
        assert vendor.lines == []
        build(project)
        vendor.end()
        count = len(vendor.lines)
        assert build(project, "--replay").code == 5
        assert len(vendor.lines) == count
        outcome = build(project, "--offline")
        assert outcome.code == 5
        assert "E423" in outcome.out + outcome.err
        assert len(vendor.lines) == count, "it is not sent as an ordinary request either"


def test_gc_keeps_what_a_waiting_run_needs(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        assert project.run("gc", "--keep", "1KB", "--forget-paid-answers").code == 0
        vendor.end()
        green(build(project))
        assert vendor.submitted == [2]


def test_another_pace_does_not_pay_again_for_a_request_in_a_batch(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        project.replace("pipeline.yaml", "pace: batch", "pace: standard")
        assert build(project).code == WAITING
        vendor.end()
        green(build(project))
        assert vendor.submitted == [1]
    assert "paid $0.06" in cost(project, "a"), "the price of the batch"


def test_consent_is_needed_before_a_batch_is_submitted(project: Project) -> None:
    with server() as vendor:
        story(project, vendor.url)
        outcome = project.build(env={**KEY, "ORCH23_TRUST": "0"})
        assert outcome.code == 77
        assert vendor.lines == []


@pytest.mark.parametrize(
    "provider", [pytest.param("openai, api: chat", marks=pytest.mark.needs("vendors")), "local", "scripted", "command"]
)
def test_validate_refuses_batches_of_other_providers(project: Project, provider: str) -> None:
    story(project, "http://127.0.0.1:1")
    text = project.read("pipeline.yaml").replace("provider: anthropic", f"provider: {provider}")
    project.write({"pipeline.yaml": text})
    outcome = project.run("validate")
    assert outcome.code != 0
    assert f"the provider `{provider.partition(',')[0]}` does not have `pace" in outcome.out + outcome.err
