"""The files of the program of `provider: command` are part of key and request, those outside of the project are not."""

import shutil
from pathlib import Path

import pytest

from tests.project import Project
from tests.repository import Repository

EARLIER = Path(__file__).parents[1] / "earlier_versions" / "command"
ASK = "import sys\nsys.stdin.read()\nprint('answer one,', open(sys.argv[1]).read().strip())\n"
PIPELINE = """\
version: 1
stages:
  ask:
    outputs: [a.txt]
    llm: {provider: command, model: m, command: [%s, cfg/agent.conf], prompt: p.j2, returns: text, transcripts: tr%s}
"""
FILES = {"tools/ask.py": ASK, "cfg/agent.conf": "low\n", "p.j2": "hi"}


def written(project: Project, program: str = "python3, tools/ask.py", more: str = "") -> Project:
    return project.write({"pipeline.yaml": PIPELINE % (program, more), **FILES})


@pytest.mark.slow
def test_an_edit_of_a_script_or_of_its_argument_calls_the_program_again(project: Project) -> None:
    assert written(project).build().code == 0
    assert project.read("a.txt") == "answer one, low\n"
    project.replace("tools/ask.py", "one", "two")
    assert "tools/ask.py changed" in project.run("plan").out
    assert "1 call" in project.build().err
    assert project.read("a.txt") == "answer two, low\n"
    project.edit("cfg/agent.conf", "high\n")
    assert "cfg/agent.conf changed" in project.run("plan").out
    assert project.build().code == 0
    assert project.read("a.txt") == "answer two, high\n"
    # The earlier response is not paid for twice.
    project.edit("cfg/agent.conf", "low\n")
    assert project.build("--replay").code == 0
    assert project.read("a.txt") == "answer two, low\n"


def test_a_program_of_the_project_is_part_of_the_request(project: Project) -> None:
    written(project, "./tools/ask.py")
    project.edit("tools/ask.py", f"#!/usr/bin/env python3\n{ASK}")
    (project.root / "tools/ask.py").chmod(0o755)
    assert project.build().code == 0
    project.replace("tools/ask.py", "one", "two")
    assert project.build("--replay").code == 5
    assert project.build().code == 0
    assert project.read("a.txt") == "answer two, low\n"


@pytest.mark.slow
def test_files_that_read_names_are_part_of_the_request_and_those_of_other_folders_are_not(project: Project) -> None:
    written(project, more=", read: [tools/lib]")
    project.write({"tools/lib/words.py": "WORD = 'x'\n", "tools/other.py": "X = 1\n"})
    assert project.build().code == 0
    project.edit("tools/other.py", "X = 2\n")
    assert "up to date" in project.build().err
    project.edit("tools/lib/words.py", "WORD = 'y'\n")
    assert "tools/lib/words.py changed" in project.run("plan").out
    assert project.build().code == 0
    project.write({"tools/lib/new.py": ""})
    assert "tools/lib/new.py" in project.run("plan").out


@pytest.mark.slow
def test_a_file_that_the_stage_writes_is_not_part_of_its_program(project: Project) -> None:
    text = PIPELINE.replace("cfg/agent.conf]", "cfg/agent.conf, a.txt]") % ("python3, tools/ask.py", "")
    project.write({"pipeline.yaml": text, **FILES})
    assert project.build().code == 0
    assert "up to date" in project.build().err


@pytest.mark.needs("inspecting")
def test_a_program_outside_of_the_project_is_not_in_the_key_and_explain_lists_it(project: Project) -> None:
    outside = project.root.parent / "agent"
    outside.write_text(f"#!/usr/bin/env python3\n{ASK}")
    outside.chmod(0o755)
    assert written(project, str(outside), more=", read: [~/shared]").build().code == 0
    outside.write_text(outside.read_text().replace("one", "two"))
    assert "up to date" in project.build().err
    explained = project.run("explain", "ask").out
    assert f"not in the key: {outside}, ~/shared (outside of the project)" in explained
    assert "program:cfg/agent.conf" in explained
    assert project.build("--resample", "ask").code == 0
    assert project.read("a.txt") == "answer two, low\n"


# ---- files that stages make ----------------------------------------------------------------------


def made(project: Project, reads: str, more: str = "") -> Project:
    stages = f"""\
version: 1
stages:
  ask:
    inputs: [task.md]
    outputs: [a.txt]
    llm: {{provider: command, model: m, prompt: p.j2, returns: text, {reads}}}
  config:
    outputs: [gen/agent.conf]
    shell: mkdir -p gen && echo low > gen/agent.conf
{more}"""
    script = "import sys, pathlib\nsys.stdin.read()\nprint(pathlib.Path('gen/agent.conf').read_text().strip())\n"
    return project.write({"pipeline.yaml": stages, "ask.py": script, "task.md": "ask\n", "p.j2": "hi"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "reads",
    [
        "command: [python3, ask.py, gen/agent.conf]",
        "command: [python3, ask.py], read: [./gen/agent.conf]",
    ],
)
def test_a_stage_runs_after_those_that_make_files_of_its_program(project: Project, reads: str) -> None:
    assert made(project, reads).build().code == 0
    assert project.read("a.txt") == "low\n"
    assert project.plan() == {"ask": "fresh", "config": "fresh"}
    project.replace("pipeline.yaml", "echo low", "echo high")
    outcome = project.build()
    assert (outcome.code, project.read("a.txt")) == (0, "high\n"), "it is called once, with the new file"
    assert "1 call" in outcome.err
    assert project.plan() == {"ask": "fresh", "config": "fresh"}


@pytest.mark.slow
def test_a_file_of_a_program_that_is_made_from_its_result_is_a_cycle(project: Project) -> None:
    made(project, "command: [python3, ask.py], read: [gen/agent.conf]")
    project.replace("pipeline.yaml", "outputs: [gen/agent.conf]", "inputs: [a.txt]\n    outputs: [gen/agent.conf]")
    outcome = project.build()
    assert outcome.code == 65
    assert "E820" in outcome.err
    assert "`ask` comes after `config`: it reads `gen/agent.conf`, an output of `config`" in outcome.err
    assert "or `gen/agent.conf` from `llm.read` of `ask` (line 6)" in outcome.err
    project.replace("pipeline.yaml", ", read: [gen/agent.conf]", "")
    assert "E820" not in project.build().err


@pytest.mark.slow
def test_a_folder_that_a_program_reads_orders_nothing(project: Project) -> None:
    made(project, "command: [python3, ask.py], read: [gen]")
    project.replace("pipeline.yaml", "outputs: [gen/agent.conf]", "inputs: [a.txt]\n    outputs: [gen/agent.conf]")
    project.write({"gen/old.txt": "old\n"})
    project.replace("ask.py", "gen/agent.conf", "gen/old.txt")
    assert project.build().code == 0


# ---- results of versions that did not record the program ----------------------------------------


@pytest.fixture
def earlier(project: Project) -> Project:
    """Give a project with the lock file, recording and output that an earlier version wrote."""
    shutil.copytree(EARLIER, project.root, dirs_exist_ok=True)
    return project.write({"tools/ask.py": ASK.replace("answer one", "answer of version 1")})


@pytest.mark.slow
def test_a_result_of_an_earlier_version_counts_as_made_by_the_program_that_is_there_now(earlier: Project) -> None:
    assert earlier.build("--replay").code == 0
    assert "up to date" in earlier.build("--replay").err
    lock = earlier.read("pipeline.lock")
    assert "program:tools/ask.py" in lock
    assert earlier.read("a.txt") == "answer of version 1, low\n"
    # From now on, another program is another program.
    earlier.replace("tools/ask.py", "version 1", "version 2")
    assert "tools/ask.py changed" in earlier.run("plan").out
    assert "E403" in earlier.build("--replay").err
    assert earlier.build().code == 0
    assert earlier.read("a.txt") == "answer of version 2, low\n"


def test_a_lock_file_of_an_earlier_version_is_verified_and_gets_the_files_of_the_program(earlier: Project) -> None:
    done = earlier.build("--replay", env={"ORCH23_TRUST": "0"})
    assert (done.code, "1 verified" in done.err) == (0, True)
    earlier.replace("tools/ask.py", "version 1", "version 2")
    assert "tools/ask.py changed" in earlier.run("plan", env={"ORCH23_TRUST": "0"}).out


@pytest.mark.needs("upkeep")
def test_a_recording_of_an_earlier_version_is_replayed_without_its_lock_file(earlier: Project) -> None:
    earlier.delete("pipeline.lock")
    earlier.delete("a.txt")
    done = earlier.build("--replay")
    assert (done.code, "saved 1 call" in done.err) == (0, True)
    assert earlier.read("a.txt") == "answer of version 1, low\n"
    # As long as the program is the same, the recording is not paid for again.
    assert earlier.build("--replay", "--force", "ask").code == 0
    assert earlier.run("reset").code == 0
    assert earlier.build("--replay").code == 0


@pytest.mark.needs("metrics")
def test_affected_names_a_stage_whose_program_changed(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "p")
    repository.init()
    written(repository)
    repository.commit()
    assert repository.run("affected", "--since", "HEAD", "--exit-code").code == 0
    repository.replace("tools/ask.py", "one", "two")
    assert "tools/ask.py" in repository.run("affected", "--since", "HEAD").out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "validate", "build"])
def test_a_path_to_read_that_does_not_exist_is_reported_with_its_place(project: Project, command: str) -> None:
    reads = "command: [python3, ask.py, gen/agent.conf], read: [task.md, nope/, gen/agent.conf, gen, ~/x]"
    done = made(project, reads).run(command)
    shown = done.out + done.err
    assert shown.count("`llm.read` of `ask` has `nope`, which does not exist, and no stage makes it") == 1
    assert shown.count("W827") == 1
    if command == "validate":
        assert " --> pipeline.yaml:6:" in shown


@pytest.mark.slow
def test_the_cost_of_a_stage_whose_tokens_are_not_known_says_so(project: Project) -> None:
    made(project, "command: [python3, ask.py, gen/agent.conf]").build()
    shown = project.run("show", "ask", "--cost").out
    assert ": 1 call, 0 recorded responses, tokens unknown, " in shown
    assert " (tokens unknown, end)" in project.run("log").out
