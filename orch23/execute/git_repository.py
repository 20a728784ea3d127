"""Read the files of a project in HEAD and in the index; git is started only when it is needed."""

import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


_PATHS_AT_ONCE = 500


class GitRepository:
    """The tree of HEAD, the index and the objects of a project's repository. Safe for calls from several threads.

    Without a repository, a commit or git itself there are no files and no objects. `was_used` is True after any call:
    then the result of the caller depends on more than the files of the project.
    """

    def __init__(self, root: Path) -> None:
        """Start nothing before the first call."""
        self.root = root
        self.was_used = False
        self._git: list[str] | None = None
        self._is_known = False
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., GitRepository] | None = None
        self._lock = threading.Lock()

    def committed(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return the blob ids of these paths in HEAD, without paths that are not in its tree."""
        found: dict[str, str] = {}
        ordered = sorted(paths)
        from orch23.execute.git_revision import run_git, tree_blobs  # noqa: PLC0415 - few builds need git

        with self._lock:
            git = self._command()
            for start in range(0, len(ordered) if git else 0, _PATHS_AT_ONCE):
                some = ordered[start : start + _PATHS_AT_ONCE]
                listed = run_git([*(git or ()), "--literal-pathspecs"], "ls-tree", "-z", "HEAD", "--", *some)
                found |= {path: blob.sha for path, blob in tree_blobs(listed or b"", b"").items()}
        return {path: found[path] for path in ordered if path in found}

    def bytes_of(self, blob_id: str) -> bytes | None:
        """Return the bytes of a blob, or None if the repository does not have it; nothing is fetched."""
        # If the git process has ended, no object can be read from it.
        with self._lock, suppress(OSError):
            return self._read(blob_id)
        return None

    def bytes_at(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a path in HEAD and in the index."""
        for name in (f"HEAD:./{path}", f":./{path}"):
            if (data := self.bytes_of(name)) is not None:
                yield data

    def close(self) -> None:
        """End the process that reads objects, if it runs; a later call starts another."""
        with self._lock:
            if self._end is not None:
                self._end()
            self._process = self._end = None

    def _read(self, name: str) -> bytes | None:
        from orch23.execute.git_revision import read_object, start_cat_file, stop_cat_file  # noqa: PLC0415 - likewise

        git = self._command()
        if git is None:
            return None
        if self._process is None:
            self._process = start_cat_file(git)
            self._end = weakref.finalize(self, stop_cat_file, self._process)
        return read_object(self._process, name)

    def _command(self) -> list[str] | None:
        """Return the command of git for this project, or None if it has no repository or git."""
        from orch23.execute.git_revision import git_command, run_git  # noqa: PLC0415 - likewise

        self.was_used = True
        if not self._is_known:
            self._is_known = True
            git = git_command(self.root)
            self._git = git if git is not None and run_git(git, "rev-parse", "--show-prefix") is not None else None
        return self._git
