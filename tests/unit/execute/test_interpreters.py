"""Finding interpreters and reading their facts, on trees of files that no process is started from."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.decide.machine_facts import FactFinder
from orch23.execute.interpreters import (
    InterpreterFacts,
    find_interpreter,
    has_installed_module,
    interpreter_facts,
    matching_interpreter,
    read_pyvenv_config,
    tool_digest,
)
from orch23.model.action import Interpreter
from orch23.model.errors import ConfigurationError, ExitCode
from orch23.model.pipeline import Stage
from orch23.steps.shell.spec import ShellStep


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path


def test_the_declared_one_wins_then_the_active_environment_then_the_roots(tmp_path: Path) -> None:
    own = program(tmp_path / ".venv/bin/python")
    active = program(tmp_path / "active/bin/python")
    declared = program(tmp_path / "tools/python3.12")
    environ = {"VIRTUAL_ENV": str(tmp_path / "active"), "PATH": str(tmp_path / "tools")}
    assert find_interpreter("tools/python3.12", tmp_path, environ) == declared
    assert find_interpreter(str(declared), tmp_path, {}) == declared
    assert find_interpreter("python3.12", tmp_path, environ) == declared
    assert find_interpreter("active", tmp_path, {}) == active
    assert find_interpreter(None, tmp_path, environ) == active
    assert find_interpreter(None, tmp_path, {}) == own
    assert find_interpreter(None, tmp_path / "tools", {}) == Path(sys.executable)


@pytest.mark.parametrize("declared", ["nowhere/python", "no-such-python", "empty", "empty/plain"])
def test_a_missing_one_is_named_with_a_way_out(tmp_path: Path, declared: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/plain").write_text("no program")
    with pytest.raises(ConfigurationError) as caught:
        find_interpreter(declared, tmp_path, {"PATH": str(tmp_path)})
    assert [d.code for d in caught.value.diagnostics] == ["E480"]
    assert declared in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].hint
    assert caught.value.exit_code is ExitCode.CONFIG


def test_a_stale_active_environment_is_not_passed_over(tmp_path: Path) -> None:
    program(tmp_path / ".venv/bin/python")
    with pytest.raises(ConfigurationError):
        find_interpreter(None, tmp_path, {"VIRTUAL_ENV": str(tmp_path / "gone")})


def environment(root: Path, config: str, pytest_version: str | None) -> Path:
    python = program(root / "bin/python")
    (root / "pyvenv.cfg").write_text(config)
    packages = root / "lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (packages / "pytest_cov-5.0.0.dist-info").mkdir()
    if pytest_version:
        (packages / f"pytest-{pytest_version}.dist-info").mkdir()
    return python


@pytest.mark.parametrize("key", ["version = 3.12.4", "version_info = 3.12.4.final.0", "VERSION=3.12"])
def test_an_environment_says_its_version(tmp_path: Path, key: str) -> None:
    python = environment(tmp_path / "v", f"home = /usr/bin\n{key}\n", "8.3.4")
    assert interpreter_facts(python) == InterpreterFacts("3.12", "8")


def test_a_setting_of_an_environment_that_cannot_be_a_path_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr\0/bin\nversion = 3.12\n")
    assert read_pyvenv_config(tmp_path / "pyvenv.cfg") == {"version": "3.12"}


def test_no_pytest_is_none_unless_the_systems_packages_are_seen(tmp_path: Path) -> None:
    system = tmp_path / "sys/lib/python3/dist-packages"
    system.mkdir(parents=True)
    (system / "pytest-7.2.1.egg-info").mkdir()
    config = f"home = {tmp_path / 'sys/bin'}\nversion = 3.12.0\ninclude-system-site-packages = "
    assert interpreter_facts(environment(tmp_path / "a", config + "false\n", None)).pytest_major == ""
    assert interpreter_facts(environment(tmp_path / "b", config + "true\n", None)).pytest_major == "7"
    assert interpreter_facts(environment(tmp_path / "c", config + "true\n", "9.0.1")).pytest_major == "9"


def test_outside_an_environment_the_resolved_name_or_the_library_says_it(tmp_path: Path) -> None:
    named = program(tmp_path / "usr/bin/python3.13")
    (tmp_path / "usr/bin/python3").symlink_to(named)
    (tmp_path / "usr/lib/python3/dist-packages/pytest-8.0.0.dist-info").mkdir(parents=True)
    assert interpreter_facts(tmp_path / "usr/bin/python3") == InterpreterFacts("3.13", "8")
    other = program(tmp_path / "opt/bin/python")
    (tmp_path / "opt/lib/python3.10").mkdir(parents=True)
    (tmp_path / "opt/lib/python3.10/os.py").touch()
    assert interpreter_facts(other).version == "3.10"


def test_a_wrapper_script_has_no_version_and_that_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        interpreter_facts(program(tmp_path / "shims/python"))
    assert [d.code for d in caught.value.diagnostics] == ["E481"]


def test_the_facts_of_this_interpreter_are_true() -> None:
    facts = interpreter_facts(Path(sys.executable))
    assert facts == InterpreterFacts(
        f"{sys.version_info.major}.{sys.version_info.minor}", pytest.__version__.split(".")[0]
    )


def test_an_action_gets_the_interpreter_that_its_key_was_computed_with_or_none(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv", "version = 3.12.4\n", "8.3.1")
    for wanted in (Interpreter(), Interpreter(None, "3.12"), Interpreter(".venv", "3.12", "8")):
        assert matching_interpreter(wanted, tmp_path, {}) == python
    for wanted, needed in (
        (Interpreter(None, "3.11", "8"), "Python 3.11 with pytest 8"),
        (Interpreter(".venv", "3.12", "9"), "Python 3.12 with pytest 9"),
        (Interpreter(None, "3.13"), "Python 3.13"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            matching_interpreter(wanted, tmp_path, {})
        (problem,) = caught.value.diagnostics
        assert problem.code == "E480"
        assert problem.message.endswith(f"the stage needs {needed}, this is Python 3.12 with pytest 8")
    with pytest.raises(ConfigurationError, match="E480"):
        matching_interpreter(Interpreter("no-such-python"), tmp_path, {})


@pytest.mark.parametrize("declared", ["/opt/envs/a/bin/python", "envs/a", "venv", "python3.12-of-the-project"])
def test_a_worker_finds_an_interpreter_of_another_machine_by_its_version(tmp_path: Path, declared: str) -> None:
    python = environment(tmp_path / ".venv", "version = 3.12.4\n", "8.3.1")
    assert matching_interpreter(Interpreter.of(declared, "3.12", "8"), tmp_path, {}) == python
    with pytest.raises(ConfigurationError) as caught:
        matching_interpreter(Interpreter.of(declared, "3.11"), tmp_path, {})
    (problem,) = caught.value.diagnostics
    assert problem.code == "E480"
    assert problem.message.endswith("the stage needs Python 3.11, this is Python 3.12 with pytest 8")


def test_two_paths_of_stages_differ_on_the_machine_of_the_project(tmp_path: Path) -> None:
    one, other = (environment(tmp_path / name, "version = 3.12.4\n", "8.3.1") for name in ("one", "other"))
    finder = FactFinder(tmp_path, {})
    for path, found in (("./one", one), (str(other), other)):
        facts = finder.facts_of(Stage(name="s", step=ShellStep(("true",)), python=path))
        wanted = Interpreter.of(path, facts.python, facts.pytest)
        assert "/" not in str(wanted.declared)
        assert finder.path_of(wanted) == Path(facts.interpreter) == found


def test_the_facts_of_a_stage_and_its_action_are_of_one_interpreter(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv", "version = 3.12.4\n", "8.3.1")
    finder = FactFinder(tmp_path, {})
    facts = finder.facts_of(Stage(name="s", step=ShellStep(("true",))))
    wanted = Interpreter(None, facts.python, facts.pytest)
    (tmp_path / ".venv/pyvenv.cfg").write_text("version = 3.13.0\n")  # replaced while a build runs whose keys say 3.12
    assert (Path(facts.interpreter), finder.path_of(wanted)) == (python, python)
    with pytest.raises(ConfigurationError):
        FactFinder(tmp_path, {}).path_of(wanted)


def test_no_process_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr(subprocess, "Popen", never)
    python = environment(tmp_path / "v", "version = 3.12.4\n", "8.3.4")
    interpreter_facts(find_interpreter(str(python), tmp_path, {}))


def test_a_tool_is_known_by_its_bytes_through_links(tmp_path: Path) -> None:
    tool = program(tmp_path / "real/tool-1.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").symlink_to(tool)
    (tmp_path / "bin/plain").write_text("no program")
    assert tool_digest("tool", [tmp_path / "bin"]) == hashlib.sha256(tool.read_bytes()).hexdigest()
    assert tool_digest("plain", [tmp_path / "bin"]) is None
    assert tool_digest("none", [tmp_path / "bin", "/nowhere"]) is None


# ---- installed modules -----------------------------------------------------------------------------


def installed(root: Path, name: str, *files: str, origin: str = "") -> None:
    packages = root / "lib/python3.12/site-packages"
    for file in files:
        (packages / file).parent.mkdir(parents=True, exist_ok=True)
        (packages / file).touch()
    information = packages / f"{name}-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    if origin:
        (information / "direct_url.json").write_text(f'{{"url": "{origin}", "dir_info": {{}}}}')


@pytest.mark.parametrize("file", ["numbers2.py", "numbers2/__init__.py", "numbers2.cpython-312-x86_64-linux-gnu.so"])
def test_an_installed_module_is_found_by_its_name(tmp_path: Path, file: str) -> None:
    python = environment(tmp_path, "home = /usr/bin\nversion = 3.12.1\n", "8.3.1")
    installed(tmp_path, "numbers2", file)
    assert has_installed_module(python, "numbers2")
    assert not has_installed_module(python, "numbers")
    assert not has_installed_module(python, "numbers2-1")


def test_a_project_that_is_installed_from_its_folder_is_not_a_library(tmp_path: Path) -> None:
    python = environment(tmp_path, "home = /usr/bin\nversion = 3.12.1\n", "8.3.1")
    installed(tmp_path, "mine", "mine/__init__.py", origin="file:///home/me/mine")
    installed(tmp_path, "theirs", "theirs/__init__.py", origin="https://example.org/theirs.git")
    assert not has_installed_module(python, "mine")
    assert has_installed_module(python, "theirs")
