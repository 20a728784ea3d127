"""A worker logs in to the cache of its own command line, and to no server that a build names."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.features.cache.server_login import worker_cache_opener
from orch23.features.remote.engine import Reply
from orch23.features.remote.worker import RemoteWorker
from orch23.model.action import Action, Completed, outcome_from_bytes
from orch23.model.digest import Digest, digest_bytes
from orch23.model.shared_cache import HELPER_VARIABLE
from tests.cache_server import CacheServer, serving_cache
from tests.environments import executable
from tests.features.remote.engines import ENVIRON

TOKEN = "Bearer s3cret-of-the-worker"
ACTION = Action(argv=("bash", "-c", "echo done > out.txt"), inputs={}, sandbox=False).to_bytes()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    script = f'#!/bin/sh\necho \'{{"headers": {{"Authorization": ["{TOKEN}"]}}}}\'\n'
    return {**ENVIRON, HELPER_VARIABLE: str(executable(tmp_path / "helper", script.encode()))}


@contextlib.contextmanager
def serving_action() -> Iterator[CacheServer]:
    """Run a server that has an action, and demands a password."""
    with serving_cache() as server:
        server.blobs[digest_bytes(ACTION).sha256] = ACTION
        server.accepted = {TOKEN}
        yield server


def reply_of(folder: Path, own: str, named: str, environ: dict[str, str]) -> Reply:
    """Run the action with a worker whose own cache is `own`, for a build whose cache is `named`."""
    opener = worker_cache_opener(own, folder, environ)
    worker = RemoteWorker(folder, slots=1, environ=environ, cache_url=own, allowed=True, open_cache=opener)
    with contextlib.closing(worker):
        digest: Digest = digest_bytes(ACTION)
        return Reply.from_bytes(worker.run_remotely(named, f"{digest.sha256}/{digest.size_bytes}"))


def test_its_own_cache_gets_the_credentials_and_that_of_the_build_is_not_called(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with serving_action() as own, serving_action() as named:
        reply = reply_of(tmp_path / "worker", own.url, named.url, environ)
        assert reply.outcome is not None, reply.fault
        assert isinstance(outcome_from_bytes(reply.outcome), Completed)
        assert {one.get("authorization") for one in own.headers} == {TOKEN}
        assert named.asked == []


def test_a_server_that_a_build_names_gets_no_credentials(tmp_path: Path, environ: dict[str, str]) -> None:
    with serving_action() as named:
        reply = reply_of(tmp_path / "worker", "", named.url, environ)
        assert "the server refused" in reply.fault
        assert {one.get("authorization") for one in named.headers} == {None}


def test_the_variables_of_a_bucket_are_for_no_server_that_a_build_names(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token-that-is-sent")
    with serving_cache() as server:
        address = f"s3://bucket/x?region=r&endpoint={server.url}"
        reply = reply_of(tmp_path / "worker", "", address, environ)
        assert "`--cache`" in reply.fault
        assert server.asked == []
        # As its own one, it is used.
        reply_of(tmp_path / "worker", address, "", environ)
        assert server.headers[0]["x-amz-security-token"] == "a-token-that-is-sent"
