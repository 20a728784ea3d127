"""Measure with the installed orch23 what waiting for models takes, and how many calls an edit costs."""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench import model_calls, model_economy
from bench.results import EditCost, Waiting
from bench.tool import FromTree, Installed


def waiting(tools: Iterable[Installed], rounds: int) -> tuple[Waiting, ...]:
    """Return what forty calls took with each provider, in turns."""
    program = _ours(tools)
    return model_calls.measure(rounds, (str(program),)) if program is not None and rounds else ()


def edit_costs(tools: Iterable[Installed]) -> tuple[EditCost, ...]:
    """Return what each edit of the pipeline of twenty stages cost."""
    program = _ours(tools)
    if program is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="orch23-economy-") as name:

        def build(root: Path, words: tuple[str, ...]) -> int:
            environ = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": name, "ORCH23_TRUST": "1"}
            return subprocess.run(
                [str(program), *words], cwd=root, env=environ, check=False, capture_output=True, text=True
            ).returncode

        _, rows = model_economy.measure(Path(name), build)
    return tuple(EditCost(row.edit.name, row.calls, row.whole) for row in rows)


def _ours(tools: Iterable[Installed]) -> Path | None:
    return next((one.program for one in tools if isinstance(one.tool.source, FromTree)), None)
