"""A gate before each call: it sees the request, and nothing is sent where it refuses."""

import pytest

from orch23.model.errors import LimitError
from orch23.model.llm import Message, Request, Response
from orch23.providers.limits import Limited

REQUEST = Request(
    provider="p", model="m", endpoint="e", system="", messages=(Message("user", "x"),), identity=(), params={}
)


class Model:
    def __init__(self) -> None:
        self.calls: list[tuple[Request, float]] = []

    def complete(self, request, deadline_s, on_progress):
        self.calls.append((request, deadline_s))
        on_progress(2)
        return Response(text="ok")


def test_the_gate_is_asked_first_and_the_call_is_handed_on() -> None:
    model = Model()
    seen: list[Request] = []
    progress: list[int] = []
    assert Limited(model, seen.append).complete(REQUEST, 7.0, progress.append) == Response(text="ok")
    assert (seen, model.calls, progress) == ([REQUEST], [(REQUEST, 7.0)], [2])


def test_nothing_is_sent_where_the_gate_refuses() -> None:
    def refuse(_request: Request) -> None:
        raise LimitError

    model = Model()
    with pytest.raises(LimitError):
        Limited(model, refuse).complete(REQUEST, 7.0, print)
    assert model.calls == []
