"""Histories of shared files, by seed: a sample in every run, thousands in `make thorough`."""

import pytest

from tests.shared_files.play import Played, play, script
from tests.shared_files.setup import Setup, Step, edit_history, history

SAMPLE = range(4)
THOROUGH = range(4, 2004)
ITEMS = ((("z", "p"), ("y", "p"), ("x", "q")), (("y", "p"), ("x", "r"), ("z", "r")))


def check(setup: Setup, steps: list[Step]) -> Played:
    played = play(setup, steps)
    assert not played.broken, f"{played.broken}\n{script(setup, steps)}"
    return played


@pytest.mark.slow
@pytest.mark.stride(2)
@pytest.mark.parametrize("seed", SAMPLE)
def test_no_edit_is_lost_and_a_build_does_what_the_rules_say(seed):
    check(*history(seed))


@pytest.mark.slow
@pytest.mark.stride(2)
@pytest.mark.parametrize("seed", SAMPLE)
def test_no_edit_is_lost_by_stages_with_edits(seed):
    check(*edit_history(seed))


@pytest.mark.slow
def test_a_released_file_that_a_user_saves_again_is_not_replaced():
    """The program leaves it as it is: it is not taken back to what the run before started from."""
    steps = [("build", "a"), ("release", "tidy"), ("spec", "tidy", "q"), ("build", "a"), ("edit", "tidy/a.py")]
    check(Setup(slots=("tidy",)), [*steps, ("delete", "tidy/made.py"), ("build", "a")])


@pytest.mark.slow
def test_a_file_that_a_user_deleted_is_not_brought_back_by_an_older_lock_file():
    """The lock file of an earlier commit names it, and is read before a stage with a file of the user runs."""
    steps = [("build", "a"), ("delete", "tidy/b.py"), ("commit", "all"), ("spec", "tidy", "r"), ("build", "a")]
    check(Setup(slots=("tidy",)), [*steps, ("format", "tidy"), ("commit", "sources"), ("build", "a")])


@pytest.mark.slow
def test_a_file_that_a_user_deleted_is_not_brought_back_by_a_renamed_program():
    steps = [("build", "a"), ("rename", "tidy"), ("delete", "tidy/a.py"), ("spec", "tidy", "q"), ("build", "a")]
    check(Setup(slots=("tidy",)), steps)


@pytest.mark.slow
def test_a_file_saved_where_a_model_deleted_one_stops_the_next_run():
    steps = [("spec", "work", "a p|b delete it"), ("build", "a"), ("edit", "work/near/b.py"), ("reset", "--outputs")]
    check(Setup(slots=("work",)), [*steps, ("build", "a")])


@pytest.mark.slow
def test_a_file_that_was_released_before_a_reset_is_a_source_after_it():
    """The store keeps a part of the result of its former stage, and the lock file of `reset` does not name it."""
    setup = Setup(slots=("par",), two=True)
    steps = [("build", "a"), ("items", "par", (("y", "r"), ("z", "r"))), ("branch", "two"), ("build", "a")]
    check(setup, [*steps, ("reset", ""), ("items", "par", (("y", "p"), ("x", "q"))), ("build", "a")])


@pytest.mark.slow
@pytest.mark.parametrize(("slot", "first", "second"), [("feature", "p", "q"), ("work", "a p", "a p|b q")])
def test_after_reset_a_result_is_not_the_base_of_its_own_stage(slot, first, second):
    """The record of the committed result that it started from is gone, so the original seems to be unknown to it."""
    steps = [("build", "a"), ("commit", "all"), ("spec", slot, second), ("build", "a"), ("reset", "")]
    check(Setup(slots=(slot,)), [*steps, ("spec", slot, first), ("build", "a")])


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["switch", "drop"])
def test_a_saved_file_that_an_ended_program_created_is_a_source_at_once(ends):
    """The model is shown it in the build that releases it, and is not called again in the next one."""
    steps = [("build", "a"), (ends, "polish"), ("spec", "work", "a p|b q"), ("edit", "work/near/made.py")]
    check(Setup(slots=("work", "polish")), [*steps, ("build", "a")])


@pytest.mark.slow
def test_a_file_that_the_last_item_of_another_branch_made_is_no_edit_of_todays_last_item():
    """The lock file is deleted in the merge, so only committed ones say which item made it."""
    theirs, mine = ((("items", "chain", items), ("build", "a")) for items in ITEMS)
    steps = [("build", "a"), ("merge", theirs, mine, "deleted", "theirs"), ("build", "a")]
    check(Setup(slots=("chain",)), steps)


@pytest.mark.slow
def test_a_deleted_file_that_a_model_leaves_out_of_its_next_result_comes_back_before_a_program_too():
    """Without it, the model would be called again in the next build: it was shown the file."""
    steps = [("build", "a"), ("delete", "work/near/a.py"), ("spec", "work", "n q"), ("build", "a")]
    check(Setup(slots=("work", "polish")), steps)


@pytest.mark.slow
def test_a_stage_that_is_done_is_not_fresh_under_another_name():
    """Its files were taken back before the commit, so the new stage has all to do."""
    steps = [("build", "a"), ("clean", ""), ("commit", "all"), ("rename", "tidy"), ("build", "a")]
    check(Setup(slots=("tidy",), keys=(("tidy", "once"),)), steps)


@pytest.mark.slow
def test_a_file_that_a_model_deletes_stays_deleted_if_a_later_program_had_changed_it():
    check(Setup(slots=("work", "polish")), [("build", "a"), ("spec", "work", "a p|b delete it"), ("build", "a")])


@pytest.mark.slow
def test_a_result_of_once_that_only_the_store_has_owns_no_file():
    """Its stage was released and renamed, so no lock file has it: the new stage would have its original as the base."""
    steps = [("build", "a"), ("spec", "tidy", "q"), ("build", "a"), ("build", "a", "--overwrite-edited")]
    steps += [("release", "tidy"), ("rename", "tidy"), ("release", "work"), ("build", "a")]
    check(Setup(slots=("work", "tidy"), keys=(("tidy", "once"),)), steps)


@pytest.mark.slow
def test_a_plan_knows_that_a_stage_may_start_from_a_committed_edit():
    """The item before it has to run, so the plan cannot decide it: in a clone, the bytes that it made are lost."""
    items = ("items", "chain", (("x", "p"), ("y", "q"), ("z", "p")))
    steps = [("build", "a"), ("edit", "src/app.py"), items, ("commit", "outputs"), ("clone", "bare"), ("build", "a")]
    check(Setup(slots=("chain",)), steps)


@pytest.mark.slow
def test_the_edit_that_a_withheld_result_started_from_is_not_its_result():
    """The group passes in the third build: the file then has what the model made of the edit for the new item."""
    passing, failing = (("items", "par", (("x", text), ("y", "q"))) for text in ("p", "bad"))
    steps = [("build", "a"), ("edit", "tests/test_y.py"), ("commit", "all"), failing, ("build", "a"), passing]
    check(Setup(slots=("par",), together=True), [*steps, ("build", "a")])


@pytest.mark.slow
def test_an_accepted_edit_of_a_later_item_stays_when_the_format_changes():
    """Without a call, the first item would be formatted again and the second run again, without the edit."""
    steps = [("build", "a"), ("edit", "src/app.py"), ("accept", "chain"), ("key", "chain", "format"), ("build", "a")]
    check(Setup(slots=("chain",)), steps)


@pytest.mark.slow
def test_two_branches_may_rename_a_stage_to_the_same_name():
    """Git keeps the blocks of both in the lock file, without a conflict."""
    theirs, mine = (("edit", "build/page.txt"), ("build", "a")), (("spec", "feature", "q"), ("build", "a"))
    steps = [("build", "a"), ("rename", "feature"), ("merge", theirs, mine, "theirs", "ours"), ("build", "a")]
    check(Setup(slots=("feature", "page"), together=True, two=True), steps)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", [THOROUGH[start : start + 100] for start in range(0, len(THOROUGH), 100)])
def test_no_edit_is_lost_in_thousands_of_histories(seeds):
    for seed in seeds:
        check(*history(seed))
        check(*edit_history(seed))
