"""Read the files of a git revision with plumbing commands: no checkout, no hooks, no filters."""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

from msgspec import Struct, field

from orch23.execute.interpreters import SYSTEM_PATH
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, lfs_digest
from orch23.model.errors import ConfigurationError, CorruptStateError, NotFoundError
from orch23.model.file_policy import GITIGNORE
from orch23.model.paths import is_own_file
from orch23.model.record import LockFile
from orch23.store.listing import FILE_KIND, FOLDER_KIND, LINK_KIND, find_input, list_files, resolve_links
from orch23.store.lock_file import decode_lock
from orch23.store.safe_files import read_regular

_TIMEOUT_S = 60.0
# Modes of regular files: links and submodules have others.
_MODES = {"100644": False, "100755": True}
_LINK_MODE = "120000"
_SUBMODULE_MODE = "160000"
_Listed: TypeAlias = tuple[str, str, str]
# A link to an absolute path leads out of a commit, wherever the commit was checked out. No path starts with this.
_NO_ROOT = "//"
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=",
    "protocol.allow=never",
    # The root is trusted: its pipeline runs commands anyway.
    "safe.directory=*",
)
_ENVIRONMENT: Mapping[str, str] = {
    "PATH": ":".join(SYSTEM_PATH),
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "none",
    # In a partial clone, git would fetch a missing object from its remote.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


class _Blob(Struct, frozen=True):
    sha: str
    executable: bool


class GitRevision(Struct, kw_only=True):
    """The regular files below the root at a commit, with the methods of a workspace. Close it after use."""

    commit: str
    _blobs: Mapping[str, _Blob]
    _links: Mapping[str, str]
    _process: "subprocess.Popen[bytes]"
    _objects: Sequence[str] = ()
    _entries: dict[str, FileEntry] = field(default_factory=dict)
    _ignore_files: dict[str, bytes | None] = field(default_factory=dict)
    _folders: dict[str, dict[str, str]] | None = None

    def entry(self, path: str) -> FileEntry | None:
        """Return the entry of a path, or None if it is not a regular file."""
        if path not in self._entries:
            data = self.read(path)
            if data is None:
                return None
            digest = Digest(hashlib.sha256(data).hexdigest(), len(data))
            self._entries[path] = FileEntry(digest, executable=self._blobs[path].executable)
        return self._entries[path]

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a path, or None if it is not a regular file.

        Raises:
            NotFoundError: the repository lacks the object, as a partial clone may.
        """
        blob = self._blobs.get(path)
        if blob is None:
            return None
        data = self._bytes_of(path, blob.sha)
        if (content := lfs_digest(data)) is None:
            return data
        # The commit has a pointer of Git LFS, which keeps the content beside the objects of git.
        name = f"lfs/objects/{content.sha256[:2]}/{content.sha256[2:4]}/{content.sha256}"
        found = (read_regular(Path(folder).parent / name) for folder in self._objects)
        return next((one for one in found if one is not None), data)

    def _bytes_of(self, path: str, sha: str) -> bytes:
        if (data := read_object(self._process, sha)) is None:
            message = f"the repository lacks the bytes of `{path}` at {self.commit[:12]}"
            raise _unknown(message, "fetch them: git fetch")
        return data

    def input_entry(self, path: str) -> FileEntry | None:
        """Return the entry of an input: of the file at its path, or of the one that its links lead to, or None.

        Raises:
            SafetyError: as for `resolved_path`.
        """
        return find_input(self, path)

    def listing(self, pattern: str, *, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the paths that match a pattern, sorted, as a workspace lists those on disk.

        Raises:
            SafetyError: as for `resolved_path`.
        """
        return list_files(self, pattern, exclude=exclude)

    def scan(self, folder: str) -> Collection[tuple[str, str]]:
        """Return the names of files, links and folders in a folder with their kinds."""
        return self._tree.get(folder, {}).items()

    def resolved_path(self, path: str) -> str | None:
        """Return the path from the root that a path leads to through links; None if it does not exist.

        Raises:
            SafetyError: a link leads out of the project, or links lead in a circle.
        """
        return resolve_links(path, _NO_ROOT, self._link)

    def _link(self, path: str) -> str | None:
        if path in self._links:
            return self._bytes_of(path, self._links[path]).decode("utf-8", "surrogateescape")
        return "" if path in self._blobs or self.is_folder(path) else None

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder."""
        return f"{path}/" in self._tree

    def is_file(self, path: str) -> bool:
        """Return whether a path is a regular file."""
        return path in self._blobs

    def is_own(self, path: str) -> bool:
        """Return whether a file is one of orch23's own."""
        return is_own_file(path, lambda: self.read(path) or b"")

    def ignore_file(self, folder: str) -> bytes | None:
        """Return the bytes of the `.gitignore` of a folder, or None."""
        if folder not in self._ignore_files:
            self._ignore_files[folder] = self.read(folder + GITIGNORE)
        return self._ignore_files[folder]

    @property
    def _tree(self) -> dict[str, dict[str, str]]:
        """The names in each folder with their kinds; a folder is `""` or ends in `/`."""
        if self._folders is None:
            self._folders = {}
            for paths, kind in ((self._blobs, FILE_KIND), (self._links, LINK_KIND)):
                for path in paths:
                    above, its_kind = path, kind
                    while above:
                        above, _, name = above.rpartition("/")
                        self._folders.setdefault(f"{above}/" if above else "", {})[name] = its_kind
                        its_kind = FOLDER_KIND
        return self._folders

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process that reads the objects."""
        stop_cat_file(self._process)


def open_revision(root: Path, name: str) -> GitRevision:
    """Return the files of a project at a revision.

    Raises:
        NotFoundError: the project is not in a git repository, or the repository does not have the revision.
        ConfigurationError: git is not installed.
    """
    git = git_command(root)
    if git is None:
        hint = "install it in a system folder, such as /usr/bin"
        raise ConfigurationError(Diagnostic("E482", "`git` was not found", hint=hint))
    prefix = run_git(git, "rev-parse", "--show-prefix")
    if prefix is None:
        message = f"`{root.name}` is not in a git repository"
        raise _unknown(message, "create one with `git init`, and commit")
    commit = None
    if name.strip() and name.isprintable():
        commit = run_git(git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if commit is None:
        message = f"git does not know the revision `{name}`"
        raise _unknown(message, "name a commit, a branch or a tag; a shallow clone may lack it")
    sha = commit.decode().strip()
    objects: list[str] = []
    entries = list(_tree(git, root, sha, prefix.removesuffix(b"\n"), objects))
    return GitRevision(
        commit=sha,
        _blobs=tree_blobs(entries),
        _links={path: sha for path, mode, sha in entries if mode == _LINK_MODE},
        _process=start_cat_file(git, objects),
        _objects=objects,
    )


def _tree(git: list[str], folder: Path, commit: str, below: bytes, objects: list[str]) -> Iterator[_Listed]:
    """Yield the files of a commit, also those of its submodules; add the folders of the objects of all."""
    listed = run_git(git, "ls-tree", "-r", "-z", "--full-tree", commit)
    if listed is None:
        message = f"the submodule `{folder.name}` lacks the commit {commit[:12]}"
        raise _unknown(message, "fetch it: git submodule foreach git fetch")
    own = run_git(git, "rev-parse", "--git-path", "objects") or b""
    objects.append(os.path.join(folder, os.fsdecode(own.removesuffix(b"\n"))))
    for path, mode, sha in listed_files(listed, below):
        place = folder / path
        if mode != _SUBMODULE_MODE:
            yield path, mode, sha
        elif (place / ".git").exists() and (inner := git_command(place)) is not None:
            yield from ((f"{path}/{name}", its, one) for name, its, one in _tree(inner, place, sha, b"", objects))


def git_command(root: Path) -> list[str] | None:
    """Return the command of git for a folder, or None if git is not installed."""
    program = shutil.which("git", path=_ENVIRONMENT["PATH"])
    if program is None:
        return None
    return [program, "--no-pager", *(part for one in _CONFIG for part in ("-c", one)), "-C", str(root)]


def start_cat_file(git: list[str], more: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """Start a process that reads the names of objects, one per line, and writes their bytes; `more` are folders."""
    return subprocess.Popen(
        [*git, "cat-file", "--batch"],
        env={**_ENVIRONMENT, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(more)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def stop_cat_file(process: "subprocess.Popen[bytes]") -> None:
    """End a process of `start_cat_file`, and wait for it."""
    with contextlib.suppress(OSError), process:
        process.kill()


def run_git(git: list[str], *arguments: str) -> bytes | None:
    """Return what a git command prints, or None if it fails."""
    ended = subprocess.run(
        [*git, *arguments],
        env=dict(_ENVIRONMENT),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return ended.stdout if ended.returncode == 0 else None


def tree_blobs(entries: Iterable[_Listed]) -> dict[str, _Blob]:
    """Return the regular files among the entries of a tree."""
    return {path: _Blob(sha, _MODES[mode]) for path, mode, sha in entries if mode in _MODES}


def listed_files(listed: bytes, prefix: bytes = b"") -> Iterator[_Listed]:
    """Yield path, mode and object id of the entries below a folder of a tree, without names that are not UTF-8."""
    for line in listed.split(b"\0"):
        head, _, path = line.partition(b"\t")
        words = head.decode().split()
        if words and path.startswith(prefix):
            with contextlib.suppress(UnicodeDecodeError):
                yield path.removeprefix(prefix).decode(), words[0], words[2]


def read_object(process: "subprocess.Popen[bytes]", name: str) -> bytes | None:
    """Return the bytes of a blob from a process of `start_cat_file`; None if it is missing or not a blob."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{name}\n".encode())
    process.stdin.flush()
    words = process.stdout.readline().rsplit(None, 2)
    # Id, kind and size; a missing object is `NAME missing`.
    if len(words) != 3 or not words[2].isdigit():  # noqa: PLR2004 - see above
        return None
    data = process.stdout.read(int(words[2]))
    process.stdout.read(1)
    return data if words[1] == b"blob" else None


def _unknown(message: str, hint: str) -> NotFoundError:
    return NotFoundError(Diagnostic("E665", message, hint=hint))


def lock_at(revision: GitRevision, path: str) -> LockFile:
    """Return the lock file at a revision; empty if it is missing or damaged: it only lists artifacts."""
    data = revision.read(path)
    try:
        return LockFile() if data is None else decode_lock(data, path)
    except CorruptStateError:
        return LockFile()
