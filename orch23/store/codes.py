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
E_LEFT_OUT = "E698"

STORE_CODES: Mapping[str, tuple[str, str]] = {
    E_LINK: (
        "a path leads through a link or out of the project",
        "orch23 never writes through a symbolic link in the project: replace it by a real directory or file, or name "
        "another path. This holds for outputs, for .orch23, .orch23-aside and logs with their directories, and for the "
        "file of an option such as --out; a link outside of the project and of git repositories is followed there. An "
        "input may be a link if its target is in the project, outside `.git` and `.orch23`. Copy the target into the "
        "project, or exclude the link from the pattern.",
    ),
    E_LOCK_CONFLICT: (
        "the lock file has git's conflict markers",
        "A build reads the markers that a merge leaves, but here one side is not a lock file. Take either side, with "
        "git checkout --ours FILE or --theirs, and build again: records that it lacks are found in the commits of both "
        "sides, and results that you merged by hand are kept.",
    ),
    E_LOCK_DAMAGED: (
        "the lock file cannot be read",
        "The file is not the JSON that orch23 writes. Restore it from version control (git checkout -- FILE), or "
        "delete it and build again: records in the local store are written again without running a stage.",
    ),
    E_LOCK_RECORD: (
        "a record of the lock file does not match its checksum",
        "The record was changed, by hand or by a merge. Restore the file from version control, or delete the whole "
        "block of the record (or the file) and build again.",
    ),
    E_LOCK_VERSION: (
        "the lock file was written by another version of orch23",
        "This version of orch23 does not support the format of the lock file. Use the version that wrote it, or "
        "delete the file and build again.",
    ),
    E_STORE_VERSION: (
        "the store has an unknown version",
        "The file .orch23/VERSION is damaged, or names a version that this version of orch23 does not support. "
        "`orch23 reset` creates a new store. Recorded responses are kept, so no call is paid for twice.",
    ),
    E_JOURNAL: (
        "the journal of a run is damaged",
        "A line of logs/<run>.jsonl was changed, so orch23 cannot know what the run did. `orch23 reset` renames the "
        "journal. Recorded responses are kept, so no call is paid for twice.",
    ),
    E_TRANSCRIPT: (
        "a committed transcript is damaged",
        "The file was changed after orch23 wrote it. Restore it from version control (git checkout -- FILE), or "
        "delete it and build again: the response then comes from the local store or from the model. After a merge "
        "conflict, take one side: git checkout --ours FILE, or --theirs.",
    ),
    E_BUSY: (
        "another build is running in this project",
        "Only one build at a time may change a project. Wait for it to end, or stop the process in the message. Do "
        "not delete the lock: it ends with its process.",
    ),
    E_NO_RUN: (
        "the run does not exist",
        "There is no journal of that name in logs/. `orch23 runs` lists the runs. Logs are not committed, so a new "
        "clone has none.",
    ),
    E_WRONG_TYPE: (
        "a file or directory of orch23 has the wrong type",
        "One of .orch23, logs and .orch23/lock is a link or has the wrong type, so orch23 did not create it and does "
        "not delete it. Delete it, or move it away, and build again.",
    ),
    E_PROTECTED: (
        "a result has a protected path",
        "A build or `accept` would write a file that configures tools or tests, or that belongs to orch23, and no "
        "stage names its path. The file was not changed. Name it in `outputs` or `allowed_paths.write`; no stage may "
        "write files of version control, `.orch23`, `logs/` and lock files. If you do not know where the result "
        "comes from, delete the lock file and build again.",
    ),
    E_FOREIGN_STORE: (
        "the store is not yours",
        "The directory .orch23 belongs to another user, so it is not used. Change its owner, or delete it.",
    ),
    W_FOREIGN_STORE: (
        "the store was not created by you on this machine",
        "The directory .orch23 came with a clone or an archive, belongs to another user, or is from an earlier "
        "version of orch23. Its records could be forged, so reading commands do not use it; a writing command moves "
        "it to .orch23-aside and starts with an empty store. If you know where it comes from, run `orch23 trust`: the "
        "next build then authenticates what it has. "
        "ORCH23_TRUST=1 trusts it for one command: use it where you restore the store from a cache, and never for "
        "pull requests from forks.",
    ),
    E_LEFT_OUT: (
        "git has not checked out a file",
        "A stage needs a file of a submodule that is not checked out, one outside of a sparse checkout, or one of "
        "which only the pointer of Git LFS is there. It is not deleted, so nothing is built without it. Run the "
        "command of the hint, exclude the path, or build only the stages that do not need it. A text that looks "
        "like a pointer is a file like any other in a repository that has no attribute `filter=lfs` for it.",
    ),
    E_STATE: (
        "your state directory cannot be written",
        "orch23 registers its stores, with a key, in $XDG_STATE_HOME/orch23/stores (default: "
        "~/.local/state/orch23/stores), to distinguish them and what is in them from what came with a clone. Set "
        "XDG_STATE_HOME to a writable directory. If you trust all files of the project, as in a job for your own "
        "branches only, set ORCH23_TRUST=1 instead.",
    ),
}
