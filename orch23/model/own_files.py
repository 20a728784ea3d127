"""Name the files that orch23 writes for itself: no wildcard of a pipeline means them (docs/patterns.md)."""

import re
from collections.abc import Callable

from orch23.model.digest import digest_bytes

OWN_NAMES = frozenset({".orch23", ".orch23-aside"})
"""Folders of orch23, at any depth."""
NO_INPUTS = OWN_NAMES | frozenset({".git", ".hg", ".jj", ".svn"})
"""Folders that no link may lead into."""
LOGS = "logs"
LOCK_MARK = b'"orch23_lock"'

ORIGINALS = "originals"
"""The folder among transcripts with bytes that a stage started from."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TRANSCRIPT = re.compile(r"[0-9a-f]{64}\.json")
_TRANSCRIPT_MARK = b'"orch23_exchange"'
_OF_A_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}(?:-\d+)?(?:\.jsonl)?|crash-\d{8}T\d{12}Z\.txt")


def is_of_a_run(folder: str, name: str) -> bool:
    """Return whether a name in a folder is a journal, the folder of a run's artifacts or a crash report."""
    return folder.rpartition("/")[2] == LOGS and _OF_A_RUN.fullmatch(name) is not None


def is_own(path: str, read: Callable[[], bytes]) -> bool:
    """Return whether a file is a lock file of orch23, a transcript, or an original that lies beside transcripts.

    Files of other names are not read.
    """
    above, _, name = path.rpartition("/")
    if name.endswith(".lock"):
        return LOCK_MARK in read()
    if _TRANSCRIPT.fullmatch(name) is not None:
        return _TRANSCRIPT_MARK in read()
    if above.rpartition("/")[2] == ORIGINALS and _DIGEST.fullmatch(name) is not None:
        return digest_bytes(read()).sha256 == name
    return False
