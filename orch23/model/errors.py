"""Exceptions that stop orch23, its exit codes, and exit codes that a pipeline sets."""

import errno
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

from orch23.model.diagnostic import Diagnostic, Severity

OS_ERROR_HINTS: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free space on the disk"),
    errno.EIO: "check the disk (`dmesg`)",
    errno.EROFS: "mount the file system for writing",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n`), or build with fewer jobs"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "give this user permission"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO),
        "move away what is at the path of a file or folder of orch23",
    ),
    errno.EINTR: "a signal interrupted the file system",
    errno.ENAMETOOLONG: "use a shorter name or a less deep folder",
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "free memory, or build with fewer jobs"),
}
"""Hints for errors of the operating system (E650)."""


class ExitCode(IntEnum):
    """The exit codes of the command line; a pipeline may replace some by its own numbers."""

    OK = 0
    FAILED = 1
    SAFETY = 2
    CORRUPT = 3
    LIMIT = 4
    PROVIDER = 5
    DECISION = 6
    WAITING = 7
    APPROVAL = 8
    # From here to CONFIG: the numbers of sysexits.h.
    USAGE = 64
    INVALID = 65
    NOT_FOUND = 66
    BUG = 70
    MACHINE = 74
    BUSY = 75
    CONSENT = 77
    CONFIG = 78
    # As in shells: 128 and the number of the signal.
    SIGHUP = 129
    SIGINT = 130
    SIGTERM = 143


class Orch23Error(Exception):
    """An error that stops orch23, with its diagnostics; the subclass determines the exit code."""

    exit_code = ExitCode.BUG

    def __init__(self, *diagnostics: Diagnostic) -> None:
        """Store the diagnostics."""
        super().__init__("\n".join(str(d) for d in diagnostics))
        self.diagnostics = diagnostics


class InvalidInputError(Orch23Error):
    """The pipeline, a spec or a plan is not valid."""

    exit_code = ExitCode.INVALID


class NotFoundError(Orch23Error):
    """A file, stage or run that the user names does not exist."""

    exit_code = ExitCode.NOT_FOUND


class UsageError(Orch23Error):
    """The command line is not valid."""

    exit_code = ExitCode.USAGE


class CorruptStateError(Orch23Error):
    """The journal, the version of the store or the lock file is damaged, and cannot be repaired."""

    exit_code = ExitCode.CORRUPT


class SafetyError(Orch23Error):
    """A step or a promotion tried to write outside of its write scope, or over a protected file."""

    exit_code = ExitCode.SAFETY


class ProviderError(Orch23Error):
    """A provider failed, or replay needs a response that is not recorded."""

    exit_code = ExitCode.PROVIDER


class LimitError(Orch23Error):
    """A stop condition of the run was reached."""

    exit_code = ExitCode.LIMIT


class ConfigurationError(Orch23Error):
    """A credential, an interpreter or a tool that the pipeline needs is missing."""

    exit_code = ExitCode.CONFIG


class ConsentError(Orch23Error):
    """The user has not consented to what a pipeline would run, or where it would send a key."""

    exit_code = ExitCode.CONSENT


class BusyError(Orch23Error):
    """Another build holds the lock of this project. `lock` is its file.

    `wait` waits for it and returns whether it is free, from a time of the monotonic clock on; None: no option says so.
    """

    exit_code = ExitCode.BUSY
    lock: str = ""
    wait: Callable[[float], bool] | None = None


class MissingBytesError(Exception):
    """The bytes of a digest are not in the store, or are damaged; the caller restores them or runs the stage again.

    `code` and `hint` are those of its diagnostic, where a stage needs bytes that are lost.
    """

    code: Final = "E710"
    hint: Final = (
        "put back .orch23, the transcripts or the git history, or start from the file on disk: `orch23 release STAGE`"
    )

    def __init__(self, sha256: str) -> None:
        """Store the digest."""
        super().__init__(sha256)
        self.sha256 = sha256


class CacheFault(Exception):  # noqa: N818 - not an error of a build: it goes on without the cache
    """A shared cache cannot be reached, or its reply makes no sense. No build fails because of it."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        """Store what happened, without a secret of the URL, and whether the same call may succeed if repeated."""
        super().__init__(message)
        self.message, self.transient = message, transient


class AwaitsResponseError(Exception):
    """The response to a request comes later: from a batch that has not ended, or from a build that may call models."""

    def __init__(self, fingerprint: str = "") -> None:
        """Keep the fingerprint of the request in a batch; empty if this build may not call models."""
        super().__init__(fingerprint)
        self.fingerprint = fingerprint


FIXED_EXIT_CODES = frozenset(
    {ExitCode.OK, ExitCode.SAFETY, ExitCode.CONSENT, ExitCode.SIGHUP, ExitCode.SIGINT, ExitCode.SIGTERM}
)
"""Codes that a pipeline cannot change: it could hide a safety violation, or a missing consent to itself."""

MIN_CUSTOM_EXIT_CODE, MAX_CUSTOM_EXIT_CODE = 1, 125
"""The numbers that a pipeline may set: 126 and above have a meaning for shells."""

CUSTOM_EXIT_CODE_NAMES = tuple(code.name for code in ExitCode if code not in FIXED_EXIT_CODES)


def custom_exit_code(code: ExitCode, diagnostics: Iterable[Diagnostic], families: Mapping[str, int]) -> int:
    """Return the exit code of a pipeline with `exit_codes`: for the first error with an entry, else `code`.

    `families` maps codes of diagnostics, or their beginnings, to numbers; the longest entry that matches is used.
    `FAILED/E8` matches only if `code` is FAILED. `FAILED` is used if no other entry matches.
    """
    if code in FIXED_EXIT_CODES:
        return code
    for one in diagnostics:
        whole = f"{code.name}/{one.code}"
        fitting = [key for key in families if one.code.startswith(key) or ("/" in key and whole.startswith(key))]
        if fitting and one.severity is Severity.ERROR:
            return families[max(fitting, key=len)]
    return families.get(code.name, code)
