"""Each row of docs/step-environment.md holds: a step is run in each tier, and looks."""

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.execute.launch import TierChoice
from orch23.execute.sandbox.bubblewrap import BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from tests.project import Project
from tests.sandbox.users import need

PAGE = (Path(__file__).parents[2] / "docs" / "step-environment.md").read_text()
HEAD = "version: 1\nstages:\n  look:\n"
NONE = "none"
TIERS = ("namespaces", "bubblewrap", "landlock", NONE)
CACHES = ("COVERAGE_FILE", "HYPOTHESIS_STORAGE_DIRECTORY", "MYPY_CACHE_DIR", "RUFF_CACHE_DIR")


def chosen(name: str) -> TierChoice:
    if name == NONE:
        return TierChoice(None, (("bubblewrap", "it is not installed"),))
    need(name)
    if name == "landlock":
        return TierChoice(LandlockLauncher())
    return TierChoice(BubblewrapLauncher(Path("/usr/bin/bwrap")) if name == "bubblewrap" else NamespacesLauncher())


def rows(heading: str) -> list[str]:
    """Return the first cells of the tables below a heading."""
    part = re.split(rf"^## {heading}$", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]
    return [row for row in re.findall(r"^\| (.*?) \|", part, re.MULTILINE) if row not in {"variable", "what"}]


def looked(project: Project, tier: str, script: str, **stage: str) -> str:
    """Run a script in a stage, and return what it wrote to `out`."""
    more = "".join(f"    {key}: {value}\n" for key, value in stage.items())
    text = "".join(f"      {line}\n" for line in script.splitlines())
    project.write({"pipeline.yaml": f"{HEAD}    inputs: [src/]\n    outputs: [out]\n{more}    shell: |\n{text}"})
    with patch("orch23.cli.build_run._best_tier", return_value=chosen(tier)):
        done = project.build(*(["--allow-unsandboxed"] if tier == NONE else []))
    assert done.code == 0, done.err
    return project.read("out")


@pytest.fixture
def sources(project: Project) -> Project:
    project.write({"src/app.py": "x = 1\n", "src/run.sh": "#!/bin/sh\n", "other.txt": "other"})
    (project.root / "src/run.sh").chmod(0o700)
    (project.root / "src/app.py").chmod(0o600)
    return project


@pytest.mark.parametrize("tier", TIERS)
def test_the_variables_of_a_step_are_those_of_the_page(sources: Project, tier: str) -> None:
    with patch.dict(os.environ, {"OF_MY_TERMINAL": "1"}):
        printed = looked(sources, tier, "env -0 | tr '\\n\\0' ' \\n' > out", env="{MODE: test}")
    found = dict(line.split("=", 1) for line in printed.splitlines())
    # Of bash itself.
    for name in ("PWD", "SHLVL", "_", "OLDPWD"):
        found.pop(name, None)
    named = [name for row in rows("Variables") for name in re.findall(r"`(\w+)`", row)]
    assert found.keys() == {*named} - {*CACHES, "PYTHONNOUSERSITE", "env"}
    assert found["PATH"].split(":")[1:] == ["/usr/local/bin", "/usr/bin", "/bin"]
    fixed = {"LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "MODE": "test"}
    assert found | fixed | {"SOURCE_DATE_EPOCH": "315619200"} == found
    assert found["HOME"] != found["TMPDIR"]
    assert found["HOME"].startswith(found["GIT_CEILING_DIRECTORIES"])


def test_a_variable_that_could_change_the_tools_is_refused(sources: Project) -> None:
    for name in (
        "HOME",
        "TMPDIR",
        "LD_PRELOAD",
        "GIT_DIR",
        "PYTEST_ADDOPTS",
        "ORCH23_ROOM",
        "SSH_AUTH_SOCK",
        "API_KEY",
    ):
        sources.write(
            {"pipeline.yaml": f"version: 1\nstages:\n  a: {{outputs: [x], env: {{{name}: y}}, shell: touch x}}\n"}
        )
        done = sources.build()
        assert (done.code != 0, name in done.err) == (True, True), done.err


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_a_verification_has_variables_for_caches_and_cannot_write(sources: Project, tier: str) -> None:
    steps = "[{shell: 'env > $TMPDIR/env; env >&2; touch $HOME/x; ! touch new 2> /dev/null; exit 3'}]"
    if tier == NONE:
        steps = steps.replace("! touch new 2> /dev/null; ", "")
    sources.write({"pipeline.yaml": f"{HEAD}    outputs: [out]\n    shell: touch out\n    verify: {steps}\n"})
    with patch("orch23.cli.build_run._best_tier", return_value=chosen(tier)):
        done = sources.build(*(["--allow-unsandboxed"] if tier == NONE else []), "--verbose")
    assert "exited with 3" in done.err, done.err
    printed = (
        sources.run("show", "look").out
        + done.err
        + "".join(path.read_text(errors="replace") for path in (sources.root / "logs").rglob("*") if path.is_file())
    )
    for name in (*CACHES, "PYTHONNOUSERSITE"):
        assert f"{name}=" in printed, name
        assert f"`{name}`" in PAGE


SCRIPTS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "working directory": ("basename $(pwd -P) > ../out", lambda out: out == "src\n"),
    "`shell: TEXT`": (
        "echo $0 $- > out; set -o | grep pipefail >> out",
        lambda out: out.startswith("bash ") and "on" in out,
    ),
    "standard input": ("readlink /proc/self/fd/0 > out", lambda out: out == "/dev/null\n"),
    "umask": ("umask > out", lambda out: out == "0022\n"),
    # Without a sandbox, they are set just after the start.
    "limits": (
        "until [ $(ulimit -Hn) -le 4096 ]; do :; done; ulimit -n > out; ulimit -Hn >> out; ulimit -s >> out",
        lambda out: out == "1024\n4096\n8192\n",
    ),
    "files in the tree": (
        "find . -type f | sort > $TMPDIR/x; cp $TMPDIR/x out",
        lambda out: out == "./src/app.py\n./src/run.sh\n",
    ),
    "modes": ("stat -c %a src/app.py src/run.sh > out", lambda out: out == "644\n755\n"),
    "times": ("stat -c %Y src/app.py src > out", lambda out: out == "315619200\n315619200\n"),
}


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("row", SCRIPTS)
def test_a_step_starts_as_the_page_says(sources: Project, row: str, tier: str) -> None:
    script, expected = SCRIPTS[row]
    more = {"cwd": "src"} if row == "working directory" else {}
    assert expected(looked(sources, tier, script, **more))


def test_every_row_about_start_and_files_is_looked_at() -> None:
    elsewhere = {
        "`shell: [PROGRAM, ARGUMENT]`",  # below
        "`.orch23/listings/1`, `2`, …",  # in test_listing_files.py
        "writing in the tree, `shell`",  # below
        "writing in the tree, `verify` and `pytest`",  # above
    }
    assert {*rows("Start"), *rows("Files")} == {*SCRIPTS, *elsewhere}


@pytest.mark.slow
def test_a_list_is_started_without_a_shell_and_a_file_that_is_not_declared_is_refused(sources: Project) -> None:
    sources.write({"pipeline.yaml": 'version: 1\nstages:\n  a: {outputs: ["$HOME"], shell: [touch, "$HOME"]}\n'})
    assert sources.build().code == 0
    assert (sources.root / "$HOME").exists()
    sources.write({"pipeline.yaml": "version: 1\nstages:\n  a: {outputs: [x], shell: touch x y}\n"})
    done = sources.build()
    assert (done.code != 0, "`y`" in done.err) == (True, True), done.err


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_what_a_step_sees_of_the_machine(sources: Project, tier: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = sources.root / "other.txt"
    home = tmp_path_factory.mktemp("home")
    (home / "file").write_text("x")
    connect = 'import socket; socket.create_connection(("127.0.0.1", PORT), 2); print("reached")'
    lines = {
        "path of the sandbox directory": "dirname $HOME",
        "the project's own files": f"cat {secret} 2>&- || echo closed",
        "your home directory": f"cat {home}/file 2>&- || ls {home} 2>&- || echo closed",
        "`/usr`, `/bin`, the interpreter": "(touch /usr/x-orch23 2>&- && rm /usr/x-orch23) || echo read-only",
        "`/tmp`": "ls -A /tmp 2>/dev/null | wc -l || true",
        "user and group": "id -un; id -u; id -g",
        "name of the host, `/etc/hosts`, `/etc/passwd`": "uname -n; cat /etc/hosts; wc -l < /etc/passwd",
        "processes of others": f"kill -0 {os.getppid()} 2>/dev/null && echo visible || echo hidden",
        "network": f"python3 -c '{connect}' 2>&- || echo no",
    }
    assert rows("The machine") == list(lines)
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = "\n".join(f"echo $({line}) >> $TMPDIR/x" for line in lines.values())
        printed = looked(sources, tier, script.replace("PORT", str(server.getsockname()[1])) + "\ncp $TMPDIR/x out")
    found = dict(zip(lines, printed.splitlines(), strict=True))
    is_open = tier == NONE
    assert (found["path of the sandbox directory"] == "/room") == (tier in {"namespaces", "bubblewrap"})
    assert (found["the project's own files"] == "other") == is_open
    assert (found["your home directory"] == "x") == is_open
    assert (found["your home directory"] == "closed") == (not is_open)
    if not is_open:
        assert found["`/usr`, `/bin`, the interpreter"] == "read-only"
        # An interpreter below /tmp is visible there, and nothing else.
        assert found["`/tmp`"] in ("0", "1" if sys.prefix.startswith("/tmp/") else "0")
    host = found["name of the host, `/etc/hosts`, `/etc/passwd`"]
    is_isolated = tier in {"namespaces", "bubblewrap"}
    assert (found["user and group"] == "orch23 1000 1000") == is_isolated
    assert (host == "orch23 127.0.0.1 localhost orch23 ::1 localhost 3") == is_isolated
    assert found["processes of others"] == ("visible" if is_open else "hidden")
    assert found["network"] == ("reached" if is_open else "no")
