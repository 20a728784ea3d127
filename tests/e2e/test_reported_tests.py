"""Programs that report results of tests: the verdict, and what the next attempt of a model and the user see."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, scripted

WRONG, RIGHT = "def sub(a, b): return a + b\n", "def sub(a, b): return a - b\n"
TAP = """
import sub
print("TAP version 13")
print("# small numbers")
for number in range(1, 300):
    print(f"ok {number} should be equal")
found = sub.sub(3, 2)
block = f"  ---\\n  expected: 1\\n  actual: {found}\\n  ..."
print("ok 300 difference" if found == 1 else f"not ok 300 difference\\n{block}")
print("1..300")
"""
JUNIT = """
import os, sub
found = sub.sub(3, 2)
case = "" if found == 1 else f'<failure message="expected 1, got {found}">at t.py:3</failure>'
with open(PLACE, "w") as file:
    file.write(f'<testsuite tests="1"><testcase classname="sub" name="small numbers">{case}</testcase></testsuite>')
"""


def with_test(project: Project, test: str, step: Mapping[str, Any], **more: Any) -> Project:
    """Write a project in which a model makes `sub.py`, first a wrong one, and `t.py` tests it."""
    stage = {
        "inputs": ["task.md"],
        "outputs": ["sub.py"],
        "llm": {"returns": "code"},
        "retry": 1,
        "verify": {"inputs": ["t.py"], "steps": [step]},
        **more,
    }
    answers = {"make": [f"```python\n{one}```\n" for one in (WRONG, RIGHT)]}
    return project.write({**scripted({"make": stage}, answers), "task.md": "subtract\n", "t.py": test})


def second_prompt(project: Project) -> str:
    shown = project.run("show", "make", "--prompt", "--attempt", "2")
    assert shown.code == 0, shown
    return shown.out


def alone(project: Project, shell: str, **more: Any) -> Project:
    """Write a project with one shell stage."""
    return project.write(scripted({"test": {"shell": shell, **more}}, {}))


def problems(project: Project) -> list[tuple[str, str | None]]:
    (ended,) = project.events_of("stage_finished")
    return [(one["code"], one.get("subject")) for one in ended["data"].get("problems", ())]


def test_a_failed_test_of_tap_is_named_in_the_second_prompt_though_it_exits_with_0(project: Project) -> None:
    with_test(project, TAP, {"shell": "python t.py"})
    built = project.build()
    assert built.code == 0, built
    prompt = second_prompt(project)
    assert "small numbers > difference: expected 1, actual 5" in prompt
    assert "1 failed, 299 passed" in prompt
    assert "should be equal" not in prompt, "only what failed is shown"


@pytest.mark.parametrize(
    ("place", "path"),
    [("$TMPDIR/j.xml", 'os.environ["TMPDIR"] + "/j.xml"'), ("build/*.xml", '"build/j.xml"')],
)
def test_a_report_in_tmpdir_or_scratch_is_read(project: Project, place: str, path: str) -> None:
    step = {"shell": "python t.py", "test_results": {"junit": place}}
    with_test(project, JUNIT.replace("PLACE", path), step, scratch=["build/"])
    built = project.build()
    assert built.code == 0, built
    assert "sub > small numbers: expected 1, got 5" in second_prompt(project)


@pytest.mark.parametrize("place", ["stdout", "$TMPDIR/j.xml"])
def test_a_secret_in_a_report_is_neither_shown_nor_stored(project: Project, place: str) -> None:
    secret = "Qz7-very-secret-value-19"
    shell = "sed s/_/-/g r.txt" if place == "stdout" else f"sed s/_/-/g r.txt > {place}"
    alone(project, shell, inputs=["r.txt"], test_results={"junit": place})
    failure = f'<failure message="{secret.replace("-", "_")}"/>'
    project.write({"r.txt": f'<testsuite><testcase name="a">{failure}</testcase></testsuite>'})
    built = project.build(env={"MY_API_KEY": secret})
    assert (built.code, secret in built.err + built.out) == (1, False), built
    (ended,) = project.events_of("stage_finished")
    assert "[redacted MY_API_KEY]" in ended["data"]["failure"]
    stored = [path for path in (project.root / ".orch23").rglob("*") if path.is_file()]
    assert [path for path in stored if secret.encode() in path.read_bytes()] == []


def test_a_report_that_the_step_did_not_write_does_not_count(project: Project) -> None:
    green = '<testsuite><testcase name="a"/></testsuite>'
    project.write({"build/j.xml": green})
    alone(project, "true", inputs=["build/j.xml"], scratch=["build/"], test_results={"junit": "build/*.xml"})
    assert project.build().code == 1
    assert problems(project) == [("E308", None)]


GREEN = 'mkdir -p build; echo "<testsuite><testcase name=\\"a\\"/></testsuite>" > build/j.xml'


def test_a_report_of_an_earlier_step_does_not_count(project: Project) -> None:
    results = {"junit": "build/*.xml"}
    steps = [{"shell": GREEN, "test_results": results}, {"shell": "true", "test_results": results}]
    alone(project, "echo 1 > out", outputs=["out"], verify=steps, scratch=["build/"])
    assert project.build().code == 1
    assert [one["data"]["passed"] for one in project.events_of("check_result")] == [True, False]
    assert problems(project) == [("E308", None)]


def test_a_report_of_an_earlier_attempt_or_run_does_not_count(project: Project, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    red = GREEN.replace("/></testsuite>", "><failure/></testcase></testsuite>").replace('"a\\"/', '"a\\"')
    shell = f"echo x >> {ran}; n=$(wc -l < {ran}); if [ $n = 1 ]; then {red}; exit 1; fi"
    # The first attempt has two runs: the second writes no report.
    more = {"retry": 1, "reruns": 1, "scratch": ["build/"], "sandbox": "off"}
    alone(project, shell, test_results={"junit": "build/*.xml"}, **more)
    assert project.build("--allow-unsandboxed").code == 1
    assert ran.read_text() == "x\n" * 3
    ends = [one["data"]["excerpt"] for one in project.events_of("attempt_finished")]
    assert ["E308" in one or "the step wrote no file" in one for one in ends] == [True, True], ends


def test_links_and_pipes_are_no_reports(project: Project) -> None:
    green = '<testsuite><testcase name="a"/></testsuite>'
    laid = f"mkdir build; cd build; echo '{green}' > $TMPDIR/x"
    shell = f"{laid}; ln -s $TMPDIR/x a.xml; ln $TMPDIR/x b.xml; mkfifo c.xml"
    alone(project, f"{shell}; ln -s $TMPDIR d", scratch=["build/"], test_results={"junit": "build/**"})
    assert project.build().code == 1
    assert problems(project) == [("E308", None)]


def test_the_key_is_only_in_the_key_of_a_stage_that_has_it(project: Project) -> None:
    tap = "printf 'TAP version 13\\nok 1 a\\n1..1\\n'"
    alone(project, tap)
    assert project.build().code == 0
    alone(project, tap, test_results={"tap": "stdout"})
    assert "test_results" in project.run("explain", "test").out
    assert project.build().code == 0
    assert project.plan()["test"] == "fresh"


def test_only_shell_steps_may_have_it(project: Project) -> None:
    results = {"tap": "stdout"}
    steps = [{"check": "python_syntax", "test_results": results}, {"pytest": [], "test_results": results}]
    stages: dict[str, dict[str, Any]] = {
        "a": {"shell": "true", "verify": steps},
        "b": {"pytest": ["t"], "test_results": {"tap": "../x"}},
    }
    project.write({**scripted(stages, {}), "t/test_a.py": ""})
    out = project.run("validate").err
    assert out.count("`test_results` is for shell steps") == 3


COUNTED = 'n=$(cat code.txt); echo "TAP version 13"; for i in $(seq $n); do echo "ok $i test $i"; done; echo "1..$n"\n'


def test_fewer_tests_than_in_the_last_result_with_the_same_tests_fail_the_stage(project: Project) -> None:
    stages = {
        "code": {"inputs": ["n.txt"], "outputs": ["code.txt"], "shell": "cp n.txt code.txt"},
        "test": {"inputs": ["t.sh", "code.txt"], "shell": "sh t.sh"},
    }
    project.write({**scripted(stages, {}), "n.txt": "3\n", "t.sh": COUNTED})
    assert project.build().code == 0
    project.edit("n.txt", "4\n")
    assert project.build().code == 0
    project.edit("n.txt", "2\n")
    assert project.build().code == 1
    ended = {one["role"]: one["data"] for one in project.events_of("stage_finished")}
    assert [one["code"] for one in ended["test"]["problems"]] == ["E305"]
    assert "2 tests were reported, and 4 by the last result" in ended["test"]["problems"][0]["message"]
    assert project.build().code == 1, "a failed run is not a result"
    project.edit("t.sh", f"# other tests\n{COUNTED}")
    assert project.build().code == 0


def test_equal_lines_of_a_linter_are_one_line_of_the_feedback(project: Project) -> None:
    line = 'f"src/a.py:{number + 1}:80: E501 Line too long ({90 + number} > 79)"'
    lint = f"for number in range(80): print({line})\nexit(1)\n"
    with_test(project, lint, {"shell": "python t.py"})
    assert project.build().code == 1
    prompt = second_prompt(project)
    assert prompt.count("Line too long") == 1
    assert "and 79 more such: src/a.py:2:80, src/a.py:3:80" in prompt


def test_findings_are_named_and_a_pattern_of_lines_is_read(project: Project) -> None:
    step = {
        "shell": "python t.py",
        "test_results": {"regex": "stdout", "line": "^test (?P<id>.+) [.]{3} (?P<outcome>.+)"},
    }
    test = 'import sub\nprint("test small ... " + ("ok" if sub.sub(3, 2) == 1 else "FAILED"))\n'
    with_test(project, test, step)
    assert project.build().code == 0
    assert "1 failed" in second_prompt(project)
    sarif = '{"runs": [{"results": [{"level": "error", "ruleId": "E1", "message": {"text": "too long"}}]}]}'
    alone(project, f"echo '{sarif}'", findings={"sarif": "stdout"})
    assert project.build().code == 1
    assert problems(project) == [("E301", "E1")]


def test_patterns_and_places_that_cannot_be_used_are_errors(project: Project) -> None:
    stages = {
        "a": {"shell": "true", "test_results": {"regex": "stdout"}},
        "b": {"shell": "true", "test_results": {"regex": "stdout", "line": "(?P<id>a)"}},
        "c": {"shell": "true", "test_results": {"regex": "stdout", "line": "(?P<id>a)(?P<outcome>b)\\1"}},
        "d": {"shell": "true", "test_results": {"tap": "stdout", "line": "a"}},
        "e": {"shell": "true", "test_results": {"tap": "../x"}},
        "f": {"shell": "true", "test_results": {"tap": "stdout"}, "findings": {"sarif": "stdout"}},
    }
    project.write(scripted(stages, {}))
    err = project.run("validate").err
    assert err.count("error[") == len(stages)
    for message in (
        "`line` is missing",
        "`line` has no group `(?P<outcome>...)`",
        "`line` is not supported by RE2",
        "`line` belongs to `regex`",
        "the path `../x` climbs out",
        "`test_results` and `findings` contradict each other",
    ):
        assert message in err
