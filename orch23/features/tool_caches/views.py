"""Give a step the caches of its tools: to fill them, as a view of its own, or read-only.

A view is a layer above the cache where the step has namespaces of orch23's own, else a copy. It is dropped with the
sandbox directory, unless it belongs to a stage that fills the cache: then it waits, and when the stage is promoted, the
next step that uses the cache moves the files of the view there.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from msgspec.structs import replace

from orch23.cli.store_size import count_files
from orch23.execute.cache_mount import CacheMount
from orch23.execute.launch import LaunchRefusedError, PlainLauncher
from orch23.execute.sandbox_tree import SandboxDir
from orch23.features.tool_caches.table import TOOLS
from orch23.model.action import LANDLOCK_TIER, NAMESPACES_TIER, Action, CacheMode
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_bytes
from orch23.model.pipeline import Stage
from orch23.report.values import format_size
from orch23.store.file_copy import share_blocks
from orch23.store.input_files import new_file
from orch23.store.safe_files import closing, make_folder, open_own, temp_name
from orch23.store.tree_removal import make_accessible, open_subdirectory, remove_tree

MOST_COPIED: Final = 2 << 30
"""Of a larger cache, no step gets a copy."""

_WAIT_S = 0.02
_MAX_DEPTH = 100


@contextlib.contextmanager
def open_caches(
    folder: Path | None, sandbox_dir: SandboxDir, action: Action, tier: str, *, can_layer: bool, stop: Event
) -> Iterator[SandboxDir]:
    """Yield a sandbox directory with the caches in `folder` that an action uses; nothing else changes them meanwhile.

    Raises:
        LaunchRefusedError: the caches are not on this machine, or too large to be copied.
        OSError: a cache cannot be copied, or `stop` was set meanwhile, or while another step filled one.
    """
    if folder is None:
        hint = "set `executor: local` for the file or for the pool of the stage"
        message = "the caches of its tools are only on the machine of the project"
        raise LaunchRefusedError(Diagnostic("E488", message, hint=hint))
    seen, mounts, variables = sandbox_dir.seen_from_inside(tier), list[CacheMount](), dict[str, str]()
    with contextlib.ExitStack() as stack:
        # In the order of their names, so that no two steps wait for each other.
        for tool_name in sorted(action.tool_caches):
            stack.enter_context(_locked(folder, tool_name, stop, fills=action.cache_mode == "fill"))
            mount = make_mount(sandbox_dir, folder / tool_name, action.cache_mode, tier, stop, can_layer=can_layer)
            place, tool = mount.files if seen is sandbox_dir else seen.root / mount.path, TOOLS[tool_name]
            values = {**tool.variables, **({} if action.network else tool.offline)}
            values |= {} if mount.is_writable else tool.read_only
            variables |= {name: text.format(cache=place, tmp=seen.tmp) for name, text in values.items()}
            mounts.append(mount)
        yield replace(sandbox_dir, caches=tuple(mounts), variables=variables)
        for tool_name in action.tool_caches if action.views_of else ():
            waiting = _waiting(folder, tool_name, action.views_of)
            remove_tree(waiting)  # the view of an earlier attempt
            (sandbox_dir.root / "caches" / tool_name).rename(waiting)


def make_mount(
    sandbox_dir: SandboxDir, cache: Path, mode: CacheMode, tier: str, stop: Event, *, can_layer: bool
) -> CacheMount:
    """Return how a step sees a cache, and make its directories. The caller holds the cache's lock until the step ends.

    Raises:
        LaunchRefusedError: a view would be a copy of more than `MOST_COPIED`.
        OSError: the copy failed, or `stop` was set meanwhile.
    """
    path = f"caches/{cache.name}"
    inside, layers = sandbox_dir.root / path, sandbox_dir.orch23_folder / path
    inside.mkdir(parents=True)
    # Without a sandbox nothing prevents a write, so even a read-only cache is a copy there.
    if mode == "fill" or (mode == "read-only" and tier != PlainLauncher.tier):
        return CacheMount(path, cache, is_writable=mode == "fill")
    if can_layer and tier == NAMESPACES_TIER:
        for name in ("files", "work"):
            (layers / name).mkdir(parents=True)
        return CacheMount(path, cache, is_writable=True, layers=layers)
    if tier in (LANDLOCK_TIER, PlainLauncher.tier) and (size_bytes := count_files(cache)[1]) > MOST_COPIED:
        sizes = f"has {format_size(size_bytes)}, and tier `{tier}` copies at most {format_size(MOST_COPIED)} for a step"
        hint = "write `sandbox: namespaces`, and build where `orch23 doctor` finds namespaces: steps need no copy there"
        raise LaunchRefusedError(Diagnostic("E483", f"the tool cache `{cache.name}` {sizes}", hint=hint))
    shutil.copytree(cache, inside, symlinks=True, copy_function=partial(_copy_file, stop), dirs_exist_ok=True)
    return CacheMount(path, inside, is_writable=True)


def _copy_file(stop: Event, source: str, target: str) -> None:
    if stop.is_set():
        raise InterruptedError
    if Path(source).is_file():  # not the socket of a daemon
        with closing(open_own(source)) as given, new_file(target, executable=False) as made:
            while not stop.is_set() and not share_blocks(given, made) and os.sendfile(made, given, None, 1 << 26):
                pass
        shutil.copystat(source, target)


@contextlib.contextmanager
def _locked(folder: Path, name: str, stop: Event, *, fills: bool) -> Iterator[None]:
    """Hold the lock of a cache: exclusive to fill it, else shared. Adds the views of promoted stages to the cache."""
    make_folder(folder / name)
    with closing(open_own(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT)) as lock:
        os.utime(lock)  # `gc` removes caches that were not used for a time
        kept = f"{name}.kept*"
        is_alone = fills or any(folder.glob(kept))
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, (fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                break
            if stop.wait(_WAIT_S):
                raise InterruptedError
        for view in sorted(folder.glob(kept)) if is_alone else ():
            with open_subdirectory(view) as added, open_subdirectory(folder / name) as cache:
                _move(added, cache, _MAX_DEPTH, TOOLS[name].kept)
            remove_tree(view)
        yield


def _move(source: int, target: int, depth: int, only: Sequence[str] = ()) -> None:
    """Move the files of a folder into another one, above those of the same name; `only` these entries, if any.

    No link is followed.

    What the step removed stays: a cache only grows.
    """
    for name in (one for one in os.listdir(source) if not only or one in only):
        kind = stat.S_IFMT(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode)
        # A folder where the target has a file, and a file where it has a folder, are left out.
        with contextlib.suppress(NotADirectoryError, IsADirectoryError):
            if kind == stat.S_IFDIR and depth:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=target)
                for parent in (source, target):
                    make_accessible(name, parent)
                with open_subdirectory(name, source) as below, open_subdirectory(name, target) as into:
                    _move(below, into, depth - 1)
            elif kind in (stat.S_IFREG, stat.S_IFLNK):
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)


def _waiting(folder: Path, name: str, stage: str) -> Path:
    """Return where the view of a stage waits for promotion; a new build removes it."""
    return folder.parent / "rooms" / f"view-{name}-{digest_bytes(stage.encode()).sha256[:16]}"


def keep_views(folder: Path, stages: Iterable[Stage]) -> None:
    """Keep the views of stages that were promoted. A result that this build has not made has none."""
    for stage, name in ((one, name) for one in stages for name in one.tool_caches):
        with contextlib.suppress(FileNotFoundError):
            _waiting(folder, name, stage.name).rename(folder / f"{name}.kept{temp_name()}")
