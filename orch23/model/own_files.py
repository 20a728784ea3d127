"""Name the files that orch23 writes for itself: no wildcard of a pipeline means them (docs/patterns.md)."""

import re

OWN_NAMES = frozenset({".orch23", ".orch23-aside"})
"""Folders of orch23, at any depth."""
NO_INPUTS = OWN_NAMES | frozenset({".git", ".hg", ".jj", ".svn"})
"""Folders that no link may lead into."""
LOGS = "logs"
LOCK_MARK = b'"orch23_lock"'
MARKED_BYTES = 1 << 20
"""So many bytes of a file may have to be read until its mark comes."""

_TRANSCRIPT = re.compile(r"[0-9a-f]{64}\.json")
_TRANSCRIPT_MARK = b'"orch23_exchange"'
_OF_A_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}(?:-\d+)?(?:\.jsonl)?|crash-\d{8}T\d{12}Z\.txt")


def is_of_a_run(folder: str, name: str) -> bool:
    """Return whether a name in a folder is a journal, the folder of a run's artifacts or a crash report."""
    return folder.rpartition("/")[2] == LOGS and _OF_A_RUN.fullmatch(name) is not None


def mark_of(name: str) -> bytes | None:
    """Return what a file of that name holds if it is a lock file of orch23 or a transcript; None for other names."""
    if name.endswith(".lock"):
        return LOCK_MARK
    return _TRANSCRIPT_MARK if _TRANSCRIPT.fullmatch(name) is not None else None
