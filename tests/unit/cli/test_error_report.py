"""The command line in the hint of an error about one of its words."""

from pathlib import Path

import pytest

from orch23.cli.console import Console
from orch23.cli.error_report import report_error
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.errors import NotFoundError

MEANT = "did you mean `x`?"


@pytest.mark.parametrize(
    ("fix", "hint", "argv", "shown"),
    [
        (("drfat", "draft"), MEANT, ("build", "drfat"), "did you mean `orch23 build draft`?"),
        (("plan", "plans"), MEANT, ("plan", "plan"), "did you mean `orch23 plan plans`?"),
        (("o/a", "a"), "name that stage", ("-C", "x y", "plan", "o/a"), "name that stage: `orch23 -C 'x y' plan a`"),
        (("HERE/p.yml", "HERE/p.yaml"), MEANT, ("plan", "p.yml", "a"), "did you mean `orch23 plan p.yaml a`?"),
        (("HERE/s/p.yaml", "HERE/p.yaml"), MEANT, ("plan", "./s//p.yaml"), "did you mean `orch23 plan p.yaml`?"),
        (("drfat", "draft"), MEANT, ("build", "--only=drfat"), MEANT),
        (("drfat", "draft"), MEANT, (), MEANT),
        (None, MEANT, ("build", "drfat"), MEANT),
    ],
)
def test_the_command_line_to_type_is_shown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fix: tuple[str, str] | None,
    hint: str,
    argv: tuple[str, ...],
    shown: str,
) -> None:
    fix = None if fix is None else (fix[0].replace("HERE", str(tmp_path)), fix[1].replace("HERE", str(tmp_path)))
    report_error(NotFoundError(Diagnostic("E823", "no", hint=hint, fix=fix)), Console(here=tmp_path), argv)
    assert f"  = help: {shown}\n" in capsys.readouterr().err


def test_an_error_in_a_file_has_no_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    located = Diagnostic("E802", "no", Location("p.yaml", 1, 1), MEANT, fix=("build", "x"))
    report_error(NotFoundError(located), Console(here=tmp_path), ("build",))
    assert f"  = help: {MEANT}\n" in capsys.readouterr().err
