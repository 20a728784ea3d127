"""A clone that trusts nothing verifies exactly what a clone that trusts everything finds done, and asks no model.

The project is what a history of edits, builds and commits by several users has left.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.project import decisions
from tests.repository import Repository, ends, up_to_date
from tests.shared_files.play import RAM, quick
from tests.shared_files.player import Player
from tests.shared_files.setup import LENGTH, history
from tests.shared_files.steps import BrokenError

pytestmark = pytest.mark.slow
_HISTORIES = 400 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 6
_DONE = ("fresh", "restore")
_TRUSTED, _UNTRUSTED = {"ORCH23_TRUST": "1"}, {"ORCH23_TRUST": "0"}


@pytest.mark.stride(5)
@pytest.mark.parametrize("seed", range(_HISTORIES))
def test_a_clone_verifies_what_it_would_have_believed(seed: int) -> None:
    setup, steps = history(seed, LENGTH, ())
    with tempfile.TemporaryDirectory(prefix="claims", dir=RAM) as folder, quick():
        player = Player(Path(folder), setup)
        with player.model.answering():
            try:
                for step in steps:
                    player.play(step)
            except BrokenError:
                pytest.skip("the history ends in a state that its own test is about")
            author = player.repository
            if not setup.git:
                author.init()
            author.commit()
            for name in ("a", "b"):
                if author.exists(f"{name}.yaml"):
                    trusted = author.clone(Path(folder) / f"trusted-{name}")
                    untrusted = author.clone(Path(folder) / f"untrusted-{name}")
                    calls = len(player.model.calls)
                    if _check(trusted, untrusted, name):
                        assert len(player.model.calls) == calls, "nobody is asked about a claim"


def _check(trusted: Repository, untrusted: Repository, name: str) -> bool:
    """Compare the plans of both clones; build the one that trusts nothing if the other has nothing to run."""
    file = f"{name}.yaml"
    planned = trusted.run("plan", file, "--json", env=_TRUSTED)
    if planned.code:
        assert untrusted.run("plan", file, "--json", env=_UNTRUSTED).code == planned.code
        return False
    believed = decisions(planned.out)
    assert untrusted.plan(file, env=_UNTRUSTED) == _expected(believed)
    if not set(believed.values()) <= {*_DONE, "skipped"}:
        return False
    lock, files = untrusted.read(f"{name}.lock"), _files(untrusted)
    built = untrusted.build(file, env=_UNTRUSTED)
    trusted.build(file, env=_TRUSTED)
    if (
        built.code
    ):  # only the last version of a file of a chain is there, and an item's own may have passed where it fails
        assert "E696" in built.err
        return True
    assert {end for end in ends(untrusted).values() if end != "skipped"} <= {"verified"}
    document = planned.json()
    assert _files(untrusted) == _files(trusted)
    if not document["dead_files"] and not document["released_files"]:  # else records of ended stages are dropped
        assert untrusted.read(f"{name}.lock") == lock, "verification leaves the lock file as it is"
        if "restore" not in believed.values():
            assert _files(untrusted) == files
    up_to_date(untrusted.build(file, env=_UNTRUSTED))
    return True


def _files(project: Repository) -> dict[str, bytes]:
    return {path: data for path, data in project.files().items() if not path.startswith(".git/")}


def _expected(believed: Mapping[str, str]) -> dict[str, str]:
    return {name: "verify" if decision in _DONE else decision for name, decision in believed.items()}
