"""What a step leaves has ended before its result is looked at, also while other steps run, however it hides."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from tests.sandbox.probe import Memory, executor
from tests.sandbox.test_daemons import alive
from tests.sandbox.users import TIERS, need

SCRIPT = Path(__file__).with_name("leftovers.py").read_bytes()


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sibling", "orphan", "hopping"])
@pytest.mark.parametrize("tier", TIERS)
def test_a_process_that_hides_ends_with_its_step_while_another_step_runs(tier: str, kind: str, tmp_path: Path) -> None:
    need(tier)
    memory = Memory({"leftovers.py": SCRIPT})
    tag, other = (f"{100_000 + os.getpid()}.6{TIERS.index(tier)}{len(kind):02d}{number}" for number in (1, 2))
    pause = threading.Event()
    with executor(tier, memory, tmp_path / "rooms", ()) as running, ThreadPoolExecutor(1) as threads:
        long = Action(argv=("sleep", other), inputs={})
        meanwhile = threads.submit(running.run, long)
        try:
            while not alive(f"sleep\0{other}"):
                assert not meanwhile.done(), meanwhile.result()
                pause.wait(0.01)
            outcome = running.run(
                Action(
                    argv=("python", "leftovers.py", kind, tag),
                    inputs={"leftovers.py": FileEntry(digest_bytes(SCRIPT))},
                )
            )
            left = alive(tag)
            assert isinstance(outcome, Completed), outcome
            assert outcome.result.exit_code == 0, outcome.result.output.text
            assert outcome.result.violations == ()
            assert left == []
            assert not meanwhile.done()
            assert len(alive(f"sleep\0{other}")) >= 1, "the other step was ended too"
        finally:
            running.cancel()
