"""Put bytes on a disk so that after any crash the old ones are there or the new ones, whole."""

import contextlib
import hashlib
import itertools
import os
from pathlib import Path

from orch23.model.digest import Json, canonical_json
from orch23.model.strict_json import parse_stored

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
TEMP_PREFIX = ".orch23-"
TEMP_SUFFIX = ".tmp"

_numbers = itertools.count(1)  # next() on it is atomic, so threads never share a name
_HEAD = b'{"body":'
_MIDDLE = b',"sha256":"'
_TAIL = b'"}\n'
_SEAL_SIZE = len(_MIDDLE) + 64 + len(_TAIL)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, scratch: Path | None = None) -> None:
    """Replace a file's bytes durably: when this returns they survive a power cut, and no reader ever sees a part.

    The temporary file is made in `scratch` (default: the file's own folder), which must be on the same filesystem.
    Missing folders are made, and are as private as the file.
    """
    make_folder(path.parent, PRIVATE_FOLDER if mode == PRIVATE_FILE else 0o777)
    descriptor, temp = open_temp(scratch or path.parent, mode)
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temp, path)
    except BaseException:
        discard(temp)
        raise
    sync_folder(path.parent)


def open_temp(folder: Path | str, mode: int) -> tuple[int, str]:
    """Make a new file of a name that nobody else uses, open for writing, and return its descriptor and path."""
    while True:
        path = f"{folder}/{temp_name()}"
        with contextlib.suppress(FileExistsError):  # left by a dead process that had our number
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), path


def temp_name() -> str:
    """Return a file name that is new in this process."""
    return f"{TEMP_PREFIX}{os.getpid()}-{next(_numbers)}{TEMP_SUFFIX}"


def is_temp(name: str) -> bool:
    """Say whether a file name is one of `temp_name`, whoever made it."""
    return name.startswith(TEMP_PREFIX) and name.endswith(TEMP_SUFFIX)


def sweep_temps(folder: Path) -> None:
    """Remove what killed processes left in one folder. Only for the holder of the build lock."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_temp(entry.name):
                discard(Path(entry.path))


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of the bytes; one call of the kernel may take fewer."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def discard(path: Path | str) -> None:
    """Remove a file if it can be removed; what is left behind is swept at the next start."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with its parents, durably; one that exists costs a single look, and keeps its mode."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_filesystem(path: Path) -> None:
    """Make everything written so far to the filesystem of `path` durable, in one call for any number of files."""
    import ctypes  # noqa: PLC0415 - 5 ms that only a build that wrote something has to pay

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # pragma: no cover - a libc without it: not Linux
            os.sync()
        elif syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def seal(body: Json) -> bytes:
    """Return a value as one line of JSON that carries the sha256 of its own body."""
    return seal_canonical(canonical_json(body))


def seal_canonical(inner: bytes) -> bytes:
    """Return the sealed line of a value that is canonical JSON already."""
    return b"".join((_HEAD, inner, _MIDDLE, hashlib.sha256(inner).hexdigest().encode(), _TAIL))


def unseal(data: bytes) -> Json:
    """Return the value of a sealed line.

    Raises:
        ValueError: a single byte of it is not as it was written.

    """
    inner, rest = data[len(_HEAD) : -_SEAL_SIZE], data[-_SEAL_SIZE:]
    seal_of_inner = b"".join((_MIDDLE, hashlib.sha256(inner).hexdigest().encode(), _TAIL))
    if not data.startswith(_HEAD) or rest != seal_of_inner:
        message = "does not match its checksum"
        raise ValueError(message)
    return parse_stored(inner)
