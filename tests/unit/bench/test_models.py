"""The bench measures the calls of an edit with the program that it installed."""

import sys
from pathlib import Path

import pytest

from bench import model_economy
from bench.economy_edits import EDITS
from bench.models import edit_costs
from bench.tool import Installed
from bench.tools.orch23 import TRUSTED

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.slow


def test_an_edit_is_built_by_the_installed_program_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = [str(ROOT), *sys.path]
    program = tmp_path / "orch23"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {path!r}\nfrom orch23.entry import run\n\nrun()\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(model_economy, "EDITS", EDITS[:1])
    (cost,) = edit_costs([Installed(TRUSTED, program, "1")])
    assert (cost.edit, cost.calls) == (EDITS[0].name, 1)
    assert cost.whole > 1
