"""Mistakes in the text of a pipeline and on the command line, each held to the text that the user sees."""

from pathlib import Path

import pytest

from tests.e2e.document_mistakes import DOCUMENTS, KEY, MORE, SECRETS
from tests.e2e.first_hour import Mistake
from tests.e2e.test_first_hour import run
from tests.gold import Golden
from tests.project import Project

pytestmark = pytest.mark.needs("vendors")

SERVER = "http://127.0.0.1:9/v1"


@pytest.mark.slow
@pytest.mark.stride(11)
@pytest.mark.parametrize("mistake", [*SECRETS, *DOCUMENTS, *MORE], ids=lambda one: one.id)
def test_a_mistake_is_answered_with_place_cause_and_way_out(mistake: Mistake, tmp_path: Path, golden: Golden) -> None:
    golden.check(f"mistakes/{mistake.id}.txt", run(mistake, tmp_path / "app", tmp_path / "home", SERVER))


@pytest.mark.parametrize("style", ["full", "concise", "json", "github", "sarif"])
@pytest.mark.parametrize("mistake", SECRETS, ids=lambda one: one.id)
def test_a_secret_in_a_pipeline_is_not_printed(project: Project, mistake: Mistake, style: str) -> None:
    mistake.prepare(project.root, project.home, SERVER)
    refused = project.run("validate", "--output-format", style)
    assert refused.code == 65
    assert refused.out + refused.err
    assert KEY not in refused.out + refused.err
