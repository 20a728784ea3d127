"""Find what a misspelt word was meant to be."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known word, or None."""
    near = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None
