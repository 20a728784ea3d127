"""Measure the shared cache: `python -m bench.shared_cache [--blobs 10000] [--stages 200]`, about 15 minutes.

Blobs: a client of the engine asks which blobs are missing, uploads all and downloads all, for a directory and for the
loopback servers of the tests, without and with a delay. Builds: a project is built without a cache, with one, and
restored from it in a second checkout (`bench.cache_builds`). Each row has wall time, CPU time, requests and the load
average of the machine. Compare ratios of one run: the machine may be used by others.
"""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cache_builds import measure_builds
from bench.cache_server import Served, Server, serving
from bench.environments import InstallError, full_commit
from bench.figures import milliseconds
from bench.table import markdown
from orch23.features.cache.availability import CacheLimits
from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.entries import encode_result
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import Digest, digest_bytes
from orch23.model.ports import ChunkSource, SharedCache
from orch23.store.content_store import DiskContentStore

BLOBS, STAGES = 10_000, 200
DELAY_S = 0.02
_LEAST_BYTES, _USUAL_BYTES, _LARGE_BYTES = 100, 100_000, 1_000_000
_LARGE_EACH = 100
"""One blob of so many has the largest size."""
_FILES = 10
"""Files of a result."""
# The time of all calls is measured, so a slow cache must not be switched off.
_LIMITS = CacheLimits(patience_s=1e6)
HEAD = ("cache", "step", "wall s", "CPU s, client", "CPU s, server", "requests", "requests/s", "MB/s", "load")


@dataclass(frozen=True, slots=True)
class Step:
    """What one step with all blobs took. Times are in seconds; a directory has no server, and counts calls."""

    cache: str
    name: str
    wall_s: float
    cpu_s: float
    served: Served
    size_bytes: int
    load: float

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return sum(self.served.requests.values())

    def row(self) -> list[str]:
        """Return the cells of the table."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.served.requests.items()))
        speed = f"{self.size_bytes / 1e6 / self.wall_s:.1f}" if self.size_bytes else "-"
        return [
            self.cache,
            self.name,
            f"{self.wall_s:.2f}",
            f"{self.cpu_s:.2f}",
            f"{self.served.cpu_s:.2f}",
            f"{self.requests:,} ({kinds})",
            f"{self.requests / self.wall_s:,.0f}",
            speed,
            f"{self.load:.1f}",
        ]


def make_blobs(count: int) -> dict[Digest, bytes]:
    """Return blobs of 100 B to 100 kB, evenly on a logarithmic scale, and one of a hundred with 1 MB."""
    made: dict[Digest, bytes] = {}
    for number in range(count):
        size = round(_LEAST_BYTES * (_USUAL_BYTES / _LEAST_BYTES) ** ((number + 0.5) / count))
        if number % _LARGE_EACH == _LARGE_EACH - 1:
            size = _LARGE_BYTES
        data = hashlib.shake_128(f"blob {number}".encode()).digest(size)
        made[digest_bytes(data)] = data
    return made


class CountedCache:
    """A cache that counts its calls."""

    def __init__(self, cache: SharedCache) -> None:
        """Count nothing yet."""
        self._cache, self.calls = cache, Counter[str]()

    def served(self) -> Served:
        """Return the calls since the last time."""
        calls, self.calls = self.calls, Counter()
        return Served(calls, 0.0)

    def entry(self, digest: Digest) -> bytes | None:
        """See the port."""
        self.calls["entry"] += 1
        return self._cache.entry(digest)

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """See the port."""
        self.calls["put_entry"] += 1
        self._cache.put_entry(digest, data, replace=replace)

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        self.calls["missing"] += 1
        return self._cache.missing(digests)

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        """See the port."""
        self.calls["blob"] += 1
        return self._cache.blob(digest, offset)

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """See the port."""
        self.calls["put_blob"] += 1
        self._cache.put_blob(digest, chunks)

    def discard(self, digest: Digest) -> None:
        """See the port."""
        self._cache.discard(digest)

    def close(self) -> None:
        """See the port."""
        self._cache.close()


def measure_blobs(name: str, url: str, server: Server | None, blobs: Mapping[Digest, bytes]) -> Iterator[Step]:
    """Yield the steps with one cache.

    Raises:
        RuntimeError: the cache did not do what it should.
    """
    cache = open_shared_cache(url)
    counted = CountedCache(cache)
    faults: list[str] = []
    # A server counts its requests itself, and a cache that counts its calls would have no batches.
    client = CacheClient(counted if server is None else cache, faults.append, _LIMITS)
    size_bytes = sum(digest.size_bytes for digest in blobs)
    results = _results(blobs)
    folder = Path(tempfile.mkdtemp(prefix="orch23-bench-"))
    contents = DiskContentStore(folder)

    def ask(absent: int) -> bool:
        digests, batch = list(blobs), _LIMITS.batch
        batches = [digests[at : at + batch] for at in range(0, len(digests), batch)]
        return sum(len(client.missing(one)) for one in batches) == absent

    def upload() -> bool:
        for action, entry, sources in results:
            client.upload(action, entry, sources)
        return client.flush(3600) == ()

    steps: dict[str, tuple[Callable[[], bool], int]] = {
        "ask, none there": (lambda: ask(len(blobs)), 0),
        "upload all": (upload, size_bytes),
        "ask, all there": (lambda: ask(0), 0),
        "download all": (lambda: client.fetch(list(blobs), contents, size_bytes), size_bytes),
    }
    counts: Server | CountedCache = server or counted
    try:
        counts.served()
        for step, (call, moved) in steps.items():
            load, wall_s, cpu_s = os.getloadavg()[0], time.perf_counter(), time.process_time()
            is_right = call()
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
            if not is_right or faults:
                message = f"{name}, {step}: {'; '.join(faults) or 'wrong result'}"
                raise RuntimeError(message)
            yield Step(name, step, wall_s, cpu_s, counts.served(), moved, load)
    finally:
        client.close()
        shutil.rmtree(folder)


def _results(blobs: Mapping[Digest, bytes]) -> Sequence[tuple[Digest, bytes, Mapping[Digest, ChunkSource]]]:
    """Return results with some files each: the digest of the action, the entry, and the sources of its blobs."""
    digests = list(blobs)
    results = []
    for at in range(0, len(digests), _FILES):
        some = digests[at : at + _FILES]
        sources: dict[Digest, ChunkSource] = {one: partial(_chunks, blobs[one]) for one in some}
        results.append((digest_bytes(f"action {at}".encode()), encode_result({}), sources))
    return results


def _chunks(data: bytes) -> tuple[bytes]:
    return (data,)


def protocols() -> Sequence[str]:
    """Return the protocols whose libraries are installed."""
    try:
        import google.protobuf  # noqa: F401, PLC0415 - the server needs it
        import grpc  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        return ("http",)
    return ("http", "grpc")


def all_blobs(count: int, delays_s: Sequence[float] = (0.0, DELAY_S)) -> Iterator[Step]:
    """Yield the steps with a directory, then with each server and delay."""
    blobs = make_blobs(count)
    folder = Path(tempfile.mkdtemp(prefix="orch23-bench-"))
    try:
        yield from measure_blobs("directory", str(folder), None, blobs)
    finally:
        shutil.rmtree(folder)
    for protocol in protocols():
        for delay_s in delays_s:
            with serving(protocol, delay_s) as server:
                yield from measure_blobs(f"{protocol}, {milliseconds(delay_s)} ms", server.url, server, blobs)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.shared_cache", description=__doc__)
    parser.add_argument("--blobs", type=int, default=BLOBS, help="number of blobs; 0 measures only builds")
    parser.add_argument("--stages", type=int, default=STAGES, help="stages of the project; 0 measures only blobs")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of the builds")
    given = parser.parse_args(argv)
    try:
        commit = full_commit("HEAD")[:12]
    except InstallError:
        commit = "not a git checkout"
    print(f"commit {commit}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n", flush=True)
    if given.blobs:
        size_bytes = sum(one.size_bytes for one in make_blobs(given.blobs))
        print(f"{given.blobs:,} blobs with {size_bytes / 1e6:.0f} MB\n", flush=True)
        _print_rows(HEAD, (step.row() for step in all_blobs(given.blobs)))
    if given.stages:
        measure_builds(given.stages, given.rounds, DELAY_S, lambda text: print(text, flush=True))
    print(f"\nload average at the end {os.getloadavg()[0]:.1f}")
    return 0


def _print_rows(head: Sequence[str], rows: Iterator[list[str]]) -> None:
    """Print a table, each row as soon as it is measured."""
    print(markdown(head, []), flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
