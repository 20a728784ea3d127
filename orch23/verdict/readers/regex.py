"""Read results line by line, by a pattern with the groups `id` and `outcome`: by RE2, in linear time."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from orch23.verdict.run_results import RunResults

_MAX_LINE, _MAX_PATTERN_BYTES = 2_000, 8 << 20
_PASSED = frozenset({"ok", "pass", "passed", "success", "succeeded", "✓", "✔"})
_SKIPPED = frozenset({"skip", "skipped", "ignore", "ignored", "pending", "todo", "disabled"})


@lru_cache(maxsize=8)
def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - a library that only such steps need

    options = re2.Options()
    options.log_errors, options.max_mem = False, _MAX_PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        message = f"is not supported by RE2 ({error.args[0].decode()})"
        raise ValueError(message) from None


def pattern_fault(pattern: str) -> str | None:
    """Return why a pattern cannot be used, or None."""
    try:
        groups = _compiled(pattern).groupindex
    except ValueError as error:
        return str(error)
    return next((f"has no group `(?P<{name}>...)`" for name in ("id", "outcome") if name not in groups), None)


def _says_more(line: str, name: str, outcome: str) -> bool:
    """Return whether a line has a place or several words beside its name and outcome: not `test a ... FAILED`."""
    more = line.lower().replace(name.lower(), "", 1).replace(outcome, "", 1)
    return any(part[:1].isdigit() for part in more.split(":")[1:]) or sum(map(str.isalpha, more.split())) > 1


def reader_of(pattern: str) -> Callable[[str, RunResults], None]:
    """Return the reader for a pattern without faults. Lines that do not match are `rest`."""
    search = _compiled(pattern).search

    def read(text: str, results: RunResults) -> None:
        rest: list[str] = []
        for line in text.split("\n"):
            found = search(line[:_MAX_LINE])
            if found is None:
                rest.append(line)
                continue
            word = (found["outcome"] or "").strip().lower()
            outcome = "passed" if word in _PASSED else "skipped" if word in _SKIPPED else "failed"
            name = found["id"] or ""
            message = line.strip() if outcome == "failed" and _says_more(line, name, word) else ""
            results.add(name, outcome, message=message)
        results.rest = "\n".join(rest)

    return read
