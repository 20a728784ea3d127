"""Find OpenAI-compatible model servers on this machine."""

import http.client
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from orch23.model.parsing import json_at, parse_json

# The usual ports of servers, by port.
KNOWN_PORTS: Final[dict[int, str]] = {11434: "Ollama", 1234: "LM Studio", 8080: "llama.cpp", 8000: "vLLM"}
_TIMEOUT_S = 0.5
_MAX_BYTES = 262_144
# What a template accepts as the name of a model.
_PLAIN = re.compile(r"(?!.*(?:[.][.]|//))[A-Za-z][\w./+@-]*(?::[\w./+@-]+)*", re.ASCII)


class LoopbackServer(Struct, frozen=True):
    """A server that lists its models. `name` is the product that usually has the port."""

    name: str
    base_url: str
    models: tuple[str, ...]


def find_servers(ports: Mapping[int, str] = KNOWN_PORTS) -> tuple[LoopbackServer, ...]:
    """Return the servers at these ports of 127.0.0.1 that reply to `GET /v1/models`, within half a second in all.

    No key is sent. Models for embeddings come last.
    """
    found: dict[int, Sequence[str]] = {}

    def look(port: int) -> None:
        models = _models(port)
        if models is not None:
            found[port] = models

    # A server may accept a connection and never reply, so the ports do not wait for each other.
    threads = [threading.Thread(target=look, args=(port,), daemon=True) for port in ports]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    seen = dict(found)
    return tuple(
        LoopbackServer(name, f"http://127.0.0.1:{port}/v1", tuple(seen[port]))
        for port, name in ports.items()
        if port in seen
    )


def _models(port: int) -> Sequence[str] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/models", headers={"Accept": "application/json"})
        reply = connection.getresponse()
        body = reply.read(_MAX_BYTES) if reply.status == http.client.OK else b""
        listed = json_at(parse_json(body), "data")
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return None
    names = [name for one in listed if isinstance(name := json_at(one, "id"), str) and _PLAIN.fullmatch(name)]
    return sorted(names, key=lambda name: "embed" in name)
