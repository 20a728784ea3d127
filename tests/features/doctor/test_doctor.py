"""`doctor` checks libraries, keys and models, shows no key, and calls a vendor only with --online."""

import importlib.metadata
import json
from collections.abc import Mapping

import pytest

from tests.loopback import Loopback, json_reply, loopback
from tests.project import Project

KEY = "sk-test-0123456789abcdefghijklmnopqrstuv"
KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}


def findings(project: Project, *argv: str, env: Mapping[str, str] | None = None) -> dict[str, dict[str, object]]:
    outcome = project.run("doctor", "--json", *argv, env=env)
    assert outcome.code == 0, outcome.err
    assert KEY not in outcome.out + outcome.err
    return {fact["name"]: fact for fact in json.loads(outcome.out)["facts"]}


def asking(project: Project, provider: str, server: Loopback, more: str = "") -> Project:
    text = (
        f"version: 1\nstages:\n  a:\n    outputs: [a.txt]\n    llm: {{provider: {provider}, model: m-1, prompt: p.j2, "
    )
    return project.write({"pipeline.yaml": f"{text}base_url: '{server.url}', returns: text}}\n{more}", "p.j2": "x"})


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("name", ["anthropic", pytest.param("openai", marks=pytest.mark.needs("vendors"))])
def test_a_vendor_needs_a_library_and_a_key(project: Project, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variable = f"{name.upper()}_API_KEY"
    without = findings(project)[f"provider {name}"]
    assert without["ok"] is False
    assert without["value"] == f"library {importlib.metadata.version(name)}, {variable} is not set"
    assert f"set {variable}" in str(without["hint"])
    given = findings(project, env={variable: KEY})[f"provider {name}"]
    assert (given["ok"], given["hint"]) == (True, "")
    assert f"{variable} is set" in str(given["value"])
    assert findings(project, env={variable: "  "})[f"provider {name}"]["ok"] is False
    whole = importlib.metadata.version

    def version(asked: str) -> str:
        if asked == name:
            raise importlib.metadata.PackageNotFoundError(asked)
        return whole(asked)

    monkeypatch.setattr(importlib.metadata, "version", version)
    gone = findings(project, env={variable: KEY})[f"provider {name}"]
    assert gone["ok"] is False
    assert f"pip install '{name}" in str(gone["hint"])


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", pytest.param("openai", marks=pytest.mark.needs("vendors"))])
def test_online_each_model_is_looked_up_once(project: Project, provider: str) -> None:
    more = "    retry: {max: 1, escalate: [m-1, m-2]}\n  b:\n    outputs: [b.txt]\n"
    with loopback(json_reply({"id": "m-1"}), json_reply({"id": "m-2"})) as server:
        llm = f"{{provider: {provider}, model: m-1, prompt: p.j2, base_url: '{server.url}', returns: text}}"
        asking(project, provider, server, f"{more}    llm: {llm}\n")
        offline = findings(project, env=KEYS)
        assert server.asked == []
        url = server.url
        assert offline[f"model {provider} m-2"]["value"] == f"called at {url}"
        found = findings(project, "--online", env=KEYS)
    assert [one.path.rpartition("/")[2] for one in server.asked] == ["m-1", "m-2"]
    assert {one.method for one in server.asked} == {"GET"}
    assert all(KEY in str(one.headers) for one in server.asked)
    for model in ("m-1", "m-2"):
        assert (found[f"model {provider} {model}"]["ok"], found[f"model {provider} {model}"]["value"]) == (
            True,
            f"{url} has it",
        )


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", pytest.param("openai", marks=pytest.mark.needs("vendors"))])
@pytest.mark.parametrize(
    ("status", "said", "shown"),
    [
        (404, "no such model", "replied 404: no such model"),
        (401, f"the key {KEY} is bad", "replied 401: the key "),
        (529, "busy", "replied 529: busy"),
    ],
)
def test_the_response_of_a_vendor_is_shown_without_the_key(
    project: Project, provider: str, status: int, said: str, shown: str
) -> None:
    with loopback(json_reply({"type": "error", "error": {"type": "t", "message": said}}, status)) as server:
        found = findings(asking(project, provider, server), "--online", env=KEYS)[f"model {provider} m-1"]
    assert found["ok"] is False
    assert shown in str(found["value"])
    assert found["hint"]
    assert len(server.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", pytest.param("openai", marks=pytest.mark.needs("vendors"))])
def test_a_web_page_or_no_response_is_not_a_model(project: Project, provider: str) -> None:
    with loopback(json_reply("<html>welcome</html>")) as server:
        asking(project, provider, server)
        page = findings(project, "--online", env=KEYS)[f"model {provider} m-1"]
    assert page["ok"] is False
    assert "without a model" in str(page["value"])
    gone = findings(project, "--online", env=KEYS)[f"model {provider} m-1"]
    assert gone["ok"] is False
    assert "cannot be reached" in str(gone["value"])


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("provider", ["anthropic", pytest.param("openai", marks=pytest.mark.needs("vendors"))])
def test_a_model_is_looked_up_at_its_server_and_not_at_its_alias(project: Project, provider: str) -> None:
    with loopback(json_reply({"id": "m-1"})) as server:
        asking(project, provider, server).replace("pipeline.yaml", "base_url", "endpoint_alias: ours, base_url")
        assert findings(project, "--online", env=KEYS)[f"model {provider} m-1"]["ok"] is True
    assert len(server.asked) == 1


@pytest.mark.needs("vendors")
def test_a_provider_that_is_not_ready_is_not_called(project: Project) -> None:
    with loopback() as server:
        found = findings(asking(project, "anthropic", server), "--online")
    assert found["model anthropic m-1"]["ok"] is False
    assert "ANTHROPIC_API_KEY" in str(found["model anthropic m-1"]["value"])
    assert server.asked == []


@pytest.mark.needs("vendors")
def test_models_of_foreach_items_are_checked(project: Project) -> None:
    text = """version: 1
defaults: {llm: {provider: openai, prompt: p.j2, returns: text}}
stages:
  l: {shell: "echo '[1]' > l.json", outputs: [l.json]}
  e: {foreach: {in: [m-1, m-2], as: m}, llm: {model: "${{ m }}"}, outputs: ["${{ m }}.txt"]}
  f: {foreach: {from: l.json}, llm: {model: m-3}, retry: {max: 1, escalate: [m-4]}, outputs: ["${{ item }}.md"]}
"""
    project.write({"pipeline.yaml": text, "p.j2": "x"})
    found = findings(project, env=KEYS)
    assert [name for name in found if name.startswith("model openai")] == [
        f"model openai {name}" for name in ("m-1", "m-2", "m-4")
    ]


def test_without_a_pipeline_the_machine_is_checked(project: Project) -> None:
    assert findings(project)["pipeline"]["ok"] is False
    assert "create one with `orch23 init`" in str(findings(project, "--online")["pipeline"]["hint"])
    project.write({"pipeline.yaml": "version: 1\nstages: {a: {shel: x}}\n"})
    broken = findings(project)["pipeline"]
    assert broken["ok"] is False
    assert "orch23 validate" in str(broken["hint"])
    assert project.run("doctor", "gone.yaml").code == 66
    assert not project.exists(".orch23")
    assert not project.exists("logs")


@pytest.mark.needs("vendors")
@pytest.mark.slow
def test_provider_and_model_flags_choose_the_checked_model(project: Project) -> None:
    with loopback(json_reply({"id": "m-9"})) as server:
        asking(project, "openai", server)
        found = findings(project, "--model", "m-9", "--online", env=KEYS)
    assert found["model openai m-9"]["ok"] is True
    assert server.asked[0].path.endswith("/models/m-9")
