"""What a stage sees of a project: versions of a chain, version 0, dead files, listings."""

from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from orch23.decide.project_state import ObsoleteFiles, ProjectState
from orch23.decide.stage_view import StageTree
from orch23.model.digest import FileEntry, digest_bytes, git_blob_id
from orch23.model.errors import MissingBytesError
from orch23.model.pipeline import ChainLink, Foreach, ForeachStage, Item, PathInput, Pipeline, Stage, WriteScope
from orch23.model.record import LockFile, Record
from orch23.plan.planner import build_plan
from orch23.steps.shell.spec import ShellStep
from orch23.store.project_store import open_store


def entry(text):
    return FileEntry(digest_bytes(text.encode()))


def stage(name, reads=(), writes=(), *, index=None, **more):
    chain = ChainLink(chain=name.partition("@")[0], index=index) if index is not None else None
    item = Item(key=name.partition("@")[2], name="item", value=name) if "@" in name else None
    inputs = tuple(PathInput(path) for path in reads)
    facts = {"step": ShellStep(("x",)), "inputs": inputs, "outputs": writes, "fence": WriteScope(writes), **more}
    return Stage(name=name, chain=chain, item=item, **facts)


def record(name, key="k", originals=None, **outputs):
    made = {path.replace("__", "/"): entry(text) for path, text in outputs.items()}
    return Record(stage=name, key=key, manifest={"kind": name}, outputs=made, originals=originals or {})


class FakeGit:
    """What HEAD has, by path, and objects by id; remembers what it was asked."""

    was_used = False
    looked_at: Mapping[Path, str] = {}
    left_out: Mapping[str, str] = {}

    def __init__(self, head, objects=None):
        self.head, self.objects, self.calls = head, objects or {}, []

    def at_head(self, path):
        return self.head.get(path, b"")

    def committed(self, paths):
        self.calls.append(tuple(paths))
        return {path: git_blob_id(self.head[path]) for path in paths if path in self.head}

    def bytes_of(self, blob_id):
        return self.objects.get(blob_id)

    def bytes_at(self, path):
        return iter([self.head[path]] if path in self.head else [])

    def versions(self, _path):
        return iter([])


FIRST = stage("first", ("w/p",), ("m",))
X, Y, Z = (stage(f"c@{key}", ("m",), ("w/p",) if key != "z" else ("w/q",), index=n) for n, key in enumerate("xyz"))
LAST = stage("last", ("w/p", "w/q"), ("end",))


@pytest.fixture
def state(tmp_path: Path):
    def make(*stages, files=None, lock=(), kept=(), claimed=False):
        for path, text in (files or {}).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        store = open_store(tmp_path)
        for one in (*kept, *(() if claimed else lock)):
            store.records.put(replace(one, git={}))
        plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
        assert plan is not None, problems
        return ProjectState(plan, store, LockFile({one.stage: one for one in lock}))

    return make


# ---- what a decision looks at -------------------------------------------------------------------


def test_a_path_that_was_read_before_is_noted_for_each_stage_that_reads_it(state):
    here = state(stage("a", ("m",)), stage("b", ("m",)), files={"m": "1"})
    for name in ("a", "b"):
        assert here.tracked(name).original("m") == entry("1")
    assert here.reads == {"a": {"m"}, "b": {"m"}}


def test_a_view_notes_each_path_that_it_reads_although_another_stage_makes_it(state):
    here = state(FIRST, LAST)
    here.settle("first", record("first", m="1"))
    assert StageTree(here.tracked("last"), "last").entry("m") == entry("1")
    assert here.reads == {"last": {"m"}}


def test_a_read_of_another_thread_is_noted_for_no_stage(state):
    here = state(FIRST, LAST, files={"m": "1", "n": "2"})
    deciding = here.tracked("last")
    thread = Thread(target=lambda: (here.original("n"), here.store.workspace.entry("n"), StageTree(here, "first")))
    thread.start()
    thread.join()
    deciding.store.workspace.entry("m")
    here.store.workspace.entry("n")
    assert here.reads == {"last": {"m"}}


def test_a_tracked_state_is_the_same_state(state):
    here = state(FIRST, X, Y, Z, LAST, files={"w/p": "0"})
    deciding = here.tracked("last")
    here.settle("c@x", record("c@x", w__p="1"))
    assert StageTree(deciding, "last").version("w/p") == entry("1")
    assert deciding.former is here.former
    assert deciding.declared is here.declared


# ---- versions -----------------------------------------------------------------------------------


def test_an_item_sees_the_newest_version_by_an_earlier_one_the_stage_above_version_0_and_all_others_the_last(state):
    here = state(FIRST, X, Y, Z, LAST, files={"w/p": "0"})
    here.settle("c@x", record("c@x", w__p="1"))
    here.settle("c@y", record("c@y", w__p="2"))
    assert StageTree(here, "first").version("w/p") == entry("0")
    assert StageTree(here, "c@x").version("w/p") == entry("0")
    assert StageTree(here, "c@y").version("w/p") == entry("1")
    assert StageTree(here, "c@z").version("w/p") == entry("2")
    assert StageTree(here, "last").version("w/p") == entry("2")


def test_the_base_of_an_item_is_of_its_own_outputs(state):
    here = state(X, Y, Z, files={"w/p": "0", "w/q": "9"})
    here.settle("c@x", record("c@x", w__p="1"))
    assert StageTree(here, "c@x").versions() == {"w/p": entry("0")}
    assert StageTree(here, "c@y").versions() == {"w/p": entry("1")}
    assert StageTree(here, "c@z").versions() == {"w/q": entry("9")}


def test_an_item_promotes_only_the_paths_of_which_no_later_item_makes_a_version(state):
    here = state(X, Y, Z)
    assert here.target("c@x", record("c@x", w__p="1")) == {}
    assert here.target("c@y", record("c@y", w__p="2")) == {"w/p": entry("2")}


def test_the_last_item_leaves_the_whole_chain_in_order(state):
    here = state(X, Y, Z)
    here.settle("c@x", record("c@x", w__p="1"))
    here.settle("c@y", record("c@y", w__p="2"))
    assert here.target("c@z", record("c@z", w__q="3")) == {"w/q": entry("3"), "w/p": entry("2")}


def test_a_path_that_the_last_result_owned_goes_back_to_its_newest_remaining_version(state):
    locked = record("c@y", originals={"w/p": entry("0")}, w__p="2", w__r="r")
    y = stage("c@y", (), ("w/q",), index=1)
    here = state(X, y, lock=(locked,), files={"w/p": "2"})
    here.settle("c@x", record("c@x", w__p="1"))
    assert here.target("c@y", record("c@y", w__q="q")) == {"w/q": entry("q"), "w/p": entry("1"), "w/r": None}


def test_a_stage_does_not_see_its_own_outputs(state):
    here = state(stage("s", (), ("d/",)), files={"d/old": "x"})
    assert StageTree(here, "s").version("d/old") is None
    assert StageTree(here, "s").matching("d/**") == {}


def test_what_a_stage_made_is_seen_as_its_record_says_and_not_as_the_disk(state):
    here = state(stage("a", (), ("o",)), stage("b", ("o",), ("p",)), files={"o": "edited"})
    here.settle("a", record("a", o="made"))
    assert StageTree(here, "b").version("o") == entry("made")
    here.unsettle("a")
    assert StageTree(here, "b").version("o") == entry("edited")


# ---- version 0 ----------------------------------------------------------------------------------


def test_version_0_is_what_the_lock_says(state):
    locked = record("c@x", originals={"w/p": entry("0")}, w__p="1")
    assert state(X, lock=(locked,), files={"w/p": "other"}).original("w/p") == entry("0")
    absent = record("c@x", originals={"w/p": None}, w__p="1")
    assert state(X, lock=(absent,), files={"w/p": "other"}).original("w/p") is None


def test_without_the_lock_it_is_the_file_unless_a_record_has_these_bytes(state):
    assert state(X, files={"w/p": "mine"}).original("w/p") == entry("mine")
    kept = record("c@x", originals={"w/p": entry("0")}, w__p="mine")
    assert state(X, kept=(kept,)).original("w/p") == entry("0")


def test_bytes_of_a_version_0_outlive_the_store_beside_the_transcripts(state):
    locked = record("c@x", originals={"w/p": entry("0")}, w__p="1")
    here = state(X, lock=(locked,), files={"w/p": "1"})
    with pytest.raises(MissingBytesError):
        here.read("w/p", entry("0"))
    here.store.exchanges.put_original(b"0", None)
    assert here.read("w/p", entry("0")) == b"0"


# ---- obsolete files, listings --------------------------------------------------------------------


def test_a_file_of_an_ended_stage_is_obsolete_as_long_as_its_bytes_are_those_of_the_record(state):
    here = state(LAST, lock=(record("gone", o="made"),), files={"o": "made"})
    assert ObsoleteFiles(here).replacements() == {"o": None}
    assert StageTree(here, "last").version("o") is None
    assert StageTree(here, "last").matching("*") == {}
    assert StageTree(here, "s").listed("*") == ()


def test_other_bytes_at_the_path_of_an_ended_stage_are_the_users(state):
    here = state(LAST, lock=(record("gone", o="made"),), files={"o": "mine"})
    assert ObsoleteFiles(here).replacements() == {}
    assert StageTree(here, "last").version("o") == entry("mine")
    assert StageTree(here, "s").listed("*") == ("o",)


def test_a_file_that_existed_before_is_released_when_its_stage_ends(state):
    gone = record("gone", originals={"o": entry("0")}, o="made")
    here = state(LAST, lock=(gone,), files={"o": "made"})
    assert ObsoleteFiles(here).replacements() == {}
    assert ObsoleteFiles(here).released() == {"o": "gone"}
    assert StageTree(here, "last").version("o") == entry("made")
    assert StageTree(here, "s").listed("*") == ("o",)


def test_a_file_that_a_user_had_accepted_is_released_when_its_stage_ends(state):
    gone = replace(record("gone", o="made"), accepted=("o",))
    here = state(LAST, lock=(gone,), files={"o": "made"})
    assert ObsoleteFiles(here).replacements() == {}
    assert ObsoleteFiles(here).released() == {"o": "gone"}


def test_a_file_that_a_stage_reads_by_name_is_released_when_its_stage_ends(state):
    here = state(stage("reader", ("o",), ("p",)), lock=(record("gone", o="made"),), files={"o": "made"})
    assert ObsoleteFiles(here).replacements() == {}
    assert StageTree(here, "reader").version("o") == entry("made")


def test_a_committed_file_is_released_whatever_bytes_are_committed(state):
    git = FakeGit({"o": b"other"})
    here = state(LAST, lock=(record("gone", o="made"), record("alone", p="made")), files={"o": "made", "p": "made"})
    here = ProjectState(here.plan, here.store, here.lock, git=git)
    assert ObsoleteFiles(here).replacements() == {"p": None}
    assert ObsoleteFiles(here).released() == {"o": "gone"}
    assert git.calls == [("o", "p")], "one call for all paths"


def test_git_is_not_called_while_no_stage_has_ended(state):
    git = FakeGit({})
    here = state(LAST, lock=(record("last", end="made"),), files={"end": "made"})
    here = ProjectState(here.plan, here.store, here.lock, git=git)
    assert ObsoleteFiles(here).replacements() == {}
    assert not git.calls


def test_a_file_of_an_older_result_is_removed_although_it_is_committed(state):
    here = state(stage("s", (), ("o/",)), lock=(record("s", o__a="a", o__b="b"),), files={"o/a": "a", "o/b": "b"})
    here = ProjectState(here.plan, here.store, here.lock, git=FakeGit({"o/b": b"b"}))
    newer = record("s", o__a="a")
    here.settle("s", newer)
    assert here.target("s", newer) == {"o/a": entry("a"), "o/b": None}


def test_lost_bytes_are_found_in_git_by_the_recorded_blob_id(state):
    data = b"lost"
    known = replace(record("a", o="now"), originals={"o": entry("lost")}, git={entry("lost").digest.sha256: "id"})
    here = state(LAST, lock=(known,), files={"o": "now"})
    here = ProjectState(here.plan, here.store, here.lock, git=FakeGit({}, {"id": data}))
    assert here.read("o", entry("lost")) == data
    with pytest.raises(MissingBytesError):
        here.read("o", entry("never there"))


def test_bytes_from_git_must_have_the_digest(state):
    known = replace(record("a", o="now"), git={entry("lost").digest.sha256: "id"})
    here = state(LAST, lock=(known,), files={"o": "now"})
    here = ProjectState(here.plan, here.store, here.lock, git=FakeGit({"o": b"wrong"}, {"id": b"wrong too"}))
    with pytest.raises(MissingBytesError):
        here.read("o", entry("lost"))


def test_a_lock_file_alone_does_not_prove_that_a_stage_which_has_ended_made_a_file(state):
    gone = record("gone", o="made")
    files = {"o": "made"}
    claimed = state(stage("other", (), ("n",)), lock=(gone,), files=files, claimed=True)
    assert ObsoleteFiles(claimed).replacements() == {}
    assert ObsoleteFiles(state(stage("other", (), ("n",)), lock=(gone,), files=files)).replacements() == {"o": None}


def test_a_file_that_another_stage_makes_now_is_not_obsolete(state):
    here = state(stage("new", (), ("o",)), lock=(record("old", o="made"),), files={"o": "made"})
    assert ObsoleteFiles(here).is_obsolete("o")
    here.settle("new", record("new", o="made"))
    assert ObsoleteFiles(here).replacements() == {}


def test_a_file_that_a_foreach_may_still_make_is_not_obsolete(state):
    foreach = ForeachStage(name="c", foreach=Foreach(source="l.json"), body={}, kind="shell", writes=("w/**",))
    here = state(foreach, lock=(record("c@x", w__p="1"),), files={"w/p": "1", "l.json": "[]"})
    assert ObsoleteFiles(here).replacements() == {}
    assert not ObsoleteFiles(here).is_obsolete("w/p")


def test_a_listing_leaves_out_what_this_pipeline_made_also_where_the_lock_is_lost(state):
    here = state(stage("s", (), ("o/",)), kept=(record("s", o__a="made"),), files={"o/a": "made", "o/mine": "x"})
    assert StageTree(here, "s").listed("o/*") == ("o/mine",)


def test_a_listing_leaves_out_a_literal_output_whatever_is_there(state):
    assert StageTree(state(stage("s", (), ("o",)), files={"o": "anything"}), "s").listed("*") == ()


def test_a_listing_shows_a_path_that_had_a_version_0(state):
    locked = (record("c@x", originals={"w/p": entry("0")}, w__p="1"), record("c@y", originals={"w/q": None}, w__q="1"))
    here = state(X, Y, lock=locked, files={"w/p": "1", "w/q": "1"})
    assert StageTree(here, "s").listed("w/*") == ("w/p",)


# ---- the rest -----------------------------------------------------------------------------------


def test_bytes_are_known_by_any_record_at_that_path(state):
    here = state(LAST, lock=(record("a", o="locked"),), kept=(record("b", o="kept"),))
    assert here.ownership.is_known("o", entry("locked"))
    assert here.ownership.is_known("o", entry("kept"))
    assert not here.ownership.is_known("o", entry("other"))
    assert not here.ownership.is_known("elsewhere", entry("locked"))


def test_files_that_a_dry_run_expects_are_on_its_disk(state):
    here = state(LAST, files={"o": "old"})
    assert here.on_disk("o") == entry("old")
    here.expected["o"] = entry("new")
    here.expected["gone"] = None
    assert here.on_disk("o") == entry("new")
    assert here.on_disk("gone") is None


def test_the_tree_of_a_stage_is_its_view(state):
    here = state(stage("a", (), ("o",)), stage("b", ("o",), ("p",)), files={"x": "1"})
    here.settle("a", record("a", o="made"))
    tree = StageTree(here, "b")
    assert tree.entry("o") == entry("made")
    assert list(tree.matching("*")) == ["o", "x"]
    assert tree.listed("*") == ("x",)
    assert tree.versions() == {}
    assert tree.read("x", entry("1")) == b"1"
