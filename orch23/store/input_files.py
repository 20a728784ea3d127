"""Read input files: expected bytes from the store or the workspace, and the texts of prompts."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.file_copy import FileProgress, copy_and_hash, no_progress
from orch23.store.safe_files import NEW_FILE_FLAGS, closing, try_unlink
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.model.ports import FileContentStore


class InputFiles:
    """Returns files by path and expected entry, from the store or the workspace, and verifies their bytes."""

    def __init__(self, contents: "FileContentStore", workspace: Workspace, meter: FileProgress = no_progress) -> None:
        """Use both sources of bytes; `meter` receives the progress of copying."""
        self._contents, self._workspace, self._meter = contents, workspace, meter

    def with_workspace(self, workspace: Workspace) -> "InputFiles":
        """Return the same input files with another view of the workspace."""
        return InputFiles(self._contents, workspace, self._meter)

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        """Create `target` with the expected bytes and mode; return False if neither source has the bytes."""
        # From the store first: a user may save the file between two attempts of a stage (ADR 4).
        try:
            with new_file(target, executable=entry.executable) as descriptor:
                self._contents.copy_to(entry.digest, descriptor, path.rpartition("/")[2])
        except MissingBytesError:
            return self._copy_from_workspace(path, entry, target)
        return True

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the expected bytes.

        Raises:
            MissingBytesError: neither source has them.
        """
        if self._contents.has(entry.digest):
            with contextlib.suppress(MissingBytesError):
                return self._contents.get(entry.digest)
        data = self._workspace.read(entry.link or path)
        if data is None or digest_bytes(data) != entry.digest:
            raise MissingBytesError(entry.digest.sha256)
        return data

    def _copy_from_workspace(self, path: str, entry: FileEntry, target: str) -> bool:
        source = self._workspace.open(entry.link or path)
        if source is None:
            return False
        with closing(source):
            if bool(os.fstat(source).st_mode & stat.S_IXUSR) != entry.executable:
                return False
            advance = self._meter("copying", path, entry.digest.size_bytes)
            with new_file(target, executable=entry.executable) as descriptor:
                found, _ = copy_and_hash(source, descriptor, advance)
        if found != entry.digest.sha256:
            try_unlink(target)
        return found == entry.digest.sha256


@contextlib.contextmanager
def new_file(target: str, *, executable: bool) -> Iterator[int]:
    """Create a file, and yield its descriptor, open for reading and writing.

    A file or link at the path is unlinked first, so that no other file with the same inode is changed. If the block
    raises, the file is deleted.
    """
    descriptor = _create(target, 0o777 if executable else 0o666)
    try:
        with closing(descriptor):
            yield descriptor
    except BaseException:
        try_unlink(target)
        raise


def _create(target: str, mode: int) -> int:
    while True:
        try:
            return os.open(target, NEW_FILE_FLAGS, mode)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        except FileExistsError:
            os.unlink(target)


MAX_AUTHOR_FILE_BYTES = 1_048_576


class AuthorFiles(Struct, frozen=True):
    """The files of a project that authors write, such as prompts. Links out of the project are not followed.

    `read` returns the bytes of the regular file at a path, or None.

    The text that was read first is returned each time. The key of a stage is computed from a prompt, and the request is
    made later: if the file is saved in between, the response to the new text must not be stored under the old key. A
    file that a stage of this build wrote (`is_written`) is read again.
    """

    read: Callable[[str], bytes | None]
    is_written: Callable[[str], bool] = lambda _path: False
    _first: dict[str, bytes | None] = field(default_factory=dict)

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        """Return the text of a file, or None and an error."""
        data = self._data(path)
        if data is None:
            problem = "does not exist, or is not a regular file"
            hint = "paths are relative to the root of the project; the path must not be a link or a directory"
            if " " in path:
                hint = f"write this text into a file, such as `prompts/text.md`, and here its path; {hint}"
        elif len(data) > MAX_AUTHOR_FILE_BYTES:
            problem = f"is larger than {MAX_AUTHOR_FILE_BYTES:,} bytes"
            hint = "split the file, or pass large data as an input of the stage"
        else:
            try:
                return data.decode("utf-8"), None
            except UnicodeDecodeError as error:
                problem, hint = f"is not UTF-8 text (byte {error.start})", "save it as UTF-8"
        return None, Diagnostic("E831", f"`{path}` {problem}", hint=hint)

    def _data(self, path: str) -> bytes | None:
        if self.is_written(path):
            return self.read(path)
        # Read once: the workspace has noted its stamp, by which the next build sees a later change.
        if path not in self._first:
            self._first.setdefault(path, self.read(path))
        return self._first[path]
