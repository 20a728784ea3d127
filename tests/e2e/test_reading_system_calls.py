"""Commands that only look change no file: judged by the calls that reach the C library and the kernel.

The kernel's need strace; without it these tests are skipped, and say so.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.crash.harness import Server, compile_shim
from tests.e2e.pipelines import green
from tests.e2e.test_reading_writes_nothing import everything, story
from tests.project import Project

pytestmark = pytest.mark.slow

_REPOSITORY = str(Path(__file__).parents[2])
_PROGRAM = """
import os, sys
from orch23.cli.main import main
for line in sys.argv[2:]:
    os.access(f"/asked/{line}", os.F_OK)  # told in the trace, between the calls of one command and the next
    code = main(["-C", sys.argv[1], *line.split()])
    if code:
        sys.exit(f"{line}: {code}")
"""
COMMANDS = (
    ("plan",),
    ("build", "-n"),
    ("status",),
    ("explain", "ask"),
    ("validate",),
    ("graph",),
    ("affected", "--since", "HEAD"),
    ("diff",),
    ("vars",),
    ("schema",),
    ("runs",),
    ("log",),
    ("show", "ask"),
)
TRYING = (("doctor",), ("doctor", "--json"))
"""What tries a sandbox and an interpreter: in a temporary folder, and nowhere in the project."""

_ASKED = re.compile(r'access(?:at2?)?\((?:AT_FDCWD\S*, )?"/asked/([^"]+)"')
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")
_OPENINGS = {"open", "openat", "openat2", "creat"}
_FOR_WRITING = re.compile(r"\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b")
_CHANGING = re.compile(
    r"(?:mkdir|mknod|rmdir|unlink|rename|link|symlink|f?chmod|[fl]?chown|f?truncate|fallocate|f?utimes?|utimens|futimes|"
    r"[fl]?setxattr|[fl]?removexattr|p?writev?|pwrite64|pwritev2|sendfile|copy_file_range|splice|bind|mount|ioctl)(?:at2?|2)?"
)
_BY_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")
_TERMINAL = re.compile(r"/dev/(?:null|tty|pts/\d+)(?:<|$)")
_READING_CONTROLS = re.compile(r"\b(?:TCGETS2?|TIOC\w+|FIOCLEX|FIONBIO|FIONREAD|RNDGETENTCNT)\b")


def is_change(line: str) -> bool:
    """Say whether a line of strace tells of a call that changes a file, or makes one, or opens one to be changed."""
    call = _CALL.match(line)
    if call is None:
        return False
    name, rest = call.groups()
    if name in _OPENINGS:
        return name == "creat" or (_FOR_WRITING.search(rest) is not None and '"/dev/null"' not in rest)
    if _CHANGING.fullmatch(name) is None or (name == "ioctl" and _READING_CONTROLS.search(rest)):
        return False
    first = _BY_DESCRIPTOR.match(rest)
    return first is None or (first[1].startswith("/") and _TERMINAL.match(first[1]) is None)


def traced(project: Project, commands: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Run commands in a process of their own; return for each the calls by which it, or a child, changes a file."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log, scratch = project.root.parent / "strace.log", project.root.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "TMPDIR": str(scratch)}
    environ |= {"PYTHONPATH": _REPOSITORY, "PYTHONDONTWRITEBYTECODE": "1", "ORCH23_TRUST": "1"}
    watch = [
        strace,
        "-f",
        "--seccomp-bpf",
        "-y",
        "-qq",
        "-s",
        "400",
        "-e",
        "signal=none",
        "-e",
        "trace=%file,%desc",
        "-o",
        str(log),
    ]
    argv = [*watch, sys.executable, "-c", _PROGRAM, str(project.root), *map(" ".join, commands)]
    done = subprocess.run(argv, env=environ, cwd=scratch, capture_output=True, text=True, check=False, timeout=100)
    if "ptrace" in done.stderr and not log.exists():
        pytest.skip(f"strace may not watch here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    seen: list[str] = []
    for line in log.read_text(errors="replace").splitlines():
        if (asked := _ASKED.search(line)) is not None:
            seen = found.setdefault(asked[1], [])
        elif is_change(line):
            seen.append(line)
    assert list(found) == [" ".join(command) for command in commands]
    return found


def built(project: Project) -> Project:
    """Return a project that was built, in a repository of git, and is not up to date any more."""
    story(project)
    green(project.build())
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=project.root, env=environ, check=True, capture_output=True)
    project.edit("spec.md", "c\n")
    return project


@pytest.mark.needs("metrics")
@pytest.mark.timeout(300)
def test_no_reading_command_makes_a_call_that_changes_a_file(project: Project) -> None:
    built(project)
    before = everything(project)
    assert {command: calls for command, calls in traced(project, COMMANDS).items() if calls} == {}
    assert everything(project) == before


@pytest.mark.timeout(300)
def test_doctor_changes_nothing_but_in_a_temporary_folder(project: Project) -> None:
    built(project)
    before = everything(project)
    changes = [line for calls in traced(project, TRYING).values() for line in calls]
    assert [line for line in changes if str(project.root) in line or str(project.home) in line] == []
    assert any("orch23-sandbox-" in line for line in changes), "it tried a sandbox"
    assert everything(project) == before
    assert list((project.root.parent / "scratch").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="strace of an ordinary user cannot read the paths of a build")
def test_the_watch_sees_a_build_change_files(project: Project) -> None:
    built(project)
    changes = traced(project, [("build",)])["build"]
    inside = [line for line in changes if str(project.root) in line]
    assert {"openat", "mkdir", "renameat"} <= {match[1] for line in inside if (match := _CALL.match(line))}, inside


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    shim = compile_shim(tmp_path)
    if shim is None:
        pytest.skip("there is no C compiler (cc)")
    served = Server(shim, tmp_path)
    yield served
    served.close()


def test_no_reading_command_makes_a_call_of_the_library_that_changes_a_file(project: Project, server: Server) -> None:
    built(project)
    for command in (one for one in COMMANDS if one[0] not in ("affected", "diff")):  # the server knows no git
        looked = server.run(project, *command)
        assert (looked.status, looked.calls) == (0, ()), (command, looked.printed)
    assert server.run(project, "build").calls.count("renameat") > 1
