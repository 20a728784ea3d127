"""Diagnostic codes of the command line, and hints for errors of the operating system (E650)."""

import errno
from collections.abc import Mapping
from typing import Final

CLI_CODES: Mapping[str, tuple[str, str]] = {
    "E641": (
        "the command line makes no sense",
        "An option lacks its value, two options contradict each other, or a command got more names than it takes. "
        "`orch23 COMMAND --help` says what it takes.",
    ),
    "E643": (
        "outputs were edited",
        "`orch23 clean` does not remove what a person wrote. `orch23 accept STAGE` keeps the edit, "
        "`orch23 clean --force` gives it up; the store keeps its bytes.",
    ),
    "E644": (
        "there is no place to keep consent in",
        "What you allow a project is kept in your state directory: `$XDG_STATE_HOME/orch23`, else "
        "`~/.local/state/orch23`. Neither variable holds an absolute path, or the directory is inside of the project, "
        "where a clone could bring it. Set one to a directory outside, or `ORCH23_TRUST=1` for one process.",
    ),
    "E650": (
        "the machine refused",
        "A file could not be written or read, and not by a fault of the pipeline or of orch23: the disk is full or "
        "damaged, a quota is used up, the file system is read-only, a file may not be written by this user, or too "
        "many files are open, or something else stands in the place of a file or folder of orch23. Nothing that was "
        "done is lost: mend it, and build again.",
    ),
    "E661": (
        "no pipeline",
        "No pipeline was named, and neither this directory nor a parent directory, up to the root of the project, has "
        "a `pipeline.yaml`. Name one as the first argument, or choose the directory with `-C`. A pipeline in a parent "
        "directory is used only if it and the directory belong to you: it runs commands, and other users can write to "
        "directories such as /tmp.",
    ),
    "E663": (
        "no such code",
        "`orch23 help` knows commands and codes of diagnostics. docs/diagnostics.md lists the codes of orch23. Those "
        "of a plugin are known where it is installed, in a project whose `pipeline.yaml` names it in `plugins`.",
    ),
    "E664": (
        "nothing is kept",
        "The stage has no result yet, or its attempts left nothing of that kind. `orch23 log` shows what ran; "
        "`orch23 build STAGE` makes a result.",
    ),
    "E667": (
        "no working directory",
        "The folder in which orch23 was started was removed. Change to a folder that exists, or name one with `-C`.",
    ),
    "W668": (
        "a file of another user was not used",
        "orch23 finds the root of the project in parent directories: by `orch23.toml`, `[tool.orch23]` in "
        "pyproject.toml, `.git` or `pipeline.yaml`. Such a file in a parent directory is used only if it and the "
        "directory belong to you, since a project runs commands and other users can write to directories such as /tmp. "
        "The search goes on as if it were not there. If you trust the owner, choose that directory with `-C`. If not, "
        "an empty `orch23.toml` at the root of your own project ends the search there.",
    ),
    "W671": (
        "a pipeline cannot be planned",
        "`orch23 gc` keeps what today's plan of every pipeline in the project needs, and the plan of this one is not "
        "known. What its lock file and its last run need is kept; what it would need besides may go, and is made "
        "again when a build needs it. `orch23 validate PIPELINE` says what is wrong with it.",
    ),
}


OS_ERROR_HINTS: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room on the disk"),
    errno.EIO: "see what is wrong with the disk (`dmesg`)",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n`), or build with fewer jobs"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "let this user write there"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO),
        "something else stands in the place of a file or folder of orch23; move it away",
    ),
    errno.EINTR: "a signal interrupted a call of the file system",
    errno.ENAMETOOLONG: "take a shorter name, or a folder that lies less deep",
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "free memory, or build with fewer jobs"),
}
