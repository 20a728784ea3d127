"""Histories of a project whose files users, git and several stages share, played through the real thing.

    python -m tests.shared_files.play --seeds 0-2000

After every step the invariants of `Player` are checked, and builds are compared with the rules of `rules.py`. A
history that fails is shortened and printed as a script that can be read and played again.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from tests.model_program import keep_supervisors
from tests.shared_files.player import Player
from tests.shared_files.setup import (
    LENGTH,
    Setup,
    Step,
    edit_history,
    history,
)
from tests.shared_files.steps import BrokenError

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# ---- runs ------------------------------------------------------------------------------------------


@dataclass
class Played:
    """What came of a history: None, or what went wrong and at which step."""

    counts: Counter[str]
    lost: str = ""
    broken: str = ""
    kind: str = ""
    at: int = 0


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Leave out what makes writes durable: the machine does not die here. Do once what each command does alike."""
    with (
        patch("os.fsync", lambda _fd: None),
        patch("orch23.store.promotion.sync_filesystem", lambda _p: None),
        patch("orch23.store.index.CompiledTable._version", b"of this code"),
        patch("orch23.execute.supervisor.close_idle_supervisors", keep_supervisors),
    ):
        yield


def play(setup: Setup, steps: Sequence[Step], say: Callable[[str], None] = lambda _text: None) -> Played:
    """Play a history from the beginning."""
    with tempfile.TemporaryDirectory(prefix="shared", dir=RAM) as folder, quick():
        player = Player(Path(folder), setup, say)
        with player.model.answering():
            for number, step in enumerate(steps):
                say(f"  {number}: {' '.join(map(str, step))}")
                try:
                    player.play(step)
                except BrokenError as broken:
                    return Played(player.counts, player.lost, str(broken), broken.kind, number)
                except (AssertionError, Exception) as error:  # noqa: BLE001  whatever it is, the history is printed
                    return Played(
                        player.counts, player.lost, f"{type(error).__name__}: {error}", type(error).__name__, number
                    )
    return Played(player.counts, player.lost)


def shorten(setup: Setup, steps: Sequence[Step], kind: str) -> tuple[Setup, list[Step]]:
    """Drop steps and slots as long as the history still goes wrong in the same way."""
    steps = list(steps)
    again = True
    while again:
        again = False
        for size in (4, 2, 1):
            start = len(steps) - size
            while start >= 0:
                fewer = steps[:start] + steps[start + size :]
                if fewer and play(setup, fewer).kind == kind:
                    steps, again = fewer, True
                start -= 1
        for slot in setup.slots:
            slots = tuple(one for one in setup.slots if one != slot)
            less = replace(setup, slots=slots)
            if slots and play(less, steps).kind == kind:
                setup, again = less, True
    return setup, steps


def script(setup: Setup, steps: Sequence[Step]) -> str:
    """Return a history as text that `--script` plays again."""
    return "\n".join([f"setup {setup}", *(f"  {step}" for step in steps)])


def say(text: str) -> None:
    """Print a line at once, also into a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Play a range of seeds, and print what goes wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-200", help="first and last seed, such as 0-2000")
    parser.add_argument("--length", type=int, default=LENGTH, help="steps of a history")
    parser.add_argument("--stop", type=int, default=10, help="stop after so many failures")
    parser.add_argument("--without", default="", help="slots and kinds of steps to leave out, such as release,chain")
    parser.add_argument("--long", action="store_true", help="do not shorten what goes wrong")
    parser.add_argument("--show", action="store_true", help="show all that is played")
    parser.add_argument("--edits", action="store_true", help="play stages with edits")
    asked = parser.parse_args(argv)
    draw = edit_history if asked.edits else history
    first, _, last = asked.seeds.partition("-")
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    began = time.monotonic()
    number = 0
    for seed in range(int(first), int(last or first) + 1):
        setup, steps = draw(seed, asked.length, asked.without.split(","))
        played = play(setup, steps, print if asked.show else lambda _text: None)
        counts += played.counts
        number += 1
        lost[played.lost or "nothing"] += 1
        if played.broken:
            kinds[played.kind] += 1
            say(f"seed {seed}, step {played.at}: {played.broken[:2000]}")
            if not asked.long:
                setup, steps = shorten(setup, steps[: played.at + 1], played.kind)
                say(script(setup, steps))
                again = play(setup, steps)
                say(f"  => {again.broken[:3000]}\n")
            if kinds.total() >= asked.stop:
                break
    say(f"{number} histories in {time.monotonic() - began:.0f} s; broken: {dict(kinds) or 'none'}")
    say(f"foreseen until: {dict(lost)}")
    say(f"steps: {dict(sorted(counts.items()))}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
