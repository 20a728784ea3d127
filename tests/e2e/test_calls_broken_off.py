"""A build that waits for eight answers is asked to stop: no call goes on, what had arrived is not asked again."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE, ends, green
from tests.loopback import Loopback, NoReply, Reply, Scripted, loopback, message_reply
from tests.openai_server import chat
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("vendors"),
]  # whole builds: `make test` runs them, `make check` does not

_PROGRAM = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
_REPOSITORY = str(Path(__file__).parents[2])
KEY = {"ANTHROPIC_API_KEY": "sk-ant-story"}
STAGES, PLACES = 9, 8
ANSWER = "an answer"


def completion(text: str) -> Reply:
    """Return an answer of Chat Completions, as the loopback server sends it."""
    whole = chat(text)
    return Reply(200, {"content-type": whole.type}, whole.parts)


def write(project: Project, step: str, *, head: str = f"pools: {{llm: {PLACES}}}\n") -> None:
    """Write as many independent stages as there are places, and one more."""
    lines = [
        f"  ask{n}: {{outputs: [{n}.txt], llm: {{{step}, prompt: ask{n}.md.j2, returns: text}}}}\n"
        for n in range(STAGES)
    ]
    files = {f"ask{n}.md.j2": f"Question {n}." for n in range(STAGES)}
    project.write({**files, "pipeline.yaml": f"version: 1\nname: story\n{head}stages:\n{''.join(lines)}"})


def start(project: Project) -> "subprocess.Popen[bytes]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY, **KEY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    argv = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", "-j1"]
    return subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def questions(server: Loopback) -> list[str]:
    """Return the numbers of the questions that were asked, in order."""
    texts = [asked.body.decode() for asked in server.asked]
    return [next(str(n) for n in range(STAGES) if f"Question {n}." in text) for text in texts]


STREAMS = {
    "anthropic, no word yet": ("provider: anthropic, model: m, base_url: '{url}'", message_reply, NoReply(hold=True)),
    "openai, no word yet": ("provider: openai, model: m, base_url: '{url}/v1'", completion, NoReply(hold=True)),
    "openai, half an answer": (
        "provider: openai, model: m, base_url: '{url}/v1'",
        completion,
        Reply(200, {"content-type": "text/event-stream"}, chat(ANSWER).parts[:1], hold=True),
    ),
}


@pytest.mark.stride(3)
@pytest.mark.parametrize(("step", "answer", "held"), STREAMS.values(), ids=STREAMS.keys())
def test_eight_calls_are_broken_off_and_only_what_had_not_arrived_is_asked_again(
    project: Project, step: str, answer: Callable[[str], Reply], held: Scripted
) -> None:
    with loopback(answer(ANSWER), *[held] * PLACES) as server:
        write(project, step.format(url=server.url))
        process = start(project)
        server.wait_for(lambda: len(server.asked) == STAGES)  # the last one began when the first had its answer
        process.send_signal(signal.SIGINT)
        server.wait_for(lambda: server.given_up == PLACES)
        _, reported = process.communicate(timeout=60)
        assert process.returncode == 130, reported.decode()
        assert b"Traceback" not in reported
        answered, *cut = questions(server)
        assert ends(project) == {f"ask{answered}": "built", **{f"ask{n}": "cancelled" for n in cut}}
        assert project.read(f"{answered}.txt").strip() == ANSWER
        settled = {event["role"]: event["data"]["forfeited"] for event in project.events_of("call_settled")}
        assert settled == {f"ask{answered}": False, **{f"ask{n}": True for n in cut}}, "they may have been charged"
        server.add(*[answer(ANSWER)] * PLACES)
        green(project.build("-j1", env=KEY))
        assert sorted(questions(server)[STAGES:]) == sorted(cut), "each once, and never what was answered"
        assert all(project.exists(f"{n}.txt") for n in range(STAGES))


def test_programs_that_answer_are_killed_together(project: Project) -> None:
    gate = project.root.parent / "gate"
    os.mkfifo(gate)
    model = f"cat > /dev/null; if [ -p {gate} ]; then echo $$ > {gate}; sleep 97; fi; echo {ANSWER}"
    write(project, f"provider: command, model: m, command: [sh, -c, '{model}']")
    descriptor = os.open(gate, os.O_RDWR)  # so that it never ends, the user who of the writers is gone
    process, came = start(project), b""
    try:
        while came.count(b"\n") < PLACES:
            assert process.poll() is None, "it ended before eight were asked"
            if select.select([descriptor], [], [], 0.05)[0]:
                came += os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=60)
    assert process.returncode == 130, reported.decode()
    assert not [number for number in came.decode().split() if Path("/proc", number).exists()]
    assert set(ends(project).values()) == {"cancelled"}
    gate.unlink()
    green(project.build("-j1"))
    assert [project.read(f"{n}.txt").strip() for n in range(STAGES)] == [ANSWER] * STAGES
