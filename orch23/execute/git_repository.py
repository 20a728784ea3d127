"""Ask git for the files of a project in HEAD and in the index; load and start git only if asked."""

import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


_PATHS_AT_ONCE = 500


class GitRepository:
    """What git has of a project: the tree of HEAD, the index, and objects by id. Safe for calls from several threads.

    A project in no repository, a repository without a commit and a machine without git are the same: git has nothing.
    `was_asked` is true after each question: the answers rest on more than the files of the project.
    """

    def __init__(self, root: Path) -> None:
        """Take the root of the project; nothing is started before the first question."""
        self.root = root
        self.was_asked = False
        self._git: list[str] | None = None
        self._is_known = False
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., GitRepository] | None = None
        self._lock = threading.Lock()

    def committed(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return the blob ids that HEAD has at these paths; a path that is not in its tree is left out."""
        found: dict[str, str] = {}
        ordered = sorted(paths)
        from orch23.execute.git_revision import run_git, tree_blobs  # noqa: PLC0415 - few builds ask git

        with self._lock:
            git = self._command()
            for start in range(0, len(ordered) if git else 0, _PATHS_AT_ONCE):
                some = ordered[start : start + _PATHS_AT_ONCE]
                listed = run_git([*(git or ()), "--literal-pathspecs"], "ls-tree", "-z", "HEAD", "--", *some)
                found |= {path: blob.sha for path, blob in tree_blobs(listed or b"", b"").items()}
        return {path: found[path] for path in ordered if path in found}

    def bytes_of(self, blob_id: str) -> bytes | None:
        """Return the bytes of a blob that the repository has here; nothing is fetched."""
        return self._object(blob_id)

    def bytes_at(self, path: str) -> Iterator[bytes]:
        """Give the bytes that HEAD has at a path, and those that the index has."""
        for name in (f"HEAD:./{path}", f":./{path}"):
            data = self._object(name)
            if data is not None:
                yield data

    def close(self) -> None:
        """End the process that reads objects, if there is one; a later question starts another."""
        with self._lock:
            if self._end is not None:
                self._end()
            self._process = self._end = None

    def _object(self, name: str) -> bytes | None:
        with self._lock:
            try:
                return self._read(name)
            except OSError:  # git ended: what it cannot say, it does not have
                return None

    def _read(self, name: str) -> bytes | None:
        from orch23.execute.git_revision import process_pipes, start_cat_file, stop_cat_file  # noqa: PLC0415 - likewise

        git = self._command()
        if git is None:
            return None
        if self._process is None:
            self._process = start_cat_file(git)
            self._end = weakref.finalize(self, stop_cat_file, self._process)
        asking, answering = process_pipes(self._process)
        asking.write(f"{name}\n".encode())
        asking.flush()
        words = answering.readline().rsplit(None, 2)
        if len(words) != 3 or not words[2].isdigit():  # noqa: PLR2004 - id, kind, size; else `NAME missing`
            return None
        data = answering.read(int(words[2]))
        answering.read(1)
        return data if words[1] == b"blob" else None

    def _command(self) -> list[str] | None:
        """Return how git is started, or None where it has nothing to say of this project."""
        from orch23.execute.git_revision import git_command, run_git  # noqa: PLC0415 - likewise

        self.was_asked = True
        if not self._is_known:
            self._is_known = True
            git = git_command(self.root)
            self._git = git if git is not None and run_git(git, "rev-parse", "--show-prefix") is not None else None
        return self._git
