"""Texts of a page: all of them fit, short ones are whole, and a secret at the cut is redacted as one."""

from hypothesis import given
from hypothesis import strategies as st

from orch23.features.pages.html.texts import (
    MAX_TEXT,
    LongText,
    cut_text,
    fair_limit,
    html_size,
    read_limit,
    total_limit,
)


def long_text(text: str, size: int | None = None) -> LongText:
    return LongText(title="Prompt", text=text, size=len(text) if size is None else size, path="logs/r/s/prompt.txt")


@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(10**5, 10**7))
def test_all_texts_together_fit(sizes: list[int], total: int) -> None:
    limit = fair_limit(sizes, total)
    kept = [min(size, limit) for size in sizes]
    assert sum(kept) <= max(total, 160 * len(sizes))
    # What short texts do not need goes to the long ones.
    assert limit == MAX_TEXT or sum(kept) > total - len(sizes) - max(sizes, default=0)


def test_a_page_of_many_attempts_gets_less_text() -> None:
    assert total_limit(10) == 2_500_000
    assert total_limit(1_900) == 500_000
    assert read_limit(1) > MAX_TEXT
    assert read_limit(10_000) < 4_000


@given(st.text(alphabet="a<&\"'\n\u202eé", max_size=3_000), st.integers(200, 2_000))
def test_a_text_takes_no_more_than_its_limit(text: str, limit: int) -> None:
    shown = cut_text(long_text(text), limit, str)
    assert html_size(shown.text) <= limit
    assert text.startswith(shown.text)
    if html_size(text) <= limit:
        assert (shown.text, shown.rest) == (text.rstrip(), 0)
    else:
        assert shown.rest > 0
        assert shown.path == "logs/r/s/prompt.txt"


def test_a_secret_at_the_cut_is_redacted() -> None:
    secret = "s3cret-token-of-forty-characters-0123456"

    def redact(text: str) -> str:
        return text.replace(secret, "[redacted TOKEN]")

    for start in range(160, 205):
        text = "x" * start + secret + "y" * 500
        shown = cut_text(long_text(text), 200, redact).text
        assert "s3cret" not in shown, start


def test_a_file_of_which_only_the_beginning_was_read() -> None:
    shown = cut_text(long_text("line\n" * 100, size=1_000_000), 10_000, str)
    assert shown.rest == 1_000_000 - len(shown.text)
    assert shown.rest > 0


def test_a_cut_is_between_lines() -> None:
    shown = cut_text(long_text("a whole line\n" * 100), 300, str)
    assert shown.text.endswith("a whole line")
