"""`orch23 watch` as a user runs it: a process of its own, on a real file system."""

import contextlib
import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loopback import json_reply, loopback

pytestmark = pytest.mark.slow  # processes that watch, and wait: `make test` runs them, `make check` does not

REPOSITORY = str(Path(__file__).parents[2])
PROGRAM = "import sys; sys.argv[0] = 'orch23'; from orch23.entry import run; sys.exit(run())"
OFTEN = f"from orch23.features.watch import watching; watching._INTERVAL_S = 0.5\n{PROGRAM}"
"""Compare all files ten times as often."""
PIPELINE = """\
version: 1
name: watched
stages:
  up:
    inputs: [specs/*.md]
    outputs: [up.txt]
    shell: cat specs/*.md > up.txt
  other:
    inputs: [q.md]
    outputs: [o.txt]
    shell: cat q.md > o.txt
  end:
    inputs: [up.txt]
    outputs: [end.txt]
    shell: cat up.txt up.txt > end.txt
"""
LLM = """\
version: 1
name: watched
prices: {m: {input: 0, output: 1000}}
stages:
  code:
    inputs: [q.md]
    outputs: [code.txt]
    llm: {provider: command, model: m, command: [PYTHON, -SE, model.py], prompt: p.j2, returns: text, max_tokens: 10}
  copy:
    inputs: [q.md]
    outputs: [o.txt]
    shell: cat q.md > o.txt
""".replace("PYTHON", sys.executable)
_LONGEST_S = 60.0
IDLE = "press Ctrl-C to stop"


class Watching:
    """A project, and `orch23 watch` on it."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root.parent / "watch.log"
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def environ(self) -> dict[str, str]:
        # The entries of the search path of this process: the libraries may be in one of them.
        path = os.pathsep.join([REPOSITORY, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
        home = str(self.root.parent)
        return {**os.environ, "PYTHONPATH": path, "HOME": home, "ORCH23_TRUST": "1", "ORCH23_ALLOW_UNSANDBOXED": "1"}

    def start(self, *options: str, program: str = PROGRAM) -> None:
        self.launch(*options, program=program)
        self.wait(lambda: IDLE in self.text())

    def launch(self, *options: str, program: str = PROGRAM) -> None:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, "watch", *options], cwd=self.root, stderr=log, env=self.environ()
            )

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def text(self) -> str:
        return self.log.read_text()

    def read(self, path: str) -> str:
        try:
            return (self.root / path).read_text()
        except FileNotFoundError:
            return ""

    def wait(self, is_met: Callable[[], bool]) -> None:
        until = time.monotonic() + _LONGEST_S
        while not is_met():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < until, self.text()
            time.sleep(0.01)

    def idle(self) -> None:
        """Wait until nothing is left to do: the last line says so, and stays the last."""
        since = time.monotonic()
        size = -1
        until = since + _LONGEST_S
        while True:
            text = self.text()
            if len(text) != size or not text.rstrip().endswith(IDLE):
                size, since = len(text), time.monotonic()
            elif time.monotonic() - since > 0.5:
                return
            assert time.monotonic() < until, text
            time.sleep(0.02)

    def builds(self) -> int:
        return len(re.findall(r"^\S.* changed$", self.text(), re.MULTILINE))

    def build(self, *options: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "build", *options],
            cwd=self.root,
            env=self.environ(),
            capture_output=True,
            check=False,
        )
        return done.returncode

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(50)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    found = Watching(tmp_path / "project")
    found.write("specs/app.md", "one\n")
    found.write("q.md", "question\n")
    found.write("pipeline.yaml", PIPELINE)
    yield found
    found.close()


def test_what_an_edit_reaches_is_built_and_nothing_else(watching: Watching) -> None:
    watching.start()
    watching.write("specs/app.md", "two\n")
    watching.wait(lambda: watching.read("end.txt") == "two\ntwo\n")
    watching.idle()
    last = watching.text().rpartition("specs/app.md changed")[2]
    assert "2 built, 1 fresh" in last
    watching.write("README.md", "no stage reads it\n")
    watching.idle()
    assert watching.builds() == 1
    assert watching.stop() == 130
    # The build of another process has nothing left to do.
    assert watching.build() == 0
    assert len(list((watching.root / "logs").glob("*.jsonl"))) == 3


def test_the_ways_of_editors_are_noticed(watching: Watching) -> None:
    watching.start()
    watching.write("q.md~", "renamed\n")
    (watching.root / "q.md~").rename(watching.root / "q.md")
    watching.wait(lambda: watching.read("o.txt") == "renamed\n")
    watching.write("specs/more.md", "new\n")
    watching.wait(lambda: watching.read("up.txt") == "one\nnew\n")
    (watching.root / "q.md").unlink()
    watching.wait(lambda: "E822" in watching.text())
    watching.write("q.md", "again\n")
    watching.wait(lambda: watching.read("o.txt") == "again\n")
    # A folder that is replaced has lost its watch.
    shutil.rmtree(watching.root / "specs")
    watching.idle()
    watching.write("specs/app.md", "moved\n")
    watching.wait(lambda: watching.read("end.txt") == "moved\nmoved\n")
    watching.idle()
    watching.write("specs/app.md", "and edited\n")
    watching.wait(lambda: watching.read("end.txt") == "and edited\nand edited\n")
    # Edited back before anything is delivered, or after: the outputs are those of the file.
    watching.write("q.md", "other\n")
    watching.write("q.md", "again\n")
    watching.idle()
    assert watching.read("o.txt") == "again\n"


def test_a_pipeline_with_errors_is_built_when_it_is_repaired(watching: Watching) -> None:
    watching.start()
    watching.write("pipeline.yaml", PIPELINE.replace("name: watched", "nme: watched"))
    watching.idle()
    assert watching.text().count("error[E802]") == 1
    # It is not known which files the repaired pipeline reads.
    assert watching.text().endswith("watching all files of the project; press Ctrl-C to stop\n")
    watching.write("pipeline.yaml", PIPELINE.replace("cat q.md >", "echo new; cat q.md q.md >"))
    watching.wait(lambda: watching.read("o.txt") == "question\nquestion\n")
    assert watching.stop() == 130


def test_what_it_writes_to_a_file_of_the_project_is_not_an_edit(watching: Watching) -> None:
    watching.write("pipeline.yaml", PIPELINE.replace("name: watched", "nme: watched"))
    watching.log = watching.root / "watch.log"
    watching.start()
    watching.write("pipeline.yaml", PIPELINE)
    watching.wait(lambda: "3 built" in watching.text())
    assert watching.text().count("error[E802]") == 1


@pytest.mark.stride(2)
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_pipeline_that_is_as_before_its_errors_is_reported_as_up_to_date(
    watching: Watching, *, is_removed: bool
) -> None:
    watching.start()
    if is_removed:
        (watching.root / "pipeline.yaml").unlink()
        watching.wait(lambda: "error[E661]" in watching.text())
    else:
        watching.write("pipeline.yaml", PIPELINE.replace("name: watched", "nme: watched"))
        watching.wait(lambda: "error[E802]" in watching.text())
    watching.idle()
    before = watching.text()
    watching.write("pipeline.yaml", PIPELINE)
    watching.wait(lambda: "up to date" in watching.text().removeprefix(before))
    watching.idle()
    after = watching.text().removeprefix(before)
    assert after.strip().startswith("pipeline.yaml changed\nwatched: up to date (3 stages)\nwatching")
    assert after.count("up to date") == 1


def test_a_folder_that_is_renamed_and_renamed_back(watching: Watching) -> None:
    watching.start()
    before = watching.text()
    (watching.root / "specs").rename(watching.root / "docs")
    watching.wait(lambda: "1 failed" in watching.text())
    watching.idle()
    assert watching.text().removeprefix(before).strip().startswith("files changed\n")
    before = watching.text()
    (watching.root / "docs").rename(watching.root / "specs")
    watching.wait(lambda: "up to date (3 stages)" in watching.text().removeprefix(before))
    watching.idle()
    watching.write("specs/app.md", "two\n")
    watching.wait(lambda: watching.read("end.txt") == "two\ntwo\n")


def test_a_failed_build_is_not_repeated_until_something_changes(watching: Watching) -> None:
    watching.start(program=OFTEN)
    watching.write("pipeline.yaml", PIPELINE.replace("cat q.md > o.txt", "cat q.md > o.txt; grep good q.md"))
    watching.idle()
    time.sleep(1)  # longer than the interval of the comparison of all files
    assert watching.text().count("1 failed") == 1
    watching.write("q.md", "good\n")
    watching.wait(lambda: watching.read("o.txt") == "good\n")
    watching.idle()
    assert watching.text().count("1 failed") == 1


OWN_INPUT = """\
version: 1
name: watched
defaults: {sandbox: off}
stages:
  up:
    inputs: [q.md]
    outputs: [o.txt]
    shell: date +%N > ROOT/q.md; cat ROOT/q.md > o.txt; END
"""


@pytest.mark.stride(2)
@pytest.mark.parametrize("end", ["true", "exit 1"])
def test_a_build_that_changes_its_own_inputs_is_not_repeated_at_once_forever(watching: Watching, end: str) -> None:
    watching.write("pipeline.yaml", OWN_INPUT.replace("ROOT", str(watching.root)).replace("END", end))
    watching.launch()
    watching.wait(lambda: "files change during each build; the next one starts in 1 s" in watching.text())
    # With ever longer pauses.
    watching.wait(lambda: "starts in 2 s" in watching.text())
    assert watching.text().count("a file changed during the build") == 4
    assert len(list((watching.root / "logs").glob("*.jsonl"))) == 5
    # It is no longer stopped once the user has repaired it.
    watching.write("pipeline.yaml", PIPELINE)
    watching.wait(lambda: watching.read("end.txt") == "one\none\n")
    watching.idle()
    assert watching.stop() == 130


def test_a_checkout_is_one_build(watching: Watching) -> None:
    for number in range(200):
        watching.write(f"specs/{number}.md", "one\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]

    def run(*words: str) -> None:
        subprocess.run([*git, *words], cwd=watching.root, check=True, capture_output=True)

    run("init", "-q")
    run("add", "specs")
    run("commit", "-qm", "one")
    run("checkout", "-qb", "two")
    for number in range(200):
        watching.write(f"specs/{number}.md", "two\n")
    run("commit", "-qam", "two")
    watching.start()
    run("checkout", "-q", "-")
    watching.wait(lambda: watching.read("up.txt") == "one\n" * 201)
    watching.idle()
    assert watching.builds() == 1


@pytest.mark.stride(7)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_polling", [False, True])
def test_a_signal_ends_it_while_it_waits(watching: Watching, number: signal.Signals, *, is_polling: bool) -> None:
    watching.start(program=_refusing("OSError") if is_polling else PROGRAM)
    watching.process.send_signal(number)
    assert watching.process.wait(50) == 128 + number
    assert "Traceback" not in watching.text()
    assert watching.build() == 0


@pytest.mark.stride(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_build_that_runs_and_releases_its_lock(watching: Watching, number: signal.Signals) -> None:
    watching.start()
    watching.write("pipeline.yaml", PIPELINE.replace("cat q.md > o.txt", "sleep 61.25; cat q.md > o.txt"))
    watching.wait(lambda: _runs("sleep 61.25"))
    watching.process.send_signal(number)
    assert watching.process.wait(50) == 128 + number
    assert not _runs("sleep 61.25")
    assert "Traceback" not in watching.text()
    watching.write("pipeline.yaml", PIPELINE)
    assert watching.build() == 0


def test_a_signal_ends_a_build_that_is_being_prepared(watching: Watching) -> None:
    marker = watching.root.parent / "opening"
    program = f"""\
import pathlib, time
from orch23.cli.actions import build
whole = build.open_for_command
def slow(*given, **named):
    pathlib.Path({str(marker)!r}).touch()
    time.sleep(60)
    return whole(*given, **named)
build.open_for_command = slow
{PROGRAM}"""
    watching.launch(program=program)
    watching.wait(marker.exists)
    watching.process.send_signal(signal.SIGTERM)
    assert watching.process.wait(50) == 143
    assert "Traceback" not in watching.text()


def test_a_signal_ends_it_while_another_build_runs(watching: Watching) -> None:
    watching.start()
    lock = os.open(watching.root / ".orch23/lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watching.wait(lambda: "another build runs in this project" in watching.text())
        watching.process.send_signal(signal.SIGTERM)
        assert watching.process.wait(50) == 143
    finally:
        os.close(lock)


def _runs(command: str) -> bool:
    wanted = command.replace(" ", "\0").encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(wanted):
                return True
    return False


def test_ctrl_c_stops_a_build_at_once(watching: Watching) -> None:
    watching.start()
    watching.write("pipeline.yaml", PIPELINE.replace("cat q.md > o.txt", "sleep 60; cat q.md > o.txt"))
    watching.wait(lambda: "pipeline.yaml changed" in watching.text())
    time.sleep(1)
    assert watching.stop() == 130  # its step sleeps for longer than this waits
    assert "interrupted" in watching.text()


def test_a_build_in_another_terminal_is_noticed_without_a_build(watching: Watching) -> None:
    watching.start()
    os.kill(watching.process.pid, signal.SIGSTOP)
    watching.write("q.md", "other\n")
    assert watching.build() == 0
    os.kill(watching.process.pid, signal.SIGCONT)
    watching.idle()
    assert watching.builds() == 0
    watching.write("q.md", "mine\n")
    watching.wait(lambda: watching.read("o.txt") == "mine\n")


def test_stages_that_would_call_a_model_wait_without_llm(watching: Watching) -> None:
    watching.write("pipeline.yaml", LLM)
    watching.write("p.j2", "{{ inputs[0].text }}")
    watching.write("model.py", "import sys\nsys.stdout.write('answer')\n")
    watching.start()
    assert "1 stage waits, since it would call a model: code" in watching.text()
    assert watching.read("o.txt") == "question\n"
    assert watching.read("code.txt") == ""
    # Another build may call it; then a recorded response is used.
    assert watching.build() == 0
    assert watching.read("code.txt").strip() == "answer"
    watching.idle()
    watching.write("q.md", "second\n")
    watching.wait(lambda: watching.read("o.txt") == "second\n")
    watching.idle()
    assert watching.text().count("would call a model: code") == 2
    before = watching.text()
    watching.write("q.md", "question\n")
    watching.wait(lambda: watching.read("o.txt") == "question\n")
    watching.idle()
    assert "would call a model" not in watching.text().removeprefix(before)
    assert watching.stop() == 130
    watching.start("--llm")
    watching.write("q.md", "third\n")
    watching.wait(lambda: watching.read("o.txt") == "third\n")
    watching.idle()
    assert "would call" not in watching.text()


def _descriptors(pid: int) -> tuple[int, int]:
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.thorough)])
def test_builds_leave_no_descriptors_and_threads(watching: Watching, count: int) -> None:
    watching.start()
    seen = []
    for number in range(count):
        watching.write("q.md", f"{number}\n")
        watching.wait(lambda text=f"{number}\n": watching.read("o.txt") == text)  # type: ignore[misc]
        watching.idle()  # an edit before the end of its build would be one during a build
        if number in (2, count - 1):
            seen.append(_descriptors(watching.process.pid))
    assert seen[0] == seen[1]


def test_a_build_of_the_whole_pipeline_is_freed_before_the_next_edit(watching: Watching) -> None:
    kept = watching.root.parent / "kept"
    program = f"""\
import gc
from orch23.features.watch.watched_files import FolderEvents
wait = FolderEvents.wait
def counted(self, longest_s):
    gc.unfreeze()
    names = [type(one).__name__ for one in gc.get_objects() if str(type(one).__module__).startswith("orch23.")]
    with open({str(kept)!r}, "a") as log:
        log.write(f"{{[names.count(one) for one in ('Build', 'Stage', 'Plan', 'Session', 'StageRecord')]}}\\n")
    return wait(self, longest_s)
FolderEvents.wait = counted
{PROGRAM}"""
    watching.start(program=program)
    for number in range(3):
        watching.write("pipeline.yaml", f"{PIPELINE}# {number}\n")
        watching.wait(lambda number=number: watching.builds() == number + 1)  # type: ignore[misc]
        watching.idle()
    assert {*kept.read_text().splitlines()} == {"[0, 0, 0, 0, 0]"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [25, pytest.param(500, marks=pytest.mark.thorough)])
def test_no_edit_is_missed_during_builds(watching: Watching, count: int) -> None:
    watching.start()
    rng = random.Random(23)
    texts = {"specs/app.md": "one\n", "specs/b.md": "", "q.md": "question\n"}
    for number in range(count):
        path = rng.choice([*texts])
        texts[path] = f"{number} {rng.random()}\n"
        watching.write(path, texts[path])
        time.sleep(rng.choice([0, 0.005, 0.05, 0.2]))
        if number % 25 == 24:
            up = texts["specs/app.md"] + texts["specs/b.md"]
            watching.wait(lambda up=up: watching.read("end.txt") == up * 2)  # type: ignore[misc]
            watching.wait(lambda: watching.read("o.txt") == texts["q.md"])
    watching.idle()
    # The user goes on between two builds, so pauses do not get longer.
    assert "starts in 8 s" not in watching.text()
    assert watching.stop() == 130
    assert watching.build("--replay") == 0


PRICED = """\
version: 1
name: watched
prices: {{m: {{input: 0, output: 1000}}}}
stages:
  code:
    inputs: [q.md]
    outputs: [code.txt]
    llm: {{provider: anthropic, model: m, base_url: "{url}", prompt: p.j2, returns: text, max_tokens: 1000}}
  copy:
    inputs: [q.md]
    outputs: [o.txt]
    shell: cat q.md > o.txt
"""


@pytest.mark.stride(2)
@pytest.mark.parametrize("options", [("--budget", "2.50"), ()])
def test_all_builds_share_one_budget(
    watching: Watching, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-for-tests")
    reply = json_reply(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "answer"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1000},  # a dollar
        }
    )
    with loopback(rule=lambda _: reply) as server:
        limit = "" if options else "stop_conditions: {max_cost_usd: 2.50}\n"
        watching.write("pipeline.yaml", PRICED.format(url=server.url) + limit)
        watching.write("p.j2", "{{ inputs[0].text }}")
        watching.start("--llm", *options)
        watching.write("q.md", "second\n")
        watching.wait(lambda: watching.read("o.txt") == "second\n")
        watching.idle()
        assert (len(server.asked), "used up" in watching.text()) == (2, False)
        # The third could cost a dollar, and half a dollar is left.
        watching.write("q.md", "third\n")
        watching.wait(lambda: watching.read("o.txt") == "third\n")
        watching.idle()
        text = watching.text()
        assert "the builds of this `watch` may spend $2.50 together, $2.00 is spent, and the next request could" in text
        assert "the budget of this watch is used up ($2.00 of $2.50)" in text
        assert "$2.00 of $2.50 spent; press Ctrl-C to stop" in text
        way = "start `orch23 watch` again with a higher --budget" if options else "raise stop_conditions.max_cost_usd"
        assert text.count(way) == 2  # of the request that was refused, and of the stage that waits
        watching.write("q.md", "fourth\n")
        watching.wait(lambda: watching.read("o.txt") == "fourth\n")
        watching.idle()
        assert len(server.asked) == 2
        # A higher limit of the pipeline counts at once, but not against --budget.
        watching.write("pipeline.yaml", PRICED.format(url=server.url) + "stop_conditions: {max_cost_usd: 3.50}\n")
        watching.idle()
        assert len(server.asked) == (2 if options else 3)


def _refusing(error: str) -> str:
    return f"""\
from orch23.features.watch import watched_files
def refuse(_): raise {error}("OS file watch limit reached")
watched_files._notify_of = refuse
{PROGRAM}"""


@pytest.mark.stride(2)
@pytest.mark.parametrize("error", ["OSError", "RuntimeError"])  # no watches are left; no instances
def test_files_are_compared_every_second_if_they_cannot_be_watched(watching: Watching, error: str) -> None:
    watching.start(program=_refusing(error))
    assert "note: the files are compared every second" in watching.text()
    watching.write("q.md", "polled\n")
    watching.wait(lambda: watching.read("o.txt") == "polled\n")
    assert watching.stop() == 130


def test_a_lost_event_is_found_by_the_comparison_of_all_files(watching: Watching) -> None:
    program = f"""\
from orch23.features.watch import watched_files
whole = watched_files._notify_of
watched_files._notify_of = lambda folders: whole([one for one in folders if not one.endswith("specs")])
{OFTEN}"""
    watching.start(program=program)
    watching.write("specs/app.md", "unseen\n")
    watching.wait(lambda: watching.read("end.txt") == "unseen\nunseen\n")


MAX_QUEUED = Path("/proc/sys/fs/inotify/max_queued_events")


def test_a_folder_that_was_replaced_while_the_queue_overflowed_is_watched_again(watching: Watching) -> None:
    """The kernel drops the events of a full queue: that `specs` was replaced is not known."""
    delivered = watching.root.parent / "delivered"
    program = f"""\
from orch23.features.watch.watched_files import FolderEvents
wait = FolderEvents.wait
def logged(self, longest_s):
    found = wait(self, longest_s)
    with open({str(delivered)!r}, "a") as log:
        log.write("event\\n" if found else "no event\\n")
    return found
FolderEvents.wait = logged
{PROGRAM}"""
    most = int(MAX_QUEUED.read_text())
    if most > 100_000:
        pytest.skip("the queue of this system is too long to fill it")
    watching.start(program=program)
    os.kill(watching.process.pid, signal.SIGSTOP)
    # Equal events in succession are merged.
    for number in range(most // 2 + 1000):
        for path in ("q.md", "specs/app.md"):
            os.utime(watching.root / path, (number, number))
    watching.root.joinpath("specs").rename(watching.root.parent / "old")
    watching.write("specs/app.md", "moved\n")
    os.kill(watching.process.pid, signal.SIGCONT)
    watching.wait(lambda: watching.read("end.txt") == "moved\nmoved\n")
    watching.idle()
    # Found without an event, which takes a few seconds; from then on with one. A wait may have ended just before.
    for number in range(3):
        delivered.write_text("")
        watching.write("specs/app.md", f"{number}\n")
        watching.wait(lambda text=f"{number}\n": watching.read("end.txt") == text * 2)  # type: ignore[misc]
        if delivered.read_text().startswith("event\n"):
            return
        watching.idle()
    raise AssertionError(delivered.read_text())
