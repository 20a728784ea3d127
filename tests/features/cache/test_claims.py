"""What a source of results claims counts only once the core has verified it (ADR 73)."""

from types import SimpleNamespace
from typing import Any

import pytest

from orch23.decide.shared_results import ResultOrigin
from orch23.features.cache.claims import (
    Claim,
    InvalidResultError,
    Lookup,
    claim_of,
    found_result,
)
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.pipeline import Stage, WriteScope
from orch23.model.record import Record
from orch23.model.shared_cache import Tier
from orch23.steps.shell.spec import ShellStep

KEY = "1" * 64
FILE = FileEntry(digest_bytes(b"x"))
STAGE = Stage(name="a", step=ShellStep(("x",)), outputs=("a.txt",), fence=WriteScope(("a.txt",)))
RESOLVED: Any = SimpleNamespace(stage=STAGE, key=KEY, manifest={}, texts={}, base={})


def claimed(key: str = KEY, **outputs: FileEntry) -> Claim:
    """Return the claim of a result with files whose names end in `.txt`."""
    files = {f"{name}.txt": entry for name, entry in outputs.items()}
    return claim_of(Record(stage="a", key=key, manifest={}, outputs=files), ResultOrigin(seconds=7.5), "B")


def lookup(least: Tier = "none") -> Lookup:
    return Lookup(lambda claim: found_result(RESOLVED, claim), lambda found: least in {found.tier, "none"})


def test_a_claim_that_the_stage_could_have_made_counts_once_its_files_are_here() -> None:
    one = lookup()
    found = one.claim(claimed(a=FILE))
    assert (one.expected, one.result) == (None, None)
    one.expect()
    assert (one.expected, one.result) == (found, None)
    one.finish(is_complete=True)
    assert one.result is found


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (claimed("2" * 64, a=FILE), "it is the result of another stage"),
        (claimed(a=FILE, b=FILE), "it has files that the stage may not write"),
        (claimed(), "a.txt"),
        (Claim(b"{}", {"a.txt": FILE}), "its record "),
        (Claim(claimed().text, {"../a.txt": FILE}), "'../a.txt' is not the path of an output"),
    ],
    ids=["another key", "a foreign file", "no file", "no record", "outside"],
)
def test_a_source_cannot_give_what_was_not_verified(claim: Claim, why: str) -> None:
    one = lookup()
    with pytest.raises(InvalidResultError, match=why):
        one.claim(claim)
    one.expect()
    one.finish(is_complete=True)
    assert (one.expected, one.result, one.is_finished) == (None, None, True)


def test_a_result_of_a_lower_tier_is_refused() -> None:
    one = lookup("A")
    assert one.claim(claimed(a=FILE)) is None
    one.finish(is_complete=True)
    assert (one.refused is not None, one.result) == (True, None)
