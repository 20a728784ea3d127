"""Child process of the provider `local`: llama.cpp's HTTP server on a loopback port.

Run as a file, with nothing of orch23 on its path: `python -P local_server.py MODEL THREADS CONTEXT`. The first line of
stdin is the bearer token that each request must carry. The first line of stdout says `ready URL` or `failed REASON`.
When stdin ends, the parent has exited, and so does this process.
"""

import importlib
import os
import sys
import time

_LISTENING_S = 60.0
_FAILED = 3


def main(argv: list[str]) -> int:
    """Serve until stdin ends."""
    model, threads, context = argv[0], int(argv[1]), int(argv[2])
    token = sys.stdin.readline().strip()
    # The libraries print to stdout; only our line may reach the pipe to the parent.
    reply = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        url = serve(model, threads, context, token)
    except Exception as error:  # noqa: BLE001 - report whatever the native library raises
        reply.write(f"failed {type(error).__name__}: {' '.join(str(error).split())}\n")
        reply.flush()
        return _FAILED
    reply.write(f"ready {url}\n")
    reply.flush()
    while sys.stdin.readline():
        pass
    # The server's threads are not Python's: exit at once, without waiting for a response that no one reads.
    os._exit(0)


def serve(model: str, threads: int, context: int, token: str) -> str:
    """Start the server in this process and return its URL. One slot, no prompt cache: equal requests, equal texts."""
    # Imported here, so that `main` can report `failed` if it is missing.
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.api_keys = [token]
    params.ui = False
    params.endpoint_slots = False
    # The server must not download anything.
    params.offline = True
    params.verbosity = 0
    server = llama.Server(params)
    _KEPT.append(server)
    until = time.monotonic() + _LISTENING_S
    while not server.listening_address:
        if time.monotonic() > until:
            message = "the server does not listen"
            raise TimeoutError(message)
        time.sleep(0.02)
    return str(server.listening_address)


# The server must outlive `serve`, or its destructor ends it.
_KEPT: list[object] = []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
