"""Run the quick tests of the core without each feature in turn: `python scripts/without_features.py [FEATURE]...`.

Each run is in a copy of the tree whose folder of the feature was removed. The copy uses the environment of this
interpreter, in which orch23 must be installed in editable mode or not at all.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FEATURES = ROOT / "orch23" / "features"
COPIED = (
    "orch23",
    "orch23_checks",
    "docs",
    "pipelines",
    "prompts",
    "scripts",
    "specs",
    "tests",
    "integrations",
    "bench",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".orch23")


def tested_without(feature: str, options: list[str]) -> int:
    """Run the tests without a feature, and return the exit code of pytest."""
    with tempfile.TemporaryDirectory(prefix="orch23-without-") as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT, symlinks=True)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy(path, copy / path.name)
        shutil.rmtree(copy / "orch23" / "features" / feature)
        environ = {**os.environ, "PYTHONPATH": str(copy)}
        print(f"---- without {feature}", flush=True)
        words = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        return subprocess.run(words, cwd=copy, env=environ, check=False).returncode


def main() -> int:
    """Run the tests without each feature, and return 1 if any run failed."""
    wanted = sys.argv[1:] or sorted(path.parent.name for path in FEATURES.glob("*/__init__.py"))
    codes = {feature: tested_without(feature, ["-n", "2", "-m", "not slow and not thorough"]) for feature in wanted}
    for feature, code in codes.items():
        print(f"without {feature}: {'passed' if code == 0 else f'exit {code}'}")
    return int(any(codes.values()))


if __name__ == "__main__":
    sys.exit(main())
