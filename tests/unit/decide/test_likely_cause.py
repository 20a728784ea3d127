"""The likely cause of a failure: messages of many programs, and no cause without a fact."""

from typing import Literal

import pytest
from msgspec import Struct

from orch23.decide.likely_cause import FailedStep, likely_cause, limit_cause, timeout_cause
from orch23.model.action import StepLimits


class Facts(Struct):
    """Facts as they are given; implements `KnownFacts`."""

    inputs: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    interpreter: str = "/venv/bin/python"
    is_orch23s_interpreter: bool = False

    def undeclared_input(self, path: str) -> str | None:
        return path if path in self.inputs else None

    def is_staged(self, path: str) -> bool:
        return path in self.staged

    def program(self, name: str) -> str | None:
        return f"/home/u/bin/{name}" if name in self.programs else None

    def variable(self, name: str) -> Literal["settable", "refused"] | None:
        return "settable" if name in self.variables else None

    def has_module(self, name: str) -> bool:
        return name in self.modules


def kind_of(output: str, facts: Facts, *, network: bool = True) -> str:
    cause = likely_cause(FailedStep(output=output, network=network), facts)
    return "" if cause is None else f"{cause.kind} {cause.value}".strip()


FILES = [
    "bash: line 1: d/a.md: No such file or directory",
    "cat: d/a.md: No such file or directory",
    "ls: cannot access 'd/a.md': No such file or directory",
    "head: cannot open 'd/a.md' for reading: No such file or directory",
    "sed: can't read d/a.md: No such file or directory",
    "cp: cannot stat './d/a.md': No such file or directory",
    "python: can't open file '/room/work/d/a.md': [Errno 2] No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: 'd/a.md'",
    "Error: ENOENT: no such file or directory, open 'd/a.md'",
    "make: *** No rule to make target 'd/a.md', needed by 'all'.  Stop.",
    "ERROR: file or directory not found: d/a.md",
    "gcc: error: d/a.md: No such file or directory",
    "open d/a.md: no such file or directory",
    "jq: error: Could not open d/a.md: No such file or directory",
]


@pytest.mark.parametrize("line", FILES)
def test_a_file_is_found_in_messages_of_many_programs(line: str) -> None:
    assert kind_of(line, Facts(inputs=("d/a.md",))) == "undeclared_input d/a.md"
    assert kind_of(line, Facts()) == ""


def test_a_file_that_is_only_mentioned_is_no_cause() -> None:
    assert kind_of("reading d/a.md\ndone", Facts(inputs=("d/a.md",))) == ""


@pytest.mark.parametrize(
    "line",
    [
        "bash: line 1: tool: command not found",
        "sh: 1: tool: not found",
        "env: \u2018tool\u2019: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: 'tool'",
        'exec: "tool": executable file not found in $PATH',
        "Error: spawn tool ENOENT",
        "make: tool: No such file or directory",
    ],
)
def test_a_program_is_found_in_messages_of_many_programs(line: str) -> None:
    assert kind_of(line, Facts(programs=("tool",))) == "program"
    assert kind_of(line, Facts()) == ""


@pytest.mark.parametrize(
    "line",
    ["bash: line 1: A_B: unbound variable", "bash: line 1: A_B: parameter null or not set", "KeyError: 'A_B'"],
)
def test_a_variable_is_a_cause_only_if_the_user_has_set_it(line: str) -> None:
    assert kind_of(line, Facts(variables=("A_B",))) == "variable VALUE"
    assert kind_of(line, Facts()) == ""


@pytest.mark.parametrize(
    "line",
    [
        "curl: (6) Could not resolve host: example.com",
        "ping: example.com: Temporary failure in name resolution",
        "socket.gaierror: [Errno -2] Name or service not known",
        "connect: Network is unreachable",
        "Error: getaddrinfo EAI_AGAIN registry.npmjs.org",
        "dial tcp: lookup proxy.golang.org: no such host",
        "wget: unable to resolve host address",
    ],
)
def test_a_failed_connection_is_a_cause_only_without_network(line: str) -> None:
    assert kind_of(line, Facts(), network=False) == "network true"
    assert kind_of(line, Facts(), network=True) == ""


def test_a_module_is_a_file_of_the_project_or_a_package() -> None:
    line = "E   ModuleNotFoundError: No module named 'app.models'"
    assert kind_of(line, Facts(inputs=("app/models.py",))) == "undeclared_input app/models.py"
    assert kind_of(line, Facts(inputs=("app",))) == "undeclared_input app"
    assert kind_of(line, Facts(inputs=("src/app",))) == "undeclared_input src/app"
    assert kind_of(line, Facts()) == "package"
    assert kind_of(line, Facts(modules=("app",))) == ""


def test_a_package_is_not_proposed_by_the_name_that_the_output_has() -> None:
    # A module that a model invented may be a package of an attacker.
    cause = likely_cause(FailedStep(output="No module named 'reqeusts'", network=True), Facts())
    assert cause is not None
    assert "reqeusts" not in cause.hint


def test_hostile_output_is_searched_in_time_and_gets_no_pattern_into_the_yaml() -> None:
    facts = Facts(inputs=("*", "a: b", "-x", "!a", "${{ x }}", "a#b", "a\nb"))
    for name in facts.inputs:
        assert kind_of(f"cat: '{name}': No such file or directory", facts) == ""
    assert kind_of(f"{'a/' * 200_000}: No such file\n" * 3, Facts()) == ""
    assert kind_of("No module named '" + "a." * 100_000, Facts(modules=("a",))) == ""


def test_of_many_names_only_the_first_are_looked_up() -> None:
    looked: list[str] = []

    class Counting(Facts):
        def undeclared_input(self, path: str) -> str | None:
            looked.append(path)
            return None

    likely_cause(
        FailedStep(output="".join(f"cat: f{n}.md: No such file\n" for n in range(5_000)), network=True), Counting()
    )
    assert 0 < len(looked) < 200


def test_limits_and_timeouts_show_twice_the_value() -> None:
    cause = limit_cause(
        "killed: it used more than 67108864 bytes of memory (`limits.memory`)", StepLimits(memory=64 << 20)
    )
    assert cause is not None
    assert (cause.key, cause.value) == ("limits/memory", "128MiB")
    processes = limit_cause(
        "killed: it had more than 4 processes at once (`limits.processes`)", StepLimits(processes=4)
    )
    assert processes is not None
    assert (processes.key, processes.value) == ("limits/processes", "8")
    assert limit_cause("made a link", StepLimits()) is None
    assert (timeout_cause(90).key, timeout_cause(90).value) == ("timeout", "180s")
