"""Diagnostic codes of the command line, and hints for errors of the operating system (E650)."""

import errno
from collections.abc import Mapping
from typing import Final

CLI_CODES: Mapping[str, tuple[str, str]] = {
    "E641": (
        "the command line is not valid",
        "An option lacks its value, two options contradict each other, or a command got more names than it takes. "
        "`orch23 COMMAND --help` lists its options and arguments.",
    ),
    "E643": (
        "outputs were edited",
        "`orch23 clean` does not remove your edits. `orch23 accept STAGE` keeps an edit, `orch23 clean --force` "
        "removes it; the store keeps its bytes.",
    ),
    "E644": (
        "consent cannot be stored",
        "What you allow a project is stored in your state directory: `$XDG_STATE_HOME/orch23`, else "
        "`~/.local/state/orch23`. Neither XDG_STATE_HOME nor HOME is an absolute path, or the directory is inside of "
        "the project, where a clone could bring it. Set one to a directory outside, or set `ORCH23_TRUST=1` for one "
        "process.",
    ),
    "E650": (
        "the operating system refused an operation",
        "A file could not be read or written: the disk is full or damaged, a quota is used up, the file system is "
        "read-only, this user lacks permission, too many files are open, or something else is at the path of a file "
        "or folder of orch23. Fix the cause and build again: finished stages are kept.",
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
        "`orch23 help` explains commands and diagnostic codes. docs/diagnostics.md lists the codes of orch23. Codes of "
        "a plugin are known if it is installed and the project's `pipeline.yaml` names it in `plugins`.",
    ),
    "E664": (
        "nothing to show",
        "The stage has no result yet, or its attempts left nothing of this kind. `orch23 log` shows what ran; "
        "`orch23 build STAGE` makes a result.",
    ),
    "E667": (
        "no working directory",
        "The working directory was removed. Change to an existing directory, or name one with `-C`.",
    ),
    "W668": (
        "a file of another user was ignored",
        "orch23 finds the root of the project in parent directories: by `orch23.toml`, `[tool.orch23]` in "
        "pyproject.toml, `.git` or `pipeline.yaml`. Such a file in a parent directory is used only if it and the "
        "directory belong to you, since a project runs commands and other users can write to directories such as /tmp. "
        "The search continues without it. If you trust the owner, choose that directory with `-C`. If not, "
        "an empty `orch23.toml` at the root of your own project ends the search there.",
    ),
    "W671": (
        "a pipeline cannot be planned",
        "`orch23 gc` keeps what the current plan of every pipeline needs, and this pipeline cannot be planned. What "
        "its lock file and its last run need is kept. Other data of it may be removed, and is made again when a build "
        "needs it. `orch23 validate PIPELINE` reports its errors.",
    ),
}


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
