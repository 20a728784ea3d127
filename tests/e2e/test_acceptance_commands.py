"""Commands that a model wrote, on whole builds: run without a shell, told to the next attempt, part of the key."""

import json

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

PLAN = "build/plan.json"
CODE = """\
  code:
    foreach: {from: "build/plan.json#/tasks", key: id, as: task}
    outputs: ["src/${{ task.id }}.py"]
    cwd: src
    llm: {prompt: code.md.j2, returns: code}
    verify:
      - commands: {from: "${{ task.acceptance_commands }}", allow: [python, pytest]}
    retry: {max: 2}
"""
BETTER = "def f():\n    return 4\n# {{ brief.kind }} {{ brief.exit_code }}"
ANSWER = f"{{% if brief %}}{BETTER}{{% else %}}def f(): return 3{{% endif %}}"
SAYS = "python -c 'import a; print(\"it says\", a.f()); assert a.f() > 3'"


def plan(*commands: str) -> str:
    return json.dumps({"tasks": [{"id": "a", "acceptance_commands": commands}]})


def failures(project: Project) -> list[dict[str, object]]:
    return [event["data"] for event in project.events_of("attempt_finished") if not event["data"]["passed"]]


def test_a_failed_command_is_reported_to_the_next_attempt(project: Project) -> None:
    answer = prompt("code {{ brief.excerpt | replace('\n', ' ') if brief else '' }}", ANSWER)
    project.write(pipeline(CODE, {"code.md.j2": answer, PLAN: plan(SAYS, "python -c 'print(\"also\")'")}))
    green(project.build())
    (failed,) = failures(project)
    assert failed["kind"] == "acceptance_failed"
    assert failed["exit_code"] == 1
    assert "import a" in str(failed["command"])
    first, second = calls(project)
    assert first == "code"
    for reported in ("it says 3", "AssertionError", "also"):
        assert reported in second
    assert "acceptance_failed 1" in project.read("src/a.py")
    green(project.build())
    assert len(calls(project)) == 2


def test_what_each_command_printed_is_kept_whether_it_failed_or_passed(project: Project) -> None:
    project.write(
        pipeline(CODE, {"code.md.j2": prompt("code", ANSWER), PLAN: plan(SAYS, "python -c 'print(\"also\")'")})
    )
    green(project.build())
    kept = f"logs/{project.journals()[-1].stem}/code@a"
    failed, passed = (project.read(f"{kept}/attempt-{n}/verify-1.txt") for n in (1, 2))
    assert "Traceback" in failed
    assert "it says 3\n" in failed
    assert "it says 4\n" in passed
    for reported in failed, passed:
        assert [line.split()[1:3] for line in reported.splitlines() if line.startswith("$ ")] == [["python", "-c"]] * 2
        assert reported.endswith("also\n\n")


def test_acceptance_that_retry_does_not_name_is_final(project: Project) -> None:
    text = CODE.replace("{max: 2}", "{max: 2, when: [verify_failed]}")
    project.write(pipeline(text, {"code.md.j2": prompt("code", ANSWER), PLAN: plan(SAYS)}))
    assert project.build().code == 1
    assert len(calls(project)) == 1
    assert not project.exists("src/a.py")


def test_no_shell_looks_at_a_command(project: Project) -> None:
    command = 'python -c \'import sys; assert sys.argv[1:] == ["$HOME", "*.py", "a;b"]\' $HOME *.py \'a;b\''
    project.write(pipeline(CODE, {"code.md.j2": prompt("code", "x = 1"), PLAN: plan(command)}))
    green(project.build())


def test_tests_are_judged_by_their_report(project: Project) -> None:
    """A module that ends the process with success when it is imported passes no test."""
    forged = "import os\n\nos._exit(0)\n"
    text = CODE.replace("{max: 2}", "0").replace(
        "verify:\n      -", "verify:\n      inputs: [src/test_a.py]\n      steps:\n      -"
    )
    project.write(
        pipeline(
            text,
            {
                "code.md.j2": prompt("code", forged),
                "src/test_a.py": "import a\n\n\ndef test_a():\n    assert a.f() == 4\n",
                PLAN: plan("pytest -q test_a.py", "python -m pytest test_a.py"),
            },
        )
    )
    assert project.build().code == 1
    (failed,) = failures(project)
    assert failed["kind"] == "acceptance_failed"
    project.write({"code.md.j2": prompt("code", "def f():\n    return 4")})
    green(project.build())


def test_what_a_command_writes_is_never_promoted(project: Project) -> None:
    command = 'python -c \'open("b.py", "w").write("evil")\''
    stage = CODE.rstrip("\n") + "\n    scratch: [b.py]\n"
    project.write(
        pipeline(stage, {"code.md.j2": prompt("code", "x = 1"), PLAN: plan(command, "python -c 'import a; a.x'")})
    )
    green(project.build())
    assert project.read("src/a.py").strip() == "x = 1"
    assert not project.exists("src/b.py")


def test_a_command_cannot_change_what_it_accepts(project: Project) -> None:
    command = 'python -c \'open("a.py", "w").write("evil")\''
    project.write(pipeline(CODE, {"code.md.j2": prompt("code", "x = 1"), PLAN: plan(command)}))
    outcome = project.build()
    assert outcome.code == 1
    assert "E323" in outcome.err
    assert not project.exists("src/a.py")


@pytest.mark.parametrize("bad", ["python -V | cat", "rm -rf .", "python -V > x", "../bin/python -V"])
def test_a_planner_is_reported_what_is_refused_of_its_commands(project: Project, bad: str) -> None:
    good, wrong = plan("python -V"), plan(bad)
    answer = f"{{% if brief %}}{good}{{% else %}}{wrong}{{% endif %}}"
    reported = "plan {{ 'told' if brief and 'E835' in brief.excerpt else '' }}"
    stage = f"  plan: {{outputs: [{PLAN}], llm: {{prompt: plan.md.j2, returns: json}}, retry: 1}}\n"
    project.write(
        pipeline(stage + CODE, {"plan.md.j2": prompt(reported, answer), "code.md.j2": prompt("code", "x = 1")})
    )
    green(project.build())
    assert calls(project) == ["plan", "plan told", "code"]


def test_a_refused_command_of_a_file_ends_the_build_before_any_call(project: Project) -> None:
    project.write(pipeline(CODE, {"code.md.j2": prompt("code", "x = 1"), PLAN: plan("bash -c 'rm x'")}))
    outcome = project.build()
    assert outcome.code != 0
    assert "E835" in outcome.err + outcome.out
    assert calls(project) == []


SLICED = """\
  plan: {inputs: [in.json], outputs: [build/plan.json], shell: cp in.json build/plan.json}
  code:
    outputs: [app.txt]
    llm: {prompt: code.md.j2, returns: text}
    verify:
      - commands: {from: "build/plan.json#/acceptance", allow: [python]}
"""
READS = 'python -c \'assert open("app.txt").read().strip() == "{}"\''


def test_commands_may_come_from_a_file_that_another_stage_makes(project: Project) -> None:
    def accept(*commands: str, note: str = "") -> str:
        return json.dumps({"acceptance": commands, "note": note})

    project.write(pipeline(SLICED, {"code.md.j2": prompt("code", "yes"), "in.json": accept(READS.format("yes"))}))
    green(project.build())
    assert calls(project) == ["code"]
    assert project.plan() == {"plan": "fresh", "code": "fresh"}
    project.write({"in.json": accept(READS.format("yes"), note="new")})
    green(project.build())
    assert ends(project)["code"] == "fresh"
    project.write({"in.json": accept(READS.format("yes"), "python -V")})
    green(project.build())
    assert ends(project)["code"] == "verified"
    assert calls(project) == ["code"]
    project.write({"in.json": accept(READS.format("no"))})
    assert project.build().code == 1
    project.write({"in.json": accept("rm app.txt")})
    refused = project.build()
    assert refused.code == 1
    assert "E835" in refused.err + refused.out
    assert project.read("app.txt").strip() == "yes"


def test_commands_of_the_author_are_verified_again_where_they_change(project: Project) -> None:
    stage = """\
  code:
    outputs: [app.txt]
    llm: {prompt: code.md.j2, returns: text}
    verify: [{commands: {from: ["python -c ${{ vars.code }}"], allow: [python]}}]
"""
    project.write(pipeline(stage, {"code.md.j2": prompt("code", "yes")}, head="vars: {code: pass}\n"))
    green(project.build())
    assert project.plan("--set", "code=None") == {"code": "verify"}
    assert project.plan("--set", "code='pass'") == {"code": "fresh"}


def test_an_item_may_point_at_the_commands_that_another_stage_makes(project: Project) -> None:
    text = SLICED.replace("  code:\n", "  code:\n    foreach: {in: [a, b]}\n").replace(
        "[app.txt]", "['out/${{ item }}.txt']"
    )
    text = text.replace("/acceptance", "/acceptance/${{ item }}")
    lists = {name: [READS.format("yes").replace("app.txt", f"out/{name}.txt")] for name in "ab"}
    files = {"code.md.j2": prompt("code {{ item }}", "yes"), "in.json": json.dumps({"acceptance": lists})}
    project.write(pipeline(text, files))
    green(project.build())
    assert ends(project) == {"plan": "built", "code@a": "built", "code@b": "built"}
    lists["b"] = [READS.format("no").replace("app.txt", "out/b.txt")]
    project.write({"in.json": json.dumps({"acceptance": lists})})
    assert project.build("-k").code == 1
    assert ends(project) == {"plan": "built", "code@a": "fresh", "code@b": "failed"}


def test_a_stage_does_not_choose_what_it_must_pass(project: Project) -> None:
    text = SLICED.replace("build/plan.json#", "app.txt#").replace("app.txt]", "app.txt, own.json]")
    project.write(pipeline(text.replace("app.txt#", "own.json#"), {"code.md.j2": "x", "in.json": "{}"}))
    outcome = project.build()
    assert outcome.code == 65
    assert "E854" in outcome.err


def test_a_command_that_takes_too_long_is_a_timeout(project: Project) -> None:
    text = CODE.replace("{max: 2}", "0\n    timeout: 0.5")
    sleeps = "python -c 'import time; time.sleep(60)'"
    project.write(pipeline(text, {"code.md.j2": prompt("code", "x = 1"), PLAN: plan(sleeps)}))
    assert project.build().code == 1
    assert [failed["kind"] for failed in failures(project)] == ["timeout"]
