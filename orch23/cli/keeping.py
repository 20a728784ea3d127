"""Read how much of a store is to be kept: a size, or an age."""

import re
from collections.abc import Mapping, Sequence

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import UsageError
from orch23.store.collection import Wish
from orch23.store.opening import DEFAULT_CAP_BYTES, KEEP_VARIABLE

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(B|[KMGT]I?B)", re.IGNORECASE | re.ASCII)
_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?([mhdw])", re.ASCII)
_POWERS = "BKMGT"
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NS = 1_000_000_000


def read_keep(texts: Sequence[str], now_ns: int, *, answers: bool = False) -> Wish:
    """Return what `--keep` asks for: of each kind one at most, and the default size where nothing is said.

    Raises:
        UsageError: one is neither a size nor an age, or there are two of a kind.

    """
    sizes = [found for text in texts if (found := _size(text)) is not None]
    ages = [found for text in texts if (found := _age(text)) is not None]
    for text in texts:
        if _size(text) is None and _age(text) is None:
            hint = "write a size such as `5GB` or `800MiB`, or an age such as `12h`, `30d` or `8w`"
            raise UsageError(Diagnostic("E641", f"`--keep {text}` is neither a size nor an age", hint=hint))
    if len(sizes) > 1 or len(ages) > 1:
        kind = "sizes" if len(sizes) > 1 else "ages"
        hint = "give one size, one age, or one of each"
        raise UsageError(Diagnostic("E641", f"`--keep` was given two {kind}", hint=hint))
    if not texts:
        return Wish(most_bytes=DEFAULT_CAP_BYTES, answers=answers)
    return Wish(
        most_bytes=sizes[0] if sizes else None,
        used_since_ns=now_ns - ages[0] if ages else None,
        answers=answers,
    )


def cap_of(environ: Mapping[str, str]) -> int | None:
    """Return the size that a store is not to pass, of the environment or by default; None where an age was chosen."""
    texts = environ.get(KEEP_VARIABLE, "").split()
    try:
        return read_keep(texts, 0).most_bytes
    except UsageError:  # `orch23 gc` says so
        return DEFAULT_CAP_BYTES


def _size(text: str) -> int | None:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = found[2].upper()
    return int(float(found[1]) * (1024 if "I" in unit else 1000) ** _POWERS.index(unit[0]))


def _age(text: str) -> int | None:
    found = _AGE.fullmatch(text.strip())
    return None if found is None else int(float(found[1]) * _SECONDS[found[2]] * _NS)
