"""Entries of a shared cache that are not results of processes: files by kind, version and key.

An entry is an action result. Its key is the digest of an action that no one runs, so that a cache that checks what an
action cache has accepts it: the action, its command and its input root are blobs, and so is each file of the result.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from msgspec import Struct

from orch23.features.cache.reapi.messages import (
    EMPTY_BLOB,
    ActionProto,
    ActionResultProto,
    Command,
    ExecutedActionMetadata,
    OutputFile,
    digest_of,
    digest_proto,
)
from orch23.features.cache.reapi.wire import DecodeError, decode, encode, refuse
from orch23.model.action import check_inside
from orch23.model.digest import Digest, FileEntry, canonical_json, digest_bytes

MAX_ENTRY_FILES: Final = 100_000
"""The maximum number of files of an entry."""

_ARGUMENT = "orch23-entry"
# Without any field, a result has no bytes, and caches refuse empty values.
_WORKER = "orch23"


class EntryFile(Struct, frozen=True):
    """A file of an entry. `contents` are its bytes if the entry has them; else they are a blob."""

    entry: FileEntry
    contents: bytes | None = None


def entry_digest(kind: str, version: int, key: str) -> Digest:
    """Return the key of an entry in an action cache. `version` is the version of the format of its files."""
    return digest_bytes(_action(kind, version, key))


def entry_blobs(kind: str, version: int, key: str) -> Mapping[Digest, bytes]:
    """Return the blobs of the key of an entry: its action, the command and the input root. Store them before it."""
    action, command = _action(kind, version, key), _command()
    return {digest_bytes(action): action, digest_bytes(command): command, EMPTY_BLOB: b""}


def encode_result(files: Mapping[str, FileEntry | bytes]) -> bytes:
    """Return an entry with some files by path: their digests, or their bytes, which the entry then contains.

    Store also those bytes as blobs before the entry: some servers, such as buildbox-casd, return no entry without them.

    Raises:
        ValueError: there are more than MAX_ENTRY_FILES files, or a path leads out of the tree, is not valid Unicode or
            is a link.
    """
    check_inside(files)
    if len(files) > MAX_ENTRY_FILES:
        message = f"an entry has at most {MAX_ENTRY_FILES} files, not {len(files)}"
        raise ValueError(message)
    found = tuple(_output_file(path, files[path]) for path in sorted(files))
    return encode(ActionResultProto(output_files=found, execution_metadata=ExecutedActionMetadata(worker=_WORKER)))


def decode_result(data: bytes) -> Mapping[str, EntryFile]:
    """Return the files of an entry by path.

    The digests of contents that the entry has are verified. A server may have added contents, or left them out.

    Raises:
        DecodeError: these are not the bytes of an entry.
    """
    result = decode(ActionResultProto, data)
    if result.exit_code != 0 or result.output_directories or result.output_symlinks:
        refuse("the result is that of a process")
    files = {file.path: _entry_file(file) for file in result.output_files}
    if len(files) != len(result.output_files):
        refuse("a file is there twice")
    try:
        check_inside(files)
    except ValueError as error:
        raise DecodeError(str(error)) from None
    return files


def _action(kind: str, version: int, key: str) -> bytes:
    return encode(
        ActionProto(
            command_digest=digest_proto(digest_bytes(_command())),
            input_root_digest=digest_proto(EMPTY_BLOB),
            salt=canonical_json({"key": key, "kind": kind, "version": version}),
        )
    )


@cache
def _command() -> bytes:
    return encode(Command(arguments=(_ARGUMENT,)))


def _output_file(path: str, file: FileEntry | bytes) -> OutputFile:
    if isinstance(file, bytes):
        return OutputFile(path=path, digest=digest_proto(digest_bytes(file)), contents=file)
    if file.link:
        message = f"{path!r} is a link"
        raise ValueError(message)
    return OutputFile(path=path, digest=digest_proto(file.digest), is_executable=file.executable)


def _entry_file(file: OutputFile) -> EntryFile:
    digest = digest_of(file.digest)
    if not file.contents and digest != EMPTY_BLOB:
        return EntryFile(FileEntry(digest, file.is_executable))
    if digest_bytes(file.contents) != digest:
        refuse(f"the contents of {file.path!r} do not have its digest")
    return EntryFile(FileEntry(digest, file.is_executable), file.contents)
