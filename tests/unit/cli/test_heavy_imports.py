"""A plan of a sound pipeline is made without the libraries that only say what is wrong, or ask."""

import os
import subprocess
import sys
from pathlib import Path

import orch23

HEAVY = ("jsonschema", "networkx", "anthropic", "openai", "genai_prices")
CODE = f"""
import sys
from orch23.cli.main import main
print(main(["plan"]))
print([name for name in {HEAVY} if name in sys.modules])
"""


def test_a_plan_of_shell_stages_loads_no_heavy_library(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("version: 1\nstages: {a: {shell: [cp, x, y], inputs: [x], outputs: [y]}}\n")
    (tmp_path / "x").write_text("x")
    env = {**os.environ, "PYTHONPATH": str(Path(orch23.__file__).parents[1])}
    told = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-2:] == ["0", "[]"]
