"""A program as the provider, with real processes: what it is told, what goes wrong, that nothing of it is left."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from orch23.decide.secrets import Secrets
from orch23.model.errors import ProviderError
from orch23.model.llm import Message, Request
from orch23.providers import codes
from orch23.providers.command import MAX_ANSWER_BYTES, Command
from orch23.providers.faults import redacting

REQUEST = Request(
    provider="command",
    model="tiny",
    endpoint="command x",
    system="be brief",
    messages=(Message("user", "grüße"),),
    identity=(Message("user", "grüße"),),
    params={"max_tokens": 5},
    schema={"type": "object"},
)


def run(tmp_path: Path, code: str, *, deadline_s: float = 20.0, request: Request = REQUEST, **env: str):
    command = Command(argv=(sys.executable, "-c", code), root=tmp_path, environ={**os.environ, **env})
    return command.complete(request, deadline_s, lambda _n: None)


def failure(tmp_path: Path, code: str, **more):
    with pytest.raises(ProviderError) as caught:
        run(tmp_path, code, **more)
    return caught.value.diagnostics[0]


def gone(pid: int) -> bool:
    """Wait until a process is no more than a zombie, if that."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
    return False


def test_the_request_is_on_stdin_and_the_answer_on_stdout(tmp_path: Path) -> None:
    response = run(tmp_path, "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d)")
    assert json.loads(response.text) == {
        "model": "tiny",
        "system": "be brief",
        "messages": [{"role": "user", "content": "grüße"}],
        "params": {"max_tokens": 5},
        "schema": {"type": "object"},
    }
    assert response.stop == "end"


def test_it_runs_in_the_root_with_the_callers_environment(tmp_path: Path) -> None:
    response = run(tmp_path, "import os; print(os.getcwd(), os.environ['MY_KEY'])", MY_KEY="k1")
    assert response.text.split() == [str(tmp_path), "k1"]


def test_a_program_that_does_not_read_may_still_answer(tmp_path: Path) -> None:
    long = Request(
        provider="command", model="m", endpoint="e", system="x" * 2_000_000, messages=(), identity=(), params={}
    )
    code = "import os; os.close(0); print('hi')"
    assert run(tmp_path, code, request=long).text == "hi\n"


def test_large_questions_and_answers_do_not_block_each_other(tmp_path: Path) -> None:
    long = Request(
        provider="command", model="m", endpoint="e", system="x" * 1_000_000, messages=(), identity=(), params={}
    )
    code = "import sys; sys.stdout.write('y' * 1000000); sys.stdout.flush(); print(len(sys.stdin.read()))"
    text = run(tmp_path, code, request=long).text
    assert text.startswith("yyy")
    assert int(text.lstrip("y")) > 1_000_000


def test_a_failure_carries_the_last_lines_of_stderr(tmp_path: Path) -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(100)]; sys.exit(7)"
    diagnostic = failure(tmp_path, code)
    assert diagnostic.code == codes.FAILED
    assert "exit code 7" in diagnostic.message
    assert "line 99" in diagnostic.message
    assert "line 50" not in diagnostic.message


def test_of_a_secret_that_is_cut_by_what_is_kept_of_stderr_nothing_is_shown(tmp_path: Path) -> None:
    key = "".join(f"{number:02x}-" for number in range(60))
    code = "import os, sys; sys.stderr.write(os.environ['K'] + 'z' * 63_900 + ' end'); sys.exit(1)"
    with redacting(Secrets({"K": key}).redact):
        message = failure(tmp_path, code, K=key).message
    assert message.endswith("z end")
    assert key[-12:] not in message


def test_lines_of_a_secret_beyond_those_that_are_shown_do_not_hide_the_others(tmp_path: Path) -> None:
    key = "\n".join(f"short {number}" for number in range(30))
    code = "import os, sys; sys.stderr.write(os.environ['K']); sys.exit(1)"
    with redacting(Secrets({"K": key}).redact):
        assert failure(tmp_path, code, K=key).message.endswith(":\n[redacted K]")


def test_a_signal_is_named(tmp_path: Path) -> None:
    assert "signal 9" in failure(tmp_path, "import os; os.kill(os.getpid(), 9)").message


def test_the_whole_group_is_killed_when_the_time_is_up(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('pid', 'w').write(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    diagnostic = failure(tmp_path, code, deadline_s=1.0)
    assert diagnostic.code == codes.TIMED_OUT
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_left_behind_is_killed_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout=-3, stderr=-3)\n"
        "print(p.pid)\n"
    )
    assert gone(int(run(tmp_path, code).text))


def test_an_endless_answer_is_cut_off(tmp_path: Path) -> None:
    code = f"import sys\nwhile True: sys.stdout.write('y' * {MAX_ANSWER_BYTES // 4})"
    assert failure(tmp_path, code).code == codes.TOO_MUCH


def test_an_answer_that_is_no_text_is_a_failure(tmp_path: Path) -> None:
    assert "UTF-8" in failure(tmp_path, "import sys; sys.stdout.buffer.write(b'\\xff')").message


def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    command = Command(argv=("no-such-program-here",), root=tmp_path, environ={"PATH": "/nowhere"})
    with pytest.raises(ProviderError) as caught:
        command.complete(REQUEST, 5.0, lambda _n: None)
    assert caught.value.diagnostics[0].code == codes.NOT_FOUND
