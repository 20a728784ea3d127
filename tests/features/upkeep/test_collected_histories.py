"""The same histories, with `gc` at any moment: it changes no plan, no result, and no answer is asked for again."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import rule

from orch23.features.upkeep.garbage_collection import GcLimits
from orch23.features.upkeep.store import collect_garbage
from orch23.store.content_store import DiskContentStore
from orch23.store.project_store import open_store
from orch23.store.records import Records
from tests.property.test_histories import (
    CHANGES,
    HOW,
    SOURCES,
    THOROUGH,
    CrashError,
    Fuse,
    Histories,
    Rig,
    built_chain,
    history_settings,
)

ENVIRON = {"PATH": "/usr/bin:/bin"}


def collected(root: Path, wish: GcLimits, *, crash_at: int | None = None) -> bool:
    """Clear a store; say whether it came to its end: the machine may die at the n-th thing that goes."""
    fuse = Fuse(crash_at)

    def guarded(inner: Any) -> Any:
        def call(*args: Any) -> Any:
            fuse("drop")
            return inner(*args)

        return call

    with (
        patch("os.fsync", lambda _fd: None),
        patch.object(DiskContentStore, "delete", guarded(DiskContentStore.delete)),
        patch.object(Records, "_rewrite", guarded(Records._rewrite)),
        patch("orch23.store.records.sync_folder", guarded(lambda _folder: None)),
    ):
        try:
            collect_garbage(open_store(root), ENVIRON, wish, lambda _selected: None)
        except CrashError:
            return False
    return True


class CollectedHistories(Histories):
    """A project whose store is cleared now and then, by a size, by an age, or with the machine dying in the middle."""

    @rule(data=st.data(), changes=st.lists(st.sampled_from(CHANGES), max_size=2), how=st.sampled_from(HOW))
    def live_and_collect(self, data: st.DataObject, changes: list[str], how: str) -> None:
        if data.draw(st.booleans(), label="cut off before"):
            self._note(self.rig.build(crash_at=data.draw(st.integers(0, 80), label="crash at effect")))
        self._collect(data)
        self.live(data=data, changes=changes, how=how)
        self._collect(data)

    def _collect(self, data: st.DataObject) -> None:
        size = data.draw(st.one_of(st.just(0), st.integers(0, 60_000)), label="keep")
        wish = (
            GcLimits(max_bytes=size) if data.draw(st.booleans(), label="by size") else GcLimits(used_since_ns=1 << 62)
        )
        crash_at = data.draw(st.one_of(st.none(), st.integers(0, 12)), label="crash at")
        half_promoted = (self.rig.root / ".orch23/promote.json").exists()
        before, files = self.rig.plan()[0], self.rig.files()
        done = collected(self.rig.root, wish, crash_at=crash_at)
        note(f"collected {wish}, to its end: {done}")
        after = self.rig.plan()[0]
        if not half_promoted:
            assert self.rig.files() == files
        assert before.keys() == after.keys()
        for name, said in before.items():
            assert after[name] == said or (said == "maybe" and after[name] == "run"), (name, said, after[name])


TestCollectedHistories = pytest.mark.slow(pytest.mark.timeout(7200 if THOROUGH else 300)(CollectedHistories.TestCase))
TestCollectedHistories.settings = history_settings(examples=2, steps=4)


@pytest.fixture
def built(tmp_path: Path) -> Rig:
    return built_chain(tmp_path / "p")


def comparable(rig: Rig) -> dict[str, str]:
    """Return the files without transcripts and lock file, which tell of more than one state."""
    return {path: text for path, text in rig.files().items() if not path.startswith(("kept/", "pipeline.lock"))}


@pytest.mark.slow
def test_what_is_fresh_stays_so_and_lost_outputs_come_back_after_everything_else_went(built: Rig) -> None:
    files = built.files()
    assert collected(built.root, GcLimits(max_bytes=0))
    assert set(built.build().decisions.values()) == {"fresh"}
    for path in ("build/a.txt", "work/p.txt", "build/page.txt"):
        built.remove(path)
    done = built.build()
    assert (done.code, done.calls, done.programs) == (0, [], [])
    assert built.files() == files


@pytest.mark.slow
def test_a_state_that_went_is_built_again_and_no_answer_is_bought_twice(built: Rig) -> None:
    first = built.files()
    built.write("src/items.txt", SOURCES["src/items.txt"][1])
    built.write("src/a.txt", "b")
    assert built.build().code == 0
    assert collected(built.root, GcLimits(max_bytes=0))
    for path in ("src/items.txt", "src/a.txt"):
        built.write(path, SOURCES[path][0])
    done = built.build()
    assert (done.code, done.calls) == (0, [])
    assert done.programs, "what programs made was kept, so nothing was cleared"
    assert comparable(built) == {path: text for path, text in first.items() if path in comparable(built)}
    assert {"build/a.txt", "work/p.txt", "build/page.txt"} <= comparable(built).keys()
