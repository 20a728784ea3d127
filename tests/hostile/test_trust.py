"""What configures tests is trusted only if no model had a hand in it, or if the pipeline names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pipelines import decided_by_parts, green, pipeline, prompt
from tests.project import Project, files_answer, scripted

SKIPPING = "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'good' in i.name]\n"
HONEST = "import pytest\n@pytest.fixture\ndef one():\n    return 1\n"
TEST = "def test_good(one):\n    assert one == 1\n"


def made_by_the_stage(conftest: str, trust: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a pipeline whose model writes the conftest beside the code that is tested."""
    stage: dict[str, Any] = {
        "outputs": ["src/conftest.py"],
        "llm": {},
        "verify": {"inputs": ["src/test_a.py"], "steps": [{"pytest": {"paths": ["src"], "trust": list(trust)}}]},
    }
    files = scripted({"code": stage}, {"code": [files_answer({"src/conftest.py": conftest})]})
    return {**files, "src/test_a.py": TEST}


def downstream(trust: tuple[str, ...] = (), config: str | None = None) -> dict[str, str]:
    """Return a pipeline in which a shell stage after a model's stage makes what configures the tests."""
    made = config or "conftest.py"
    text = "[pytest]\\naddopts = --collect-only\\n" if config else HONEST.replace("\n", "\\n")
    options: dict[str, Any] = {"trust": list(trust)} | ({"config": config} if config else {})
    stages: dict[str, dict[str, Any]] = {
        "say": {"outputs": ["said.txt"], "llm": {"returns": "text"}},
        "make": {"inputs": ["said.txt"], "outputs": [made], "shell": f"printf '{text}' > {made}"},
        "test": {"inputs": ["test_a.py", made], "pytest": options},
    }
    test = TEST if config is None else "def test_good(): pass\n"
    return {**scripted(stages, {"say": ["hello"]}), "test_a.py": test}


def codes(project: Project) -> list[str]:
    """Return the codes with which stages failed."""
    return [problem["code"] for event in project.events_of("stage_finished") for problem in event["data"]["problems"]]


@pytest.mark.parametrize("conftest", [SKIPPING, HONEST])
def test_a_conftest_that_the_model_wrote_does_not_judge_its_code(project: Project, conftest: str) -> None:
    project.write(made_by_the_stage(conftest))
    failed = project.build()
    assert failed.code == 1
    assert codes(project) == ["E321"]
    assert "src/conftest.py" in failed.err
    assert not project.exists("src/conftest.py")


@pytest.mark.slow
def test_a_conftest_of_a_model_that_is_named_is_trusted(project: Project) -> None:
    assert project.write(made_by_the_stage(HONEST, ("src/conftest.py",))).build().code == 0


def test_a_trusted_name_is_that_file_and_no_other(project: Project) -> None:
    assert project.write(made_by_the_stage(HONEST, ("conftest.py",))).build().code == 1


def test_a_conftest_that_a_stage_after_a_model_made_is_not_trusted(project: Project) -> None:
    assert project.write(downstream()).build().code == 1
    assert codes(project)[-1] == "E321"
    assert "`make`" in json.dumps(project.events_of("stage_finished")[-1])


@pytest.mark.slow
def test_it_is_trusted_where_it_is_named(project: Project) -> None:
    assert project.write(downstream(("conftest.py",))).build().code == 0


def test_a_configuration_that_a_stage_after_a_model_made_is_not_trusted(project: Project) -> None:
    assert project.write(downstream(config="my.ini")).build().code == 1
    assert codes(project)[-1] == "E321"


@pytest.mark.slow
def test_what_a_person_or_a_stage_without_models_made_is_trusted(project: Project) -> None:
    stages: dict[str, dict[str, Any]] = {
        "make": {"outputs": ["t/conftest.py"], "shell": f"printf '{HONEST}' > t/conftest.py".replace("\n", "\\n")},
        "test": {"inputs": ["test_a.py", "conftest.py", "t/conftest.py"], "pytest": {}},
        "aside": {"outputs": ["a.txt"], "llm": {"returns": "text"}},
    }
    project.write({**scripted(stages, {"aside": ["x"]}), "test_a.py": TEST, "conftest.py": HONEST})
    outcome = project.build()
    assert outcome.code == 0, outcome.err


@pytest.mark.slow
def test_a_build_of_the_last_stage_alone_knows_what_is_made_by_way_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an edit of `test`, its plan has the stages before it, and not what these read."""
    stages = """\
  say: {outputs: [said.txt], llm: {prompt: say.j2, returns: text}}
  make: {inputs: [said.txt], outputs: [conftest.py], shell: cp said.txt conftest.py}
  test:
    inputs: [test_a.py, conftest.py]
    pytest: {trust: [conftest.py]}
"""
    files = {"say.j2": prompt("say", HONEST), "test_a.py": TEST}
    project = decided_by_parts(tmp_path / "p", monkeypatch).write(pipeline(stages, files))
    green(project.build())
    green(project.build())
    project.replace("pipeline.yaml", "{trust: [conftest.py]}", "{}")
    assert project.build().code == 1
    assert codes(project) == ["E321"]
    assert [one["role"] for one in project.events() if one["type"] == "stage_decided"] == ["test"]
