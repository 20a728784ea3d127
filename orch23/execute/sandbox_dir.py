"""Create sandbox directories, stage the declared inputs in them, and reuse their folders for the next step."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.cleanup import kill_leftovers
from orch23.execute.sandbox_tree import (
    DEFAULT_TREE_LIMITS,
    LEAST_SHARED_FILES,
    InputSource,
    MountKind,
    OpenTree,
    SandboxDir,
    TreeChanges,
    TreeEntries,
    TreeLimits,
    copy_inputs,
    make_subfolders,
    parent_folders,
    set_times,
)
from orch23.model.action import InputsChanged
from orch23.model.digest import FileEntry
from orch23.store.file_copy import FileProgress, no_progress
from orch23.store.safe_files import closing, make_folder
from orch23.store.tree_removal import open_subdirectory, remove_tree, remove_trees

if TYPE_CHECKING:
    from orch23.execute.shared_trees import SharedTrees

SEARCH_STOP_FILES: Final[Mapping[str, bytes]] = {
    "pytest.ini": b"",
    ".gitignore": b"",
    ".hgignore": b"",
    ".ruff.toml": b"",
    # Mypy ends its search where it sees this name. A `mypy.ini` would also be a configuration of pyrefly.
    ".hg": b"",
    "pyproject.toml": b"[tool.black]\n",
}
"""Files of the sandbox directory, above `work`: pytest, hatchling, ruff, mypy and black search parent directories for
settings and stop at these. Settings of the project, further up, cannot be read with Landlock, and the tools fail then.
"""

_EMPTY_PARTS = ("home", "tmp")
_WORK = "work"
_OWNER_ONLY = 0o700

# A directory with more files is not emptied while the next step waits.
_MOST_FILES = 500

# Mode, user and group.
_Access: TypeAlias = tuple[int, int, int]


class _FolderSkeleton(Struct, frozen=True):
    """The folders of a sandbox directory without files, as created: `folders` are those in `work`, parents first.

    `access` is that of `root`, `home`, `tmp` and `work`; `below` that of the folders in `work`.
    """

    sandbox_dir: SandboxDir
    root: str
    folders: tuple[str, ...]
    access: _Access
    below: _Access | None


# On the disk and not on a tmpfs, where results would count twice in memory (ADR 23).
class SandboxDirs(Struct, eq=False):
    """The sandbox directories in one folder, which is made with the first. Their inputs come from one source.

    `shared` returns the copies of large input folders; without it, all inputs are copied for each step. `tool_caches`
    is the folder with the caches of tools: only the machine of the project has it.
    """

    folder: Path
    sources: InputSource
    limits: TreeLimits = DEFAULT_TREE_LIMITS
    meter: FileProgress = no_progress
    shared: "Callable[[], SharedTrees] | None" = None
    tool_caches: Path | None = None
    _skeletons: dict[str, _FolderSkeleton] = field(default_factory=dict)
    _reusable: list[_FolderSkeleton] = field(default_factory=list)

    def stage(
        self,
        inputs: Mapping[str, FileEntry],
        working_directory: str = ".",
        output_folders: tuple[str, ...] = (),
        kind: MountKind | None = None,
    ) -> SandboxDir | InputsChanged:
        """Create a sandbox directory with exactly these inputs, or return the inputs that changed.

        They are copied, but for large folders if the launcher makes mounts of this kind. The working directory and the
        folders of outputs are created too, so that no step has to.

        Raises:
            OSError: the disk is full or not writable.
        """
        marker = os.urandom(8).hex()
        more = (working_directory, *output_folders)
        large: Mapping[str, Sequence[str]] = {}
        shared = self.shared() if self.shared and kind and len(inputs) >= LEAST_SHARED_FILES else None
        if shared is not None and (kind != "moved" or shared.can_move):
            large = shared.large_folders(inputs, () if kind == "layer" else more)
        copied = sorted(inputs.keys() - {path for paths in large.values() for path in paths})
        above = [one if kind == "read-only" else one.rpartition("/")[0] for one in large]
        folders = parent_folders(copied, (*more, *(above if kind != "layer" else ())))
        skeleton = None
        # Another thread may take the last one in between.
        with contextlib.suppress(IndexError):
            skeleton = _refit_skeleton(self._reusable.pop(), folders)
        if skeleton is None:
            sandbox_dir = SandboxDir(self.folder / marker, marker)
        else:
            sandbox_dir = replace(skeleton.sandbox_dir, marker=marker)
            vars(sandbox_dir).update(vars(skeleton.sandbox_dir), seen={})  # with its paths
        is_staged = False
        try:
            skeleton, work = skeleton or self._new_skeleton(sandbox_dir, folders), str(sandbox_dir.work)
            lost = copy_inputs(self.sources, {path: f"{work}/{path}" for path in copied}, inputs)
            for folder, paths in large.items() if not lost else ():
                assert shared is not None
                assert kind is not None
                try:
                    mount = shared.mount(sandbox_dir, folder, paths, inputs, kind)
                except OSError as problem:
                    if problem.errno != errno.EXDEV:
                        raise
                    return self.stage(inputs, working_directory, output_folders)
                if isinstance(mount, InputsChanged):
                    return mount
                if kind == "moved":
                    sandbox_dir = replace(sandbox_dir, moved=(*sandbox_dir.moved, mount))
                else:
                    sandbox_dir = replace(sandbox_dir, mounts=(*sandbox_dir.mounts, mount))
            if lost:
                return InputsChanged(lost)
            set_times(work, skeleton.folders)
            self._skeletons[marker] = skeleton
            is_staged = True
            return sandbox_dir
        finally:
            if not is_staged:
                self.release(sandbox_dir)
                self.discard(sandbox_dir)

    def _new_skeleton(self, sandbox_dir: SandboxDir, folders: Sequence[str]) -> _FolderSkeleton:
        try:
            return _make_skeleton(sandbox_dir, folders)
        except FileNotFoundError:
            make_folder(self.folder, _OWNER_ONLY)
            return _make_skeleton(sandbox_dir, folders)

    def scan_open(self, tree: OpenTree, inputs: Mapping[str, FileEntry], scratch: tuple[str, ...]) -> TreeChanges:
        """Compare an open tree with its inputs."""
        return tree.scan(inputs, scratch, self.limits, self.meter)

    def move_back(self, sandbox_dir: SandboxDir) -> SandboxDir:
        """Move back the folders that its step had alone and left as they were: its processes have ended."""
        return self.shared().move_back(sandbox_dir) if sandbox_dir.moved and self.shared is not None else sandbox_dir

    def release(self, sandbox_dir: SandboxDir) -> None:
        """Give back the folders that were mounted: its processes have ended, and its tree is not scanned any more."""
        every = (*sandbox_dir.mounts, *sandbox_dir.moved)
        if every and self.shared is not None:
            self.shared().give_back(*(mount.files for mount in every))

    def discard(self, sandbox_dir: SandboxDir) -> None:
        """Remove a sandbox directory, whatever its depth and modes. Files that cannot be removed stay until `sweep`."""
        self._skeletons.pop(sandbox_dir.marker, None)
        names = (sandbox_dir.root.name, sandbox_dir.orch23_folder.name, sandbox_dir.log.name)
        remove_trees(self.folder, *names)

    def recycle(self, sandbox_dir: SandboxDir) -> bool:
        """Remove the files of a sandbox directory, as its scan found them, and keep its folders for the next step.

        Return False if that cannot be: the caller must discard it. Only for a step that was trusted and ran alone: no
        other process knows these folders.
        """
        # A folder that the step changed could affect the next one: then it is not reused.
        skeleton = self._skeletons.pop(sandbox_dir.marker, None)
        if skeleton is None or not _empty_skeleton(skeleton, sandbox_dir.seen):
            return False
        for beside in (sandbox_dir.orch23_folder, sandbox_dir.log):
            if os.path.lexists(beside):
                remove_tree(beside)
        self._reusable.append(skeleton)
        return True

    def close(self) -> None:
        """Remove the folders that were kept."""
        while self._reusable:
            remove_tree(Path(self._reusable.pop().root))

    def sweep(self) -> tuple[str, ...]:
        """Kill the steps of killed builds, remove their directories, and report that. Only under the build lock."""
        killed = kill_leftovers(self.folder)
        if self.folder.is_dir():
            remove_trees(self.folder, *os.listdir(self.folder))
        many = f"{len(killed)} processes" if len(killed) > 1 else "a process"
        return (f"ended {many} that a killed build left running",) if killed else ()


def _make_skeleton(sandbox_dir: SandboxDir, folders: Sequence[str]) -> _FolderSkeleton:
    root = str(sandbox_dir.root)
    for folder in (root, *(f"{root}/{part}" for part in (*_EMPTY_PARTS, _WORK))):
        os.mkdir(folder, _OWNER_ONLY)
    for name, text in SEARCH_STOP_FILES.items():
        with closing(os.open(f"{root}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)) as file:
            os.write(file, text)
    return _with_folders(_FolderSkeleton(sandbox_dir, root, (), _access(os.stat(root)), None), folders)


def _refit_skeleton(skeleton: _FolderSkeleton, folders: Sequence[str]) -> _FolderSkeleton | None:
    """Give an empty skeleton other folders. If that fails, remove it and return None."""
    try:
        for folder in reversed(skeleton.folders):
            if folder not in folders:
                os.rmdir(f"{skeleton.root}/{_WORK}/{folder}")
        return _with_folders(skeleton, folders)
    except OSError:
        remove_tree(Path(skeleton.root))
        return None


def _empty_skeleton(skeleton: _FolderSkeleton, seen: TreeEntries) -> bool:
    """Remove the files of a step that has ended; return False if it changed more than files in `work`, or left many."""
    # Each folder must be there with its first access, and no others. Names, access and bytes are compared, never times,
    # which a step can set. The scan followed no link, and no process of the step is left to put one there since.
    found = {path: status for path, status in seen.items() if status is not None}
    folders = {path: _access(status) for path, status in found.items() if stat.S_ISDIR(status.st_mode)}
    files = found.keys() - folders
    is_whole = len(found) == len(seen) and len(files) <= _MOST_FILES
    if not is_whole or folders != {".": skeleton.access, **dict.fromkeys(skeleton.folders, skeleton.below)}:
        return False
    with contextlib.suppress(OSError), open_subdirectory(skeleton.root) as root:
        if _is_as_created(skeleton, root):
            for path in files:
                os.unlink(f"{_WORK}/{path}", dir_fd=root)
            return True
    return False


def _with_folders(skeleton: _FolderSkeleton, folders: Sequence[str]) -> _FolderSkeleton:
    make_subfolders(f"{skeleton.root}/{_WORK}", [folder for folder in folders if folder not in skeleton.folders])
    below = skeleton.below
    if below is None and folders:
        below = _access(os.stat(f"{skeleton.root}/{_WORK}/{folders[0]}"))
    return replace(skeleton, folders=tuple(folders), below=below)


def _is_as_created(skeleton: _FolderSkeleton, root: int) -> bool:
    """Return whether everything but `work` is as `_make_skeleton` left it."""
    names = {*_EMPTY_PARTS, _WORK, *SEARCH_STOP_FILES}
    if _access(os.fstat(root)) != skeleton.access or names.symmetric_difference(os.listdir(root)):
        return False
    for part in _EMPTY_PARTS:
        with open_subdirectory(part, root) as folder:
            if _access(os.fstat(folder)) != skeleton.access or os.listdir(folder):
                return False
    return all(_is_as_written(root, name, text) for name, text in SEARCH_STOP_FILES.items())


def _is_as_written(root: int, name: str, text: bytes) -> bool:
    """Return whether a file has its first text. An empty one needs no opening."""
    status = os.stat(name, dir_fd=root, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size != len(text):
        return False
    if not text:
        return True
    with closing(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)) as file:
        return os.read(file, len(text) + 1) == text


def _access(status: os.stat_result) -> _Access:
    return status.st_mode, status.st_uid, status.st_gid
