"""How many calls of models an edit costs: twenty stages on a sectioned spec, edited and built, the page made of it.

`python bench/model_economy.py` prints docs/economy.md; `make economy` writes it. The model is a server on this machine
whose answers follow from the request alone, so the figures are the same on every machine. The pipeline is in
bench/economy.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.economy_edits import EDITS, Edit, Row, page

PROJECT = Path(__file__).parent / "economy"
Build = Callable[[Path, tuple[str, ...]], int]
"""Run orch23 with these words in a folder, and return its exit code."""

_LLM = ("plan@", "code@", "modules@", "guide@", "summary", "titles")


# ---- the model ------------------------------------------------------------------------------------


def answer(prompt: str) -> str:
    """Answer a prompt of bench/economy: from what it shows, and nothing else."""
    kind, _, shown = prompt.strip().partition("\n")
    shown = shown.partition("\n\n")[2]
    match kind:
        case "PLAN":
            title = re.findall(r"^## (.+?) *$", shown, re.MULTILINE)[0]
            wanted = [line.rstrip() for line in shown.splitlines() if line.startswith("- ")]
            return "\n".join([f"# {title}", "", *wanted]) + "\n"
        case "CODE":
            names = re.findall(r"`(\w+)`", shown)
            body = "\n\n".join(f'def {name}() -> str:\n    """Answer."""\n    return "{name}"\n' for name in names)
            return f"```python\n{body}```\n"
        case "GUIDE":
            part, _, before = shown.partition("SO FAR\n")
            return f"{before.strip()}\n\n{part.strip()}\n".lstrip()
        case "SUMMARY":
            return json.dumps({"titles": re.findall(r"^# (.+)$", shown, re.MULTILINE)})
    raise ValueError(kind)


@contextlib.contextmanager
def model() -> Iterator["Model"]:
    """Serve Chat Completions, streamed, and count the requests."""
    served = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            served.count()
            base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small"}
            text = answer(body["messages"][-1]["content"])
            first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
            last = {"index": 0, "delta": {}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
            parts = [{**base, "choices": [first]}, {**base, "choices": [last]}, {**base, "choices": [], "usage": usage}]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in parts))
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Model:
    """Who answers, and how often it was asked."""

    url: str = ""
    asked: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        """Note a request."""
        with self._lock:
            self.asked += 1


# ---- measuring ------------------------------------------------------------------------------------


def measure(folder: Path, build: Build) -> tuple[int, list[Row]]:
    """Build the project, and each of its edits on a copy of it; return the calls of the first, and of each edit."""
    with model() as served:
        base = folder / "base"
        shutil.copytree(PROJECT, base)
        _replace(base / "pipeline.yaml", '"URL"', f'"{served.url}"')
        whole = _calls(served, base, build)
        return whole, [_row(edit, base, folder / f"edit-{n:02}", served, build) for n, edit in enumerate(EDITS)]


def _row(edit: Edit, base: Path, copy: Path, served: Model, build: Build) -> Row:
    shutil.copytree(base, copy, symlinks=True)
    for step in edit.before:
        step(copy)
        _calls(served, copy, build)
    edit.change(copy)
    calls = _calls(served, copy, build, *edit.options)
    events = _events(copy)
    asked = [event["role"] for event in events if event["type"] == "call_reserved"]
    if len(asked) != calls:
        message = f"{edit.name}: the server was asked {calls} times, the journal says {asked}"
        raise AssertionError(message)
    ends = {event["role"]: event["data"]["status"] for event in events if event["type"] == "stage_finished"}
    whole = [name for name, status in ends.items() if name.startswith(_LLM) and status != "skipped"]
    others = [name for name, status in ends.items() if status in {"built", "verified"} and not name.startswith(_LLM)]
    others += [name for name, status in ends.items() if status == "verified" and name.startswith(_LLM)]
    shutil.rmtree(copy)
    return Row(edit, calls, len(whole), tuple(asked), tuple(others))


def _calls(served: Model, root: Path, build: Build, *options: str) -> int:
    before = served.asked
    code = build(root, ("build", "-q", *options))
    if code != 0:
        message = f"the build in {root.name} ended with {code}"
        raise AssertionError(message)
    return served.asked - before


def _events(root: Path) -> list[Mapping[str, Any]]:
    newest = max((root / "logs").glob("*.jsonl"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        message = f"{path.name} has {text.count(old)} places that read {old!r}"
        raise AssertionError(message)
    path.write_text(text.replace(old, new), encoding="utf-8")


def _here(root: Path, words: tuple[str, ...]) -> int:
    from orch23.cli.main import main  # noqa: PLC0415 - the tool itself, which a test brings along

    return main(["-C", str(root), *words])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="orch23-economy-") as name:
        os.environ["HOME"] = name
        os.environ["ORCH23_TRUST"] = "1"
        sys.stdout.write(page(*measure(Path(name), _here)))
