"""The likely cause of a failure: messages of many programs, and no cause without a fact."""

import re
from typing import Any, Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from orch23.model.action import StepLimits
from orch23.verdict.likely_cause import (
    FailedStep,
    likely_cause,
    limit_cause,
    output_cause,
    timeout_cause,
    token_limit_cause,
)


class Facts(Struct):
    """Facts as they are given; implements `KnownFacts`."""

    inputs: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    interpreter: str = "/venv/bin/python"
    is_orch23s_interpreter: bool = False
    has_uv: bool = True
    unseen: tuple[str, ...] = ()
    installed: tuple[str, str, str] | None = None

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

    def editable(self, name: str) -> tuple[str, str, str] | None:
        return self.installed

    def python_path(self, folder: str) -> str:
        return f"old:{folder}"

    def inside(self, path: str) -> str | None:
        return path.removeprefix("/project/") if path.startswith("/project/") else None

    def unseen_file(self, path: str) -> Literal["program", "file"] | None:
        if path not in self.unseen:
            return None
        return "program" if "/bin/" in path else "file"


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


def test_a_pattern_that_the_shell_did_not_expand_is_about_its_directory() -> None:
    line = "cat: 'd/e/*.md': No such file or directory"
    assert kind_of(line, Facts(inputs=("d/e",))) == "undeclared_input d/e"
    assert kind_of(line, Facts(inputs=("d/e/*.md",))) == ""
    assert kind_of("cat: '*.md': No such file or directory", Facts(inputs=("", "."))) == ""


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
    assert kind_of(line, Facts(programs=("tool",))) == "program tools/tool"
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
        "curl: (7) Failed to connect to 10.1.2.3 port 80 after 0 ms: Couldn't connect to server",
        "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
        "ssh: Could not resolve hostname github.com: Temporary failure in name resolution",
        "WARNING: Retrying after connection broken by 'NewConnectionError('Failed to establish a new connection')'",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "httpx.ConnectError: [Errno -3] Temporary failure in name resolution",
        "requests.exceptions.ConnectionError: (Caused by NameResolutionError(\"Failed to resolve 'example.com'\"))",
        "OSError: [Errno 101] Network is unreachable",
        "TypeError: fetch failed\n  [cause]: Error: getaddrinfo EAI_AGAIN example.com\n    code: 'EAI_AGAIN',",
        "Error: getaddrinfo ENOTFOUND example.com",
        "npm error code ENOTFOUND",
        "go: example.com/x@v1: dial tcp: lookup proxy.golang.org: Temporary failure in name resolution",
        "FileNotFoundError: [Errno 2] No such file or directory: 'a'\ncurl: (6) Could not resolve host: example.com",
    ],
)
def test_a_failed_connection_is_a_cause_only_without_network(line: str) -> None:
    assert kind_of(line, Facts(), network=False) == "network true"
    assert kind_of(line, Facts(), network=True) == ""


@pytest.mark.parametrize(
    "output",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'out/draft.md'",
        "E       FileNotFoundError: [Errno 2] No such file or directory: 'out/draft.md'",
        "tests/test_a.py::test_a (call): FileNotFoundError",
        "FileNotFoundError: [Errno 2] No such file or directory: 'tests/getaddrinfo.txt'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'docs/name resolution.md'",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for nope",
        "ModuleNotFoundError: No module named 'json.tool2'",
        "jinja2.exceptions.TemplateNotFoundError: a.j2",
        "PermissionError: [Errno 13] Permission denied: '/etc/shadow'",
        "OSError: [Errno 28] No space left on device",
        "IsADirectoryError: [Errno 21] Is a directory: 'out'",
        "NotADirectoryError: [Errno 20] Not a directory: 'out/a/b'",
        "OSError: [Errno 30] Read-only file system: 'specs/app.md'",
        "Error: ENOENT: no such file or directory, open 'nope'\n  errno: -2,\n  code: 'ENOENT'",
        "Error: Cannot find module 'nope'\n  code: 'MODULE_NOT_FOUND'",
        "open nope.txt: no such file or directory",
        "cat: nope: No such file or directory",
        "fatal: repository 'x' does not exist",
        "ERROR: file or directory not found: tests/test_b.py",
        "ConnectionAbortedErrorNotFound",
    ],
)
def test_a_missing_file_is_no_failed_connection(output: str) -> None:
    """Case: FileNotFoundError contains `eNotFound`, a code of a name that no server knows."""
    assert kind_of(output, Facts(modules=("json",)), network=False) == ""


def test_a_module_is_a_file_of_the_project_or_a_package() -> None:
    line = "E   ModuleNotFoundError: No module named 'app.models'"
    assert kind_of(line, Facts(inputs=("app/models.py",))) == "undeclared_input app/models.py"
    assert kind_of(line, Facts(inputs=("app",))) == "undeclared_input app"
    assert kind_of(line, Facts(inputs=("src/app",))) == "undeclared_input src/app"
    assert kind_of(line, Facts()) == "package"
    assert kind_of(line, Facts(modules=("app",))) == ""


def test_a_module_below_a_folder_of_the_stage_is_a_missing_file() -> None:
    """Case: the folder of the tests was said not to be installed."""
    for output, staged, text in (
        (
            "No module named 'tests.helper'",
            "tests",
            "there is no module `tests.helper`: the stage has no `tests/helper.py`",
        ),
        ("No module named 'app.a.b'", "src/app", "there is no module `app.a.b`: the stage has no `src/app/a/b.py`"),
        ("No module named 'tests'", "tests", "`tests` is in the folder of the step, but Python does not look"),
        ("No module named 'words'", "words.py", "`words` is in the folder of the step, but Python does not look"),
    ):
        failed = FailedStep(output=f"ModuleNotFoundError: {output}", network=True)
        cause = likely_cause(failed, Facts(staged=(staged,)))
        assert cause is not None
        assert cause.kind == "module"
        assert cause.text.startswith(text)
        assert "pip" not in cause.hint
        assert likely_cause(failed, Facts(staged=(staged,), modules=("tests", "app", "words"))) is None
    undeclared = Facts(staged=("tests",), inputs=("tests/helper.py",))
    assert kind_of("No module named 'tests.helper'", undeclared) == "undeclared_input tests/helper.py"


def package_hint(module: str, facts: Facts) -> str:
    cause = likely_cause(FailedStep(output=f"No module named '{module}'", network=True), facts)
    assert cause is not None
    assert cause.kind == "package"
    assert not cause.key
    return cause.hint


def test_no_command_installs_a_package_by_the_name_that_the_output_has() -> None:
    # A module that a model invented may be a package of an attacker.
    for facts in (Facts(), Facts(has_uv=False), Facts(is_orch23s_interpreter=True)):
        hint = package_hint("reqeusts_x", facts)
        commands = re.findall(r"`([^`]* [^`]*)`", hint)
        assert commands
        assert not any("reqeusts" in command for command in commands)
        assert "often named as its module, here `reqeusts-x`, but check it first" in hint


@pytest.mark.parametrize(
    ("module", "package"),
    [("yaml", "pyyaml"), ("PIL", "pillow"), ("cv2", "opencv-python"), ("numpy", "numpy"), ("sklearn", "scikit-learn")],
)
def test_a_well_known_package_is_named_in_the_command(module: str, package: str) -> None:
    assert f"`uv pip install --python /venv/bin/python {package}`" in package_hint(module, Facts())
    assert f"`/venv/bin/python -m pip install {package}`" in package_hint(module, Facts(has_uv=False))
    own = Facts(is_orch23s_interpreter=True)
    assert f"`uv venv && uv pip install pytest {package}`" in package_hint(module, own)
    made = package_hint(module, Facts(is_orch23s_interpreter=True, has_uv=False))
    assert f"`python3 -m venv .venv && .venv/bin/python -m pip install pytest {package}`" in made


UNSEEN = [
    "bash: line 1: {}: No such file or directory",
    "bash: {}: No such file or directory",
    "bash: line 1: {}: Permission denied",
    "sh: 1: {}: not found",
    "FileNotFoundError: [Errno 2] No such file or directory: '{}'",
    "make: {}: No such file or directory",
    "python: can't open file '{}': [Errno 2] No such file or directory",
]


@pytest.mark.parametrize("line", UNSEEN)
@pytest.mark.parametrize(("path", "shown"), [("/room/home/bin/t", "~/bin/t"), ("/opt/x/bin/t", "/opt/x/bin/t")])
def test_a_program_by_its_path_is_found_in_messages_of_many_programs(line: str, path: str, shown: str) -> None:
    cause = likely_cause(FailedStep(output=line.format(path), network=True), Facts(unseen=(shown,)))
    assert cause is not None
    assert (cause.kind, cause.key, cause.value) == ("program", "inputs", "tools/t")
    assert f"`{shown}` is on this machine" in cause.text
    assert f"`mkdir -p tools && cp {shown} tools/`" in cause.first
    assert (cause.old_word, cause.new_word) == (shown, "tools/t")
    assert kind_of(line.format(path), Facts()) == ""


def test_a_file_of_this_machine_is_a_cause_only_if_the_command_names_it() -> None:
    facts, output = Facts(unseen=("~/data.csv",)), "cat: /room/home/data.csv: No such file or directory"
    named = likely_cause(FailedStep(output=output, network=True, command="cat ~/data.csv"), facts)
    assert named is not None
    assert (named.kind, named.key) == ("path", ""), "it is not proposed as an input"
    assert kind_of(output, facts) == "", "a program may print any path"


def test_a_path_of_the_project_is_written_as_the_step_has_it() -> None:
    line = "cat: /project/d/a.md: No such file or directory"
    assert kind_of(line, Facts(inputs=("d/a.md",))) == "path d/a.md"
    staged = likely_cause(FailedStep(output=line, network=True), Facts(staged=("d/a.md",)))
    assert staged is not None
    assert (staged.key, staged.old_word, staged.new_word) == ("", "/project/d/a.md", "d/a.md")
    assert kind_of(line, Facts()) == ""


@pytest.mark.parametrize(
    ("command", "exit_code", "output", "kind"),
    [
        ("curl -s https://example.com | wc -c", 6, "", "network"),
        ("curl -sf http://10.0.0.1:80/x", 7, "", "network"),
        ("curl -s --max-time 3 https://example.com", 28, "", "network"),
        ("wget -q https://example.com", 4, "", "network"),
        ("cd d; /usr/bin/curl -sf https://example.com", 6, "", "network"),
        ("curl -s https://example.com | jq .", 1, "parse error", "network_use"),
        ("curl -s https://example.com || exit 3", 3, "", "network_use"),
        ("curl -sf http://127.0.0.1:8000/", 7, "", "network_use"),
        ("curl -sf http://localhost/", 7, "", "network_use"),
        ("pytest", 1, "httpx.ConnectError: [Errno 111] Connection refused (http://localhost:8000)", "network_use"),
        (
            "x",
            1,
            "Failed to establish a new connection: [Errno 111] Connection refused, host='127.0.0.1'",
            "network_use",
        ),
        ("curl --version", 6, "", ""),
        ("curl -s file:///x", 37, "", ""),
        ("wget -q http://127.0.0.1/", 8, "", ""),
        ("if ! curl -s https://example.com; then exit 9; fi", 9, "", "network_use"),
        ("bash -c 'curl -s https://example.com | cat'", 1, "", "network_use"),
        ("x=$(A=b wget -q https://example.com)", 4, "", "network"),
        ("set -e\n  curl -s https://example.com", 6, "", "network"),
        ("echo curl https://example.com; false", 1, "", ""),
        ("# curl https://example.com\nfalse", 1, "", ""),
        ("mycurl https://example.com", 6, "", ""),
        ("cat notes-about-curl.md", 1, "cat: x", ""),
        ("nc db 5432", 1, "Connection refused", ""),
        ("true; exit 6", 6, "", ""),
    ],
)
def test_a_connection_that_prints_nothing_is_known_by_its_command(
    command: str, exit_code: int, output: str, kind: str
) -> None:
    failed = FailedStep(output=output, network=False, command=command, exit_code=exit_code)
    cause = likely_cause(failed, Facts())
    assert ("" if cause is None else cause.kind) == kind
    assert likely_cause(replace(failed, network=True), Facts()) is None
    if cause is not None:
        assert (cause.key, cause.value) == ("network", "true")
    if "127.0.0.1" in command or "localhost" in command:
        assert cause is None or "in a step is the step itself" in cause.text


def test_too_much_output_is_a_cause_only_for_a_process_that_was_killed_for_it() -> None:
    text = "y\ny\n\nkilled: it printed more than 16777216 bytes\n"
    cause = output_cause(text, 16_800_000, 137)
    assert cause is not None
    assert cause.text == "it printed more than 16MiB, which is the most that a step may print"
    assert output_cause(text, 300, 137) is None, "the program printed that line itself"
    assert output_cause(text, 16_800_000, 1) is None
    assert output_cause("y\n", 16_800_000, 137) is None


def test_a_limit_of_tokens_is_doubled_up_to_that_of_the_model() -> None:
    found = [token_limit_cause(1_000, most) for most in (None, 128_000, 1_500, 1_000)]
    assert [one and (one.key, one.value) for one in found] == [
        ("llm/max_tokens", "2000"),
        ("llm/max_tokens", "2000"),
        ("llm/max_tokens", "1500"),
        None,
    ]


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
    assert limit_cause("more than `limits.disk`; others may have taken them", StepLimits()) is None


@pytest.mark.parametrize(("limit", "more"), [(40_000_000, "80MB"), (1536 << 20, "3GiB"), (150_000, "300KB"), (7, "14")])
def test_a_size_has_the_unit_that_makes_it_short(limit: int, more: str) -> None:
    cause = limit_cause("held more (`limits.disk`)", StepLimits(disk=limit))
    assert cause is not None
    assert cause.value == more
    assert (timeout_cause(90).key, timeout_cause(90).value) == ("timeout", "180s")


@pytest.mark.parametrize(
    ("failed", "facts", "wanted"),
    [
        ({}, {}, ("env/PYTHONPATH", "old:src", False, "")),
        ({}, {"inputs": ("src/app",)}, ("inputs", "src/app", True, "and add `src` to `env.PYTHONPATH`")),
        ({"is_pytest": True}, {}, ("", "", False, "write `pytest: {args: [...], pythonpath: [src]}`")),
        ({"is_pytest": True, "python_path_key": "pytest/pythonpath"}, {}, ("pytest/pythonpath", "src", True, "")),
        (
            {"is_pytest": True, "python_path": ("src/",)},
            {"inputs": ("src/app.py",)},
            ("inputs", "src/app.py", True, ""),
        ),
    ],
)
def test_a_module_that_is_installed_as_editable_needs_its_folder(
    failed: dict[str, Any], facts: dict[str, Any], wanted: tuple[str, str, bool, str]
) -> None:
    step = FailedStep(output="ModuleNotFoundError: No module named 'app'", network=True, **failed)
    cause = likely_cause(step, Facts(installed=("app.pth", "src", "src"), **facts))
    assert cause is not None
    assert (cause.key, cause.value, cause.appends, cause.hint) == wanted
    assert cause.text.startswith("`app` is installed as editable: `app.pth` leads to `src` of the project")


def test_a_folder_on_the_path_is_not_the_cause() -> None:
    step = FailedStep(output="No module named 'app'", network=True, is_pytest=True, python_path=("src",))
    cause = likely_cause(step, Facts(installed=("app.pth", "src", "src")))
    assert cause is not None
    assert cause.kind == "package"


def test_of_a_package_that_was_found_only_a_file_is_missing() -> None:
    step = FailedStep(output="No module named 'app.sub'", network=True)
    installed = ("app.pth", "src", "src")
    cause = likely_cause(step, Facts(installed=installed, inputs=("src/app/sub.py",)))
    assert cause is not None
    assert (cause.key, cause.value, cause.hint) == ("inputs", "src/app/sub.py", "")
    cause = likely_cause(step, Facts(installed=installed, staged=("src/app",)))
    assert cause is not None
    assert cause.text == "there is no module `app.sub`: the stage has no `src/app/sub.py`"
