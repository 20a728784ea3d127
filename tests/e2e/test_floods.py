"""Whatever a step prints, orch23's memory is bounded: the flood is killed at its limit, and told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import pipeline, prompt, shell
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_REPOSITORY = str(Path(__file__).parents[2])
_MOST_GROWTH_KB = 64 << 10
_LOG_BYTES = 16 << 20
_MEASURED = """
import resource, sys
from orch23.cli.main import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
ENDLESS_LINE = "while True: print('x' * 65536, end='')"
FLOODS = {
    "yes": shell("  a: {shell: 'yes; true'}\n"),
    "one endless line": shell("  a: {shell: 'tr \"\\\\0\" x < /dev/zero'}\n"),
    "bytes that are no text": shell("  a: {shell: 'cat /dev/urandom'}\n"),
    "a test that prints": shell(
        "  a: {inputs: [test_a.py], pytest: {args: [-s]}}\n", {"test_a.py": f"def test_a():\n    {ENDLESS_LINE}\n"}
    ),
    "a verification": shell("  a: {outputs: [a.txt], shell: 'echo a > a.txt', verify: [{shell: 'yes; true'}]}\n"),
}
QUIET = shell("  a: {shell: 'true'}\n")


def built(root: Path, files: dict[str, str]) -> tuple[int, str, int]:
    """Build in a process of its own; return its exit code, what it said, and the most memory that it took, in KiB."""
    project = Project(root)
    project.write(files)
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY, "ORCH23_TRUST": "1"}
    argv = [sys.executable, "-c", _MEASURED, "-C", str(project.root), "build", "-j1"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=250)
    reported, _, peak = done.stderr.rstrip().rpartition("\n")
    return done.returncode, done.stdout + reported, int(peak)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Give what a build takes whose step prints nothing."""
    code, reported, peak = built(tmp_path_factory.mktemp("quiet") / "project", QUIET)
    assert code == 0, reported
    return peak


@pytest.mark.stride(5)
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_is_killed_at_its_limit_and_memory_does_not_grow_with_it(tmp_path: Path, quiet: int, kind: str) -> None:
    code, reported, peak = built(tmp_path / "project", FLOODS[kind])
    assert code == 1, reported
    assert "killed: it printed more than 16777216 bytes" in reported, reported
    sys.stdout.write(f"{kind}: {(peak - quiet) >> 10} MiB more than the {quiet >> 10} MiB of a quiet build\n")
    assert peak - quiet < _MOST_GROWTH_KB
    kept = [path.stat().st_size for path in (tmp_path / "project").rglob("*") if path.is_file()]
    assert sum(kept) < _LOG_BYTES + (1 << 20)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_models_program_that_prints_without_end_is_killed_too(tmp_path: Path, quiet: int, stream: str) -> None:
    files = pipeline(
        "  a: {outputs: [a.txt], llm: {prompt: a.md.j2, returns: text}}\n", {"a.md.j2": prompt("a", "said")}
    )
    files["model.py"] = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)\n"
    code, reported, peak = built(tmp_path / "project", files)
    assert code == 5, reported
    assert "bytes" in reported, reported
    sys.stdout.write(f"a model, {stream}: {(peak - quiet) >> 10} MiB more than a quiet build\n{reported}\n")
    assert peak - quiet < _MOST_GROWTH_KB
