"""Entries of a shared cache: their keys never change, and what a server returns is read with care."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.features.cache.reapi import entries
from orch23.features.cache.reapi.entries import EntryFile, decode_result, encode_result, entry_blobs, entry_digest
from orch23.features.cache.reapi.messages import (
    ActionResultProto,
    ExecutedActionMetadata,
    OutputDirectory,
    OutputFile,
    OutputSymlink,
    digest_proto,
)
from orch23.features.cache.reapi.wire import DecodeError, decode, encode
from orch23.model.digest import Digest, FileEntry, digest_bytes
from tests.reapi_oracle import oracle_of

ONE, TWO = FileEntry(digest_bytes(b"1")), FileEntry(digest_bytes(b"2"), executable=True)
NAMES = st.sampled_from(["a", "b", "é", "record"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def test_the_keys_of_entries_never_change() -> None:
    assert entry_digest("result", 1, "0" * 64) == Digest(
        "d8065742a7f4047a683e6278ac23f35b6348cfc69f0bbb7bf08f7db2baab93a4", 242
    )
    assert digest_bytes(encode_result({"record": b"{}", "outputs/a": TWO})) == Digest(
        "4b26456279fa5e9ff977db62827e6830b0e4c2cf91847e3ad6a093f56e2109a4", 179
    )


def test_each_part_of_a_key_changes_its_digest() -> None:
    keys = {entry_digest(*key) for key in (("a", 1, "k"), ("b", 1, "k"), ("a", 2, "k"), ("a", 1, "l"))}
    assert len(keys) == 4
    assert entry_digest("a", 1, 'k","kind":"b') not in keys


def test_the_key_is_an_action_whose_blobs_are_complete() -> None:
    blobs = entry_blobs("result", 1, "k")
    assert all(digest_bytes(data) == digest for digest, data in blobs.items())
    action = oracle_of("ActionProto").FromString(blobs[entry_digest("result", 1, "k")])
    for digest in (action.command_digest, action.input_root_digest):
        assert Digest(digest.hash, digest.size_bytes) in blobs
    assert not action.do_not_cache
    assert action.salt == b'{"key":"k","kind":"result","version":1}'


@given(st.dictionaries(PATHS, st.sampled_from([ONE, TWO]) | st.binary(max_size=9)))
def test_an_entry_is_read_as_it_was(files: dict[str, FileEntry | bytes]) -> None:
    expected = {
        path: EntryFile(FileEntry(digest_bytes(file)), file) if isinstance(file, bytes) else EntryFile(file)
        for path, file in files.items()
    }
    data = encode_result(files)
    assert decode_result(data) == expected
    assert encode_result(dict(reversed(files.items()))) == data
    check_as_bazel_remote(data)


def check_as_bazel_remote(data: bytes) -> None:
    """Check what bazel-remote requires of a value of the action cache."""
    assert data
    result = oracle_of("ActionResultProto").FromString(data)
    assert result.exit_code == 0
    for file in result.output_files:
        assert file.path
        assert not file.path.startswith("/")
        assert file.HasField("digest")
        assert len(file.digest.hash) == 64
        assert not file.contents or len(file.contents) == file.digest.size_bytes


def test_an_entry_without_files_has_bytes() -> None:
    check_as_bazel_remote(encode_result({}))
    assert decode_result(encode_result({})) == {}


def test_a_server_may_add_or_remove_what_a_result_can_have() -> None:
    result = decode(ActionResultProto, encode_result({"a": b"1", "b": TWO}))
    moved = tuple(
        replace(file, contents=contents) for file, contents in zip(result.output_files, (b"", b"2"), strict=True)
    )
    other = ActionResultProto(
        output_files=moved[::-1],
        stdout_raw=b"x",
        execution_metadata=ExecutedActionMetadata(worker="10.0.0.1"),
    )
    assert decode_result(encode(other)) == {"a": EntryFile(ONE), "b": EntryFile(TWO, b"2")}
    assert decode_result(encode(replace(other, execution_metadata=None))) == decode_result(encode(other))


def file(path: str = "a", contents: bytes = b"", of: bytes = b"1") -> OutputFile:
    return OutputFile(path=path, digest=digest_proto(digest_bytes(of)), contents=contents)


@pytest.mark.parametrize(
    ("result", "match"),
    [
        (ActionResultProto(exit_code=1), "process"),
        (ActionResultProto(output_directories=(OutputDirectory(path="d"),)), "process"),
        (ActionResultProto(output_symlinks=(OutputSymlink(path="l", target="/"),)), "process"),
        (ActionResultProto(output_files=(file(), file())), "twice"),
        (ActionResultProto(output_files=(OutputFile(path="a"),)), "digest"),
        (ActionResultProto(output_files=(file(contents=b"2"),)), "contents"),
        (ActionResultProto(output_files=(file(contents=b"2", of=b""),)), "contents"),
        *(
            (ActionResultProto(output_files=(file(path),)), "leads out")
            for path in ("", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\0b")
        ),
    ],
)
def test_a_result_that_is_no_entry_is_refused(result: ActionResultProto, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        decode_result(encode(result))


def test_an_entry_with_a_path_out_of_the_tree_or_a_link_is_not_made() -> None:
    for path in ("/a", "../a", "a//b", "\udc80"):
        with pytest.raises(ValueError):
            encode_result({path: b""})
    with pytest.raises(ValueError, match="link"):
        encode_result({"a": FileEntry(ONE.digest, link="b")})


def test_an_entry_with_too_many_files_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_ENTRY_FILES", 2)
    assert len(decode_result(encode_result({"a": b"", "b": b""}))) == 2
    with pytest.raises(ValueError, match="at most 2 files"):
        encode_result({"a": b"", "b": b"", "c": b""})


@pytest.mark.slow
def test_the_largest_entry_can_be_read() -> None:
    files = {f"outputs/{number}": TWO for number in range(entries.MAX_ENTRY_FILES)}
    assert len(decode_result(encode_result(files))) == len(files)
