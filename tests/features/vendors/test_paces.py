"""Whole builds at a pace other than the standard one."""

import json
from decimal import Decimal

import pytest

from tests.e2e.pipelines import green
from tests.openai_server import OpenAIServer, error, response
from tests.project import Project

MILLION = 1_000_000
pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not


def story(project: Project, url: str, pace: str = "flex") -> None:
    project.write(
        {
            "ask.md.j2": "Say something.",
            "pipeline.yaml": f"""\
version: 1
name: story
prices: {{m: {{input: 1000, output: 2000}}}}
stop_conditions: {{max_cost_usd: 10}}
stages:
  ask:
    outputs: [said.txt]
    llm: {{provider: openai, model: m, prompt: ask.md.j2, returns: text, base_url: "{url}", api: responses,
          max_tokens: 100, pace: {pace}}}
""",
        }
    )


def most(project: Project) -> Decimal:
    """Return the upper bound of the plan for the only stage."""
    (stage,) = json.loads(project.run("plan", "--json").out)["stages"]
    return Decimal(stage["estimate"]["cost_usd"]["max"])


def test_a_flex_call_is_priced_at_half_waits_for_capacity_and_is_recorded_for_all_paces(project: Project) -> None:
    with OpenAIServer(error(429, "Resource Unavailable", retry_after="0"), response("one")) as server:
        story(project, server.url)
        flex = most(project)
        green(project.build())
        assert [one.body["service_tier"] for one in server.asked] == ["flex", "flex"]
        cost = project.run("show", "ask", "--cost").out
        # 7 tokens of input and 5 of output, at half of $1,000 and $2,000 a million.
        assert "paid $0.0085" in cost
        assert "prices: pipeline, flex" in cost
        reserved = project.events_of("call_reserved")[-1]["data"]
        assert Decimal(reserved["cost"]) == (Decimal(reserved["tokens"] - 100) * 1000 + 100 * 2000) / 2 / MILLION
        story(project, server.url, "standard")
        green(project.build("--force", "ask"))
        assert len(server.asked) == 2, "a recorded response is used at any pace"
        project.write({"ask.md.j2": "Say something!"})
        assert most(project) == 2 * flex, "a prompt of the same size"


def test_a_server_that_served_another_pace_is_paid_for_that(project: Project) -> None:
    with OpenAIServer(response("one", service_tier="default")) as server:
        story(project, server.url)
        green(project.build())
        assert "paid $0.017" in project.run("show", "ask", "--cost").out


def test_a_provider_without_paces_is_reported_by_validate(project: Project) -> None:
    story(project, "http://127.0.0.1:1/v1")
    project.replace("pipeline.yaml", "provider: openai", "provider: anthropic")
    outcome = project.run("validate")
    assert outcome.code != 0
    assert "the provider `anthropic` does not have `pace" in outcome.out + outcome.err
