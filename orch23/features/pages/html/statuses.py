"""How a status is shown on a page: word, symbol and tone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from orch23.features.pages.html.page import Badge, Tone

_BADGES: Final[Mapping[str, Badge]] = {
    "built": Badge("built", "✔", "good"),
    "verified": Badge("verified", "✔", "good"),
    "restored": Badge("restored", "↺", "kept"),
    "fresh": Badge("fresh", "=", "kept"),
    "done": Badge("done", "=", "kept"),
    "skipped": Badge("skipped", "-", "idle"),
    "edited": Badge("edited", "!", "bad"),
    "failed": Badge("failed", "✘", "bad"),
    "blocked": Badge("blocked", "■", "stopped"),
    "cancelled": Badge("cancelled", "■", "stopped"),
    "held": Badge("withheld", "■", "stopped"),
    "awaiting": Badge("awaiting", "…", "stopped"),
    "running": Badge("running", "▸", "active"),
    "unfinished": Badge("not finished", "■", "stopped"),
    "waiting": Badge("waiting", "·", "idle"),
}
_RUNS: Final[Mapping[str, Badge]] = {
    "ok": Badge("passed", "✔", "good"),
    "failed": Badge("failed", "✘", "bad"),
    "limit": Badge("limit reached", "■", "bad"),
    "decision": Badge("your decision is needed", "!", "bad"),
    "interrupted": Badge("interrupted", "■", "stopped"),
    "waiting": Badge("waiting for batches", "…", "stopped"),
    "approval": Badge("waiting for approval", "!", "stopped"),
    "running": Badge("running", "▸", "active"),
    "unfinished": Badge("not finished", "■", "stopped"),
}
# The worst first: a group is shown like the worst of its stages.
_ORDER: Final[tuple[Tone, ...]] = ("bad", "stopped", "active", "good", "kept", "idle")


def stage_badge(status: str) -> Badge:
    """Return the badge of a stage."""
    return _BADGES.get(status, Badge(status, "·", "idle"))


def run_badge(status: str) -> Badge:
    """Return the badge of a run."""
    return _RUNS.get(status, Badge(status, "·", "idle"))


def worst_badge(badges: Iterable[Badge]) -> Badge:
    """Return the badge of several stages: the badge of the worst."""
    return min(badges, key=lambda one: _ORDER.index(one.tone))


def tone_shares(badges: Iterable[Badge]) -> list[tuple[Tone, int]]:
    """Return how many badges have each tone, the worst first."""
    tones = [one.tone for one in badges]
    return [(tone, number) for tone in _ORDER if (number := tones.count(tone))]


def count_words(badges: Iterable[Badge]) -> str:
    """Return how many badges have each word: `3 built, 1 failed`."""
    return ", ".join(f"{number:,} {word}" for word, number in Counter(one.word for one in badges).items())
