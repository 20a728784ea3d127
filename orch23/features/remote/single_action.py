"""The folder of one action on a server of the Remote Execution API whose workers have orch23.

The input root has the action and its inputs, in the layout of a disk cache, so a worker needs no connection. What it
writes is in another folder of this layout, which the server stores; its reply is a file.
"""

import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TextIO

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.interpreters import SYSTEM_PATH
from orch23.features.cache.disk import DiskCache
from orch23.features.cache.reapi.messages import ActionProto, Command, Duration, Platform, Property, digest_proto
from orch23.features.cache.reapi.trees import MerkleTree, tree_of
from orch23.features.cache.reapi.wire import encode
from orch23.features.remote.engine import digest_text
from orch23.features.remote.live_lines import PrintedLines
from orch23.features.remote.reapi_address import ReapiAddress
from orch23.features.remote.worker import RemoteWorker, input_digests
from orch23.model.action import Action
from orch23.model.digest import Digest, FileEntry, digest_bytes

_NANOS = 1_000_000_000
REPLY = "reply"
_IN, _OUT = "in", "out"
_GRACE_S = 300.0
"""The time for staging inputs and storing outputs. orch23 itself enforces the timeout of the action."""


class Messages(Struct, frozen=True):
    """The digest of an action message, the bytes of all messages that it names, and the files that it needs."""

    action: Digest
    blobs: Mapping[Digest, bytes]
    files: frozenset[Digest]


def single_action(digest: Digest, action: Action, address: ReapiAddress) -> Messages:
    """Return the messages with which a server runs `orch23 worker --once`.

    Raises:
        ValueError: a text is not valid Unicode, or the timeout is not a number of at least 0.
    """
    inputs = frozenset(one for one in (digest, *input_digests(action)) if one.size_bytes)
    root = tree_of({f"{_IN}/cas/{one.sha256[:2]}/{one.sha256}": FileEntry(one) for one in inputs})
    permission = () if action.sandbox else ("--allow-unsandboxed",)
    return request_of(
        Command(
            arguments=(address.program, "worker", "--once", digest_text(digest), *permission),
            environment_variables=properties_of({"LANG": "C.UTF-8", "PATH": ":".join(SYSTEM_PATH)}),
            output_paths=(_OUT, REPLY),
        ),
        root,
        inputs,
        action.timeout_s + _GRACE_S,
        address,
    )


def request_of(
    command: Command, root: MerkleTree, files: frozenset[Digest], timeout_s: float, address: ReapiAddress
) -> Messages:
    """Return the messages of an action with a command. Its result is not cached: orch23 decides what is fresh."""
    platform = Platform(properties=properties_of(address.properties)) if address.properties else None
    data = encode(replace(command, platform=platform))
    message = encode(
        ActionProto(
            command_digest=digest_proto(digest_bytes(data)),
            input_root_digest=digest_proto(root.root),
            timeout=_duration_of(timeout_s),
            do_not_cache=True,
            platform=platform,
        )
    )
    digest = digest_bytes(message)
    return Messages(digest, {**root.blobs, digest_bytes(data): data, digest: message}, files)


def _duration_of(seconds: float) -> Duration:
    """Return a time as a message, rounded to nanoseconds; raise if it is not a number of at least 0."""
    try:
        whole, part = divmod(round(Fraction(seconds) * _NANOS), _NANOS)
    except OverflowError:
        whole = part = -1
    if whole < 0:
        message = f"the timeout is {seconds} s"
        raise ValueError(message)
    return Duration(seconds=whole, nanos=part)


def properties_of(values: Mapping[str, str]) -> tuple[Property, ...]:
    """Return values as messages, sorted by name."""
    return tuple(Property(name=name, value=values[name]) for name in sorted(values))


class _StagedCache(DiskCache):
    """The outputs of an action in one folder, and its inputs, the only blobs that are read, in another."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / _OUT)
        self._inputs = DiskCache(folder / _IN)

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        return super().missing(self._inputs.missing(digests))

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        return self._inputs.blob(digest, offset)

    def discard(self, digest: Digest) -> None:
        self._inputs.discard(digest)


def run_single_action(folder: Path, digest: str, top: Path | None, stdout: TextIO, *, allowed: bool) -> None:
    """Run the action whose inputs a server has staged in a folder, and write its outputs and the reply there.

    The lines of the action are written to `stdout` while it runs: the server may pass them on. Temporary files are in
    `top`, or in the folder of TMPDIR.

    Raises:
        OSError: a folder or the reply cannot be written.
    """
    # A server need not set it; a sandbox hides this folder. In a container, the user may have none.
    environ = {"HOME": os.path.expanduser("~"), **os.environ}
    worker = RemoteWorker(
        top or Path(tempfile.gettempdir()),
        slots=1,
        environ=environ,
        allowed=allowed,
        open_cache=lambda _: _StagedCache(folder),
    )
    with closing(worker):
        (folder / REPLY).write_bytes(worker.run_remotely("", digest, lines=PrintedLines(stdout)))
