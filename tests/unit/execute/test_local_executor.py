"""One action from its inputs to its outcome, with real processes."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.execute import local_executor
from orch23.execute.launch import Launch, PlainLauncher, run_launch
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.process import OutputLimits, ProcessOutcome
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import SandboxDir, TreeChanges
from orch23.model.action import (
    TOOLS_FOLDER,
    WORKING_DIRECTORY,
    Action,
    ActionResult,
    Cancelled,
    Completed,
    EngineUnavailable,
    InputsChanged,
    Interpreter,
    TimedOut,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import ConfigurationError
from tests.doubles import memory


class Source:
    """Contents by path, as a dict."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        data = self.files.get(path)
        if data is None or digest_bytes(data) != entry.digest:
            return False
        Path(target).write_bytes(data)
        return True


class World:
    """An executor over a dict of files."""

    def __init__(self, folder: Path) -> None:
        self.source = Source({"a.txt": b"alpha\n", "sub/b.txt": b"beta\n"})
        self.kept = memory()
        self.sandbox_dirs = SandboxDirs(folder, self.source)
        self.executor = LocalExecutor(
            sandbox_dirs=self.sandbox_dirs, contents=self.kept, workers=2, output_limits=OutputLimits(log_bytes=1 << 20)
        )

    def action(self, *argv: str, **more: object) -> Action:
        inputs = {path: FileEntry(digest_bytes(data)) for path, data in self.source.files.items()}
        fields: dict[str, object] = {"argv": argv, "inputs": inputs, **more}
        return Action(**fields)  # type: ignore[arg-type]  # the tests spell the fields

    def run(self, *argv: str, **more: object) -> ActionResult:
        outcome = self.executor.run(self.action(*argv, **more))
        assert isinstance(outcome, Completed), outcome
        return outcome.result


class Unseen(SandboxDirs):
    """SandboxDirs whose trees must not be looked at."""

    def scan_open(self, *_: object) -> TreeChanges:
        raise AssertionError


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "rooms")
    yield world
    world.executor.close()
    assert list((tmp_path / "rooms").glob("*")) == []  # every sandbox_dir is gone, whatever happened in it


def test_the_changes_of_the_tree_are_reported_and_the_bytes_stored(world: World) -> None:
    script = (
        "echo new > new; echo changed > a.txt; rm sub/b.txt; chmod +x new; mkdir -p __pycache__; echo x > __pycache__/y"
    )
    result = world.run("bash", "-c", script, scratch=("__pycache__",))
    assert result.exit_code == 0
    assert result.written == {
        "a.txt": FileEntry(digest_bytes(b"changed\n")),
        "new": FileEntry(digest_bytes(b"new\n"), executable=True),
    }
    assert result.removed == ("sub/b.txt",)
    assert world.kept.get(digest_bytes(b"new\n")) == b"new\n"


def test_python_is_the_interpreter_of_the_action_and_of_the_path(world: World) -> None:
    result = world.run("python", "-c", "import sys; print(sys.executable)")
    assert result.output.text == f"{sys.executable}\n"
    assert world.run("bash", "-c", "command -v python").output.text == f"{Path(sys.executable).parent}/python\n"


def test_a_step_is_given_nothing_to_read(world: World) -> None:
    reading, writing = os.pipe()
    typed = os.dup(0)
    os.dup2(reading, 0)
    try:
        os.write(writing, b"typed\n")
        os.close(writing)
        assert world.run("cat").output.text == ""
    finally:
        os.dup2(typed, 0)
        os.close(typed)
        os.close(reading)


def test_the_environment_is_made_from_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VARIABLE", "inherited")
    text = world.run("env", env={"MODE": "fast"}).output.text
    names = {line.partition("=")[0] for line in text.splitlines()}
    expected = "PATH HOME TMPDIR LANG TZ PYTHONHASHSEED PYTHONDONTWRITEBYTECODE SOURCE_DATE_EPOCH MODE ORCH23_ROOM"
    assert names == {*expected.split(), "GIT_CEILING_DIRECTORIES", "__CARGO_TEST_ROOT"}
    assert "HOME=/room/home" in text  # one name for every sandbox_dir, or no two runs would print the same


def test_the_working_directory_is_made_and_used(world: World) -> None:
    result = world.run("bash", "-c", "pwd; echo x > here", working_directory="deep/er")
    assert result.output.text == "/room/work/deep/er\n"
    assert set(result.written) == {"deep/er/here"}


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "GH_TOKEN",
        "MY_SECRET",
        "DB_PASSWORD",
        "LD_PRELOAD",
        "PYTEST_ADDOPTS",
        "GIT_DIR",
        "SSH_AUTH_SOCK",
        "HOME",
    ],
)
def test_a_refused_name_starts_nothing(world: World, name: str) -> None:
    outcome = world.executor.run(world.action("true", env={name: "x"}))
    assert isinstance(outcome, EngineUnavailable)
    assert name in outcome.reason


def test_pythonpath_cannot_bend_a_pytest_step(world: World) -> None:
    action = world.action("python", "-c", "0", env={"PYTHONPATH": "."}, reports=True)
    outcome = world.executor.run(action)
    assert isinstance(outcome, EngineUnavailable)
    assert "PYTHONPATH" in outcome.reason


def test_inputs_that_changed_run_nothing(world: World, tmp_path: Path) -> None:
    action = world.action("touch", str(tmp_path / "ran"))
    world.source.files["a.txt"] = b"other\n"
    assert world.executor.run(action) == InputsChanged(("a.txt",))
    assert not (tmp_path / "ran").exists()


def test_a_missing_program_fails_as_in_a_shell(world: World) -> None:
    result = world.run("no-such-program")
    assert (result.exit_code, result.output.text) == (127, "no-such-program: not found\n")
    assert world.run("./a.txt").exit_code == 126


def test_a_full_disk_is_no_failure_of_the_stage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(world.source, "copy_into", full)
    outcome = world.executor.run(world.action("true"))
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.kind == "room"


def test_a_violation_keeps_nothing_of_the_tree(world: World) -> None:
    result = world.run("bash", "-c", "ln -s /etc/passwd link; echo x > fine")
    assert [d.code for d in result.violations] == ["E610"]
    assert result.written == {}


@pytest.mark.slow
def test_time_is_up(world: World) -> None:
    outcome = world.executor.run(world.action("bash", "-c", "echo so far; sleep 60", timeout_s=0.3))
    assert isinstance(outcome, TimedOut)
    assert (outcome.output.text, outcome.timeout_s) == ("so far\n", 0.3)


def test_long_output_is_head_and_tail_and_the_log_has_all(world: World) -> None:
    result = world.run("bash", "-c", "pwd; seq 1 60000")
    assert result.output.log is not None
    log = world.kept.get(result.output.log).decode()
    assert log.startswith("/room/work\n1\n2\n")
    assert log.endswith("\n60000\n")
    assert result.output.text.startswith("/room/work\n1\n")
    assert result.output.text.endswith("\n60000\n")
    assert len(result.output.text) < len(log)


def test_a_flood_fails_and_says_so(world: World) -> None:
    result = world.run("yes")
    assert result.exit_code == 128 + 9
    assert result.output.text.endswith("killed: it printed more than 1048576 bytes\n")


def test_cancel_ends_what_runs_and_what_waits(world: World, tmp_path: Path) -> None:
    begun = [tmp_path / "1", tmp_path / "2"]
    actions = [world.action("bash", "-c", f"touch {path}; sleep 60") for path in begun]
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(world.executor.run, action) for action in actions]
        ready = threading.Event()
        while not all(path.exists() for path in begun):
            ready.wait(0.005)
        waiting = threads.submit(world.executor.run, world.action("touch", str(tmp_path / "ran")))
        world.executor.cancel()
        killed = [future.result(20) for future in running]
    assert all(isinstance(one, Cancelled) and one.ran_s is not None for one in killed)
    assert waiting.result(20) == Cancelled(None), "it had not started"
    assert world.executor.run(world.action("true")) == Cancelled()
    assert not (tmp_path / "ran").exists()


def test_a_sandbox_is_one_method(tmp_path: Path) -> None:
    class Loud(PlainLauncher, frozen=True):
        tier = "loud"

        @contextmanager
        def prepare(self, launch: Launch) -> Iterator[Launch]:
            yield replace(launch, argv=("echo", str(launch.network), *launch.argv))

    world = World(tmp_path / "rooms")
    executor = LocalExecutor(sandbox_dirs=world.sandbox_dirs, contents=world.kept, workers=1, launcher=Loud())
    outcome = executor.run(world.action("true", network=True))
    executor.close()
    assert isinstance(outcome, Completed)
    assert outcome.result.output.text == "True true\n"
    assert (executor.sandbox, world.executor.sandbox) == ("loud", "none")


def test_a_tree_is_not_scanned_while_a_process_that_was_not_killed_may_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_survivor(*args: Any, **more: Any) -> ProcessOutcome:
        return replace(run_launch(*args, **more), survivors=(1,))

    monkeypatch.setattr(local_executor, "run_launch", with_survivor)
    executor = LocalExecutor(sandbox_dirs=Unseen(tmp_path / "rooms", Source({})), contents=memory(), workers=1)
    action = Action(argv=("true",), inputs={})
    outcome = executor.run(action)
    executor.close()
    assert isinstance(outcome, Completed)
    assert [one.code for one in outcome.result.violations] == ["E619"]
    assert outcome.result.written == {}


def test_a_missing_interpreter_is_reported_and_nothing_is_run(world: World, tmp_path: Path) -> None:
    missing = Diagnostic("E480", "no Python interpreter '3.99'")
    asked: list[Interpreter] = []

    def find(wanted: Interpreter) -> Path:
        asked.append(wanted)
        raise ConfigurationError(missing)

    executor = LocalExecutor(sandbox_dirs=world.sandbox_dirs, contents=world.kept, workers=1, interpreters=find)
    outcome = executor.run(world.action("touch", str(tmp_path / "ran"), python=Interpreter("3.99", "3.99")))
    executor.close()
    assert outcome == EngineUnavailable(missing.message, diagnostic=missing)
    assert asked == [Interpreter("3.99", "3.99")]
    assert not (tmp_path / "ran").exists()


def test_tools_are_outside_of_the_tree_and_not_in_the_result(world: World) -> None:
    tool, program = (
        FileEntry(world.kept.put(b"a tool\n")),
        FileEntry(world.kept.put(b"#!/bin/sh\necho ran\n"), executable=True),
    )
    tools = {"tool.txt": tool, "program": program}
    script = 'cat "$0"; "$1"; [ "$2" = "$PWD" ]; case "$0" in "$PWD"*) exit 3;; esac'
    arguments = (f"{TOOLS_FOLDER}/tool.txt", f"{TOOLS_FOLDER}/program", f"{WORKING_DIRECTORY}")
    result = world.run("bash", "-ec", script, *arguments, tools=tools, working_directory="sub")
    assert (result.exit_code, result.output.text) == (0, "a tool\nran\n")
    assert result.written == {}
    plain = world.run("echo", TOOLS_FOLDER, WORKING_DIRECTORY)
    assert plain.output.text == f"{TOOLS_FOLDER} {WORKING_DIRECTORY}\n", "a command without tools is left as it is"


def test_a_tool_that_is_not_in_the_contents_is_missing_like_an_input(world: World) -> None:
    lost = FileEntry(digest_bytes(b"lost"))
    assert world.executor.run(world.action("true", tools={"plugin.py": lost})) == InputsChanged(("plugin.py",))


def test_a_long_command_and_a_tool_of_the_name_of_its_file_are_refused(world: World) -> None:
    outcome = world.executor.run(world.action("true", tools={"command.sh": FileEntry(world.kept.put(b""))}))
    assert isinstance(outcome, EngineUnavailable)
    assert "command.sh" in outcome.reason


@pytest.mark.parametrize(("workers", "sandbox", "kept"), [(1, False, True), (1, True, False), (2, False, False)])
def test_folders_serve_again_only_after_a_trusted_step_that_was_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, sandbox: bool, kept: bool
) -> None:
    sandbox_dirs = SandboxDirs(tmp_path / "rooms", Source({}))
    executor = LocalExecutor(sandbox_dirs=sandbox_dirs, contents=memory(), workers=workers)
    action = Action(argv=("true",), inputs={}, sandbox=sandbox)
    cleared: list[SandboxDir] = []

    def recycle(_dirs: SandboxDirs, sandbox_dir: SandboxDir) -> bool:
        cleared.append(sandbox_dir)
        return True

    monkeypatch.setattr(SandboxDirs, "recycle", recycle)
    assert isinstance(executor.run(action), Completed)
    executor.close()
    assert (cleared != []) is kept
    monkeypatch.undo()
    for sandbox_dir in cleared:
        assert sandbox_dirs.recycle(sandbox_dir)
    sandbox_dirs.close()
    assert list((tmp_path / "rooms").iterdir()) == []


# Each changes what the next step would find, and then sets the times back.
_ATTACKS = {
    "file in home": "echo 'echo attacked' > $HOME/.profile",
    "file in tmp": "echo attacked > $TMPDIR/x",
    "link for home": "rmdir $HOME; mkdir $OUT/h; echo attacked > $OUT/h/.profile; ln -s $OUT/h $HOME",
    "link for tmp": "rmdir $TMPDIR; mkdir $OUT/t; echo attacked > $OUT/t/x; ln -s $OUT/t $TMPDIR",
    "link for a folder of work": "mkdir $OUT/sub; echo attacked > $OUT/sub/x; rm -r sub; ln -s $OUT/sub sub",
    "link for work": "mkdir $OUT/w; mv ../work $OUT/old; ln -s $OUT/w ../work",
    "settings of the same length": "printf '[pypy]\n' > ../mypy.ini",
    "link for settings": "printf '[pypy]\n' > $OUT/i; ln -sf $OUT/i ../mypy.ini",
    "settings with a second name": "rm ../mypy.ini; printf '[mypy]\n' > $OUT/i; ln $OUT/i ../mypy.ini",
    "file beside work": "echo attacked > ../conftest.py",
    "process that writes later": "setsid sh -c 'while echo attacked > ../home/late; do :; done' >/dev/null 2>&1 &",
}
_RESTORED = "for one in .. ../home ../tmp ../mypy.ini sub; do touch -hr $OUT/times $one 2>/dev/null; done; :"
_SEEN = (
    "cd ..; for one in . home tmp work work/sub *.ini; do ls -lA --time-style=+ $one; cat $one 2>/dev/null; done; "
    "sleep 0.01; ls -A home"
)


@pytest.mark.stride(4)
@pytest.mark.parametrize("attack", _ATTACKS)
def test_the_next_step_finds_nothing_of_a_step_that_sets_times_back(tmp_path: Path, attack: str) -> None:
    """Steps without a sandbox, one at a time: only then are folders used again."""
    out = tmp_path / "out"
    out.mkdir()
    seen = []
    for folder, script in (("clean", "true"), ("attacked", _ATTACKS[attack])):
        source = Source({"a.txt": b"alpha\n", "sub/b.txt": b"beta\n"})
        contents = memory()
        executor = LocalExecutor(sandbox_dirs=SandboxDirs(tmp_path / folder, source), contents=contents, workers=1)
        inputs = {path: FileEntry(digest_bytes(data)) for path, data in source.files.items()}
        env = {"OUT": str(out)}
        before = f"touch -r .. $OUT/times; {script}; {_RESTORED}"
        executor.run(Action(argv=("bash", "-c", before), inputs=inputs, sandbox=False, env=env))
        ended = executor.run(Action(argv=("bash", "-c", _SEEN), inputs=inputs, sandbox=False))
        executor.close()
        assert isinstance(ended, Completed)
        seen.append((ended.result.exit_code, ended.result.output.text))
        assert list((tmp_path / folder).iterdir()) == []
    assert seen[0] == seen[1]
    assert "attacked" not in seen[0][1]
