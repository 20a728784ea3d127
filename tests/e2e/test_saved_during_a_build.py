"""Files that are saved while a build runs: the next build finds each of these edits."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.moments import UP_TO_DATE, Moments, age, check_nothing_is_missed, noticed, outputs, run, settle
from tests.project import Project

pytestmark = pytest.mark.slow

PIPELINE = """\
version: 1
name: story
vars: {word: one}
stages:
  first: {shell: [cp, spec.md, out/first.txt], inputs: [spec.md], outputs: [out/first.txt]}
  second:
    shell: "echo OLD > out/second.txt && cat in.txt >> out/second.txt"
    inputs: [in.txt, {path: opt/sub/more.txt, optional: true}]
    outputs: [out/second.txt]
  third:
    render: {template: t.j2}
    inputs: [in.txt]
    outputs: [out/third.txt]
"""
NUMBERS = """\
version: 1
stages:
  "1": {shell: [cp, in.txt, out/1.txt], inputs: [in.txt], outputs: [out/1.txt]}
  "2": {shell: [cp, in.txt, out/2.txt], inputs: [in.txt], outputs: [out/2.txt]}
"""
ASKING = """\
version: 1
name: asking
stages:
  ask:
    inputs: [spec.md]
    outputs: [out/ask.txt]
    llm: {provider: scripted, model: scripted, answers: answers.yaml, prompt: p.md.j2, returns: text}
"""
READ_ONCE = {"in.txt": "new\n", "vars.yaml": "word: new\n", "t.j2": "{{ vars.word }}\n", "spec.md": "x\n"}
MANY = 70
DURING_A_BUILD = ("read", "loaded", "stage_decided", "run_finished", "replan")


@pytest.fixture
def moments(tmp_path: Path) -> Iterator[Moments]:
    (tmp_path / "project").mkdir()
    with noticed(fewest=64) as moments, chdir(tmp_path / "project"):
        yield moments


@pytest.fixture
def two(moments: Moments) -> Moments:
    """Give a project of two stages, built, in the working directory."""
    write({"pipeline.yaml": PIPELINE, "spec.md": "spec\n", "in.txt": "in\n", "vars.yaml": "word: old\n"})
    write({"t.j2": "{{ vars.word }} {{ inputs[0].text }}"})
    build_until_at_rest(moments, "pipeline.yaml")
    return moments


def stage(number: int) -> str:
    source = f"in/{number}.txt" if number % 10 else f"in/{number}.txt, out/{number - 1}.txt"
    return (
        f"  s{number:02d}:\n    shell: [cp, in/{number}.txt, out/{number}.txt]\n    inputs: [{source}]\n"
        f"    outputs: [out/{number}.txt]\n"
    )


@pytest.fixture(scope="module")
def built_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a built project of so many stages that an edit is built by what it reaches, to be copied."""
    root = tmp_path_factory.mktemp("many") / "project"
    root.mkdir()
    with chdir(root), noticed(fewest=64) as moments:
        stages = "".join(stage(number) for number in range(1, MANY + 1))
        write({f"in/{number}.txt": f"{number}\n" for number in range(1, MANY + 1)})
        write({"pipeline.yaml": f"version: 1\nname: many\nstages:\n{stages}"})
        write({"t.j2": "{% for one in inputs %}{{ one.text }}{% endfor %}"})
        age()
        assert run(moments, "build", "pipeline.yaml").code == 0
    return root


@pytest.fixture
def many(moments: Moments, built_many: Path) -> Moments:
    """Give a copy of that project, at rest; its stages are not run again."""
    shutil.copytree(built_many, Path.cwd(), symlinks=True, dirs_exist_ok=True)
    build_until_at_rest(moments, "pipeline.yaml")
    moments.forget()
    return moments


def write(files: dict[str, str]) -> None:
    Project(Path.cwd()).write(files)


def replace(path: str, old: str, new: str) -> Callable[[], None]:
    """Return an edit that puts another text in the place of the first that reads `old`."""

    def edit() -> None:
        text = Path(path).read_text()
        assert old in text
        Path(path).write_text(text.replace(old, new, 1))

    return edit


def build_until_at_rest(moments: Moments, *argv: str) -> None:
    """Build until a snapshot of a project with nothing to do is there."""
    age()
    assert settle(moments, *argv).code == 0
    assert any(Path(".orch23/snapshots").iterdir())
    age()


@pytest.mark.stride(7)
@pytest.mark.parametrize("moment", DURING_A_BUILD)
@pytest.mark.parametrize("idle", [True, False], ids=["nothing to do", "one stage to build"])
def test_the_pipeline(two: Moments, moment: str, idle: bool) -> None:
    """Case: two stages, the command of one of them is saved again while the other one runs."""
    shutil.rmtree(".orch23/snapshots")
    if not idle:
        write({"spec.md": "other\n"})
        age()
    two.at(moment, replace("pipeline.yaml", "OLD", "NEW"))
    assert run(two, "build", "pipeline.yaml").code == 0
    assert not two.forget() or (idle and moment == "replan")
    check_nothing_is_missed(two, "pipeline.yaml")


@pytest.mark.stride(23)
@pytest.mark.parametrize("moment", DURING_A_BUILD)
@pytest.mark.parametrize("idle", [True, False], ids=["nothing to do", "one stage to build"])
@pytest.mark.parametrize(
    ("path", "new"),
    {"in.txt": "new\n", "vars.yaml": "word: new\n", "t.j2": "{{ vars.word }}\n", "spec.md": "x\n"}.items(),
)
def test_what_is_read_once(two: Moments, moment: str, idle: bool, path: str, new: str) -> None:
    """Case: an input, the file of vars, a template, the spec; each is read at another time."""
    argv = ("pipeline.yaml", "--vars", "vars.yaml")
    build_until_at_rest(two, *argv)
    shutil.rmtree(".orch23/snapshots")
    if not idle:
        write({"spec.md": "other\n"})
        age()
    two.at(moment, lambda: write({path: new}))
    assert run(two, "build", *argv).code == 0
    check_nothing_is_missed(two, *argv)


@pytest.mark.stride(5)
@pytest.mark.parametrize("moment", DURING_A_BUILD)
def test_a_folder_that_is_swapped_for_one_with_older_files(two: Moments, moment: str) -> None:
    """Case: `mv prompts before; mv other prompts`: the files in it keep the times of their last change."""
    write({"prompts/t.j2": "old", "other/t.j2": "new", "vars/v.yaml": "word: old", "more/v.yaml": "word: new"})
    replace("pipeline.yaml", "{template: t.j2}", "{template: prompts/t.j2}")()
    argv = ("pipeline.yaml", "--vars", "vars/v.yaml")
    build_until_at_rest(two, *argv)
    shutil.rmtree(".orch23/snapshots")

    def swap() -> None:
        for folder, other in (("prompts", "other"), ("vars", "more")):
            Path(folder).rename(f"{folder}-before")
            Path(other).rename(folder)

    two.at(moment, swap)
    assert run(two, "build", *argv).code == 0
    check_nothing_is_missed(two, *argv)


@pytest.mark.stride(5)
@pytest.mark.parametrize("moment", DURING_A_BUILD)
def test_a_pipeline_that_is_named_by_a_link(two: Moments, moment: str) -> None:
    """Case: the link leads to another pipeline that is not younger."""
    write({"a.yaml": PIPELINE, "b.yaml": PIPELINE.replace("OLD", "NEW")})
    Path("pipeline.yaml").unlink()  # it declares the same outputs
    Path("link.yaml").symlink_to("a.yaml")
    build_until_at_rest(two, "link.yaml")
    shutil.rmtree(".orch23/snapshots")

    def lead_elsewhere() -> None:
        Path("link.yaml").unlink()
        Path("link.yaml").symlink_to("b.yaml")

    two.at(moment, lead_elsewhere)
    assert run(two, "build", "link.yaml").code == 0
    check_nothing_is_missed(two, "link.yaml")


@pytest.mark.stride(5)
@pytest.mark.parametrize("moment", DURING_A_BUILD)
def test_a_listed_folder_that_is_swapped_for_an_older_one(two: Moments, moment: str) -> None:
    """Case: no file of the first one matches, so that nothing but the folder tells that it is another."""
    write({"all/src/a.md": "a", "other/src/a.md": "a", "other/src/b.txt": "b"})
    replace("pipeline.yaml", "    inputs: [in.txt]\n", '    inputs: [in.txt, "all/src/*.txt"]\n')()
    replace("t.j2", "{{ inputs[0].text }}", "{{ inputs | length }}")()
    build_until_at_rest(two, "pipeline.yaml")
    shutil.rmtree(".orch23/snapshots")

    def swap() -> None:
        Path("all").rename("before")
        Path("other").rename("all")

    two.at(moment, swap)
    assert run(two, "build", "pipeline.yaml").code == 0
    check_nothing_is_missed(two, "pipeline.yaml")


PARTIAL = ("compared", "part", "loaded", "stage_decided", "run_finished", "replan")


@pytest.mark.stride(17)
@pytest.mark.parametrize("moment", PARTIAL)
@pytest.mark.parametrize("number", [1, 20, 19, 40], ids=["the spec", "edited", "read by the edited", "elsewhere"])
def test_an_input_in_a_partial_build(many: Moments, moment: str, number: int) -> None:
    """Case: the spec is hashed again at the end, the input of a stage before the edited one when it is looked for."""
    write({"in/20.txt": "twenty\n"})
    age()
    many.at(moment, lambda: write({f"in/{number}.txt": "new\n"}))
    done = run(many, "build", "pipeline.yaml")
    assert (done.code, f"1 built, {MANY - 1} fresh" in done.err) == (0, True), done.err
    check_nothing_is_missed(many, "pipeline.yaml")


@pytest.mark.stride(17)
@pytest.mark.parametrize("moment", PARTIAL)
@pytest.mark.parametrize("path", ["out/8.txt", "out/9.txt", "out/40.txt", "pipeline.lock"])
def test_an_output_that_is_removed_in_a_partial_build(many: Moments, moment: str, path: str) -> None:
    write({"in/9.txt": "nine\n"})
    age()
    many.at(moment, lambda: Path(path).unlink(missing_ok=True))
    run(many, "build", "pipeline.yaml")
    check_nothing_is_missed(many, "pipeline.yaml")


@pytest.mark.stride(11)
@pytest.mark.parametrize("moment", PARTIAL)
@pytest.mark.parametrize("edited", ["an input", "the pipeline"])
def test_the_pipeline_in_a_partial_build(many: Moments, moment: str, edited: str) -> None:
    """Case: it is read twice, once to find the stage that is declared otherwise and once to load it."""
    if edited == "an input":
        write({"in/9.txt": "nine\n"})
    else:
        replace("pipeline.yaml", "cp, in/9.txt", "cp, --, in/9.txt")()
    age()
    many.at(moment, replace("pipeline.yaml", "cp, in/40.txt, out/40.txt", "cp, in/40.txt, --, out/40.txt"))
    run(many, "build", "pipeline.yaml")
    check_nothing_is_missed(many, "pipeline.yaml")


@pytest.mark.stride(7)
@pytest.mark.parametrize("moment", PARTIAL)
def test_a_record_that_the_lock_file_loses_in_a_partial_build(many: Moments, moment: str) -> None:
    write({"in/9.txt": "nine\n"})
    age()
    lock = Path("pipeline.lock")

    def drop() -> None:
        before = lock.read_text()
        lock.write_text(re.sub(r'\n  "s40": \{\n.*?\n  \},', "", before, flags=re.DOTALL))
        assert lock.read_text() != before

    many.at(moment, drop)
    run(many, "build", "pipeline.yaml")
    check_nothing_is_missed(many, "pipeline.yaml")
    assert '"s40": {' in lock.read_text()


def test_a_stage_whose_name_is_a_number(moments: Moments) -> None:
    """Case: after `build 1` with nothing to do, `build` and `build 2` reported the same."""
    write({"in.txt": "in\n", "pipeline.yaml": NUMBERS})
    age()
    for _ in range(2):
        assert run(moments, "build", "1").code == 0
        age()
    assert UP_TO_DATE in run(moments, "build", "1").err
    assert "1 of 2 stages to run" in run(moments, "plan").out
    assert " to run" in run(moments, "plan", "2").out
    assert "1 built" in run(moments, "build", "-j", "1", "2").err
    assert UP_TO_DATE in run(moments, "build", "-j2").err
    assert sorted(outputs(Path())) == ["out/1.txt", "out/2.txt"]


@pytest.mark.stride(2)
@pytest.mark.parametrize("link", ["to a folder", "to nothing"])
def test_a_link_in_the_place_of_a_missing_folder(two: Moments, link: str) -> None:
    """Case: the folder of an optional input that is not there becomes a link, and then the file comes behind it."""
    assert UP_TO_DATE in run(two, "build", "pipeline.yaml").err
    assert UP_TO_DATE in run(two, "plan", "pipeline.yaml").out
    folder = Path("elsewhere" if link == "to a folder" else "nowhere")
    if link == "to a folder":
        folder.mkdir()
    Path("opt").symlink_to(folder)
    for command in ("build", "plan", "status"):
        done = run(two, command, "pipeline.yaml")
        assert UP_TO_DATE in done.out + done.err, done
    write({f"{folder}/sub/more.txt": "behind\n"})
    assert " to run" in run(two, "plan", "pipeline.yaml").out
    check_nothing_is_missed(two, "pipeline.yaml")
    Path("opt").unlink()
    Path("opt").symlink_to("/etc")
    for command in ("build", "plan", "status"):
        done = run(two, command, "pipeline.yaml")
        assert (done.code, "leads out of the project" in done.err) == (2, True), done
    Path("opt").unlink()
    check_nothing_is_missed(two, "pipeline.yaml")
    write({"opt/sub/more.txt": "more\n"})
    check_nothing_is_missed(two, "pipeline.yaml")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [("p.md.j2", "one", "two"), ("answers.yaml", "said one", "said more")],
    ids=["prompt", "answers"],
)
def test_what_a_model_is_asked_with_is_what_the_key_says(moments: Moments, path: str, old: str, new: str) -> None:
    """Case: a prompt is saved after the decision and put back after the call: the answer was kept for the old one."""
    answers = "ask:\n  - {when: one, answers: [said one]}\n  - {when: two, answers: [said two]}\n"
    write(
        {"pipeline.yaml": ASKING, "p.md.j2": "one {{ inputs[0].text }}", "spec.md": "spec\n", "answers.yaml": answers}
    )
    build_until_at_rest(moments, "pipeline.yaml")
    write({"spec.md": "other\n"})
    age()
    moments.at("stage_decided", replace(path, old, new))
    moments.at("stage_finished", replace(path, new, old))
    assert run(moments, "build", "pipeline.yaml").code == 0
    assert not moments.forget()
    check_nothing_is_missed(moments, "pipeline.yaml")


@pytest.mark.stride(3)
@pytest.mark.parametrize("moment", ["look", "stage_decided", "run_finished"])
def test_an_interpreter_behind_a_link(two: Moments, moment: str) -> None:
    """Case: the link to an environment is led to another one that is as old."""
    for name, version in (("old", "3.11.1"), ("new", "3.12.1")):
        write({f"{name}/pyvenv.cfg": f"home = /usr/bin\nversion = {version}\n", f"{name}/bin/other": ""})
        Path(name, "bin", "python").symlink_to(sys.executable)
    Path("env").symlink_to("old")
    replace("pipeline.yaml", "  second:\n", "  second:\n    python: env\n")()
    build_until_at_rest(two, "pipeline.yaml")
    shutil.rmtree(".orch23/snapshots")

    def lead_elsewhere() -> None:
        Path("env").unlink()
        Path("env").symlink_to("new")

    two.at(moment, lead_elsewhere, 15 if moment == "look" else 1)
    assert run(two, "build", "pipeline.yaml").code == 0
    assert not two.forget()
    check_nothing_is_missed(two, "pipeline.yaml")


@pytest.mark.stride(5)
@pytest.mark.parametrize("moment", DURING_A_BUILD)
@pytest.mark.parametrize("change", ["an edit", "a new file", "a file less"])
def test_many_inputs(moments: Moments, moment: str, change: str) -> None:
    """Case: a stage with many inputs, which are edited while it runs; the decision after that does not look at them."""
    changes = {
        "an edit": lambda: write({"in/1.txt": "other\n"}),
        "a new file": lambda: write({"in/3.txt": "new\n"}),
        "a file less": Path("in/2.txt").unlink,
    }
    shell = '{shell: "cat in/* > out.txt", inputs: [in/], outputs: [out.txt]}'
    write({"pipeline.yaml": f"version: 1\nname: p\nstages:\n  all: {shell}\n", "in/1.txt": "1\n", "in/2.txt": "2\n"})
    with patch("orch23.decide.decisions.MANY_INPUTS", 0):
        build_until_at_rest(moments, "pipeline.yaml")
        write({"in/1.txt": "1\n1\n"})
        age()
        moments.at(moment, changes[change])
        run(moments, "build", "pipeline.yaml")
        moments.forget()
        check_nothing_is_missed(moments, "pipeline.yaml")
    assert Path("out.txt").read_text() == "".join(path.read_text() for path in sorted(Path("in").iterdir()))
