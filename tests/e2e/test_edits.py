"""A stage that edits a large file: the response has only what changes, and a block that does not fit is repaired."""

from typing import Any

import pytest

from tests.project import Project, files_answer, scripted

LINES = [f"value_{n} = {n}\n" for n in range(6000)]
BIG = "".join(LINES)
NOTES = "# a note\n" * 30_000
STAGE: dict[str, Any] = {"inputs": ["spec.md"], "outputs": ["big.py"], "retry": 1, "llm": {"returns": "edits"}}


def edit(*pairs: tuple[str, str]) -> str:
    blocks = "".join(f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n" for old, new in pairs)
    return f"I change three lines.\n\nbig.py\n{blocks}"


def changed(*numbers: int) -> list[tuple[str, str]]:
    return [(LINES[n], f"value_{n} = -{n}\n") for n in numbers]


def story(project: Project, *answers: str, big: str = BIG, returns: str = "edits") -> None:
    prompt = "{{ inputs | blocks }}{% if brief %}\n{{ brief.excerpt }}{% endif %}\n"
    context = {"max_bytes": "500k"}
    stage = {**STAGE, "llm": {"returns": returns, "prompt": "edit.md.j2", "context": context}}
    project.write({**scripted({"code": stage}, {"code": [*answers]}), "edit.md.j2": prompt})
    project.write({"spec.md": "change three values\n", "big.py": big})


@pytest.mark.slow
def test_three_lines_of_six_thousand_are_changed_by_a_short_response(project: Project) -> None:
    answer = edit(*changed(17, 3000, 5999))
    story(project, answer)
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 0, outcome.err
    expected = [f"value_{n} = -{n}\n" if n in (17, 3000, 5999) else line for n, line in enumerate(LINES)]
    assert project.read("big.py") == "".join(expected)
    assert len(answer) * 300 < len(BIG)


@pytest.mark.slow
def test_a_block_that_matches_twice_or_nowhere_is_refused_with_its_lines_and_repaired(project: Project) -> None:
    twice = BIG + LINES[17]
    wrong = edit((LINES[17], "value_17 = -17\n"), ("value_3000 = 3000  # note\n", "value_3000 = -3000\n"))
    story(project, wrong, edit(*changed(18)), big=twice)
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 0, outcome.err
    assert project.read("big.py") == twice.replace("value_18 = 18\n", "value_18 = -18\n"), (
        "the refused one changed nothing"
    )
    (sent,) = [event["data"] for event in project.events_of("attempt_finished") if not event["data"]["passed"]]
    assert "SEARCH matches 2 times, at lines 18 and 6001" in sent["excerpt"]
    assert "nearest lines: 3001 `value_3000 = 3000`" in sent["excerpt"]


def test_a_section_is_shown_and_edited_and_the_rest_is_not(project: Project) -> None:
    guide = "# Use\n\nRun it.\n\n# Stop\n\nRun it.\n"
    stage = {**STAGE, "inputs": ["guide.md#Use"], "outputs": ["guide.md"], "retry": 0}
    answer = "guide.md\n<<<<<<< SEARCH\nRun it.\n=======\nRun it twice.\n>>>>>>> REPLACE\n"
    project.write({**scripted({"code": stage}, {"code": [answer]}), "guide.md": guide})
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 0, outcome.err
    assert project.read("guide.md") == guide.replace("Run it.", "Run it twice.", 1)
    assert "# Stop" not in project.run("show", "code", "--prompt").out


@pytest.mark.slow
@pytest.mark.parametrize("returns", ["files", "blocks", "code", "text"])
def test_a_file_over_the_limit_is_reported_before_the_call(project: Project, returns: str) -> None:
    """With whole files, no response to this prompt could be accepted."""
    answer = files_answer({"big.py": "x = 1\n"}) if returns == "files" else "big.py\n```python\nx = 1\n```\n"
    story(project, answer, big=BIG * 2, returns=returns)
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 1
    assert f"E210: big.py: has {len(BIG * 2):,} bytes" in outcome.err.replace("]", "").replace("[", "")
    assert "returns: edits" in outcome.err
    assert not project.events_of("llm_request")
    assert len(project.events_of("attempt_finished")) == 1, "the next attempt would fail in the same way"


def test_a_file_over_the_limit_that_the_prompt_does_not_show_may_be_replaced(project: Project) -> None:
    story(project, files_answer({"big.py": "x = 1\n"}), big=NOTES, returns="files")
    project.write({"edit.md.j2": "write the file\n"})
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 0, outcome.err
    assert project.read("big.py") == "x = 1\n"


@pytest.mark.slow
def test_a_recorded_response_for_a_file_over_the_limit_is_used(project: Project) -> None:
    """A version that called the model recorded it: that stays valid, as every recording."""
    story(project, files_answer({"big.py": "x = 1\n"}), big=NOTES, returns="files")
    # A stage that may delete the file is called: a response that deletes it can be accepted.
    pipeline = project.read("pipeline.yaml")
    deletes = pipeline.replace('"retry": 1', '"allowed_paths": {"delete": ["big.py"]}, "retry": 1')
    project.write({"pipeline.yaml": deletes})
    assert project.build("--overwrite-edited").code == 0
    project.write({"pipeline.yaml": pipeline, "big.py": NOTES})
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 0, outcome.err
    assert project.read("big.py") == "x = 1\n"
    assert [event["data"]["recorded"] for event in project.events_of("llm_request")] == [True]
