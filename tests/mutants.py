"""Change one place of a copy of this project, and see whether its tests notice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("orch23", "orch23_checks", "tests", "docs", "pipelines", "prompts", "specs", "scripts", "bench")
TIMEOUT_S, TEST_TIMEOUT_S = 900, 180  # of all tests of a row, and of one: not failed by a busy machine


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text of a file of this project, which is there once, and what stands there instead."""

    path: str
    old: str
    new: str

    def applied(self) -> str:
        """Return the file with the change; AssertionError where the text is not there once."""
        text = (ROOT / self.path).read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self.path} holds {text.count(self.old)} times: {self.old}"
        assert self.old != self.new
        return text.replace(self.old, self.new)


class Copy:
    """A copy of this project, in which one mutant at a time is tried."""

    def __init__(self, place: Path) -> None:
        """Make the copy."""
        self._place = place
        self._tried = 0
        for file in [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "LICENSE"]:
            shutil.copy2(file, place / file.name)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "results"))

    def passes(self, tests: Sequence[str], mutant: Mutant | None = None) -> bool:
        """Return whether these tests pass, with a mutant or as they are."""
        if mutant is None:
            return self._run(tests)
        path = self._place / mutant.path
        before, stat = path.read_bytes(), path.stat()
        self._tried += 1
        path.write_text(mutant.applied(), encoding="utf-8")
        os.utime(path, (stat.st_atime, stat.st_mtime - self._tried))  # no compiled file of another mutant is this one's
        try:
            return self._run(tests)
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def _run(self, tests: Sequence[str]) -> bool:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
        environ |= {"PYTHONPATH": str(self._place), "PYTHONPYCACHEPREFIX": str(self._place / ".compiled")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        environ["HYPOTHESIS_PROFILE"] = "dev"
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=short"]
        argv += ["--timeout", str(TEST_TIMEOUT_S), *tests]
        done = subprocess.run(
            argv,
            cwd=self._place,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in {0, 1}, f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr}"
        return done.returncode == 0
