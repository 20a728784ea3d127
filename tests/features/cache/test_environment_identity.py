"""The environment of a stage: what two machines must have in common before they share a result."""

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.checks.check import Check
from orch23.checks.registry import CHECKS
from orch23.execute.process_tree import fixed_limits
from orch23.features.cache.environment import EnvironmentIdentity, Environments, machine_facts
from orch23.model.digest import Json
from orch23.model.pipeline import CheckStep, CommandsStep, EnsuresStep, Stage, Verify
from orch23.model.step import ProcessStep, Step, Tool
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.registry import kinds_of
from orch23.steps.shell.spec import ShellStep
from tests.environments import Environment, executable

MACHINE = {"system": "debian 12", "architecture": "x86_64", "libc": "glibc 2.36"}
TESTS = PytestStep(paths=("tests",))
ELF = b"\x7fELF "


class Machine:
    """A machine with programs in a system folder and a virtual environment."""

    def __init__(self, folder: Path) -> None:
        self.system = folder / "usr" / "bin"
        self.local = folder / "usr" / "local"
        for name in ("bash", "sort", "env"):
            self.program(name, ELF + name.encode())
        self.venv = Environment(folder / "home")
        self.venv.install("lib", files={"lib/data": b"1"})

    def program(self, name: str, data: bytes) -> Path:
        return executable(self.system / name, data)

    def of(
        self, step: Step, *verify, facts: Mapping[str, str] = MACHINE, env=None, tools=(), **options
    ) -> EnvironmentIdentity:
        stage = Stage(name="a", step=step, verify=Verify(tuple(verify)), env=env or {}, tools=tuple(map(Tool, tools)))
        found = Environments(machine=facts, system_path=(str(self.system),), local_folder=self.local, **options)
        return found.of(stage, self.venv.python)

    def digest(self, step: Step, *verify, **options) -> str:
        return self.of(step, *verify, **options).digest()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "m")


LLM = LLMStep(provider="anthropic", model="m", prompt="p.md", returns="text")


@pytest.mark.parametrize("kind", ["llm", pytest.param("fetch", marks=pytest.mark.needs("fetch"))])
def test_a_stage_without_processes_does_not_depend_on_the_machine(machine: Machine, kind: str) -> None:
    fetch: Any = {"sha256": "0" * 64, "url": "https://example.org/a"}
    step = LLM if kind == "llm" else kinds_of(())[kind](**fetch)
    checks = (CheckStep("json_schema"), EnsuresStep(()))
    for platform, executor in ((None, "local"), ("p", "local"), (None, "other")):
        found = machine.of(step, *checks, platform=platform, executor_of=lambda _, name=executor: name)
        assert found == EnvironmentIdentity()
        assert found.digest() == EnvironmentIdentity().digest()


def test_a_check_that_parses_python_depends_on_the_version_that_runs_orch23(machine: Machine) -> None:
    found = machine.of(LLM, CheckStep("python_syntax"))
    assert list(found.parts) == ["checks"]
    plugin = Check("of_a_plugin", 1, lambda _: ())
    assert machine.of(LLM, CheckStep("of_a_plugin"), checks={"of_a_plugin": plugin}) == found
    portable = {"of_a_plugin": replace(plugin, is_portable=True)}
    assert machine.of(LLM, CheckStep("of_a_plugin"), checks=portable) == EnvironmentIdentity()
    assert machine.of(LLM, CheckStep("python_syntax"), platform="p").parts == {"platform": "p"}


def test_only_these_checks_of_orch23_are_the_same_with_every_version_of_python() -> None:
    assert {name for name in CHECKS if CHECKS[name].is_portable} == {"json_schema", "json_values", "one_per_input"}


@pytest.mark.parametrize("command", [{"run": ["curl"]}, [["curl"]], ["sort", 1], 3, None])
def test_an_unknown_form_of_a_command_is_not_a_command_without_programs(machine: Machine, command: Json) -> None:
    class Odd(ProcessStep):
        kind = "shell"
        declared = command

    class OddTests(Odd):
        kind = "pytest"
        words = command

    for step in (Odd(), OddTests()):
        assert machine.of(step).faults == ("the programs of this form of a command are not known",)


def test_tests_depend_on_the_system_the_interpreter_and_its_packages(machine: Machine) -> None:
    found = machine.of(TESTS)
    assert list(found.parts) == ["system", "architecture", "libc", "local files", "Python", "packages"]
    assert (
        found == machine.of(LLM, TESTS) == machine.of(LLM, CommandsStep(allow=("pytest",), commands=("pytest tests",)))
    )
    assert [*found.parts.values()][:3] == ["debian 12", "x86_64", "glibc 2.36"]


def test_two_machines_with_the_same_software_are_equal_whatever_their_paths_and_times_are(tmp_path: Path) -> None:
    one, two = Machine(tmp_path / "alice"), Machine(tmp_path / "b" / "bob")
    for path in (tmp_path / "b").rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    for step in (TESTS, ShellStep("sort a; python x"), ShellStep(("sort", "x")), ShellStep("lib-run")):
        assert one.of(step).digest() == two.of(step).digest()
        assert str(tmp_path) not in repr(one.of(step))
        assert not one.of(step).faults


@pytest.mark.parametrize("key", ["system", "architecture", "libc"])
def test_another_machine_is_another_environment(machine: Machine, key: str) -> None:
    other = {**MACHINE, key: "other"}
    for step in (TESTS, ShellStep("sort a"), ShellStep(("sort",))):
        assert machine.digest(step, facts=other) != machine.digest(step)
    assert machine.digest(LLM, facts=other) == machine.digest(LLM)


@pytest.mark.parametrize(
    "step", [TESTS, ShellStep(("python", "x.py")), ShellStep("python3 x.py"), ShellStep("lib-run")]
)
def test_python_is_its_version_its_bytes_its_library_and_its_packages(machine: Machine, step: Step) -> None:
    venv, digests = machine.venv, [machine.digest(step)]

    def differs() -> None:
        digests.append(machine.digest(step))
        assert len(set(digests)) == len(digests)

    record = venv.site / "lib-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("data,sha256=", "data,sha256=A"))
    differs()
    venv.program.write_bytes(ELF + b"another build with libpython")
    assert "library" in machine.of(step).faults[0]
    library = venv.base / "lib" / "libpython3.11.so.1.0"
    library.parent.mkdir()
    library.write_bytes(b"one")
    differs()
    library.write_bytes(b"two")
    differs()
    venv.program.write_bytes(ELF + b"a third build with libpython")
    differs()
    # The same bytes at the places of another version.
    library.rename(library.with_name("libpython3.12.so.1.0"))
    venv.site.parent.rename(venv.site.parent.with_name("python3.12"))
    config = venv.root / "pyvenv.cfg"
    config.write_text(config.read_text().replace("3.11", "3.12"))
    differs()


def test_a_patch_version_in_a_file_of_the_environment_is_not_the_interpreter(machine: Machine) -> None:
    before = machine.of(TESTS)
    (machine.venv.root / "pyvenv.cfg").write_text(f"home = {machine.venv.base}/bin\nversion_info = 3.11.7.final.0\n")
    assert machine.of(TESTS) == before


def test_a_package_in_editable_mode_is_not_shared(machine: Machine) -> None:
    machine.venv.install("mine", origin={"dir_info": {"editable": True}})
    found = machine.of(TESTS)
    assert found.faults
    assert "`mine` is installed in editable mode" in found.faults[0]
    with pytest.raises(ValueError, match="BUG"):
        found.digest()
    assert not machine.of(ShellStep("sort a")).faults
    assert machine.of(TESTS, platform="image 7").parts == {"platform": "image 7"}


def test_an_interpreter_whose_packages_are_elsewhere_is_not_shared(machine: Machine) -> None:
    machine.venv.site.parent.rename(machine.venv.site.parent.with_name("python3.11t"))
    assert "packages of the interpreter" in machine.of(TESTS).faults[0]


def test_an_interpreter_without_a_version_is_not_shared(machine: Machine) -> None:
    (machine.venv.root / "pyvenv.cfg").unlink()
    machine.venv.python.unlink()
    executable(machine.venv.python, b"x")
    assert machine.of(TESTS).faults


# ---- programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["sort a | sort b", ("sort", "a"), "/bin/sort"])
def test_one_changed_byte_of_a_program_is_another_environment(machine: Machine, command) -> None:
    if command == "/bin/sort":
        command = f"{machine.system}/sort a"
    before = machine.of(ShellStep(command))
    machine.program("sort", ELF + b"sorT")
    after = machine.of(ShellStep(command))
    assert before.digest() != after.digest()


def test_a_text_depends_on_bash_and_an_argv_does_not(machine: Machine) -> None:
    text, argv = ShellStep("sort a"), ShellStep(("sort", "a"))
    before = machine.digest(text), machine.digest(argv)
    machine.program("bash", ELF + b"new")
    assert machine.digest(text) != before[0]
    assert machine.digest(argv) == before[1]
    (machine.system / "bash").unlink()
    assert machine.of(text).faults


def test_a_program_that_is_not_named_does_not_count(machine: Machine) -> None:
    before = machine.digest(ShellStep("sort a"))
    machine.program("other", ELF)
    machine.venv.install("more")
    assert machine.digest(ShellStep("sort a")) == before


def test_the_programs_of_the_environment_come_first(machine: Machine) -> None:
    before = machine.digest(ShellStep("sort a"))
    executable(machine.venv.root / "bin" / "sort", ELF + b"mine")
    assert machine.digest(ShellStep("sort a")) != before


@pytest.mark.parametrize(
    "line", ["#!{system}/perl -w", "#! {system}/perl", "#!{system}/env perl", "#!{system}/env -S perl -w"]
)
def test_a_script_depends_on_the_program_that_runs_it(machine: Machine, line: str) -> None:
    machine.program("perl", ELF + b"5.36")
    machine.program("tool", f"{line}\nprint 1\n".format(system=machine.system).encode())
    assert machine.of(ShellStep(("tool",))).faults
    digests = [machine.digest(ShellStep(("tool",)), tools=("tool",))]
    machine.program("perl", ELF + b"5.38")
    digests.append(machine.digest(ShellStep(("tool",)), tools=("tool",)))
    machine.program("tool", f"{line}\nprint 2\n".format(system=machine.system).encode())
    digests.append(machine.digest(ShellStep(("tool",)), tools=("tool",)))
    assert len(set(digests)) == 3
    (machine.system / "perl").unlink()
    assert "runs `tool`" in machine.of(ShellStep(("tool",)), tools=("tool",)).faults[0]


def test_a_script_of_another_python_depends_on_that_python(machine: Machine, tmp_path: Path) -> None:
    other = Environment(tmp_path / "other", "3.9.2", ELF + b"39")
    machine.program("tool", f"#!{other.python}\nimport x\n".encode())
    step = ShellStep("tool; python x")
    before = machine.of(step)
    assert {"Python", "packages", "Python of python", "packages of python"} <= before.parts.keys()
    other.install("x")
    assert machine.digest(step) != before.digest()
    assert machine.of(ShellStep("python x")).parts.keys().isdisjoint({"Python of python"})


def test_scripts_that_run_each_other_end(machine: Machine) -> None:
    machine.program("one", f"#!{machine.system}/two\n".encode())
    machine.program("two", f"#!{machine.system}/one\n".encode())
    assert machine.of(ShellStep(("one",))).faults


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sort $(ls)", "`$(`"),
        ("eval sort", "`eval`"),
        ("bash -c sort", "`bash` runs other programs"),
        (("bash", "-c", "sort"), "`bash` runs other programs"),
        ("$X", "variable"),
        ("./sort", "file of the project"),
        ("missing a", "`missing` was not found"),
        (("missing",), "`missing` was not found"),
    ],
)
def test_a_command_whose_programs_are_not_known_is_shared_only_with_a_stated_platform(machine, command, why) -> None:
    found = machine.of(ShellStep(command))
    assert why in found.faults[0]
    assert found.faults
    stated = machine.of(ShellStep(command), platform="image 7")
    assert stated.parts == {"platform": "image 7"}
    assert stated.digest() != machine.of(ShellStep(command), platform="image 8").digest()
    assert stated.parts == {"platform": "image 7"}
    assert machine.of(LLM, ShellStep(command)).faults, "in `verify` too"


def test_a_program_that_may_start_others_is_shared_only_if_tools_list_it(machine: Machine) -> None:
    for name in ("own", "part", "make"):
        machine.program(name, ELF + b"1")
    step = ShellStep("own x")
    assert machine.of(step).faults[0].startswith("`own` may start other programs; list it and them in `t")
    digests = [machine.digest(step, tools=("own",)), machine.digest(step, tools=("own", "part"))]
    for name in ("part", "own"):
        machine.program(name, ELF + b"2")
        digests.append(machine.digest(step, tools=("own", "part")))
    assert len(set(digests)) == 4
    assert machine.of(ShellStep("own x; make x"), tools=("own",)).faults
    assert "`gone` was not found" in machine.of(step, tools=("own", "gone")).faults[0]
    # To list only programs that always run others cannot be complete.
    machine.program("gcc", ELF)
    assert "`tools` lists none of them" in machine.of(ShellStep("make x"), tools=("make", "gcc")).faults[0]
    assert not machine.of(ShellStep("make x"), tools=("make", "part")).faults
    listed = CommandsStep(allow=("make",), commands=("make x",))
    assert machine.of(LLM, listed).faults
    assert not machine.of(LLM, listed, tools=("make", "part")).faults
    # Its own version, and its other programs, count for tests and in `verify` too.
    before = machine.digest(TESTS, tools=("own",)), machine.digest(LLM, step, tools=("own",))
    machine.program("own", ELF + b"3")
    after = machine.digest(TESTS, tools=("own",)), machine.digest(LLM, step, tools=("own",))
    assert set(before).isdisjoint(after)


@pytest.mark.parametrize("name", ["cat", "sort"])
def test_a_script_that_has_the_name_of_a_known_program_may_start_others(machine: Machine, name: str) -> None:
    machine.program("sh", ELF)
    for script in (f"#!{machine.system}/sh\n/opt/x $*\n", "/opt/x $*\n"):
        machine.program(name, script.encode())
        assert f"`{name}` may start other programs" in machine.of(ShellStep(f"{name} a")).faults[0]
    machine.program(name, f"#!{machine.venv.python}\nimport lib\n".encode())
    assert not machine.of(ShellStep(f"{name} a")).faults, "the packages of Python are known"


def test_a_script_that_has_the_name_of_python_is_not_shared(machine: Machine) -> None:
    machine.program("python3.11", b"#!/bin/sh\nexec /opt/python3 $*\n")
    assert machine.of(ShellStep(f"{machine.system}/python3.11 x.py")).faults
    machine.venv.program.write_bytes(b"#!/bin/sh\nexec /opt/python3 $*\n")
    assert machine.of(TESTS).faults


@pytest.mark.parametrize("name", ["BASH_ENV", "ENV", "PS4", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_FUNC_sort%%"])
def test_a_variable_that_hides_programs_is_not_shared(machine: Machine, name: str) -> None:
    for step in (ShellStep("sort a"), TESTS):
        assert f"`env` sets {name}" in machine.of(step, env={name: "x"}).faults[0]
        assert not machine.of(step, env={"X": name}).faults


def test_options_of_pytest_that_name_an_interpreter_are_not_shared(machine: Machine) -> None:
    for word in ("--tx=popen//python=python3.9", "--px", "--tx"):
        found = machine.of(PytestStep(args=("-n", "2", word)))
        assert f"`{word}` of pytest" in found.faults[0]
    assert not machine.of(PytestStep(args=("-n", "2"))).faults


def test_path_of_env_decides_where_programs_are(machine: Machine, tmp_path: Path) -> None:
    executable(tmp_path / "own" / "sort", ELF + b"own")
    step = ShellStep(("sort", "a"))
    own = machine.of(step, env={"PATH": str(tmp_path / "own")})
    assert own.digest() != machine.digest(step)
    assert str(tmp_path) not in repr(own)
    for path in ("bin:/usr/bin", "/usr/bin:", ""):
        assert "PATH" in machine.of(step, env={"PATH": path}).faults[0]


def test_steps_that_run_elsewhere_or_in_an_unknown_way_are_not_shared(machine: Machine) -> None:
    class Odd(ProcessStep):
        kind = "odd"
        declared = ("sort",)

    assert "`odd`" in machine.of(Odd()).faults[0]
    assert "`slurm`" in machine.of(TESTS, executor_of=lambda _: "slurm").faults[0]
    assert not machine.of(TESTS, executor_of=lambda _: "slurm", platform="p").faults


# ---- the machine ------------------------------------------------------------------------------------

RELEASE = '# a comment\nNAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\nHOME_URL="https://x"\nBROKEN="\n'


def _release_of(monkeypatch: pytest.MonkeyPatch, *files: Path) -> str:
    monkeypatch.setattr("platform._os_release_cache", None)
    monkeypatch.setattr("platform._os_release_candidates", tuple(map(str, files)))
    return machine_facts()["system"]


def test_the_release_of_the_system_is_its_id_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = machine_facts()
    assert facts["system"]
    assert facts["architecture"] == os.uname().machine
    assert facts["libc"]
    path = tmp_path / "os-release"
    path.write_text(RELEASE)
    assert _release_of(monkeypatch, tmp_path / "missing", path) == "debian 12"
    path.write_text(f"{RELEASE}BUILD_ID='2026-11'\n")
    assert _release_of(monkeypatch, path) == "debian 12 2026-11"
    assert _release_of(monkeypatch, tmp_path / "missing") == "unknown"


@given(st.text(max_size=60))
def test_any_release_file_can_be_read(tmp_path_factory, text: str) -> None:
    path = tmp_path_factory.mktemp("r") / "os-release"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert _release_of(monkeypatch, path)


@given(st.dictionaries(st.text(), st.text()), st.dictionaries(st.text(), st.text()))
def test_environments_are_equal_exactly_if_their_parts_are(one: dict[str, str], other: dict[str, str]) -> None:
    try:
        digests = [EnvironmentIdentity(parts=parts).digest() for parts in (one, other)]
    except ValueError:  # half of a surrogate pair
        return
    assert (digests[0] == digests[1]) == (one == other)
    assert EnvironmentIdentity(parts=dict(reversed(one.items()))).digest() == digests[0]


def test_a_script_of_an_environment_with_a_long_path_is_the_same_program(machine: Machine, tmp_path: Path) -> None:
    bin_ = machine.venv.root / "bin"
    executable(bin_ / "tool", f"#!{machine.venv.python}\nimport lib\n".encode())
    before = machine.of(ShellStep(("tool",)))
    long = f"#!/bin/sh\n'''exec' \"{machine.venv.python}\" \"$0\" \"$@\"\n' '''\nimport lib\n"
    executable(bin_ / "tool", long.encode())
    assert machine.of(ShellStep(("tool",))) == before
    assert not before.faults
    executable(bin_ / "tool", long.replace(' "$0"', "").encode())
    assert machine.of(ShellStep(("tool",))) != before, "another script for a shell"


@pytest.mark.parametrize(
    "change",
    [
        lambda local: (local / "share/a").write_text("2"),
        lambda local: (local / "share/a").chmod(0o600),
        lambda local: (local / "share/a").rename(local / "share/b"),
        lambda local: (local / "share/c").mkdir(),
        lambda local: (local / "share/c").symlink_to("a"),
        lambda local: os.utime(local / "share/large", (5, 5)),
        lambda local: (local / "share/large").write_bytes(b"x" * 100_001),
    ],
)
def test_each_file_that_no_package_has_is_part_of_the_environment(machine: Machine, change) -> None:
    local, step = machine.local, ShellStep("sort a")
    (local / "share").mkdir(parents=True)
    (local / "share/a").write_text("1")
    (local / "share/large").write_bytes(b"x" * 100_000)
    before = machine.digest(step)
    os.utime(local / "share/a", (5, 5))
    (local / "share/__pycache__").mkdir()
    (local / "share/__pycache__/a.pyc").write_text("compiled")
    assert machine.digest(step) == before
    change(local)
    assert machine.digest(step) != before
    assert machine.of(LLM).parts == {}


def test_a_project_among_them_is_not_and_too_many_are_not_shared(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, step = machine.local / "src/project", ShellStep("sort a")
    (project / "deep").mkdir(parents=True)
    before = machine.digest(step, closed=(project,))
    (project / "deep/a").write_text("1")
    assert machine.digest(step, closed=(project,)) == before
    assert machine.digest(step) != before
    monkeypatch.setattr("orch23.features.cache.distributions._MOST_LOCAL", 3)
    assert "too many files" in machine.of(step).faults[0]
    assert not machine.of(step, platform="p").faults


def test_a_program_beside_python_is_part_of_it_whatever_installed_the_scripts(machine: Machine) -> None:
    beside, before = machine.venv.root / "bin", machine.digest(TESTS)
    for name, data in {"script": b"#!/bin/sh\n", "program": ELF + b"1"}.items():
        executable(beside / name, data)
        assert (before, before := machine.digest(TESTS))[0] != before
    executable(beside / "program", ELF + b"2")
    assert machine.digest(TESTS) != before
    (beside / "activate").write_text(str(beside))
    executable(beside / "program", ELF + b"1")
    executable(beside / "script", b"#!/bin/sh\nanother installer\n")
    assert machine.digest(TESTS) == before


def test_a_limit_that_cannot_be_raised_is_part_of_the_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, own = machine.digest(ShellStep("sort a")), resource.getrlimit
    assert "limits" not in machine.of(ShellStep("sort a")).parts
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (9, 9) if kind == resource.RLIMIT_NOFILE else own(kind))
    assert machine.of(ShellStep("sort a")).parts["limits"] == f"{resource.RLIMIT_NOFILE}=(9, 9)"
    assert machine.digest(ShellStep("sort a")) != before
    assert dict(fixed_limits())[resource.RLIMIT_NOFILE] == (9, 9)


def test_no_limit_of_a_step_is_above_a_hard_limit_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without privileges the kernel refuses it, as after `ulimit -c 0`: no step could start."""
    own = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda one: (0, 0) if one == resource.RLIMIT_CORE else own(one))
    assert dict(fixed_limits())[resource.RLIMIT_CORE] == (0, 0)


def test_a_stage_without_a_sandbox_is_shared_only_with_a_stated_platform(machine: Machine) -> None:
    for step, verify in ((ShellStep("sort a"), ()), (LLM, (TESTS,))):
        stage = Stage(name="a", step=step, verify=Verify(verify), sandbox=False)
        found = Environments(machine=MACHINE, system_path=(str(machine.system),), local_folder=machine.local)
        assert "`sandbox: off`" in found.of(stage, machine.venv.python).faults[0]
        assert replace(found, platform="p").of(stage, machine.venv.python).parts == {"platform": "p"}
