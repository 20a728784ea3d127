"""Have stage_cost.py run in the environment that orch23 is installed in, and take over what it found."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.results import StageCost
from bench.tool import FromTree, Installed

SCRIPT = Path(__file__).with_name("stage_cost.py")
PATIENCE_S = 600


def stage_costs(tools: Iterable[Installed], rounds: int) -> list[StageCost]:
    """Return what a process costs without a sandbox and in each tier, or why that is not known."""
    program = next((one.program for one in tools if isinstance(one.tool.source, FromTree)), None)
    if program is None or not rounds:
        return []
    argv = [str(program.with_name("python")), str(SCRIPT), str(rounds), "--json"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return [StageCost("all", "", (), f"took over {PATIENCE_S} s")]
    if done.returncode != 0:
        return [StageCost("all", "", (), f"stage_cost.py ended with {done.returncode}: {done.stderr[-300:].strip()}")]
    return [StageCost(row["kind"], row["work"], tuple(row["wall_s"])) for row in json.loads(done.stdout)]
