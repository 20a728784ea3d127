"""Providers that may not be asked: the refusal names the stage, the nearest difference and the ways forward."""

import pytest

from orch23.model.errors import ProviderError
from orch23.model.llm import Exchange, Message, Request
from orch23.providers.recordings import ReplayOnlyProvider


def request(text: str) -> Request:
    said = (Message("user", text),)
    return Request(provider="p", model="m", endpoint="e", system="s", messages=said, identity=said)


class Store:
    def __init__(self, near: Exchange | None) -> None:
        self.near = near
        self.sought: list[tuple[str, str | None]] = []

    def nearest(self, stage, parts, transcripts):
        self.sought.append((stage, transcripts))
        return self.near

    def get(self, fingerprint, transcripts):
        raise AssertionError

    def put(self, exchange, transcripts):
        raise AssertionError

    put_later = put


def refusal(near: Exchange | None, asked: Request):
    store = Store(near)
    unasked = ReplayOnlyProvider(
        store=store,
        stage="code@T1",
        transcripts="t",
        code="E423",
        hint="go online",
        redact=lambda text: text.replace("hush", "[redacted]"),
    )
    with pytest.raises(ProviderError) as caught:
        unasked.complete(asked, 1.0, lambda _n: None)
    assert store.sought == [("code@T1", "t")]
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.subject, diagnostic.hint) == ("E423", "code@T1", "go online")
    return diagnostic.message


def test_a_stage_without_recordings_is_reported() -> None:
    assert refusal(None, request("x")) == "no response is recorded for this stage"


def test_the_difference_from_the_nearest_recording_has_no_secrets() -> None:
    then = request("one\ntwo hush")
    near = Exchange(fingerprint="f" * 64, stage="code@T1", request=then.parts(), response="")
    assert refusal(near, request("one\nthree hush")) == (
        "no response is recorded for this request; compared with the nearest (ffffffffffff), "
        "the prompt differs at line 2: 'three [redacted]' was 'two [redacted]'"
    )
