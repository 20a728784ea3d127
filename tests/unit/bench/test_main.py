"""Which tools the bench leads through which sizes."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as main
from bench import environments
from bench.__main__ import LONG, SHORT
from bench.tool import FromTree
from tests.template_repository import git


def test_growth_is_measured_with_few_tools() -> None:
    assert LONG.takes_part("orch23", 30_000)
    assert not LONG.takes_part("doit", 3_000)
    assert LONG.takes_part("DVC", 10_000)


def test_slow_tools_can_be_left_out_of_large_sizes() -> None:
    form = replace(LONG, slow_up_to=1_000)
    assert form.takes_part("DVC", 1_000)
    assert not form.takes_part("DVC", 10_000)
    assert form.takes_part("doit", 10_000)


def test_sizes_that_are_asked_for_are_all_measured() -> None:
    assert main._asked(["short"])[0].limits.budget_s == SHORT.limits.budget_s < math.inf
    assert main._asked(["short", "--sizes", "100,10000"])[0].limits.budget_s == math.inf


def test_a_commit_takes_part_beside_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = two_commits(tmp_path / "tree")
    monkeypatch.setattr(environments, "TREE", tmp_path / "tree")
    form, keep = main._asked(["short", "--tools", "orch23,ninja", "--against", "HEAD~1"])
    (before,) = form.more
    assert (before.name, before.source) == (f"orch23 {old[:9]}", FromTree(old))
    assert form.tools == ("orch23", "ninja", before.name)
    assert not keep
    exported = environments._exported(old, tmp_path / "exported")
    assert (exported / "file").read_text() == "old\n"
    assert environments.full_commit("HEAD") == new


def test_a_commit_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_commits(tmp_path)
    monkeypatch.setattr(environments, "TREE", tmp_path)
    with pytest.raises(SystemExit):
        main._asked(["short", "--against", "nope"])
    assert "no such commit: nope" in capsys.readouterr().err


def two_commits(root: Path) -> tuple[str, str]:
    root.mkdir(exist_ok=True)
    git(root, "init", "-q")
    ids = []
    for text in ("old\n", "new\n"):
        (root / "file").write_text(text)
        git(root, "add", "file")
        git(root, "commit", "-qm", text.strip())
        ids.append(git(root, "rev-parse", "HEAD"))
    return ids[0], ids[1]
