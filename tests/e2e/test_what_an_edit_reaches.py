"""A pipeline of many stages, as processes of their own: an edit is decided, built and told by what it reaches."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orch23.model.errors import ExitCode
from tests.e2e.test_nothing_to_do import orch23, was_quick
from tests.project import Project

pytestmark = pytest.mark.slow

MANY = 70


def stage(number: int, more: str = "") -> str:
    source = f"in/{number}.txt" if number % 10 else f"in/{number}.txt, out/{max(0, number - 1)}.txt"
    return (
        f"  s{number:02d}:\n    render: {{template: copy.j2}}\n"
        f"    inputs: [{source}]\n    outputs: [out/{number}.txt]\n{more}"
    )


def pipeline(**more: str) -> str:
    stages = "".join(stage(number, more.get(f"s{number}", "")) for number in range(1, MANY + 1))
    return f"version: 1\nname: many\nstages:\n{stages}"


@pytest.fixture
def root(project: Project) -> Path:
    inputs = {f"in/{number}.txt": f"{number}\n" for number in range(1, MANY + 1)}
    project.write({"pipeline.yaml": pipeline(), "copy.j2": "{{ inputs[0].text }}", **inputs})
    done = orch23(project.root, "build", "-j1")
    assert (done.returncode, f"{MANY} stages: {MANY} built" in done.stderr) == (0, True), done.stderr
    return project.root


def journal(root: Path) -> list[dict[str, Any]]:
    newest = max((root / "logs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line) for line in newest.read_text().splitlines()]


def reported_of(root: Path) -> set[str]:
    """Return the stages that the last build decided on."""
    return {line["role"] for line in journal(root) if line["type"] == "stage_decided"}


def test_an_edit_is_planned_and_built_by_what_it_reaches(root: Path) -> None:
    (root / "in/9.txt").write_text("nine\n")
    plan = orch23(root, "plan")
    assert plan.stdout.splitlines()[:4] == [
        f"many: 1 of {MANY} stages to run, 1 depends on upstream",
        "   stage  action   why",
        " > s09    run      in/9.txt changed, +1 more",
        " ? s10    maybe    if the outputs of s09 change",
    ]
    done = orch23(root, "build")
    assert done.stderr.splitlines()[1:-1] == [
        line for line in done.stderr.splitlines() if line.startswith((" ✔ s09", " ✔ s10"))
    ]
    assert f"{MANY} stages: 2 built, {MANY - 2} fresh" in done.stderr
    assert reported_of(root) == {"s09", "s10"}
    (plan_event,) = (line["data"] for line in journal(root) if line["type"] == "plan")
    assert plan_event == {"stages": {"s09": "render", "s10": "render"}, "needs": {"s10": ["s09"]}}
    began, ended = journal(root)[0]["data"], journal(root)[-1]["data"]
    assert (began["stages"], began["at_rest"]) == (MANY, {"fresh": MANY - 2})
    assert ended["stages"] == {"built": 2, "fresh": MANY - 2}
    assert "nine" in (root / "out/9.txt").read_text()
    assert orch23(root, "status").stdout == f"many: up to date ({MANY} stages)\n"


def test_what_is_declared_otherwise_is_such_an_edit_even_if_it_is_tied_otherwise(root: Path) -> None:
    (root / "pipeline.yaml").write_text(pipeline(s9="    salt: b\n"))
    assert f"many: 1 of {MANY} stages to run, 1 depends on upstream" in orch23(root, "plan").stdout
    assert f"1 built, {MANY - 1} fresh" in orch23(root, "build").stderr
    assert reported_of(root) == {"s09", "s10"}
    (root / "pipeline.yaml").write_text(pipeline(s9="    salt: b\n    needs: [s08]\n"))
    done = orch23(root, "build")
    assert (done.returncode, done.stderr) == (0, f"many: up to date ({MANY} stages)\n")
    assert reported_of(root) == {"s09", "s10"}


EMPTY = """\
  list: {inputs: [names.txt], outputs: [l.json], shell: cp names.txt l.json}
  made: {foreach: {from: l.json}, outputs: ["o/${{ item }}.a"], shell: [touch, "o/${{ item }}.a"]}
  none: {foreach: {in: []}, outputs: [x], shell: "true"}
"""


@pytest.mark.stride(2)
@pytest.mark.parametrize(("arguments", "named"), [((), ["made", "none"]), (("made", "s09"), ["made"])])
def test_empty_lists_are_named_with_what_an_edit_reaches(
    root: Path, arguments: tuple[str, ...], named: list[str]
) -> None:
    def names(text: str) -> list[str]:
        return sorted(line.split()[1] for line in text.splitlines() if "0 items: its list is empty" in line)

    (root / "pipeline.yaml").write_text(pipeline() + EMPTY)
    (root / "names.txt").write_text("[]")
    others = tuple(f"s{number:02d}" for number in range(1, MANY + 1)) if arguments else ()
    assert names(orch23(root, "build", *arguments, *others).stderr) == named
    for more, count in (("    salt: b\n", 1), ("    salt: b\n    needs: [s08]\n", 0)):
        (root / "pipeline.yaml").write_text(pipeline(s9=more) + EMPTY)
        for command in ("plan", "status"):
            assert names(orch23(root, command, *arguments, *others).stdout) == named
        done = orch23(root, "build", *arguments, *others)
        assert (names(done.stderr), f"{len(named)} skipped" in done.stderr) == (named, True)
        assert reported_of(root) == {"s09", "s10"}
        assert journal(root)[-1]["data"]["stages"] == {
            **({"built": count} if count else {}),
            "fresh": MANY + 1 - count,
            "skipped": len(named),
        }
        assert names(orch23(root, "build", *arguments, *others).stderr) == named
    (root / "names.txt").write_text('["q"]')
    assert "made@q" in orch23(root, "build", *arguments, *others).stderr


def test_a_mistake_is_reported_as_if_all_had_been_read(root: Path) -> None:
    (root / "pipeline.yaml").write_text(pipeline(s9="    shel: x\n"))
    done = orch23(root, "build")
    assert done.returncode == ExitCode.INVALID
    assert "pipeline.yaml:40:5" in done.stderr
    assert "shel" in done.stderr
    (root / "pipeline.yaml").unlink()
    for _ in ("there is none", "it is no file"):
        assert orch23(root, "build").returncode == orch23(root, "plan").returncode == ExitCode.NOT_FOUND
        if not (root / "pipeline.yaml").exists():
            os.mkfifo(root / "pipeline.yaml")
    (root / "pipeline.yaml").unlink()
    (root / "pipeline.yaml").write_text(pipeline())
    assert orch23(root, "build").stderr == f"many: up to date ({MANY} stages)\n"


def test_after_a_failure_all_is_decided(root: Path) -> None:
    (root / "in/9.txt").unlink()
    (root / "in/9.txt").mkdir()
    assert orch23(root, "build").returncode == ExitCode.INVALID
    (root / "in/9.txt").rmdir()
    (root / "in/9.txt").write_text("nine\n")
    (root / "pipeline.yaml").write_text(pipeline(s9="    verify: [{shell: [test, -e, no.txt]}]\n"))
    assert f"{MANY} stages: {MANY - 2} fresh, 1 failed, 1 blocked" in orch23(root, "build").stderr
    (root / "pipeline.yaml").write_text(pipeline())
    assert orch23(root, "build").returncode == 0
    assert len(reported_of(root)) == MANY


def test_another_build_in_between_makes_what_was_known_outdated(root: Path) -> None:
    (root / "in/9.txt").write_text("nine\n")
    assert "1 built" in orch23(root, "build", "s09").stderr
    done = orch23(root, "build")
    assert f"1 built, {MANY - 1} fresh" in done.stderr
    assert len(reported_of(root)) == MANY


def test_the_folders_that_a_trusted_step_leaves_to_the_next_do_not_matter(root: Path) -> None:
    text = pipeline().replace(
        "    render: {template: copy.j2}\n", "    shell: [cp, in/1.txt, out/1.txt]\n    sandbox: off\n", 1
    )
    (root / "pipeline.yaml").write_text(text)
    assert "1 built" in orch23(root, "build", "-j1", ORCH23_ALLOW_UNSANDBOXED="1").stderr
    assert orch23(root, "build", ORCH23_ALLOW_UNSANDBOXED="1").stderr == f"many: up to date ({MANY} stages)\n"
    assert was_quick(root)


def test_each_stage_is_reported_of_who_asks_for_it(root: Path) -> None:
    (root / "in/9.txt").write_text("nine\n")
    done = orch23(root, "build", "-v")
    assert done.stderr.count(" fresh") >= MANY - 2
    assert len(reported_of(root)) == MANY
    (root / "in/9.txt").write_text("ten\n")
    assert len(json.loads(orch23(root, "plan", "--json").stdout)["stages"]) == MANY


def test_a_step_that_reads_what_another_stage_made_is_explained_if_only_its_part_is_decided(project: Project) -> None:
    stages = "".join(
        f"  s{n}: {{shell: 'cat in/{n} > out/{n}', inputs: [in/{n}], outputs: [out/{n}]}}\n" for n in range(MANY)
    )
    project.write({"pipeline.yaml": f"version: 1\nname: many\nstages:\n{stages}"})
    project.write({f"in/{n}": f"{n}\n" for n in range(MANY)})
    assert orch23(project.root, "build").returncode == 0
    assert orch23(project.root, "build").returncode == 0
    project.replace("pipeline.yaml", "cat in/9 >", "cat out/3 >")
    failed = orch23(project.root, "build")
    assert "no stage is named" not in failed.stderr
    assert "likely cause: `out/3` is in the project, but not in `inputs`" in failed.stderr
    assert reported_of(project.root) == {"s9"}


LISTED = """\
  listing: {inputs: [{list: "m/*"}], outputs: [l.txt], render: {template: names.j2}, needs: [NEEDS]}
  other: {inputs: [in/9.txt], outputs: [m/], shell: "mkdir -p m; cp in/9.txt m/x"}
"""


@pytest.mark.stride(2)
@pytest.mark.parametrize("how", ["edited", "forced"])
def test_only_selected_stages_are_built_by_what_is_known_of_others(root: Path, how: str) -> None:
    listed = LISTED.replace("NEEDS", ", ".join(f"s{number:02d}" for number in range(1, MANY + 1)))
    (root / "pipeline.yaml").write_text(pipeline() + listed)
    (root / "names.j2").write_text("{% for one in inputs %}{{ one.path }}{% endfor %}")
    assert orch23(root, "build").returncode == 0
    for _ in range(2):
        done = orch23(root, "build", "listing")
        assert (done.returncode, f"up to date ({MANY + 1} stages)" in done.stderr) == (0, True), done.stderr
    if how == "edited":
        (root / "pipeline.yaml").write_text(pipeline() + listed.replace("m/x", "m/y"))
    more = ("--force", "other") if how == "forced" else ()
    done = orch23(root, "build", "listing", *more)
    assert (done.returncode, "other" in reported_of(root), (root / "m/y").exists()) == (0, False, False), done.stderr


def test_a_new_input_is_explained_by_the_stage_that_made_it(root: Path) -> None:
    (root / "pipeline.yaml").write_text(pipeline().replace("[in/9.txt]", "[in/9.txt, out/1.txt]"))
    assert "out/1.txt is a new input, which s01 made\n" in orch23(root, "explain", "s09").stdout
