"""What a result changes of the project: in which order, whose files stay, what the lock file says then."""

from typing import Any

import pytest
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.stage_view import StageTree
from orch23.engine.result_writer import ResultWriter, WorkspaceChange
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.pipeline import ChainLink, WriteScope
from orch23.model.plan import Fresh
from orch23.model.record import LockFile, Record
from orch23.resolve.resolution import ResolvedStage
from tests.unit.engine.rig import Project, each, entry, stage


class Bench:
    """A writer over a project; `log` is what was made durable, in that order."""

    def __init__(self, *nodes: Any, **more: Any) -> None:
        self.project = Project(*nodes, **more)
        self.store, self.disk = self.project.store, self.project.disk
        self.log: list[str] = []
        self.open()
        self.store.log = self.store.records.log = self.log

    def open(self, **more: Any) -> None:
        self.opened: OpenPipeline = self.project.opened(**more)
        self.writer = ResultWriter(self.opened)

    def resolved(self, name: str) -> ResolvedStage:
        return self.opened.decider.decide(name).resolved

    def done(self, **texts: str) -> StageResult:
        outputs = {path.replace("__", "/"): FileEntry(self.store.contents.put(t.encode())) for path, t in texts.items()}
        return StageResult(outputs=outputs, deleted=(), exchanges=(), attempts=1)

    def promote(self, name: str, record: Record) -> WorkspaceChange:
        change = self.writer.change({name: record})
        self.writer.promote({name: record}, change)
        return change

    def record(self, name: str, **texts: str) -> Record:
        return self.writer.keep(self.resolved(name), self.done(**texts))


# ---- the order ----------------------------------------------------------------------------------------


def test_a_record_is_durable_after_all_of_its_bytes_and_before_the_workspace_changes() -> None:
    bench = Bench(stage("a"), stage("b", "a"))
    bench.record("a", a="made")
    assert bench.log == ["synced", "recorded"]
    assert StageTree(bench.opened.state, "b").version("a") == entry("made"), "other stages see it"
    assert bench.disk.files == {}


def test_a_cheap_result_is_seen_and_counted_with_and_lasts_once_it_is_made_to() -> None:
    bench = Bench(stage("a"), stage("b", "a"))
    record = bench.writer.keep_for_later(bench.resolved("a"), bench.done(a="made"))
    assert (bench.log, bench.store.records.all) == ([], [record])
    state = bench.opened.state
    assert (StageTree(state, "b").version("a"), state.on_disk("a")) == (entry("made"), entry("made"))
    bench.writer.opened.store.sync()
    assert bench.log == ["synced"]
    bench.promote("a", record)
    assert (state.expected, bench.disk["a"]) == ({}, "made")


def test_a_record_that_only_the_lock_file_has_is_kept_where_that_is_trusted() -> None:
    for trusts, log in ((False, []), (True, ["recorded"])):
        bench = Bench(stage("a"))
        bench.open(trusts_lock=trusts)
        bench.writer.store_trusted_record(bench.resolved("a"), Record(stage="a", key="k", manifest={}))
        assert bench.log == log


# ---- whose files stay ---------------------------------------------------------------------------------


def test_an_unrecorded_file_stays_and_a_recorded_one_is_replaced() -> None:
    bench = Bench(stage("a"), files={"a": "by hand"})
    record = bench.record("a", a="made")
    change = bench.promote("a", record)
    assert (change.foreign, bench.disk["a"]) == (("a",), "by hand")
    bench.store.records.put(replace(record, key="older", outputs={"a": entry("by hand")}))
    assert bench.promote("a", record).foreign == ()
    assert bench.disk["a"] == "made"


def test_with_overwrite_edited_a_users_file_is_replaced_and_its_bytes_are_kept_for_ever() -> None:
    bench = Bench(stage("a"), files={"a": "by hand"})
    bench.open(overwrite_edited=True)
    bench.promote("a", bench.record("a", a="made"))
    assert bench.disk["a"] == "made"
    assert bench.store.exchanges.originals == {entry("by hand").digest.sha256: b"by hand"}


def test_the_bytes_of_a_run_that_are_replaced_are_in_the_store() -> None:
    bench = Bench(stage("a"))
    bench.promote("a", bench.record("a", a="one"))
    bench.store.forget_bytes("one")
    bench.promote("a", bench.record("a", a="two"))
    assert bench.store.contents.get(entry("one").digest) == b"one"
    assert bench.store.exchanges.originals == {}, "they are no user's"


def test_accepted_bytes_of_another_stage_stay() -> None:
    bench = Bench(stage("a"), files={"a": "accepted"})
    accepted = Record(stage="gone", key="x", manifest={}, outputs={"a": entry("accepted")}, accepted=("a",))
    bench.store.records.put(accepted)
    bench.open()
    assert bench.promote("a", bench.record("a", a="made")).foreign == ("a",)
    bench.project.lock = LockFile({"a": replace(accepted, stage="a")})
    bench.open()
    assert bench.promote("a", bench.record("a", a="made")).foreign == (), "its own stage replaces them"


def test_the_original_of_a_chain_is_replaced_by_its_result() -> None:
    bench = Bench(stage("c", chain=ChainLink(chain="c", index=0)), files={"c": "version 0"})
    record = bench.record("c", c="version 1")
    assert record.originals == {"c": entry("version 0")}
    assert b"version 0" in bench.store.exchanges.originals.values(), "it outlives the store"
    assert bench.promote("c", record).foreign == ()
    assert bench.disk["c"] == "version 1"


@pytest.mark.parametrize(("path", "declared"), [(".github/ci.yml", False), (".github/ci.yml", True), ("d/x", False)])
def test_a_protected_path_is_changed_only_if_a_stage_declares_it(path: str, *, declared: bool) -> None:
    outputs = (path,) if declared else ("d/",)
    bench = Bench(stage("a", writes=outputs, fence=WriteScope(("**",))))
    record = bench.record("a", **{path: "x"})
    change = bench.promote("a", record)
    is_refused = path != "d/x" and not declared
    assert (path in change.refused, path in bench.disk.files) == (is_refused, not is_refused)
    assert bench.writer.is_in_place("a", record) is False, "the lock file that was read does not have it"


def test_lost_bytes_of_a_change_are_found_before_it_is_made() -> None:
    bench = Bench(stage("a"))
    record = bench.record("a", a="made")
    bench.store.forget_bytes("made", damaged=True)
    change = bench.writer.change({"a": record})
    with pytest.raises(MissingBytesError):
        bench.writer.ensure_stored(change.new)
    with pytest.raises(MissingBytesError):
        bench.writer.withhold("a", record)


# ---- failures, and the end of stages ------------------------------------------------------------------


def test_outputs_not_yet_written_by_a_failed_program_are_not_removed() -> None:
    for partial, left in ((True, {"one", "two"}), (False, {"one"})):
        bench = Bench(stage("a", writes=("one", "two")))
        lock = Record(stage="a", key="k", manifest={}, outputs={"one": entry("1"), "two": entry("2")})
        bench.store.records.put(lock)
        bench.project.lock = LockFile({"a": lock})
        bench.disk["one"], bench.disk["two"] = "1", "2"
        bench.open()
        bench.writer.keep_failure(bench.resolved("a"), replace(bench.done(one="new"), partial=partial))
        assert set(bench.disk.files) == left
        assert [record.failed for record in bench.store.records.labelled("a")] == [True, False]


def test_a_file_of_an_ended_stage_stays_if_its_bytes_cannot_be_had_again() -> None:
    bench = Bench(stage("a"), files={"old": "x", "changed": "since"})
    buried = bench.writer.remove_obsolete({"old": None, "changed": entry("before")})
    assert (buried.edited, buried.removed, set(bench.disk.files)) == (("changed",), (), {"old", "changed"})
    made = {"old": entry("x"), "changed": entry("since")}
    bench.store.records.put(Record(stage="gone", key="k", manifest={}, outputs=made))
    buried = bench.writer.remove_obsolete({"old": None, "changed": entry("before")})
    assert (buried.edited, buried.removed, bench.disk.files) == (("changed",), ("old",), {"changed": b"since"})


# ---- the record ---------------------------------------------------------------------------------------


def test_a_verified_result_keeps_its_accepted_outputs_and_a_new_one_does_not() -> None:
    bench = Bench(stage("a", writes=("one", "two")))
    before = Record(stage="a", key="k", manifest={}, outputs={"one": entry("1"), "two": entry("2")}, accepted=("one",))
    bench.store.records.put(before)
    done = bench.done(one="1", two="2")
    verified = replace(done, attempts=0, verified=True)
    assert bench.writer.keep(bench.resolved("a"), verified).accepted == ("one",)
    assert bench.writer.keep(bench.resolved("a"), done).accepted == ()


def test_a_claim_that_was_found_to_hold_is_recorded_as_it_is() -> None:
    bench = Bench(stage("a"))
    claim = Record(stage="other name", key="of then", manifest={"x": 1}, outputs={"a": entry("x")})
    kept = bench.writer.keep(bench.resolved("a"), replace(bench.done(a="x"), claim=claim))
    assert kept == replace(claim, stage="a", pipeline="p.yaml")


def test_a_record_has_the_git_ids_of_its_outputs_so_that_git_can_give_them_back() -> None:
    bench = Bench(stage("a"))
    record = bench.record("a", a="hello\n")
    assert record.git == {entry("hello\n").digest.sha256: "ce013625030ba8dba906f756967f9e9ca394464a"}


def test_only_stages_that_did_something_count_as_run() -> None:
    bench = Bench(stage("a"), stage("b"))
    bench.record("a", a="made")
    bench.writer.keep(bench.resolved("b"), replace(bench.done(b="x"), attempts=0))
    assert bench.opened.state.ran == {"a"}


def test_changed_inputs_are_named() -> None:
    bench = Bench(stage("a", "src", "same"), files={"src": "1", "same": "1"})
    resolved = bench.resolved("a")
    assert bench.writer.changed_inputs(resolved, resolved.manifest) == ()
    bench.disk["src"] = "2"
    assert bench.writer.changed_inputs(resolved, resolved.manifest) == ("src",)
    # With a depfile, not all inputs are in the manifest of the result.
    assert bench.writer.changed_inputs(resolved, {"input:same": "1"}) == ()


# ---- the lock file --------------------------------------------------------------------------------------


def lock_of(*names: str) -> LockFile:
    return LockFile({name: Record(stage=name, key=f"old {name}", manifest={}) for name in names})


def test_the_lock_file_has_new_green_results_and_keeps_other_records() -> None:
    bench = Bench(stage("a"), stage("b"), stage("c"))
    bench.project.lock = lock_of("b", "c", "gone")
    bench.open()
    for name in "ab":
        bench.promote(name, bench.record(name, **{name: "made"}))
    bench.writer.write_lock({"a"}, complete=False)
    keys = {name: record.key for name, record in bench.project.lock.records.items()}
    assert set(keys) == {"a", "b", "c", "gone"}
    assert [keys[name].startswith("old") for name in ("a", "b", "c")] == [False, True, True]


def test_once_everything_is_green_the_lock_file_forgets_stages_that_have_ended() -> None:
    bench = Bench(stage("a"), each("e", source="list"), stage("list"))
    bench.project.lock = lock_of("gone", "e@x", "gone@x")
    bench.open()
    bench.writer.write_lock({"a"}, complete=True)
    assert set(bench.project.lock.records) == {"e@x"}, "its foreach may have that item yet"


def test_records_retained_by_reset_are_dropped_once_the_stage_has_a_new_record() -> None:
    bench = Bench(stage("a"), stage("b"))
    retained = {name: Record(stage=name, key="k", manifest={}, failed=True) for name in ("a", "b", "gone")}
    bench.project.lock = LockFile({}, retained)
    bench.open()
    bench.promote("a", bench.record("a", a="made"))
    bench.writer.write_lock({"a"}, complete=False)
    assert set(bench.project.lock.retained) == {"b", "gone"}
    bench.writer.write_lock({"a"}, complete=True)
    assert set(bench.project.lock.retained) == {"b"}


def test_a_result_is_in_place_if_lock_file_and_workspace_have_it() -> None:
    project = Project(stage("a"))
    project.build()
    writer = ResultWriter(project.opened())
    record = project.lock.records["a"]
    assert writer.is_in_place("a", record)
    assert isinstance(project.plan()["a"], Fresh)
    del project.disk.files["a"]
    assert not writer.is_in_place("a", record)
    assert not writer.is_in_place("a", replace(record, key="another"))
