"""The likely cause of a failure: messages of many programs, and no cause without a fact."""

from pathlib import Path
from typing import Any

import pytest

from orch23.attempt.likely_cause import FailedStep, ProjectFacts, likely_cause
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.event_data import LikelyCause
from orch23.model.paths import match
from orch23.model.pipeline import Stage
from orch23.steps.shell.spec import ShellStep


class Machine:
    """A project, a home directory and an environment with an interpreter, in a directory."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home, self.venv = folder / "project", folder / "home", folder / "venv"
        self.environ = {"HOME": str(self.home), "PATH": str(self.home / "opt/bin")}
        self.staged: list[str] = []
        self.made = ""
        add(self.root / "pipeline.yaml")
        add(self.venv / "pyvenv.cfg", "version = 3.11.2\nhome = /usr/bin\n")

    def add_input(self, *paths: str) -> "Machine":
        for path in paths:
            add(self.root / path)
        return self

    def stage(self, *paths: str) -> "Machine":
        self.staged += paths
        return self

    def add_program(self, name: str) -> "Machine":
        add(self.home / "opt/bin" / name).chmod(0o755)
        return self

    def add_module(self, name: str) -> "Machine":
        add(self.venv / "lib/python3.11/site-packages" / name)
        return self

    def cause(
        self, output: str, *, network: bool = True, command: str = "", exit_code: int | None = None, path_key: str = ""
    ) -> LikelyCause | None:
        facts = ProjectFacts(
            root=self.root,
            environ=self.environ,
            is_isolated=lambda: True,
            may_read=lambda _stage, _path: True,
            is_made=lambda pattern: bool(self.made) and match(pattern, self.made),
        )
        failed = FailedStep(
            project=facts,
            stage=Stage(name="s", step=ShellStep(("true",))),
            staged={path: FileEntry(digest_bytes(b"")) for path in self.staged},
            interpreter=str(self.venv / "bin/python"),
            output=output,
            network=network,
            command=command,
            exit_code=exit_code,
            python_path_key=path_key,
        )
        return likely_cause(failed)

    def kind(self, output: str, **given: Any) -> str:
        cause = self.cause(output, **given)
        return "" if cause is None else f"{cause.kind} {cause.value}".strip()


def add(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
def test_a_file_is_found_in_messages_of_many_programs(machine: Machine, line: str) -> None:
    assert machine.kind(line) == ""
    assert machine.add_input("d/a.md").kind(line) == "undeclared_input d/a.md"


def test_a_pattern_that_the_shell_did_not_expand_is_about_its_directory(machine: Machine) -> None:
    machine.add_input("d/e/a.md")
    assert machine.kind("cat: 'd/e/*.md': No such file or directory") == "undeclared_input d/e/"
    assert machine.kind("cat: '*.md': No such file or directory") == ""


@pytest.mark.parametrize("line", ["reading d/a.md\ndone", "PermissionError: [Errno 13] Permission denied: 'd/a.md'"])
def test_a_file_that_is_only_mentioned_is_no_cause(machine: Machine, line: str) -> None:
    assert machine.add_input("d/a.md").kind(line) == ""


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
def test_a_program_is_found_in_messages_of_many_programs(machine: Machine, line: str) -> None:
    assert machine.kind(line) == ""
    assert machine.add_program("tool").kind(line) == "program tools/tool"


def test_a_program_behind_a_link_that_leads_out_of_the_sandbox_is_a_cause(machine: Machine) -> None:
    (machine.venv / "bin").mkdir()
    (machine.venv / "bin/tool").symlink_to(machine.home / "opt/bin/tool")
    cause = machine.add_program("tool").cause("bash: line 1: tool: command not found")
    assert cause is not None
    assert f"{machine.venv}/bin/tool, a link to {machine.home}/opt/bin/tool" in cause.text
    add(machine.venv / "bin/other").chmod(0o755)
    assert machine.kind("bash: line 1: other: command not found") == "", "a step sees it"


def test_a_program_that_a_step_sees_outside_of_its_path_is_started_by_its_path(machine: Machine) -> None:
    place = add(machine.venv / "tools/tool")
    place.chmod(0o755)
    machine.environ["PATH"] = str(place.parent)
    cause = machine.cause("bash: line 1: tool: command not found")
    assert cause is not None
    assert (cause.value, cause.hint) == ("", f"write `{place}` in place of `tool` in the command")


def test_a_name_with_a_meaning_in_inputs_is_not_proposed(machine: Machine) -> None:
    for name in ("a*", "${x}"):
        assert machine.add_program(name).kind(f"{name}: command not found") == ""
    for name in ("a\0b", "x" * 300):
        assert machine.kind(f"{name}: command not found") == ""


@pytest.mark.parametrize(
    "line",
    ["bash: line 1: A_B: unbound variable", "bash: line 1: A_B: parameter null or not set", "KeyError: 'A_B'"],
)
def test_a_variable_is_a_cause_only_if_the_user_has_set_it(machine: Machine, line: str) -> None:
    assert machine.kind(line) == ""
    machine.environ["A_B"] = "x"
    assert machine.kind(line) == "variable VALUE"


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
def test_a_failed_connection_is_a_cause_only_without_network(machine: Machine, line: str) -> None:
    assert machine.kind(line, network=False) == "network true"
    assert machine.kind(line, network=True) == ""


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
def test_a_missing_file_is_no_failed_connection(machine: Machine, output: str) -> None:
    """Case: FileNotFoundError contains `eNotFound`, a code of a name that no server knows."""
    assert machine.kind(output, network=False) == ""


NO_MODULE = "E   ModuleNotFoundError: No module named 'app.models'"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("app/models.py", "undeclared_input app/models.py"),
        ("app/other.py", "undeclared_input app/"),
        ("src/app/other.py", "undeclared_input src/app/"),
    ],
)
def test_a_module_is_a_file_of_the_project(machine: Machine, path: str, kind: str) -> None:
    assert machine.add_input(path).kind(NO_MODULE) == kind


def test_a_module_is_of_a_package_if_the_interpreter_does_not_have_it(machine: Machine) -> None:
    assert machine.kind(NO_MODULE) == "package"
    assert machine.add_module("app.py").kind(NO_MODULE) == ""


def test_a_module_that_a_stage_makes_is_not_to_be_installed(machine: Machine) -> None:
    machine.made = "lib/app.py"
    assert machine.kind(NO_MODULE) == ""
    machine.made = "app.py"
    assert machine.kind(NO_MODULE) == "undeclared_input app.py"


@pytest.mark.parametrize(
    ("module", "staged"),
    [("tests.helper", "tests/test_a.py"), ("a.b", "a/c.py"), ("tests", "tests/a.py"), ("w", "w.py")],
)
def test_a_module_with_files_of_the_step_is_not_to_be_installed(machine: Machine, module: str, staged: str) -> None:
    """Case: the folder of the tests was said not to be installed."""
    cause = machine.stage(staged).cause(f"ModuleNotFoundError: No module named '{module}'")
    assert cause is not None
    assert cause.kind == "module"
    assert f"Python finds no module `{module}`" in cause.text
    assert "install" not in cause.hint


@pytest.mark.parametrize(
    ("path_key", "key", "value", "appends"),
    [("pytest/pythonpath", "pytest/pythonpath", "src", True), ("env/PYTHONPATH", "env/PYTHONPATH", "src", False)],
)
def test_a_module_below_src_needs_the_path(
    machine: Machine, path_key: str, key: str, value: str, *, appends: bool
) -> None:
    cause = machine.stage("src/app/models.py").cause(NO_MODULE, path_key=path_key)
    assert cause is not None
    assert (cause.kind, cause.key, cause.value, cause.appends) == ("python_path", key, value, appends)
    hint = machine.cause(NO_MODULE)
    assert hint is not None
    assert (hint.key, hint.hint) == ("", "add `src` to `pythonpath` of the pytest step")


def test_no_command_installs_a_package_by_the_name_that_the_output_has(machine: Machine) -> None:
    # A module that a model invented may be a package of an attacker.
    cause = machine.cause("No module named 'reqeusts_x'")
    assert cause is not None
    assert "reqeusts" not in cause.hint
    assert cause.hint.startswith("correct the name, or install the package that has it there, without `-e`")


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
def test_a_file_of_this_machine_is_a_cause_only_if_the_command_names_it(machine: Machine, line: str) -> None:
    machine.add_program("t")
    for printed, path in (
        ("/room/home/opt/bin/t", "~/opt/bin/t"),
        (f"{machine.home}/opt/bin/t", f"{machine.home}/opt/bin/t"),
    ):
        cause = machine.cause(line.format(printed), command=f"{path} x")
        assert cause is not None
        assert (cause.kind, cause.key) == ("path", ""), "it is not proposed as an input"
        assert f"`{path}` is on this machine, but a step cannot see" in cause.text
        assert machine.kind(line.format(printed)) == "", "a program may print any path"
        assert machine.kind(line.format(f"{printed}x"), command=f"{path}x") == "", "it does not exist"


def test_a_path_of_the_project_is_written_as_the_step_has_it(machine: Machine) -> None:
    line = f"cat: {machine.root}/d/a.md: No such file or directory"
    assert machine.kind(line) == ""
    assert machine.add_input("d/a.md").kind(line) == "path d/a.md"
    staged = machine.stage("d/a.md").cause(line)
    assert staged is not None
    assert (staged.key, staged.hint) == ("", f"write `d/a.md` in place of `{machine.root}/d/a.md`")


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
        ("# curl https://example.com\nfalse", 1, "", "network_use"),
        ("mycurl https://example.com", 6, "", ""),
        ("cat notes-about-curl.md", 1, "cat: x", ""),
        ("nc db 5432", 1, "Connection refused", ""),
        ("true; exit 6", 6, "", ""),
    ],
)
def test_a_connection_that_prints_nothing_is_known_by_its_command(
    machine: Machine, command: str, exit_code: int, output: str, kind: str
) -> None:
    cause = machine.cause(output, network=False, command=command, exit_code=exit_code)
    assert ("" if cause is None else cause.kind) == kind
    assert machine.cause(output, command=command, exit_code=exit_code) is None
    if cause is not None:
        assert (cause.key, cause.value) == ("network", "true")
    if "127.0.0.1" in command or "localhost" in command:
        assert cause is None or "in a step is the step itself" in cause.text


def test_hostile_output_gets_no_pattern_into_the_yaml(machine: Machine) -> None:
    for name in ("*", "a: b", "-x", "!a", "${{ x }}", "a#b", "a\nb"):
        add(machine.root / name)
        assert machine.kind(f"cat: '{name}': No such file or directory") == ""
    assert machine.kind(f"{'a/' * 200_000}: No such file\n" * 3) == ""
    assert machine.add_module("a.py").kind("No module named '" + "a." * 100_000) == ""


def test_of_many_names_only_the_first_are_looked_up(machine: Machine) -> None:
    machine.add_input("f63.md", "f64.md")
    lines = [f"cat: f{n}.md: No such file\n" for n in range(5_000)]
    assert machine.kind("".join(lines)) == "undeclared_input f63.md"
    assert machine.kind("".join(lines[64:])) == "undeclared_input f64.md"
    (machine.root / "f63.md").unlink()
    assert machine.kind("".join(lines)) == ""
