"""Read the files of a project in HEAD and in the index; git is started only when it is needed."""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from orch23.model.digest import digest_bytes, lfs_digest
from orch23.model.errors import InvalidInputError
from orch23.snapshot.signatures import signature
from orch23.store.safe_files import read_regular
from orch23.store.workspace import left_out_error

if TYPE_CHECKING:
    import subprocess


_PATHS_AT_ONCE = 500
_POINTER_BYTES = 1024  # no pointer of Git LFS is larger
_HEAD_BYTES = 1 << 20
_ON = frozenset((b"true", b"yes", b"on", b"1", b"input"))
# Merges are built soon: an unlimited search would walk through the whole history.
_COMMITS, _VERSIONS = 200, 50


class GitRepository:
    """The tree of HEAD, the index and the objects of a project's repository. Safe for calls from several threads.

    Without a repository, a commit or git itself there are no files and no objects. `was_used` is True after any call:
    then the result of the caller depends on more than the files of the project.
    """

    def __init__(self, root: Path, home: str = "", lock: Callable[[], Path] = Path) -> None:
        """Start nothing before the first call. `home` has the user's configuration, `lock` returns the lock file."""
        self.root, self._home, self._lock_file = root, home, lock
        self._converted: dict[Path, frozenset[bytes]] = {}
        self.was_used = False
        self.looked_at: Mapping[Path, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def at_head(self, path: str) -> bytes | None:
        """Return the bytes of a path in HEAD, empty if it is not in HEAD; None without a repository.

        `was_used` stays: each move of HEAD changes a file of `looked_at`.
        """
        from orch23.execute.git_revision import run_git  # noqa: PLC0415 - few builds need git

        git, marks = self._git, [folder / ".git" for folder in (self.root, *self.root.parents)]
        if git is not None:
            log = os.fsdecode(run_git(git, "rev-parse", "--git-path", "logs/HEAD") or b"").rstrip("\n")
            self.was_used |= not os.path.isfile(self.root / log)  # the repository keeps no log
            marks = [self.root / log]
        self.looked_at = {**self.looked_at, **{one: signature(str(one)) for one in marks}}
        return None if git is None else run_git(git, "cat-file", "blob", f"HEAD:./{path}") or b""

    def committed(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return the blob ids of these paths in HEAD, without paths that are not in its tree."""
        found: dict[str, str] = {}
        ordered = sorted(paths)
        from orch23.execute.git_revision import listed_files, run_git, tree_blobs  # noqa: PLC0415 - few builds need git

        with self._lock:
            git = self._command()
            for start in range(0, len(ordered) if git else 0, _PATHS_AT_ONCE):
                some = ordered[start : start + _PATHS_AT_ONCE]
                listed = run_git([*(git or ()), "--literal-pathspecs"], "ls-tree", "-z", "HEAD", "--", *some)
                found |= {path: blob.sha for path, blob in tree_blobs(listed_files(listed or b"")).items()}
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

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """The paths whose content git did not check out, sorted, each with the command for it; folders end in `/`."""
        return self._not_checked_out if _may_leave_out(self.root) else {}

    @cached_property
    def _not_checked_out(self) -> Mapping[str, str]:
        return dict(sorted(_left_out(self.root, "")))

    def as_committed(self, path: str, descriptor: int) -> bytes | None:
        """Return the bytes that git commits for an open file; None if they are those of the file (ADR 63).

        Raises:
            InvalidInputError: it is a pointer of Git LFS.
        """
        data = os.pread(descriptor, min(_HEAD_BYTES, os.fstat(descriptor).st_size + 1), 0)
        if len(data) < _POINTER_BYTES and lfs_digest(data) is not None:
            # Git has the attributes. Without a repository, as in an archive of one, a pointer is never meant.
            left_out = self._not_checked_out if self._repository_of(path) else {path: "git lfs pull"}
            if path in left_out:
                message = f"git has not checked out the content of `{path}`: the file is a pointer of Git LFS"
                raise InvalidInputError(left_out_error(message, (left_out[path],)))
        if b"\r\n" not in data or not self._is_converted(path):
            return None
        while block := os.pread(descriptor, _HEAD_BYTES, len(data)):
            data += block
        # Results that were recorded for the bytes on the disk stay fresh.
        is_recorded = digest_bytes(data).sha256.encode() in self._recorded
        return None if is_recorded else data.replace(b"\r\n", b"\n")

    @cached_property
    def _recorded(self) -> bytes:
        return read_regular(self._lock_file()) or b""

    def _is_converted(self, path: str) -> bool:
        if (top := self._repository_of(path)) is None:
            return False
        if top not in self._converted:
            self._converted[top] = frozenset(_converted_files(top, self._home))
        return os.fsencode(os.path.relpath(self.root / path, top)) in self._converted[top]

    def _repository_of(self, path: str) -> Path | None:
        """Return a folder of the repository of a path: the root, or a submodule."""
        for folder in (self.root / path).parents:
            if os.path.lexists(folder / ".git"):
                return folder if folder.is_relative_to(self.root) else self.root
        return None

    def versions(self, path: str) -> Iterator[bytes]:
        """Yield the different bytes of a path in the last commits of HEAD, and of what is being merged into it."""
        from orch23.execute.git_revision import run_git  # noqa: PLC0415 - few builds need git

        with self._lock:
            git, seen = self._command() or [], {b""}
            heads = ("HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD")
            listed = run_git([*git, "rev-list", "--ignore-missing"], f"--max-count={_COMMITS}", *heads) if git else None
        for commit in (listed or b"").decode().split():
            data = self.bytes_of(f"{commit}:./{path}") or b""
            if data not in seen and len(seen) <= _VERSIONS:
                seen.add(data)
                yield data

    def close(self) -> None:
        """End the process that reads objects, if it runs; a later call starts another."""
        with self._lock:
            if self._end is not None:
                self._end()
            self._process = self._end = None

    def _read(self, name: str) -> bytes | None:
        import weakref  # noqa: PLC0415 - few builds need git

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
        self.was_used = True
        return self._git

    @cached_property
    def _git(self) -> list[str] | None:
        from orch23.execute.git_revision import git_command, run_git  # noqa: PLC0415 - likewise

        # No process is started to find out that there is no repository.
        is_in_one = any(os.path.lexists(folder / ".git") for folder in (self.root, *self.root.parents))
        git = git_command(self.root) if is_in_one else None
        return git if git is not None and run_git(git, "rev-parse", "--show-prefix") is not None else None


def _converted_files(folder: Path, home: str) -> Iterator[bytes]:
    """Yield the files below a folder whose line ends git converts when it commits them."""
    from orch23.execute.git_revision import git_command, run_git  # noqa: PLC0415 - likewise

    git = git_command(folder)
    files = ((), *(("--file", one) for one in (f"{home}/.gitconfig", f"{home}/.config/git/config", "/etc/gitconfig")))
    values = (run_git(git, "config", *file, "--get", "core.autocrlf") for file in files if git)
    is_on = next(filter(None, values), b"").strip().lower() in _ON
    listed = git and run_git(git, "ls-files", "-co", "--exclude-standard", "--eol", "-z")
    for line in (listed or b"").split(b"\0"):
        facts, _, name = line.partition(b"\t")
        index, disk, text, *_ = (*facts.split(), b"", b"", b"")
        # Unless git is sure that a file is text, it leaves one that is binary, or has CRLF in the index (convert.c).
        is_auto = text == b"attr/text=auto" or (text == b"attr/" and is_on)
        if text == b"attr/text" or (is_auto and disk != b"w/-text" and index not in (b"i/crlf", b"i/mixed")):
            yield name


def _left_out(folder: Path, above: str) -> Iterator[tuple[str, str]]:
    """Yield what git left out below a folder, each with the command that gets it; `above` leads to the folder."""
    from orch23.execute.git_revision import git_command, run_git  # noqa: PLC0415 - few projects have a mark

    if (git := git_command(folder)) is None:
        return
    at, listing = f"git -C {quote(above[:-1])}" if above else "git", ("ls-files", "-s", "-v", "-z")
    last, has_folder, commands = "", False, ""
    # Without the trees of a sparse index, as in a partial clone, its folders are listed.
    for line in (run_git(git, *listing) or run_git(git, *listing, "--sparse") or b"").split(b"\0"):
        is_skipped, is_link = line[:1] in (b"S", b"s"), line[2:8] == b"160000"
        path = os.fsdecode(line.partition(b"\t")[2]) if is_skipped or is_link else ""
        place = f"{folder}/{path}"
        if is_skipped and (known := path.rstrip("/").rpartition("/")[0] or path) != last:
            # Sorted by folder: most of these do not exist, so few of a million files are looked up one by one.
            last, has_folder = known, os.path.isdir(os.path.dirname(place.rstrip("/")))
            commands = f"{at} sparse-checkout add {quote(known)}` or `{at} sparse-checkout disable"
        if is_skipped and not (has_folder and os.path.lexists(place)):
            yield f"{above}{path}{'/' * is_link}", commands
        elif is_link and not is_skipped and not (os.path.isdir(place) and os.listdir(place)):
            yield f"{above}{path}/", f"{at} submodule update --init {quote(path)}"
        elif is_link and not is_skipped:
            yield from _left_out(Path(place), f"{above}{path}/")
    for name in map(os.fsdecode, (run_git(git, "ls-files", "-z", "--", ":(attr:filter=lfs)") or b"").split(b"\0")):
        if name and lfs_digest(read_regular(folder / name, _POINTER_BYTES) or b"") is not None:
            yield f"{above}{name}", f"{at} lfs pull"


def _may_leave_out(folder: Path) -> bool:
    """Return whether the repository of a folder has submodules, a sparse checkout, or files in Git LFS."""
    for top in (folder, *folder.parents):
        if os.path.lexists(top / ".git"):
            # In a submodule and in a further working tree it is a file.
            link = (read_regular(top / ".git") or b"").removeprefix(b"gitdir: ").strip()
            own = top / (os.fsdecode(link) or ".git")
            marks = (top / ".gitmodules", own / "info/sparse-checkout", own / "lfs")
            attributes = (read_regular(one / ".gitattributes") or b"" for one in (top, folder))
            return any(map(os.path.lexists, marks)) or any(b"filter=lfs" in one for one in attributes)
    return False
