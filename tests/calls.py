"""Count function calls: a measure of work that does not depend on the machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted_calls(*kinds: str) -> Iterator[list[int]]:
    """Count the calls of this thread in the only entry of the list; each time that a generator continues is one.

    `kinds` are events of `sys.setprofile`, by default calls of Python and of C functions.
    """
    calls = [0]

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        calls[0] += event in (kinds or ("call", "c_call"))

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
