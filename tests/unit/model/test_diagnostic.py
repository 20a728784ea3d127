"""Suggestions of known words for unknown ones."""

import difflib

import pytest

from orch23.model.diagnostic import Suggestions, nearest_names


def test_the_nearest_other_word_is_suggested() -> None:
    known = Suggestions(["specs/app.md", "specs/appp.md", "src/main.py"])
    assert known.nearest("specs/appp.md") == ["specs/app.md"]
    assert known.nearest("far/away") == []


@pytest.mark.slow
def test_the_comparisons_do_not_grow_with_the_product_of_unknown_and_known_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    real = difflib.get_close_matches

    def counting(word: str, possibilities: list[str], n: int) -> list[str]:
        compared.append(len(possibilities))
        return real(word, possibilities, n=n)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    known = Suggestions(f"out/{n}.txt" for n in range(5000))
    hints = [known.nearest(f"ou/{n}.txt") for n in range(5000)]
    assert hints[0]
    assert not hints[-1]
    assert sum(compared) <= 20_000
    one = Suggestions(f"out/{n}.txt" for n in range(30_000))
    assert [one.nearest("ou/29999.txt"), one.nearest("ou/29999.txt")] == [["out/29999.txt"], []]


@pytest.mark.slow
def test_words_that_are_known_only_for_one_word_count_as_comparisons() -> None:
    known = Suggestions(["specs/app.md"])
    others = [f"out/{n}.txt" for n in range(9_999)]
    assert known.nearest("out/7.txx", others) == ["out/7.txt"]
    assert known.nearest("specs/ap.md", others) == ["specs/app.md"]
    assert known.nearest("specs/ap.md", others) == [], "20,000 words were compared"


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("drfat", ["draft", "craft"], ["draft"]),
        ("modle", ["model", "mode"], ["model"]),
        ("time_out", ["timeout"], ["timeout"]),
        ("blocs", ["blocks", "block"], ["blocks"]),
        ("lst", ["list", "last"], ["list", "last"]),
        ("retry", ["reset"], []),
        ("stage", ["set"], []),
        ("item3", ["item1", "item2"], []),
        ("each@c", ["each@a"], []),
        ("docs/one.md", ["docs/two.md"], []),
    ],
)
def test_a_word_is_near_only_if_it_is_misspelt(word: str, known: list[str], near: list[str]) -> None:
    assert sorted(nearest_names(word, known)) == sorted(near)
