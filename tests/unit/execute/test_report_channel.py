"""What is believed of the lines on the report channel."""

import hashlib
import hmac
import json
import os

from hypothesis import given
from hypothesis import strategies as st

from orch23.execute.pytest_report import ReportChannel, verified_lines

KEY = b"k" * 32


def signed(*bodies: bytes, key: bytes = KEY, start: int = 0) -> bytes:
    lines = []
    for number, body in enumerate(bodies, start):
        mac = hmac.new(key, b"%d %s" % (number, body), hashlib.sha256).hexdigest()
        lines.append(mac.encode() + b" " + body + b"\n")
    return b"".join(lines)


def last_event(data: bytes | None) -> str:
    assert data is not None
    return str(json.loads(data.splitlines()[-1])["event"])


def test_signed_lines_come_without_their_signatures() -> None:
    assert verified_lines(signed(b'{"a":1}', b'{"b":2}'), KEY) == b'{"a":1}\n{"b":2}\n'
    assert verified_lines(b"", KEY) is None


def test_what_is_unsigned_repeated_dropped_or_cut_ends_the_report() -> None:
    one, two = signed(b'{"a":1}'), signed(b'{"b":2}', start=1)
    for data in (
        one + b'{"event":"finish"}\n',
        one + signed(b'{"b":2}', key=b"x" * 32, start=1),
        one + one,
        two,
        one + two[:-5],
        b"\n" + one,
    ):
        assert last_event(verified_lines(data, KEY)) == "forged"


def test_too_long_a_report_is_reported() -> None:
    assert last_event(verified_lines(signed(b"{}"), KEY, too_long=True)) == "too_long"


@given(st.binary(min_size=1))
def test_no_bytes_are_taken_for_signed(data: bytes) -> None:
    assert last_event(verified_lines(data, KEY)) == "forged"


def test_the_key_goes_through_the_socket_and_not_through_the_environment() -> None:
    channel = ReportChannel()
    assert not os.get_inheritable(channel.far_fd)
    assert channel.start() == {"ORCH23_REPORT_FD": str(channel.far_fd)}
    key = os.read(channel.far_fd, 32)
    os.write(channel.far_fd, signed(b'{"x":1}', key=key))
    assert channel.finish() == b'{"x":1}\n'


def test_an_unused_channel_has_no_report() -> None:
    channel = ReportChannel()
    assert channel.finish() is None
    started = ReportChannel()
    started.start()
    assert started.finish() is None
