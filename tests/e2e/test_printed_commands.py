"""The commands that are printed as a way on do what they say when they are pasted into a shell."""

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from orch23.model.pipeline import Pipeline
from tests.e2e.pipelines import green
from tests.project import Project, scripted

LLM = {"outputs": ["${{ vars.name }}.txt"], "llm": {"returns": "text"}, "verify": [{"shell": "false"}]}


def printed(text: str) -> list[list[str]]:
    return [shlex.split(one) for one in re.findall(r"`(orch23 [^`]*)`", text)]


def test_a_command_is_quoted_and_takes_only_options_that_it_has() -> None:
    pipeline = Pipeline(name="p", file="p/a b.yaml", stages=(), options=(("--set", "a=b c"), ("--model", "m")))
    assert pipeline.command_line("build", "--resample", "s@1") == (
        "orch23 build 'p/a b.yaml' --resample s@1 --set 'a=b c' --model m"
    )
    assert pipeline.command_line("release", "s") == "orch23 release 'p/a b.yaml' s --set 'a=b c'"
    assert Pipeline(name="p", file="pipeline.yaml", stages=()).command_line("accept", "s") == "orch23 accept s"


def test_a_way_on_has_the_options_of_the_run(project: Project) -> None:
    project.write(scripted({"s": LLM}, {"s": ["x"]}, vars={"name": "a", "key": "-"}))
    project.write({"v.yaml": "name: b\n"})
    secret = "hunter2-hunter2-hunter2"
    options = ["--vars", "v.yaml", "--model", "scripted"]
    for recorded in (False, True):  # the second time, the response is recorded
        failed = project.build("--set", "key=two words", *options)
        assert (failed.code, len(project.events_of("llm_request"))) == (1, 1), failed.err
        found = [words for words in printed(failed.err) if words[1] != "log"]
        assert found
        assert all(words[-6:] == ["--set", "key=two words", *options] for words in found), found
        assert not recorded or ["orch23", "build", "--resample", "s"] in [words[:4] for words in found]
    hidden = project.build("--set", f"key={secret}", *options, env={"MY_TOKEN": secret})
    found = [words for words in printed(hidden.err) if words[1] != "log"]
    assert found
    assert all(words[-4:] == options and "--set" not in words for words in found), found
    assert secret not in hidden.err


@pytest.mark.needs("inspecting")
def test_an_edit_is_accepted_with_the_options_of_the_plan(project: Project) -> None:
    stages = {"s": {"outputs": ["${{ vars.name }}.txt"], "shell": "echo x > ${{ vars.name }}.txt"}}
    project.write({**scripted(stages, {}, vars={"name": "a"})})
    green(project.build("--set", "name=b"))
    project.write({"b.txt": "mine\n"})
    accept = ["orch23", "accept", "s", "--set", "name=b"]
    for command in (["plan"], ["explain", "pipeline.yaml", "s"], ["build"]):
        shown = project.run(*command, "--set", "name=b")
        assert accept in printed(shown.out + shown.err), shown
    green(project.run(*accept[1:]))


TESTED: dict[str, Any] = {
    "code": {"outputs": ["lib/m.py"], "shell": "echo 'X = 1' > lib/m.py"},
    "tests": {"inputs": ["lib/m.py", "t/test_m.py"], "pytest": {"args": ["t"], "pythonpath": ["lib"]}},
}


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("group", ["", "g"])
def test_a_failed_test_is_run_alone_by_the_printed_command(project: Project, group: str) -> None:
    stages = {name: {**one, **({"promote": group} if group else {})} for name, one in TESTED.items()}
    project.write(scripted(stages, {}))
    project.write({"t/test_m.py": "import m\n\n\ndef test_x():\n    assert m.X == 2\n"})
    failed = project.build()
    assert failed.code == 1, failed.err
    found = re.findall(r"`([^`]*)` runs this test alone", failed.err)
    if group:
        assert not found, "the code is not on disk"
        return
    assert found == ["PYTHONPATH=lib python -m pytest t/test_m.py::test_x"]
    line = found[0].replace("python", shlex.quote(sys.executable), 1)
    ran = subprocess.run(["bash", "-c", line], cwd=project.root, capture_output=True, text=True, check=False)
    assert "assert 1 == 2" in ran.stdout, ran
