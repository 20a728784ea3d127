"""Whatever happens to a project, the answer from a snapshot is the one that deciding everything again would give."""

import contextlib
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch23.cli import main as command_line
from orch23.decide.decisions import StageDecider
from orch23.entry import main as program
from orch23.snapshot.fast_path import answer_from_snapshot as reply_or_tell
from orch23.store.workspace import Workspace
from tests.project import Outcome, _stream, _text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
AHEAD_NS = 10_000_000_000
RACY_NS = 100_000_000  # less than orch23 waits for, so that what was just made is young and what was there is not
BUILD = ["build", "pipeline.yaml", "-j1"]
PLAN = ["plan", "pipeline.yaml"]
STATUS = ["status", "pipeline.yaml"]
OPTION_NAMES = ("--overwrite-edited", "--offline", "--replay", "--keep-going")
OPTIONS: tuple[tuple[str, ...], ...] = ((), (), *((name,) for name in OPTION_NAMES))
"""Options of builds that share a snapshot."""

PIPELINE = """\
version: 1
name: story
vars: {word: WORD}
stages:
  head:
    render: {template: prompts/head.j2}
    inputs: ["spec.md#One"]
    outputs: [out/head.txt]
  every:
    render: {template: prompts/every.j2}
    inputs: ["src/**/*.txt"]
    outputs: [out/every.txt]
  tail:
    render: {template: prompts/every.j2}
    inputs: [out/head.txt, out/every.txt]
    outputs: [out/deep/tail.txt]
  maybe:
    if: ${{ vars.word == "one" }}
    render: {template: prompts/head.j2}
    inputs: [src/a.txt]
    outputs: [out/maybe.txt]
  made:
    shell: [cp, out/deep/tail.txt, out/made.txt]
    inputs: [out/deep/tail.txt]
    outputs: [out/made.txt]
  second:
    render: {template: prompts/head.j2}
    inputs: ["spec.md#Two"]
    outputs: [out/second.txt]
  third: {shell: [cp, out/second.txt, out/third.txt], inputs: [out/second.txt], outputs: [out/third.txt]}
  alone: {shell: [cp, src/sub/b.txt, out/alone.txt], inputs: [src/sub/b.txt], outputs: [out/alone.txt], needs: [third]}
  names:
    render: {template: prompts/every.j2}
    inputs: [{list: "src/*.txt"}, spec.md]
    outputs: [out/names.txt]
"""
FILES = {
    "pipeline.yaml": PIPELINE.replace("WORD", "one"),
    "spec.md": "# One\nfirst\n# Two\nsecond\n",
    "prompts/head.j2": "{{ vars.word }} {{ inputs[0].text }}",
    "prompts/every.j2": "{% for one in inputs %}{{ one.path }} {{ one.text }}{% endfor %}",
    "src/a.txt": "a\n",
    "src/sub/b.txt": "b\n",
}
MADE = (
    *("out/head.txt", "out/every.txt", "out/deep/tail.txt", "out/made.txt", "out/maybe.txt"),
    *("out/second.txt", "out/third.txt", "out/alone.txt", "out/names.txt"),
)
DECLARED_OTHERWISE = {
    "[cp, src/sub/b.txt, out/alone.txt]": "[cp, --, src/sub/b.txt, out/alone.txt]",
    "  third: {shell": "  third: {desc: said, shell",
    "    outputs: [out/second.txt]": "    desc: more\n    outputs: [out/second.txt]\n    timeout: 9m",
    "inputs: [src/sub/b.txt], outputs: [out/alone.txt]": "inputs: [src/**/b.txt], outputs: [out/alone.txt]",
    "needs: [third]": "needs: [second]",
    "  names:\n": "  more: {shell: [cp, spec.md, out/a.txt], inputs: [spec.md], outputs: [out/a.txt]}\n  names:\n",
    "    outputs: [out/names.txt]\n": "    outputs: [out/names.txt]\nstop_conditions: {max_wall: 1h}\n",
    "outputs: [out/made.txt]": "outputs: [out/made.txt]\n    shells: [false]",
}
TEXTS = {
    "pipeline.yaml": (
        FILES["pipeline.yaml"],
        PIPELINE.replace("WORD", "two"),
        f"# a note\n{FILES['pipeline.yaml']}",
        *(FILES["pipeline.yaml"].replace(old, new) for old, new in DECLARED_OTHERWISE.items()),
    ),
    "spec.md": (FILES["spec.md"], FILES["spec.md"].replace("first", "other"), FILES["spec.md"].replace("second", "x")),
    "prompts/head.j2": (FILES["prompts/head.j2"], "{{ inputs[0].text }}!"),
    "prompts/every.j2": (FILES["prompts/every.j2"], FILES["prompts/every.j2"].replace("path", "text")),
    "src/a.txt": ("a\n", "b\n", "longer\n"),
    "src/sub/b.txt": ("b\n", "a\n"),
    "src/new.txt": ("new\n",),
}


def edit(chance: random.Random) -> None:
    path = chance.choice(list(TEXTS))
    put(path, chance.choice(TEXTS[path]))


def put(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        Path(path).write_text(text)


def stealthily(chance: random.Random) -> None:
    """Change bytes and leave their number and the time of the change as they were."""
    path = Path(chance.choice([*MADE, "src/a.txt", "spec.md"]))
    with contextlib.suppress(OSError):
        before, data = path.stat(), path.read_bytes()
        path.write_bytes(data[::-1])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch(chance: random.Random) -> None:
    path = chance.choice([*TEXTS, *MADE])
    with contextlib.suppress(OSError):
        os.utime(path)


def remove(chance: random.Random) -> None:
    path = Path(chance.choice([*MADE, "src/new.txt", "src/a.txt", "pipeline.lock"]))
    path.unlink(missing_ok=True)


def remove_kept(chance: random.Random) -> None:
    name = chance.choice(["records", "cas", "index.sqlite", "generation", "snapshots", "exchanges"])
    path = Path(".orch23", name)
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def spoil_snapshot(chance: random.Random) -> None:
    for path in Path(".orch23/snapshots").glob("*"):
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def change_mode(chance: random.Random) -> None:
    with contextlib.suppress(OSError):
        Path(chance.choice(["out/head.txt", "out/made.txt", "src/a.txt"])).chmod(chance.choice([0o755, 0o644]))


def link_folder(chance: random.Random) -> None:
    folder = Path(chance.choice(["out", "src", "out/deep", "src/sub"]))
    if folder.is_symlink():
        aim = folder.readlink()
        folder.unlink()
        (folder.parent / aim).rename(folder)
    elif folder.is_dir():
        aim = folder.with_name(f"{folder.name}-kept")
        folder.rename(aim)
        folder.symlink_to(aim.name)


def rename_within(chance: random.Random) -> None:
    one, other = chance.sample([path for path in (*MADE, "src/a.txt", "src/sub/b.txt") if Path(path).is_file()][:4], 2)
    Path(one).rename(f"{one}.aside")
    Path(other).rename(one)
    Path(f"{one}.aside").rename(other)


def mark_a_root(chance: random.Random) -> None:
    path = Path(chance.choice(["orch23.toml", "pyproject.toml"]))
    if path.exists():
        path.unlink()
    else:
        path.write_text("[tool.orch23]\n" if path.name.startswith("py") else "")


def reply(argv: list[str]) -> int | None:
    """Answer from the snapshot alone."""
    answer = reply_or_tell(argv)
    return answer if isinstance(answer, int) else None


EVENTS: tuple[Callable[[random.Random], None], ...] = (
    *(edit, edit, stealthily, touch, remove, remove_kept, spoil_snapshot, change_mode, link_folder, mark_a_root),
)


@dataclass(frozen=True, slots=True)
class Left:
    """What a build left: all files of the project, how it began and what it counted when it ended."""

    files: Mapping[str, bytes]
    began: Mapping[str, object]
    counts: object


def left() -> Left:
    files = (path for path in Path().rglob("*") if path.is_file() and path.parts[0] not in (".orch23", "logs"))
    journals = sorted(Path("logs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    lines = [json.loads(line) for line in journals[-1].read_text().splitlines()] if journals else []
    began: Mapping[str, object] = next((line["data"] for line in lines if line["type"] == "run_started"), {})
    ended: Mapping[str, object] = next((line["data"] for line in lines if line["type"] == "run_finished"), {})
    return Left({str(path): path.read_bytes() for path in files}, began, ended.get("stages"))


def comparable(counts: object) -> Mapping[str, int]:
    """Return the counts of a run that do not depend on how many stages were decided.

    Once a stage has failed, those that come later are not decided, and count as blocked if they were to be; stages that
    nothing has affected are known to be fresh.
    """
    found = dict(cast("Mapping[str, int]", counts or {}))
    if found.get("failed"):
        found["fresh or blocked"] = found.pop("fresh", 0) + found.pop("blocked", 0)
    return found


def whole(argv: list[str]) -> int:
    """Run a command that knows nothing of the last build, and decides everything."""
    with patch("orch23.cli.opening.last_snapshot", return_value=None):
        return command_line.main(argv)


class Play:
    """A project in a folder of its own, with a clock that is ahead, so that nothing in it is young."""

    def __init__(self) -> None:
        self.ahead_ns = AHEAD_NS
        self._real = time.time_ns
        self.answered = 0
        self.parts = 0

    def now_ns(self) -> int:
        return self._real() + self.ahead_ns

    def ask(self, act: Callable[[list[str]], int | None], argv: list[str]) -> Outcome | None:
        out, err = _stream(), _stream()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = act(argv)
        return None if code is None else Outcome(code, _text(out), _text(err))

    def compare(self) -> None:
        """Ask both ways what would be done; from the snapshot, or from what an edit reaches, it is the same answer."""
        quick = self.ask(reply, PLAN)
        self.answered += quick is not None
        assert (quick or self.ask(program, PLAN)) == self.ask(whole, PLAN)
        assert self.ask(program, STATUS) == self.ask(whole, STATUS)

    def build(self, *options: str) -> None:
        """Build as the program does; deciding everything, in a copy of the project, comes to the same."""
        argv = [*BUILD, *options]
        quick = self.ask(reply, argv)
        if quick is not None:
            self.answered += 1
            assert self.ask(whole, argv) == quick
            return
        with tempfile.TemporaryDirectory(dir=RAM) as folder:
            shutil.copytree(".", folder, dirs_exist_ok=True, symlinks=True)
            shutil.rmtree(f"{folder}/.orch23/snapshots", ignore_errors=True)
            quick = self.ask(program, argv)
            done = left()
            self.parts += "at_rest" in done.began
            with contextlib.chdir(folder):
                full = self.ask(whole, argv)
                assert full is not None
                assert quick is not None
                all_done = left()
                counts = comparable(done.counts), comparable(all_done.counts)
                assert (quick.code, done.files, counts[0]) == (full.code, all_done.files, counts[1]), full.err


def wait_for_the_clock_of_the_files() -> None:
    """Let the file system's clock move on: what changes within one tick of it keeps its time."""
    with tempfile.NamedTemporaryFile(dir=".orch23" if Path(".orch23").is_dir() else ".") as probe:
        then = os.fstat(probe.fileno()).st_ctime_ns
        while os.fstat(probe.fileno()).st_ctime_ns == then:
            probe.write(b"x")
            probe.flush()


@contextmanager
def playing() -> Iterator[Play]:
    play = Play()
    with (
        tempfile.TemporaryDirectory(dir=RAM) as folder,
        contextlib.chdir(folder),
        patch("orch23.cli.console.time_ns", play.now_ns),
        patch("orch23.snapshot.stat_snapshot.time.time_ns", play.now_ns),
        patch("orch23.store.project_store.Workspace", partial(Workspace, now_ns=play.now_ns)),
        patch("orch23.engine.idle_build.FEWEST", 0),
        patch("orch23.snapshot.signatures.RACY_NS", RACY_NS),
        patch("orch23.report.plan_text.MAX_IDLE_LINES", 0),
    ):
        for path, text in FILES.items():
            put(path, text)
        yield play


HISTORY = st.tuples(st.integers(0, 2**32), st.integers(1, 6))


@given(HISTORY)
@settings(max_examples=2000 if THOROUGH else 2, deadline=None)
def test_the_snapshot_says_what_deciding_again_would(history: tuple[int, int]) -> None:
    seed, length = history
    chance = random.Random(seed)
    with playing() as play:
        play.build()
        play.build()
        play.compare()
        assert play.answered == 2
        if chance.random() < 0.5:  # all that was just made is young
            play.ahead_ns = 0
            play.build()
        for _ in range(length):
            wait_for_the_clock_of_the_files()
            chance.choice(EVENTS)(chance)
            play.ahead_ns += chance.choice([0, 0, 0, AHEAD_NS, -AHEAD_NS])
            play.compare()
            if chance.random() < 0.7:
                play.build(*chance.choice(OPTIONS))
                play.build(*chance.choice(OPTIONS))


def test_the_snapshot_answers_where_nothing_happened() -> None:
    with playing() as play:
        play.build()
        play.build()
        play.compare()
        play.build()
        assert play.answered == 3


def declared(number: int) -> str:
    """Return the pipeline with one of its stages declared otherwise."""
    old, new = list(DECLARED_OTHERWISE.items())[number]
    assert FILES["pipeline.yaml"].count(old) == 1
    return FILES["pipeline.yaml"].replace(old, new)


def test_nothing_is_missed_of_what_was_made_a_moment_ago() -> None:
    with playing() as play:
        play.ahead_ns = 0
        play.build()
        began = time.time_ns()
        while time.time_ns() < began + 2 * RACY_NS:  # until the store and what was written by hand are not young
            pass
        for _ in range(3):  # from the second on what is deleted had just been made
            Path("out/alone.txt").unlink()
            play.compare()
            play.build()
            assert Path("out/alone.txt").exists()


def test_what_an_edit_reaches_is_built_alone_and_comes_to_the_same() -> None:
    with playing() as play:
        play.build()
        for number, change in enumerate(
            [
                lambda: put("src/sub/b.txt", "new\n"),
                Path("out/alone.txt").unlink,
                lambda: put("src/sub/b.txt", "b\n"),
                lambda: put("pipeline.yaml", declared(0)),
                lambda: put("pipeline.yaml", FILES["pipeline.yaml"]),
                lambda: put("pipeline.yaml", declared(1)),
                lambda: put("out/third.txt", "by hand\n"),
            ]
        ):
            wait_for_the_clock_of_the_files()
            change()
            play.compare()
            play.build()
            assert (play.parts, play.answered) == (number + 1, 2 * number)
            play.build()
            play.compare()
        assert play.answered == 12  # of an edited file there is something to decide


def test_status_decides_only_what_an_edit_reaches() -> None:
    with playing() as play:
        play.build()
        play.build()
        wait_for_the_clock_of_the_files()
        put("src/sub/b.txt", "new\n")

        def decided(act: Callable[[list[str]], int | None]) -> int:
            with patch.object(StageDecider, "decide", autospec=True, side_effect=StageDecider.decide) as counted:
                assert play.ask(act, STATUS) is not None
            return counted.call_count

        assert 0 < decided(program) < decided(whole)
