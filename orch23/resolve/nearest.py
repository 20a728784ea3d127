"""Find what a misspelt word was meant to be."""

from collections.abc import Iterable

from orch23.model.nearest import nearest


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known word, or None."""
    near = nearest(word, sorted(set(known)))
    return f"did you mean `{near[0]}`?" if near else None
