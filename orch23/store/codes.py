"""Diagnostic codes of the store: title, meaning and solution of each."""

from collections.abc import Mapping

E_LINK = "E691"
E_LOCK_CONFLICT = "E701"
E_LOCK_DAMAGED = "E702"
E_LOCK_RECORD = "E703"
E_LOCK_VERSION = "E704"
E_STORE_VERSION = "E705"
E_JOURNAL = "E706"
E_TRANSCRIPT = "E707"
E_BUSY = "E708"
E_NO_RUN = "E709"
E_WRONG_TYPE = "E692"
E_PROTECTED = "E694"
E_FOREIGN_STORE = "E693"
W_FOREIGN_STORE = "W693"
E_STATE = "E695"

STORE_CODES: Mapping[str, tuple[str, str]] = {
    E_LINK: (
        "A path leads through a link or out of the project",
        "orch23 never writes through a symbolic link: replace it by a real directory or file, or move the output. "
        "Inputs may be links, as long as each of them leads to a file or a directory of the project, outside of `.git` "
        "and `.orch23`, and none leads in a circle. Copy what it leads to into the project, or exclude the link from "
        "the pattern.",
    ),
    E_LOCK_CONFLICT: (
        "The lock file holds git's conflict markers",
        "Two branches changed the record of the same stage. Take either side of each block (git checkout --ours or "
        "--theirs on the file will do) and build again: the next build brings the records up to date from the store "
        "and the transcripts.",
    ),
    E_LOCK_DAMAGED: (
        "The lock file cannot be read",
        "The file is not the JSON that orch23 writes. Take it from version control again (git checkout -- FILE), or "
        "delete it and build: records that the local store holds are written anew without running anything.",
    ),
    E_LOCK_RECORD: (
        "A record of the lock file does not match its checksum",
        "Somebody, or a merge, changed a line of the record. Take the file from version control again, or delete the "
        "record's whole block (or the file) and build.",
    ),
    E_LOCK_VERSION: (
        "The lock file was written by another version of orch23",
        "A lock file says in which form its records are, and this orch23 does not know that form. Use the version of "
        "orch23 that wrote it, or delete the file and build with this one.",
    ),
    E_STORE_VERSION: (
        "The store is of an unknown version",
        "The file .orch23/VERSION names a layout that this orch23 does not know, or is damaged. `orch23 reset` makes "
        "a new store; it keeps all recorded answers, so no call is paid for twice.",
    ),
    E_JOURNAL: (
        "The journal of a run is damaged",
        "A line in the middle of logs/<run>.jsonl is not as it was written, so what the run had done is unknown. "
        "`orch23 reset` sets the journals aside; recorded answers stay, so no call is paid for twice.",
    ),
    E_TRANSCRIPT: (
        "A committed transcript is damaged",
        "The file is not as orch23 wrote it. Take it from version control again (git checkout -- FILE), or delete it "
        "and build: the answer is then taken from the local store, or asked for again. After a merge with a conflict, "
        "take one side whole: git checkout --ours FILE, or --theirs.",
    ),
    E_BUSY: (
        "Another build is running in this project",
        "One build at a time may change a project. Wait for it, or stop the process that is named. A lock never "
        "outlives its process, so there is nothing to remove.",
    ),
    E_NO_RUN: (
        "There is no such run",
        "No journal of that name is in logs/. `orch23 runs` lists the runs; logs are not "
        "committed, so a fresh clone has none.",
    ),
    E_WRONG_TYPE: (
        "Something else lies where orch23 keeps its own",
        "The folders .orch23 and logs, and the file .orch23/lock, are orch23's own. Something of another kind lies in "
        "the place of one of them: a link, a file where a folder belongs, or the reverse. orch23 takes away no such "
        "thing that it did not make. Remove it, or move it away, and build: recorded answers that are still there are "
        "kept.",
    ),
    E_PROTECTED: (
        "A result has a protected path",
        "A result that a build or `accept` would put into the project has a path that configures tools or tests, or "
        "that is orch23's own, and no stage of the pipeline names it. The file was left as it is. If a stage is to "
        "write it, name it in `outputs` or `allowed_paths.write`; version control, `.orch23`, `logs/` and the lock "
        "files of pipelines cannot be named. If you do not know where the result comes from, delete the lock file and "
        "build.",
    ),
    E_FOREIGN_STORE: (
        "The store is not yours",
        "The folder .orch23 belongs to another user. Nothing of it is believed. Change its owner, or remove it.",
    ),
    W_FOREIGN_STORE: (
        "The store was not made by you on this machine",
        "The folder .orch23 came with a clone or an archive, belongs to another user, or was made by an earlier "
        "version of orch23. What it says could be forged, for example that failing tests passed. Commands that only "
        "look use nothing of it; a command that writes moves it to .orch23-aside and starts with an empty store. If "
        "you know where it comes from, `orch23 trust` takes it for yours. ORCH23_TRUST=1 does so for one command: set "
        "it where you restore the store from a cache, and never for pull requests from forks.",
    ),
    E_STATE: (
        "The user's state directory cannot be written",
        "orch23 registers each store that it makes in $XDG_STATE_HOME/orch23/stores, by default "
        "~/.local/state/orch23/stores, so that it can tell its own stores from those that came with a clone. Set "
        "XDG_STATE_HOME to a folder that can be written. Where everything in the folder is trusted, such as in a job "
        "that builds only your own branches, set ORCH23_TRUST=1 instead.",
    ),
}
