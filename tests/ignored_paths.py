"""Which paths a listing leaves out, worked out path by path: tests compare listings with it."""

from itertools import pairwise

from orch23.model.paths import is_run_file, unentered_names


def is_ignored(path: str, pattern: str) -> bool:
    """Return whether a wildcard would have to enter an ignored name, or a file of a run, to reach a path."""
    names = path.split("/")
    if not unentered_names(pattern).isdisjoint(names):
        return True
    return any(is_run_file(folder, name) for folder, name in pairwise(names))
