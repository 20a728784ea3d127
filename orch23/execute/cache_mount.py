"""How a step sees the cache of a tool."""

from pathlib import Path

from msgspec import Struct


class CacheMount(Struct, frozen=True):
    """The cache of a tool: the files of a folder, at `path` of the sandbox directory if the step has namespaces.

    With `layers`, the folder for overlayfs, the step writes to `path` itself, above these files.
    """

    path: str
    files: Path
    is_writable: bool
    layers: Path | None = None
