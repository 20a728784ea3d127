"""Commands that only look write no file, start no process and open no socket: the interpreter itself watches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import green, pipeline, prompt
from tests.project import Project

_REPOSITORY = str(Path(__file__).parents[2])

COMMANDS = (
    ("plan",),
    ("plan", "--json"),
    ("build", "-n"),
    ("status",),
    ("explain", "ask"),
    ("explain", "turn"),
    ("validate",),
    ("graph",),
    ("vars",),
    ("vars", "--origin"),
    ("schema",),
    ("help", "E802"),
    ("runs",),
    ("gc", "-n"),
    ("cache", "stats"),
)

WATCHED = """
import os, sys
armed = False
refused = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
           "os.chown", "os.utime", "os.setxattr", "os.mkfifo", "os.mknod", "subprocess.Popen", "os.posix_spawn",
           "os.fork", "os.forkpty", "os.exec", "os.system", "pty.spawn", "socket.connect", "socket.bind",
           "socket.sendto", "socket.getaddrinfo", "shutil.rmtree", "tempfile.mkstemp", "tempfile.mkdtemp"}
changing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def watch(event, args):
    if not armed:
        return
    if event in refused or (event == "open" and isinstance(args[2], int) and args[2] & changing):
        os.write(2, f"WATCHED: {event} {args!r}\\n".encode())
        os._exit(99)

sys.addaudithook(watch)
from orch23.cli.main import main
MORE
armed = True
for line in sys.argv[2:]:
    code = main(["-C", sys.argv[1], *line.split()])
    sys.stderr.write(f"{line}: {code}\\n")
    if code:
        os._exit(98)
os._exit(0)
"""


def watched(project: Project, *lines: str, more: str = "") -> "subprocess.CompletedProcess[str]":
    """Run command lines in a process of their own that ends with 99 at the first thing a reader must not do."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(project.home),
        "PYTHONPATH": _REPOSITORY,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    argv = [sys.executable, "-c", WATCHED.replace("MORE", more), str(project.root), *lines]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=50)


def story(project: Project) -> None:
    project.write(
        pipeline(
            """\
  ask: {inputs: [spec.md], outputs: [list.json], llm: {prompt: ask.md.j2, returns: json}}
  turn:
    foreach: {from: "list.json#/names", as: name}
    outputs: ["out/${{ name }}.txt"]
    shell: [sh, -c, 'mkdir -p out; echo $0 > out/$0.txt', "${{ name }}"]
  tell: {inputs: ["out/*.txt"], outputs: [told.txt], render: {template: told.j2}}
  test: {inputs: [test_it.py, told.txt], pytest: {args: [-q]}}
""",
            {
                "spec.md": "a\n",
                "ask.md.j2": prompt("ask", '{"names": ["{{ inputs[0].text | trim }}", "b"]}'),
                "told.j2": "{% for one in inputs %}{{ one.text }}{% endfor %}",
                "test_it.py": "def test_it():\n    assert open('told.txt').read()\n",
            },
            head="vars: {who: me}\n",
        )
    )


def everything(project: Project) -> dict[str, tuple[int, int, bytes]]:
    """Return all files of a project, orch23's own too, with what a write would change even if it wrote the same."""
    found = {}
    for path in sorted(project.root.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    [
        pytest.param("never built", marks=pytest.mark.slow),
        "built",
        pytest.param("edited", marks=pytest.mark.slow),
        pytest.param("cloned", marks=pytest.mark.slow),
    ],
)
def test_reading_writes_no_file_starts_no_process_and_opens_no_socket(project: Project, state: str) -> None:
    story(project)
    if state != "never built":
        green(project.build())
    if state == "edited":
        project.edit("spec.md", "c\n")
        project.edit("told.txt", "by hand\n")
    if state == "cloned":
        for path in sorted((project.root / ".orch23").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (project.root / ".orch23").rmdir()
    before = everything(project)
    seen = watched(project, *(" ".join(command) for command in COMMANDS))
    assert seen.returncode == 0, seen.stderr
    assert everything(project) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "deed",
    [
        "open('x', 'w')",
        "__import__('subprocess').run(['true'])",
        "__import__('socket').socket().bind(('', 0))",
    ],
)
def test_the_watch_sees_what_it_is_there_for(project: Project, deed: str) -> None:
    story(project)
    spoilt = f"""
import orch23.decide.dry_run as dry_run
real = dry_run.DryRun.run
def run(self):
    {deed}
    return real(self)
dry_run.DryRun.run = run
"""
    seen = watched(project, "plan", more=spoilt)
    assert seen.returncode == 99, seen.stderr
    assert "WATCHED" in seen.stderr
