"""How near to the ideal a build comes that does nothing but wait for models: independent stages, one pool of calls.

`python -m bench.model_calls [ROUNDS] [PROVIDER...]` starts a server on this machine that answers each request after
one second, builds forty stages with a pool of eight against it, and prints medians. The ideal is five seconds: five
times eight answers, one after the other. `whole` is the process from its start to its end, with Python, the pipeline
and the vendor's library; `later` is the same if another stage takes two seconds before all calls, without these two;
`calls` is from the first request that arrived to the last answer that was sent. `Ctrl-C` is from a SIGINT while eight
calls wait, for good, to the end of the process.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.results import Waiting

STAGES, PLACES, ANSWER_S, ROUNDS = 40, 8, 1.0, 3
IDEAL_S = -(-STAGES // PLACES) * ANSWER_S
BEFORE_S = 2.0
_HEAD_END = b"\r\n\r\n"
_ROOT = Path(__file__).resolve().parents[1]
_WAITING = ("sleep", "3607")
_PATIENCE_S = 60.0
_USAGE = {"input_tokens": 9, "output_tokens": 2}


@dataclass
class Slow:
    """A server that answers everybody after the same time, however many ask."""

    first: float = 0.0
    last: float = 0.0
    at_once: int = 0
    most: int = 0
    count: int = 0
    connections: int = 0
    port: int = 0
    answer_s: float = ANSWER_S
    _ready: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Serve from a thread, until the process ends."""
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait()

    def forget(self, answer_s: float) -> None:
        """Begin a new round, of answers that take so long."""
        self.answer_s = answer_s
        self.first = self.last = 0.0
        self.most = self.count = self.connections = 0

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, backlog=256)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return False if the client closed the connection meanwhile."""
        head = await reader.readuntil(_HEAD_END)
        length = next(int(v) for k, _, v in _headers(head) if k == b"content-length")
        await reader.readexactly(length)
        self.first = self.first or time.perf_counter()
        self.count += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        # Only a client that gives up sends anything now, or closes.
        more = asyncio.ensure_future(reader.read(1))
        gone, _ = await asyncio.wait([more], timeout=self.answer_s)
        self.at_once -= 1
        if gone:
            return False
        more.cancel()
        await asyncio.wait([more])
        self.last = time.perf_counter()
        body = messages_stream() if b"/v1/messages" in head else chat_stream()
        sent = ["HTTP/1.1 200 OK", "content-type: text/event-stream", f"content-length: {len(body)}"]
        writer.write("\r\n".join(sent).encode() + _HEAD_END + body)
        await writer.drain()
        return True


def _headers(head: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [line.lower().partition(b":") for line in head.split(b"\r\n")]


def messages_stream() -> bytes:
    """Return a response of the Messages API, as a stream."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "slow-1", "content": [], "usage": _USAGE}
    reported: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in reported)


def chat_stream() -> bytes:
    """Return a response of Chat Completions, as a stream."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "slow-1"}
    choices = [{"index": 0, "delta": {"role": "assistant", "content": "done"}, "finish_reason": None}]
    ended = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    reported = [{**base, "choices": choices}, {**base, "choices": ended}, {**base, "choices": [], "usage": usage}]
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in reported) + b"data: [DONE]\n\n"


def steps(port: int) -> Mapping[str, str]:
    """Return the `llm` of each provider; `command` is a program that takes as long as the server."""
    return {
        "anthropic": f"provider: anthropic, model: slow, base_url: 'http://127.0.0.1:{port}'",
        "openai": f"provider: openai, model: slow, base_url: 'http://127.0.0.1:{port}/v1'",
        "command": "provider: command, model: slow, command: [sh, -c, 'cat > /dev/null; {program}; echo done']",
    }


def write_project(folder: Path, step: str, before_s: float = 0.0) -> None:
    """Write a pipeline of independent stages, each with an input, a prompt and an output of its own.

    With `before_s`, all of them wait for a stage that takes so long.
    """
    lines = ["version: 1", "name: waiting", f"pools: {{llm: {PLACES}}}", "defaults:"]
    lines += [f"  llm: {{{step}, returns: text}}", "stages:"]
    if before_s:
        lines += [f"  before: {{outputs: [before.md], shell: 'sleep {before_s:g}; echo done > before.md'}}"]
    needs = "needs: [before], " if before_s else ""
    for n in range(STAGES):
        files = f"inputs: [in/{n:02}.md], outputs: [out/{n:02}.md]"
        lines += [f"  ask{n:02}: {{{needs}{files}, llm: {{prompt: ask.md.j2}}}}"]
    (folder / "in").mkdir()
    for n in range(STAGES):
        (folder / "in" / f"{n:02}.md").write_text(f"# Part {n}\n\nText of part {n}.\n")
    (folder / "ask.md.j2").write_text("Summarize.\n{% for one in inputs %}{{ one.text }}{% endfor %}\n")
    (folder / "pipeline.yaml").write_text("\n".join(lines) + "\n")


def start(folder: Path, step: str, program: Sequence[str], before_s: float = 0.0) -> "subprocess.Popen[str]":
    """Start a build from nothing, in a process of its own."""
    project = folder / "project"
    project.mkdir()
    write_project(project, step, before_s)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(_ROOT), "ANTHROPIC_API_KEY": "none"}
    environ["ORCH23_TRUST"] = "1"
    argv = [*program, "-C", str(project), "build", "-q"]
    return subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def one_round(server: Slow, step: str, program: Sequence[str], before_s: float = 0.0) -> dict[str, float]:
    """Build once and return what it took, without the seconds of the stage before the calls."""
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name:
        server.forget(ANSWER_S)
        began = time.perf_counter()
        before = os.times()
        build = start(Path(name), step.replace("{program}", f"sleep {ANSWER_S:g}"), program, before_s)
        printed, _ = build.communicate()
        wall, after = time.perf_counter() - began, os.times()
        if build.returncode != 0:
            sys.exit(f"the build ended with {build.returncode}:\n{printed}")
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        found = {"whole": wall - before_s, "cpu": cpu}
        if server.count:
            found |= {"first": server.first - began, "calls": server.last - server.first, "most": float(server.most)}
        return found


def one_interrupt(server: Slow, step: str, program: Sequence[str]) -> float:
    """Interrupt a build once all its places wait, and return how long it takes to end."""
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name:
        server.forget(3600.0)
        build = start(Path(name), step.replace("{program}", f"exec {' '.join(_WAITING)}"), program)
        until = time.monotonic() + _PATIENCE_S
        while max(server.at_once, _programs_waiting()) < PLACES:
            if time.monotonic() > until:
                build.kill()
            if build.poll() is not None:
                sys.exit(f"the build ended with {build.returncode}:\n{build.communicate()[0]}")
            time.sleep(0.01)
        began = time.perf_counter()
        build.send_signal(signal.SIGINT)
        build.communicate()
        took = time.perf_counter() - began
        while server.at_once:
            time.sleep(0.01)
        return took


def _programs_waiting() -> int:
    """Return how many programs of `command` wait. They run in sandboxes: only their processes are seen from outside."""
    wanted = b"".join(word.encode() + b"\0" for word in _WAITING)
    found = 0
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found += place.read_bytes() == wanted
    return found


def measure(rounds: int, program: Sequence[str], wanted: Sequence[str] = ()) -> tuple[Waiting, ...]:
    """Return what each provider took in these rounds, with `program` as orch23."""
    server = Slow()
    server.start()
    kinds = {name: step for name, step in steps(server.port).items() if not wanted or name in wanted}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    later: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    ends: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name in random.sample(sorted(kinds), len(kinds)):
            found[name].append(one_round(server, kinds[name], program))
            later[name].append(one_round(server, kinds[name], program, BEFORE_S))
            ends[name].append(one_interrupt(server, kinds[name], program))
    return tuple(
        Waiting(
            provider=name,
            whole_s=_all_of(each, "whole"),
            calls_s=_all_of(each, "calls"),
            interrupt_s=tuple(round(one, 4) for one in ends[name]),
            later_s=_all_of(later[name], "whole"),
        )
        for name, each in found.items()
    )


def _all_of(rounds: list[dict[str, float]], key: str) -> tuple[float, ...]:
    return tuple(round(one[key], 4) for one in rounds if key in one)


def _show(found: tuple[Waiting, ...]) -> None:
    print(f"{STAGES} stages, pool of {PLACES}, {ANSWER_S:g} s an answer: ideal {IDEAL_S:g} s; medians")
    heads = "".join(f" {name:>8} {'ratio':>6}" for name in ("whole s", "later s", "calls s"))
    print(f"{'provider':10}{heads} {'Ctrl-C s':>9}")
    for one in found:
        line = f"{one.provider:10}"
        for times in (one.whole_s, one.later_s, one.calls_s):
            middle = statistics.median(times) if times else None
            line += f" {'':15}" if middle is None else f" {middle:8.2f} {middle / IDEAL_S:6.2f}"
        print(f"{line} {statistics.median(one.interrupt_s):9.2f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    rounds = int(given.pop(0)) if given and given[0].isdecimal() else ROUNDS
    _show(measure(rounds, (sys.executable, "-c", "from orch23.entry import run; run()"), given))
