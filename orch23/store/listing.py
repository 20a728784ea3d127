"""List the files that match a pattern: follow links, skip files that git or orch23 ignores."""

import contextlib
from collections.abc import Callable, Collection
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import SafetyError
from orch23.model.file_policy import GITIGNORE, IGNORED_FOLDER_RULES, NO_GITIGNORE_RULES, GitignoreRules
from orch23.model.paths import (
    FORBIDDEN_LINK_TARGETS,
    LOGS_FOLDER,
    OWN_FOLDERS,
    compile_pattern,
    is_glob,
    is_run_file,
    match_any,
    may_have_own,
    normalize_pattern,
    static_prefix,
    unentered_names,
)

FILE_KIND, FOLDER_KIND, LINK_KIND = "file", "folder", "link"
# As many as the kernel follows in one path.
_MAX_LINKS = 40


class DeclaredOutputs(Protocol):
    """Which files are declared as outputs."""

    def contains(self, path: str) -> bool:
        """Return whether a path is an output of some stage."""

    def may_be_below(self, folder: str) -> bool:
        """Return whether an output of some stage may be below a folder, which ends in `/`."""


class FileTree(Protocol):
    """A tree of files by real paths: paths without links. Folders are `""` or end in `/`."""

    def entry(self, path: str) -> FileEntry | None:
        """Return the entry of the regular file at a path, or None."""

    def scan(self, folder: str) -> Collection[tuple[str, str]]:
        """Return the names in a folder, each with `FILE_KIND`, `FOLDER_KIND` or `LINK_KIND`."""

    def ignore_file(self, folder: str) -> bytes | None:
        """Return the bytes of the `.gitignore` of a folder, or None."""

    def is_own(self, path: str) -> bool:
        """Return whether orch23 wrote a file for itself."""

    def resolved_path(self, path: str) -> str | None:
        """Return the real path of a path, None if nothing is there.

        Raises:
            SafetyError: a link leads out of the project or into a folder without inputs, or links form a cycle.
        """

    def is_folder(self, path: str) -> bool:
        """Return whether a folder is at a path."""

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at a path."""


def find_input(tree: FileTree, path: str) -> FileEntry | None:
    """Return the entry of an input: of the file at its path, or of the file that its links lead to, or None.

    Raises what `FileTree.resolved_path` raises.
    """
    with contextlib.suppress(SafetyError):
        # A directory of the path is a link, which inputs may have.
        entry = tree.entry(path)
        if entry is not None:
            return entry
    real = tree.resolved_path(path)
    entry = None if real is None or real == path else tree.entry(real)
    # The real path is a part of the manifest: a link that is set to another file makes the stage stale (ADR 27).
    return None if entry is None else replace(entry, link=real)


def list_files(
    tree: FileTree, pattern: str, outputs: DeclaredOutputs | None = None, exclude: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the sorted paths of the files that match a pattern; with wildcards none that git ignores.

    `outputs` are listed although a `.gitignore` ignores them. Links below the root are followed, unless they match
    `exclude`. A name that is not UTF-8 matches no pattern, since it cannot be written in a pipeline.
    Raises what `FileTree.resolved_path` raises.
    """
    wanted = normalize_pattern(pattern)
    if not is_glob(wanted):
        return (wanted,) if find_input(tree, wanted) is not None else ()
    prefix = static_prefix(wanted)
    real = tree.resolved_path(prefix) if prefix else ""
    if real is None or not OWN_FOLDERS.isdisjoint(prefix.split("/")):
        return ()
    real = f"{real}/" if real else ""
    return tuple(sorted(Listing(tree, wanted, outputs, exclude).matches(prefix, real)))


class _Folder(Struct, frozen=True):
    """A folder: its path in the pattern, and its real path. `above` are the real folders of the links to it."""

    path: str
    real: str
    rules: GitignoreRules
    above: tuple[str, ...] = ()


class Listing:
    """Lists the files that match one pattern.

    Files that git ignores are skipped, unless they are in `outputs` or with `ignored`. Without `links` no link is
    followed: the attribute has those that match, or that lead to files which may.
    """

    def __init__(
        self,
        disk: FileTree,
        pattern: str,
        outputs: DeclaredOutputs | None = None,
        exclude: tuple[str, ...] = (),
        *,
        links: bool = True,
        ignored: bool = False,
    ) -> None:
        """Compile a normal pattern. Links that match `exclude` are not followed."""
        self._disk, self._outputs, self._exclude = disk, outputs, exclude
        self._follows_links, self._ignored = links, ignored
        self._means = compile_pattern(pattern)
        self._segments = pattern.split("/")
        self._has_all = pattern == f"{static_prefix(pattern)}**"
        self._deep = self._segments.index("**") if "**" in self._segments else len(self._segments)
        self._closed = unentered_names(pattern)
        self._pending: list[_Folder] = []
        self.links: list[str] = []

    def matches(self, folder: str, real: str) -> list[str]:
        """Return the matching paths below a folder; `real` is the real path of the folder.

        Raises:
            SafetyError: a link leads out of the project, or links form a cycle.
        """
        self._pending, found = [_Folder(folder, real, self._rules_above(real))], list[str]()
        while self._pending:
            found += self._files(self._pending.pop())
        return found

    def _files(self, folder: _Folder) -> list[str]:
        """Return the matching files of a folder, and queue the folders in it that may hold more."""
        entries = self._disk.scan(folder.real)
        if (GITIGNORE, FILE_KIND) in entries:
            folder = replace(folder, rules=self._with_file(folder.rules, folder.real))
        may_enter = self._entered_by(folder.path.count("/"))
        entries = [one for one in entries if one[0] not in self._closed]
        if folder.real.endswith(f"{LOGS_FOLDER}/"):
            entries = [one for one in entries if not is_run_file(folder.real[:-1], one[0])]
        # Without a call of Python for each file of most folders.
        names = [name for name, kind in entries if kind == FILE_KIND]
        names = names if self._has_all else [name for name in names if self._means(folder.path + name)]
        if folder.rules is not NO_GITIGNORE_RULES or may_have_own(names):
            names = [name for name in names if not self._is_skipped(folder, name)]
        found = [folder.path + name for name in names]
        for name, kind in [one for one in entries if one[1] != FILE_KIND]:
            path = folder.path + name
            if kind == FOLDER_KIND:
                if may_enter(path):
                    self._enter(folder, path, folder.real + name)
            elif (may_enter(path) or self._means(path)) and self._is_file(folder, path, name):
                found.append(path)
        return found

    def _entered_by(self, depth: int) -> Callable[[str], object]:
        """Return a test of whether the folders at a depth may hold files that the pattern matches."""
        if depth >= self._deep:
            return lambda _path: True
        if depth + 1 >= len(self._segments):
            return lambda _path: False
        return compile_pattern("/".join(self._segments[: depth + 1]))

    def _enter(self, folder: _Folder, path: str, real: str) -> None:
        if not folder.rules.ignores(real, is_folder=True):
            self._pending.append(_Folder(f"{path}/", f"{real}/", folder.rules, folder.above))
        elif self._outputs is not None and self._outputs.may_be_below(f"{real}/"):
            self._pending.append(_Folder(f"{path}/", f"{real}/", IGNORED_FOLDER_RULES, folder.above))

    def _is_skipped(self, folder: _Folder, name: str) -> bool:
        real = folder.real + name
        if folder.rules.ignores(real, is_folder=False) and (self._outputs is None or not self._outputs.contains(real)):
            return True
        # With the lock file among its inputs, a stage with `inputs: ["**"]` would never be fresh (ADR 27).
        return self._disk.is_own(real)

    def _is_file(self, folder: _Folder, path: str, name: str) -> bool:
        """Return whether a link leads to a file that the pattern matches; queue the folder that it leads to."""
        if not self._follows_links:
            self.links.append(path)
        if not self._follows_links or match_any(self._exclude, path) or self._is_skipped(folder, name):
            return False
        real = self._disk.resolved_path(folder.real + name)
        if real is None or not self._disk.is_folder(real):
            return real is not None and self._means(path) is not None and self._disk.is_file(real)
        above = (*folder.above, folder.real)
        if len(above) > _MAX_LINKS or any(one.startswith(f"{real}/") for one in above):
            raise link_cycle_error(path)
        self._pending.append(_Folder(f"{path}/", f"{real}/", self._rules_above(f"{real}/"), above))
        return False

    def _rules_above(self, folder: str) -> GitignoreRules:
        """Return the `.gitignore` rules above a folder that the pattern names, without those that ignore it.

        A pattern that spells the name of an ignored folder matches the files in it.
        """
        rules, above = NO_GITIGNORE_RULES, ""
        for name in folder.split("/")[:-1]:
            rules = self._with_file(rules, above)
            if rules.ignores(above + name, is_folder=True):
                rules = NO_GITIGNORE_RULES
            above += f"{name}/"
        return rules

    def _with_file(self, rules: GitignoreRules, folder: str) -> GitignoreRules:
        # The user's own excludes do not count: they differ between clones (ADR 27).
        data = None if self._ignored else self._disk.ignore_file(folder)
        return rules if data is None else rules.with_file(folder, data)


def resolve_links(path: str, base: str, text_of: Callable[[str], str | None]) -> str | None:
    """Return the path, from the root, to which a path below the root leads, link by link; None if nothing is there.

    `base` is the root with a `/` at its end. `text_of` returns the target of the link at a path, an empty text for
    another entry, None for no entry. `..` is applied to the target of a link, as the kernel does.

    Raises:
        SafetyError: a link leads out of the root or into a folder that holds no inputs, or links form a cycle.
    """
    # As text, and the result is opened without following links: one that is changed meanwhile is not followed (ADR 27).
    waiting, done, followed = path.split("/"), list[str](), 0
    while waiting:
        name = waiting.pop(0)
        if name == ".." and not done:
            raise outside_link_error(path)
        if name in ("", ".", ".."):
            done = done[:-1] if name == ".." else done
            continue
        text = text_of("/".join((*done, name)))
        if text is None:
            return None
        if not text:
            done.append(name)
            continue
        followed += 1
        if followed > _MAX_LINKS:
            raise link_cycle_error(path)
        if text.startswith("/"):
            if not text.startswith(base):
                raise outside_link_error(path)
            text, done = text.removeprefix(base), []
        waiting = [*text.split("/"), *waiting]
    if not done or (followed and not FORBIDDEN_LINK_TARGETS.isdisjoint(done)):
        raise outside_link_error(path)
    return "/".join(done)


def outside_link_error(path: str) -> SafetyError:
    """Return the error for an input that is a link to a place where no input may be."""
    where = "out of the project, or into a folder of git or orch23"
    return _link_error(path, where, "copy what it leads to into the project")


def link_cycle_error(path: str) -> SafetyError:
    """Return the error for an input that is a link to itself, or to a folder above it."""
    return _link_error(path, "in a circle", "remove it")


def _link_error(path: str, where: str, way: str) -> SafetyError:
    hint = f'{way}; if a pattern finds it, exclude it: "!{path}"'
    return SafetyError(Diagnostic("E691", f"the link {path!r} leads {where}", hint=hint))
