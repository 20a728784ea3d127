"""The server of `bench.shared_cache`, in a process of its own: the loopback servers of the tests, with a delay.

It prints its URL. For each line that it reads, it prints JSON with the requests and its CPU time since the last one.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Served:
    """What a server did: its requests by kind, and its CPU time in seconds."""

    requests: Mapping[str, int]
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. Its counts are of the time since they were last returned."""

    url: str
    process: "subprocess.Popen[str]"

    def served(self) -> Served:
        """Return what it did since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return Served(**json.loads(self.process.stdout.readline()))


@contextlib.contextmanager
def serving(protocol: str, delay_s: float) -> Iterator[Server]:
    """Run a server for `http` or `grpc`, which waits some seconds before it replies to a request."""
    argv = [sys.executable, "-m", "bench.cache_server", protocol, str(delay_s)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=_ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip(), process)
        finally:
            process.kill()


def _serve(protocol: str, delay_s: float) -> None:
    def delayed(*_: str) -> str:
        time.sleep(delay_s)
        return ""

    if protocol == "grpc":
        from tests.reapi_server import serving_reapi  # noqa: PLC0415 - needs grpcio

        with serving_reapi() as grpc_server:
            grpc_server.fault = delayed
            _report(grpc_server.url, grpc_server.calls)
        return
    from tests.cache_server import serving_cache  # noqa: PLC0415 - only this one is needed

    with serving_cache() as server:
        server.fault = delayed  # type: ignore[assignment]
        server.validate = lambda _entry: ()
        _report(server.url, server.asked)


def _report(url: str, asked: "list[str] | list[tuple[str, str]]") -> None:
    """Print the URL, then the counts for each line of the input."""
    print(url, flush=True)
    before_s = time.process_time()
    for _ in sys.stdin:
        kinds = Counter(one if isinstance(one, str) else f"{one[0]} {one[1].split('/')[2]}" for one in asked)
        asked.clear()
        now_s = time.process_time()
        print(json.dumps({"requests": kinds, "cpu_s": now_s - before_s}), flush=True)
        before_s = now_s


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))
