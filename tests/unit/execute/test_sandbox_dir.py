"""Staging, scanning and discarding sandbox directories."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch23.execute.sandbox_dir import SEARCH_STOP_FILES, SandboxDirs
from orch23.execute.sandbox_tree import (
    SANDBOX_EPOCH,
    SandboxDir,
    TreeChanges,
    TreeLimits,
    open_tree,
    printable_path,
    scratch_matcher,
)
from orch23.model.action import InputsChanged
from orch23.model.digest import FileEntry, digest_bytes
from orch23.store.file_copy import AdvanceProgress

FILES = {"a.txt": b"alpha", "sub/run.sh": b"#!/bin/sh\n", "sub/deep/c": b""}
INPUTS = {p: FileEntry(digest_bytes(data), executable=p.endswith(".sh")) for p, data in FILES.items()}


class Source:
    """The bytes of FILES."""

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        if digest_bytes(FILES[path]) != entry.digest:
            return False
        Path(target).write_bytes(FILES[path])
        return True


@pytest.fixture
def sandbox_dirs(tmp_path: Path) -> SandboxDirs:
    return SandboxDirs(tmp_path / "rooms", Source())


def stage(sandbox_dirs: SandboxDirs, working_directory: str = ".") -> SandboxDir:
    sandbox_dir = sandbox_dirs.stage(INPUTS, working_directory)
    assert isinstance(sandbox_dir, SandboxDir)
    return sandbox_dir


def scan(sandbox_dirs: SandboxDirs, sandbox_dir: SandboxDir, scratch: tuple[str, ...] = ()) -> TreeChanges:
    with open_tree(sandbox_dir) as tree:
        return sandbox_dirs.scan_open(tree, INPUTS, scratch)


def codes(found: TreeChanges) -> list[str]:
    return [d.code for d in found.violations]


def test_a_sandbox_directory_holds_exactly_the_inputs_with_one_time(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs, "sub/other")
    found = {str(p.relative_to(sandbox_dir.work)): p for p in sandbox_dir.work.rglob("*")}
    assert set(found) == {"a.txt", "sub", "sub/run.sh", "sub/deep", "sub/deep/c", "sub/other"}
    assert {p.stat().st_mtime_ns for p in (sandbox_dir.work, *found.values())} == {SANDBOX_EPOCH * 10**9}
    assert os.access(found["sub/run.sh"], os.X_OK)
    assert found["a.txt"].stat().st_mode & 0o111 == 0
    assert sorted(p.name for p in sandbox_dir.root.iterdir()) == sorted(["home", "tmp", "work", *SEARCH_STOP_FILES])


def test_an_unchanged_tree_has_no_difference(sandbox_dirs: SandboxDirs) -> None:
    assert scan(sandbox_dirs, stage(sandbox_dirs)) == TreeChanges({}, (), ())


def test_changed_inputs_leave_no_directory_and_all_are_named(sandbox_dirs: SandboxDirs) -> None:
    other = FileEntry(digest_bytes(b"other"))
    assert sandbox_dirs.stage({**INPUTS, "a.txt": other, "sub/deep/c": other}) == InputsChanged(("a.txt", "sub/deep/c"))
    assert list(sandbox_dirs.folder.iterdir()) == []


def test_bytes_count_even_where_size_and_times_are_put_back(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "a.txt").write_bytes(b"ALPHA")
    os.utime(sandbox_dir.work / "a.txt", (SANDBOX_EPOCH, SANDBOX_EPOCH))
    assert set(scan(sandbox_dirs, sandbox_dir).written) == {"a.txt"}


def test_the_executable_bit_counts_and_a_rewrite_of_the_same_does_not(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "a.txt").chmod(0o755)
    (sandbox_dir.work / "sub/run.sh").write_bytes(FILES["sub/run.sh"])
    (sandbox_dir.work / "sub/deep/c").chmod(0o600)
    written = scan(sandbox_dirs, sandbox_dir).written
    assert written == {"a.txt": True}


def test_a_file_that_became_a_directory_is_removed(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "a.txt").unlink()
    (sandbox_dir.work / "a.txt").mkdir()
    (sandbox_dir.work / "a.txt/inner").write_text("x")
    found = scan(sandbox_dirs, sandbox_dir)
    assert (set(found.written), found.removed) == ({"a.txt/inner"}, ("a.txt",))


def swap_for_a_link(folder: Path, outside: Path) -> None:
    """Do what a process that outlived its step would do between two looks at the tree."""
    folder.rename(folder.with_name("aside"))
    folder.symlink_to(outside)


def outside_of(tmp_path: Path) -> Path:
    """Make a folder with the names in a sandbox directory, to which no other process has access."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True, mode=0o700)
    (outside / "run.sh").write_bytes(b"#!/bin/no\n")
    (outside / "deep/c").write_bytes(b"")
    (outside / "new").write_bytes(b"secret")
    return outside


@pytest.mark.parametrize(("moment", "seen"), [("a.txt", ["E610"]), ("c", [])])
def test_a_scan_reads_nothing_outside_when_a_folder_becomes_a_link_meanwhile(
    tmp_path: Path, moment: str, seen: list[str]
) -> None:
    outside = outside_of(tmp_path)

    def swapping(_what: str, name: str, _size: int) -> AdvanceProgress:
        if name == moment:
            swap_for_a_link(sandbox_dir.work / "sub", outside)
        return lambda _count: None

    sandbox_dirs = SandboxDirs(tmp_path / "rooms", Source(), meter=swapping)
    sandbox_dir = stage(sandbox_dirs)
    found = scan(sandbox_dirs, sandbox_dir)
    assert (sandbox_dir.work / "sub").is_symlink()
    assert "sub/run.sh" not in found.written, "it was compared with a file outside"
    assert codes(found) == seen


def test_what_was_written_is_opened_through_no_link(sandbox_dirs: SandboxDirs, tmp_path: Path) -> None:
    outside = outside_of(tmp_path)
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "sub/new").write_text("new")
    assert set(scan(sandbox_dirs, sandbox_dir).written) == {"sub/new"}
    with open_tree(sandbox_dir) as tree:
        descriptor = tree.open_file("sub/new")
        assert os.read(descriptor, 10) == b"new"
        os.close(descriptor)
    swap_for_a_link(sandbox_dir.work / "sub", outside)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"), open_tree(sandbox_dir) as tree:
        tree.open_file("sub/new")


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "work"])
def test_what_was_written_is_opened_only_as_what_it_was(sandbox_dirs: SandboxDirs, tmp_path: Path, how: str) -> None:
    outside = outside_of(tmp_path)
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "new").write_text("new")
    assert set(scan(sandbox_dirs, sandbox_dir).written) == {"new"}
    if how == "work":
        swap_for_a_link(sandbox_dir.work, outside)
    else:
        (sandbox_dir.work / "new").unlink()
    if how == "link":
        (sandbox_dir.work / "new").symlink_to(outside / "new")
    if how == "hard link":
        (sandbox_dir.work / "new").hardlink_to(outside / "new")
    if how == "pipe":
        os.mkfifo(sandbox_dir.work / "new")
    with pytest.raises(OSError), open_tree(sandbox_dir) as tree:
        tree.open_file("new")


def make_link(work: Path) -> None:
    (work / "x").symlink_to("/etc/passwd")


def make_directory_link(work: Path) -> None:
    (work / "x").symlink_to("/etc")


def make_fifo(work: Path) -> None:
    os.mkfifo(work / "x")


def make_socket(work: Path) -> None:
    before = Path.cwd()
    os.chdir(work)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("x")
    finally:
        os.chdir(before)


def make_hard_link(work: Path) -> None:
    (work / "x").hardlink_to(work / "a.txt")


def make_setuid(work: Path) -> None:
    (work / "x").write_text("x")
    (work / "x").chmod(0o4755)


def make_setgid(work: Path) -> None:
    (work / "x").write_text("x")
    (work / "x").chmod(0o2755)


def make_control_name(work: Path) -> None:
    (work / "x\n").write_text("x")


def make_c1_name(work: Path) -> None:
    (work / "x\x9b").write_text("x")


def make_long_name(work: Path) -> None:
    (work / ("x" * 201)).write_text("x")


def make_raw_name(work: Path) -> None:
    with open(os.fsencode(work) + b"/x\xff", "wb"):
        pass


def make_deep(work: Path) -> None:
    (work / "/".join("x" * 65)).mkdir(parents=True)


def make_sparse(work: Path) -> None:
    with (work / "x").open("wb") as file:
        file.truncate((4 << 30) + 1)


MADE = {
    make_link: "E610",
    make_directory_link: "E610",
    make_fifo: "E611",
    make_socket: "E611",
    make_setuid: "E613",
    make_setgid: "E613",
    make_control_name: "E614",
    make_c1_name: "E614",
    make_long_name: "E614",
    make_raw_name: "E614",
    make_deep: "E616",
    make_sparse: "E617",
}


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_what_no_result_may_hold_is_named_and_not_written(sandbox_dirs: SandboxDirs, make: object) -> None:
    sandbox_dir = stage(sandbox_dirs)
    make(sandbox_dir.work)  # type: ignore[operator]  # one of the functions above
    found = scan(sandbox_dirs, sandbox_dir)
    assert codes(found) == [MADE[make]]  # type: ignore[index]  # as above
    assert found.written == {}
    assert all(d.hint for d in found.violations)
    assert all(c.isprintable() for d in found.violations for c in str(d))


def test_both_names_of_a_hard_link_are_refused(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    make_hard_link(sandbox_dir.work)
    assert codes(scan(sandbox_dirs, sandbox_dir)) == ["E612", "E612"]


def test_all_violations_are_collected(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "b").symlink_to("a.txt")
    os.mkfifo(sandbox_dir.work / "sub" / "f")
    assert codes(scan(sandbox_dirs, sandbox_dir)) == ["E610", "E611"]


def test_a_work_directory_that_was_replaced_is_not_followed(sandbox_dirs: SandboxDirs, tmp_path: Path) -> None:
    sandbox_dir = stage(sandbox_dirs)
    sandbox_dir.work.rename(tmp_path / "moved")
    sandbox_dir.work.symlink_to("/etc")
    with pytest.raises(NotADirectoryError), open_tree(sandbox_dir):
        pass


def test_caps_on_count(tmp_path: Path) -> None:
    sandbox_dirs = SandboxDirs(tmp_path / "rooms", Source(), TreeLimits(entries=6))
    sandbox_dir = stage(sandbox_dirs)
    assert codes(scan(sandbox_dirs, sandbox_dir)) == []
    (sandbox_dir.work / "x").touch()
    (sandbox_dir.work / "y").touch()
    assert codes(scan(sandbox_dirs, sandbox_dir)) == ["E615"]


def test_scratch_is_thrown_away_whatever_it_is(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "sub/__pycache__").mkdir()
    make_fifo(sandbox_dir.work / "sub/__pycache__")
    (sandbox_dir.work / "m.pyc").symlink_to("/etc/passwd")
    (sandbox_dir.work / "build").mkdir()
    (sandbox_dir.work / "build/kept").write_text("x")
    (sandbox_dir.work / "build/gone.o").write_text("x")
    found = scan(sandbox_dirs, sandbox_dir, ("__pycache__", "*.pyc", "build/*.o"))
    assert (set(found.written), found.violations) == ({"build/kept"}, ())


def test_an_input_that_is_scratch_is_neither_written_nor_removed(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "a.txt").unlink()
    assert scan(sandbox_dirs, sandbox_dir, ("a.*",)) == TreeChanges({}, (), ())


@pytest.mark.parametrize(
    ("path", "patterns", "scratch"),
    [
        ("a/__pycache__/b.py", ("__pycache__",), True),
        ("a/__pycache__/b.py", ("__pycache__/",), True),
        ("pkg.egg-info/PKG-INFO", ("*.egg-info",), True),
        ("a/b.pyc", ("*.pyc",), True),
        ("a/b.py", ("*.pyc",), False),
        ("out/tmp/x", ("out/tmp/",), True),
        ("other/out/tmp/x", ("out/tmp/",), False),
        ("a/b/c.log", ("**/*.log",), True),
        ("a", (), False),
    ],
)
def test_scratch_patterns(path: str, patterns: tuple[str, ...], scratch: bool) -> None:
    assert scratch_matcher(patterns)(path) is scratch


def test_unreadable_files_and_folders_are_read_all_the_same(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "locked").mkdir()
    (sandbox_dir.work / "locked/x").write_text("x")
    (sandbox_dir.work / "locked/x").chmod(0o111)
    (sandbox_dir.work / "locked").chmod(0)
    assert scan(sandbox_dirs, sandbox_dir).written == {"locked/x": True}
    with open_tree(sandbox_dir) as tree:
        descriptor = tree.open_file("locked/x")
    assert os.fstat(descriptor).st_mode & 0o400
    os.close(descriptor)


@pytest.mark.slow
def test_discard_removes_read_only_and_very_deep_trees_and_follows_no_link(
    sandbox_dirs: SandboxDirs, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    sandbox_dir = stage(sandbox_dirs)
    (sandbox_dir.work / "link").symlink_to(outside)
    (sandbox_dir.work / "ro").mkdir()
    (sandbox_dir.work / "ro/x").write_text("x")
    (sandbox_dir.work / "ro").chmod(0o500)
    here = os.open(sandbox_dir.work, os.O_RDONLY)
    for _ in range(3000):  # deeper than any path may be long, and than Python recurses
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    sandbox_dirs.discard(sandbox_dir)
    assert list(sandbox_dirs.folder.iterdir()) == []
    assert (outside / "precious").read_text() == "x"
    sandbox_dirs.discard(sandbox_dir)  # twice is harmless


def test_sweep_drops_what_an_interrupted_build_left(sandbox_dirs: SandboxDirs) -> None:
    assert sandbox_dirs.sweep() == ()
    stage(sandbox_dirs)
    stage(sandbox_dirs)
    assert sandbox_dirs.sweep() == ()
    assert list(sandbox_dirs.folder.iterdir()) == []


@pytest.mark.parametrize("end", ["discard", "sweep"])
def test_a_directory_replaced_by_a_link_is_removed_and_the_target_is_not(
    sandbox_dirs: SandboxDirs, tmp_path: Path, end: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "precious").write_text("x")
    outside.chmod(0o755)
    sandbox_dir = stage(sandbox_dirs)
    sandbox_dir.orch23_folder.mkdir()
    for place in (sandbox_dir.root, sandbox_dir.orch23_folder):
        place.rename(tmp_path / place.name)
        place.symlink_to(outside)
    if end == "discard":
        sandbox_dirs.discard(sandbox_dir)
    else:
        assert sandbox_dirs.sweep() == ()
    assert list(sandbox_dirs.folder.iterdir()) == []
    assert sorted(path.name for path in outside.iterdir()) == ["deep", "precious"]
    assert outside.stat().st_mode & 0o777 == 0o755


def test_ten_errors_of_a_code_are_reported_and_the_others_counted(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = stage(sandbox_dirs)
    for number in range(50):
        (sandbox_dir.work / f"link{number}").symlink_to("/etc")
    os.mkfifo(sandbox_dir.work / "pipe")
    found = scan(sandbox_dirs, sandbox_dir).violations
    assert [d.code for d in found] == ["E610"] * 11 + ["E611"]
    assert "40 more" in found[10].message


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_what_is_shown_has_no_control_characters(text: str) -> None:
    assert printable_path(text).isprintable()


def test_the_folders_of_outputs_are_there_before_the_step(sandbox_dirs: SandboxDirs) -> None:
    sandbox_dir = sandbox_dirs.stage({}, ".", ("build/deep/",))
    assert isinstance(sandbox_dir, SandboxDir)
    assert (sandbox_dir.work / "build" / "deep").is_dir()
    with open_tree(sandbox_dir) as tree:
        assert sandbox_dirs.scan_open(tree, {}, ()) == TreeChanges({}, (), ())
