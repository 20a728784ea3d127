"""`format`: programs change the files of an answer before it is verified; what only they changed is not an edit."""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orch23.model.digest import digest_bytes
from orch23.store.lock_file import read_lock
from tests.project import Project, files_answer, scripted
from tests.repository import EchoModel, Repository, ends, green, llm, pipeline, spec, up_to_date

RUFF = [{"shell": ["ruff", "format", "src"]}]
ROUGH, SMOOTH = "N = { 'n':1 }\n", 'N = {"n": 1}\n'
# A formatter without a tool: one blank between words, in the files of the answer.
SQUEEZE = 'while read -r one; do sed -i \'s/  */ /g\' "$one"; done < "$ORCH23_CHANGED"'
DOUBLE = 'sed -i "s/ /  /g" src/a.txt'


def stage(outputs: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"inputs": ["task.md"], "outputs": [*outputs], "llm": {}, **more}


def project_of(project: Project, answers: Sequence[Mapping[str, str]], outputs: Sequence[str], **more: Any) -> Project:
    answered = {"make": [files_answer(one) for one in answers]}
    project.write({**scripted({"make": stage(outputs, **more)}, answered), "task.md": "a task\n"})
    return project


def calls(project: Project) -> int:
    """Return how many responses the newest run requested that were not recorded."""
    return len([one for one in project.events_of("llm_response") if not one["data"].get("recorded")])


def with_format(project: Project, steps: Any) -> None:
    document = json.loads(project.read("pipeline.yaml"))
    document["stages"]["make"]["format"] = steps
    project.edit("pipeline.yaml", json.dumps(document))


# ---- between answer and verification ---------------------------------------------------------------


def test_what_a_formatter_changes_in_the_answer_is_the_result_that_is_verified(project: Project) -> None:
    check = [{"shell": ["ruff", "format", "--check", "src"]}]
    project_of(project, [{"src/a.py": ROUGH}], ["src/a.py"], format=RUFF, verify=check)
    green(project.build())
    assert project.read("src/a.py") == SMOOTH
    up_to_date(project.build())
    record = read_lock(project.root / "pipeline.lock").records["make"]
    assert record.made["src/a.py"].digest == digest_bytes(ROUGH.encode()), "the record keeps the answer as it was"


def test_changes_to_other_files_are_put_back_and_named(project: Project) -> None:
    steps = [{"shell": f"{SQUEEZE}; echo x >> src/base.txt; touch src/new.txt; rm tests.txt"}]
    verify = {
        "inputs": ["tests.txt"],
        "steps": [{"shell": "cat tests.txt; grep -qx mine src/base.txt; ! ls src/new.txt"}],
    }
    project.write({"src/base.txt": "mine\n", "tests.txt": "t\n"})
    project_of(
        project, [{"src/a.txt": "a   b\n"}], ["src/"], format=steps, verify=verify, inputs=["task.md", "src/base.txt"]
    )
    green(project.build())
    assert (project.read("src/a.txt"), project.read("src/base.txt")) == ("a b\n", "mine\n")
    assert not project.exists("src/new.txt")
    named = [one["message"] for one in project.events_of("warning")]
    assert any("src/base.txt, src/new.txt, tests.txt" in one and "put back" in one for one in named), named


def test_the_changed_files_are_listed_relative_to_the_working_directory(project: Project) -> None:
    steps = [{"shell": 'cp "$ORCH23_CHANGED" one.txt'}]
    verify = [{"shell": 'grep -qx "one.txt" one.txt'}]
    project_of(project, [{"one.txt": "x"}], ["web/one.txt"], format=steps, verify=verify, cwd="web")
    green(project.build())
    assert project.read("web/one.txt") == "one.txt\n"


def test_a_failing_formatter_is_the_failure_of_the_attempt(project: Project) -> None:
    steps = [{"shell": "xargs grep fine < $ORCH23_CHANGED || { echo not fine; exit 2; }"}]
    project_of(project, [{"a.txt": "bad\n"}, {"a.txt": "fine\n"}], ["a.txt"], format=steps, retry=1)
    green(project.build())
    failed, passed = (one["data"] for one in project.events_of("attempt_finished"))
    assert (failed["passed"], failed["exit_code"], passed["passed"]) == (False, 2, True)
    assert failed["excerpt"] == "not fine\n"
    assert "not fine" in project.run("show", "make", "--prompt", "--attempt", "2").out, "the model gets its output"


def test_the_next_attempt_starts_from_the_answer_as_it_was(project: Project) -> None:
    # The second response quotes what the first one wrote, not what the formatter made of it.
    pairs = (("a", "a   b"), ("a   b", "a   c"))
    answers = [f"a.txt\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n" for old, new in pairs]
    project.write({"a.txt": "a\n"})
    make = stage(
        ["a.txt"], llm={"returns": "edits"}, format=[{"shell": SQUEEZE}], retry=1, verify=[{"shell": "grep c a.txt"}]
    )
    project.write({**scripted({"make": make}, {"make": answers}), "task.md": "a task\n"})
    green(project.build())
    assert project.read("a.txt") == "a c\n"


@pytest.mark.parametrize("command", [["no-such-formatter", "src"], "no-such-formatter src"])
def test_a_program_that_is_not_installed_costs_no_call(project: Project, command: Any) -> None:
    steps = [{"shell": "sed -i 's/  */ /' a.txt"}, {"shell": command}, {"shell": ["no-other", "a.txt"]}]
    project_of(project, [{"a.txt": "a   b\n"}], ["a.txt"], format=steps)
    failed = project.build()
    assert (failed.code, calls(project)) == (1, 0), failed.err
    assert all(f"`{one}` of `format` was not found" in failed.err for one in ("no-such-formatter", "no-other"))
    with_format(project, steps[:1])
    green(project.build())
    assert project.read("a.txt") == "a b\n"


def test_a_formatter_that_exists_and_that_the_sandbox_does_not_show_is_named(project: Project) -> None:
    tool = project.home / "opt/bin/squeeze"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\n{SQUEEZE}\n")
    tool.chmod(0o755)
    project_of(project, [{"a.txt": "a   b\n"}], ["a.txt"], format=[{"shell": ["squeeze", "a.txt"]}])
    failed = project.build(env={"PATH": f"{tool.parent}:/usr/bin:/bin"})
    assert (failed.code, calls(project)) == (1, 0), failed.err
    assert f"`squeeze` is {tool} on your PATH and a step does not see that directory" in failed.err
    assert "copy it to `tools/squeeze`" in failed.err
    assert "list the copied file in `verify.inputs`" in failed.err


def test_a_missing_program_within_a_command_costs_one_call_which_is_recorded(project: Project) -> None:
    steps = [{"shell": "true && no-such-formatter"}]
    project_of(project, [{"a.txt": "a   b\n"}] * 3, ["a.txt"], format=steps, retry=2)
    failed = project.build()
    assert (failed.code, "E309" in failed.err, calls(project)) == (1, True, 1), failed.err
    with_format(project, [{"shell": "sed -i 's/  */ /' a.txt"}])
    assert "1 recorded response" in green(project.build()).err
    assert project.read("a.txt") == "a b\n"


def test_a_formatter_that_removes_a_file_of_the_answer_fails_without_a_retry(project: Project) -> None:
    project_of(project, [{"a.txt": "a"}] * 3, ["a.txt"], format=[{"shell": "rm a.txt"}], retry=2)
    failed = project.build()
    assert (failed.code, "E328" in failed.err) == (1, True), failed.err
    assert len(project.events_of("llm_request")) == 1


def test_the_mode_of_a_file_stays_and_a_replaced_file_is_taken(project: Project) -> None:
    # As clang-format does: a new file with mode 644 in the place of the old one.
    steps = [{"shell": "sed 's/  */ /' run.sh > t; chmod 644 t; mv t run.sh"}]
    project_of(project, [{"run.sh": "#!/bin/sh\necho   a\n"}], ["run.sh"], format=steps)
    green(project.build())
    assert project.read("run.sh") == "#!/bin/sh\necho a\n"
    assert (project.root / "run.sh").stat().st_mode & 0o777 == 0o755


# ---- the key ---------------------------------------------------------------------------------------


def test_a_change_of_the_list_formats_and_verifies_again_without_a_call(project: Project) -> None:
    project_of(project, [{"src/a.txt": "a   b\n"}], ["src/a.txt"], verify=[{"shell": "grep b src/a.txt"}])
    green(project.build())
    with_format(project, [{"shell": SQUEEZE}])
    assert project.plan() == {"make": "verify"}
    green(project.build())
    assert (project.read("src/a.txt"), ends(project), calls(project)) == ("a b\n", {"make": "verified"}, 0)
    up_to_date(project.build())
    with_format(project, [{"shell": DOUBLE}])
    green(project.build())
    # From the answer: the first list does not count any more.
    assert project.read("src/a.txt") == "a      b\n"
    with_format(project, [])
    green(project.build())
    assert (project.read("src/a.txt"), calls(project)) == ("a   b\n", 0)
    up_to_date(project.build())


def test_an_accepted_edit_is_not_formatted(project: Project) -> None:
    project_of(project, [{"src/a.txt": "a   b\n"}], ["src/a.txt"], format=[{"shell": SQUEEZE}])
    green(project.build())
    project.edit("src/a.txt", "mine   too\n")
    green(project.run("accept", "make"))
    with_format(project, [{"shell": DOUBLE}])
    green(project.build())
    assert project.read("src/a.txt") == "mine   too\n"


def test_default_formatters_are_for_stages_with_a_model(project: Project) -> None:
    answers = {"make": [files_answer({"a.txt": "a   b\n"})]}
    stages = {"make": stage(["a.txt"]), "copy": {"inputs": ["a.txt"], "outputs": ["b.txt"], "shell": "cp a.txt b.txt"}}
    files = scripted(stages, answers)
    document = json.loads(files["pipeline.yaml"])
    document["defaults"]["format"] = [{"shell": SQUEEZE}]
    project.write({**files, "pipeline.yaml": json.dumps(document), "task.md": "t"})
    green(project.build())
    assert project.read("b.txt") == "a b\n"
    document["stages"]["copy"]["format"] = [{"shell": SQUEEZE}]
    project.write({"pipeline.yaml": json.dumps(document)})
    refused = project.build()
    assert "`format` is for llm stages, and this is a shell stage" in refused.err


# ---- files that only formatting made different -----------------------------------------------------


@pytest.fixture
def repository(tmp_path: Any) -> Repository:
    found = Repository(tmp_path / "project")
    found.init()
    return found


MAKE = llm(["spec.md"], ["src/a.py"], format=RUFF)
USE = {"inputs": ["src/a.py"], "outputs": ["use.txt"], "shell": "cp src/a.py use.txt"}


def built(repository: Repository, make: Mapping[str, Any] = MAKE) -> EchoModel:
    model = EchoModel()
    repository.write({**pipeline({"make": make, "use": USE}), "spec.md": spec("src/a.py: one")})
    with model.answering():
        green(repository.run("build", "a.yaml"))
    return model


def hook(repository: Repository, command: str) -> None:
    path = repository.root / ".git/hooks/pre-commit"
    path.write_text(f"#!/bin/sh\n{command}\ngit add -A\n")
    path.chmod(0o755)


def commit_with_hook(repository: Repository) -> None:
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "with a hook")


def test_a_result_that_a_hook_formatted_is_not_an_edit(repository: Repository) -> None:
    # The result is older than the hook: another style, which the declared formatter makes the same.
    built(repository)
    hook(repository, "printf \"s( 'one' )\\n\" > src/a.py")
    commit_with_hook(repository)
    plan = repository.run("plan", "a.yaml")
    assert "maybe edited: src/a.py" in plan.out
    assert "edited by" not in plan.out
    with EchoModel().answering() as model:
        green(repository.run("build", "a.yaml"))
        assert repository.read("src/a.py") == "s( 'one' )\n", "the file stays as the hook left it"
        assert ends(repository)["make"] == "fresh"
        assert ends(repository)["use"] == "built"
        up_to_date(repository.run("build", "a.yaml"))
        # A change of the task starts from nothing, not from the formatted file, which is the stage's own.
        repository.edit("spec.md", spec("src/a.py: two"))
        green(repository.run("build", "a.yaml"))
        assert model.bases("src/a.py") == [None]
    assert repository.read("src/a.py") == 's("two")\n'


def test_it_is_found_also_if_the_stage_has_to_run(repository: Repository) -> None:
    built(repository)
    hook(repository, "printf \"s( 'one' )\\n\" > src/a.py")
    commit_with_hook(repository)
    repository.edit("spec.md", spec("src/a.py: two"))
    assert "maybe edited: src/a.py" in repository.run("plan", "a.yaml").out
    with EchoModel().answering() as model:
        green(repository.run("build", "a.yaml"))
        assert model.bases("src/a.py") == [None]
    assert repository.read("src/a.py") == 's("two")\n'


def test_an_edit_stays_an_edit(repository: Repository) -> None:
    built(repository)
    repository.edit("src/a.py", "s( 'mine' )\n")
    assert "maybe edited: src/a.py" in repository.run("plan", "a.yaml").out
    refused = repository.run("build", "a.yaml")
    assert (refused.code, "edited by hand: src/a.py" in refused.err) == (6, True), refused.err
    assert repository.read("src/a.py") == "s( 'mine' )\n"
    green(repository.run("accept", "a.yaml", "make"))
    assert repository.read("src/a.py") == "s( 'mine' )\n"
    green(repository.run("build", "a.yaml"))
    assert repository.read("use.txt") == "s( 'mine' )\n"


def test_a_committed_edit_is_verified_and_accepted_as_before(repository: Repository) -> None:
    built(repository)
    repository.edit("src/a.py", "s( 'mine' )\n")
    repository.commit()
    green(repository.run("build", "a.yaml"))
    assert ends(repository)["make"] == "verified"
    assert repository.read("src/a.py") == "s( 'mine' )\n"


def test_a_file_that_the_formatter_cannot_read_is_an_edit(repository: Repository) -> None:
    built(repository)
    repository.edit("src/a.py", "s( 'mine'\n")
    assert repository.run("build", "a.yaml").code == 6


def test_a_formatter_that_a_project_adds_later_finds_its_own_work(repository: Repository) -> None:
    without = {key: value for key, value in MAKE.items() if key != "format"}
    built(repository, without)
    assert repository.read("src/a.py") == "s('one')\n"
    hook(repository, f"{Path(sys.executable).parent}/ruff format -q src")
    commit_with_hook(repository)
    repository.write(pipeline({"make": MAKE, "use": USE}))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/a.py") == 's("one")\n'
    assert ends(repository)["make"] == "verified"
    up_to_date(repository.run("build", "a.yaml"))


# ---- real formatters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "path", "rough", "smooth"),
    [
        (["ruff", "format", "src"], "src/a.py", ROUGH, SMOOTH),
        pytest.param(["gofmt", "-w", "src"], "src/a.go", "package  a\n", "package a\n", marks=pytest.mark.slow),
        pytest.param(["prettier", "--write", "src"], "src/a.js", "a( 1 )\n", "a(1);\n", marks=pytest.mark.slow),
        pytest.param(["clang-format", "-i", "src/a.c"], "src/a.c", "int  a ;\n", "int a;\n", marks=pytest.mark.slow),
    ],
)
def test_a_real_formatter_and_the_same_one_as_a_hook(
    repository: Repository, command: list[str], path: str, rough: str, smooth: str
) -> None:
    # Where steps find programs.
    program = shutil.which(command[0], path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    project_of(repository, [{path: rough}], [path], format=[{"shell": command}])
    green(repository.build())
    assert repository.read(path) == smooth
    hook(repository, shlex.join([program, *command[1:]]))
    commit_with_hook(repository)
    up_to_date(repository.build())
    assert (repository.read(path), repository.git("status", "--porcelain")) == (smooth, "")


# ---- retries, items and clones ---------------------------------------------------------------------


def test_a_recorded_result_that_fails_with_a_new_list_is_corrected_from_the_answer(project: Project) -> None:
    # The first response does not apply to the recorded answer, the second one quotes it.
    pairs = (("a", "foo"), ("foo", "foo2"))
    answers = [f"a.txt\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n" for old, new in pairs]
    project.write({"a.txt": "a\n"})
    make = stage(["a.txt"], llm={"returns": "edits"}, retry=1)
    project.write({**scripted({"make": make}, {"make": answers}), "task.md": "a task\n"})
    green(project.build())
    document = json.loads(project.read("pipeline.yaml"))
    document["stages"]["make"] |= {"format": [{"shell": "sed -i s/foo/bar/ a.txt"}]}
    project.edit("pipeline.yaml", json.dumps(document))
    green(project.build())
    assert project.read("a.txt") == "bar\n"
    document["stages"]["make"]["verify"] = [{"shell": "grep bar2 a.txt"}]
    project.edit("pipeline.yaml", json.dumps(document))
    green(project.build())
    assert project.read("a.txt") == "bar2\n"


def test_items_format_their_own_files(project: Project) -> None:
    each = {
        "foreach": {"from": "list.json", "as": "one"},
        "inputs": ["task.md"],
        "outputs": ["src/${{ one }}.txt"],
        "llm": {},
        "format": [{"shell": ["sed", "-i", "s/  */ /", "src/${{ one }}.txt"]}],
    }
    answers = {f"each@{one}": [files_answer({f"src/{one}.txt": f"{one}   x\n"})] for one in "ab"}
    project.write({**scripted({"each": each}, answers), "task.md": "t", "list.json": '["a", "b"]'})
    green(project.build())
    assert (project.read("src/a.txt"), project.read("src/b.txt")) == ("a x\n", "b x\n")
    document = json.loads(project.read("pipeline.yaml"))
    document["stages"]["each"]["format"] = [{"shell": "sed -i s/a/b/ ${{ one }}"}]
    project.edit("pipeline.yaml", json.dumps(document))
    refused = project.build()
    assert "E857" in refused.err
    assert "an item of a file may not decide `format.shell`" in refused.err


def test_a_program_with_a_blank_in_a_list_is_an_error_with_its_place(project: Project) -> None:
    project_of(project, [{"a.txt": "a"}], ["a.txt"], format=[{"shell": ["ruff format"]}])
    refused = project.run("plan")
    assert (refused.code != 0, "no program is named `ruff format`" in refused.err) == (True, True), refused.err


def test_a_clone_verifies_the_formatted_result_and_formats_nothing(repository: Repository) -> None:
    built(repository, {**MAKE, "format": [{"shell": ["ruff", "format", "src"]}]})
    repository.commit()
    clone = repository.clone(repository.root.parent / "clone")
    with EchoModel().answering() as model:
        green(clone.run("build", "a.yaml", env={"ORCH23_TRUST": ""}))
        assert model.calls == []
    assert ends(clone)["make"] == "verified"
    assert clone.git("status", "--porcelain") == ""


def test_a_result_that_only_the_lock_file_has_is_verified_and_not_compared(repository: Repository) -> None:
    built(repository)
    hook(repository, "printf \"s( 'one' )\\n\" > src/a.py")
    commit_with_hook(repository)
    clone = repository.clone(repository.root.parent / "clone")
    green(clone.run("build", "a.yaml", env={"ORCH23_TRUST": ""}))
    assert ends(clone)["make"] == "verified"
    assert read_lock(clone.root / "a.lock").records["make"].accepted == ("src/a.py",)


def test_gc_keeps_the_answer_behind_a_result(project: Project) -> None:
    project_of(project, [{"src/a.txt": "a   b\n"}], ["src/a.txt"], format=[{"shell": SQUEEZE}])
    green(project.build())
    green(project.run("gc", "--keep", "1KB"))
    with_format(project, [])
    green(project.build())
    assert project.read("src/a.txt") == "a   b\n"


def test_a_lost_answer_is_not_asked_for_again(project: Project) -> None:
    project_of(project, [{"src/a.txt": "a   b\n"}], ["src/a.txt"], format=[{"shell": SQUEEZE}])
    green(project.build())
    made = read_lock(project.root / "pipeline.lock").records["make"].made["src/a.txt"].digest.sha256
    (lost,) = [path for path in (project.root / ".orch23").rglob(f"*{made[4:]}*") if path.is_file()]
    lost.unlink()
    with_format(project, [{"shell": DOUBLE}])
    green(project.build())
    assert (project.read("src/a.txt"), calls(project)) == ("a  b\n", 0)


def test_failed_attempts_keep_the_formatted_file(project: Project) -> None:
    steps: Mapping[str, Any] = {"format": [{"shell": SQUEEZE}], "verify": [{"shell": "false"}]}
    project_of(project, [{"src/a.txt": "a   b\n"}], ["src/a.txt"], **steps)
    assert project.build().code == 1
    withheld = green(project.run("show", "make", "--withheld"))
    assert "src/a.txt  4 B" in withheld.out, "of the 6 bytes of the answer"
    project_of(project, [{"src/a.txt": "a   b\n"}], ["src/a.txt"], **steps, on_failure="keep")
    assert project.build().code == 1
    assert project.read("src/a.txt") == "a b\n"
