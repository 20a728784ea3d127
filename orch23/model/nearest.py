"""Find what a misspelt word was meant to be."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known word that is nearest, alone in a list; an empty one where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

    return get_close_matches(word, list(known), n=1)
