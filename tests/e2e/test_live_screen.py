"""A build on a real terminal: what runs shows at its bottom while it runs, and is gone afterwards."""

import json
import os
import pty
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.loopback import Asked, Reply, loopback, message_events
from tests.project import Project
from tests.terminal_screen import Terminal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RUN = "from orch23.entry import run; run()"
# The stage runs until the test has seen enough.
WAITING = """\
version: 1
name: waiting
defaults: {sandbox: off}
stages:
  early: {shell: "echo x > early.txt", outputs: [early.txt]}
  slow:
    inputs: [early.txt, said, wait.sh]
    shell: "cat said; printf '\\\\033[31mhello\\\\033[0m\\\\n'; sh wait.sh; echo y > slow.txt"
    outputs: [slow.txt]
"""
SECRET = "Qz7-very-secret-value-19"


@dataclass
class TerminalRun:
    """A command on a terminal of its own, and everything that it wrote there."""

    pid: int
    screen: int
    seen: str = ""
    is_over: bool = False

    def read_until(self, is_enough: Callable[[str], bool]) -> None:
        until = time.monotonic() + 50
        while not is_enough(self.seen) and not self.is_over:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
            readable, _, _ = select.select([self.screen], [], [], 0.1)
            if not readable:
                continue
            try:
                self.seen += os.read(self.screen, 65536).decode("utf-8", "replace")
            except OSError:  # the terminal is gone with its last process
                self.is_over = True

    def end(self) -> int:
        self.read_until(lambda _: False)
        os.close(self.screen)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def on_a_terminal(folder: Path, *argv: str, **more: str) -> TerminalRun:
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(folder)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder / "home"), "TERM": "xterm"}
        env |= {"LANG": "C.UTF-8", "ORCH23_ALLOW_UNSANDBOXED": "1", "MY_API_KEY": SECRET, "ORCH23_TRUST": "1", **more}
        os.execve(sys.executable, [sys.executable, "-c", RUN, *argv], env)
    return TerminalRun(pid, screen)


def shown(text: str) -> str:
    """Return what is left on a screen on which an area was painted: nothing was ever broken into two lines."""
    terminal = Terminal(80, 24)
    terminal.feed(text)
    return "\n".join(terminal.transcript())


@pytest.fixture
def waiting(project: Project) -> Project:
    (project.root / "home").mkdir()
    # It ends by itself if a test that fails leaves it behind.
    wait = f"n=0; until [ -e {project.root / 'go'} ] || [ $n = 3000 ]; do sleep 0.02; n=$((n+1)); done\n"
    return project.write({"wait.sh": wait, "said": f"key {SECRET}\n", "pipeline.yaml": WAITING})


def test_what_runs_is_painted_and_removed(waiting: Project) -> None:
    run = on_a_terminal(waiting.root, "build", "-j1", NO_COLOR="1")
    run.read_until(lambda seen: "| hello" in seen.rpartition("✔ early")[2] and "✔ early" in seen)
    *_, last = shown(run.seen).rpartition("waiting: 2 stages")
    assert re.fullmatch(
        r"   sandbox: unused\n"
        r"(warning: .*\n(    .*\n)*)?"
        r" ✔ early  shell  +[\d.]+s   early.txt\n"
        r" > slow   shell  +[\d.]+s   cat said; .*\n"
        r"   \| key \[redacted MY_API_KEY\]\n"
        r"   \| hello\n"
        r" 1 of 2 stages done, 1 running   [\d.]+s",
        last,
    ), last
    assert "secret-value" not in run.seen
    (waiting.root / "go").touch()
    assert run.end() == 0
    assert "hello" not in shown(run.seen)
    assert re.search(r" ✔ slow   shell  +[\d.]+s   slow.txt\n 2 stages: 2 built   [\d.]+s\n$", shown(run.seen))


@pytest.mark.parametrize("env", [{"CI": "true"}, {"TERM": "dumb"}])
def test_nothing_is_painted_in_ci_or_on_a_terminal_without_control(waiting: Project, env: dict[str, str]) -> None:
    (waiting.root / "go").touch()
    run = on_a_terminal(waiting.root, "build", NO_COLOR="1", **env)
    assert run.end() == 0
    assert "\x1b" not in run.seen
    assert "2 stages: 2 built" in run.seen


def test_plain_output_paints_nothing_on_a_terminal(waiting: Project) -> None:
    (waiting.root / "go").touch()
    run = on_a_terminal(waiting.root, "build", "--output", "plain", NO_COLOR="1")
    assert run.end() == 0
    assert "\x1b" not in run.seen


def test_ctrl_c_says_at_once_what_happens_and_leaves_no_frame(waiting: Project) -> None:
    run = on_a_terminal(waiting.root, "build", "-j1", NO_COLOR="1")
    run.read_until(lambda seen: "| hello" in seen)
    os.write(run.screen, b"\x03")
    assert run.end() == 130
    text = " ".join(shown(run.seen).split())
    assert "warning: interrupted: 1 stage is stopped, what has ended is kept, and the next build continues" in text
    assert "running " not in text


def test_the_text_of_a_model_shows_while_it_is_written(project: Project) -> None:
    (project.root / "home").mkdir()
    go = threading.Event()

    def pieces() -> Iterator[bytes]:
        events = message_events("first line\nsecond line with a half ", "word\n")
        for number, (name, data) in enumerate(events):
            if number == len(events) - 4:
                go.wait(50)
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    def rule(asked: Asked) -> Reply:
        assert asked.json()["stream"] is True
        return Reply(200, {"content-type": "text/event-stream"}, pieces())

    with loopback(rule=rule) as server:
        project.write(
            {
                "ask.md.j2": "ask\n",
                "pipeline.yaml": f"""\
version: 1
name: told
prices: {{claude-opus-4-8: 0}}
stages:
  ask:
    outputs: [said.txt]
    llm: {{provider: anthropic, model: claude-opus-4-8, base_url: "{server.url}", prompt: ask.md.j2, returns: text}}
""",
            }
        )
        run = on_a_terminal(project.root, "build", NO_COLOR="1", ANTHROPIC_API_KEY="sk-ant-not-a-real-key-0123456789")
        run.read_until(lambda seen: "| second line with a half" in seen)
        assert " > ask  llm" in shown(run.seen)
        go.set()
        assert run.end() == 0, run.seen
    assert (project.root / "said.txt").read_text() == "first line\nsecond line with a half word\n"


@pytest.mark.needs("watch")
def test_each_build_of_watch_is_painted_and_removed(waiting: Project) -> None:
    run = on_a_terminal(waiting.root, "watch", "-j1", NO_COLOR="1")
    go = waiting.root / "go"
    for text in ("first", "second"):
        go.unlink(missing_ok=True)
        before = len(run.seen)
        waiting.write({"said": f"{text}\n"})
        run.read_until(lambda seen, before=before, text=text: f"| {text}" in seen[before:])  # type: ignore[misc]
        assert re.search(r" > slow +shell +[\d.]+s", shown(run.seen[before:]))
        go.touch()
        run.read_until(lambda seen, before=before: "press Ctrl-C to stop" in seen[before:])  # type: ignore[misc]
    *_, last = shown(run.seen).rpartition("said changed\n")
    assert re.fullmatch(
        r"waiting: 2 stages   sandbox: unused\n"
        r"(warning: .*\n(    .*\n)*)?"
        r" ✔ slow   shell +[\d.]+s   slow.txt   same bytes as before\n"
        r" 2 stages: 1 built, 1 fresh   [\d.]+s\n"
        r"watching 6 files; press Ctrl-C to stop\n",
        last,
    ), last
    os.write(run.screen, b"\x03")
    assert run.end() == 130
    assert shown(run.seen).endswith("press Ctrl-C to stop\n^C")


@pytest.mark.needs("watch")
def test_ctrl_c_in_a_build_of_watch_leaves_no_frame(waiting: Project) -> None:
    run = on_a_terminal(waiting.root, "watch", "-j1", NO_COLOR="1")
    run.read_until(lambda seen: "| hello" in seen)
    os.write(run.screen, b"\x03")
    assert run.end() == 130
    *_, last = shown(run.seen).rpartition("^C")
    assert "interrupted" in last
    assert " > slow" not in last
    assert "press Ctrl-C" not in last
