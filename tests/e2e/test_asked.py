"""`init` on a terminal: the questions are asked there, and what is set up here is the default."""

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RUN = "from orch23.entry import run; run()"
WHERE_IS_THE_CURSOR = b"\x1b[6n"


def on_a_terminal(folder: Path, *argv: str, answers: dict[bytes, bytes]) -> tuple[int, str]:
    """Run orch23 on a terminal of its own and type an answer when its question is read; return code and screen."""
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(folder)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder / "home"), "TERM": "xterm"}
        env["ANTHROPIC_API_KEY"] = "sk-ant-not-a-real-key-0123456789"
        os.execve(sys.executable, [sys.executable, "-c", RUN, *argv], env)
    seen, waiting, until = b"", dict(answers), time.monotonic() + 50
    while time.monotonic() < until:
        readable, _, _ = select.select([screen], [], [], 0.2)
        if not readable:
            for question in [one for one in waiting if one in seen]:
                os.write(screen, waiting.pop(question))
            continue
        try:
            read = os.read(screen, 65536)
        except OSError:  # the terminal is gone with its last process
            break
        seen += read
        if WHERE_IS_THE_CURSOR in read:
            os.write(screen, b"\x1b[1;1R")
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(screen)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), seen.decode("utf-8", "replace")


def test_questions_are_asked_and_the_provider_with_a_key_is_proposed(tmp_path: Path) -> None:
    answers = {
        b"Name of the pipeline": b"-mine\r",
        b"Provider that writes the code": b"\r",
        b"Name of the model": b"\r",
    }
    code, screen = on_a_terminal(tmp_path, "init", "quickstart", answers=answers)
    assert code == 0, screen
    kept = (tmp_path / ".orch23-quickstart.answers.yml").read_text()
    assert "name: quickstart-mine\n" in kept
    assert "provider: anthropic\n" in kept
    assert "model: claude-opus-4-8\n" in kept
    assert "next: edit specs/quickstart.md" in screen
    assert "Copying" not in screen


def test_without_a_name_the_templates_are_offered(tmp_path: Path) -> None:
    code, screen = on_a_terminal(tmp_path, "init", "--defaults", answers={b"Template (": b"quickstart\r"})
    assert code == 0, screen
    assert "  quickstart" in screen
    assert (tmp_path / "pipelines/quickstart.yaml").exists()


def test_leaving_at_a_question_writes_nothing(tmp_path: Path) -> None:
    code, _ = on_a_terminal(tmp_path, "init", "quickstart", answers={b"Name of the pipeline": b"\x03"})
    assert code == 130
    assert list(tmp_path.iterdir()) == []
