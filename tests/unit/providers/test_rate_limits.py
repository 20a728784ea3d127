"""What replies state about limits, as the vendors document it."""

from datetime import UTC, datetime

import pytest

from orch23.providers.rate_limits import StatedLimit, replies_heard_by, report_reply, stated_limits

NOW = datetime(2026, 2, 15, 14, 30, 0, tzinfo=UTC)


def test_anthropic_states_limits_with_the_time_of_their_reset() -> None:
    found = stated_limits(
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-02-15T14:30:02Z",
            "anthropic-ratelimit-input-tokens-limit": "30000",
            "anthropic-ratelimit-input-tokens-remaining": "15000",
            "anthropic-ratelimit-input-tokens-reset": "2026-02-15T14:30:30Z",
            "anthropic-ratelimit-output-tokens-limit": "8000",
            "anthropic-ratelimit-output-tokens-remaining": "8000",
            "anthropic-ratelimit-output-tokens-reset": "2026-02-15T14:29:00Z",
        },
        NOW,
    )
    assert found == {
        "requests": StatedLimit(50, 49, 2.0),
        "input_tokens": StatedLimit(30_000, 15_000, 30.0),
        "output_tokens": StatedLimit(8000, 8000, 0.0),
    }


def test_a_reset_is_a_time_of_the_server_s_clock() -> None:
    headers = {
        "anthropic-ratelimit-tokens-limit": "10",
        "anthropic-ratelimit-tokens-remaining": "1",
        "anthropic-ratelimit-tokens-reset": "2001-01-01T00:00:09Z",
        "date": "Mon, 01 Jan 2001 00:00:00 GMT",
    }
    assert stated_limits(headers) == {"tokens": StatedLimit(10, 1, 9.0)}


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("7.66s", 7.66),
        ("12", 12.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("1e99", None),
        ("1771165822", None),
    ],
)
def test_openai_states_durations(reset: str, seconds: float | None) -> None:
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": reset,
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "149984",
    }
    assert stated_limits(headers) == {
        "requests": StatedLimit(60, 59, seconds),
        "tokens": StatedLimit(150_000, 149_984, None),
    }


@pytest.mark.parametrize(
    ("limit", "remaining"), [("0", "0"), ("5", "-1"), ("5", "6"), ("many", "1"), ("5", ""), ("9" * 30, "1")]
)
def test_numbers_that_make_no_sense_are_ignored(limit: str, remaining: str) -> None:
    headers = {"x-ratelimit-limit-requests": limit, "x-ratelimit-remaining-requests": remaining}
    assert stated_limits(headers) == {}


def test_a_reset_that_is_not_a_date_is_not_known() -> None:
    headers = {"anthropic-ratelimit-requests-limit": "5", "anthropic-ratelimit-requests-remaining": "1"}
    for reset in ("soon", "9999-12-31T23:59:59Z", ""):
        found = stated_limits({**headers, "anthropic-ratelimit-requests-reset": reset}, NOW)
        assert found == {"requests": StatedLimit(5, 1, None)}


def test_replies_are_heard_only_during_the_call() -> None:
    heard = []
    report_reply(200, {})
    with replies_heard_by(lambda status, headers: heard.append((status, dict(headers)))):
        report_reply(429, {"a": "b"})
    report_reply(200, {})
    assert heard == [(429, {"a": "b"})]
