"""What is left on a terminal after a build: the lines that plain output has, and nothing of what was painted."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.loopback import Asked, Reply, loopback, message_events
from tests.project import Project
from tests.terminal_screen import Terminal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RUN = "from orch23.entry import run; run()"
LONG = "a_name_of_sixty_four_characters_" * 2
HOSTILE = (
    "\x1b[2J\x1b[1;1H\x1b]0;owned\x07\x1b[5A\rgone\x07\ttab\f\v\x85\u2028\u202e 一二三四五六七八九十 "
    + "👍🏽🇩🇪क्षि é ❤️" * 30
)
PIPELINE = """\
version: 1
name: hostile
prices: {claude-opus-4-8: 0}
defaults: {sandbox: off}
stages:
  early: {shell: "echo x > early.txt", outputs: [early.txt]}
  several_lines:
    inputs: [early.txt, wait.sh]
    shell: |
      # 一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十
      \tfor n in 1 2; do
        echo "$n"
      done
      sh wait.sh
      echo y > several.txt
    outputs: [several.txt]
  LONG:
    inputs: [early.txt, wait.sh, hostile.txt]
    shell: "cat hostile.txt; sh wait.sh; cp hostile.txt 一二三四五六七八九十.txt"
    outputs: [一二三四五六七八九十.txt]
  ask:
    inputs: [early.txt]
    outputs: [said.txt]
    llm: {provider: anthropic, model: claude-opus-4-8, base_url: "URL", prompt: ask.md.j2, returns: text}
"""


@dataclass
class Shown:
    """A command on a terminal of its own, which it fills."""

    pid: int
    fd: int
    terminal: Terminal
    seen: str = ""

    def read_until(self, is_enough: Callable[[], bool]) -> None:
        until = time.monotonic() + 50
        while not is_enough():
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                pytest.fail(f"not seen: {self.seen[-2000:]!r}")
            if select.select([self.fd], [], [], 0.1)[0] and not self._read():
                return

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the terminal is gone with its last process
            return False
        text = data.decode("utf-8", "surrogateescape")
        self.seen += text
        self.terminal.feed(text)
        return True

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal between two frames, and wait for three more."""
        self.wait_for_frames(1)
        # Not in the middle of a frame: its rows would be of two widths.
        self.read_until(lambda: self.seen.endswith("\x1b[?7h") and not select.select([self.fd], [], [], 0)[0])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.terminal.resize(columns, lines)
        self.wait_for_frames(3)

    def wait_for_frames(self, count: int) -> None:
        enough = self.frames + count
        self.read_until(lambda: self.frames >= enough)

    @property
    def frame(self) -> str:
        """The last frame that was painted."""
        return ["", *self.seen.split("running   ")][-2].rpartition("\x1b[?7l")[2]

    @property
    def frames(self) -> int:
        return self.seen.count("running   ")

    def end(self) -> int:
        self.read_until(lambda: False)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def show(folder: Path, terminal: Terminal, *argv: str, **more: str) -> Shown:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder / "home"), "TERM": "xterm-256color"}
    env |= {"LANG": "C.UTF-8", "ORCH23_ALLOW_UNSANDBOXED": "1", "ORCH23_TRUST": "1", **more}
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", terminal.lines, terminal.columns, 0, 0))
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-c", RUN, *argv], env)
    return Shown(pid, fd, terminal)


@pytest.mark.stride(5)
@pytest.mark.parametrize("reflows", [True, False])
@pytest.mark.parametrize(
    "sizes", [((40, 24), (200, 50)), ((80, 24), (40, 24), (200, 30)), ((200, 24), (80, 30), (40, 24))]
)
def test_the_lines_that_ended_are_all_that_is_left(
    project: Project, sizes: Sequence[tuple[int, int]], *, reflows: bool
) -> None:
    (project.root / "home").mkdir()
    go = threading.Event()

    def pieces() -> Iterator[bytes]:
        events = message_events(f"{HOSTILE}\nsecond {HOSTILE} half ", "word\n")
        for number, (name, data) in enumerate(events):
            if number == len(events) - 4:
                go.wait(50)
            yield f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    def rule(asked: Asked) -> Reply:
        return Reply(200, {"content-type": "text/event-stream"}, pieces())

    wait = f"n=0; until [ -e {project.root / 'go'} ] || [ $n = 3000 ]; do sleep 0.02; n=$((n+1)); done\n"
    with loopback(rule=rule) as server:
        project.write(
            {
                "wait.sh": wait,
                "hostile.txt": f"first\n{HOSTILE}\n{HOSTILE}",
                "ask.md.j2": "ask\n",
                "pipeline.yaml": PIPELINE.replace("URL", server.url).replace("LONG", LONG).replace("\\t", "\t"),
            }
        )
        terminal = Terminal(*sizes[0], reflows=reflows)
        kind = "xterm-256color" if reflows else "xterm"
        run = show(project.root, terminal, "build", "-j4", TERM=kind, ANTHROPIC_API_KEY="sk-ant-not-real-0123456789")
        # What each stage printed was painted, also the text of the model.
        run.read_until(lambda: run.frame.count("| gone") >= 2 and "| 2" in run.frame)
        for columns, lines in sizes[1:]:
            run.resize(columns, lines)
        (project.root / "go").touch()
        go.set()
        assert run.end() == 0, "\n".join(terminal.transcript())
    text = re.sub(r"\d+\.\ds", "TIME", " ".join(" ".join(terminal.transcript()).split()))
    assert sorted(re.split(r" (?=✔|4 stages: 4)", text)) == sorted(
        [
            "hostile: 4 stages provider anthropic model claude-opus-4-8 sandbox: unused",
            "✔ early shell TIME early.txt",
            "✔ several_lines shell TIME several.txt",
            f"✔ {LONG} shell TIME 一二三四五六七八九十.txt",
            "✔ ask llm TIME 1 call 11+7 tok said.txt",
            "4 stages: 4 built TIME 1 call, 11+7 tokens",
        ]
    )
