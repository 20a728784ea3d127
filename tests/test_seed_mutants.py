"""Each row of docs/seeds.md names a test that fails without what the row promises: the code is changed to see it."""

from collections.abc import Iterator

import pytest

from tests.mutants import Copy, Mutant
from tests.seed_mutants import MUTANTS
from tests.test_seeds import ROWS

PROOFS = {row.number: [proof.strip("`") for proof in row.proofs] for row in ROWS}


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


def test_every_row_that_has_a_proof_has_a_mutant() -> None:
    assert list(MUTANTS) == [number for number, proofs in PROOFS.items() if proofs]
    assert all(MUTANTS.values())


@pytest.mark.needs("inspecting", "upkeep")
@pytest.mark.needs("vendors")
def test_every_mutant_can_be_made() -> None:
    wrong = []
    for number, mutants in MUTANTS.items():
        for mutant in mutants:
            try:
                mutant.applied()
            except AssertionError as why:
                wrong.append(f"{number}: {why}")
    assert wrong == []


@pytest.mark.parametrize(("old", "times"), [("no such text" + "!", 0), ("def ", 2)])
def test_a_text_that_is_not_there_once_is_no_mutant(old: str, times: int) -> None:
    with pytest.raises(AssertionError, match="0 times" if times == 0 else r"\d times"):
        Mutant("tests/mutants.py", old, "").applied()


def _each() -> Iterator[object]:
    for number, mutants in MUTANTS.items():
        for position, mutant in enumerate(mutants):
            yield pytest.param(number, mutant, id=f"{number}-{position}")


@pytest.mark.thorough
@pytest.mark.parametrize("number", list(MUTANTS))
def test_the_tests_of_a_row_pass(copy: Copy, number: str) -> None:
    """In a copy that nothing was changed in: else what comes next would prove nothing."""
    assert copy.passes(PROOFS[number])


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "mutant"), list(_each()))
def test_a_test_of_a_row_fails_without_what_the_row_promises(copy: Copy, number: str, mutant: Mutant) -> None:
    assert not copy.passes(PROOFS[number], mutant)


@pytest.mark.thorough
def test_a_change_that_takes_nothing_is_not_noticed(copy: Copy) -> None:
    same = Mutant(
        "orch23/store/run_state.py",
        "    if move not in LEGAL_TRANSITIONS[stage.state]:",
        "    if not move in LEGAL_TRANSITIONS[stage.state]:",
    )
    assert copy.passes(PROOFS["S1-02"], same)
