"""The rules of the simulated prompt cache, as the vendor documents them: a table of requests and what each costs."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.simulated_cache import Counted, PromptCache, RefusedError

MARK, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
MINUTE_S = 60.0


def text(name: str, tokens: int) -> str:
    """Return so many tokens of text."""
    return (f"{name} is here. " * tokens)[: 4 * tokens]


def block(name: str, tokens: int, mark: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": text(name, tokens), **({"cache_control": mark} if mark else {})}


def asks(*blocks: dict[str, Any], system: Any = None, model: str = "claude-opus-5", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": list(blocks)}], "system": system, **more}


@dataclass(frozen=True)
class Row:
    """Requests with the seconds before each, and their tokens."""

    requests: list[tuple[float, dict[str, Any]]]
    counted: list[Counted]
    hidden: set[int] = field(default_factory=set)
    """Those whose first event is not sent."""


A, B, C = block("a", 600, MARK), block("b", 700, MARK), block("c", 10)
AGAIN = [(0.0, asks(A, C)), (0.0, asks(A, block("d", 20)))]
MANY = [block(f"n{number}", 100) for number in range(19)]

TABLE = {
    "nothing is cached without a mark": Row(
        [(0, asks(block("a", 600))), (0, asks(block("a", 600)))], [Counted(600)] * 2
    ),
    "a marked prefix is written, and read by the next request": Row(
        AGAIN, [Counted(10, written_5m=600), Counted(20, read=600)]
    ),
    "what is written is invisible before the first event": Row(
        AGAIN, [Counted(10, written_5m=600), Counted(20, written_5m=600)], hidden={0}
    ),
    "a prefix under the minimum is not cached": Row([(0, asks(block("a", 511, MARK), C))] * 2, [Counted(521)] * 2),
    "the minimum is that of the model": Row(
        [(0, asks(block("a", 600, MARK), model="claude-sonnet-5"))] * 2, [Counted(600)] * 2
    ),
    "the minimum is of the whole prefix": Row(
        [(0, asks(block("a", 500), block("b", 12, MARK)))] * 2, [Counted(written_5m=512), Counted(read=512)]
    ),
    "models do not share": Row(
        [(0, asks(block("a", 2000, MARK))), (0, asks(block("a", 2000, MARK), model="claude-sonnet-5"))],
        [Counted(written_5m=2000)] * 2,
    ),
    "an entry lives for five minutes": Row(
        [(0, asks(A, C)), (5 * MINUTE_S, asks(A, C))], [Counted(10, written_5m=600)] * 2
    ),
    "a read keeps it for another five minutes": Row(
        [(0, asks(A, C)), (4 * MINUTE_S, asks(A, C)), (4 * MINUTE_S, asks(A, C))],
        [Counted(10, written_5m=600), Counted(10, read=600), Counted(10, read=600)],
    ),
    "an hour costs more": Row(
        [(0, asks(block("a", 600, HOUR), C)), (59 * MINUTE_S, asks(block("a", 600, HOUR), C))],
        [Counted(10, written_1h=600), Counted(10, read=600)],
    ),
    "two marks are written for the price of the longer": Row(
        [(0, asks(A, B, C)), (0, asks(A, block("x", 700, MARK), C))],
        [Counted(10, written_5m=1300), Counted(10, read=600, written_5m=700)],
    ),
    "the longest prefix is read": Row([(0, asks(A, B, C))] * 2, [Counted(10, written_5m=1300), Counted(10, read=1300)]),
    "a mark finds an entry at most nineteen blocks before": Row(
        [(0, asks(A)), (0, asks(block("a", 600), *MANY[:18], block("z", 1, MARK)))],
        [Counted(written_5m=600), Counted(read=600, written_5m=1801)],
    ),
    "a mark does not find an entry that is further back": Row(
        [(0, asks(A)), (0, asks(block("a", 600), *MANY, block("z", 1, MARK)))],
        [Counted(written_5m=600), Counted(written_5m=2501)],
    ),
    "the same text in other blocks is another prefix": Row(
        [(0, asks(A)), (0, asks({**A, "text": A["text"] + "\n"}))], [Counted(written_5m=600)] * 2
    ),
    "another system text changes everything after it": Row(
        [(0, asks(A, system="one system")), (0, asks(A, system="two system"))], [Counted(written_5m=602)] * 2
    ),
    "a schema is before the system text": Row(
        [
            (0, asks(A, system=[B])),
            (0, asks(A, system=[B], output_config={"format": {"type": "json_schema", "schema": {}}})),
        ],
        [Counted(written_5m=1300)] * 2,
    ),
    "effort changes nothing": Row(
        [(0, asks(A)), (0, asks(A, output_config={"effort": "high"}))], [Counted(written_5m=600), Counted(read=600)]
    ),
    "thinking changes the messages and not the system text": Row(
        [(0, asks(A, system=[B])), (0, asks(A, system=[B], thinking={"type": "adaptive"}))],
        [Counted(written_5m=1300), Counted(read=700, written_5m=600)],
    ),
}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_the_cache_follows_its_table(row: Row) -> None:
    now = 0.0
    cache = PromptCache(lambda: now)
    found = []
    for number, (seconds, body) in enumerate(row.requests):
        now += seconds
        counted, publish = cache.count(body)
        found.append(counted)
        if number not in row.hidden:
            publish()
    assert found == row.counted


@pytest.mark.parametrize(
    "body",
    [
        asks(*[block("a", 600, MARK)] * 5),
        asks(block("a", 600, MARK), block("b", 600, HOUR)),
        asks(A, {"type": "text", "text": " \n"}),
    ],
    ids=["five marks", "an hour after five minutes", "a block of blanks"],
)
def test_the_cache_refuses_what_the_vendor_refuses(body: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        PromptCache(lambda: 0.0).count(body)


def test_each_kind_of_token_has_its_price() -> None:
    assert Counted(100, read=100, written_5m=100, written_1h=100).in_units() == pytest.approx(100 + 10 + 125 + 200)
    assert Counted(1, 2, 3, 4).usage()["cache_creation_input_tokens"] == 7
