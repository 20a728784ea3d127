"""Diagnostic codes of the command line, and hints for errors of the operating system (E650)."""

import errno
from collections.abc import Mapping
from typing import Final

CLI_CODES: Mapping[str, tuple[str, str]] = {
    "E641": (
        "the command line is not valid",
        "An option lacks its value, two options contradict each other, or the command got too many names. `orch23 "
        "COMMAND --help` lists its options and arguments.",
    ),
    "E643": (
        "outputs were edited",
        "`orch23 clean` does not remove your edits. Keep an edit with `orch23 accept STAGE`, or remove it with "
        "`orch23 clean --force`; the store keeps its bytes.",
    ),
    "E644": (
        "consent cannot be stored",
        "What you allow is stored in `$XDG_STATE_HOME/orch23`, else in `~/.local/state/orch23`. Neither "
        "XDG_STATE_HOME nor HOME is an absolute path, or the directory is in the project, so that a clone could "
        "contain it. Set one of them to a directory outside, or set `ORCH23_TRUST=1` for one process.",
    ),
    "E730": (
        "the shared cache cannot be used as it is named",
        "`--cache` and ORCH23_CACHE_URL name the shared cache: the path of a directory, which must be absolute in "
        "ORCH23_CACHE_URL, `file:///PATH`, or the address of a server, with https:// unless it is this machine. The "
        "address must not have a user name or a password: `orch23 help shared-cache` explains how to log in. `off` "
        "uses no shared cache. `--cache-write` needs a cache to write to: one that you name, or that of the pipeline "
        "after `orch23 trust`.",
    ),
    "E650": (
        "the operating system refused an operation",
        "A file could not be read or written: the disk is full or damaged, a quota is used up, the file system is "
        "read-only, you lack permission, too many files are open, or another file is at a path of orch23. Fix the "
        "cause and build again: finished stages are kept.",
    ),
    "E661": (
        "no pipeline",
        "You named no pipeline, and neither this directory nor a parent directory in the project has a "
        "`pipeline.yaml`, or a directory `pipelines` with exactly one pipeline. Name one as the first argument, choose "
        "the directory with `-C`, or create one with `orch23 init`. A pipeline in a parent directory is used only if "
        "you own both, since it runs commands.",
    ),
    "E663": (
        "no such code, command or page",
        "`orch23 help` explains commands and diagnostic codes (`orch23 help diagnostics` lists them) and shows pages "
        "(`orch23 help pages`). For codes of a plugin, install it and list it in `plugins` of the project's "
        "`pipeline.yaml`.",
    ),
    "E664": (
        "nothing to show",
        "The stage has no result yet, its attempts have nothing of this kind, or its result was made elsewhere: see "
        "the message. `orch23 log` shows what ran; `orch23 build STAGE` makes a result, `--force STAGE` another one.",
    ),
    "E667": (
        "no working directory",
        "The working directory was removed. Change to an existing directory, or name one with `-C`.",
    ),
    "W661": (
        "files are beside the pipeline, but not where the project root would have them",
        "All paths of a pipeline are relative to the root of the project: the nearest directory upwards with "
        "`orch23.toml` or `[tool.orch23]`, else with `.git`, else with the pipeline. Create an empty `orch23.toml` "
        "beside the pipeline and work there, or write the paths from the root.",
    ),
    "W668": (
        "a file of another user was ignored",
        "orch23 searches parent directories for the project root: `orch23.toml`, `[tool.orch23]` in pyproject.toml, "
        "`.git` or `pipeline.yaml`. It uses such a file only if you own it and its directory: a project runs "
        "commands, and others can write to directories such as /tmp. If you trust the owner, choose that directory "
        "with `-C`. Otherwise create an empty `orch23.toml` at the root of your project: the search ends there.",
    ),
    "E669": (
        "a command needs a library that is not installed",
        "The libraries of `orch23 view`, of `orch23 build --otel` and of signatures are extras, since most projects do "
        "not need them. The hint is the command that adds one to your installation; "
        "`pip install 'orch23[view,otel,signing]'` adds all.",
    ),
    "E681": (
        "a plan file cannot be used",
        "`orch23 build --plan FILE` needs a file that `orch23 plan --out FILE` wrote. This one does not exist, is "
        "damaged, is something else (such as the output of `plan --json`), or was written by a newer orch23. Write it "
        "again with `orch23 plan --out FILE`.",
    ),
    "E682": (
        "a plan no longer holds",
        "Since `orch23 plan --out FILE`, something changed that the plan depends on: an input, the pipeline, a "
        "variable, a record or an output. `orch23 build --plan FILE` then builds nothing; if a file changes while it "
        "runs, the stage that reads it fails. Plan again, read the plan, and build it.",
    ),
    "E687": (
        "no such run or revision",
        "`orch23 diff` compares with a run (the beginning of its id is enough) or with a git revision (a commit, a "
        "branch, a tag). The name is neither of the two, or could be both. `orch23 runs` lists the runs, `git log` the "
        "commits.",
    ),
    "W688": (
        "a metrics file cannot be read",
        "The file does not exist in one of the two states, is larger than 1 MiB, is not valid JSON or YAML, is not "
        "a mapping of names to values, or its bytes are no longer in the store. Its values are shown as missing there; "
        "all others are compared.",
    ),
    "E686": (
        "spans cannot be sent as configured",
        "`orch23 build --otel` reads the standard environment variables of OpenTelemetry, and one of them has a value "
        "that it cannot use. Nothing was built. Spans are sent by OTLP over HTTP (`http/protobuf`), usually to port "
        "4318; OTLP over gRPC is not supported.",
    ),
    "W689": (
        "spans were not sent, or not as configured",
        "`orch23 build --otel` could not send all spans to the collector: it does not run, refused them or was too "
        "slow. Or the library of OpenTelemetry ignores the value of a variable. The build is not affected, and the "
        "journal in `logs` has what the spans have. If the collector only needs more time at the end of the build, set "
        "OTEL_BSP_EXPORT_TIMEOUT (milliseconds).",
    ),
    "W671": (
        "a pipeline cannot be planned",
        "`orch23 gc` keeps what the current plan of every pipeline needs, and cannot plan this one. It keeps what "
        "its lock file and its last run need, and all transcripts; the next build makes other data again. "
        "`orch23 validate PIPELINE` reports the errors.",
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
