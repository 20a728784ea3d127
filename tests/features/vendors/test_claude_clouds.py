"""Whole builds with Claude in Bedrock and in Vertex AI, here servers of ours: addresses, logins, errors."""

import base64
import importlib.util
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Reply, json_reply, loopback, message_events, message_reply
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

HAS_BOTO3 = importlib.util.find_spec("boto3") is not None
HAS_GOOGLE = importlib.util.find_spec("google") is not None and importlib.util.find_spec("google.auth") is not None
needs_boto3 = pytest.mark.skipif(not HAS_BOTO3, reason="boto3 is not installed (pip install boto3)")
needs_google = pytest.mark.skipif(not HAS_GOOGLE, reason="google-auth is not installed (pip install google-auth)")
AWS = {"AWS_ACCESS_KEY_ID": "AKIASTORY", "AWS_SECRET_ACCESS_KEY": "aws-story", "AWS_REGION": "eu-west-9"}
GOOGLE = {"CLOUD_ML_REGION": "europe-west9", "ANTHROPIC_VERTEX_PROJECT_ID": "story-project"}
BEDROCK = "provider: bedrock, model: 'eu.anthropic.claude-opus-4-8-v1:0'"
VERTEX = "provider: vertex, model: claude-opus-4-8"
PIPELINE = """\
version: 1
name: story
stages:
  ask:
    outputs: [said.txt]
    llm: {PROVIDER, prompt: ask.md.j2, returns: text}
"""


def story(root: Path, provider: str, url: str = "") -> Project:
    named = f'{provider}, base_url: "{url}"' if url else provider
    return Project(root).write({"pipeline.yaml": PIPELINE.replace("PROVIDER", named), "ask.md.j2": "Say something."})


def frame(data: Any) -> bytes:
    """Return one message of a stream of AWS: lengths, headers, the payload, checksums."""
    payload = json.dumps({"bytes": base64.b64encode(json.dumps(data).encode()).decode()}).encode()
    named = {":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in named.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


def aws_reply(events: Sequence[Any]) -> Reply:
    frames = tuple(frame(data) for _, data in events)
    return Reply(headers={"content-type": "application/vnd.amazon.eventstream"}, pieces=frames)


@needs_boto3
def test_bedrock_gets_a_signed_request_and_its_stream_is_read(tmp_path: Path) -> None:
    with loopback(aws_reply(message_events("an ", "answer"))) as server:
        project = story(tmp_path, BEDROCK, server.url)
        outcome = project.build("--budget", "5", env=AWS)
        assert outcome.code == 0, outcome.err
        assert project.read("said.txt") == "an answer\n"
        (asked,) = server.asked
        assert asked.path == "/model/eu.anthropic.claude-opus-4-8-v1:0/invoke-with-response-stream"
        signed = asked.headers["authorization"]
        assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIASTORY/")
        assert "/eu-west-9/bedrock/aws4_request" in signed
        assert "model" not in asked.json()
        (reported,) = project.events_of("llm_response")
        assert float(reported["data"]["cost"]) > 0
        assert reported["data"]["output_tokens"] > 0
        assert project.build().code == 0, "without credentials: no call is made"
        assert len(server.asked) == 1
    kept = [path.read_text() for path in (tmp_path / ".orch23").rglob("*.json")]
    assert not any("aws-story" in text or "AKIASTORY" in text for text in kept)


@needs_boto3
def test_bedrock_takes_a_bearer_token(tmp_path: Path) -> None:
    with loopback(aws_reply(message_events("an answer"))) as server:
        env = {"AWS_BEARER_TOKEN_BEDROCK": "bearer-story", "AWS_DEFAULT_REGION": "eu-west-9"}
        outcome = story(tmp_path, BEDROCK, server.url).build(env=env)
        assert outcome.code == 0, outcome.err
        assert server.asked[0].headers["authorization"] == "Bearer bearer-story"


@needs_boto3
def test_a_stream_of_bedrock_that_breaks_off_is_called_again(tmp_path: Path) -> None:
    events = message_events("an answer")
    with loopback(aws_reply(events[:-2]), aws_reply(events)) as server:
        outcome = story(tmp_path, BEDROCK, server.url).build(env=AWS)
        assert outcome.code == 0, outcome.err
        assert len(server.asked) == 2


@pytest.mark.skipif(HAS_BOTO3, reason="boto3 is installed")
def test_bedrock_without_its_library_is_refused_before_anything_starts(tmp_path: Path) -> None:
    outcome = story(tmp_path, BEDROCK).build(env=AWS)
    assert outcome.code == 78
    assert "pip install 'boto3" in outcome.err


def in_own_process(project: Project, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Build in a process of its own: Google's library reads the environment of the process."""
    argv = [
        sys.executable,
        "-c",
        "from orch23.entry import run; run()",
        "-C",
        str(project.root),
        "build",
        "--budget",
        "5",
    ]
    own = {"PATH": os.environ["PATH"], "HOME": str(project.home), "ORCH23_TRUST": "1", "NO_GCE_CHECK": "true"}
    repository = str(Path(__file__).parents[3])
    environ = {**own, "PYTHONPATH": repository, **env}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def service_account(root: Path, token_url: str) -> Path:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - of an extra
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - as above

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, form, plain).decode()
    account = {"type": "service_account", "client_email": "a@story", "private_key": text, "token_uri": token_url}
    path = root / "account.json"
    path.write_text(json.dumps({**account, "project_id": "of-the-account"}))
    return path


@needs_google
def test_vertex_gets_a_token_of_the_credentials_once_for_all_calls(tmp_path: Path) -> None:
    def rule(asked: Asked) -> Reply:
        if asked.path == "/token":
            return json_reply({"access_token": "google-story", "expires_in": 3600, "token_type": "Bearer"})
        return message_reply("an answer")

    with loopback(rule=rule) as server:
        account = service_account(tmp_path, f"{server.url}/token")
        project = story(tmp_path / "p", VERTEX, server.url)
        two = project.read("pipeline.yaml") + "  also:\n    outputs: [also.txt]\n"
        llm = project.read("pipeline.yaml").splitlines()[-1]
        project.write({"pipeline.yaml": f"{two}{llm.replace('ask.md', 'also.md')}\n", "also.md.j2": "Say more."})
        env = {"GOOGLE_APPLICATION_CREDENTIALS": str(account), "CLOUD_ML_REGION": "europe-west9"}
        done = in_own_process(project, env)
        assert done.returncode == 0, done.stderr
        calls = [asked for asked in server.asked if asked.path != "/token"]
        assert len(calls) == 2
        assert len(server.asked) == 3, "one token for all calls"
        way = "/projects/of-the-account/locations/europe-west9/publishers/anthropic/models/claude-opus-4-8"
        assert {asked.path for asked in calls} == {f"{way}:streamRawPredict"}
        assert {asked.headers["authorization"] for asked in calls} == {"Bearer google-story"}
        (reported, _) = project.events_of("llm_response")
        assert float(reported["data"]["cost"]) > 0


@needs_google
def test_vertex_counts_tokens_with_its_credentials(tmp_path: Path) -> None:
    def rule(asked: Asked) -> Reply:
        if asked.path == "/token":
            return json_reply({"access_token": "google-story", "expires_in": 3600, "token_type": "Bearer"})
        counts = asked.path.endswith("/count-tokens:rawPredict")
        return json_reply({"input_tokens": 100}) if counts else message_reply("an answer")

    with loopback(rule=rule) as server:
        account = service_account(tmp_path, f"{server.url}/token")
        project = story(tmp_path / "p", VERTEX, server.url)
        # The bound of the request is over a thousand tokens.
        limited = project.read("pipeline.yaml").replace("stages:", "stop_conditions: {max_tokens: 2500}\nstages:", 1)
        project.write({"pipeline.yaml": limited.replace("returns: text", "returns: text, max_tokens: 2000")})
        env = {"GOOGLE_APPLICATION_CREDENTIALS": str(account), "CLOUD_ML_REGION": "europe-west9"}
        done = in_own_process(project, env)
        assert done.returncode == 0, done.stderr
        calls = [asked for asked in server.asked if asked.path != "/token"]
        assert [asked.path.rpartition("/")[2].partition(":")[0] for asked in calls] == [
            "count-tokens",
            "claude-opus-4-8",
        ]
        assert {asked.headers["authorization"] for asked in calls} == {"Bearer google-story"}


@needs_google
def test_vertex_without_valid_credentials_says_how_to_log_in(tmp_path: Path) -> None:
    with loopback() as server:
        env = {**GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
        done = in_own_process(story(tmp_path / "p", VERTEX, server.url), env)
        assert done.returncode == 78
        assert "gcloud auth application-default login" in done.stderr
        assert not server.asked


def test_vertex_without_a_region_is_refused_before_anything_starts(tmp_path: Path) -> None:
    outcome = story(tmp_path, VERTEX).build()
    assert outcome.code == 78
    assert "set CLOUD_ML_REGION" in outcome.err
    assert HAS_GOOGLE or "pip install 'google-auth[requests]" in outcome.err


@pytest.mark.parametrize("provider", [BEDROCK, VERTEX])
def test_another_address_needs_consent(tmp_path: Path, provider: str) -> None:
    with loopback() as server:
        outcome = story(tmp_path, provider, server.url).build(env={**AWS, **GOOGLE, "ORCH23_TRUST": "0"})
        assert outcome.code in {77, 78}, "78 without the library"
        assert not server.asked
