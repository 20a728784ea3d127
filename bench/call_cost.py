"""What a call costs in processor time beside the bare client: `python -m bench calls`, about one minute.

A foreach of 1,000 items, each with one call and no verification, is built against a server on this machine; then the
same number of requests is sent with the vendor's client alone. The cost of a call is the processor time of the process
and its children, less that of one item, divided by the items: so starting and importing count for neither. The server
is a process of its own. If a build needs more than the goal, the process exits with 1.

The same version differs by up to 20 % between two runs: compare two versions in turns. After many files were deleted,
it waits until the file system creates files as fast as usual. ADR 46 has figures.
"""

import atexit
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CALLS = 1_000
GOAL_MS = 6.0
_ROOT = Path(__file__).resolve().parents[1]
_JOBS = 8
_PROBES, _USUAL_CREATION_MS = 200, 0.1
_WAIT_S, _MOST_WAITS = 15.0, 24
_PROGRAM = "from orch23.entry import run; run()"
_CASES = {
    "anthropic": ("anthropic", 1024),
    "anthropic, streamed": ("anthropic", 8192),
    "openai": ("openai", 1024),
    "openai, streamed": ("openai", 8192),
}
"""The provider and `max_tokens` of each case: up to 1,024 tokens a response is not streamed."""

_CLIENTS = {
    "anthropic": """
import anthropic
client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
def call(text):
    return client.messages.create(**asked(text)).content[0].text
""",
    "anthropic, streamed": """
import anthropic
client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
def call(text):
    with client.messages.stream(**asked(text)) as stream:
        return stream.get_final_message().content[0].text
""",
    "openai": """
import openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
def call(text):
    return client.chat.completions.create(**asked(text)).choices[0].message.content
""",
    "openai, streamed": """
import openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
def call(text):
    parts = client.chat.completions.create(**asked(text), stream=True, stream_options={"include_usage": True})
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
""",
}
_LOOP = """
import concurrent.futures, sys
def asked(text):
    return dict(model="slow-1", max_tokens={max_tokens}, messages=[dict(role="user", content=text)])
{client}
with concurrent.futures.ThreadPoolExecutor({jobs}) as pool:
    texts = [f"Question {{number}}." for number in range(int(sys.argv[2]))]
    assert all(text == "done" for text in pool.map(call, texts))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The processor time of a call in milliseconds: in a build, and with the client alone."""

    case: str
    build_ms: float
    client_ms: float


@contextmanager
def serving() -> Iterator[str]:
    """Start the server, and yield its address."""
    program = [sys.executable, "-m", "bench.call_server"]
    with subprocess.Popen(program, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def creation_ms() -> float:
    """Return the processor time, in milliseconds, of creating one file where the projects are created."""
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name:
        before = time.process_time()
        for number in range(_PROBES):
            Path(name, str(number)).touch()
        return (time.process_time() - before) * 1000 / _PROBES


def wait_for_file_system(say: Callable[[str], None]) -> None:
    """Wait, for some minutes at most, until files are created as fast as usual.

    An ext4 without a journal searches past all inodes that were deleted within the last minutes for each new file.
    """
    for _ in range(_MOST_WAITS):
        took_ms = creation_ms()
        if took_ms <= _USUAL_CREATION_MS:
            return
        say(f"waiting: creating a file takes {took_ms:.2f} ms, since many files were deleted")
        time.sleep(_WAIT_S)


def _cpu_s(argv: list[str], environ: dict[str, str]) -> float:
    """Run a program and return the processor time of it and its children, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{argv} exited with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        raise RuntimeError(message)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def build_s(case: str, url: str, calls: int) -> float:
    """Return the processor time, in seconds, of a build with so many items."""
    name = tempfile.mkdtemp(prefix="orch23-bench-")
    # Not at once: for minutes after many files were deleted, an ext4 without a journal takes longer to create one.
    atexit.register(shutil.rmtree, name)
    project = Path(name) / "project"
    project.mkdir()
    provider, max_tokens = _CASES[case]
    settings = {
        "anthropic": f"provider: anthropic, model: claude-haiku-4-5, base_url: '{url}'",
        "openai": f"provider: openai, model: gpt-5-mini, base_url: '{url}/v1'",
    }[provider]
    (project / "rows.json").write_text(json.dumps([{"id": f"{number:05}"} for number in range(calls)]))
    (project / "ask.md.j2").write_text("Question {{ item.id }}.\n")
    (project / "pipeline.yaml").write_text(
        "version: 1\nname: calls\n"
        f"defaults: {{llm: {{{settings}, returns: text, max_tokens: {max_tokens}}}}}\n"
        "stages:\n  ask:\n    foreach: {from: rows.json, key: id}\n"
        "    outputs: ['out/${{ item.id }}.md']\n    llm: {prompt: ask.md.j2}\n"
    )
    environ = {"PATH": os.environ["PATH"], "HOME": name, "PYTHONPATH": str(_ROOT), "ORCH23_TRUST": "1"}
    environ |= {"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    argv = [sys.executable, "-c", _PROGRAM, "-C", str(project), "build", "-q", f"-j{_JOBS}"]
    return _cpu_s(argv, environ)


def client_s(case: str, url: str, calls: int) -> float:
    """Return the processor time, in seconds, of so many calls with the client of the vendor alone."""
    program = _LOOP.format(client=_CLIENTS[case], max_tokens=_CASES[case][1], jobs=_JOBS)
    return _cpu_s([sys.executable, "-c", program, url, str(calls)], dict(os.environ))


def measure(case: str, calls: int = CALLS) -> Cost:
    """Measure the calls of one case, both ways in turn."""
    with serving() as url:
        build = build_s(case, url, calls) - build_s(case, url, 1)
        client = client_s(case, url, calls) - client_s(case, url, 1)
    return Cost(case, build * 1000 / (calls - 1), client * 1000 / (calls - 1))


def main(calls: int = CALLS, say: Callable[[str], None] = print) -> int:
    """Measure all cases and print them; return 0 if the goal is reached."""
    wait_for_file_system(say)
    say(f"{'calls':20} {'build ms':>9} {'client ms':>10} {'ratio':>6}")
    missed = 0
    for case in _CASES:
        cost = measure(case, calls)
        is_good = cost.build_ms <= GOAL_MS
        missed += not is_good
        ratio = cost.build_ms / cost.client_ms
        mark = "" if is_good else "   missed"
        say(f"{case:20} {cost.build_ms:9.2f} {cost.client_ms:10.2f} {ratio:6.2f}{mark}")
    return int(missed > 0)
