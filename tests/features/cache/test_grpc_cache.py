"""A shared cache behind gRPC: buildbox-casd, and a server with faults."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from backports import zstd
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from orch23.features.cache import grpc_cache, grpc_calls
from orch23.features.cache.bounds import MAX_ENTRY_BYTES, BlobFault
from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.entries import encode_result, entry_blobs, entry_digest
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.errors import CacheFault, ConfigurationError, MissingBytesError
from orch23.model.ports import SharedCache
from tests.cache_conformance import ACTION, LIMIT, MIB, CacheConformance, Served, put, read
from tests.casd import running_casd
from tests.doubles import MemoryContents
from tests.reapi_oracle import oracle_of
from tests.reapi_server import ReapiServer, Refusal, serving_reapi

DATA = b"some bytes"
DIGEST = digest_bytes(DATA)
LARGE = random.Random(7).randbytes(5 * MIB + 3)


def entry_of(blobs: Iterable[Digest], text: str = "") -> bytes:
    return encode_result({f"{text}{number}": FileEntry(digest) for number, digest in enumerate(blobs)})


@pytest.fixture(scope="module")
def casd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("casd")
    with running_casd(folder) as address:
        yield address, folder


@pytest.fixture
def empty_casd(casd: tuple[str, Path]) -> Iterator[tuple[str, Path]]:
    yield casd
    for one in casd[1].rglob("objects/??/*"):
        one.unlink()


class TestCasd(CacheConformance):
    """buildbox-casd. It keeps blobs open that a test would change, and an entry without its blobs is none for it."""

    entry_of = staticmethod(entry_of)

    @pytest.fixture
    def served(self, empty_casd: tuple[str, Path]) -> Served:
        return Served(f"grpc://{empty_casd[0]}")

    def test_a_digest_of_another_size_is_missing(self, cache: SharedCache) -> None:
        """The server does not compare sizes, and returns the first bytes, which the client refuses."""
        assert read(cache, Digest(put(cache, DATA).sha256, 3)) == DATA[:3]


class TestServer(CacheConformance):
    """A server that verifies uploads, and keeps entries whose blobs are gone."""

    entry_of = staticmethod(entry_of)
    is_in_this_process = True

    @pytest.fixture
    def served(self, server: ReapiServer) -> Served:
        def damage(digest: Digest, data: bytes) -> None:
            server.blobs[digest.sha256] = data

        return Served(server.url, damage, lambda digest: server.blobs.__delitem__(digest.sha256))

    @pytest.mark.slow
    def test_wrong_bytes_of_a_large_blob_are_refused_too(self, client: CacheClient, served: Served) -> None:
        digest, contents = digest_bytes(LARGE), MemoryContents()
        assert served.damage is not None
        for damage in (LARGE[:-1] + b"!", LARGE[:-5], LARGE + b"more"):
            client.upload(digest_bytes(damage), entry_of([digest]), {digest: lambda: [LARGE]})
            assert client.flush(30) == ()
            served.damage(digest, damage)
            assert not client.fetch([digest], contents, LIMIT)
            assert not contents.has(digest)
        client.upload(ACTION, entry_of([digest]), {digest: lambda: [LARGE]})
        assert client.flush(30) == ()
        assert client.fetch([digest], contents, LIMIT)


@pytest.fixture
def server() -> Iterator[ReapiServer]:
    with serving_reapi() as server:
        yield server


@pytest.fixture
def cache(server: ReapiServer) -> Iterator[SharedCache]:
    with contextlib.closing(open_shared_cache(server.url)) as cache:
        yield cache


def called(address: str, method: str, request: Any, reply: str) -> Any:
    """Call a server with Google's libraries alone."""
    with grpc.insecure_channel(address) as channel:
        data = channel.unary_unary(f"/build.bazel.remote.execution.v2.{method}")(
            request.SerializeToString(), timeout=10
        )
    return oracle_of(reply).FromString(data)


def proto(digest: Digest) -> Any:
    return oracle_of("DigestProto")(hash=digest.sha256, size_bytes=digest.size_bytes)


def test_another_client_reads_what_we_wrote_and_we_read_what_it_wrote(empty_casd: tuple[str, Path]) -> None:
    address, _ = empty_casd
    key = entry_digest("result", 1, "k")
    with contextlib.closing(open_shared_cache(f"grpc://{address}")) as cache:
        for data in entry_blobs("result", 1, "k").values():
            put(cache, data)
        for data in (DATA, b"{}"):  # this server also requires the bytes that a result contains
            put(cache, data)
        cache.put_entry(key, encode_result({"record": b"{}", "outputs/a": FileEntry(DIGEST, executable=True)}))
        request = oracle_of("GetActionResultRequest")(action_digest=proto(key))
        result = called(address, "ActionCache/GetActionResult", request, "ActionResultProto")
        found = [(one.path, one.is_executable, one.digest.hash) for one in result.output_files]
        assert found[0] == ("outputs/a", True, DIGEST.sha256)
        request = oracle_of("BatchReadBlobsRequest")(digests=[proto(key), proto(DIGEST)])
        blobs = called(address, "ContentAddressableStorage/BatchReadBlobs", request, "BatchReadBlobsResponse")
        assert oracle_of("ActionProto").FromString(blobs.responses[0].data).salt.startswith(b'{"key":"k"')
        assert blobs.responses[1].data == DATA

        other = digest_bytes(b"other")
        update = oracle_of("BlobUpdate")(digest=proto(other), data=b"other")
        request = oracle_of("BatchUpdateBlobsRequest")(requests=[update])
        called(address, "ContentAddressableStorage/BatchUpdateBlobs", request, "BatchUpdateBlobsResponse")
        result.output_files[0].digest.CopyFrom(proto(other))
        request = oracle_of("UpdateActionResultRequest")(action_digest=proto(other), action_result=result)
        called(address, "ActionCache/UpdateActionResult", request, "ActionResultProto")
        assert read(cache, other) == b"other"
        assert cache.entry(other) == result.SerializeToString()


def test_an_entry_whose_blob_is_gone_is_a_miss_and_stored_again(empty_casd: tuple[str, Path]) -> None:
    address, folder = empty_casd
    with contextlib.closing(open_shared_cache(f"grpc://{address}")) as cache:
        entry = entry_of([put(cache, DATA)])
        cache.put_entry(ACTION, entry)
        (folder / "cas" / "objects" / DIGEST.sha256[:2] / DIGEST.sha256[2:]).unlink()
        assert cache.entry(ACTION) is None
        assert list(cache.missing([DIGEST])) == [DIGEST]
        put(cache, DATA)
        cache.put_entry(ACTION, entry)
        assert cache.entry(ACTION) == entry


def test_the_size_of_a_blob_decides_how_it_is_sent(server: ReapiServer, cache: SharedCache) -> None:
    server.capabilities.max_batch_total_size_bytes = 10_000
    sizes = {10_000 - 4096: ["BatchUpdateBlobs", "BatchReadBlobs"], 10_000 - 4095: ["Write", "Read"]}
    for size, methods in sizes.items():
        server.calls.clear()
        assert read(cache, put(cache, bytes(size))) == bytes(size)
        assert [method for method in server.calls if method != "GetCapabilities"] == methods


@pytest.mark.parametrize("limit", [0, 1 << 40])
def test_a_message_is_never_larger_than_servers_accept_by_default(
    server: ReapiServer, cache: SharedCache, limit: int
) -> None:
    server.capabilities.max_batch_total_size_bytes = limit
    assert read(cache, put(cache, bytes(4 * MIB))) == bytes(4 * MIB)
    assert server.calls == ["GetCapabilities", "Write", "Read"]


@pytest.mark.slow
def test_many_digests_are_asked_for_in_few_questions(server: ReapiServer, cache: SharedCache) -> None:
    digests = [digest_bytes(b"%d" % number) for number in range(10_001)]
    assert sorted(cache.missing([*digests, *digests])) == sorted(digests)
    assert server.calls == ["GetCapabilities", "FindMissingBlobs", "FindMissingBlobs"]


def test_the_instance_and_the_login_are_in_each_call(server: ReapiServer) -> None:
    url = server.url.replace("//", "//name:secret@")
    with contextlib.closing(open_shared_cache(url, lambda _url: {"X-Team": "a"})) as cache:
        for data in (DATA, LARGE):
            assert read(cache, put(cache, data)) == data
        cache.put_entry(ACTION, entry_of([DIGEST]))
    assert len(server.calls) == len(server.metadata) == 7
    logins = {(one["authorization"], one["x-team"]) for one in server.metadata}
    assert logins == {("Basic bmFtZTpzZWNyZXQ=", "a")}


def test_another_instance_is_a_lasting_fault(server: ReapiServer) -> None:
    url = server.url.replace("main", "other")
    with contextlib.closing(open_shared_cache(url)) as cache:
        for call in (lambda: cache.entry(ACTION), lambda: put(cache, DATA), lambda: cache.missing([DIGEST])):
            with pytest.raises(CacheFault, match="no cache with SHA-256 and the name 'other/one'") as raised:
                call()
            assert not raised.value.transient


def test_a_server_without_sha256_is_a_lasting_fault(server: ReapiServer, cache: SharedCache) -> None:
    server.capabilities.digest_functions[:] = [2]
    with pytest.raises(CacheFault, match="SHA-256") as raised:
        cache.missing([DIGEST])
    assert not raised.value.transient


def test_a_server_that_takes_no_results_can_be_read(server: ReapiServer, cache: SharedCache) -> None:
    server.capabilities.action_cache_update_capabilities.update_enabled = False
    server.blobs[DIGEST.sha256], server.entries[ACTION.sha256] = DATA, entry_of([DIGEST])
    for write in (lambda: put(cache, DATA), lambda: cache.put_entry(ACTION, entry_of([DIGEST]))):
        with pytest.raises(CacheFault, match="takes no results") as raised:
            write()
        assert not raised.value.transient
    assert read(cache, DIGEST) == DATA
    assert cache.entry(ACTION) == entry_of([DIGEST])


@pytest.mark.slow
def test_an_upload_ends_if_the_server_has_the_blob(
    server: ReapiServer, cache: SharedCache, empty_casd: tuple[str, Path]
) -> None:
    given: list[int] = []

    def chunks() -> Iterator[bytes]:
        for at in range(0, len(LARGE), 1000):
            given.append(at)
            yield LARGE[at : at + 1000]

    with contextlib.closing(open_shared_cache(f"grpc://{empty_casd[0]}")) as other:
        for one in (cache, other):
            one.put_blob(digest_bytes(LARGE), chunks)
            given.clear()
            one.put_blob(digest_bytes(LARGE), chunks)
            assert len(given) < len(LARGE) / 1000
            assert read(one, digest_bytes(LARGE)) == LARGE


def test_an_upload_is_resumed_where_the_server_has_it(server: ReapiServer, cache: SharedCache) -> None:
    server.breaks_after = [2 * MIB, 4 * MIB]
    assert read(cache, put(cache, LARGE)) == LARGE
    uploads = [one for one in server.calls if one in {"Write", "QueryWriteStatus"}]
    assert uploads == ["Write", "QueryWriteStatus", "Write", "QueryWriteStatus", "Write"]


def test_an_upload_whose_reply_is_lost_is_not_repeated(server: ReapiServer, cache: SharedCache) -> None:
    server.breaks_after = [len(LARGE)]
    assert read(cache, put(cache, LARGE)) == LARGE
    assert server.calls == ["GetCapabilities", "Write", "QueryWriteStatus", "Read"]


def test_an_upload_that_makes_no_progress_is_a_fault(server: ReapiServer, cache: SharedCache) -> None:
    server.breaks_after = [MIB, 1]
    with pytest.raises(CacheFault, match="Write failed: UNAVAILABLE") as raised:
        put(cache, LARGE)
    assert raised.value.transient
    server.breaks_after = [1, MIB + 1, 2 * MIB + 1, 3 * MIB + 1, 4 * MIB + 1]
    with pytest.raises(CacheFault, match="UNAVAILABLE"):
        put(cache, LARGE)
    assert server.breaks_after == [4 * MIB + 1], "it is resumed three times"


# ---- compression --------------------------------------------------------------------------------------------------

REPETITIVE = b"0123456789abcdef" * (6 * MIB // 16) + LARGE


@pytest.fixture
def compressing(server: ReapiServer) -> ReapiServer:
    server.capabilities.supported_compressors.append(1)
    return server


class TestCompressingServer(CacheConformance):
    """A server that takes and sends large blobs with zstd."""

    entry_of = staticmethod(entry_of)
    is_in_this_process = True

    @pytest.fixture
    def served(self, compressing: ReapiServer) -> Served:
        def damage(digest: Digest, data: bytes) -> None:
            compressing.blobs[digest.sha256] = data

        return Served(compressing.url, damage, lambda digest: compressing.blobs.__delitem__(digest.sha256))


def sent_bytes(server: ReapiServer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the size of each message of an upload."""
    sizes: list[int] = []
    write = server.write

    def counted(requests: Iterable[bytes]) -> bytes:
        seen = list(requests)
        sizes.extend(map(len, seen))
        return write(seen)

    monkeypatch.setattr(server, "write", counted)
    return sizes


def test_a_large_blob_is_compressed_if_the_server_can_do_it(
    compressing: ReapiServer, cache: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, digest = sent_bytes(compressing, monkeypatch), digest_bytes(REPETITIVE)
    cache.put_blob(digest, lambda: [REPETITIVE])
    assert compressing.blobs[digest.sha256] == REPETITIVE
    assert len(LARGE) < sum(sent) < len(LARGE) + MIB
    received: list[int] = []

    def counted(_method: str, reply: bytes) -> bytes:
        received.append(len(reply))
        return reply

    compressing.replaced = counted
    assert read(cache, digest) == REPETITIVE
    assert len(LARGE) < sum(received) < len(LARGE) + MIB


def test_without_the_library_nothing_is_compressed(
    compressing: ReapiServer, cache: SharedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_cache, "can_compress", lambda: False)
    sent, digest = sent_bytes(compressing, monkeypatch), digest_bytes(REPETITIVE)
    cache.put_blob(digest, lambda: [REPETITIVE])
    assert sum(sent) > len(REPETITIVE)
    assert read(cache, digest) == REPETITIVE


def test_a_compressed_upload_is_resumed(compressing: ReapiServer, cache: SharedCache) -> None:
    compressing.breaks_after = [MIB, 3 * MIB]
    cache.put_blob(digest_bytes(LARGE), lambda: [LARGE])
    assert compressing.calls.count("Write") == 3
    assert compressing.blobs == {digest_bytes(LARGE).sha256: LARGE}


def test_a_compressed_upload_whose_reply_is_lost_is_not_repeated(compressing: ReapiServer, cache: SharedCache) -> None:
    write = compressing.write

    def lost(requests: Iterable[bytes]) -> bytes:
        write(requests)
        raise Refusal(grpc.StatusCode.UNAVAILABLE)

    compressing.write = lost  # type: ignore[method-assign]
    cache.put_blob(digest_bytes(LARGE), lambda: [LARGE])
    assert compressing.calls.count("Write") == 1


def test_a_compressed_upload_ends_if_the_server_has_the_blob(compressing: ReapiServer, cache: SharedCache) -> None:
    compressing.blobs[digest_bytes(LARGE).sha256] = LARGE
    cache.put_blob(digest_bytes(LARGE), lambda: [LARGE])
    assert compressing.partial == {}


@pytest.mark.parametrize(
    "compress",
    [
        lambda _data: b"no frame",
        lambda data: zstd.compress(data)[:-9],
        lambda data: zstd.compress(data[:-1]),
        lambda data: zstd.compress(data[:-1] + b"!"),
        lambda _data: b"",
    ],
)
def test_a_damaged_frame_is_never_a_blob(compressing: ReapiServer, compress: Callable[[bytes], bytes]) -> None:
    digest, contents = digest_bytes(LARGE), MemoryContents()
    compressing.blobs[digest.sha256], compressing.compress = LARGE, compress
    with contextlib.closing(CacheClient(open_shared_cache(compressing.url), lambda _warning: None)) as client:
        assert not client.fetch([digest], contents, LIMIT)
    assert not contents.has(digest)


def test_a_frame_of_terabytes_ends_at_the_size_of_its_digest(compressing: ReapiServer, cache: SharedCache) -> None:
    frame = zstd.compress(bytes(64 * MIB))
    compressing.blobs[digest_bytes(LARGE).sha256] = LARGE
    compressing.compress = lambda _data: frame * 16_384
    chunks = cache.blob(digest_bytes(LARGE))
    assert chunks is not None
    assert sum(map(len, chunks)) == len(LARGE) + 1


def test_several_frames_are_one_blob(compressing: ReapiServer, cache: SharedCache) -> None:
    compressing.blobs[digest_bytes(LARGE).sha256] = LARGE
    compressing.compress = lambda data: zstd.compress(data[:MIB]) + zstd.compress(b"") + zstd.compress(data[MIB:])
    assert read(cache, digest_bytes(LARGE)) == LARGE


def test_the_exception_of_chunks_is_raised_and_not_logged(
    server: ReapiServer, cache: SharedCache, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Iterator[bytes]:
        yield LARGE[:MIB]
        raise MissingBytesError("0" * 64)

    with pytest.raises(MissingBytesError):
        cache.put_blob(digest_bytes(LARGE), broken)
    assert server.blobs == {}
    assert capfd.readouterr().err == ""


STATUSES = {
    "UNAVAILABLE": True,
    "RESOURCE_EXHAUSTED": True,
    "INTERNAL": True,
    "UNKNOWN": True,
    "ABORTED": True,
    "INVALID_ARGUMENT": False,
    "UNIMPLEMENTED": False,
    "FAILED_PRECONDITION": False,
}
CALLS: dict[str, Callable[[SharedCache], object]] = {
    "GetCapabilities": lambda cache: cache.missing([DIGEST]),
    "GetActionResult": lambda cache: cache.entry(ACTION),
    "UpdateActionResult": lambda cache: cache.put_entry(ACTION, entry_of([]), replace=True),
    "FindMissingBlobs": lambda cache: cache.missing([DIGEST]),
    "BatchReadBlobs": lambda cache: read(cache, DIGEST),
    "BatchUpdateBlobs": lambda cache: put(cache, DATA),
    "Read": lambda cache: read(cache, digest_bytes(LARGE)),
    "Write": lambda cache: put(cache, LARGE),
}


@pytest.mark.parametrize("method", CALLS)
def test_a_status_is_a_fault(server: ReapiServer, cache: SharedCache, method: str) -> None:
    for name, transient in STATUSES.items():
        if name == "UNIMPLEMENTED" and method.startswith("Batch"):
            continue
        server.fault = lambda one, name=name: name if one == method else ""  # type: ignore[misc]
        with pytest.raises(CacheFault, match=rf"^{method} failed: {name}, a {name}\?\[31m more$") as raised:
            CALLS[method](cache)
        assert raised.value.transient is transient
    for name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        server.fault = lambda one, name=name: name if one == method else ""  # type: ignore[misc]
        with pytest.raises(CacheFault, match=f"refused the login .{name}.") as raised:
            CALLS[method](cache)
        assert not raised.value.transient


@pytest.mark.stride(3)
@pytest.mark.parametrize("method", CALLS)
def test_a_server_that_hangs_is_a_transient_fault(
    server: ReapiServer, cache: SharedCache, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_calls, "_CALL_S", 0.1)
    monkeypatch.setattr(grpc_calls, "_SLOWEST_BYTES_PER_S", 1 << 40)
    server.fault = lambda one: "HANG" if one == method else ""
    with pytest.raises(CacheFault, match="DEADLINE_EXCEEDED") as raised:
        CALLS[method](cache)
    assert raised.value.transient


@pytest.mark.parametrize("method", sorted(set(CALLS) - {"GetActionResult"}))
def test_a_reply_that_is_no_message_is_a_fault(server: ReapiServer, cache: SharedCache, method: str) -> None:
    server.blobs[digest_bytes(LARGE).sha256] = LARGE
    for junk in (b"\x0a", b"\xff" * 20):
        server.replaced = lambda one, reply, junk=junk: junk if one == method else reply  # type: ignore[misc]
        with pytest.raises(CacheFault, match=f"the reply to {method} makes no sense"):
            CALLS[method](cache)


OTHER = proto(digest_bytes(b"other"))


@pytest.mark.parametrize(
    ("method", "kind", "values"),
    [
        ("FindMissingBlobs", "FindMissingBlobsResponse", {"missing_blob_digests": [OTHER]}),
        ("BatchReadBlobs", "BatchReadBlobsResponse", {}),
        ("BatchReadBlobs", "BatchReadBlobsResponse", {"responses": [{"digest": OTHER}]}),
        ("BatchReadBlobs", "BatchReadBlobsResponse", {"responses": [{"digest": proto(DIGEST), "compressor": 1}]}),
        ("BatchUpdateBlobs", "BatchUpdateBlobsResponse", {}),
        ("BatchUpdateBlobs", "BatchUpdateBlobsResponse", {"responses": [{"digest": OTHER}]}),
        ("Write", "WriteStatus", {"committed_size": 3}),
    ],
)
def test_a_reply_to_another_question_is_a_fault(
    server: ReapiServer, cache: SharedCache, method: str, kind: str, values: dict[str, Any]
) -> None:
    reply = oracle_of(kind)(**values).SerializeToString()
    server.replaced = lambda one, usual: reply if one == method else usual
    with pytest.raises(CacheFault, match="makes no sense"):
        CALLS[method](cache)


def test_a_status_within_a_reply_is_a_fault(server: ReapiServer, cache: SharedCache) -> None:
    with pytest.raises(CacheFault, match="BatchUpdateBlobs failed: INVALID_ARGUMENT, other bytes"):
        cache.put_blob(DIGEST, lambda: [b"other"])
    status = {"digest": proto(DIGEST), "status": {"code": 14, "message": "later"}}
    reply = oracle_of("BatchReadBlobsResponse")(responses=[status]).SerializeToString()
    server.replaced = lambda one, usual: reply if one == "BatchReadBlobs" else usual
    with pytest.raises(CacheFault, match="UNAVAILABLE, later") as raised:
        read(cache, DIGEST)
    assert raised.value.transient


def test_a_large_blob_that_is_missing_is_none(server: ReapiServer, cache: SharedCache) -> None:
    assert cache.blob(digest_bytes(LARGE)) is None
    assert server.calls == ["GetCapabilities", "Read"]


def test_a_part_of_a_blob_that_is_too_large_is_a_fault(server: ReapiServer, cache: SharedCache) -> None:
    data, server.part_bytes = bytes(18 * MIB), 18 * MIB
    server.blobs[digest_bytes(data).sha256] = data
    with pytest.raises(CacheFault, match="a part of a blob is too large"):
        read(cache, digest_bytes(data))


def test_an_entry_that_is_too_large_is_a_fault_of_it(server: ReapiServer, cache: SharedCache) -> None:
    for size in (MAX_ENTRY_BYTES + 1, MAX_ENTRY_BYTES + 2 * MIB):
        server.entries[ACTION.sha256] = bytes(size)
        with pytest.raises(BlobFault, match="16 MiB"):
            cache.entry(ACTION)
    server.entries[ACTION.sha256] = bytes(MAX_ENTRY_BYTES)
    assert len(cache.entry(ACTION) or b"") == MAX_ENTRY_BYTES


def test_an_entry_that_is_too_large_for_the_server_is_not_stored(server: ReapiServer, cache: SharedCache) -> None:
    cache.put_entry(ACTION, encode_result({"a": bytes(5 * MIB)}))
    assert server.entries == {}
    assert cache.entry(ACTION) is None


def test_an_entry_that_is_no_result_or_that_the_server_refuses_is_a_fault(
    server: ReapiServer, cache: SharedCache
) -> None:
    with pytest.raises(CacheFault, match="not an ActionResult"):
        cache.put_entry(ACTION, b"\xff")
    with pytest.raises(CacheFault, match="FAILED_PRECONDITION"):
        cache.put_entry(ACTION, entry_of([DIGEST]))
    assert server.entries == {}


def test_an_unreachable_server_is_a_transient_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with contextlib.closing(open_shared_cache(f"grpc://127.0.0.1:{port}")) as cache:
        for call in CALLS.values():
            with pytest.raises(CacheFault, match="UNAVAILABLE") as raised:
                call(cache)
            assert raised.value.transient


def certificate(name: str) -> tuple[bytes, bytes]:
    """Return the private key and the certificate of a host that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = Encoding.PEM
    return key.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption()), made.public_bytes(pem)


def test_grpcs_is_encrypted_and_trusts_only_known_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, trusted = certificate("localhost")
    for name, is_trusted in ((trusted, True), (certificate("localhost")[1], False)):
        (tmp_path / "trusted.pem").write_bytes(name)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
        with serving_reapi(grpc.ssl_server_credentials([(key, trusted)])) as server:
            url = f"grpcs://name:secret@localhost:{server.port}/{server.instance}"
            with contextlib.closing(open_shared_cache(url)) as cache:
                if is_trusted:
                    assert read(cache, put(cache, DATA)) == DATA
                    assert server.metadata[0]["authorization"] == "Basic bmFtZTpzZWNyZXQ="
                else:
                    with pytest.raises(CacheFault, match="UNAVAILABLE"):
                        cache.entry(ACTION)
                    assert server.calls == []


def test_a_closed_cache_is_a_fault(server: ReapiServer) -> None:
    cache = open_shared_cache(server.url)
    put(cache, DATA)
    cache.close()
    with pytest.raises(CacheFault, match="closed"):
        cache.entry(ACTION)


@pytest.mark.slow
def test_the_library_is_loaded_only_for_a_cache_behind_grpc() -> None:
    script = "import sys, threading, orch23.features.cache.client, orch23.features.cache.registry as r\n"
    script += "import orch23.features.cache.grpc_cache\n"
    script += "print('grpc' in sys.modules)\nr.open_shared_cache('grpc://127.0.0.1:1')\nprint(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n1\n"


def test_calls_end_when_the_cache_is_closed(server: ReapiServer) -> None:
    cache = open_shared_cache(server.url)
    server.fault = lambda method: "HANG" if method == "GetActionResult" else ""
    faults: list[str] = []

    def ask() -> None:
        with pytest.raises(CacheFault) as raised:
            cache.entry(ACTION)
        faults.append(raised.value.message)

    thread = threading.Thread(target=ask)
    thread.start()
    server.hanging.wait()
    cache.close()
    thread.join(timeout=5)
    assert [fault.partition(",")[0] for fault in faults] == ["GetActionResult failed: CANCELLED"]


def test_a_missing_library_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigurationError, match="needs the library `grpcio`") as raised:
        open_shared_cache("grpc://127.0.0.1:1")
    assert "grpcio" in (raised.value.diagnostics[0].hint or "")


CHILDREN = """
import subprocess, sys, threading
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import digest_bytes
cache = open_shared_cache(sys.argv[1])
is_over = threading.Event()
def ask():
    while not is_over.is_set():
        cache.missing([digest_bytes(b"x")])
threads = [threading.Thread(target=ask) for _ in range(3)]
for thread in threads:
    thread.start()
print(sum(subprocess.run(["true"]).returncode for _ in range(60)))
is_over.set()
for thread in threads:
    thread.join()
cache.close()
"""


@pytest.mark.slow
def test_processes_can_be_started_while_calls_run(server: ReapiServer) -> None:
    command = [sys.executable, "-c", CHILDREN, server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
