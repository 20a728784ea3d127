"""Hidden characters in JSON become escapes, and the JSON stays the same."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model import text as text_module
from orch23.model.text import MAX_REASON, escape_hidden, one_line, replace_hidden

HIDDEN_CHARACTERS = re.compile(text_module.HIDDEN_CHARACTERS)


@given(st.text() | st.text('\x1b\x9b\u2028\u202e\u200b\ufeff\xad\U000e0041\r\n"\\'))
def test_the_value_is_the_same_and_no_character_is_hidden(text: str) -> None:
    written = escape_hidden(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(written) == {"a": text}
    assert not HIDDEN_CHARACTERS.search(written)
    assert len(written.splitlines()) == 1


@pytest.mark.slow
def test_every_character_that_unicode_calls_control_or_format_is_among_them() -> None:
    characters = (chr(number) for number in range(0x110000))
    meant = {c for c in characters if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"} and c not in "\n\t"}
    assert {f"U+{ord(c):04X}" for c in meant if not HIDDEN_CHARACTERS.fullmatch(c)} == set()


def test_no_printable_character_of_ascii_is_hidden() -> None:
    assert HIDDEN_CHARACTERS.search("".join(filter(str.isprintable, map(chr, range(128))))) is None
    assert escape_hidden("a\x7f") == "a\\u007f"


@given(st.text() | st.text("\x00\x07\t\n\x1b\x7f\x9b\xad\u202e az"))
def test_each_hidden_character_and_no_other_is_replaced(text: str) -> None:
    assert replace_hidden(text, lambda _found: "?") == HIDDEN_CHARACTERS.sub("?", text)


def test_what_another_program_says_is_one_line_that_is_whole_but_bounded() -> None:
    assert one_line(" no space\r\nleft on\t\x1b[31mdevice \n\nsdb1\u202e\n") == "no space left on ?[31mdevice sdb1?"
    assert one_line("x" * MAX_REASON) == "x" * MAX_REASON
    assert one_line("y " * 10**6) == f"{'y ' * (MAX_REASON // 2)}"[:MAX_REASON] + "..."
    assert one_line("\n\t ") == ""
