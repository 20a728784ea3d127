"""The corpus of answers in whole builds: a bad one leaves every file as it was, a good one is what the files become."""

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.corpus.reading import HIDDEN, PLAUSIBLE, Answer, answers, workspace
from tests.project import Project, scripted

EVERY = 12  # of the bad ones, so many are built in the quick run, and as many of the good ones
LONGEST = 500_000  # characters; a file of answers may have a megabyte
FENCE = {
    "write": ["ws/src/", "ws/docs/", "ws/README.md"],
    "protect": ["ws/src/locked.py"],
    "delete": ["ws/src/old_*.py"],
}


def sampled(side: str) -> Iterator[object]:
    """Give the answers that a list of answers can hold: all of them slowly, some of them always."""
    fitting = [one for one in answers(side) if one.stop == "end" and len(one.text) < LONGEST]
    if side == "good":  # a stage that writes nothing has not made its outputs, however good its deletes are
        fitting = [one for one in fitting if one.writes or not one.names_files]
    for number, answer in enumerate(fitting):
        marks = () if number % EVERY == 0 else (pytest.mark.slow,)
        yield pytest.param(answer, id=answer.name, marks=marks)


def own_of(answer: Answer, base: dict[str, str]) -> list[str]:
    """Return the outputs of a stage: what it is to write, or the folders of its fence and so all that is in them.

    Where a file is to be unseen, each of the others by its name; where one is deleted, the folder that it is in.
    """
    if "E213" in answer.codes:
        return [path for path in base if "locked" not in path]
    if "E203" in answer.codes:  # of files that are there, it would say that they need no change
        return [answer.output]
    if answer.deletes or any("[" in path for path in answer.writes):
        return ["ws/src/"]
    return list(answer.writes) or FENCE["write"]


def put(project: Project, answer: Answer) -> dict[str, bytes]:
    """Write the workspace and a pipeline whose one stage gets the answer; return the files of the workspace."""
    base = workspace()
    single = not answer.names_files
    stage = {
        "outputs": [answer.output] if single else own_of(answer, base),
        "cwd": "ws",
        "llm": {"returns": answer.returns, "context": {"max_files": 50}},
        **({} if single else {"allowed_paths": FENCE}),
    }
    project.write(scripted({"work": stage}, {}))
    project.write({"pipeline.answers.yaml": yaml.safe_dump({"work": [answer.text]})})  # not every JSON is YAML
    project.write({**base, HIDDEN: "X = 0\n"})
    return project.files("ws")


@pytest.mark.stride(17)
@pytest.mark.parametrize("answer", [*sampled("bad")])
def test_a_bad_answer_writes_nothing_and_says_every_code(project: Project, answer: Answer) -> None:
    before = put(project, answer)
    outcome = project.build()
    assert outcome.code == 1, outcome.err
    assert project.files("ws") == before
    finished = project.events_of("attempt_finished")
    assert [event["data"]["kind"] for event in finished] == [answer.kind]
    missing = {code for code in answer.codes if f"[{code}]" not in outcome.err}
    assert not missing, outcome.err
    assert "work" not in project.read("pipeline.lock"), "a refused answer is no result"


@pytest.mark.slow
@pytest.mark.stride(7)
@pytest.mark.parametrize("answer", [*sampled("good")])
def test_a_good_answer_is_what_the_files_become(project: Project, answer: Answer) -> None:
    before = put(project, answer)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    after = project.files("ws")
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    written = {answer.output} if not answer.names_files else {*answer.writes, *answer.deletes}
    assert changed <= written
    assert {path for path in written if path not in answer.deletes} <= set(after)
    if not answer.names_files:
        assert after[answer.output].decode() == answer.content
    assert not set(answer.deletes) & set(after)


@pytest.mark.slow
def test_each_plausible_answer_is_what_the_files_become_at_the_first_attempt(project: Project) -> None:
    cases = yaml.safe_load(PLAUSIBLE.read_text(encoding="utf-8"))
    stages: dict[str, dict[str, object]] = {}
    kept: dict[str, list[str]] = {}
    expected: dict[str, str] = {}
    for number, case in enumerate(cases):
        name, place = f"case_{number:02}", f"c{number:02}"
        stages[name] = {
            "outputs": [f"{place}/{path}" for path in case["files"]],
            "cwd": place,
            "allowed_paths": {"write": [f"{place}/src/m.py", f"{place}/src/util/text.py"]},
            "llm": {"returns": "files"},
        }
        kept[name] = [case["response"]]
        expected |= {f"{place}/{path}": content for path, content in case["files"].items()}
        project.write({f"{place}/src/m.py": "def f():\n    return 1\n"})
    project.write(scripted(stages, {}))
    project.write({"pipeline.answers.yaml": yaml.safe_dump(kept)})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert len(project.events_of("attempt_started")) == len(cases) == 20
    assert {path: project.read(path) for path in expected} == expected


@pytest.mark.slow
def test_an_exchange_keeps_what_was_wrong_with_its_answer(project: Project) -> None:
    """A paid answer is on disk with its outcome, also where it was no use."""
    put(project, next(one for one in answers("bad") if one.name == "elided-rest-of-code.json"))
    assert project.build().code == 1
    (kept,) = (project.root / ".orch23" / "exchanges").rglob("*.json")
    text = kept.read_text()
    assert "invalid" in text
    assert "E214" in json.dumps(json.loads(text))
