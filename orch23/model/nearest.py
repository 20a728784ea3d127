"""Find what a misspelt word was meant to be."""

from collections.abc import Iterable

_LONGEST = 200  # characters; to compare two texts takes the product of their lengths


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known word that is nearest, alone in a list; an empty one where none is near, or the word is long.

    Upper and lower case are the same.
    """
    if len(word) > _LONGEST:
        return []
    from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

    words = {one.casefold(): one for one in known}
    return [words[near] for near in get_close_matches(word.casefold(), list(words), n=1)]


def closest(name: str, known: list[str], otherwise: str) -> str:
    """Return a did-you-mean, or another hint where nothing is near."""
    close = nearest(name, known)
    return f"did you mean `{close[0]}`?" if close else otherwise
