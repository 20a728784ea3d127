"""Compute the paths that a verifying process may write; the rest of its tree is read-only."""

from collections.abc import Collection, Iterator

from orch23.model.paths import is_glob, normalize_pattern, static_prefix
from orch23.model.pipeline import Stage
from orch23.model.step import ProcessStep

# Caches that are redirected below TMPDIR, or not written at all. If the code under test could write `__pycache__`, it
# could replace the compiled form of a test.
_ELSEWHERE = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage"})

# Staged code stays read-only: the code under test could otherwise replace a test (ADR 24).
_CODE = (".py", ".pyc", ".so")


def writable_paths(
    stage: Stage, step: ProcessStep, inputs: Collection[str], *, verifies: bool
) -> tuple[str, ...] | None:
    """Return what a step may write besides TMPDIR and HOME: a folder ends with `/`, everything else is a file.

    None means its whole tree, as for a step that makes outputs. A step that judges may write the outputs of its stage
    if it is the stage's own step and not one of `verify`.
    """
    if not (step.judges or verifies):
        return None
    # Code under test runs in these steps. With its whole tree writable, it could replace the tests that judge it.
    found = set(_scratch(stage, step, inputs))
    if not verifies:
        patterns = {*stage.outputs, *stage.fence.write} - {*step.named_outputs}
        found |= {path for one in patterns if (path := _output(one, inputs))}
    return tuple(sorted(found))


def _scratch(stage: Stage, step: ProcessStep, inputs: Collection[str]) -> Iterator[str]:
    """Yield the literal paths of `scratch`. A name without a `/` is relative to the working directory of the step.

    A path that is, contains or is inside a staged Python file is left out: an item may decide `scratch`.
    """
    for pattern in stage.scratch:
        bare = pattern.removesuffix("**").rstrip("/").removeprefix("./")
        name = bare.rpartition("/")[2]
        if name in _ELSEWHERE or name in step.caches:
            continue
        if is_glob(bare):
            # Mounts and Landlock rules need paths, so the folder before the wildcard becomes writable (ADR 24).
            folder = static_prefix(bare)
            path = "" if _holds(folder, inputs) else folder
        else:
            path = _literal(stage, pattern, bare, inputs)
        is_plain = not {"", ".", ".."} & set(path.removesuffix("/").split("/"))
        if is_plain and not any(path.startswith(f"{one}/") for one in inputs):
            yield path


def _literal(stage: Stage, pattern: str, bare: str, inputs: Collection[str]) -> str:
    """Return the path of a literal pattern, with `/` at the end of a folder; empty if it has a Python file."""
    path = bare if "/" in bare or stage.cwd == "." else f"{stage.cwd}/{bare}"
    is_folder = bare != pattern.removeprefix("./") or _holds(f"{path}/", inputs)
    # A file is one that is staged, or a name with a suffix.
    is_file = path in inputs or (not is_folder and "." in path.rpartition("/")[2].lstrip("."))
    path = path if is_file else f"{path}/"
    code = (one for one in inputs if one.endswith(_CODE))
    return "" if any(one == path or one.startswith(path) for one in code) else path


def _output(pattern: str, inputs: Collection[str]) -> str:
    """Return what must be writable for an output: its folder, or only the file if the folder has inputs."""
    folder = static_prefix(pattern)
    if folder and not _holds(folder, inputs):
        return folder
    return "" if is_glob(pattern) else normalize_pattern(pattern)


def _holds(folder: str, inputs: Collection[str]) -> bool:
    return any(path.startswith(folder) for path in inputs)
