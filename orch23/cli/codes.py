"""The diagnostics of the command line: code -> (title, what it means and the way out)."""

from collections.abc import Mapping

CODES: Mapping[str, tuple[str, str]] = {
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
        "No pipeline was named, and neither this folder nor one above it, up to the root of the project, has a "
        "`pipeline.yaml`. Name one as the first argument, or choose the folder with `-C`. A pipeline in a folder above "
        "is used only if it and its folder belong to you: it runs commands, and anybody can write to folders such as "
        "/tmp.",
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
    "W671": (
        "a pipeline cannot be planned",
        "`orch23 gc` keeps what today's plan of every pipeline in the project needs, and the plan of this one is not "
        "known. What its lock file and its last run need is kept; what it would need besides may go, and is made "
        "again when a build needs it. `orch23 validate PIPELINE` says what is wrong with it.",
    ),
}
