"""`orch23 shell`: a shell where a step ran, by pipes and by a real terminal, in each sandbox of this machine."""

import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Self

import pytest

from tests.e2e.pipelines import green, pipeline, prompt
from tests.processes import ROOT, run_program
from tests.project import Project

pytestmark = pytest.mark.slow  # real processes: `make test` runs them, `make check` does not

_ORCH23 = (sys.executable, "-c", "import sys; sys.argv[0] = 'orch23'; from orch23.entry import run; sys.exit(run())")
_PATIENCE_S = 10
_PROMPTS = "\x1b[?2004h"  # bash reads a line
_TIERS = ("nothing", "namespaces", "namespaces,landlock", "mount_setattr")
"""What the machine of a case lacks: then the sandbox is of namespaces, Landlock, bubblewrap or none."""

STAGES = """\
  red: {inputs: [in.txt], outputs: [out.txt], env: {COLOR: blue}, cwd: sub, shell: 'cat ../in.txt; exit 3'}
  green: {inputs: [in.txt], outputs: [copy.txt], shell: 'cp in.txt copy.txt'}
  each: {foreach: {in: [x, y]}, outputs: ['${{ item }}.txt'], shell: 'echo ${{ item }} > ${{ item }}.txt'}
  page: {inputs: [in.txt], outputs: [page.txt], render: page.j2}
  never: {needs: [red], outputs: [never.txt], shell: 'echo never > never.txt'}
  code:
    inputs: [spec.md]
    outputs: [code.txt]
    llm: {prompt: code.j2, returns: text}
    verify: [{shell: 'grep good code.txt'}]
    retry: 1
"""
FILES = {
    "in.txt": "first\n",
    "spec.md": "a spec\n",
    "page.j2": "a page\n",
    "code.j2": prompt("code {{ attempt }}", "attempt {{ attempt }} is bad\n"),
}


@pytest.fixture
def built(project: Project) -> Project:
    assert project.write(pipeline(STAGES, FILES)).build("-j1", "-k").code == 1
    return project


def environ(project: Project, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "XDG_STATE_HOME") if name in os.environ}
    return {**kept, "HOME": str(project.home), "ORCH23_TRUST": "1", "PYTHONPATH": str(ROOT), **more}


def shell(project: Project, *argv: str, stdin: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*_ORCH23, "shell", *argv],
        cwd=project.root,
        env=environ(project, **more),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def left_over(project: Project) -> list[str]:
    return sorted(path.name for path in (project.root / ".orch23/shells").glob("*"))


def test_a_command_runs_with_the_files_and_the_environment_of_a_failed_step(built: Project) -> None:
    built.edit("in.txt", "second\n")
    done = shell(built, "red", "--", "bash", "-c", "cat ../in.txt; echo $COLOR $PWD; ls ..; exit 5")
    assert (done.returncode, done.stdout) == (5, "first\nblue /room/work/sub\nin.txt\nsub\n"), done.stderr
    assert (done.stderr, left_over(built)) == ("", [])


def test_each_way_to_give_a_command(built: Project) -> None:
    """By words, by a text, by stdin; with its own streams and its own exit code."""
    words = shell(built, "green", "--", "sh", "-c", "cat; echo wrong >&2; kill -9 $$", stdin="given")
    assert (words.returncode, words.stdout, words.stderr) == (137, "given", "wrong\n")
    text = shell(built, "green", "-c", "cat in.txt; exit 4")
    assert (text.returncode, text.stdout) == (4, "first\n")
    assert "stage green, its last result\n  $ bash -euo pipefail -c 'cp in.txt copy.txt'\n" in text.stderr
    assert "no change reaches the project" in text.stderr
    typed = shell(built, "green", stdin="cat in.txt\nexit 6\n")
    assert (typed.returncode, typed.stdout) == (6, "first\n")
    both = shell(built, "green", "-c", "true", "--", "true")
    assert (both.returncode, "error[E641]" in both.stderr) == (64, True)
    missing = shell(built, "green", "--", "nosuch")
    assert (missing.returncode, missing.stderr) == (127, "nosuch: No such file or directory\n")
    refused = shell(built, "green", "--", "./in.txt")
    assert (refused.returncode, refused.stderr) == (126, "./in.txt: Permission denied\n")
    assert left_over(built) == []


def test_the_shell_of_the_user_is_used_where_a_step_can_see_it(built: Project) -> None:
    (built.home / "own").mkdir(parents=True)
    shutil.copy("/bin/sh", built.home / "own/sh")
    for named, used in (("/bin/bash", "/bin/bash"), (str(built.home / "own/sh"), "/bin/sh"), ("bash", "/bin/sh")):
        assert shell(built, "green", "-c", "echo $0", SHELL=named).stdout == f"{used}\n"
    assert "PS1" not in shell(built, "green", "-c", "env", PS1="mine", SECRET_TOKEN="s3cret").stdout


def test_the_attempts_of_a_model_have_the_files_that_they_wrote(built: Project) -> None:
    assert shell(built, "code", "--", "cat", "code.txt", "spec.md").stdout == "attempt 2 is bad\na spec\n"
    first = shell(built, "code", "--attempt", "1", "-c", "cat code.txt; echo x > code.txt")
    assert (first.stdout, "Read-only" in first.stderr) == ("attempt 1 is bad\n", True), (
        "a step that judges may not write the code"
    )
    assert "$ bash -euo pipefail -c 'grep good code.txt'" in first.stderr
    copy = shell(built, "code", "-c", "cp -r . $TMPDIR/w; cd $TMPDIR/w; echo good > code.txt; grep good code.txt")
    assert (copy.returncode, copy.stdout) == (0, "good\n"), "as the page says"
    third = shell(built, "code", "--attempt", "3", "--", "true")
    assert (third.returncode, "attempt 3 of `code` is not kept" in third.stderr) == (66, True), third.stderr


def test_items_are_named_and_other_stages_say_the_way_out(built: Project) -> None:
    assert shell(built, "each@x", "-c", "echo $0").returncode == 0
    for name, said in {
        "each": "name an item: each@x, each@y",
        "never": "`never` has not run here yet\n  = help: `orch23 build never` runs the stage",
        "nosuch": "no stage is named `nosuch`",
    }.items():
        refused = shell(built, name, "--", "true")
        assert (refused.returncode, said in refused.stderr) == (66, True), refused.stderr


def test_a_stale_stage_has_the_files_of_its_last_result(built: Project) -> None:
    built.edit("in.txt", "second\n")
    done = shell(built, "green", "--", "cat", "in.txt")
    assert done.stdout == "first\n"
    assert done.stderr == "note: `green` is stale: the files are of its last result\n"


def test_a_withheld_result_is_not_stale(project: Project) -> None:
    group = """\
  a: {promote: app, outputs: [a.txt], shell: 'echo a > a.txt'}
  b: {promote: app, needs: [a], shell: 'false'}
"""
    assert project.write(pipeline(group, {})).build().code == 1
    done = shell(project, "a", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


def test_bytes_that_are_gone_are_named(built: Project) -> None:
    built.edit("in.txt", "second\n")
    shutil.rmtree(built.root / ".orch23/cas")
    done = shell(built, "red", "--", "true")
    assert (done.returncode, left_over(built)) == (66, [])
    assert "the store does not have the bytes of in.txt any more" in done.stderr
    assert "`orch23 build --force red` runs the stage again" in done.stderr


def test_it_works_beside_a_build_which_does_not_touch_it(built: Project) -> None:
    with Terminal(built, "shell", "green") as terminal:
        terminal.type("cat in.txt\n")
        terminal.wait_for("first")
        assert built.build("-k").code == 1
        terminal.type("cat in.txt && exit 9; exit 1\n")
        assert terminal.end() == 9


@pytest.mark.stride(3)
@pytest.mark.parametrize("lacks", _TIERS)
def test_nothing_reaches_the_project(built: Project, lacks: str) -> None:
    before = {
        path: path.read_bytes() for path in built.root.rglob("*") if path.is_file() and ".orch23" not in path.parts
    }
    attempts = f"echo x > in.txt; echo x > '{built.root}/in.txt'; rm -rf '{built.root}'/*.txt; cat in.txt; touch new"
    lesser = [sys.executable, "-m", "tests.sandbox.lesser", lacks, str(os.getuid())]
    inner = f"cd '{built.root}' && exec \"$@\""
    done = subprocess.run(
        [*lesser, "/bin/sh", "-c", inner, "sh", *_ORCH23, "shell", "green", "-c", attempts],
        cwd=ROOT,
        env=environ(built),
        capture_output=True,
        text=True,
        check=False,
    )
    after = {
        path: path.read_bytes() for path in built.root.rglob("*") if path.is_file() and ".orch23" not in path.parts
    }
    assert after == before
    if lacks == "namespaces,landlock":
        assert (done.returncode, "error[E483]" in done.stderr) == (78, True), done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
        tier = {"nothing": "namespaces", "namespaces": "landlock", "mount_setattr": "bubblewrap"}[lacks]
        assert f"sandbox {tier}," in done.stderr
    assert left_over(built) == []


def test_without_a_sandbox_only_as_a_build_is_allowed(built: Project) -> None:
    built.write(pipeline("  off: {outputs: [off.txt], sandbox: off, shell: 'exit 1'}\n"))
    assert built.build("--allow-unsandboxed").code == 1
    refused = shell(built, "off", "--", "true")
    assert (refused.returncode, "error[E484]" in refused.stderr) == (78, True)
    allowed = shell(built, "off", "--allow-unsandboxed", "-c", "exit 8")
    assert (allowed.returncode, "without a sandbox, what you write elsewhere stays" in allowed.stderr) == (8, True)
    assert "sandbox none, with network" in allowed.stderr, "it has the network of the machine"


@pytest.mark.stride(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_shell_and_removes_its_tree(built: Project, number: signal.Signals) -> None:
    with Terminal(built, "shell", "green") as terminal:
        terminal.type("echo st''arted\n")
        terminal.wait_for("started")
        assert len(left_over(built)) == 1
        terminal.process.send_signal(number)
        assert terminal.end() == 128 + number
    assert left_over(built) == []


def test_the_tree_of_a_killed_shell_is_removed_by_the_next_one(built: Project) -> None:
    with Terminal(built, "shell", "green") as terminal:
        terminal.type("echo st''arted\n")
        terminal.wait_for("started")
        terminal.process.kill()
        terminal.end()
    assert len(left_over(built)) == 1
    assert shell(built, "green", "--", "true").returncode == 0
    assert left_over(built) == []


# ---- a terminal --------------------------------------------------------------------------------


class Terminal:
    """A terminal with orch23 in it, as the leader of its session."""

    def __init__(self, project: Project, *argv: str, prefix: tuple[str, ...] = ()) -> None:
        self._near, far = os.openpty()
        self.resize(24, 80)
        self.text = ""

        def adopt() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.settings = termios.tcgetattr(far)
        self.process = subprocess.Popen(
            [*prefix, *_ORCH23, *argv],
            cwd=project.root if not prefix else ROOT,
            env=environ(project, TERM="xterm", SHELL="/bin/bash", CI="1"),
            stdin=far,
            stdout=far,
            stderr=far,
            preexec_fn=adopt,  # noqa: PLW1509 - the tests have one thread
        )
        self._far = far

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._near)
        os.close(self._far)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def wait_for(self, text: str) -> str:
        """Read until a text comes, and return what came before it."""
        while text not in self.text:
            assert select.select([self._near], [], [], _PATIENCE_S)[0], f"no {text!r} in {self.text!r}"
            self.text += os.read(self._near, 4096).decode()
        before, _, self.text = self.text.partition(text)
        return before

    def end(self) -> int:
        """Read until the process has ended, and return its exit code."""
        while self.process.poll() is None:
            if select.select([self._near], [], [], 0.05)[0]:
                self.text += os.read(self._near, 4096).decode()
        return self.process.returncode

    @property
    def has_its_settings(self) -> bool:
        return termios.tcgetattr(self._far) == self.settings


@pytest.fixture(params=["nothing", "namespaces", "mount_setattr", "off"])
def terminal(request: pytest.FixtureRequest, built: Project) -> Iterator[Terminal]:
    """Yield a terminal with a shell, in each sandbox and without one."""
    lacks, stage = request.param, "green"
    if lacks == "off":
        lacks, stage = "nothing", "off"
        built.write(pipeline("  off: {outputs: [off.txt], sandbox: off, shell: 'exit 1'}\n"))
        assert built.build("--allow-unsandboxed").code == 1
    lesser = (sys.executable, "-m", "tests.sandbox.lesser", lacks, str(os.getuid()), "/bin/sh", "-c")
    prefix = (*lesser, f"cd '{built.root}' && exec \"$@\"", "sh")
    with Terminal(built, "shell", stage, "--allow-unsandboxed", prefix=prefix) as opened:
        opened.wait_for(_PROMPTS)
        yield opened


def test_a_terminal_has_job_control_and_its_size(terminal: Terminal, built: Project) -> None:
    terminal.type("stty size; test -t 0 -a -t 1 -a -t 2 && echo a''ll $TERM\n")
    assert "24 80" in terminal.wait_for("all xterm")
    # Ctrl-C ends the command and not the shell; Ctrl-Z stops it, and it goes on in the background.
    for key, shown in (("\x03", "code 130"), ("\x1a", "code 148")):
        terminal.wait_for(_PROMPTS)
        terminal.type("sh -c 'echo wai''ting; exec cat'\n")
        terminal.wait_for("waiting")
        terminal.type(key)
        terminal.wait_for(_PROMPTS)
        terminal.type("echo co''de $?\n")
        terminal.wait_for(shown)
    terminal.wait_for(_PROMPTS)
    terminal.type("kill -9 %1; wait; echo re''ady; until [ \"$(stty size)\" = '50 132' ]; do :; done; echo re''sized\n")
    terminal.wait_for("ready")
    terminal.resize(50, 132)
    terminal.wait_for("resized")
    terminal.wait_for(_PROMPTS)
    # Ctrl-D ends the shell, with its last exit code.
    terminal.type("sh -c 'echo la''st; exit 42'\n")
    terminal.wait_for("last")
    terminal.wait_for(_PROMPTS)
    terminal.type("\x04")
    assert terminal.end() == 42
    assert terminal.has_its_settings
    assert left_over(built) == []


def test_a_step_cannot_reach_the_terminal_of_the_user(terminal: Terminal) -> None:
    """It has another terminal: what it sets there, and types into it, stays there."""
    terminal.type("stty -echo; stty -icanon; exit 0\n")
    assert terminal.end() == 0
    assert terminal.has_its_settings


def test_what_is_kept_of_an_attempt_has_no_path_of_this_machine(built: Project) -> None:
    (kept,) = built.root.glob("logs/*/red/attempt-1/action.json")
    text = kept.read_text()
    assert str(built.root) not in text
    assert json.loads(text)["action"]["env"] == {"COLOR": "blue"}
    kept.write_text(text.replace('"in.txt"', '"../../in.txt"'))
    refused = shell(built, "red", "--", "true")
    assert (refused.returncode, "attempt 1 of `red` is not kept" in refused.stderr) == (66, True)
    kept.write_text("{}")
    assert shell(built, "red", "--", "true").returncode == 66
    green(built.run("runs"))


def test_a_closed_stdin_is_the_end_of_the_input(built: Project) -> None:
    done = run_program(
        ("shell", "green", "--", "cat"), cwd=built.root, env=environ(built), before="import os; os.close(0)"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_logs_allow_no_more_than_the_pipeline(built: Project) -> None:
    """A clone can bring them: they are not trusted."""
    (kept,) = built.root.glob("logs/*/red/attempt-1/action.json")
    text = kept.read_text()
    planted = text.replace('"sandbox":true', '"sandbox":false').replace('"network":false', '"network":true')
    assert planted != text
    kept.write_text(planted)
    done = shell(built, "red", "--allow-unsandboxed", "-c", f"echo x > '{built.root}/in.txt'")
    assert (done.returncode != 0, "sandbox namespaces, without network" in done.stderr) == (True, True), done.stderr
    assert built.read("in.txt") == "first\n"


def test_in_a_clone_a_build_comes_first(built: Project) -> None:
    """The folder of a store that no build has made would be taken for the store of another user."""
    clone = built.copy(built.root.parent / "clone")
    shutil.rmtree(clone.root / ".orch23")
    for name in ("green", "red"):
        refused = shell(clone, name, "--", "true")
        assert (refused.returncode, f"`{name}` has not run here yet" in refused.stderr) == (66, True), refused.stderr
    assert not (clone.root / ".orch23").exists()
    assert clone.build("green").code == 0
    assert shell(clone, "green", "--", "cat", "in.txt").stdout == "first\n"


def test_a_step_of_another_executor_has_the_sandbox_of_this_machine(built: Project) -> None:
    built.edit("pipeline.yaml", built.read("pipeline.yaml").replace("stages:", "executor: dask\nstages:"))
    done = shell(built, "green", "--", "cat", "in.txt")
    assert (done.returncode, done.stdout) == (0, "first\n"), done.stderr
    assert "note: the step runs by the executor `dask`; this is the sandbox of this machine\n" in done.stderr


def test_a_stage_without_a_program_has_its_files(built: Project) -> None:
    done = shell(built, "page", "-c", "cat in.txt page.txt; echo $LANG")
    assert (done.returncode, done.stdout) == (0, "first\na page\nC.UTF-8\n"), done.stderr
    assert "its step starts no program" in done.stderr
