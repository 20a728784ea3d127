"""Stages with `edits`: what they changed is their result, file by file; all other files are sources (ADR 87)."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.repository import DELETED, EchoModel, Repository, addition, green, pipeline, spec, up_to_date

FEATURE = {"inputs": ["spec.md", "src/**"], "edits": ["src/**"], "llm": {"returns": "files"}, "retry": 0}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "p")
    made.init()
    return made


@pytest.mark.slow
def test_the_key_of_an_llm_stage_has_the_base_of_the_files_that_it_changed(repository: Repository) -> None:
    model = EchoModel()
    feature = {**FEATURE, "inputs": ["spec.md", "src/a.py"]}
    files = {"src/a.py": "a\n", "src/b.py": "b\n", "spec.md": spec("src/a.py: x", "src/new.py: y")}
    repository.write({**pipeline({"feature": feature}), **files})
    with model.answering():
        green(repository.build("a.yaml"))
        assert repository.read("src/a.py") == "a\n" + addition("x")
        up_to_date(repository.build("a.yaml"))
        # A file that matches, and that the stage did not change, is a source.
        repository.edit("src/b.py", "mine\n")
        up_to_date(repository.build("a.yaml"))
        repository.write({"src/c.py": "new\n"})
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 1
    shown = green(repository.run("show", "a.yaml", "--key", "feature")).out
    assert set(re.findall(r"base:\S+", shown)) == {"base:src/a.py", "base:src/new.py"}


SHOUT = {
    "edits": ["src/**"],
    "shell": "cd src; for one in *; do tr a-z A-Z < $one > ../t; cat ../t > $one; done; rm ../t",
}


@pytest.mark.slow
def test_a_program_starts_from_the_files_that_a_user_saves(repository: Repository) -> None:
    repository.write({**pipeline({"shout": SHOUT}), "src/a": "a\n", "src/b": "B\n", "src/c": "c\n"})
    green(repository.build("a.yaml"))
    assert [repository.read(f"src/{one}") for one in "abc"] == ["A\n", "B\n", "C\n"]
    up_to_date(repository.build("a.yaml"))
    repository.edit("src/b", "b\n")
    repository.edit("src/a", "A\nmore\n")
    repository.write({"src/d": "d\n"})
    assert repository.plan("a.yaml") == {"shout": "run"}
    green(repository.build("a.yaml"))
    assert [repository.read(f"src/{one}") for one in "abcd"] == ["A\nMORE\n", "B\n", "C\n", "D\n"]
    up_to_date(repository.build("a.yaml"))
    repository.delete("src/c")
    green(repository.build("a.yaml"))
    assert not repository.exists("src/c")
    up_to_date(repository.build("a.yaml"))
    repository.delete("src/d")
    green(repository.build("a.yaml"))
    assert not repository.exists("src/d")


MOVE = "test ! -e src/a || mv src/a src/b"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "files"),
    [(MOVE, {}), (f"{MOVE}; sed -i s/one/two/ src/b", {}), ("cp src/a src/b", {"src/b": "old\n"})],
    ids=["move", "move and edit", "copy"],
)
def test_a_program_that_moves_or_copies_a_file_over_an_edit_replaces_nothing(
    repository: Repository, command: str, files: dict[str, str]
) -> None:
    stages = pipeline({"move": {"edits": ["src/**"], "shell": command}})
    repository.write({**stages, "src/a": "one\n", **files})
    green(repository.build("a.yaml"))
    up_to_date(repository.build("a.yaml"))
    made, there = repository.read("src/b"), repository.exists("src/a")
    repository.edit("src/b", "mine\n")
    for flags in ((), ("-f", "move")):
        ended = repository.build("a.yaml", *flags)
        assert ended.code == 6, ended.err
        assert "its command would replace what you wrote: src/b" in ended.err
        assert (repository.read("src/b"), repository.exists("src/a")) == ("mine\n", there)
    # Both ways out: the result is taken, or the stage is removed.
    repository.commit()
    other = repository.clone(repository.root.parent / "other", store=True)
    green(other.build("a.yaml", "--overwrite-edited"))
    assert (other.read("src/b"), other.exists("src/a")) == (made, there)
    up_to_date(other.build("a.yaml"))
    repository.write(pipeline({"later": {"outputs": ["x"], "shell": "echo > x"}}))
    green(repository.build("a.yaml"))
    assert (repository.read("src/b"), repository.exists("src/a")) == ("mine\n", there)


@pytest.mark.slow
def test_a_program_that_copies_runs_again_from_the_same_start_and_may_undo_an_edit(repository: Repository) -> None:
    stages = pipeline({"shout": {**SHOUT, "shell": f"cp src/a src/b; {SHOUT['shell']}"}})
    repository.write({**stages, "src/a": "A\n", "src/b": "b\n", "src/c": "cc\n"})
    green(repository.build("a.yaml"))
    green(repository.build("a.yaml", "-f", "shout"))
    for number, text in enumerate(("Cc\n", "cC\n", "Cc\n")):
        if number:
            green(repository.run("reset", "a.yaml", *(["--outputs"] if number == 2 else [])))
        repository.edit("src/c", text)
        green(repository.build("a.yaml"))
        assert [repository.read(f"src/{one}") for one in "abc"] == ["A\n", "A\n", "CC\n"]


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llm", "shell"])
def test_clean_gives_back_what_was_there_and_the_next_build_restores_the_result(
    repository: Repository, kind: str
) -> None:
    command = "cd src; echo x >> a; echo y > new; rm b"
    shell = {"inputs": ["spec.md"], "edits": ["src/**"], "shell": command}
    asked = spec("src/a: x", "src/new: y", f"src/b: {DELETED}")
    before = {"src/a": "a\n", "src/b": "b\n", "src/c": "c\n"}
    model = EchoModel()
    repository.write({**pipeline({"feature": FEATURE if kind == "llm" else shell}), **before, "spec.md": asked})
    with model.answering():
        green(repository.build("a.yaml"))
        after = repository.files("src")
        assert set(after) == {"src/a", "src/c", "src/new"}
        for reset in (False, True):
            if reset:
                green(repository.run("reset", "a.yaml"))
            green(repository.run("clean", "a.yaml"))
            assert repository.files("src") == {path: text.encode() for path, text in before.items()}
            green(repository.build("a.yaml"))
            assert repository.files("src") == after
            up_to_date(repository.build("a.yaml"))
        # Without the stage, the file that it created is removed, and the others stay as they are.
        repository.write(pipeline({"other": {"outputs": ["o"], "shell": "echo o > o"}}))
        green(repository.build("a.yaml"))
    assert repository.files("src") == {path: text for path, text in after.items() if path != "src/new"}
    assert len(model.calls) == (1 if kind == "llm" else 0)


@pytest.mark.slow
def test_release_names_the_files_that_stay_deleted(repository: Repository) -> None:
    stage = {"edits": ["src/**"], "shell": "rm -f src/a"}
    repository.write({**pipeline({"remove": stage}), "src/a": "a\n", "src/b": "b\n"})
    green(repository.build("a.yaml"))
    assert not repository.exists("src/a")
    released = green(repository.run("release", "a.yaml", "remove"))
    assert released.out == "left src/a deleted; the store has its bytes\n"


@pytest.mark.slow
def test_clean_leaves_an_edit_of_a_released_file(repository: Repository) -> None:
    stage = {"edits": ["src/**"], "shell": "grep -q done src/a || echo done >> src/a; echo new > src/new"}
    repository.write({**pipeline({"tidy": stage}), "src/a": "a\n"})
    green(repository.build("a.yaml"))
    green(repository.run("release", "a.yaml", "tidy"))
    repository.edit("src/new", "mine\n")
    green(repository.run("clean", "a.yaml"))
    assert repository.files("src") == {"src/a": b"a\ndone\n", "src/new": b"mine\n"}


@pytest.mark.slow
def test_a_reverted_spec_restores_all_files_of_its_result_and_what_the_newer_one_changed_beyond(
    repository: Repository,
) -> None:
    files = {"src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x", "src/new: y")}
    repository.write({**pipeline({"feature": FEATURE}), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        first = repository.files("src")
        repository.edit("spec.md", spec("src/b: z", "src/other: y"))
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "a\n"
        assert set(repository.files("src")) == {"src/a", "src/b", "src/other"}
        repository.edit("spec.md", files["spec.md"])
        assert repository.plan("a.yaml") == {"feature": "restore"}
        green(repository.build("a.yaml"))
        assert repository.files("src") == first
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 2


@pytest.mark.slow
def test_an_unaccepted_edit_of_a_result_stops_a_model_and_a_source_is_its_base(repository: Repository) -> None:
    files = {"src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x")}
    repository.write({**pipeline({"feature": FEATURE}), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.edit("src/b", "b\nmine\n")
        green(repository.build("a.yaml"))
        assert model.last.base["src/b"] == "b\nmine\n"
        assert model.last.base["src/a"] == "a\n"
        repository.edit("src/a", repository.read("src/a") + "mine\n")
        assert repository.build("a.yaml").code == 6
        green(repository.run("accept", "a.yaml", "feature"))
        up_to_date(repository.build("a.yaml"))
        repository.edit("spec.md", spec("src/a: more"))
        green(repository.build("a.yaml"))
    assert model.last.base["src/a"] == "a\n" + addition("x") + "mine\n"
    assert len(model.calls) == 3


@pytest.mark.slow
def test_accept_keeps_what_the_result_deleted(repository: Repository) -> None:
    files = {"src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x", f"src/b: {DELETED}")}
    repository.write({**pipeline({"feature": FEATURE}), **files})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        repository.edit("src/a", "mine\n")
        green(repository.run("accept", "a.yaml", "feature"))
        up_to_date(repository.build("a.yaml"))
    assert set(repository.files("src")) == {"src/a"}


@pytest.mark.slow
def test_a_file_saved_where_a_model_deleted_one_stays_until_the_model_has_to_run(repository: Repository) -> None:
    files = {"src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x", f"src/b: {DELETED}")}
    repository.write({**pipeline({"feature": FEATURE}), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.write({"src/b": "mine\n"})
        green(repository.build("a.yaml"))
        assert repository.read("src/b") == "mine\n"
        repository.edit("spec.md", spec("src/a: y", f"src/b: {DELETED}"))
        assert repository.build("a.yaml").code == 6
        assert len(model.calls) == 1
    assert repository.read("src/b") == "mine\n"


@pytest.mark.slow
def test_after_a_reset_a_program_starts_from_a_file_that_no_one_committed(repository: Repository) -> None:
    stages = [{"line": {"edits": ["src/a"], "shell": f"grep -q {one} src/a || echo {one} >> src/a"}} for one in "xy"]
    repository.write({**pipeline(stages[0]), "src/a": "a\n"})
    green(repository.build("a.yaml"))
    green(repository.run("reset", "a.yaml"))
    repository.write(pipeline(stages[1]))
    green(repository.build("a.yaml"))
    assert repository.read("src/a") == "a\ny\n"
    up_to_date(repository.build("a.yaml"))


@pytest.mark.slow
def test_what_an_ended_stage_deleted_stays_deleted_for_a_stage_that_replaces_it(repository: Repository) -> None:
    model, asked = EchoModel(), spec("src/a: x", f"src/b: {DELETED}")
    repository.write({**pipeline({"one": FEATURE}), "src/a": "a\n", "src/b": "b\n", "spec.md": asked})
    with model.answering():
        green(repository.build("a.yaml"))
        repository.write({**pipeline({"two": FEATURE}), "spec.md": spec("src/a: y")})
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "a\n" + addition("x") + addition("y")
        assert model.last.base == {"src/a": "a\n" + addition("x")}
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 2
    assert not repository.exists("src/b")


@pytest.mark.slow
def test_a_program_takes_an_edit_after_release_and_leaves_it(repository: Repository) -> None:
    stage = {"edits": ["src/**"], "shell": "grep -q done src/a || echo done >> src/a"}
    repository.write({**pipeline({"tidy": stage}), "src/a": "a\n", "src/b": "b\n"})
    green(repository.build("a.yaml"))
    green(repository.run("release", "a.yaml", "tidy"))
    green(repository.build("a.yaml"))
    repository.edit("src/a", "a\ndone\nmine\n")
    green(repository.build("a.yaml"))
    assert repository.read("src/a") == "a\ndone\nmine\n"
    up_to_date(repository.build("a.yaml"))


def settles_with_the_lock_file_of_a_clone(repository: Repository, place: Path) -> None:
    """Take the lock file of a clone after an edit here: a second build then changes nothing."""
    clone = repository.clone(place)
    green(clone.build("a.yaml"))
    repository.edit("src/b", "mine\n")
    green(repository.build("a.yaml"))
    repository.write({"a.lock": clone.read("a.lock")})
    green(repository.build("a.yaml"))
    lock = repository.read("a.lock")
    up_to_date(repository.build("a.yaml"))
    assert repository.read("a.lock") == lock


def test_with_another_original_in_the_lock_file_of_a_clone_a_second_build_changes_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    repository.write({**pipeline({"one": FEATURE}), "src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        green(repository.run("release", "a.yaml", "one"))
        repository.commit()
        settles_with_the_lock_file_of_a_clone(repository, tmp_path / "clone")


def test_what_a_renamed_program_left_as_it_was_stays_its_start(repository: Repository, tmp_path: Path) -> None:
    stage = {"edits": ["src/**"], "shell": "grep -q done src/a || echo done >> src/a"}
    repository.write({**pipeline({"tidy": stage}), "src/a": "a\n", "src/b": "b\n"})
    green(repository.build("a.yaml"))
    repository.delete("a.lock")
    repository.write(pipeline({"other": stage}))
    repository.commit()
    settles_with_the_lock_file_of_a_clone(repository, tmp_path / "clone")


def test_a_model_starts_from_a_released_file_that_was_edited_before_a_program(repository: Repository) -> None:
    stages: dict[str, Any] = {
        "one": FEATURE,
        "last": {"needs": ["one"], "edits": ["src/**"], "shell": "echo 1 > src/b"},
    }
    repository.write({**pipeline(stages), "src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.commit()
        green(repository.run("release", "a.yaml", "one"))
        mine = f"{repository.read('src/a')}mine\n"
        repository.edit("src/a", mine)
        green(repository.build("a.yaml"))
        assert model.last.base["src/a"] == mine
        assert repository.read("src/a") == mine + addition("x")
        up_to_date(repository.build("a.yaml"))


def test_clean_gives_back_what_the_last_result_started_from_and_not_one_before_a_reset(
    repository: Repository, tmp_path: Path
) -> None:
    last = {"needs": ["one"], "edits": ["src/b"], "shell": "test ! -e src/b || grep -q end src/b || echo end >> src/b"}
    repository.write({**pipeline({"one": FEATURE, "last": last}), "src/a": "a\n", "src/b": "b\n"})
    repository.write({"spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        repository.commit()
        clone = repository.clone(tmp_path / "clone")
        clone.edit("src/b", "b\nend\ntheirs\n")
        green(clone.build("a.yaml"))
        repository.edit("spec.md", spec("src/a: x", f"src/b: {DELETED}"))
        green(repository.build("a.yaml"))
        repository.write({"a.lock": clone.read("a.lock"), "src/b": "mine\n"})
        green(repository.run("reset", "a.yaml"))
        green(repository.build("a.yaml"))
        assert not repository.exists("src/b")
        green(repository.run("clean", "a.yaml"))
        assert repository.read("src/b") == "mine\n"


@pytest.mark.slow
def test_an_older_result_that_a_checkout_brings_back_is_the_base_of_a_program(repository: Repository) -> None:
    repository.write({**pipeline({"shout": SHOUT}), "src/a": "a\n"})
    repository.init()
    green(repository.build("a.yaml"))
    repository.commit()
    repository.edit("src/a", "b\n")
    green(repository.build("a.yaml"))
    assert repository.read("src/a") == "B\n"
    repository.git("checkout", "-q", "HEAD", "--", "src/a")
    green(repository.build("a.yaml"))
    assert repository.read("src/a") == "A\n"


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["", "1"])
def test_a_clone_whose_base_no_one_committed_has_nothing_to_do(
    repository: Repository, tmp_path: Path, trust: str
) -> None:
    repository.write({**pipeline({"shout": SHOUT}), "src/a": "a\n", "src/b": "b\n"})
    repository.init()
    green(repository.build("a.yaml"))
    repository.commit()
    clone = repository.clone(tmp_path / "clone")
    before = clone.files()
    green(clone.build("a.yaml", env={"ORCH23_TRUST": trust}))
    assert clone.files() == before
    up_to_date(clone.build("a.yaml", env={"ORCH23_TRUST": trust}))
    # It has to run: it starts from the result, since the bytes before it are lost.
    clone.edit("a.yaml", clone.read("a.yaml").replace("a-z A-Z", "a-y A-Y"))
    green(clone.build("a.yaml", env={"ORCH23_TRUST": trust}))
    assert clone.read("src/a") == "A\n"


TWO: dict[str, dict[str, Any]] = {
    "feature": {**FEATURE, "inputs": ["spec.md", "src/*"], "edits": ["src/*"]},
    "shout": {"needs": ["feature"], "edits": ["src/*"], "shell": SHOUT["shell"]},
}


@pytest.mark.slow
def test_the_last_program_of_a_chain_takes_an_edit(repository: Repository) -> None:
    files = {"src/a": "A\n", "src/b": "b\n", "src/c": "C\n", "spec.md": spec("src/a: x", "src/b: y")}
    repository.write({**pipeline(TWO), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "A\n" + addition("x").upper()
        up_to_date(repository.build("a.yaml"))
        repository.edit("src/a", repository.read("src/a") + "mine\n")
        assert repository.plan("a.yaml") == {"feature": "fresh", "shout": "run"}
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "A\n" + addition("x").upper() + "MINE\n"
        up_to_date(repository.build("a.yaml"))
        # The edit needs no change by the program: it is left, and is a source of it.
        repository.edit("src/a", "MINE\n")
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "MINE\n"
        up_to_date(repository.build("a.yaml"))
        assert len(model.calls) == 1
        # The model has to run, and the edit of its result is neither accepted nor committed.
        repository.edit("spec.md", spec("src/a: z", "src/b: y"))
        assert repository.build("a.yaml").code == 6
    assert repository.read("src/a") == "MINE\n"


@pytest.mark.slow
@pytest.mark.parametrize("decision", ["accept", "commit", "overwrite"])
def test_an_edit_from_before_a_result_that_a_failed_program_holds_back_is_one_of_the_model(
    repository: Repository, decision: str
) -> None:
    failing = {"feature": TWO["feature"], "shout": {**TWO["shout"], "shell": "false"}}
    repository.write({**pipeline(failing), "src/a": "A\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        assert repository.build("a.yaml").code == 1
        assert repository.read("src/a") == "A\n"
        repository.write(pipeline(TWO))
        repository.edit("src/a", "A\nmine\n")
        # The file does not have what the model changed.
        assert repository.plan("a.yaml")["feature"] == "edited"
        assert repository.build("a.yaml").code == 6
        assert repository.read("src/a") == "A\nmine\n"
        if decision == "accept":
            green(repository.run("accept", "a.yaml", "feature"))
        elif decision == "commit":
            repository.commit()
        green(repository.build("a.yaml", *(["--overwrite-edited"] if decision == "overwrite" else [])))
        kept = addition("x").upper() if decision == "overwrite" else "MINE\n"
        assert repository.read("src/a") == "A\n" + kept
        up_to_date(repository.build("a.yaml"))


@pytest.mark.slow
def test_a_reader_sees_an_edit_that_the_last_program_of_a_chain_left_as_it_was(repository: Repository) -> None:
    files = {"src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")}
    read = {"inputs": ["src/*"], "outputs": ["seen"], "shell": "cat src/a > seen"}
    repository.write({**pipeline({**TWO, "read": read}), **files})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        repository.edit("src/a", repository.read("src/a") + "MINE\n")
        green(repository.build("a.yaml"))
        assert repository.read("seen") == repository.read("src/a") == "A\n" + addition("x").upper() + "MINE\n"
        up_to_date(repository.build("a.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["B\nMINE\n", "b\nmine\n"])
def test_a_model_sees_an_edit_of_a_file_that_only_a_later_program_wrote(repository: Repository, text: str) -> None:
    files = {"src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")}
    repository.write({**pipeline(TWO), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.edit("src/b", text)
        green(repository.build("a.yaml"))
        assert model.last.base["src/b"] == text
        assert repository.read("src/b") == "B\nMINE\n"
        up_to_date(repository.build("a.yaml"))
        green(repository.run("clean", "a.yaml"))
        assert repository.read("src/b") == text
        repository.delete("src/b")
        green(repository.build("a.yaml"))
        assert "src/b" not in model.last.base
        up_to_date(repository.build("a.yaml"))
    assert not repository.exists("src/b")


@pytest.mark.slow
@pytest.mark.parametrize("command", [("clean",), ("reset", "--outputs")])
def test_in_a_clone_that_lacks_the_bytes_before_the_first_run_nothing_is_removed(
    repository: Repository, tmp_path: Path, command: tuple[str, ...]
) -> None:
    repository.write({**pipeline({"shout": SHOUT}), "src/a": "a\n", "src/b": "b\n"})
    green(repository.build("a.yaml"))
    repository.commit()
    clone = repository.clone(tmp_path / "clone")
    before = clone.files()
    outcome = clone.run(command[0], "a.yaml", *command[1:])
    assert outcome.code == 66, outcome.err
    assert outcome.err.count("E710") == 2, "one error a file"
    assert clone.files() == before
    green(clone.run("release", "a.yaml", "shout"))
    green(clone.run(command[0], "a.yaml", *command[1:]))
    assert clone.files("src") == repository.files("src")


@pytest.mark.slow
@pytest.mark.parametrize("cloned", [False, True])
@pytest.mark.parametrize("end", ["drop", "switch off"])
def test_files_of_a_program_that_has_ended_are_sources_at_once(
    repository: Repository, tmp_path: Path, end: str, cloned: bool
) -> None:
    files = {"src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")}
    repository.write({**pipeline(TWO), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.commit()
        one = repository.clone(tmp_path / "clone") if cloned else repository
        off = {"shout": {**TWO["shout"], "if": False}} if end == "switch off" else {}
        one.write(pipeline({"feature": TWO["feature"], **off}))
        green(one.build("a.yaml"))
        assert (model.last.base["src/b"], one.read("src/b")) == ("B\n", "B\n")
        up_to_date(one.build("a.yaml"))
        one.commit()
        assert one.clone(tmp_path / "other").plan("a.yaml")["feature"] != "run"


@pytest.mark.slow
def test_an_edit_stays_once_the_task_of_a_model_leaves_the_file_out(repository: Repository, tmp_path: Path) -> None:
    repository.write({**pipeline(TWO), "src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        repository.edit("src/a", "mine\n")
        green(repository.build("a.yaml"))
        repository.commit()
        repository.edit("spec.md", spec("src/n: z"))
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "MINE\n"
        up_to_date(repository.build("a.yaml"))
        repository.commit()
        green((clone := repository.clone(tmp_path / "clone")).build("a.yaml"))
        assert clone.files("src") == repository.files("src")


@pytest.mark.slow
@pytest.mark.parametrize("mine", [{"src/b": "B\nMINE\n"}, {}])
def test_an_edit_before_a_reset_without_the_lock_file_is_what_all_stages_start_from(
    repository: Repository, mine: dict[str, str]
) -> None:
    repository.write({**pipeline(TWO), "src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.delete("a.lock")
        repository.delete("src/b")
        repository.write(mine)
        green(repository.run("reset", "a.yaml"))
        green(repository.build("a.yaml"))
        assert model.last.base == {"src/a": "A\n", **mine}
        up_to_date(repository.build("a.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shout", "renamed"])
def test_a_model_sees_the_files_of_a_program_as_they_were_released(repository: Repository, name: str) -> None:
    repository.write({**pipeline(TWO), "src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        green(repository.run("release", "a.yaml", "shout"))
        repository.write(pipeline({"feature": TWO["feature"], name: TWO["shout"]}))
        green(repository.build("a.yaml"))
        assert model.last.base["src/b"] == "B\n"
        up_to_date(repository.build("a.yaml"))
    assert repository.read("src/b") == "B\n"


@pytest.mark.slow
def test_a_model_in_place_of_a_program_starts_from_an_edit(repository: Repository) -> None:
    repository.write({**pipeline({"change": SHOUT}), "src/a": "a\n", "spec.md": spec("src/a: x")})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.write({**pipeline({"change": FEATURE}), "src/a": "mine\n"})
        green(repository.build("a.yaml"))
        assert model.last.base == {"src/a": "mine\n"}
        up_to_date(repository.build("a.yaml"))


@pytest.mark.slow
def test_a_program_that_left_a_known_version_as_it_was_has_the_same_record_again(tmp_path: Path) -> None:
    project = Repository(tmp_path / "p")  # without git, the version that `shout` started from is lost
    stages = {"feature": {**TWO["feature"], "once": True}, "shout": TWO["shout"]}
    project.write({**pipeline(stages), "src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(project.build("a.yaml"))
        green(project.build("a.yaml"))  # `feature` is done: its result is the original of `shout`
        green(project.run("reset", "a.yaml"))
        project.write(pipeline({**stages, "feature": {**stages["feature"], "if": False}}))
        green(project.build("a.yaml"))
        before = project.read("a.lock")
        up_to_date(project.build("a.yaml"))
    assert project.read("a.lock") == before


@pytest.mark.slow
def test_an_edit_that_was_committed_before_it_was_accepted_is_a_reason_to_run(repository: Repository) -> None:
    feature = {**FEATURE, "on_edit": "rerun", "format": [{"shell": "true"}]}
    repository.write({**pipeline({"feature": feature}), "src/a": "a\n", "spec.md": spec("src/a: x")})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.edit("src/a", "mine\n")
        repository.write({"spec.md": spec("src/a: y")})
        repository.commit()
        green(repository.run("accept", "a.yaml", "feature"))
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "mine\n" + addition("y")
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 2


@pytest.mark.slow
def test_a_renamed_stage_does_not_restore_the_edit_that_it_ran_from(repository: Repository) -> None:
    feature = {**FEATURE, "on_edit": "rerun"}
    repository.write({**pipeline({"feature": feature}), "src/a": "a\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        repository.edit("src/a", "mine\n")
        green(repository.run("accept", "a.yaml", "feature"))
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "mine\n" + addition("x")
        repository.write(pipeline({"renamed": feature}))
        up_to_date(repository.build("a.yaml"))
    assert repository.read("src/a") == "mine\n" + addition("x")


@pytest.mark.slow
def test_an_edit_of_a_file_of_a_renamed_program_is_seen_at_once(repository: Repository) -> None:
    repository.write({**pipeline(TWO), "src/a": "A\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.edit("src/b", "mine\n")
        repository.write(pipeline({"feature": TWO["feature"], "renamed": TWO["shout"]}))
        green(repository.build("a.yaml"))
        assert model.last.base["src/b"] == "mine\n"
        assert repository.read("src/b") == "MINE\n"
        up_to_date(repository.build("a.yaml"))


@pytest.mark.slow
def test_a_new_program_starts_from_the_files_that_another_one_leaves(repository: Repository) -> None:
    def ending(line: str, files: str) -> dict[str, Any]:
        command = f"for one in {files}; do grep -q {line} $one || echo {line} >> $one; done"
        return {"needs": ["feature"], "edits": ["src/*"], "shell": command}

    files = {"src/a": "a\n", "src/b": "b\n", "src/c": "c\n", "spec.md": spec("src/c: x")}
    repository.write({**pipeline({"feature": TWO["feature"], "first": ending("1", "src/*")}), **files})
    model = EchoModel()
    with model.answering():
        green(repository.build("a.yaml"))
        repository.commit()
        repository.write(pipeline({"feature": TWO["feature"], "second": ending("2", "src/a")}))
        green(repository.build("a.yaml"))
        assert [repository.read(f"src/{one}") for one in "ab"] == ["a\n1\n2\n", "b\n1\n"]
        assert repository.read("src/c") == "c\n" + addition("x"), "the last version of the chain"
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 1


@pytest.mark.slow
def test_a_restored_result_has_what_it_starts_from_now_as_its_original(repository: Repository) -> None:
    repository.write({**pipeline(TWO), "src/a": "a\n", "src/b": "B\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        after = repository.read("src/a")
        repository.write(pipeline({"feature": TWO["feature"]}))
        green(repository.build("a.yaml"))
        assert repository.read("src/a") == "a\n" + addition("x")
    repository.write(pipeline({"shout": {**TWO["shout"], "needs": []}}))
    green(repository.build("a.yaml"))  # `feature` has ended: its result is a source
    up_to_date(repository.build("a.yaml"))
    assert repository.read("src/a") == after


@pytest.mark.slow
def test_a_released_file_of_a_stage_with_once_is_what_a_later_result_started_from(repository: Repository) -> None:
    stages = {**TWO, "feature": {**TWO["feature"], "once": True}}
    repository.write({**pipeline(stages), "src/a": "a\n", "src/b": "b\n", "spec.md": spec("src/a: x")})
    with EchoModel().answering():
        green(repository.build("a.yaml"))
        after = repository.files("src")
        green(repository.run("clean", "a.yaml"))
        green(repository.run("release", "a.yaml", "feature"))
        green(repository.build("a.yaml"))
        up_to_date(repository.build("a.yaml"))
    assert repository.files("src") == after
