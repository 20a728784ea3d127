"""The lines that docs/commands.md shows for shell completion work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/commands.md").read_text()
LINES = {
    shell: line.replace(r"\|", "|")
    for shell, line in re.findall(r"^\| (bash|zsh|fish) \| .* \| `(.*ORCH23_COMPLETE.*)` \|$", PAGE, re.MULTILINE)
}
PIPELINE = (
    "version: 1\nname: t\nstages:\n  first: {outputs: [a], shell: touch a}\n  second: {outputs: [b], shell: touch b}\n"
)


def in_shell(folder: Path, argv: list[str]) -> str:
    """Run a shell with a command `orch23`; return its output."""
    command = folder / "bin" / "orch23"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom orch23.entry import run\nrun()\n")
    command.chmod(0o755)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    env = {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_each_shell_has_a_line() -> None:
    assert sorted(LINES) == ["bash", "fish", "zsh"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["orch23", "bui"], ["build"]),
        (["orch23", "model", ""], ["install", "list", "remove"]),
        (["orch23", "explain", "s"], ["second"]),
        (["orch23", "init", "tdd"], ["tdd_loop"]),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    """What bash does at Tab: call the function that is registered for the command."""
    script = LINES["bash"] + (
        '\nfunction=$(complete -p orch23 | sed "s/.*-F \\([^ ]*\\).*/\\1/")\n'
        'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n'
        '"$function" orch23\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    found = in_shell(tmp_path, ["bash", "--norc", "-c", script, "bash", *words])
    assert sorted(found.split()) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "registers"), [("zsh", "compdef _orch23"), ("fish", "complete --no-files --command orch23")]
)
def test_the_other_lines_print_the_script_of_their_shell(tmp_path: Path, shell: str, registers: str) -> None:
    command = re.search(r"_ORCH23_COMPLETE=\w+ orch23", LINES[shell])
    assert command is not None
    assert registers in in_shell(tmp_path, ["sh", "-c", command[0]])
