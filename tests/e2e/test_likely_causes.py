"""The likely cause of a failure: only from facts, with a change of the pipeline that makes the build pass."""

import json
import re
import shutil
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project import Outcome, Project

HEAD = "version: 1\nname: p\nstages:\n"


def failed(
    project: Project, stages: str, files: Mapping[str, str] = {}, env: Mapping[str, str] | None = None
) -> Outcome:
    project.write({"pipeline.yaml": HEAD + stages, **files})
    outcome = project.build(env=env)
    assert outcome.code != 0
    return outcome


def apply_shown_change(project: Project, shown: str, name: str | None = None) -> None:
    """Write the key that the screen shows, as a user does: `...` are the items that are there."""
    found = re.search(r"--> pipeline\.yaml:\d+:\d+\n +\+ (.*)\n", shown)
    assert found is not None
    pipeline = yaml.safe_load(project.read("pipeline.yaml"))
    _merge(pipeline["stages"][name or next(iter(pipeline["stages"]))], yaml.safe_load(found[1]))
    project.edit("pipeline.yaml", yaml.safe_dump(pipeline, sort_keys=False))


def _merge(old: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and key in old:
            _merge(old[key], value)
        else:
            is_list = isinstance(value, list) and value[0] == "..."
            old[key] = [*old.get(key, []), *value[1:]] if is_list else value


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("stages", "key"),
    [
        ("  a:\n    inputs: [b.txt]\n    shell: cat b.txt docs/a.md\n", "inputs"),
        ("  a:\n    inputs:\n      - b.txt\n    shell: cat b.txt docs/a.md\n", "inputs"),
        ("  a:\n    shell: cat docs/a.md\n", "inputs"),
        ("  a: {shell: cat docs/a.md}\n", "inputs"),
        ("  a:\n    shell: ls docs\n", "inputs"),
        ("  a:\n    shell: python -c \"open('docs/a.md')\"\n", "inputs"),
        ("  a:\n    cwd: docs\n    inputs: [docs/b.md]\n    shell: head -n1 a.md\n", "inputs"),
        ("  a:\n    shell: 'true'\n    verify: {inputs: [b.txt], steps: [{shell: cat docs/a.md}]}\n", "verify.inputs"),
    ],
)
def test_an_undeclared_input_is_named_and_the_shown_change_makes_the_build_pass(
    project: Project, stages: str, key: str
) -> None:
    files = {"docs/a.md": "a\n", "docs/b.md": "b\n", "b.txt": "b\n"}
    shown = failed(project, stages, files).err
    assert f"is in the project, but not in `{key}`" in shown
    apply_shown_change(project, shown)
    passed = project.build()
    assert passed.code == 0, passed.err


@pytest.mark.slow
@pytest.mark.parametrize("place", ["node_modules/.bin/tool", "node_modules/tool/index.js"])
@pytest.mark.parametrize(
    "line",
    [
        "sh: 1: tool: not found",
        "Error: Cannot find module 'tool'",
        "npm error code EAI_AGAIN\nnpm error request to https://registry.npmjs.org/tool failed, reason: getaddrinfo",
    ],
)
def test_what_npm_installed_is_an_undeclared_input(project: Project, place: str, line: str) -> None:
    command = f'test -e {place} || {{ echo "$LINE" >&2; exit 127; }}'
    verify = {"inputs": ["**"], "steps": [{"shell": command}]}
    stage = {"shell": "true", "env": {"LINE": line}, "verify": verify}
    shown = failed(project, f"  a: {json.dumps(stage)}\n", {place: "#!/bin/sh\n", "b.txt": "b\n"}).err
    assert "`tool` is in `node_modules/`, which is not in `verify.inputs`; wildcards skip it" in shown
    apply_shown_change(project, shown)
    passed = project.build()
    assert passed.code == 0, passed.err


@pytest.mark.slow
def test_a_module_of_the_project_is_an_undeclared_input(project: Project) -> None:
    stages = "  t:\n    inputs: [test_a.py]\n    pytest: {paths: [test_a.py]}\n"
    files = {"app.py": "X = 1\n", "test_a.py": "import app\n\n\ndef test_x():\n    assert app.X\n"}
    shown = failed(project, stages, files).err
    assert "`app.py` is in the project, but not in `inputs`" in shown
    apply_shown_change(project, shown)
    assert project.build().code == 0


@pytest.mark.slow
def test_a_module_below_src_needs_the_path(project: Project) -> None:
    stages = "  t:\n    inputs: [test_a.py, src/]\n    pytest: {paths: [test_a.py]}\n"
    files = {"src/app.py": "X = 1\n", "test_a.py": "import app\n\n\ndef test_x():\n    assert app.X\n"}
    shown = failed(project, stages, files).err
    assert "`app` is in `src`" in shown
    apply_shown_change(project, shown)
    assert project.build().code == 0


@pytest.mark.slow
def test_a_timeout_or_a_limit_is_an_error_with_its_key_and_no_likely_cause(project: Project) -> None:
    late = failed(project, "  a:\n    timeout: 1s\n    shell: sleep 1.2\n").err
    assert "  = E304: correct what does not end, such as a loop, or make it faster; else raise `timeout`\n" in late
    take = 'python -c "import time; x = bytearray(90 << 20); time.sleep(0.6)"'
    large = failed(project, f"  a:\n    limits: {{memory: 64MiB}}\n    shell: {take}\n").err
    assert "67108864 bytes of memory (`limits.memory`)" in large
    assert "Fix: use less, raise the limit in `limits` of the stage, or split the stage.\n" in large
    assert "cause" not in late + large


@pytest.mark.slow
def test_a_variable_of_the_user_is_named_and_its_value_is_not(project: Project) -> None:
    env = {"SERVICE_URL": "value-of-the-user"}
    shown = failed(project, "  a:\n    shell: set -u; echo $SERVICE_URL\n", env=env).err
    assert "`SERVICE_URL` is set in your environment, but a step gets only the variables in `env`" in shown
    assert "value-of-the-user" not in shown
    apply_shown_change(project, shown)
    assert project.build(env=env).code == 0


def test_a_variable_that_no_step_may_have_gets_no_line(project: Project) -> None:
    command = "  a:\n    shell: set -u; echo $SERVICE_API_KEY\n"
    shown = failed(project, command, env={"SERVICE_API_KEY": "kQ8vT2mZ7xLp4Rw9"}).err
    assert "`env` refuses `SERVICE_API_KEY`" in shown
    assert " + " not in shown


def test_a_variable_that_the_user_has_not_set_is_no_cause(project: Project) -> None:
    assert "cause" not in failed(project, "  a:\n    shell: set -u; echo $SERVICE_URL\n").err


@pytest.mark.needs("toolchains")
def test_a_program_of_the_user_is_named(project: Project) -> None:
    tool = project.home / "bin" / "wordcount"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    stages = "  a:\n    shell: wordcount x\n"
    assert "cause" not in failed(project, stages).err
    shown = failed(project, stages, env={"PATH": f"{tool.parent}:/usr/bin:/bin"}).err
    assert f"`wordcount` is {tool}, which a step sees only if its stage names the tool" in shown
    assert "+ tools: [..., wordcount]" in shown


def test_a_name_that_no_disk_can_have_is_no_cause(project: Project) -> None:
    """Case: the build ended with `File name too long`, since a step printed a long word before `: not found`."""
    code = (
        "print('x' * 300 + ': not found'); print('/' + 'y' * 290 + ': No such file or directory'); raise SystemExit(3)"
    )
    shown = failed(project, f'  a:\n    shell: |\n      python3 -c "{code}"\n').err
    assert shown.splitlines()[-1] == "failed: a (pipeline.yaml:4:3): exited with 3"


def add_tool(project: Project, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\necho of the tool\n")
    place.chmod(0o755)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("written", ["~/bin/tool", "$HOME/bin/tool", "{outside}/tool"])
def test_a_program_by_its_path_is_named_and_not_proposed(project: Project, tmp_path: Path, written: str) -> None:
    outside = tmp_path / "outside"
    add_tool(project, outside / "tool" if "{" in written else project.home / "bin" / "tool")
    command = written.format(outside=outside)
    shown = failed(project, f"  a:\n    outputs: [a.txt]\n    shell: {command} > a.txt\n").err
    assert f"`{command.replace('$HOME', '~')}` is on this machine, but a step cannot see" in shown
    assert "= help: a step sees only its `inputs`, which are files of the project\n" in shown
    assert "/room/" not in shown
    assert " + " not in shown


@pytest.mark.slow
def test_a_program_on_the_path_is_copied_as_the_screen_says_and_the_build_passes(project: Project) -> None:
    tool = add_tool(project, project.home / "opt/bin/tool")
    env = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
    shown = failed(project, "  a:\n    outputs: [a.txt]\n    shell: tool > a.txt\n", env=env).err
    assert "= help: copy it to `tools/tool` first, and write that in place of `tool` in the command; " in shown
    (project.root / "tools").mkdir()
    shutil.copy(tool, project.root / "tools")
    apply_shown_change(project, shown)
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("tool >", "tools/tool >"))
    assert project.build(env=env).code == 0
    assert project.read("a.txt") == "of the tool\n"


@pytest.mark.needs("toolchains")
def test_a_program_of_a_known_place_is_proposed_as_a_tool_and_the_build_passes(project: Project) -> None:
    tool = add_tool(project, project.home / ".local/bin/tool")
    env = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
    shown = failed(project, "  a:\n    outputs: [a.txt]\n    shell: tool > a.txt\n", env=env).err
    apply_shown_change(project, shown)
    assert project.build(env=env).code == 0
    assert project.read("a.txt") == "of the tool\n"


@pytest.mark.parametrize(
    "path", ["~/.ssh/id_rsa", "~/secrets.json", "~/.config/x/tool", "/usr/bin/true-not-there", "~/no", "/etc/shadow"]
)
def test_a_private_or_missing_path_outside_is_not_proposed(project: Project, path: str) -> None:
    for name in (".ssh/id_rsa", "secrets.json", ".config/x/tool"):
        add_tool(project, project.home / name)
    assert "cause" not in failed(project, f"  a:\n    shell: cat {path}\n").err


def test_output_cannot_make_a_file_outside_a_proposal(project: Project) -> None:
    (project.home / "data.csv").write_text("x\n")
    command = "printf 'cat: %s/data.csv: No such file or directory' \"$HOME\"; exit 1"
    assert "cause" not in failed(project, f"  a:\n    shell: |\n      {command}\n").err


def test_an_absolute_path_of_the_project_is_shown_as_the_step_has_it(project: Project) -> None:
    whole = project.root / "docs/a.md"
    shown = failed(project, f"  a:\n    shell: cat {whole}\n", {"docs/a.md": "a\n"}).err
    assert f"`{whole}` is the project's `docs/a.md`" in shown
    assert "+ inputs: [..., docs/a.md]" in shown
    assert f"= help: write `docs/a.md` in place of `{whole}`\n" in shown
    assert "  next: make this change, then `orch23 build`\n" in shown


@pytest.mark.needs("exports")
@pytest.mark.slow
def test_a_connection_to_this_machine_is_a_possible_cause_and_not_in_the_feedback(project: Project) -> None:
    code = "import urllib.request as u; u.urlopen('http://127.0.0.1:9/')"
    shown = failed(project, f'  a:\n    shell: python -c "{code}"\n').err
    assert "\n  possible cause: `127.0.0.1` in a step is the step itself" in shown
    assert shown.splitlines()[-1].startswith("failed: a (pipeline.yaml:4:3): possible cause: `127.0.0.1`")
    (event,) = project.events_of("stage_finished")
    assert event["data"]["cause"]["kind"] == "network_use"
    (attempt,) = project.events_of("attempt_finished")
    assert "possible cause" not in str(attempt["data"])
    assert "in a step is" not in str(attempt["data"])
    report = project.build("--output", "junit").out
    assert "possible cause: `127.0.0.1` in a step" in report


def test_a_denied_network_is_named_unless_the_stage_has_it(project: Project) -> None:
    say = "shell: 'echo \"curl: (6) Could not resolve host: example.com\"; exit 6'"
    shown = failed(project, f"  a:\n    {say}\n").err
    assert "likely cause: the step has no access to the network" in shown
    apply_shown_change(project, shown)
    assert "    network: true\n" in project.read("pipeline.yaml")
    assert "cause" not in project.build().err


@pytest.mark.parametrize(
    "named",
    [".env", "secrets.json", "id_rsa", ".git/config", "../outside.txt", "/etc/shadow", "logs/x", "link.txt", "d/"],
)
def test_output_cannot_make_a_private_file_a_proposal(project: Project, named: str) -> None:
    for name in (".env", "secrets.json", "id_rsa", ".git/config", "logs/x", "d/.env", "d/a.txt"):
        project.write({name: "x\n"})
    Path(project.root.parent, "outside.txt").write_text("x\n")
    (project.root / "link.txt").symlink_to("d/a.txt")
    shown = failed(project, f"  a:\n    shell: 'echo \"cat: {named}: No such file or directory\"; exit 1'\n").err
    assert "cause" not in shown


def test_an_output_of_a_later_stage_is_not_proposed(project: Project) -> None:
    stages = "  a: {outputs: [a.txt], shell: cat b.txt > a.txt}\n"
    stages += "  b: {inputs: [a.txt], outputs: [b.txt], shell: cp a.txt b.txt}\n"
    shown = failed(project, stages, {"b.txt": "x\n"}).err
    assert "cause" not in shown


@pytest.mark.needs("exports")
@pytest.mark.slow
def test_the_cause_is_in_the_event_and_the_report_and_not_in_the_feedback(project: Project) -> None:
    failed(project, "  a:\n    inputs: [b.txt]\n    shell: cat docs/a.md\n", {"docs/a.md": "a\n", "b.txt": "b\n"})
    (event,) = project.events_of("stage_finished")
    assert event["data"]["cause"] == {
        "kind": "undeclared_input",
        "text": "`docs/a.md` is in the project, but not in `inputs`, so the stage does not get it",
        "key": "inputs",
        "value": "docs/a.md",
        "appends": True,
    }
    assert event["data"]["exit_code"] == 1
    assert "in the project" not in event["data"]["failure"]
    (attempt,) = project.events_of("attempt_finished")
    assert "in the project" not in str(attempt["data"])
    report = project.build("--output", "junit").out
    assert "likely cause: `docs/a.md` is in the project" in report


def test_the_last_line_is_the_first_cause_in_the_order_of_the_plan(project: Project) -> None:
    stages = "  b: {shell: sleep 0.3; exit 5}\n  c: {needs: [b], shell: 'true'}\n  a: {shell: exit 4}\n"
    project.write({"pipeline.yaml": HEAD + stages})
    last = project.build("--keep-going").err.splitlines()[-1]
    assert last == "failed: b (pipeline.yaml:4:3): exited with 5 and printed nothing (and 1 more stage)"


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stages", "entry"),
    [
        ("  a: {outputs: [gen.h], shell: echo > gen.h}\n  b: {needs: [a], shell: cat gen.h}\n", "gen.h"),
        ("  b: {shell: cat gen.h}\n  z: {outputs: [gen.h], shell: sleep 0.3; echo > gen.h}\n", "gen.h"),
        ("  a: {outputs: [d/], shell: mkdir -p d; echo > d/x}\n  b: {needs: [a], shell: cat d/x}\n", "d/x"),
        ("  a: {outputs: [d/x], shell: mkdir -p d; echo > d/x}\n  b: {needs: [a], shell: ls d}\n", "d/"),
        ("  a: {outputs: [m.py], shell: echo > m.py}\n  b: {needs: [a], shell: python -c 'import m'}\n", "m.py"),
        (
            "  b: {shell: cat d/y}\n  f: {foreach: {in: [y]}, outputs: ['d/${{ item }}'], shell: echo > d/y}\n",
            "d/y",
        ),
    ],
)
def test_a_file_of_another_stage_is_named_in_the_first_build_and_in_the_second(
    project: Project, stages: str, entry: str
) -> None:
    first = failed(project, stages.replace("shell: ", 'shell: "').replace("}\n", '"}\n')).err
    assert f"likely cause: `{entry}` is in the project, but not in `inputs`" in first
    assert f"likely cause: `{entry}`" in project.build().err
    apply_shown_change(project, first, "b")
    passed = project.build()
    assert passed.code == 0, passed.err


def environment(project: Project) -> Path:
    """Give the project an environment; return the directory of its packages."""
    venv.create(project.root / ".venv", with_pip=False)
    return next((project.root / ".venv").glob("lib/python3*/site-packages"))


def test_a_package_that_is_not_installed_names_the_interpreter(project: Project) -> None:
    """Also one that is installed as editable, from a directory that the step does not see."""
    (environment(project) / "mypkg.pth").write_text(f"{project.root}/lib\n")
    shown = failed(project, '  a:\n    inputs: ["lib/**"]\n    shell: python -m mypkg\n', {"lib/mypkg/a.py": ""}).err
    assert f"`mypkg` is not installed in the interpreter of the stage, {project.root}/.venv/bin/python\n" in shown
    assert "install the package that has it there, without `-e`; or name another interpreter in `python:`" in shown


@pytest.mark.slow
def test_a_module_in_src_needs_it_on_the_path_of_a_command(project: Project) -> None:
    environment(project)
    files = {"src/mypkg/__init__.py": "", "src/mypkg/__main__.py": "print(1)\n"}
    shown = failed(project, '  a:\n    inputs: ["src/**"]\n    shell: python -m mypkg\n', files).err
    assert "+ env: {PYTHONPATH: src}\n" in shown
    apply_shown_change(project, shown)
    passed = project.build()
    assert passed.code == 0, passed.err
