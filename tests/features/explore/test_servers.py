"""Exploring requests to a server: they have a schema, are counted and limited, and a wrong answer costs one of them."""

import json
from pathlib import Path

import pytest

from orch23.features.explore.parts import EXPLORE_SCHEMA
from tests.features.explore.test_requests import ASKS, EDIT, SHOP, asks, green, make
from tests.openai_server import OpenAIServer, chat

pytestmark = [pytest.mark.slow, pytest.mark.needs("vendors")]
KEY = {"OPENAI_API_KEY": "sk-test"}


def model_of(server: OpenAIServer, **more: str) -> dict[str, str]:
    return {"provider": "openai", "model": "m", "base_url": server.url, "api": "chat", "prompt": "fix.j2", **more}


def test_wrong_answers_of_a_server_cost_requests_and_replay_needs_no_key(tmp_path: Path) -> None:
    with OpenAIServer(chat("Sure!"), chat(asks("src/shop.py#def total")), chat(EDIT)) as server:
        project = make(tmp_path / "p", {"files": ["src/**"], "turns": 2}, model=model_of(server, transcripts="t"))
        green(project.build(env=KEY))
        bodies = [one.body for one in server.asked]
    assert [ASKS in body["messages"][-1]["content"] for body in bodies] == [True, True, False]
    built = project.read("src/shop.py")
    assert "round(" in built
    (project.root / ".orch23").rename(tmp_path / "old")
    project.edit("src/shop.py", SHOP)
    (project.root / "pipeline.lock").unlink()
    green(project.build("--replay"))
    assert project.read("src/shop.py") == built


def test_a_server_gets_the_schema_of_the_answer(tmp_path: Path) -> None:
    with OpenAIServer(chat(asks("src/shop.py#def total")), chat(EDIT)) as server:
        project = make(tmp_path / "p", model=model_of(server))
        green(project.build(env=KEY))
        first, last = (one.body for one in server.asked)
    assert first["response_format"]["json_schema"]["schema"] == EXPLORE_SCHEMA
    assert "response_format" not in last


def test_exploring_requests_count_for_the_limits_of_the_stage(tmp_path: Path) -> None:
    with OpenAIServer(chat(asks("src/shop.py#def total")), chat(EDIT)) as server:
        project = make(tmp_path / "p", model=model_of(server), stop_conditions={"max_llm_calls": 1})
        assert "LLM calls 1 ·" in project.run("plan").out
        outcome = project.build(env=KEY)
        assert len(server.asked) == 1
    assert outcome.code != 0
    assert "max_llm_calls" in outcome.err
    assert project.read("src/shop.py") == SHOP
    whole = json.loads(make(tmp_path / "q").read("pipeline.yaml")) | {"stop_conditions": {"max_llm_calls": 1}}
    assert "LLM calls 1;" in make(tmp_path / "q").write({"pipeline.yaml": json.dumps(whole)}).run("plan").out
