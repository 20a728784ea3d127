"""Freshness: the order of the questions, the reasons, and which aspect gives which reason."""

import pytest

from orch23.decide.freshness import Candidate, DecisionFacts, change_reasons, decide, mismatched_paths
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.plan import Edited, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Reason, Record, key_of
from tests.calls import counted_calls

A, B = FileEntry(digest_bytes(b"a")), FileEntry(digest_bytes(b"b"))
MANIFEST = {"kind": "shell", "command": "make", "input:x": "1", "verify": ["t"]}


def record(manifest=MANIFEST, outputs=None, **more):
    return Record(stage="s", key=key_of(manifest), manifest=manifest, outputs=outputs or {"o": A}, **more)


def candidate(one, *, target=None, is_available=True, claim=False):
    wanted = one.outputs if target is None else target
    return Candidate(record=one, target=wanted, is_available=is_available, is_claim=claim)


def known(**facts):
    return DecisionFacts(**{"stage": "s", "manifest": MANIFEST, **facts})


def codes(decision):
    return [r.code for r in decision.reasons]


def test_a_stage_without_a_record_runs_for_the_first_time():
    assert codes(decide(known())) == ["first_run"]


def test_a_stage_that_failed_and_has_no_record_runs_because_it_failed():
    assert codes(decide(known(failed_before=True))) == ["previous_failed"]


def test_a_stage_is_fresh_where_the_disk_equals_a_record_of_todays_key():
    one = record()
    assert decide(known(current=(candidate(one),), previous=one, disk={"o": A})) == Fresh(one)


def test_the_first_record_wins_where_several_would_do_and_any_of_them_makes_fresh():
    first, second = record(outputs={"o": A}), record(outputs={"o": B})
    current = (candidate(first), candidate(second))
    assert decide(known(current=current, disk={"o": B})) == Fresh(second)
    restored = decide(known(current=current, disk={"o": None}))
    assert isinstance(restored, Restore)
    assert restored.record == first


@pytest.mark.parametrize("there", [A, B, None])
def test_a_claim_is_verified_wherever_its_record_would_be_fresh_or_restored(there):
    one = record()
    claim = candidate(one, claim=True)
    decision = decide(known(current=(claim,), previous=one, disk={"o": there}))
    assert decision == VerifyOnly(one, (Reason("claim"),), claim=True)
    assert decision.is_final


def test_a_proven_record_that_is_on_the_disk_is_fresh_beside_a_claim():
    claimed, proven = record(outputs={"o": A}), record(outputs={"o": B})
    current = (candidate(claimed, claim=True), candidate(proven))
    assert decide(known(current=current, disk={"o": B})) == Fresh(proven)


def test_a_claim_without_bytes_does_not_count():
    one = record()
    unobtainable = candidate(one, is_available=False, claim=True)
    assert isinstance(decide(known(current=(unobtainable,), previous=one, disk={"o": None})), Run)


def test_a_missing_output_is_restored_with_that_reason():
    one = record()
    decision = decide(known(current=(candidate(one),), previous=one, disk={"o": None}))
    assert isinstance(decision, Restore)
    assert [(r.code, r.subject) for r in decision.reasons] == [("output_missing", "o")]


def test_other_bytes_at_an_output_are_restored_over_and_named_with_old_and_new():
    one = record()
    decision = decide(known(current=(candidate(one),), previous=one, disk={"o": B}))
    assert isinstance(decision, Restore)
    assert [(r.code, r.old, r.new) for r in decision.reasons] == [("output_edited", str(A), str(B))]


def test_a_stage_runs_where_the_bytes_of_its_records_are_lost():
    one = record()
    decision = decide(known(current=(candidate(one, is_available=False),), previous=one, disk={"o": None}))
    assert isinstance(decision, Run)
    assert codes(decision) == ["output_missing"]


def test_a_record_whose_needed_version_is_lost_does_not_make_fresh():
    """A later item of the chain starts from a version that no one has any more: it has to be made again."""
    one = record()
    assert isinstance(decide(known(current=(candidate(one, is_available=False),), previous=one, disk={"o": A})), Run)


def test_a_file_that_the_last_result_owned_and_this_one_lacks_must_be_gone():
    one = record()
    current = (candidate(one, target={"o": A, "dropped": None}),)
    assert isinstance(decide(known(current=current, disk={"o": A, "dropped": B})), Restore)
    assert isinstance(decide(known(current=current, disk={"o": A, "dropped": None})), Fresh)


def test_a_users_file_where_the_target_has_none_is_left_alone():
    one = record()
    current = (candidate(one, target={"o": A, "dropped": None}),)
    disk = {"o": A, "dropped": B}
    assert isinstance(decide(known(current=current, disk=disk, foreign=frozenset({"dropped"}))), Fresh)
    assert mismatched_paths({"o": A}, {"o": B}, frozenset({"o"})) == ("o",)


def test_only_a_changed_verification_is_verified():
    then = record({**MANIFEST, "verify": ["old"]})
    decision = decide(known(same_core=candidate(then), previous=then, disk={"o": A}))
    assert isinstance(decision, VerifyOnly)
    assert codes(decision) == ["verify_changed"]


def test_a_result_that_cannot_be_had_is_not_verified_but_made():
    then = record({**MANIFEST, "verify": ["old"]})
    assert isinstance(decide(known(same_core=candidate(then, is_available=False), previous=then)), Run)


def test_a_record_of_todays_key_goes_before_one_of_the_same_core():
    one, then = record(), record({**MANIFEST, "verify": ["old"]}, outputs={"o": B})
    facts = known(current=(candidate(one),), same_core=candidate(then), disk={"o": B})
    assert isinstance(decide(facts), Restore)


@pytest.mark.parametrize(("facts", "reason"), [({"forced": True}, "forced"), ({"cacheable": False}, "cache_disabled")])
def test_a_forced_or_uncacheable_stage_runs_although_it_is_fresh(facts, reason):
    one = record()
    assert codes(decide(known(current=(candidate(one),), disk={"o": A}, **facts))) == [reason]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (record(), ["tool_cache_empty"]),
        (record({**MANIFEST, "salt": "then"}), ["salt_changed", "tool_cache_empty"]),
        (None, ["first_run"]),
    ],
)
def test_a_stage_that_has_to_fill_a_cache_runs_although_it_is_fresh(then, expected):
    one = record()
    facts = known(current=(candidate(one),), previous=then, disk={"o": A}, empty_caches=("npm",))
    assert codes(decide(facts)) == expected


def test_an_edit_goes_before_everything():
    one = record()
    facts = known(edited=("o",), forced=True, current=(candidate(one),), disk={"o": A}, pending_upstream=("up",))
    assert decide(facts) == Edited(("o",))


def test_an_edit_leaves_the_stage_in_place_if_there_is_a_record_of_todays_key():
    one = record(outputs={"o": A, "p": A})
    decision = decide(known(edited=("o",), current=(candidate(one),), disk={"o": B, "p": A}))
    assert decision == Edited(("o",), record=one)


@pytest.mark.parametrize("facts", [{"forced": True}, {"cacheable": False}, {"disk": {"o": B, "p": None}}])
def test_an_edited_stage_that_has_more_to_do_is_not_in_place(facts):
    one = record(outputs={"o": A, "p": A})
    decision = decide(known(**{"edited": ("o",), "current": (candidate(one),), "disk": {"o": B, "p": A}, **facts}))
    assert decision == Edited(("o",))


def test_a_decided_edit_is_verified_as_it_is_on_disk():
    one = record(outputs={"o": A, "p": A})
    decision = decide(known(edited=("o",), is_committed=True, current=(candidate(one),), disk={"o": B, "p": A}))
    assert isinstance(decision, VerifyOnly)
    assert decision.adopted == ("o",)
    assert decision.record.outputs == {"o": B, "p": A}


def test_a_decided_edit_of_a_stage_that_has_to_run_is_not_verified():
    assert decide(known(edited=("o",), is_committed=True, disk={"o": B})) == Edited(("o",))


def test_a_decided_edit_behind_a_stage_that_has_to_run_may_be_what_a_run_starts_from():
    decision = decide(known(edited=("o",), is_committed=True, pending_upstream=("up",), disk={"o": B}))
    assert isinstance(decision, Run)
    assert decision.edits == Edited(("o",))


@pytest.mark.parametrize("facts", [{}, {"forced": True}, {"cacheable": False}])
def test_the_result_of_a_stage_without_a_base_that_has_to_run_is_compared_with_the_edit(facts):
    decision = decide(known(edited=("o",), is_compared=True, disk={"o": B}, **facts))
    assert isinstance(decision, Run)
    assert decision.edits == Edited(("o",))


def test_an_edited_stage_that_may_not_have_to_run_may_end_as_edited():
    one = record({**MANIFEST, "input:x": "2"})
    facts = {"pending_upstream": ("up",), "uncertain": ("x",), "possible": (one,), "previous": one}
    decision = decide(known(edited=("o",), is_compared=True, disk={"o": B}, **facts))
    assert isinstance(decision, Maybe)
    assert decision.edits == Edited(("o",))


@pytest.mark.parametrize("on_disk", [{"o": B, "p": A}, {"o": B, "p": None}])
def test_no_result_is_compared_with_an_edit_if_the_stage_need_not_run(on_disk):
    one = record(outputs={"o": A, "p": A})
    decision = decide(known(edited=("o",), is_compared=True, current=(candidate(one),), disk=on_disk))
    assert isinstance(decision, Edited)


def test_a_file_that_no_stage_has_written_is_not_called_an_edit():
    decision = decide(known(edited=("o", "p"), existed=frozenset({"p"})))
    assert isinstance(decision, Edited)
    assert decision.descriptions == ("edited by hand: o", "existed before the stage first ran: p")


def test_a_stage_is_maybe_where_upstream_may_give_it_a_recorded_key():
    one = record({**MANIFEST, "input:x": "2"})
    facts = known(pending_upstream=("up",), uncertain=("x",), possible=(one,), previous=one)
    decision = decide(facts)
    assert isinstance(decision, Maybe)
    assert [(r.code, r.subject) for r in decision.reasons] == [("upstream_maybe", "up")]


def test_many_inputs_from_many_uncertain_stages_are_not_compared_pairwise():
    def calls(count):
        paths = [f"out/{count}/{number}" for number in range(count)]  # no cache knows them
        one = record({**MANIFEST, **{f"input:{path}": "1" for path in paths}})
        facts = known(pending_upstream=("up",), uncertain=tuple(paths), possible=(one,), previous=one)
        with counted_calls() as counted:
            assert isinstance(decide(facts), Maybe)
        return counted[0]

    assert calls(200) < 5 * calls(50)


def test_a_stage_with_a_reason_of_its_own_runs_whatever_upstream_writes():
    one = record({**MANIFEST, "command": "other"})
    assert "command_changed" in codes(
        decide(known(pending_upstream=("up",), uncertain=("x",), possible=(one,), previous=one))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aspect", "code", "subject"),
    [
        ("input:a/b", "input_changed", "a/b"),
        ("slice:s.md#H", "input_changed", "s.md#H"),
        ("list:src/**", "input_changed", "src/**"),
        ("item", "input_changed", "item"),
        ("requires:file_exists:p", "input_changed", "file_exists:p"),
        ("base:w/a", "base_changed", "w/a"),
        ("kind", "command_changed", "kind"),
        ("command", "command_changed", "command"),
        ("outputs", "command_changed", "outputs"),
        ("fence", "command_changed", "fence"),
        ("cwd", "command_changed", "cwd"),
        ("scratch", "command_changed", "scratch"),
        ("network", "command_changed", "network"),
        ("prompt", "prompt_changed", "prompt"),
        ("system", "prompt_changed", "system"),
        ("provider", "model_changed", "provider"),
        ("model", "model_changed", "model"),
        ("endpoint", "model_changed", "endpoint"),
        ("params", "params_changed", "params"),
        ("returns", "params_changed", "returns"),
        ("context", "params_changed", "context"),
        ("schema", "schema_changed", "schema"),
        ("env:A", "env_changed", "A"),
        ("python", "tool_changed", "python"),
        ("pytest", "tool_changed", "pytest"),
        ("tool:gcc", "tool_changed", "gcc"),
        ("salt", "salt_changed", "salt"),
        ("action_format", "salt_changed", "action_format"),
        ("verify", "verify_changed", "verify"),
        ("verify.all", "verify_changed", "verify.all"),
        ("verify.input:t", "verify_changed", "verify.input:t"),
        ("ensures", "verify_changed", "ensures"),
    ],
)
def test_every_aspect_has_its_reason(aspect, code, subject):
    (reason,) = change_reasons({aspect: "old"}, {aspect: "new"})
    assert (reason.code, reason.subject, reason.old, reason.new) == (code, subject, "old", "new")


@pytest.mark.parametrize(
    ("then", "now", "code"), [({}, {"input:a": "1"}, "input_added"), ({"input:a": "1"}, {}, "input_removed")]
)
def test_inputs_come_and_go(then, now, code):
    assert [r.code for r in change_reasons(then, now)] == [code]


def test_reasons_of_inputs_come_first():
    then, now = {"command": "1", "input:z": "1", "base:y": "1"}, {"command": "2", "input:z": "2", "base:y": "2"}
    assert [r.code for r in change_reasons(then, now)] == ["base_changed", "input_changed", "command_changed"]


def test_provider_and_model_come_before_what_follows_from_them():
    then = {"api": "1", "command": "1", "endpoint": "1", "model": "1", "params": "1", "provider": "1"}
    found = [r.subject for r in change_reasons(then, dict.fromkeys(then, "2"))]
    assert found == ["provider", "model", "command", "api", "endpoint", "params"]
    assert change_reasons({**then, "input:a": "1"}, dict.fromkeys((*then, "input:a"), "2"))[0].subject == "a"


def test_an_earlier_result_is_restored_for_what_changed_since_the_last_one():
    one, last = record(), record({**MANIFEST, "input:x": "2"}, outputs={"o": B})
    decision = decide(known(current=(candidate(one),), previous=last, disk={"o": B}))
    assert isinstance(decision, Restore)
    assert [(r.code, r.subject, r.old, r.new) for r in decision.reasons] == [("input_changed", "x", "2", "1")]
