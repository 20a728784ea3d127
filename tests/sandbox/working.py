"""Do honest work inside one tier: `python -m tests.sandbox.working TIER`. Prints which of it failed, and why."""

import json
import os
import sys
import tempfile
from pathlib import Path

from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from tests.sandbox.probe import Memory, executor


def working(tier: str) -> dict[str, str]:
    """Return what failed."""
    memory = Memory({"honest.py": Path(__file__).with_name("honest.py").read_bytes()})
    inputs = {path: FileEntry(digest_bytes(data)) for path, data in memory.files.items()}
    package = os.environ.get("HONEST_PACKAGE", "")
    action = Action(
        argv=("python", "honest.py"),
        inputs=inputs,
        timeout_s=120,
        env={"HONEST_TIER": tier, "HONEST_PACKAGE": package},
    )
    with (
        tempfile.TemporaryDirectory(prefix="honest-", dir="/var/tmp") as folder,
        executor(tier, memory, Path(folder, "project/.orch23/rooms"), (Path(folder, "project"),)) as running,
    ):
        outcome = running.run(action)
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0, outcome.result.output.text
    assert not outcome.result.violations, outcome.result.violations
    found: dict[str, str] = json.loads(memory.kept.get(outcome.result.written["failed.json"].digest))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(working(sys.argv[1])))
