"""Code of a plugin that fails: the plugin is named, other stages are built, and the record of the run is whole."""

import json
import re

import pytest

from tests.installed import CODE, ENTRIES, Install
from tests.project import Outcome, Project

FAIL = "raise ValueError('boom\\n  of the plugin')"
PIPELINE = """\
version: 1
plugins: [{name}]
executor: local
stages:
  other: {{render: t.j2, outputs: [other.txt]}}
  mine: {{{mine}}}
  after: {{inputs: [mine.txt], outputs: [after.txt], shell: [cp, mine.txt, after.txt]}}
"""
UPPER = "upper: {text: x}, outputs: [mine.txt]"
EACH = "foreach: {in: [mine.txt]}, upper: {text: x}, outputs: ['${{ item }}']"
SHELL = "shell: [touch, mine.txt], outputs: [mine.txt]"
CHECKED = "render: t.j2, outputs: [mine.txt], verify: [{check: no_word}]"
ASKS = "llm: {provider: parrot, model: polly, prompt: t.j2, returns: code}, outputs: [mine.txt]"


def installed(install: Install, before: str, after: str) -> str:
    assert CODE.count(before) == 1, before
    code, entries = (text.replace("acme_checks", "{name}") for text in (CODE.replace(before, after), ENTRIES))
    return install(code, entries)


def project_with(project: Project, name: str, mine: str) -> Project:
    return project.write({"pipeline.yaml": PIPELINE.format(name=name, mine=mine), "t.j2": "text"})


def assert_named(outcome: Outcome, name: str, function: str) -> None:
    """The screen names the plugin, its version, the exception and the place, and no fault of orch23."""
    reported = " ".join(outcome.err.split())
    what = r"(ValueError: boom of the plugin|PermissionError: \[Errno 13\] boom of the plugin|SystemExit: 0)"
    said = rf"E847\]: the code of the plugin {name} 1\.0 failed: {what} \(`{function}`, {name}:\d+\)"
    assert re.search(said, reported), outcome.err
    assert "report it to the author of the plugin, or remove it from `plugins`" in reported
    assert "bug in orch23" not in reported


def last_run(project: Project) -> list[dict[str, object]]:
    return [json.loads(line) for line in project.journals()[-1].read_text().splitlines()]


@pytest.mark.needs("inspecting")
@pytest.mark.parametrize(
    ("mine", "before", "after", "function"),
    [
        (UPPER, '        return {"kind": "upper",', f"        {FAIL}\n        return {{'kind': 'upper',", "aspects"),
        (UPPER, "        data = (step", f"        {FAIL}\n        data = (step", "attempt"),
        (UPPER, "        data = (step", "        raise SystemExit(0)\n        data = (step", "attempt"),
        (CHECKED, "    bad = [", f"    {FAIL}\n    bad = [", "run"),
        (CHECKED, "    bad = [", "    raise PermissionError(13, 'boom of the plugin')\n    bad = [", "run"),
        (ASKS, '        return Response(text=f"', f'        {FAIL}\n        return Response(text=f"', "complete"),
    ],
)
def test_a_stage_fails_and_others_are_built(
    project: Project, install: Install, mine: str, before: str, after: str, function: str
) -> None:
    name = installed(install, before, after)
    outcome = project_with(project, name, mine).build("-k")
    assert outcome.code == 78
    assert_named(outcome, name, function)
    assert project.read("other.txt") == "text"
    ends = {str(one["role"]): one["data"] for one in last_run(project) if one["type"] == "stage_finished"}
    assert {role: data["status"] for role, data in ends.items()} == {  # type: ignore[index]
        "other": "built",
        "mine": "failed",
        "after": "blocked",
    }
    assert last_run(project)[-1]["type"] == "run_finished"
    assert "failed" in project.run("runs").out
    assert project.run("status").code in (0, 78)
    fixed = installed(install, before, before)
    project.replace("pipeline.yaml", name, fixed)
    outcome = project.build("-v")
    assert (outcome.code, project.read("after.txt")) == (0, project.read("mine.txt")), outcome.err
    assert re.search("= other +fresh", outcome.err), outcome.err


@pytest.mark.parametrize(
    ("mine", "before", "after", "function"),
    [
        (UPPER, "at: UpperStep(document", "at: fail() or UpperStep(document", "fail"),
        (ASKS, "    is_remote = False", "    is_remote, check = False, lambda *_: fail()", "fail"),
        (ASKS, "    is_remote = False", "    is_remote = property(lambda self: fail())", "fail"),
        (ASKS, "    is_remote = False", "    is_remote, ready = False, lambda *_: fail()", "fail"),
    ],
)
def test_what_fails_before_anything_is_built_stops_the_command(
    project: Project, install: Install, mine: str, before: str, after: str, function: str
) -> None:
    fail = f"def fail():\n    {FAIL}\n\n\nclass UpperDocument("
    assert CODE.count("class UpperDocument(") == 1
    code = CODE.replace("class UpperDocument(", fail).replace(before, after)
    name = install(code.replace("acme_checks", "{name}"), ENTRIES.replace("acme_checks", "{name}"))
    outcome = project_with(project, name, mine).build("--offline")
    assert outcome.code == 78
    assert_named(outcome, name, function)
    assert not project.exists("other.txt")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('    endpoint = "parrot"\n', "", "it must define `endpoint`"),
        (
            '    endpoint = "parrot"\n',
            '    def endpoint(self):\n        return "parrot"\n\n',
            "its `endpoint` must be a value or a property, not a method",
        ),
        ("    is_remote = False", '    sends = ("top",)', "its `sends` has `top`, which is not a field of `llm`"),
        ("class ParrotAdapter(Adapter):", "class ParrotAdapter:", "it must be a subclass of `Adapter`"),
        (
            "class ParrotAdapter(Adapter):",
            "ParrotAdapter = 3\nclass Other(Adapter):",
            "it must be a subclass of `Adapter`",
        ),
    ],
)
def test_a_provider_that_cannot_be_used(project: Project, install: Install, before: str, after: str, why: str) -> None:
    name = installed(install, before, after)
    outcome = project_with(project, name, ASKS).build()
    assert outcome.code == 78
    assert f"error[E845]: `parrot` of the plugin {name} 1.0 (orch23.providers) cannot be used: {why}" in outcome.err


@pytest.mark.parametrize("when", ["made", "reported", "told twice"])
def test_an_output_format_that_fails_stops_no_build(project: Project, install: Install, when: str) -> None:
    if when == "made":
        name = installed(install, "    class Shouting:", f"    {FAIL}\n    class Shouting:")
    else:
        name = installed(
            install, '            if event.type == "stage_finished":', f"            {FAIL}\n            if event:"
        )
    project_with(project, name, SHELL)
    outcome = project.build("--output", "shout")
    assert outcome.code == 78
    assert_named(outcome, name, "observer" if when == "made" else "notice")
    if when == "made":
        return
    assert project.exists("after.txt")
    assert last_run(project)[-1]["data"]["exit_code"] == 0  # type: ignore[index]
    project.replace("pipeline.yaml", "touch, mine.txt", '"false"')
    outcome = project.build("--output", "shout")
    assert outcome.code == 1, "the build failed, and that counts for more"
    assert_named(outcome, name, "notice")


@pytest.mark.parametrize("method", ["run", "__init__", "close"])
def test_an_executor_that_fails(project: Project, install: Install, method: str) -> None:
    before = {
        "run": "        entry = FileEntry(self.contents.put(",
        "__init__": "        self.contents = surroundings.contents",
        "close": "    def close(self):\n        pass",
    }[method]
    after = f"        {FAIL}\n{before}" if method != "close" else f"    def close(self):\n        {FAIL}"
    name = installed(install, before, after)
    project_with(project, name, SHELL).replace("pipeline.yaml", "executor: local", "executor: pretend")
    outcome = project.build("-k")
    assert outcome.code == 78
    assert_named(outcome, name, method)
    if method == "run":
        assert project.read("other.txt") == "text"
        assert last_run(project)[-1]["type"] == "run_finished"
    assert project.run("plan").code == 0


def test_a_part_of_a_step_that_cannot_be_loaded(project: Project, install: Install) -> None:
    name = installed(install, "acme_checks:RUN", "acme_checks:NO_RUN")
    outcome = project_with(project, name, UPPER).build("-k")
    reported = " ".join(outcome.err.split())
    said = f"`{name}:NO_RUN` of the plugin {name} 1.0 cannot be used: AttributeError: module '{name}' has no attribute"
    assert (outcome.code, said in reported) == (78, True), outcome.err
    assert project.read("other.txt") == "text"
    name = installed(install, "acme_checks:LANGUAGE", "acme_checks:NO_WORD")
    outcome = project_with(project, name, UPPER).build()
    assert (outcome.code, "it must be a `Language`, and is Check" in outcome.err) == (78, True), outcome.err


def test_a_check_that_does_not_return_diagnostics(project: Project, install: Install) -> None:
    name = installed(install, "    return tuple(Diagnostic", "    tuple(Diagnostic")
    outcome = project_with(project, name, CHECKED).build("-k")
    reported = " ".join(outcome.err.split())
    said = f"E845]: `no_word` of the plugin {name} 1.0 (orch23.checks) cannot be used: it did not return a tuple of"
    assert (outcome.code, said in reported) == (78, True), outcome.err


def test_an_error_in_orch23_names_the_plugins_that_it_uses(project: Project, install: Install) -> None:
    """An executor that returns nothing fails in orch23: it may be the fault of either."""
    name = installed(install, "        return Completed(", "        Completed(")
    project_with(project, name, SHELL).replace("pipeline.yaml", "executor: local", "executor: pretend")
    outcome = project.build()
    assert outcome.code == 70
    assert "\nerror: this is a bug in orch23 or in a plugin that it uses, acme_" in outcome.err
    assert f"{name} 1.0 (AssertionError: " in outcome.err
