"""Submitting a batch of OpenAI while it refuses it, or when its reply does not come."""

import pytest

from tests.batch_server import OpenAIBatchServer
from tests.e2e.pipelines import green
from tests.features.batches import test_openai_batches as openai
from tests.features.batches.test_batches import WAITING
from tests.features.batches.test_refused_batches import no_delays, retries, said
from tests.project import Project

__all__ = ["no_delays"]

pytestmark = [pytest.mark.slow, pytest.mark.needs("vendors")]  # whole builds, many of them


def refused_by_openai(vendor: OpenAIBatchServer, place: str, count: int = 2) -> None:
    """Let a server refuse the first requests of one kind."""
    replies = [(429, {"error": {"message": "too many"}})] * count
    vendor.refuses = lambda line: replies.pop() if line == place and replies else None


@pytest.mark.parametrize("place", [openai.FILE, openai.SUBMIT])
def test_a_refused_file_or_batch_of_openai_waits(project: Project, place: str) -> None:
    with openai.server() as vendor:
        openai.story(project, vendor)
        refused_by_openai(vendor, place)
        assert project.build().code == WAITING
        assert retries(project) == [429, 429]
        file, submit = openai.FILE, openai.SUBMIT
        expected = [file, file, file, submit] if place == file else [file, submit, submit, submit]
        assert vendor.lines == expected, "a file is uploaded once"
        vendor.end()
        green(project.build())


def test_a_file_of_openai_that_fails_is_uploaded_again(project: Project) -> None:
    with openai.server() as vendor:
        openai.story(project, vendor, "a")
        vendor.broken = [(500, {"error": {"message": "oops"}})]
        assert project.build().code == WAITING
        assert vendor.lines == [openai.FILE, openai.FILE, openai.SUBMIT], "a file alone costs nothing"


def test_a_quota_of_openai_that_is_used_up_fails_at_once(project: Project) -> None:
    with openai.server() as vendor:
        openai.story(project, vendor, "a")
        body = {"error": {"message": "you exceeded your quota", "code": "insufficient_quota"}}
        vendor.refuses = lambda line: (429, body) if line == openai.SUBMIT else None
        outcome = project.build()
        assert outcome.code == 5
        assert "E427" in said(outcome)
        assert vendor.lines == [openai.FILE, openai.SUBMIT]


def test_a_batch_of_openai_whose_reply_was_an_error_is_found_by_its_label(project: Project) -> None:
    with openai.server() as vendor:
        openai.story(project, vendor)
        vendor.lost = [(500, {"error": {"message": "oops"}})]
        outcome = project.build()
        assert outcome.code == WAITING
        assert "in batch batch_1 of openai" in outcome.err
        assert vendor.lines == [openai.FILE, openai.SUBMIT, openai.LIST]


@pytest.mark.stride(3)
@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("part", ["/batches/batch_1", "/content"])
def test_a_poll_or_download_of_openai_that_fails_leaves_the_batch(project: Project, part: str, status: int) -> None:
    with openai.server() as vendor:
        openai.waits(project, vendor)
        vendor.end()
        vendor.refuses = lambda line: (status, {"error": {"message": "oops"}}) if line.endswith(part) else None
        outcome = project.build()
        assert outcome.code == WAITING
        assert "could not be looked at" in outcome.err
        vendor.refuses = lambda _line: None
        green(project.build())
        assert vendor.submitted == [2]
