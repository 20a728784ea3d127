"""A model says that no change is needed: the files stay and are verified, and a failure is not passed over."""

import json
from typing import Any

import pytest

from tests.project import Project, files_answer, scripted

NOTHING = files_answer({}, summary="src/m.py is right already, no change needed")
RIGHT, WRONG = "def f():\n    return 2\n", "def f():\n    return 1\n"
VERIFY = [{"shell": "grep -q 'return 2' src/m.py"}]
ANSWERS = [
    ("files", NOTHING),
    ("files", '{"writes": []}'),
    ("files", f"```json\n{NOTHING}\n```"),
    ("files", '{"files": {}}'),
    ("files", "[]"),
    ("files", "No changes\nare needed!"),
    ("blocks", "<think>The file is right.</think>\n\nNO CHANGE NEEDED"),
    ("blocks", '{"writes": [], "deletes": []}'),
    ("edits", "No edits required.\n"),
    ("edits", NOTHING),
    ("code", "No change is needed."),
    ("code", NOTHING),
]


def story(project: Project, *answers: str, returns: str = "files", **more: Any) -> None:
    stage = {"inputs": ["spec.md"], "outputs": ["src/m.py"], "llm": {"returns": returns}, "verify": VERIFY, **more}
    project.write({**scripted({"s": stage}, {"s": [*answers]}), "spec.md": "f returns two\n"})


def attempts(project: Project) -> list[str]:
    """Return the failures that attempts got as feedback, an empty text for one that passed."""
    return [event["data"].get("excerpt") or "" for event in project.events_of("attempt_finished")]


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize(("returns", "answer"), ANSWERS)
def test_the_file_on_disk_stays_and_is_verified(project: Project, returns: str, answer: str) -> None:
    story(project.write({"src/m.py": RIGHT}), answer, returns=returns)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/m.py") == RIGHT
    assert [event["data"]["passed"] for event in project.events_of("check_result")] == [True]
    assert project.plan() == {"s": "fresh"}


def test_the_result_is_replayed_like_any_other(project: Project) -> None:
    story(project.write({"src/m.py": RIGHT}), NOTHING, llm={"returns": "files", "transcripts": "tr"})
    assert project.build().code == 0
    project.run("reset", "--yes")
    again = project.build("--replay")
    assert again.code == 0, again.err
    assert project.read("src/m.py") == RIGHT


@pytest.mark.parametrize(("returns", "answer"), ANSWERS)
def test_with_nothing_on_disk_it_is_refused_with_the_file(project: Project, returns: str, answer: str) -> None:
    story(project, answer, returns=returns)
    outcome = project.build()
    assert outcome.code == 1
    assert "[E203]: the response proposes no file, and `src/m.py` does not exist" in outcome.err


def test_a_file_on_disk_that_is_wrong_does_not_pass_and_saying_so_again_is_no_loop(project: Project) -> None:
    story(project.write({"src/m.py": WRONG}), NOTHING, NOTHING, NOTHING, retry=2)
    outcome = project.build()
    assert outcome.code == 1
    first, second, third = attempts(project)
    assert "E203" not in first
    assert "[E203]: the response changes nothing, and the files failed" in second
    assert first.strip() in second, "what failed is in the feedback of the next attempt, too"
    assert "E203" in third
    assert len(project.events_of("check_result")) == 1


def test_after_it_failed_a_change_passes(project: Project) -> None:
    story(project.write({"src/m.py": WRONG}), NOTHING, NOTHING, files_answer({"src/m.py": RIGHT}), retry=2)
    assert project.build().code == 0
    assert project.read("src/m.py") == RIGHT


def test_after_a_result_that_failed_an_earlier_file_does_not_stay_either(project: Project) -> None:
    story(
        project.write({"src/m.py": RIGHT}),
        files_answer({"src/m.py": WRONG}),
        NOTHING,
        retry={"max": 1, "from": "baseline"},
    )
    assert project.build("--overwrite-edited").code == 1
    assert "the response changes nothing, and the files failed" in attempts(project)[1]


def test_a_form_error_before_it_does_not_count(project: Project) -> None:
    story(project.write({"src/m.py": RIGHT}), "{", NOTHING, retry=1)
    assert project.build().code == 0


@pytest.mark.slow
def test_a_file_that_the_stage_made_before_stays_after_an_edit_of_the_specification(project: Project) -> None:
    story(project, files_answer({"src/m.py": RIGHT}))
    assert project.build().code == 0
    story(project, NOTHING)
    project.edit("spec.md", "f returns two.\n")
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/m.py") == RIGHT
    assert project.plan() == {"s": "fresh"}
    project.delete("src/m.py")
    assert project.plan() == {"s": "restore"}
    assert project.build().code == 0
    assert project.read("src/m.py") == RIGHT
    project.edit("spec.md", "f returns two!\n")
    project.delete("src/m.py")
    assert "`src/m.py` does not exist" in project.build().err


def test_files_that_only_match_a_pattern_are_checked_and_stay_the_users(project: Project) -> None:
    stage: dict[str, Any] = {"outputs": ["src/"], "verify": [{"check": "python_syntax"}], "llm": {}}
    project.write({**scripted({"s": stage}, {"s": [NOTHING]}), "src/m.py": RIGHT, "src/n.py": RIGHT})
    assert project.build().code == 0
    project.edit("src/n.py", "def f(:\n")
    outcome = project.build()
    assert outcome.code == 1, "it does not count as an edit, and the stage runs again"
    assert "src/n.py" in outcome.err


@pytest.mark.parametrize(
    ("returns", "answer", "code"),
    [
        ("files", "{}", "E203"),
        ("files", '{"summary": "done"}', "E203"),
        ("files", "I did it.", "E201"),
        ("files", json.dumps({"writes": [], "error": "no change needed"}), "E217"),
        ("blocks", "Which file do you mean?", "E202"),
        ("code", "I would rather talk about it.", "E218"),
        ("files", "No change needed. I have more to say.", "E201"),
        ("files", "No changes are needed: the file is right.", "E201"),
        ("files", "No changes are needed? It returns 3.", "E201"),
        ("blocks", "Sorry, I can't help with that. No changes needed.", "E202"),
        ("blocks", "TODO: no changes needed yet", "E202"),
        ("edits", "No changes needed but f must return 2", "E202"),
        ("code", "It is not true that no changes are needed: f must return 2.", "E218"),
        ("code", "No change needed in the tests. In f, replace 3 by 2.", "E218"),
    ],
)
def test_other_responses_without_a_file_are_refused_as_before(
    project: Project, returns: str, answer: str, code: str
) -> None:
    story(project.write({"src/m.py": RIGHT}), answer, returns=returns)
    outcome = project.build()
    assert outcome.code == 1
    assert code in outcome.err


@pytest.mark.slow
def test_a_result_that_was_kept_is_replayed_after_a_reset(project: Project) -> None:
    more: dict[str, Any] = {"llm": {"returns": "files", "transcripts": "tr"}}
    story(project, files_answer({"src/m.py": RIGHT}), **more)
    assert project.build().code == 0
    story(project, NOTHING, **more)
    project.edit("spec.md", "f returns two.\n")
    assert project.build().code == 0
    project.run("reset", "--yes")
    again = project.build("--replay")
    assert again.code == 0, again.err
    assert project.read("src/m.py") == RIGHT


def test_a_stage_that_names_no_output_has_no_file_that_could_stay(project: Project) -> None:
    stage = {"allowed_paths": {"write": ["src/"]}, "llm": {}}
    project.write({**scripted({"s": stage}, {"s": [NOTHING]}), "src/m.py": RIGHT})
    assert "[E203]: the response proposes no file. Fix" in project.build().err


def test_an_item_keeps_its_file_and_another_one_writes_its_own(project: Project) -> None:
    stage = {"foreach": {"in": ["a", "b"], "as": "n"}, "outputs": ["src/${{ n }}.py"], "llm": {}}
    answers = {"s@a": [NOTHING], "s@b": [files_answer({"src/b.py": RIGHT})]}
    project.write({**scripted({"s": stage}, answers), "src/a.py": WRONG})
    assert project.build().code == 0
    assert (project.read("src/a.py"), project.read("src/b.py")) == (WRONG, RIGHT)


@pytest.mark.slow
def test_a_file_that_is_no_output_any_more_does_not_stay(project: Project) -> None:
    both = files_answer({"src/m.py": RIGHT, "src/n.py": RIGHT})
    story(project, both, outputs=["src/m.py", "src/n.py"])
    assert project.build().code == 0
    story(project, NOTHING)
    assert project.build().code == 0
    assert project.exists("src/m.py")
    assert not project.exists("src/n.py")
