"""Builds that are weakened on purpose: the harness must detect each of them.

Each function replaces a part of orch23 by one that looks right and is wrong. Names are patched as texts, so a renamed
function must be renamed here as well: else the patch has no effect, and no error shows it.
"""

# ruff: noqa: B010 - mypy refuses to assign what is of another type; that is the point here
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from orch23.execute import process_tree
from orch23.model.digest import FileEntry
from orch23.store import promotion, safe_files, workspace
from orch23.store.index import HashedFile
from orch23.store.promotion import Promoter
from orch23.store.safe_files import DirectoryCache, FileStamp
from orch23.verdict import verdict
from orch23.verdict.verdict import Verdict


def in_place() -> None:
    """Write outputs in place, instead of to a temporary file that is renamed."""

    def write(promoter: Promoter, places: DirectoryCache, path: str, entry: FileEntry, temps: dict[str, str]) -> bool:
        del places, temps
        target = promoter._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755 if entry.executable else 0o644)
        try:
            promoter._contents.copy_to(entry.digest, descriptor)
        finally:
            os.close(descriptor)
        return True

    setattr(Promoter, "_prepare", write)
    setattr(Promoter, "_name", lambda *_: True)


def startswith() -> None:
    """Test the real path by its first characters, instead of opening one directory after the other."""

    @contextmanager
    def directory(root: Path, names: Sequence[str]) -> Iterator[int]:
        folder = os.path.realpath(root.joinpath(*names))
        if not folder.startswith(os.path.realpath(root)):
            raise safe_files.unsafe_path_error("/".join(names))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def stamp(seen: workspace.Workspace, path: str) -> FileStamp | None:
        try:
            return safe_files.stamp_of((seen._root / path).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    setattr(safe_files, "open_directory", directory)
    setattr(promotion, "open_directory", directory)
    setattr(workspace.Workspace, "_stamp", stamp)


def killpg() -> None:
    """Kill the process group only, and assume that it has all processes of the step."""

    def end(tree: process_tree.ProcessTree) -> tuple[int, ...]:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(tree.leader, signal.SIGKILL)
        return ()

    setattr(process_tree, "kill_tree", end)
    setattr(process_tree, "kill_strays", tuple)


def exit_code() -> None:
    """Trust the exit code of pytest."""

    def judge(exit_code: int, report: bytes | None, expected: object, output: str, *_rules: object) -> Verdict:
        del report, expected
        return Verdict(passed=exit_code == 0, parts=(output,))

    setattr(verdict, "judge_pytest", judge)


def trusted_mtime() -> None:
    """Trust equal times and sizes of a file, also if the file is so young that it can change without new times."""

    def is_racy(seen: HashedFile, now_ns: int) -> bool:
        del seen, now_ns
        return False

    setattr(workspace, "_is_racy", is_racy)
    sound = safe_files.stamp_of

    def stamp_of(status: os.stat_result) -> FileStamp:
        return sound(status)._replace(ctime_ns=0, ino=0)

    setattr(workspace, "stamp_of", stamp_of)


WEAKENED: Mapping[str, Callable[[], None]] = {
    one.__name__: one for one in (in_place, startswith, killpg, exit_code, trusted_mtime)
}
