"""On a system other than Linux, orch23 says so before it imports a module that is missing there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = """
import sys

MISSING = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for name in MISSING:
    sys.modules.pop(name, None)
sys.platform = sys.argv.pop(1)
before = set(sys.modules)
from orch23.entry import main
code = main(sys.argv[1:])
print(sorted(name for name in set(sys.modules) - before if name.startswith("orch23")))
sys.exit(code)
"""


def orch23(system: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", ELSEWHERE, system, *argv]
    return subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argv", [(), ("build",), ("doctor",), ("--help",)])
@pytest.mark.parametrize(
    ("system", "name", "way"),
    [
        ("darwin", "macOS", "docker run"),
        ("win32", "Windows", "wsl --install"),
        ("freebsd14", "freebsd14", "docker run"),
    ],
)
def test_another_system_is_refused_with_a_way_out(system: str, name: str, way: str, argv: tuple[str, ...]) -> None:
    done = orch23(system, *argv)
    assert done.returncode == 78
    assert done.stderr.startswith(f"error: orch23 runs on Linux, and this is {name}: ")
    assert way in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "['orch23', 'orch23.entry']\n"


def test_the_version_is_printed_everywhere() -> None:
    done = orch23("darwin", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("orch23 ")
