"""Each row of docs/command-protocol.md: what a program reads, and what becomes of what it prints."""

import json
import re
from pathlib import Path

import pytest

from tests.project import Project

PAGE = (Path(__file__).parents[2] / "docs" / "command-protocol.md").read_text()
STAGE = """\
version: 1
stages:
  ask:
    outputs: [out.txt]
    retry: {max: 1, style: conversation}
    llm:
      {provider: command, model: m, command: [python3, model.py], prompt: p.md, system: s.md, returns: text,
       timeout: 5s}
    verify: [{shell: "! grep bad out.txt"}]
"""


def written(project: Project, program: str, stage: str = STAGE) -> Project:
    return project.write({"pipeline.yaml": stage, "p.md": "Say it.", "s.md": "Be brief.", "model.py": program})


@pytest.mark.slow
def test_the_request_has_the_keys_of_the_page(project: Project) -> None:
    program = "import sys\nprint(sys.stdin.read() + 'good')\n"
    assert written(project, program).build().code == 0
    text = project.read("out.txt")
    assert text.endswith("}\ngood\n")
    request = json.loads(text.removesuffix("good\n"))
    table = PAGE.split("## Input")[1].split("## Output")[0]
    assert list(request) == re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert (request["model"], request["system"], request["schema"]) == ("m", "Be brief.", None)
    assert request["messages"] == [{"role": "user", "content": "Say it."}]
    assert request["params"].keys() == {"max_tokens"}


@pytest.mark.slow
def test_a_conversation_has_the_earlier_attempts(project: Project) -> None:
    count = "[one['role'] for one in json.load(sys.stdin)['messages']]"
    program = f"import json, sys\nroles = {count}\nprint('bad' if len(roles) == 1 else roles)\n"
    assert written(project, program).build().code == 0
    assert project.read("out.txt") == "['user', 'assistant', 'user']\n"


@pytest.mark.slow
@pytest.mark.stride(5)
@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        ("import sys; print('reason', file=sys.stderr); sys.exit(3)", "E401", "reason"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "E401", "not UTF-8"),
        ("print('x' * (4 << 20) + 'x')", "E408", "killed"),
        ("import sys; sys.stderr.write('x' * (16 << 20) + 'x')", "E408", "killed"),
        ("import time; time.sleep(60)", "E402", "killed"),
    ],
)
def test_a_program_that_fails_is_an_error_of_the_provider(
    project: Project, program: str, code: str, message: str
) -> None:
    done = written(project, program, STAGE.replace("5s", "1s" if code == "E402" else "30s")).build()
    assert (done.code, f"[{code}]: " in done.err, message in done.err) == (1 if code == "E402" else 5, True, True), (
        done.err
    )
    assert code in PAGE.split("## Output")[1]
    assert ("2 calls" in done.err) == (code == "E402")
    # It is not recorded: the next build calls the program again.
    written(project, "print('good')")
    assert project.build().code == 0


def test_a_program_that_cannot_be_started_is_an_error(project: Project) -> None:
    done = written(project, "", STAGE.replace("[python3, model.py]", "[no-such-program]")).build()
    assert (done.code, "E407" in done.err) == (78, True), done.err


@pytest.mark.slow
def test_another_program_is_another_request_and_the_same_one_answers_again_for_nothing(project: Project) -> None:
    written(project, "print('one')").build()
    written(project, "print('two')")
    assert project.build().code == 0
    assert project.read("out.txt") == "two\n"
    written(project, "print('one')")
    assert project.build("--replay").code == 0
    assert project.read("out.txt") == "one\n"
