"""Some hundred and fifty malformed inputs, each through the command line: one complaint, at its place, nothing else."""

import pytest

from tests.hostile.holding import Case, hold
from tests.hostile.pipelines import PIPELINES
from tests.project import Project

KINDS: dict[str, dict[str, Case]] = {
    "pipeline": PIPELINES,
}
CASES = [pytest.param(case, id=f"{kind}: {name}") for kind, cases in KINDS.items() for name, case in cases.items()]


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_input_is_told_once_and_does_nothing(project: Project, case: Case) -> None:
    hold(project, case)
