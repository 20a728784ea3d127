"""`orch23 show --withheld`: the files that a failure kept out of the project, listed and copied out."""

import json
from typing import Any

import pytest

from tests.e2e.pipelines import green, pipeline, prompt
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds

STAGES = """\
  code:
    foreach: {in: [a, b]}
    outputs: ['src/${{ item }}.py']
    llm: {prompt: code.j2, returns: text}
    promote: app
  tests: {inputs: ['src/*.py'], shell: 'echo red; exit 1', promote: app, outputs: [report.txt]}
  checked:
    outputs: [one.txt, run.sh]
    llm: {prompt: checked.j2}
    verify: [{shell: 'grep good one.txt'}]
    retry: 1
  half: {outputs: [half/1.txt], shell: 'mkdir -p half; echo 1 > half/1.txt; exit 4'}
  fine: {outputs: [fine.txt], shell: 'echo > fine.txt'}
"""
ANSWER = (
    '{"files": [{"path": "one.txt", "content": "bad {{ attempt }}\\n"}, {"path": "run.sh", "content": "#!/bin/sh\\n"}]}'
)
FILES = {"code.j2": prompt("code {{ item }}", "name = '{{ item }}'\n"), "checked.j2": prompt("c {{ attempt }}", ANSWER)}


@pytest.fixture
def built(project: Project) -> Project:
    assert project.write(pipeline(STAGES, FILES)).build("-j1", "-k").code == 1
    return project


def facts(project: Project, *argv: str) -> Any:
    outcome = project.run("show", *argv, "--withheld", "--json")
    green(outcome)
    return outcome.json()


def files(project: Project, folder: str) -> dict[str, str]:
    place = project.root / folder
    return {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}


def test_the_files_of_a_group_that_a_red_check_withholds(built: Project) -> None:
    assert not (built.root / "src").exists()
    shown = built.run("show", "code@a", "--withheld")
    green(shown)
    assert "withheld: tests failed, in 2" in shown.out
    assert "\n  src/a.py  11 B\n`orch23 show code@a --withheld -o DIR` copies them\n" in shown.out
    copied = built.run("show", "code@a", "--withheld", "-o", "out/held")
    green(copied)
    assert (copied.out, copied.err) == ("", "wrote out/held\n")
    assert files(built, "out/held") == {"src/a.py": "name = 'a'\n"}
    assert built.run("show", "code@a", "--withheld", "--attempt", "1").out == shown.out
    assert built.run("show", "code@a", "--withheld", "--attempt", "2").code == 66
    every = built.run("show", "code", "--withheld")
    assert (every.code, "= help: name an item: code@a, code@b\n" in every.err) == (66, True), every.err


def test_the_files_of_failed_attempts(built: Project) -> None:
    assert [one["path"] for one in facts(built, "checked")["files"]] == ["one.txt", "run.sh"]
    assert facts(built, "checked")["why"].startswith("verify: exited with 1")
    for attempt in (1, 2):
        green(built.run("show", "checked", "--withheld", "--attempt", str(attempt), "-o", f"out{attempt}"))
        assert files(built, f"out{attempt}") == {"one.txt": f"bad {attempt}\n", "run.sh": "#!/bin/sh\n"}
    assert (built.root / "out1/run.sh").stat().st_mode & 0o111
    assert facts(built, "half")["files"] == [{"path": "half/1.txt", "size_bytes": 2}]


def test_what_is_in_place_is_not_withheld(built: Project) -> None:
    for name in ("fine", "tests"):
        refused = built.run("show", name, "--withheld")
        assert (refused.code, f"no file of `{name}` is withheld" in refused.err) == (66, True), refused.err
    built.write({"half/1.txt": "1\n"})
    assert built.run("show", "half", "--withheld").code == 66


def test_a_folder_with_files_is_refused_and_no_link_is_followed(built: Project) -> None:
    built.write({"full/own.txt": "mine\n"})
    refused = built.run("show", "half", "--withheld", "-o", "full")
    assert (refused.code, "`full` has files" in refused.err) == (64, True)
    (built.root / "empty").mkdir()
    green(built.run("show", "half", "--withheld", "-o", "empty"))
    elsewhere = built.root.parent / "elsewhere"
    elsewhere.mkdir()
    (built.root / "link").symlink_to(elsewhere)
    for name in ("link", "link/below"):
        refused = built.run("show", "half", "--withheld", "-o", name)
        assert (refused.code, "error[E691]" in refused.err) == (2, True), refused.err
    assert files(built, "full") == {"own.txt": "mine\n"}
    assert list(elsewhere.iterdir()) == []
    green(built.run("show", "half", "--withheld", "-o", str(elsewhere / "new")))
    assert (elsewhere / "new/half/1.txt").read_text() == "1\n"


def test_options_that_do_not_fit(built: Project) -> None:
    for argv, said in {
        ("half", "-o", "x"): "`-o` is of `--withheld` alone",
        ("half", "--withheld", "--run", "2"): "`--withheld` and `--run` cannot be combined",
    }.items():
        refused = built.run("show", *argv)
        assert (refused.code, said in refused.err) == (64, True), refused.err


def test_planted_paths_stay_in_the_folder(built: Project) -> None:
    (kept,) = built.root.glob("logs/*/half/attempt-1/action.json")
    planted = json.loads(kept.read_text())
    planted["outputs"] = {f"../../{path}": entry for path, entry in planted["outputs"].items()}
    kept.write_text(json.dumps(planted))
    assert built.run("show", "half", "--withheld", "-o", "out").code == 66


def test_bytes_that_are_gone_are_an_error(built: Project) -> None:
    for path in built.root.glob(".orch23/cas/*/*"):
        path.unlink()
    refused = built.run("show", "half", "--withheld", "-o", "out")
    assert (refused.code, "the store does not have these files any more" in refused.err) == (66, True), refused.err
    assert not (built.root / "out").exists()
