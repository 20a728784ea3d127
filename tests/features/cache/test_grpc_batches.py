"""Small blobs behind gRPC, several in one message: limits, a fault of one blob, and servers that send anything."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import example, given
from hypothesis import strategies as st

from orch23.features.cache import batches
from orch23.features.cache.availability import CacheLimits
from orch23.features.cache.bounds import UNASKED_BYTES
from orch23.features.cache.client import CacheClient
from orch23.features.cache.grpc_cache import GrpcCache, batch_bytes, grouped
from orch23.features.cache.reapi.entries import encode_result
from orch23.features.cache.reapi.messages import BatchUpdateBlobsRequest, BlobUpdate, digest_proto
from orch23.features.cache.reapi.wire import encode
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.errors import CacheFault, MissingBytesError
from orch23.model.ports import ChunkSource
from tests.cache_conformance import ACTION, LIMIT, MIB, put, read
from tests.casd import running_casd
from tests.doubles import MemoryContents
from tests.reapi_oracle import oracle_of
from tests.reapi_server import ReapiServer, serving_reapi

TEXTS = [b"text %d " % number * 40 * number for number in range(1, 31)]
SMALL = {digest_bytes(text): text for text in TEXTS}
LARGE = {digest_bytes(data): data for data in (random.Random(seed).randbytes(5 * MIB + seed) for seed in (1, 2))}
OTHER = digest_bytes(b"other")
MESSAGE_BYTES = 1 << 20


class Rig:
    """A client of a cache, what it warned of, and a content store."""

    def __init__(self, url: str, limits: CacheLimits | None = None) -> None:
        self.warnings: list[str] = []
        self.pauses: list[float] = []
        self.cache = open_shared_cache(url)
        self.client = CacheClient(
            self.cache, self.warnings.append, limits or CacheLimits(), clock=lambda: 0.0, pause=self.pauses.append
        )
        self.contents = MemoryContents()

    def upload(self, blobs: Mapping[Digest, bytes], action: Digest = ACTION) -> tuple[Digest, ...]:
        """Upload a result that has these blobs; return the actions that were not uploaded."""
        sources: Mapping[Digest, ChunkSource] = {digest: partial(pieces_of, data) for digest, data in blobs.items()}
        entry = encode_result({f"{number}": FileEntry(digest) for number, digest in enumerate(blobs)})
        self.client.upload(action, entry, sources)
        return self.client.flush(30)

    def fetch(self, *digests: Digest) -> bool:
        return self.client.fetch(digests, self.contents, LIMIT)


def pieces_of(data: bytes) -> Iterator[bytes]:
    return (data[at : at + MIB] for at in range(0, len(data), MIB))


@pytest.fixture
def server() -> Iterator[ReapiServer]:
    with serving_reapi() as server:
        yield server


@pytest.fixture
def rig(server: ReapiServer) -> Iterator[Rig]:
    rig = Rig(server.url)
    with contextlib.closing(rig.client):
        rig.client.missing([OTHER])  # it knows the limits of the server
        server.calls.clear()
        yield rig


def proto(digest: Digest) -> Any:
    return oracle_of("DigestProto")(hash=digest.sha256, size_bytes=digest.size_bytes)


def stored(server: ReapiServer, blobs: Mapping[Digest, bytes]) -> None:
    server.blobs.update({digest.sha256: data for digest, data in blobs.items()})


# ---- both directions ----


@pytest.mark.slow
def test_small_blobs_are_one_message_in_both_directions(server: ReapiServer, rig: Rig) -> None:
    blobs = {**SMALL, **LARGE}
    assert rig.upload(blobs) == ()
    assert server.blobs == {digest.sha256: data for digest, data in blobs.items()}
    assert sorted(server.calls) == [
        "BatchUpdateBlobs",
        "FindMissingBlobs",
        "GetActionResult",
        "UpdateActionResult",
        "Write",
        "Write",
    ]
    assert server.calls.index("UpdateActionResult") == 5, "the entry is last"
    server.calls.clear()
    assert rig.fetch(*blobs)
    assert {digest: rig.contents.get(digest) for digest in blobs} == blobs
    assert sorted(server.calls) == ["BatchReadBlobs", "Read", "Read"]
    sizes = sum(digest.size_bytes for digest in blobs)
    assert rig.client.down_bytes == sizes
    assert rig.client.up_bytes > sizes
    assert rig.warnings == []


@pytest.mark.slow
def test_casd_and_another_client_have_the_same_blobs(tmp_path: Path) -> None:
    blobs = {**SMALL, **LARGE, digest_bytes(b""): b""}
    with running_casd(tmp_path) as address:
        writer = Rig(f"grpc://{address}")
        with contextlib.closing(writer.client):
            assert writer.upload(blobs) == ()
        reader = Rig(f"grpc://{address}")
        with contextlib.closing(reader.client):
            assert list(reader.client.missing(blobs)) == []
            assert reader.fetch(*blobs)
            assert {digest: reader.contents.get(digest) for digest in blobs} == blobs
            assert not reader.fetch(*SMALL, OTHER)
        assert writer.warnings == reader.warnings == []
        with contextlib.closing(open_shared_cache(f"grpc://{address}")) as cache:
            cache.missing([OTHER])
            assert isinstance(cache, GrpcCache)
            other = [*SMALL, OTHER]
            assert cache.read_batch(other) == {**SMALL, OTHER: None}
            assert cache.put_batch({**SMALL, OTHER: b"wrong"}) == {OTHER}
            for digest, data in SMALL.items():
                assert read(cache, digest) == data


def test_each_blob_is_alone_before_the_limits_of_the_server_are_known(server: ReapiServer) -> None:
    stored(server, SMALL)
    rig = Rig(server.url)
    with contextlib.closing(rig.client):
        assert rig.fetch(*list(SMALL)[:3])
        assert server.calls.count("BatchReadBlobs") == 3
        assert rig.fetch(*SMALL)
        assert server.calls.count("BatchReadBlobs") == 4


def test_what_is_there_is_not_read_again_after_a_fault(server: ReapiServer, rig: Rig) -> None:
    stored(server, SMALL)
    last, codes, asked = max(SMALL), iter([14, 14]), []

    def status_of(sha256: str) -> int:
        asked.append(sha256)
        return next(codes, 0) if sha256 == last.sha256 else 0

    server.status_of = status_of
    assert rig.fetch(*SMALL)
    assert {digest: rig.contents.get(digest) for digest in SMALL} == SMALL
    assert len(asked) == len(SMALL) + 2, "the batch, then twice the blob with the status alone"
    assert rig.pauses == [0.2]
    assert rig.warnings == []


def test_a_batch_is_tried_again(server: ReapiServer, rig: Rig) -> None:
    faults = {method: iter(["UNAVAILABLE"]) for method in ("BatchReadBlobs", "BatchUpdateBlobs")}
    server.fault = lambda method: next(faults.get(method, iter(())), "")
    assert rig.upload(SMALL) == ()
    assert rig.fetch(*SMALL)
    assert (server.calls.count("BatchUpdateBlobs"), server.calls.count("BatchReadBlobs")) == (2, 2)
    assert rig.pauses == [0.2, 0.2]
    assert rig.warnings == []


def test_a_result_of_small_files_takes_three_requests(
    server: ReapiServer, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "RECENT_S", 1e9)
    few = dict(list(SMALL.items())[:3])
    assert rig.client.entry(ACTION) is None
    assert rig.upload(few) == ()
    assert server.calls == ["GetActionResult", "BatchUpdateBlobs", "UpdateActionResult"]
    assert rig.client.entry(ACTION) is not None
    server.calls.clear()
    other = random.Random(3).randbytes(UNASKED_BYTES)
    assert rig.upload({**SMALL, digest_bytes(other): other}, OTHER) == ()
    assert server.calls == ["FindMissingBlobs", "BatchUpdateBlobs", "GetActionResult", "UpdateActionResult"]


# ---- limits ----


@given(
    sizes=st.lists(st.integers(0, 2 * MIB) | st.integers(MESSAGE_BYTES - 5000, MESSAGE_BYTES + 10), max_size=40),
    stated=st.sampled_from([0, 5000, 1 << 20, MESSAGE_BYTES - 1, MESSAGE_BYTES, 1 << 40]),
)
@example(sizes=[4190] * 1000, stated=0)
def test_messages_are_within_the_limits_of_the_server_and_of_grpc(sizes: list[int], stated: int) -> None:
    digests = [Digest(f"{number:064x}", size) for number, size in enumerate(sizes)]
    groups = grouped(digests, batch_bytes(stated))
    assert sorted(one for group in groups for one in group) == sorted(digests)
    for group in groups:
        content = sum(digest.size_bytes for digest in group)
        if len(group) > 1:
            # The same messages without the bytes of the blobs, whose lengths have four bytes at most.
            updates = tuple(BlobUpdate(digest=digest_proto(digest), data=b"x") for digest in group)
            request = encode(BatchUpdateBlobsRequest(instance_name="a" * 1000, requests=updates))
            reply = oracle_of("BatchReadBlobsResponse")()
            for digest in group:
                one = reply.responses.add(digest=proto(digest), data=b"x")
                one.status.message = "OK"
            for message in (request, reply.SerializeToString()):
                assert len(message) + content + 8 * len(group) <= min(stated or MESSAGE_BYTES, MESSAGE_BYTES)


def test_many_blobs_are_in_few_messages_of_any_size() -> None:
    digests = [Digest(f"{number:064x}", 100) for number in range(2500)]
    assert [len(group) for group in grouped(digests, batch_bytes(0))] == [1000, 1000, 500]
    sizes = (MESSAGE_BYTES // 4, MESSAGE_BYTES + 1)
    large = [Digest(f"{number:064x}", sizes[number % 2 == 0]) for number in range(8)]
    assert [len(group) for group in grouped(large, batch_bytes(0))] == [1, 1, 1, 1, 3, 1], "large ones split nothing"


@pytest.mark.slow
def test_the_limit_of_the_server_counts(server: ReapiServer) -> None:
    server.capabilities.max_batch_total_size_bytes = 16_000
    rig = Rig(server.url)
    with contextlib.closing(rig.client):
        assert rig.upload(SMALL) == ()
        assert rig.fetch(*SMALL)
    assert server.blobs == {digest.sha256: data for digest, data in SMALL.items()}
    size_bytes = sum(digest.size_bytes for digest in SMALL)
    assert size_bytes / 16_000 < server.calls.count("BatchUpdateBlobs") < 2 * size_bytes / 11_904


# ---- faults ----


@pytest.mark.parametrize("code", [3, 9, 13, 14, 15, 99])
def test_a_blob_that_is_refused_fails_alone(server: ReapiServer, rig: Rig, code: int) -> None:
    refused, *others = SMALL
    server.status_of = lambda sha256: code if sha256 == refused.sha256 else 0
    assert rig.upload({refused: SMALL[refused]}, OTHER) == (OTHER,)
    assert rig.upload(SMALL) == tuple(sorted((ACTION, OTHER)))
    assert sorted(server.blobs) == sorted(digest.sha256 for digest in others)
    assert rig.upload({digest: SMALL[digest] for digest in others}, digest_bytes(b"more")) == (ACTION, OTHER)
    assert list(server.entries) == [digest_bytes(b"more").sha256]
    stored(server, SMALL)
    assert not rig.fetch(*SMALL)
    assert rig.fetch(*others)
    assert {digest: rig.contents.get(digest) for digest in others} == {digest: SMALL[digest] for digest in others}
    assert not rig.contents.has(refused)
    assert rig.warnings == []


def test_a_blob_that_is_refused_once_is_sent_alone(server: ReapiServer, rig: Rig) -> None:
    one = list(SMALL)[7]
    codes = iter([8])
    server.status_of = lambda sha256: next(codes, 0) if sha256 == one.sha256 else 0
    assert rig.upload(SMALL) == ()
    assert server.calls.count("BatchUpdateBlobs") == 2
    assert len(server.in_batches) == len(SMALL) + 1
    assert rig.pauses == []
    assert rig.warnings == []


def test_uploads_end_if_many_blobs_are_refused(server: ReapiServer) -> None:
    rig = Rig(server.url, CacheLimits(damaged=3))
    server.status_of = lambda _: 3
    with contextlib.closing(rig.client):
        assert rig.upload(SMALL) == (ACTION,)
    assert len(server.in_batches) == len(SMALL) + 3
    (warning,) = rig.warnings
    assert warning.endswith("for the rest of this run: BatchUpdateBlobs failed: INVALID_ARGUMENT, not this one")


@pytest.mark.parametrize("code", [7, 16])
def test_a_refused_login_is_one_of_all_blobs(server: ReapiServer, rig: Rig, code: int) -> None:
    server.status_of = lambda _: code
    assert rig.upload(SMALL) == (ACTION,)
    assert len(server.in_batches) == len(SMALL)
    assert "refused the login" in rig.warnings[0]


def test_a_blob_that_is_gone_from_this_machine_fails_alone(server: ReapiServer, rig: Rig) -> None:
    def gone() -> Iterator[bytes]:
        yield b"some"
        raise MissingBytesError(OTHER.sha256)

    sources: dict[Digest, ChunkSource] = {digest: partial(pieces_of, data) for digest, data in SMALL.items()}
    rig.client.upload(ACTION, encode_result({}), {**sources, OTHER: gone})
    rig.client.upload(OTHER, encode_result({}), sources)
    assert rig.client.flush(30) == (ACTION,)
    assert server.blobs == {digest.sha256: data for digest, data in SMALL.items()}
    assert rig.warnings == []


@pytest.mark.parametrize("status", ["UNIMPLEMENTED", "INVALID_ARGUMENT"])
@pytest.mark.parametrize("method", ["BatchUpdateBlobs", "BatchReadBlobs"])
def test_a_server_without_batches_gets_streams(server: ReapiServer, rig: Rig, method: str, status: str) -> None:
    server.fault = lambda one: status if one == method else ""
    blobs = {**SMALL, digest_bytes(b""): b""}
    assert rig.upload(blobs) == ()
    assert rig.fetch(*blobs)
    assert {digest: rig.contents.get(digest) for digest in blobs} == blobs
    assert server.calls.count(method) == 1, "it is called once"
    assert server.calls.count("Read") == len(SMALL)
    more = b"more" * 99
    assert read(rig.cache, put(rig.cache, more)) == more
    assert server.calls[-2:] == ["Write", "Read"]
    assert rig.warnings == []


def test_a_server_that_takes_smaller_messages_than_it_states_gets_streams() -> None:
    with serving_reapi(message_bytes=10_000) as server:
        rig = Rig(server.url)
        with contextlib.closing(rig.client):
            assert rig.upload({digest: data for digest, data in SMALL.items() if len(data) < 9000}) == ()
        assert server.calls.count("BatchUpdateBlobs") <= 1
        assert rig.warnings == []


# ---- servers that send anything ----


def replies(**more: Any) -> bytes:
    return bytes(oracle_of("BatchReadBlobsResponse")(responses=more["responses"]).SerializeToString())


def whole() -> list[dict[str, Any]]:
    return [{"digest": proto(digest), "data": data} for digest, data in SMALL.items()]


HOSTILE: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "more blobs than asked for": lambda: [*whole(), {"digest": proto(OTHER), "data": b"other"}],
    "many more": lambda: whole() + [{"digest": proto(Digest(f"{n:064x}", 1)), "data": b"x"} for n in range(50_000)],
    "a blob twice": lambda: whole() + whole()[:1],
    "other blobs": lambda: [{"digest": proto(OTHER), "data": b"other"}],
    "no digest": lambda: [*whole()[1:], {"data": TEXTS[0]}],
    "nothing": list,
    "another size": lambda: [{**one, "digest": proto(Digest(one["digest"].hash, 1))} for one in whole()],
    "a compressed blob": lambda: [{**one, "compressor": 1} for one in whole()],
}


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_a_reply_with_other_blobs_is_refused(server: ReapiServer, rig: Rig, case: str) -> None:
    reply = replies(responses=HOSTILE[case]())
    server.replaced = lambda method, usual: reply if method == "BatchReadBlobs" else usual
    assert not rig.fetch(*SMALL)
    assert rig.contents.blobs == {}
    (warning,) = rig.warnings
    assert "BatchReadBlobs makes no sense" in warning
    assert server.calls == ["BatchReadBlobs"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + b"!",
        lambda data: data[:-1],
        lambda data: data + b"!",
        lambda _: b"",
        lambda _: TEXTS[1],
    ],
)
def test_wrong_bytes_of_one_blob_are_not_stored(
    server: ReapiServer, rig: Rig, damage: Callable[[bytes], bytes]
) -> None:
    stored(server, SMALL)
    wrong, *others = SMALL
    server.blobs[wrong.sha256] = damage(SMALL[wrong])
    assert not rig.fetch(*SMALL)
    assert not rig.contents.has(wrong)
    assert rig.fetch(*others)
    assert all(digest_bytes(data).sha256 == sha256 for sha256, data in rig.contents.blobs.items())
    assert rig.upload({wrong: SMALL[wrong]}) == ()
    assert rig.fetch(wrong)
    assert rig.warnings == []


def test_a_reply_that_is_too_large_is_refused_before_it_is_in_memory(server: ReapiServer, rig: Rig) -> None:
    stored(server, SMALL)
    server.replaced = lambda method, usual: bytes(40 * MIB) if method == "BatchReadBlobs" else usual
    assert rig.fetch(*SMALL), "each blob is a stream"
    assert server.calls == ["BatchReadBlobs"] + ["Read"] * len(SMALL)


def test_a_reply_that_lacks_blobs_is_completed(server: ReapiServer, rig: Rig) -> None:
    stored(server, SMALL)
    half = replies(responses=whole()[::2])
    server.replaced = lambda method, usual: half if server.calls == [method] else usual
    assert rig.fetch(*SMALL)
    assert len(server.calls) == 1 + len(SMALL) // 2


@pytest.mark.parametrize(
    "responses", [[], [{"digest": proto(OTHER)}], [{"digest": proto(digest)} for digest in (*SMALL, OTHER)]]
)
def test_a_reply_to_an_upload_with_other_blobs_is_refused(server: ReapiServer, rig: Rig, responses: list[Any]) -> None:
    reply = oracle_of("BatchUpdateBlobsResponse")(responses=responses).SerializeToString()
    server.replaced = lambda method, usual: reply if method == "BatchUpdateBlobs" else usual
    assert rig.upload(SMALL) == (ACTION,)
    assert server.entries == {}
    (warning,) = rig.warnings
    assert "BatchUpdateBlobs makes no sense" in warning


def test_digests_that_could_be_paths_are_refused(server: ReapiServer, rig: Rig) -> None:
    assert isinstance(rig.cache, GrpcCache)
    forged = Digest("../../secret", 3)
    with pytest.raises(CacheFault, match="is not a SHA-256"):
        rig.cache.read_batch([*SMALL, forged])
    with pytest.raises(CacheFault, match="is not a SHA-256"):
        rig.cache.put_batch({**SMALL, forged: b"abc"})
    assert server.calls == []


# ---- the inputs and outputs of remote actions ----


@pytest.mark.slow
@pytest.mark.needs("remote")
def test_transfers_use_batches(server: ReapiServer) -> None:
    from orch23.features.remote.transfers import Transfers  # noqa: PLC0415 - of another feature

    here, there = MemoryContents(), MemoryContents()
    for data in (*SMALL.values(), *LARGE.values()):
        here.put(data)
    with contextlib.closing(open_shared_cache(server.url)) as cache:
        Transfers(cache, here).upload([*SMALL, *LARGE])
        wrong = next(iter(SMALL))
        server.blobs[wrong.sha256] = bytes(wrong.size_bytes)
        gone = list(SMALL)[5]
        del server.blobs[gone.sha256]
        forged = Digest("../secret", 3)
        asked = [*SMALL, *LARGE, OTHER, forged, digest_bytes(b"")]
        assert Transfers(cache, there).fetch(asked) == tuple(sorted((wrong, gone, OTHER, forged)))
        assert sorted(server.calls) == [
            "BatchReadBlobs",
            "BatchUpdateBlobs",
            "FindMissingBlobs",
            "GetCapabilities",
            "Read",
            "Read",
            "Write",
            "Write",
        ]
    assert there.has(digest_bytes(b""))
    assert all(digest_bytes(data).sha256 == sha256 for sha256, data in there.blobs.items())


@pytest.mark.needs("remote")
def test_transfers_send_a_refused_blob_alone_and_report_a_lost_one(server: ReapiServer) -> None:
    from orch23.features.remote.transfers import Transfers  # noqa: PLC0415 - of another feature

    contents = MemoryContents()
    for data in SMALL.values():
        contents.put(data)
    one = next(iter(SMALL))
    with contextlib.closing(open_shared_cache(server.url)) as cache:
        transfers = Transfers(cache, contents, lambda _: None)
        codes = iter([13, 14])
        server.status_of = lambda sha256: next(codes, 0) if sha256 == one.sha256 else 0
        transfers.upload(SMALL)
        assert len(server.in_batches) == len(SMALL) + 2
        server.status_of = lambda sha256: 3 if sha256 == one.sha256 else 0
        with pytest.raises(CacheFault, match="INVALID_ARGUMENT"):
            transfers.upload_again(SMALL)
        with pytest.raises(MissingBytesError):
            transfers.upload_again([*SMALL, OTHER])
        server.status_of = lambda _: 0
        with pytest.raises(MissingBytesError):
            transfers.upload_again([*SMALL, Digest(one.sha256, 1)])


def test_a_cache_without_batches_moves_blobs_one_by_one(tmp_path: Path) -> None:
    cache = open_shared_cache(str(tmp_path))
    assert batches.batches_of(cache, SMALL) == [[digest] for digest in SMALL]
    assert batches.put_together(cache, SMALL) == SMALL.keys()
    first = next(iter(SMALL))
    put(cache, SMALL[first])
    found = dict(batches.read_each(cache, [first, OTHER]))
    assert found[OTHER] is None
    assert b"".join(found[first] or ()) == SMALL[first]


# ---- compression --------------------------------------------------------------------------------------------------


@pytest.fixture
def compressing(server: ReapiServer) -> ReapiServer:
    server.capabilities.supported_compressors.append(1)
    server.capabilities.supported_batch_update_compressors.append(1)
    return server


def test_blobs_that_become_smaller_are_compressed_in_both_directions(compressing: ReapiServer) -> None:
    noise = random.Random(5).randbytes(5000)
    blobs = {**SMALL, digest_bytes(noise): noise}
    rig = Rig(compressing.url)
    assert rig.upload(blobs) == ()
    assert {digest.sha256: data for digest, data in blobs.items()} == compressing.blobs
    # The first is too small, the last is noise.
    assert 0 < len(compressing.compressed) < len(blobs)
    assert digest_bytes(noise).sha256 not in compressing.compressed
    assert rig.fetch(*blobs)
    assert all(rig.contents.get(digest) == data for digest, data in blobs.items())


@pytest.mark.parametrize("frame", [b"no frame", zstd.compress(bytes(64 * MIB)) * 8, b""], ids=["text", "bomb", "empty"])
def test_a_damaged_frame_costs_only_its_blob(compressing: ReapiServer, frame: bytes) -> None:
    rig = Rig(compressing.url)
    assert rig.upload(SMALL) == ()
    compressing.compress = lambda data: frame if data == TEXTS[3] else zstd.compress(data)
    others = SMALL.keys() - {digest_bytes(TEXTS[3])}
    assert rig.fetch(*others)
    rig.contents = MemoryContents()
    assert not rig.fetch(*SMALL)
    assert not rig.contents.has(digest_bytes(TEXTS[3]))
    assert rig.warnings == []
