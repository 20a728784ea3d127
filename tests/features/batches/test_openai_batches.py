"""Whole builds whose requests are sent in batches of OpenAI's Responses API."""

import time

import pytest

from orch23.features.batches import calls as batch_calls
from tests.batch_server import KeptBatch, OpenAIBatchServer, said_by_openai
from tests.e2e.pipelines import green
from tests.features.batches.test_batches import WAITING, killed_while_submitting
from tests.features.batches.test_batches import story as story_of_anthropic
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.needs("vendors")]  # whole builds, many of them

FILE, SUBMIT, LIST = "POST /v1/files", "POST /v1/batches", "GET /v1/batches"


def server() -> OpenAIBatchServer:
    return OpenAIBatchServer(lambda body: f"about {body['input'][0]['content'].split()[-1]}", created=int(time.time()))


def story(project: Project, vendor: OpenAIBatchServer, names: str = "a b", api: str = "responses") -> None:
    story_of_anthropic(project, vendor.url, names)
    text = project.read("pipeline.yaml").replace("provider: anthropic", f"provider: openai, api: {api}")
    project.write({"pipeline.yaml": text})


def waits(project: Project, vendor: OpenAIBatchServer, names: str = "a b") -> None:
    story(project, vendor, names)
    outcome = project.build()
    assert outcome.code == WAITING, outcome.err


def test_a_build_submits_one_batch_waits_and_a_later_one_goes_on(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        assert vendor.lines == [FILE, SUBMIT]
        (batch,) = vendor.batches
        body = next(iter(batch.requests.values()))
        assert (body["model"], body["max_output_tokens"], body["store"]) == ("m", 100, False)
        assert not {"stream", "background", "service_tier"} & body.keys()
        assert project.build().code == WAITING
        vendor.end()
        green(project.build())
        assert vendor.submitted == [2]
    assert project.read("all.txt") == "about a\nabout b\n"
    shown = project.run("show", "a", "--cost").out
    assert "1 call, 0 recorded responses, 100+10 tokens, paid $0.06" in shown


def test_a_batch_whose_reply_was_lost_is_found_by_its_label(project: Project) -> None:
    with server() as vendor:
        story(project, vendor)
        killed_while_submitting(project, vendor)
        vendor.batches.append(KeptBatch("batch_other", dict(vendor.batches[0].requests), ""))
        again = project.build()
        assert again.code == WAITING
        assert "in batch batch_1 of openai" in again.err
        assert vendor.lines.count(SUBMIT) == 1
        vendor.end()
        green(project.build())
        assert vendor.lines.count(SUBMIT) == 1
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["calls"], ended["cost"], ended["before"]["possible_cost"]) == (2, "0.12", "0")


def test_a_batch_that_never_arrived_is_submitted_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_calls, "_LISTED_AFTER_S", 0.0)
    with server() as vendor:
        story(project, vendor)
        killed_while_submitting(project, vendor, arrives=False)
        assert project.build().code == WAITING
        assert vendor.lines == [FILE, SUBMIT, LIST, FILE, SUBMIT]
        vendor.end()
        green(project.build())


def test_requests_that_fail_expire_or_are_cut_off_in_a_batch(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a b c d")
        refused = {"response": {"status_code": 400, "body": {"error": {"message": "no such model"}}}, "error": None}
        expired = {"response": None, "error": {"code": "batch_expired", "message": "too late"}}
        failed = said_by_openai("", status="failed", error={"code": "invalid_prompt", "message": "no"})
        vendor.end("expired", a=refused, b=expired, c=failed, d=said_by_openai("fine"))
        outcome = project.build("-k")
        assert outcome.code == 5
        said = outcome.out + outcome.err
        assert "no such model" in said
        assert "the provider failed: no" in said
        assert project.read("d.txt") == "fine\n"
        assert vendor.submitted == [4, 1], "what has expired is sent again"
    settled = {one["role"]: one["data"] for one in project.events_of("call_settled")}
    assert {name: one["cost"] for name, one in settled.items()} == {"a": "0", "b": "0", "c": "0.06", "d": "0.06"}


def test_a_batch_over_the_limit_of_the_account_fails_with_what_to_do(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end("failed")
        message = "Enqueued token limit reached for m in organization o. Limit: 90,000 enqueued tokens."
        vendor.shown = {"errors": {"object": "list", "data": [{"code": "token_limit_exceeded", "message": message}]}}
        outcome = project.build()
        assert outcome.code == 5
        assert "E416" in outcome.out + outcome.err
        assert "the vendor refused the batch: Enqueued token limit reached" in outcome.out + outcome.err
        assert "build again when other batches of the account have ended" in outcome.out + outcome.err
        assert project.build().code == WAITING
        assert vendor.submitted == [1, 1]


def test_cancel_keeps_what_was_done(project: Project) -> None:
    with server() as vendor:
        waits(project, vendor)
        (batch,) = vendor.batches
        done = next(name for name, body in batch.requests.items() if body["input"][0]["content"].endswith("a"))
        batch.results[done] = said_by_openai("about a")
        assert project.run("cancel").out == "cancelled 1 batch: 1 response recorded, $0.06\n"
        assert project.build().code == WAITING
        assert vendor.submitted == [2, 1]


@pytest.mark.parametrize("place", ["/content", "/batches/batch_1"])
def test_a_batch_that_is_gone_can_be_cancelled(project: Project, place: str) -> None:
    with server() as vendor:
        waits(project, vendor, "a")
        vendor.end()
        vendor.refuses = lambda line: (404, {"error": {"message": "no such file"}}) if line.endswith(place) else None
        outcome = project.build()
        assert outcome.code == 5
        assert "batch batch_1 cannot be collected: " in outcome.out + outcome.err
        assert project.run("cancel").code == 0
        assert project.build().code == WAITING
        assert vendor.lines.count(SUBMIT) == 2


def test_wait_polls_until_all_is_done(project: Project) -> None:
    with server() as vendor:
        story(project, vendor)
        vendor.on_poll = vendor.end
        green(project.build("--wait"))
        assert vendor.submitted == [2]


def test_a_file_that_cannot_be_uploaded_leaves_nothing(project: Project) -> None:
    with server() as vendor:
        story(project, vendor, "a")
        vendor.broken = [(400, {"error": {"message": "too large"}})]
        assert project.build().code == 5
        assert project.build().code == WAITING
        assert vendor.lines == [FILE, FILE, SUBMIT], "there is no batch to look for"


def test_validate_refuses_batches_of_the_chat_interface_and_of_models_without_them(project: Project) -> None:
    with server() as vendor:
        story(project, vendor, api="chat")
        assert "does not have `pace: batch` with `api: chat`" in _said(project)
        text = project.read("pipeline.yaml").replace(f'base_url: "{vendor.url}", ', "")
        project.write({"pipeline.yaml": text.replace("api: chat, model: m", "model: gpt-5.3-codex")})
        assert "gpt-5.3-codex does not have `pace: batch`" in _said(project)


def _said(project: Project) -> str:
    outcome = project.run("validate")
    assert outcome.code != 0
    return outcome.out + outcome.err
