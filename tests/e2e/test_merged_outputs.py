"""Outputs that git merged: bytes that the stage makes now are no edit, all others are left to the user."""

import pytest

from tests.repository import Repository, ends, green, pipeline, up_to_date

JOIN = {"inputs": ["in/*.txt"], "outputs": ["all.txt"], "shell": "cat in/*.txt > all.txt"}
PAGE = "page.txt.j2"
LINES = "".join(f"line {number}\n" for number in range(9))


@pytest.fixture
def repository(tmp_path) -> Repository:
    found = Repository(tmp_path / "project")
    found.init()
    found.write({"in/1.txt": "one\n", "in/2.txt": "two\n", PAGE: "{% for one in inputs %}{{ one.text }}{% endfor %}"})
    return found


def built(repository: Repository, stages) -> Repository:
    repository.write(pipeline(stages))
    green(repository.run("build", "a.yaml"))
    repository.commit()
    return repository


def on_a_branch(repository: Repository, path: str, text: str) -> None:
    """Change an input on a branch, build and commit there, and come back."""
    repository.git("checkout", "-q", "-b", "other")
    repository.edit(path, text)
    green(repository.run("build", "a.yaml"))
    repository.commit()
    repository.git("checkout", "-q", "main")


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("stage", [JOIN, {**JOIN, "shell": None, "render": PAGE}])
def test_a_file_that_git_merged_to_the_bytes_that_the_stage_makes_is_no_edit(repository, side, stage):
    stage = {key: value for key, value in stage.items() if value is not None}
    repository.write({"in/1.txt": LINES, "in/2.txt": LINES})
    built(
        repository, {"join": stage, "after": {"inputs": ["all.txt"], "outputs": ["b.txt"], "shell": "cp all.txt b.txt"}}
    )
    on_a_branch(repository, "in/1.txt", "new\n" + LINES)
    repository.edit("in/2.txt", LINES + "newer\n")
    green(repository.run("build", "a.yaml"))
    repository.commit()
    repository.git("merge", "-q", "--no-commit", "-X", side, "other")
    repository.git("checkout", f"--{side}", "a.lock")
    merged = repository.read("all.txt")
    assert merged == "new\n" + LINES + LINES + "newer\n"
    assert "may end as edited (edited by hand: all.txt)" in repository.run("plan", "a.yaml").out
    assert "may end as edited" in repository.run("explain", "a.yaml", "join").out
    green(repository.run("build", "a.yaml"))
    assert ends(repository)["join"] == "built"
    assert repository.read("all.txt") == repository.read("b.txt") == merged
    up_to_date(repository.run("build", "a.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-f", "join")])
def test_other_bytes_than_the_stage_makes_are_an_edit(repository, more):
    built(
        repository, {"join": JOIN, "after": {"inputs": ["all.txt"], "outputs": ["b.txt"], "shell": "cp all.txt b.txt"}}
    )
    repository.edit("in/1.txt", "new\n")
    repository.edit("all.txt", "by hand\n")
    lock = repository.read("a.lock")
    for _ in range(2):
        outcome = repository.run("build", "a.yaml", *more)
        assert (outcome.code, ends(repository)) == (6, {"join": "edited", "after": "blocked"})
        assert "edited by hand: all.txt" in outcome.out + outcome.err
        assert (repository.read("all.txt"), repository.read("a.lock")) == ("by hand\n", lock)
    green(repository.run("accept", "a.yaml", "join"))
    assert repository.read("all.txt") == "by hand\n"
    green(repository.run("build", "a.yaml"))


def test_an_edit_of_a_stage_that_need_not_run_is_not_compared(repository):
    stages = {"join": {**JOIN, "shell": "cat in/*.txt > all.txt"}}
    built(repository, stages)
    repository.edit("all.txt", "by hand\n")
    assert repository.run("build", "a.yaml").code == 6
    assert not repository.events_of("attempt_started")


@pytest.mark.slow
def test_an_accepted_edit_that_the_stage_makes_now_is_its_result(repository):
    built(repository, {"join": JOIN})
    repository.edit("all.txt", "new\ntwo\n")
    green(repository.run("accept", "a.yaml", "join"))
    repository.edit("in/1.txt", "other\n")
    assert repository.run("build", "a.yaml").code == 6
    assert repository.read("all.txt") == "new\ntwo\n"
    repository.edit("in/1.txt", "new\n")
    green(repository.run("build", "a.yaml"))
    repository.edit("in/1.txt", "newer\n")
    green(repository.run("build", "a.yaml"))
    assert repository.read("all.txt") == "newer\ntwo\n", "the bytes are the stage's own again"


@pytest.mark.slow
def test_if_one_of_several_outputs_differs_nothing_is_written(repository):
    stages = {"both": {"inputs": ["in/1.txt"], "outputs": ["a.txt", "b.txt"], "shell": "tee a.txt b.txt < in/1.txt"}}
    built(repository, stages)
    repository.edit("in/1.txt", "new\n")
    repository.write({"a.txt": "new\n", "b.txt": "by hand\n"})
    outcome = repository.run("build", "a.yaml")
    assert (outcome.code, repository.read("a.txt"), repository.read("b.txt")) == (6, "new\n", "by hand\n")
    assert "edited by hand: b.txt" in outcome.out + outcome.err
    repository.edit("b.txt", "one\n")
    green(repository.run("build", "a.yaml"))
    assert (repository.read("a.txt"), repository.read("b.txt")) == ("new\n", "new\n")


@pytest.mark.slow
def test_an_edited_file_that_the_new_result_lacks_stays(repository):
    program = "mkdir -p site; for i in $(cat in/1.txt); do echo page $i > site/$i; done"
    built(repository, {"site": {"inputs": ["in/1.txt"], "outputs": ["site/"], "shell": program}})
    repository.edit("in/1.txt", "one two\n")
    repository.write({"site/one": "by hand\n"})
    assert repository.run("build", "a.yaml").code == 6
    assert not repository.exists("site/two")
    repository.write({"site/one": "page one\n", "site/two": "page two\n"})
    green(repository.run("build", "a.yaml"))
    repository.edit("in/1.txt", "two\n")
    repository.write({"site/one": "by hand\n"})
    assert repository.run("build", "a.yaml").code == 6
    assert repository.read("site/one") == "by hand\n"
    repository.delete("site/one")
    green(repository.run("build", "a.yaml"))
    assert not repository.exists("site/one")


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True])
def test_items_whose_bytes_differ_are_edited_and_withhold_only_their_group(repository, together):
    each = {
        "foreach": {"in": ["1", "2"], "as": "n", **({"promote": "together"} if together else {})},
        "inputs": ["in/${{ n }}.txt", "all.md"],
        "outputs": ["out/${{ n }}.txt"],
        "shell": "cat in/${{ n }}.txt all.md > out/${{ n }}.txt",
    }
    repository.write({"all.md": "a\n"})
    built(repository, {"each": each})
    repository.edit("all.md", "b\n")
    repository.write({"out/1.txt": "one\nb\n", "out/2.txt": "by hand\n"})
    assert repository.run("build", "a.yaml", "-k").code == 6
    assert ends(repository) == {"each@1": "held" if together else "built", "each@2": "edited"}
    assert repository.read("out/2.txt") == "by hand\n"
    repository.edit("out/2.txt", "two\nb\n")
    green(repository.run("build", "a.yaml"))
    up_to_date(repository.run("build", "a.yaml"))


@pytest.mark.slow
def test_a_failed_run_keeps_no_file_over_an_edit(repository):
    stage = {**JOIN, "shell": "cat in/*.txt > all.txt; ! grep -q bad in/1.txt", "on_failure": "keep"}
    built(repository, {"join": stage})
    repository.edit("all.txt", "by hand\n")
    green(repository.run("accept", "a.yaml", "join"))
    repository.edit("in/1.txt", "bad\n")
    assert repository.run("build", "a.yaml").code == 1
    assert repository.read("all.txt") == "by hand\n"


@pytest.mark.slow
def test_the_report_of_tests_is_compared_as_any_output(repository):
    stage = {
        "inputs": ["test_a.py"],
        "outputs": ["report.json"],
        "pytest": {"paths": ["test_a.py"], "report": "report.json"},
    }
    repository.write({"test_a.py": "def test_a(): pass\n"})
    built(repository, {"tests": stage})
    first = repository.read("report.json")
    repository.edit("test_a.py", "def test_a(): pass\n\ndef test_b(): pass\n")
    repository.edit("report.json", first + "\n")
    assert repository.run("build", "a.yaml").code == 6
    repository.edit("report.json", first)
    green(repository.run("build", "a.yaml"))
    second = repository.read("report.json")
    repository.edit("test_a.py", "def test_a(): pass\n")
    shown = repository.run("plan", "a.yaml").out
    assert "restore" in shown
    assert second != first


COPIES = {"outputs": ["d/"], "shell": "mkdir -p d; cp in/1.txt d/a; cp in/1.txt d/b"}


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [{}, {"outputs": ["d/a", "d/b"]}, {"shell": "mkdir -p d; cp in/1.txt d/a; grep -v new in/1.txt > d/b || rm d/b"}],
)
def test_accepting_an_edit_for_a_changed_input_makes_the_other_outputs_again(repository, more):
    use = {"inputs": ["d/**"], "outputs": ["use.txt"], "shell": "cat d/* > use.txt"}
    stage = {"inputs": ["in/1.txt"], **COPIES, **more}
    built(repository, {"copies": stage, "use": use})
    repository.edit("in/1.txt", "new\n")
    repository.edit("d/a", "by hand\n")
    assert repository.run("build", "a.yaml").code == 6
    green(repository.run("accept", "a.yaml", "copies"))
    green(repository.run("build", "a.yaml"))
    is_deleted = "grep" in stage["shell"]
    assert repository.exists("d/b") is not is_deleted
    assert repository.read("use.txt") == "by hand\n" + ("" if is_deleted else "new\n")
    up_to_date(repository.run("build", "a.yaml"))
