"""The watch on a stream: every byte passes, and an event that the SDK would drop in silence does not."""

import pytest

from orch23.features.vendors.server_replies import require_event_names

WHOLE = (
    b'event: ping\ndata: {"a": 1}\n\n: a comment\n\nid: 3\nevent:b\ndata:2\ndata: 3\r\n\r\ndata: [DONE]\n\nevent: x\n\n'
)
LOST = b'event: a\ndata: 1\n\ndata: {"text": "lost"}\n\n'


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_whole_stream_passes_unchanged(size: int) -> None:
    assert list(require_event_names(cut(WHOLE, size))) == cut(WHOLE, size)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("data", [LOST, LOST.replace(b"\n", b"\r\n"), LOST.replace(b"\n\nd", b"\n\nevent:\nd")])
def test_an_event_with_data_and_no_name_is_refused(size: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="no name"):
        list(require_event_names(cut(data, size)))


def test_nothing_is_read_ahead() -> None:
    def endless():
        yield b"event: a\ndata: 1\n\n"
        pytest.fail("a second piece was asked for")

    assert next(require_event_names(endless())) == b"event: a\ndata: 1\n\n"
