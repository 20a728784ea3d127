"""Any damage to a file that orch23 keeps is healed, or told with a way out that works; no output is ever wrong.

`make thorough` damages every file in every way; otherwise a stride of them is taken.
"""

import os
import sys
from collections import Counter

import pytest

from tests.crash.damage import Kept, bare, faults, interrupted, kind_of
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.usefixtures("steps_reach_outside"),  # a model notes outside of its sandbox directory that it was asked
]

_STRIDE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1867  # a prime meets all kinds


@pytest.mark.parametrize("state", ["in place", "bare"])
def test_any_damage_is_repaired_or_reported_and_no_output_is_wrong(project: Project, state: str) -> None:
    interrupted(project)
    if state == "bare":
        bare(project)
    kept = Kept.of(project)
    pairs = kept.pairs()[::_STRIDE]
    found = [f"{path}, {damage}: {fault}" for path, damage in pairs for fault in faults(kept, path, damage)]
    kinds = Counter(kind_of(path) for path, _ in pairs)
    sys.stdout.write(f"{state}: {len(pairs)} cases of {len(kept.pairs())}; {dict(kinds)}\n")
    assert not found, f"{len(found)} faults\n" + "\n".join(found)
