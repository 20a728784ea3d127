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
        "Inputs may be links, as long as each of them leads to a file or a directory of the project, outside of "
        "`.git` and `.orch23`, and none leads in a circle. Copy what it leads to into the project, or exclude the "
        "link from the pattern.",
    ),
    E_LOCK_CONFLICT: (
        "The lock file has git's conflict markers",
        "Two branches changed the record of the same stage. Take either side of each block, for example with git "
        "checkout --ours FILE or --theirs, and build again: the next build updates the records from the store and the "
        "transcripts.",
    ),
    E_LOCK_DAMAGED: (
        "The lock file cannot be read",
        "The file is not the JSON that orch23 writes. Restore it from version control (git checkout -- FILE), or "
        "delete it and build: records that are in the local store are written again without running a stage.",
    ),
    E_LOCK_RECORD: (
        "A record of the lock file does not match its checksum",
        "A line of the record was changed, by hand or by a merge. Restore the file from version control, or delete "
        "the whole block of the record (or the file) and build.",
    ),
    E_LOCK_VERSION: (
        "The lock file was written by another version of orch23",
        "This version of orch23 does not support the format of the lock file. Use the version of orch23 that wrote "
        "it, or delete the file and build.",
    ),
    E_STORE_VERSION: (
        "The store has an unknown version",
        "The file .orch23/VERSION names a layout that this version of orch23 does not support, or is damaged. `orch23 "
        "reset` creates a new store. It keeps all recorded responses, so no call is paid for twice.",
    ),
    E_JOURNAL: (
        "The journal of a run is damaged",
        "A line in the middle of logs/<run>.jsonl was changed, so orch23 cannot know what the run did. `orch23 reset` "
        "sets the journals aside. Recorded responses are kept, so no call is paid for twice.",
    ),
    E_TRANSCRIPT: (
        "A committed transcript is damaged",
        "The file was changed since orch23 wrote it. Restore it from version control (git checkout -- FILE), or "
        "delete it and build: the response is then taken from the local store, or the model is called again. After a "
        "merge with a conflict, take one side of the file: git checkout --ours FILE, or --theirs.",
    ),
    E_BUSY: (
        "Another build is running in this project",
        "Only one build at a time may change a project. Wait for it to end, or stop the process in the message. You "
        "do not have to delete the lock: it ends with its process.",
    ),
    E_NO_RUN: (
        "The run does not exist",
        "There is no journal of that name in logs/. `orch23 runs` lists the runs. Logs are not committed, so a new "
        "clone has none.",
    ),
    E_WRONG_TYPE: (
        "A file or folder of orch23 has the wrong type",
        "orch23 uses the folders .orch23 and logs, and the file .orch23/lock. One of them is a link, or a file "
        "instead of a folder, or a folder instead of a file. orch23 does not delete it, since it did not create it. "
        "Delete it, or move it away, and build.",
    ),
    E_PROTECTED: (
        "A result has a protected path",
        "A build or `accept` would write a file that configures tools or tests, or that belongs to orch23, and no "
        "stage of the pipeline names its path. The file was left as it is. If a stage is to write it, name it in "
        "`outputs` or `allowed_paths.write`; files of version control, `.orch23`, `logs/` and lock files cannot be "
        "named. If you do not know where the result comes from, delete the lock file and build.",
    ),
    E_FOREIGN_STORE: (
        "The store is not yours",
        "The folder .orch23 belongs to another user, so it is not used. Change its owner, or delete it.",
    ),
    W_FOREIGN_STORE: (
        "The store was not created by you on this machine",
        "The folder .orch23 came with a clone or an archive, belongs to another user, or was created by an earlier "
        "version of orch23. Its records could be forged, for example that failing tests passed. Commands that only "
        "read do not use it. A command that writes moves it to .orch23-aside and starts with an empty store. If you "
        "know where it comes from, `orch23 trust` registers it as yours. ORCH23_TRUST=1 does so for one command: set "
        "it where you restore the store from a cache, and never for pull requests from forks.",
    ),
    E_STATE: (
        "The user's state directory cannot be written",
        "orch23 registers each store that it creates in $XDG_STATE_HOME/orch23/stores, by default "
        "~/.local/state/orch23/stores, so that it can distinguish them from stores that came with a clone. Set "
        "XDG_STATE_HOME to a writable folder. If you trust all files of the project, such as in a job that builds "
        "only your own branches, set ORCH23_TRUST=1 instead.",
    ),
}
