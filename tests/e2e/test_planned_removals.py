"""What a build removes is in its plan: over many edits, its list is compared with the files before and after."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pytest

from tests.e2e.pipelines import green, pipeline, proposing, shell
from tests.project import Project

Edit: TypeAlias = "Callable[[Project], Sequence[str]]"
"""Change a project that was built, and return options of the next plan and build."""


def sets(*words: str) -> Edit:
    return lambda _: [part for word in words for part in ("--set", word)]


def replaces(path: str, old: str, new: str, *options: str) -> Edit:
    def edit(project: Project) -> Sequence[str]:
        project.replace(path, old, new)
        return options

    return edit


def writes(files: Mapping[str, str], *options: str) -> Edit:
    def edit(project: Project) -> Sequence[str]:
        project.write(files)
        return options

    return edit


PLACE = "vars: {to: one}\n"
MOVED = '  a: {outputs: ["${{ vars.to }}/a.txt"], shell: "echo a > ${{ vars.to }}/a.txt"}\n'
# Its items may write anything below `one`, also what another stage has left there.
LISTED = """\
  names: {inputs: [names.txt], outputs: [names.json], shell: cp names.txt names.json}
  item:
    foreach: {from: names.json}
    outputs: ["one/${{ item }}"]
    shell: [touch, "one/${{ item }}"]
"""
SWITCHED = """\
  mine: {if: "${{ vars.on }}", outputs: [t/mine.txt], shell: echo m > t/mine.txt}
  other: {if: "${{ not vars.on }}", outputs: [t/], shell: echo o > t/other.txt}
"""
FOLDER = "  f: {inputs: [names.txt], outputs: [d/], shell: 'cd d; touch $(cat ../names.txt)'}\n"
CHAIN = """\
  names: {inputs: [names.txt], outputs: [names.json], shell: cp names.txt names.json}
  step:
    foreach: {from: names.json, order: sequential}
    inputs: [count.txt]
    outputs: ["c/${{ item }}"]
    allowed_paths: {write: [c/]}
    shell: [sh, -c, 'echo $0 > c/$0; if [ $(cat count.txt) = 2 ]; then echo $0 >> c/both; fi', "${{ item }}"]
"""
MODEL = "  m: {inputs: [n.txt], outputs: [o/], llm: {prompt: p.j2, returns: files}}\n"
MORE = "  m: {outputs: [o/a], allowed_paths: {write: [o/a, o/b]}, llm: {prompt: p.j2, returns: files}}\n"
KEPT = """\
  m:
    outputs: [o/a, o/b]
    llm: {prompt: p.j2, returns: files}
    on_failure: keep
    verify: [{shell: grep -q fine o/a}]
"""
DELETES = "  m: {outputs: [o/], allowed_paths: {delete: [o/]}, llm: {prompt: p.j2, returns: files}}\n"
TWO, ONE = '["x", "y"]\n', '["x"]\n'
P_BOTH, P_ONE = proposing("p", {"o/a": "'fine'", "o/b": "'b'"}), proposing("p", {"o/a": "'fine'"})

CASES: dict[str, tuple[Mapping[str, str], Edit]] = {
    "a var moves an output": (shell(MOVED, head=PLACE), sets("to=two")),
    "items that are not known yet may write where it was": (
        shell(MOVED + LISTED, {"names.txt": TWO}, head=PLACE),
        replaces("names.txt", TWO, ONE, "--set", "to=two"),
    ),
    "a list loses an item": (shell(LISTED, {"names.txt": TWO}), replaces("names.txt", TWO, ONE)),
    "a list in the pipeline loses an item": (
        shell("  i: {foreach: {in: [x, y]}, outputs: ['d/${{ item }}'], shell: [touch, 'd/${{ item }}']}\n"),
        replaces("pipeline.yaml", "[x, y]", "[x]"),
    ),
    "a stage with a folder takes the place of one that is off": (
        shell(SWITCHED, head="vars: {on: true}\n"),
        sets("on=false"),
    ),
    "a folder has fewer files": (shell(FOLDER, {"names.txt": "x y\n"}), replaces("names.txt", "x y", "x")),
    "a stage is gone, and items are not known yet": (
        shell("  gone: {outputs: [g.txt], shell: touch g.txt}\n" + LISTED, {"names.txt": TWO}),
        writes({**shell(LISTED), "names.txt": ONE}),
    ),
    "a stage has another name, and its file": (
        shell("  a: {outputs: [x, y], shell: touch x y}\n"),
        writes(shell("  b: {outputs: [x], shell: echo b > x}\n")),
    ),
    "a file becomes a folder": (
        shell("  a: {outputs: [x], shell: touch x}\n"),
        writes(shell("  a: {outputs: [x/], shell: touch x/y}\n")),
    ),
    "every item of a chain leaves a file out": (
        shell(CHAIN, {"names.txt": TWO, "count.txt": "2\n"}),
        replaces("count.txt", "2", "1"),
    ),
    "a chain that is not known yet loses an item": (
        shell(CHAIN, {"names.txt": TWO, "count.txt": "1\n"}),
        replaces("names.txt", TWO, ONE),
    ),
    "a model has fewer files": (
        pipeline(MODEL, {"p.j2": P_BOTH, "n.txt": "1"}),
        writes({"p.j2": P_ONE}),
    ),
    "a model leaves out a file that it may write": (pipeline(MORE, {"p.j2": P_BOTH}), writes({"p.j2": P_ONE})),
    "a model deletes a file of the user": (
        pipeline(DELETES, {"p.j2": P_ONE, "o/old": "old\n"}),
        writes({"p.j2": proposing("p", {"o/a": "'b'"}, ["o/old"])}),
    ),
    "a failed model leaves out an output, and its files are kept": (
        pipeline(KEPT, {"p.j2": P_BOTH}),
        writes({"p.j2": proposing("p", {"o/a": "'bad'"})}),
    ),
    "an edited file is discarded": (
        shell(MOVED, head=PLACE),
        writes({"one/a.txt": "mine\n"}, "--set", "to=two", "--overwrite-edited"),
    ),
    "only the verification changed": (
        shell("  a: {outputs: [d/], shell: touch d/x, verify: [{shell: test -e d/x}]}\n"),
        replaces("pipeline.yaml", "test -e", "test -f"),
    ),
}


@pytest.mark.stride(5)
@pytest.mark.parametrize("name", CASES)
def test_a_build_removes_no_file_that_its_plan_does_not_list(project: Project, name: str) -> None:
    files, edit = CASES[name]
    project.write(files)
    green(project.build())
    options = edit(project)
    compare(project, *options)


def test_a_build_that_restores_removes_no_file_that_its_plan_does_not_list(project: Project) -> None:
    project.write(shell(FOLDER, {"names.txt": "x\n"}))
    green(project.build())
    project.replace("names.txt", "x", "x y")
    green(project.build())
    project.replace("names.txt", "x y", "x")
    assert compare(project) == {"d/y"}


def test_a_restored_deletion_is_in_the_plan(project: Project) -> None:
    kept, gone = P_ONE, proposing("p", {"o/a": "'b'"}, ["o/old"])
    project.write(pipeline(DELETES, {"p.j2": gone, "o/old": "old\n"}))
    assert compare(project) == {"o/old"}
    project.write({"p.j2": kept, "o/old": "old\n"})
    green(project.build())
    project.write({"p.j2": gone})
    assert compare(project) == {"o/old"}


def test_a_file_that_its_stage_has_to_make_again_is_in_no_list(project: Project) -> None:
    project.write(
        shell(
            "  a: {inputs: [n], outputs: [x], shell: cp n x}\n  b: {inputs: [x], outputs: [y], shell: cp x y}\n",
            {"n": "1"},
        )
    )
    green(project.build())
    project.edit("n", "2")
    planned = project.run("plan", "--json").json()
    assert (planned["would_run"], planned["dead_files"], planned["may_remove"]) == (1, [], [])
    assert compare(project) == set()


@pytest.mark.slow
def test_an_edit_inside_of_a_stage_is_planned_alone_with_what_it_removes(project: Project) -> None:
    many = "".join(f"  s{n}: {{outputs: [d{n}/x], shell: touch d{n}/x}}\n" for n in range(60))
    project.write(shell(many))
    green(project.build())
    green(project.build())
    project.replace(
        "pipeline.yaml", "  s7: {outputs: [d7/x], shell: touch d7/x}", "  s7: {outputs: [d7/y], shell: touch d7/y}"
    )
    assert compare(project) == {"d7/x"}


def compare(project: Project, *options: str) -> set[str]:
    """Hold a build to its plan, and return what it removed."""
    shown = project.run("plan", *options)
    planned = project.run("plan", "--json", *options).json()
    surely, maybe = set(planned["dead_files"]), set(planned["may_remove"])
    assert surely.isdisjoint(maybe)
    for word, paths in (("would remove", surely), ("may remove", maybe)):
        lines = [line for line in shown.out.splitlines() if line.startswith(f" {word} ")]
        assert bool(paths) == bool(lines)
        assert len(paths) > 8 or all(path in lines[0] for path in paths)
    before = project.files()
    built = project.build(*options)
    removed = {path for path in before.keys() - project.files().keys() if not path.startswith("logs/")}
    assert removed <= surely | maybe, built.err
    if built.code == 0:
        assert surely <= removed
    if removed:
        assert "removed" in built.err
        assert f"{len(removed)} file{'s' if len(removed) > 1 else ''} removed" in built.err
    return removed
