"""`init` on a terminal: the questions are asked there, and what is found here comes first, marked as found."""

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.loopback import Asked, Loopback, Reply, json_reply, loopback
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.needs("templates")]

ROOT = Path(__file__).parents[2]
# The servers of the machine that runs the tests are not looked for, only those of a test.
RUN = """
from orch23.entry import run
from orch23.features.templates.loopback_servers import KNOWN_PORTS
KNOWN_PORTS.clear()
KNOWN_PORTS.update(PORTS)
run()
"""
KEY = {"ANTHROPIC_API_KEY": "sk-ant-not-a-real-key-0123456789"}
ANY = "  (OpenAI-compatible: Ollama, LM Studio, llama.cpp, vLLM)"
WHERE_IS_THE_CURSOR = b"\x1b[6n"


def on_a_terminal(
    folder: Path,
    *argv: str,
    answers: dict[bytes, bytes],
    env: Mapping[str, str] = KEY,
    ports: Mapping[int, str] | None = None,
) -> tuple[int, str]:
    """Run orch23 on a terminal of its own and type an answer when its question is read; return code and screen."""
    command = [sys.executable, "-c", RUN.replace("PORTS)", f"{dict(ports or {})!r})"), *argv]
    home = {"HOME": f"{folder}-home", "TERM": "xterm"}
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **home, **env}
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, command, environ)
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


def shown_choices(screen: str) -> list[str]:
    """Return the choices of the first question that has some, in their order."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    lines = (line.strip(" »") for line in text.partition("(Use arrow keys)")[2].splitlines())
    return [line for line in lines if line][:4]


def test_questions_are_asked_and_the_provider_with_a_key_is_proposed(tmp_path: Path) -> None:
    answers = {
        b"Name of the pipeline": b"-mine\r",
        b"Provider that writes the code": b"\r",
        b"Name of the model": b"\r",
    }
    code, screen = on_a_terminal(tmp_path, "init", "quickstart", answers=answers)
    assert code == 0, screen
    assert shown_choices(screen) == ["anthropic  (found: ANTHROPIC_API_KEY)", "local", "openai", f"server{ANY}"]
    assert "sk-ant" not in screen
    kept = (tmp_path / ".orch23-quickstart.answers.yml").read_text()
    assert "name: quickstart-mine\n" in kept
    assert "provider: anthropic\n" in kept
    assert "model: claude-opus-4-8\n" in kept
    assert "next: `orch23 build pipelines/quickstart.yaml`" in screen
    assert "Copying" not in screen


def test_without_a_name_the_templates_are_offered(tmp_path: Path) -> None:
    code, screen = on_a_terminal(tmp_path, "init", "--defaults", answers={b"Template:": b"quickstart\r"})
    assert code == 0, screen
    assert "  quickstart" in screen
    assert (tmp_path / "pipelines/quickstart.yaml").exists()


def test_leaving_at_a_question_writes_nothing(tmp_path: Path) -> None:
    code, _ = on_a_terminal(tmp_path, "init", "quickstart", answers={b"Provider that writes the code": b"\x03"})
    assert code == 130
    assert list(tmp_path.iterdir()) == []


# ---- a server on this machine ------------------------------------------------------------------------


def models_reply(*names: str) -> Reply:
    return json_reply({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def served(asked: Asked) -> Reply:
    assert (asked.method, asked.path) == ("GET", "/v1/models")
    assert "authorization" not in asked.headers
    return models_reply("nomic-embed-text:v1.5", "qwen2.5:7b", "with a blank")


def port(server: Loopback) -> int:
    return int(server.url.rpartition(":")[2])


FREE = b"Does it cost nothing?"
SERVER = {
    b"Provider that writes": b"\r",
    b"Address of the server": b"\r",
    b"Name of the model": b"\r",
    b"Name of the pipeline": b"\r",
}


@pytest.mark.stride(3)
@pytest.mark.parametrize(("typed", "is_free"), [(b"y", True), (b"n", False), (b"\r", False)])
def test_a_server_is_found_and_prices_are_written_only_after_yes(tmp_path: Path, typed: bytes, is_free: bool) -> None:
    with loopback(rule=served) as server:
        answers, ports, url = {**SERVER, FREE: typed}, {port(server): "Ollama"}, f"{server.url}/v1"
        code, screen = on_a_terminal(tmp_path, "init", "quickstart", answers=answers, env={}, ports=ports)
    assert code == 0, screen
    assert f"server  (found: Ollama at {url})" in screen
    pipeline = (tmp_path / "pipelines/quickstart.yaml").read_text()
    assert f"    provider: openai\n    base_url: {url}\n" in pipeline
    assert "  model: qwen2.5:7b\n" in pipeline
    assert ("prices:\n  qwen2.5:7b: 0\n" in pipeline) is is_free
    assert ("prices" in pipeline) is is_free
    assert f"send prompts to {url.removesuffix('/v1')}" in screen
    kept = (tmp_path / ".orch23-quickstart.answers.yml").read_text()
    assert f"base_url: {url}\n" in kept
    assert f"free: {str(is_free).lower()}\n" in kept
    project = Project(tmp_path)
    assert project.run("validate", "pipelines/quickstart.yaml").code == 0
    updated = project.run("template", "update")
    assert (updated.code, updated.out) == (0, ""), updated.err


def test_a_key_comes_before_a_server_and_no_address_is_asked_for(tmp_path: Path) -> None:
    answers = {question: typed for question, typed in SERVER.items() if question != b"Address of the server"}
    with loopback(rule=served) as server:
        code, screen = on_a_terminal(tmp_path, "init", "quickstart", answers=answers, ports={port(server): "Ollama"})
    assert code == 0, screen
    assert "Address of the server" not in screen
    kept = (tmp_path / ".orch23-quickstart.answers.yml").read_text()
    assert "provider: anthropic\n" in kept
    assert "model: claude-opus-4-8\n" in kept
    assert "base_url" not in kept


def test_what_is_at_a_port_and_is_no_server_of_models_is_not_offered(tmp_path: Path) -> None:
    page = Reply(200, {"content-type": "text/html"}, (b"<html>",))
    with loopback(rule=lambda _: page) as other, loopback(rule=lambda _: Reply(hold=True)) as silent:
        ports = {port(other): "llama.cpp", port(silent): "vLLM"}
        code, screen = on_a_terminal(tmp_path, "init", "quickstart", "--dry-run", answers=SERVER, env={}, ports=ports)
    assert code == 0, screen
    assert "found:" not in screen


def test_an_earlier_version_without_servers_can_be_asked_for(tmp_path: Path) -> None:
    with loopback(rule=served) as server:
        argv = ("init", "quickstart", "--ref", "v3")
        code, screen = on_a_terminal(tmp_path, *argv, answers=SERVER, env={}, ports={port(server): "Ollama"})
    assert code == 0, screen
    assert "provider: local\n" in (tmp_path / ".orch23-quickstart.answers.yml").read_text()


def test_no_port_is_tried_unless_a_question_is_asked(tmp_path: Path) -> None:
    with loopback(rule=served) as server:
        ports = {port(server): "Ollama"}
        code, screen = on_a_terminal(tmp_path, "init", "quickstart", "--defaults", answers={}, ports=ports)
        assert code == 0, screen
        data = ("--data", "provider=local")
        code, screen = on_a_terminal(tmp_path, "init", "quickstart", *data, "--keep", answers=SERVER, ports=ports)
        assert code == 0, screen
    assert server.asked == []
