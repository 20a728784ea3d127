"""Faults: what a status means, what `retry-after` says, and how a server's text is shown."""

from datetime import UTC, datetime

import pytest

from orch23.providers.faults import printable_line, retry_after_s, status_error

NOW = datetime(2026, 2, 15, 14, 30, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "code", "transient"),
    [
        (302, "E421", False),
        (400, "E415", False),
        (401, "E414", False),
        (402, "E427", False),
        (403, "E414", False),
        (404, "E415", False),
        (408, "E417", True),
        (409, "E417", True),
        (413, "E415", False),
        (422, "E415", False),
        (429, "E416", True),
        (500, "E417", True),
        (502, "E417", True),
        (503, "E417", True),
        (504, "E417", True),
        (529, "E417", True),
    ],
)
def test_each_status_has_its_code_and_its_consequence(status: int, code: str, transient: bool) -> None:
    fault = status_error("https://x", status, "says\nno", {"retry-after": "3"})
    assert (fault.diagnostic.code, fault.transient, fault.charged, fault.status) == (
        code,
        transient,
        status in {500, 502, 504},
        status,
    )
    assert fault.diagnostic.message == f"https://x replied {status}: says no"
    assert fault.diagnostic.hint
    assert fault.retry_after_s == (3.0 if transient else None)


def test_a_server_may_say_that_asking_again_is_no_use() -> None:
    assert not status_error("https://x", 429, "", {"x-should-retry": "false"}).transient
    assert status_error("https://x", 429, "", {"x-should-retry": "true"}).transient


@pytest.mark.parametrize(
    ("status", "said", "marks"),
    [
        (402, "", ()),
        (429, "", ("insufficient_quota",)),
        (429, "", ("None", "billing_hard_limit_reached")),
        (403, "", ("billing_error",)),
        (400, "Your credit balance is too low to access the API.", ("invalid_request_error",)),
    ],
)
def test_an_empty_account_is_final_whatever_the_status(status: int, said: str, marks: tuple[str, ...]) -> None:
    fault = status_error("https://x", status, said, {"retry-after": "3"}, marks=marks)
    assert (fault.diagnostic.code, fault.transient, fault.is_refusal) == ("E427", False, False)
    assert "add credit" in (fault.diagnostic.hint or "")


def test_a_request_that_alone_exceeds_the_limit_of_tokens_is_final() -> None:
    said = "Request too large for gpt-5.2 on tokens per min (TPM): Limit 30000, Requested 64000."
    fault = status_error("https://x", 429, said, {"retry-after": "3"}, marks=("rate_limit_exceeded", "tokens"))
    assert (fault.diagnostic.code, fault.transient, fault.is_refusal) == ("E415", False, False)
    assert "llm.max_tokens" in (fault.diagnostic.hint or "")


@pytest.mark.parametrize("status", [400, 401, 408, 409, 429, 500, 502, 503, 504, 529])
def test_only_a_reply_that_the_server_is_busy_is_a_refusal(status: int) -> None:
    assert status_error("https://x", status, "").is_refusal == (status in {429, 503, 529})
    assert not status_error("https://x", status, "", {"x-should-retry": "false"}).is_refusal
    assert not status_error("https://x", status, "", charged=True).is_refusal


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1500", "retry-after-ms": "1499"}, 1.499),
        ({"retry-after": "2", "retry-after-ms": "soon"}, 2.0),
        ({"retry-after": "Sun, 15 Feb 2026 14:31:22 GMT"}, 60.0),
        ({"retry-after": "Sun, 15 Feb 2026 14:31:22"}, 60.0),
        ({"retry-after": "Sun, 15 Feb 2026 14:00:00 GMT"}, 0.0),
        ({"retry-after": "1e300"}, 31_536_000.0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 31_536_000.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Sun, 99 Feb 99999 14:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms_and_nonsense_is_nothing(headers, seconds) -> None:
    assert retry_after_s(headers, NOW) == seconds


LIMIT = "Rate limit reached for gpt-5.2 in organization org-1 on tokens per min (TPM): Limit 30000, Used 29500. "


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (
            LIMIT + "Please try again in 5.95s. Visit https://platform.openai.com/account/rate-limits to learn more.",
            5.95,
        ),
        (LIMIT + "Please try again in 120ms.", 0.12),
        (LIMIT + "Please try again in 1m2.5s.", 62.5),
        (LIMIT + "Please try again in 6m0s", 360.0),
        (LIMIT + "Please try again in 1h0m0s", 3600.0),
        (LIMIT + "Please try again in 2m", 120.0),
        ("Please retry after 26 seconds. Visit https://aka.ms/oai/quotaincrease.", 26.0),
        ("Please retry after 1 second.", 1.0),
        ("Please retry in 25.3s.", 25.3),
        ("Please try again in 2s. Please try again in 2s.", 2.0),
        ("Please try again in 2s. Please try again in 3s.", None),  # which one?
        ("Please try again in 2s2m.", None),
        ("Please try again in 1.5.2s.", None),
        ("Please try again in 5 minutes.", None),
        ("Please try again in 5.", None),
        ("Please try again in -5s.", None),
        ("Please try again in 5s5.", None),
        ("Please try again in .", None),
        ("Please try again in s.", None),
        ("Please try again in 99999d.", None),
        ("Please try again in 5seconds.", None),
        ("Please try again later.", None),
        ("You can try again in 5s.", None),
        ("", None),
    ],
)
def test_the_wait_in_the_text_of_a_rate_limit_is_read_if_it_is_clear(said: str, seconds: float | None) -> None:
    assert status_error("https://x", 429, said).retry_after_s == pytest.approx(seconds)
    assert status_error("https://x", 429, said, {"retry-after": "7"}).retry_after_s == 7.0, "a header is more exact"
    assert status_error("https://x", 503, said).retry_after_s is None
    assert status_error("https://x", 400, said).retry_after_s is None


def test_a_servers_text_is_shown_on_one_line_and_bounded() -> None:
    assert printable_line("a\n\x1b[31m b\tc") == "a [31m b c"
    assert len(printable_line("<p>" * 10_000)) < 400
