"""Our messages have the bytes that Google's protobuf library writes and reads; hostile bytes are refused."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message
from hypothesis import example, given
from hypothesis import strategies as st

from orch23.features.cache.reapi import wire
from orch23.features.cache.reapi.messages import (
    ActionResultProto,
    CacheCapabilities,
    DigestProto,
    OutputFile,
    ReadResponse,
    SymlinkNode,
)
from orch23.features.cache.reapi.wire import DecodeError, Proto, decode, encode, fields_of
from tests.reapi_oracle import PROTO, as_oracle, file_of_text, kinds, oracle_of

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = {bits: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.integers(0, 3) for bits in (32, 64)}


def values_of(kind: type[Proto]) -> st.SearchStrategy[Any]:
    def one(field: Any) -> st.SearchStrategy[Any]:
        if issubclass(field.kind, Proto):
            inner = values_of(field.kind)
            return tuples(inner) if field.is_repeated else st.none() | inner
        by_kind = {str: TEXTS, bytes: st.binary(max_size=8), bool: st.booleans(), int: NUMBERS[field.bits]}
        return tuples(by_kind[field.kind]) if field.is_repeated else by_kind[field.kind]

    return st.builds(kind, **{field.name: one(field) for field in fields_of(kind)})


def tuples(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=2).map(tuple)


MESSAGES = st.sampled_from(sorted(kinds())).flatmap(lambda name: values_of(kinds()[name]))


@given(MESSAGES)
def test_a_message_has_the_bytes_that_protobuf_writes(value: Proto) -> None:
    assert encode(value) == as_oracle(value).SerializeToString(deterministic=True)


@given(MESSAGES)
def test_what_protobuf_wrote_is_the_same_message(value: Proto) -> None:
    assert decode(type(value), as_oracle(value).SerializeToString()) == value


@given(MESSAGES, st.data())
def test_bytes_that_are_read_mean_to_protobuf_what_they_mean_to_us(value: Proto, data: st.DataObject) -> None:
    changed = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check_reading(type(value), bytes(changed))


@given(st.sampled_from(sorted(kinds())), st.binary(max_size=64))
@example("CacheCapabilities", b"\x0a\x01\x01\x08\x02")  # packed and not
@example("DigestProto", b"\x10\x80\x00\x22\x01x")  # a number with more bytes than it needs; an unknown field
def test_any_bytes_mean_to_protobuf_what_they_mean_to_us(name: str, data: bytes) -> None:
    check_reading(kinds()[name], data)


def check_reading(kind: type[Proto], data: bytes) -> None:
    """We may refuse more than protobuf, but read nothing else than it."""
    try:
        value = decode(kind, data)
    except DecodeError:
        return
    oracle = oracle_of(kind.__name__)()
    try:
        oracle.ParseFromString(data)
    except message.DecodeError:
        pytest.fail(f"{data!r} is not a message of protobuf, but read as {value}")
    oracle.DiscardUnknownFields()
    assert oracle.SerializeToString(deterministic=True) == encode(value)


def test_the_oracle_has_the_same_messages_and_fields() -> None:
    assert {one.name for one in file_of_text().message_type} == set(kinds())
    for one in file_of_text().message_type:
        known = [(field.name, field.number, field.is_repeated) for field in fields_of(kinds()[one.name])]
        fields = sorted(one.field, key=lambda field: field.number)
        assert known == [(field.name, field.number, field.label == field.LABEL_REPEATED) for field in fields]


def test_no_message_contains_itself_so_the_depth_is_limited() -> None:
    def depth(kind: type[Proto], above: tuple[type[Proto], ...] = ()) -> int:
        assert kind not in above
        inner = [field.kind for field in fields_of(kind) if issubclass(field.kind, Proto)]
        return 1 + max((depth(one, (*above, kind)) for one in inner), default=0)

    assert max(map(depth, kinds().values())) == 4


def compiled(path: Path, *includes: Path, into: Path) -> descriptor_pb2.FileDescriptorSet:
    pytest.importorskip("grpc_tools", reason="needs protoc of grpcio-tools")
    options = [f"-I{one}" for one in includes]
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, f"--descriptor_set_out={into}", str(path)]
    subprocess.run(command, check=True)
    return descriptor_pb2.FileDescriptorSet.FromString(into.read_bytes())


@pytest.mark.slow
def test_protoc_reads_the_text_of_the_oracle_as_we_do(tmp_path: Path) -> None:
    (file,) = compiled(PROTO, PROTO.parent, into=tmp_path / "set").file
    for one in file.message_type:
        for field in one.field:
            field.ClearField("json_name")
    assert file == file_of_text()


NESTED = {
    "OperationRequest": "WaitExecutionRequest",
    "WriteStatus": "QueryWriteStatusResponse",
    "BlobUpdate": "BatchUpdateBlobsRequest.Request",
    "BlobUpdated": "BatchUpdateBlobsResponse.Response",
    "BlobRead": "BatchReadBlobsResponse.Response",
    "Property": "Platform.Property",
    "RpcStatus": "Status",
    "DigestProto": "Digest",
    "ActionProto": "Action",
    "ActionResultProto": "ActionResult",
}
PUBLISHED = (
    "build/bazel/remote/execution/v2/remote_execution.proto",
    "google/bytestream/bytestream.proto",
    "google/rpc/status.proto",
    "google/longrunning/operations.proto",
)
UNPUBLISHED = {"Duration", "AnyProto", "PreconditionFailure", "PreconditionViolation"}
"""Messages that the files import, or that servers send as details: their files are not in the package."""


@pytest.mark.slow
def test_the_published_files_of_the_api_have_these_fields(tmp_path: Path) -> None:
    try:
        files = importlib.metadata.files("buildstream") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the files of the API, which the package `buildstream` has")
    root = next(Path(str(one.locate())).parents[5] for one in files if str(one).endswith("remote_execution.proto"))
    official: dict[str, dict[str, tuple[int, bool]]] = {}

    def add(prefix: str, one: descriptor_pb2.DescriptorProto) -> None:
        fields = {field.name: (field.number, field.label == field.LABEL_REPEATED) for field in one.field}
        official[f"{prefix}{one.name}"] = fields
        for inner in one.nested_type:
            add(f"{prefix}{one.name}.", inner)

    for path in PUBLISHED:
        for file in compiled(root / path, root, into=tmp_path / "set").file:
            for one in file.message_type:
                add("", one)
    assert official["Platform.Property"] == official["Command.EnvironmentVariable"]
    for name, kind in kinds().items():
        if name not in UNPUBLISHED:
            known = official[NESTED.get(name, name)]
            for field in fields_of(kind):
                assert known[field.name] == (field.number, field.is_repeated), (name, field.name)


DIGEST = encode(DigestProto(hash="ab", size_bytes=3))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (DIGEST[:-1], "truncated"),
        (DIGEST[:3], "truncated"),
        (b"\x0a", "truncated"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "truncated"),  # 2**64 - 1 bytes
        (b"\x10" + b"\x80" * 10 + b"\x01", "64 bits"),
        (b"\x10" + b"\xff" * 9 + b"\x02", "64 bits"),
        (b"\x08\x01", "hash has a value of the type 0"),
        (b"\x12\x01a", "size_bytes has a value of the type 2"),
        (b"\x11" + b"\0" * 8, "size_bytes has a value of the type 1"),
        (b"\x0b\x0c", "unknown type 3"),
        (b"\x1f", "unknown type 7"),
        (b"\x02\x00", "number 0"),
        (b"\x80\x80\x80\x80\x10\x00", "number 536870912"),
        (b"\x0a\x01\xff", "not UTF-8"),
        (b"\x10\x01\x10\x01", "twice"),
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        decode(DigestProto, data)


def test_a_number_of_more_bits_than_its_field_has_is_refused() -> None:
    with pytest.raises(DecodeError, match="32 bits"):
        decode(ActionResultProto, b"\x20\x80\x80\x80\x80\x08")
    with pytest.raises(ValueError, match="32 bits"):
        encode(ActionResultProto(exit_code=1 << 31))
    with pytest.raises(ValueError, match="64 bits"):
        encode(DigestProto(size_bytes=-(1 << 63) - 1))


def test_a_text_that_is_not_unicode_is_not_encoded() -> None:
    with pytest.raises(ValueError):
        encode(SymlinkNode(name="\udc80"))


def test_unknown_fields_are_skipped_and_the_last_known_one_is_read() -> None:
    unknown = b"\x98\x06\x05" + b"\x9d\x06abcd" + b"\x99\x06abcdefgh" + b"\x9a\x06\x02xx"
    assert decode(DigestProto, unknown + DIGEST + unknown) == DigestProto(hash="ab", size_bytes=3)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (ActionResultProto, b"\x12\x00" * 101),
        (ActionResultProto, b"\x98\x06\x05" * 101),  # unknown
        (ActionResultProto, b"\x12\x96\x01" + b"\x98\x06\x05" * 50 + b"\x62\x00" * 50),
        (CacheCapabilities, b"\x0a\x7f" + b"\x01" * 127),  # packed
    ],
)
def test_a_message_of_too_many_values_is_refused(
    kind: type[Proto], data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_FIELDS", 100)
    with pytest.raises(DecodeError, match="more than 100 values"):
        decode(kind, data)


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("unit", [b"\x12\x00", b"\x98\x06\x05", b"\x12\x02\x0a\x00"])
def test_fifteen_mebibytes_of_small_values_are_refused(unit: bytes) -> None:
    with pytest.raises(DecodeError, match="values"):
        decode(ActionResultProto, unit * (15 * (1 << 20) // len(unit)))


def test_a_message_of_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(ReadResponse(data=b"x" * 100))
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", len(data))
    assert decode(ReadResponse, data).data == b"x" * 100
    with pytest.raises(DecodeError, match="bytes"):
        decode(ReadResponse, data + b"\x98\x06\x05")


def test_any_number_but_zero_is_true() -> None:
    assert decode(OutputFile, b"\x20\x02").is_executable
    assert not decode(OutputFile, b"\x20\x00").is_executable


def test_a_message_that_is_there_without_a_value_is_not_a_missing_one() -> None:
    assert encode(OutputFile(digest=DigestProto())) == b"\x12\x00"
    assert decode(OutputFile, b"\x12\x00").digest == DigestProto()
    assert decode(OutputFile, b"").digest is None
