"""A shared cache behind HTTP: nginx, and a server with the rules of bazel-remote and with faults."""

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from orch23.features.cache import batches, http_cache
from orch23.features.cache.bounds import MAX_ENTRY_BYTES, UNASKED_BYTES, BlobFault
from orch23.features.cache.client import CacheClient
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import digest_bytes
from orch23.model.errors import CacheFault
from orch23.model.ports import SharedCache
from tests.cache_conformance import ACTION, CacheConformance, Served, make_entry, put, read
from tests.cache_server import CacheServer, Fault, serving_cache
from tests.nginx import running_nginx

DATA = b"some bytes"
DIGEST = digest_bytes(DATA)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with running_nginx(tmp_path_factory.mktemp("nginx")) as running:
        yield running


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


class TestNginx(CacheConformance):
    """nginx, which verifies nothing."""

    @pytest.fixture
    def served(self, nginx: tuple[str, Path]) -> Iterator[Served]:
        url, folder = nginx

        def path_of(sha256: str) -> Path:
            return folder / "cas" / sha256

        yield Served(
            f"{url}/",
            lambda digest, data: _write(path_of(digest.sha256), data),
            lambda digest: path_of(digest.sha256).unlink(),
        )
        shutil.rmtree(folder)
        folder.mkdir()


@pytest.fixture
def server() -> Iterator[CacheServer]:
    with serving_cache() as server:
        yield server


class TestBazelRemote(CacheConformance):
    """A server with the rules of bazel-remote."""

    is_in_this_process = True

    @pytest.fixture
    def served(self, server: CacheServer) -> Served:
        return Served(
            server.url,
            lambda digest, data: server.blobs.update({digest.sha256: data}),
            lambda digest: server.blobs.__delitem__(digest.sha256),
        )


@pytest.fixture
def cache(server: CacheServer) -> Iterator[SharedCache]:
    with contextlib.closing(open_shared_cache(server.url)) as cache:
        yield cache


def always(server: CacheServer, fault: Fault) -> None:
    server.fault = lambda _method, _path: fault


def test_one_connection_serves_all_requests(server: CacheServer, cache: SharedCache) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"")
    assert (read(cache, DIGEST), cache.entry(ACTION), cache.entry(DIGEST)) == (DATA, b"", None)
    assert server.connections == 1
    assert server.methods() == ["PUT cas", "HEAD ac", "PUT ac", "GET cas", "GET ac", "GET ac"]


def test_an_entry_that_was_missing_a_moment_ago_is_not_asked_for_again(
    server: CacheServer, cache: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "RECENT_S", 1e9)
    assert cache.entry(ACTION) is None
    cache.put_entry(ACTION, b"")
    cache.put_entry(ACTION, b"\n")
    assert server.methods() == ["GET ac", "PUT ac", "HEAD ac"]
    server.asked.clear()
    monkeypatch.setattr(batches, "RECENT_S", -1.0)
    assert cache.entry(DIGEST) is None
    cache.put_entry(DIGEST, b"")
    assert server.methods() == ["GET ac", "HEAD ac", "PUT ac"], "it was asked for long ago"


def test_small_blobs_are_uploaded_unasked(
    server: CacheServer, cache: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "RECENT_S", 1e9)
    small, large = bytes(UNASKED_BYTES), bytes(UNASKED_BYTES + 1)
    put(cache, large)
    server.asked.clear()
    client = CacheClient(cache, pytest.fail)
    sources = {digest_bytes(one): partial(tuple, [one]) for one in (small, large)}
    assert client.entry(ACTION) is None
    client.upload(ACTION, make_entry(sources), sources)
    assert client.flush(30) == ()
    assert server.methods() == ["GET ac", "HEAD cas", "PUT cas", "PUT ac"]
    assert server.asked[1][1].endswith(digest_bytes(large).sha256)


def test_requests_state_what_they_send_and_want(server: CacheServer, cache: SharedCache) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"")
    cache.put_entry(ACTION, b"", replace=True)
    blob, _, entry, again = server.headers
    assert (blob["content-length"], blob["accept-encoding"]) == (str(len(DATA)), "identity")
    assert "transfer-encoding" not in blob
    assert blob["host"] == server.url.split("/")[2]
    assert entry["if-none-match"] == "*"
    assert "if-none-match" not in again
    assert "authorization" not in blob


def test_the_login_is_sent_with_each_request(server: CacheServer) -> None:
    logins = iter(["Bearer 1", "Bearer 2", "Bearer 3"])
    asked: list[str] = []

    def credentials(url: str) -> dict[str, str]:
        asked.append(url)
        return {"Authorization": next(logins)}

    url = server.url.replace("//", "//name:pa%20ss@")
    for given, expected in ((credentials, ["Bearer 2", "Bearer 3"]), (lambda _url: {}, ["Basic bmFtZTpwYSBzcw=="] * 2)):
        server.headers.clear()
        with contextlib.closing(open_shared_cache(url, given)) as cache:
            put(cache, DATA)
            assert read(cache, DIGEST) == DATA
        assert [headers["authorization"] for headers in server.headers] == expected
    assert set(asked) == {server.url}


def test_questions_for_many_blobs_are_asked_at_once(server: CacheServer, cache: SharedCache) -> None:
    digests = [digest_bytes(b"%d" % number) for number in range(40)]
    assert list(cache.missing(digests)) == digests
    assert 1 < server.connections <= 8


@pytest.mark.parametrize(
    ("fault", "transient", "text"),
    [
        ("500", True, "the server replied 500"),
        ("503", True, "the server replied 503"),
        ("403", False, "the server refused the login (status 403)"),
        ("302", False, "the server redirects (status 302), which is not followed"),
        ("reset", True, "failed"),
    ],
)
def test_faults_of_the_server_are_faults(
    server: CacheServer, cache: SharedCache, fault: Fault, *, transient: bool, text: str
) -> None:
    put(cache, DATA)
    always(server, fault)
    calls = (
        lambda: cache.entry(ACTION),
        lambda: cache.put_entry(ACTION, b""),
        lambda: cache.missing([DIGEST, ACTION]),
        lambda: cache.blob(DIGEST),
        lambda: put(cache, DATA),
    )
    for call in calls:
        with pytest.raises(CacheFault) as raised:
            call()
        assert raised.value.transient is transient
        assert text in raised.value.message
    always(server, "")
    assert read(cache, DIGEST) == DATA


@pytest.mark.parametrize(("fault", "transient"), [("truncate", True), ("gzip", False)])
def test_a_reply_that_is_cut_or_compressed_is_a_fault(
    server: CacheServer, cache: SharedCache, fault: Fault, *, transient: bool
) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"entry")
    always(server, fault)
    for call in (lambda: read(cache, DIGEST), lambda: cache.entry(ACTION)):
        with pytest.raises(CacheFault) as raised:
            call()
        assert raised.value.transient is transient


def test_blobs_that_the_server_compresses_are_read(server: CacheServer, cache: SharedCache) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"entry")
    always(server, "zstd")
    assert (read(cache, DIGEST), cache.entry(ACTION), cache.missing([DIGEST])) == (DATA, b"entry", [])
    always(server, "")
    assert read(cache, DIGEST) == DATA


def test_a_compressed_blob_of_gigabytes_ends_at_the_size_of_its_digest(server: CacheServer, cache: SharedCache) -> None:
    put(cache, DATA)
    always(server, "bomb")
    chunks = cache.blob(DIGEST)
    assert chunks is not None
    assert sum(map(len, chunks)) == DIGEST.size_bytes + 1


def test_without_the_library_no_compressed_reply_is_accepted(
    server: CacheServer, cache: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_cache, "can_compress", lambda: False)
    put(cache, DATA)
    always(server, "zstd")
    assert read(cache, DIGEST) == DATA


def test_an_unreachable_server_is_a_transient_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        contextlib.closing(open_shared_cache(f"http://127.0.0.1:{port}")) as cache,
        pytest.raises(CacheFault) as raised,
    ):
        cache.entry(ACTION)
    assert raised.value.transient


def test_an_entry_that_is_too_large_is_a_fault_of_it(server: CacheServer, cache: SharedCache) -> None:
    server.entries[ACTION.sha256] = bytes(MAX_ENTRY_BYTES + 1)
    with pytest.raises(BlobFault, match="16 MiB"):
        cache.entry(ACTION)
    server.entries[ACTION.sha256] = bytes(MAX_ENTRY_BYTES)
    assert len(cache.entry(ACTION) or b"") == MAX_ENTRY_BYTES


def test_an_entry_that_the_server_refuses_is_a_fault(server: CacheServer, cache: SharedCache) -> None:
    for entry in (b"no entry\nof this kind", f"\n{DIGEST.sha256}/10".encode()):
        with pytest.raises(CacheFault, match="the server replied 400"):
            cache.put_entry(ACTION, entry)
    assert server.entries == {}


@pytest.mark.slow
def test_the_library_is_loaded_only_for_a_cache_behind_http() -> None:
    script = "import sys, orch23.features.cache.client, orch23.features.cache.registry as r\n"
    script += "r.open_shared_cache('/tmp'); print("
    script += "[one for one in ('httpcore2', 'httpx2', 'obstore', 'grpc', 'ssl') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
