"""A shared cache on a server: consent, faults, many requests at once, and the end of a build."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from orch23.features.cache import batches, opening, server_login
from orch23.features.cache.availability import CacheLimits
from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.entries import decode_result
from orch23.features.cache.results import CacheResults
from orch23.model.digest import Digest
from orch23.store.file_copy import CHUNK_BYTES
from tests.cache_server import CacheServer, serving_cache
from tests.doubles import MemoryCache
from tests.e2e.pipelines import green, shell
from tests.project import Project
from tests.reapi_server import serving_reapi

pytestmark = pytest.mark.slow

STAGES = """
  a: {inputs: [in.txt], outputs: [a.txt], shell: cp in.txt a.txt}
  b: {inputs: [a.txt], outputs: [b.txt], shell: cp a.txt b.txt}
"""
IMPATIENT = CacheLimits(delays_s=(), patience_s=0.05, usual_s=0.05)
UNTRUSTED = {"ORCH23_TRUST": ""}


@pytest.fixture(autouse=True)
def _unsandboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")


@pytest.fixture
def server() -> Iterator[CacheServer]:
    with serving_cache() as server:
        server.validate = lambda entry: [file.entry.digest for file in decode_result(entry).values()]
        yield server


def checkout(root: Path, stages: str = STAGES, *, cache: str = "{platform: any}") -> Project:
    head = f"cache: {cache}\ndefaults: {{sandbox: off}}\n"
    return Project(root).write(shell(stages, {"in.txt": "right\n"}, head=head))


def test_a_server_is_written_only_on_request_and_gets_every_blob_before_its_entry(
    server: CacheServer, tmp_path: Path
) -> None:
    one = checkout(tmp_path / "one")
    green(one.build("--cache", server.url))
    assert set(server.methods()) == {"GET ac"}
    green(one.build("--force", "a", "--force", "b", "--cache", server.url, "--cache-write"))
    assert len(server.entries) == 2
    two = checkout(tmp_path / "two")
    green(two.build(env={"ORCH23_CACHE_URL": server.url}))
    assert two.ran() == []
    assert two.read("b.txt") == "right\n"
    assert server.methods().count("PUT ac") == 2


def test_a_stored_stage_takes_few_requests(
    server: CacheServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "RECENT_S", 1e9)
    stages = STAGES.replace("cp a.txt b.txt", "date > b.txt")
    green(checkout(tmp_path / "one", stages).build("--cache", server.url, "--cache-write"))
    # Each stage has its action, its record and its output; all have the command and the input root of their actions.
    assert Counter(server.methods()) == {"GET ac": 2, "PUT ac": 2, "PUT cas": 2 * 3 + 2}
    with serving_reapi() as grpc_server:
        green(checkout(tmp_path / "two", stages).build("--cache", grpc_server.url, "--cache-write"))
        calls = Counter(grpc_server.calls)
    assert len(grpc_server.entries) == calls["GetActionResult"] == calls["UpdateActionResult"] == 2
    assert set(calls) == {"GetCapabilities", "GetActionResult", "UpdateActionResult", "BatchUpdateBlobs"}
    assert calls["BatchUpdateBlobs"] <= 2


def test_a_cache_of_the_pipeline_needs_consent(server: CacheServer, tmp_path: Path) -> None:
    project = checkout(tmp_path / "project", cache=f"{{url: {server.url}, platform: any}}")
    done = project.build(env=UNTRUSTED)
    green(done)
    assert done.err.count("orch23 trust pipeline.yaml") == 1, done.err
    assert server.asked == []
    assert "shared cache" in project.run("trust", env=UNTRUSTED).out
    done = project.build("--force", "a", "--force", "b", env=UNTRUSTED)
    green(done)
    assert "orch23 trust" not in done.err
    other = checkout(tmp_path / "other")
    green(other.build(env={**UNTRUSTED, "ORCH23_CACHE_URL": server.url}))
    assert set(server.methods()) == {"GET ac"}


def test_offline_a_server_is_not_called_and_a_directory_is(server: CacheServer, tmp_path: Path) -> None:
    one = checkout(tmp_path / "one")
    green(one.build("--cache", server.url, "--offline"))
    assert server.asked == []
    green(one.build("--force", "a", "--force", "b", "--cache", "../shared", "--offline"))
    two = checkout(tmp_path / "two")
    green(two.build("--cache", "../shared", "--offline"))
    assert two.ran() == []


@pytest.mark.stride(3)
@pytest.mark.parametrize("fault", ["closed port", "drip", "hang", "500", "403"])
def test_a_cache_that_does_not_work_is_reported_once_and_all_is_built(
    server: CacheServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    one = checkout(tmp_path / "one")
    green(one.build("--cache", server.url, "--cache-write"))
    monkeypatch.setattr(opening, "CacheClient", partial(CacheClient, limits=IMPATIENT))
    url = server.url
    if fault == "closed port":
        server.server_close()
    else:
        server.fault = lambda _method, _path: fault  # type: ignore[assignment, return-value]
    two = checkout(tmp_path / "two")
    done = two.build("--cache", url, "--cache-write")
    green(done)
    assert two.ran() == ["a", "b"]
    assert done.err.count("warning: ") <= 2, done.err
    assert done.err.count(f"the shared cache {url} is not used for the rest of this run") == 1
    assert two.build("--cache", url).err.endswith("up to date (2 stages)\n")


def test_the_results_of_many_ready_stages_are_looked_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = "".join(f"  s{n}: {{inputs: [in.txt], outputs: [{n}.txt], shell: cp in.txt {n}.txt}}\n" for n in range(8))
    backend = MemoryCache()
    monkeypatch.setattr(server_login, "open_shared_cache", lambda *_: backend)
    green(checkout(tmp_path / "one", stages).build("--cache", "/shared"))
    together = threading.Barrier(8)

    def before(name: str, _digest: Digest | None) -> None:
        if name == "entry":
            together.wait(10)

    backend.before = before
    two = checkout(tmp_path / "two", stages)
    green(two.build("--cache", "/shared"))
    assert two.ran() == []
    # Each key is looked up once, and one blob has the bytes of all outputs.
    assert backend.asked.count("entry") == 16


def test_a_result_is_looked_up_once_in_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryCache()
    monkeypatch.setattr(server_login, "open_shared_cache", lambda *_: backend)
    project = checkout(tmp_path / "one")
    green(project.build("--cache", "/shared"))
    assert backend.asked.count("entry") == 2
    assert project.build("--cache", "/shared").err.endswith("up to date (2 stages)\n")
    assert backend.asked.count("entry") == 2


def test_a_signal_ends_the_wait_for_uploads(
    server: CacheServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = lambda method, _path: "hang" if method == "PUT" else ""
    flush = CacheResults._flush

    def interrupted(shared: CacheResults, deadline_s: float) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return flush(shared, deadline_s)

    monkeypatch.setattr(CacheResults, "_flush", interrupted)
    project = checkout(tmp_path / "one")
    done = project.build("--cache", server.url, "--cache-write")
    assert "results are not stored in the shared cache, and stay on this machine: a, b" in done.err
    # Not because the cache took too long.
    assert "for the rest of this run" not in done.err
    assert project.files()["b.txt"] == b"right\n"


def test_a_result_with_a_secret_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryCache()
    monkeypatch.setattr(server_login, "open_shared_cache", lambda *_: backend)
    project = checkout(tmp_path / "one")
    # The secret is where one chunk of the file ends and another begins.
    project.edit("in.txt", "x" * (CHUNK_BYTES - 8) + " k3y-0f-the-team-9912 \n")
    done = project.build("--cache", "/shared", env={"TEAM_TOKEN": "k3y-0f-the-team-9912"})
    green(done)
    assert "W699" in done.err
    assert "a.txt (TEAM_TOKEN)" in done.err
    assert (backend.entries, backend.blobs) == ({}, {})


def test_a_helper_of_the_user_gives_the_credentials_of_a_server(server: CacheServer, tmp_path: Path) -> None:
    helper = tmp_path / "helper"
    helper.write_text('#!/bin/sh\necho \'{"headers": {"Authorization": ["Bearer s3cret-of-the-team"]}}\'\n')
    helper.chmod(0o755)
    environ = {"ORCH23_CACHE_CREDENTIAL_HELPER": str(helper)}
    green(checkout(tmp_path / "one").build("--cache", server.url, env=environ))
    assert {one.get("authorization") for one in server.headers} == {"Bearer s3cret-of-the-team"}
    server.asked.clear()
    helper.write_text("#!/bin/sh\necho s3cret; exit 3\n")
    two = checkout(tmp_path / "two")
    done = two.build("--cache", server.url, env=environ)
    green(done)
    assert (two.ran(), server.asked) == (["a", "b"], [])
    assert done.err.count("exited with status 3") == 1
    assert "s3cret" not in done.err
