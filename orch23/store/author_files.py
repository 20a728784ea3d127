"""Read the files that the author of a pipeline wrote beside it: prompts, templates, schemas."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic

MAX_BYTES = 1_048_576


class Readable(Protocol):
    """Files by path: the workspace, or what stands for it."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes at a path, or None if that is no regular file."""


class AuthorFiles(Struct, frozen=True):
    """The author's files of one project; a link out of it is not followed.

    Of each file the text that was read first is returned each time: a stage is keyed by a prompt and asked with it
    later, and a file that is saved in between must not be kept as the answer to the text before. A file that a stage
    of this build wrote (`is_written`) is returned as it is.
    """

    root: Path
    workspace: Readable
    is_written: Callable[[str], bool] = lambda _path: False
    _first: dict[str, bytes | None] = field(default_factory=dict)

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        """Return a file's text, or None and what is wrong."""
        data = self.workspace.read(path)  # each time, so that the workspace sees whether the file changed
        if not self.is_written(path):
            data = self._first.setdefault(path, data)
        if data is None:
            hint = "paths are relative to the root of the project; a link or a directory does not count"
            return None, Diagnostic("E831", f"`{path}` does not exist, or is no regular file", hint=hint)
        if len(data) > MAX_BYTES:
            return None, Diagnostic("E831", f"`{path}` is over {MAX_BYTES:,} bytes", hint="a prompt is not that long")
        try:
            return data.decode("utf-8"), None
        except UnicodeDecodeError as error:
            return None, Diagnostic("E831", f"`{path}` is not UTF-8 text (byte {error.start})", hint="save it as UTF-8")
