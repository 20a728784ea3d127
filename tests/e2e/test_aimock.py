"""Builds against aimock, a server of both vendors' interfaces that others wrote (npm: @copilotkit/aimock).

Skipped unless ORCH23_AIMOCK names its script `dist/cli.js` and node is there; `.ci/run` sees to both.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pipelines import green
from tests.project import Project

KEYS = {"OPENAI_API_KEY": "sk-test", "ANTHROPIC_API_KEY": "sk-test"}
FIXTURES = {
    "fixtures": [
        {"match": {"userMessage": "Say it whole."}, "response": {"content": "an answer of a few words"}},
        {"match": {"userMessage": "Say half."}, "response": {"content": "half of", "finishReason": "length"}},
        {
            "match": {"userMessage": "Fail."},
            "response": {"error": {"message": "no such model", "type": "invalid_request_error"}, "status": 400},
        },
    ]
}
WAYS = {
    "responses": "provider: openai, base_url: URL/v1, api: responses",
    "chat": "provider: openai, base_url: URL/v1",
    "messages": "provider: anthropic, base_url: URL",
}


def _reason_to_skip() -> str | None:
    script = os.environ.get("ORCH23_AIMOCK")
    if not script:
        return "ORCH23_AIMOCK does not name aimock's dist/cli.js (npm install @copilotkit/aimock)"
    if not Path(script).is_file():
        return f"ORCH23_AIMOCK names {script}, and it is not there"
    return None if shutil.which("node") else "node is not on PATH"


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_reason_to_skip() is not None, reason=str(_reason_to_skip())),
]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a server that knows our questions, and answers no others."""
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps(FIXTURES))
    argv = ["node", os.environ["ORCH23_AIMOCK"], "-p", "0", "-f", str(folder), "--strict", "--chunk-size", "4"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    process = subprocess.Popen(
        argv, env=environ, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "listening on " in line:
                yield line.partition("listening on ")[2].strip()
                break
        else:
            pytest.fail(f"aimock does not start: {lines}")
    finally:
        process.terminate()
        process.communicate(timeout=10)


def story(project: Project, url: str, way: str, prompt: str, more: str = "") -> None:
    llm = WAYS[way].replace("URL", url)
    project.write(
        {
            "ask.md.j2": prompt,
            "pipeline.yaml": f"""\
version: 1
name: story
stages:
  ask: {{outputs: [said.txt], llm: {{{llm}, model: m-1, prompt: ask.md.j2, returns: text{more}}}}}
""",
        }
    )


@pytest.mark.stride(2)
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_built_and_recorded(project: Project, aimock: str, way: str) -> None:
    story(project, aimock, way, "Say it whole.")
    green(project.build(env=KEYS))
    assert project.read("said.txt") == "an answer of a few words\n"
    project.delete("said.txt")
    green(project.build("--replay", "--force", "ask"))


@pytest.mark.parametrize("way", WAYS)
def test_half_an_answer_is_not_taken(project: Project, aimock: str, way: str) -> None:
    story(project, aimock, way, "Say half.", ", max_tokens: 64")
    assert project.build(env=KEYS).code != 0
    assert not project.exists("said.txt")


@pytest.mark.parametrize("way", WAYS)
def test_an_error_comes_in_the_servers_words(project: Project, aimock: str, way: str) -> None:
    story(project, aimock, way, "Fail.")
    outcome = project.build(env=KEYS)
    assert outcome.code == 5
    assert "E415" in outcome.out + outcome.err
    assert "no such model" in outcome.out + outcome.err
