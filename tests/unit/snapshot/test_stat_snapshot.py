"""Snapshots of file states, and every change that a comparison must report."""

import copy
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.snapshot import signatures, stat_snapshot
from orch23.snapshot.signatures import EMPTY_DIRECTORY, ENTRIES, FINE_RACY_NS, NO_ENTRY, RACY_NS, is_racy, signature
from orch23.snapshot.stat_snapshot import (
    SNAPSHOT_FORMAT,
    SnapshotDifference,
    StatSnapshot,
    parse_facts,
    parse_snapshot,
)

KEY = bytes(32)
LATER = 10 * RACY_NS


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path, text in {"a.txt": "one", "src/b.txt": "two", "src/deep/c.txt": "three"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "listed").mkdir()
    monkeypatch.chdir(tmp_path)
    real = time.time_ns
    monkeypatch.setattr("orch23.snapshot.stat_snapshot.time.time_ns", lambda: real() + LATER)
    return tmp_path


def snapshot_of(root: Path) -> StatSnapshot:
    """Return the snapshot of all files of the folder, taken at a time when they had long been there."""
    snapshot = StatSnapshot(time.time_ns())
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        found = path.stat()
        content = (hashlib.sha256(path.read_bytes()).hexdigest(), found.st_size, bool(found.st_mode & 0o100))
        snapshot.add_files([path.relative_to(root).as_posix()], [found.st_ctime_ns], [content])
    snapshot.absent.append("not/there")
    for folder in ("src", "src/deep"):
        found = (root / folder).stat()
        snapshot.folders.append(folder)
        snapshot.inodes.extend((found.st_dev, found.st_ino))
    assert snapshot.add_path(str(root / "listed"))
    assert snapshot.add_path(str(root / "no-tool"))
    snapshot.facts = {"reported": "up to date\n", "empty": ""}
    snapshot.environ = {"PATH": "0f"}
    return snapshot


def differences(snapshot: StatSnapshot) -> tuple[list[str], list[int]]:
    """Return what differs, and the change times as they would be kept."""
    difference = snapshot.compare()
    assert difference is not None
    again = copy.deepcopy(snapshot)
    again.update_times(difference)
    return difference.changed, again.ctimes


def test_an_unchanged_project_has_no_difference(root: Path) -> None:
    assert differences(snapshot_of(root)) == ([], snapshot_of(root).ctimes)


def test_a_snapshot_is_the_same_after_it_is_written_and_read(root: Path) -> None:
    snapshot = snapshot_of(root)
    again = parse_snapshot(snapshot.to_bytes(KEY), KEY)
    assert again is not None
    assert states_of(again) == states_of(snapshot)
    assert all(getattr(again, name) == getattr(snapshot, name) for name in StatSnapshot.__slots__)
    assert differences(again) == ([], snapshot.ctimes)


def same_size_and_time(root: Path) -> None:
    before = (root / "a.txt").stat()
    (root / "a.txt").write_text("eno")
    os.utime(root / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(root: Path) -> None:
    (root / "src" / "deep").rename(root / "src" / "kept")
    (root / "src" / "deep").symlink_to("kept")


def replaced_folder(root: Path) -> None:
    (root / "src").rename(root / "old")
    (root / "src" / "deep").mkdir(parents=True)
    for path in ("b.txt", "deep/c.txt"):
        (root / "old" / path).rename(root / "src" / path)


def link_to_itself(root: Path) -> None:
    (root / "a.txt").rename(root / "b")
    (root / "a.txt").symlink_to("b")


def folder_in_its_place(root: Path) -> None:
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()


def appearance(root: Path) -> None:
    (root / "not").mkdir()
    (root / "not" / "there").write_text("")


CHANGES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "other bytes": (lambda root: (root / "a.txt").write_text("other"), "a.txt"),
    "bytes of the same number, with the old time": (same_size_and_time, "a.txt"),
    "a file is gone": (lambda root: (root / "src/b.txt").unlink(), "src/b.txt"),
    "a folder is gone": (lambda root: (root / "src").rename(root / "elsewhere"), None),
    "a folder is a link to itself": (swap, None),
    "a folder is another": (replaced_folder, None),
    "a file is a link": (link_to_itself, "a.txt"),
    "a file is a folder": (folder_in_its_place, "a.txt"),
    "a file is a program": (lambda root: (root / "a.txt").chmod(0o755), "a.txt"),
    "what was not there is": (appearance, "not/there"),
    "a listed folder has one more": (lambda root: (root / "listed" / "new").write_text(""), "ROOT/listed"),
    "a program is found earlier": (lambda root: (root / "no-tool").write_text(""), "ROOT/no-tool"),
}


@pytest.mark.parametrize(("change", "path"), CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_reported(root: Path, change: Callable[[Path], object], path: str | None) -> None:
    snapshot = snapshot_of(root)
    change(root)
    difference = snapshot.compare()
    found = None if difference is None else difference.changed
    assert found == (None if path is None else [path.replace("ROOT", str(root))])


def one_file_a_block(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have as many processes as files, which take one file at a time, and return the list of their ids."""
    started: list[int] = []
    fork = os.fork

    def forked() -> int:
        started.append(fork())
        return started[-1]

    monkeypatch.setattr("orch23.snapshot.stat_snapshot._SHARE", 1)
    monkeypatch.setattr("orch23.snapshot.stat_snapshot._BLOCK_FILES", 1)
    monkeypatch.setattr("orch23.snapshot.stat_snapshot._processors", lambda: 99)
    monkeypatch.setattr("orch23.snapshot.stat_snapshot.os.fork", forked)
    return started


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize(("change", "path"), CHANGES.values(), ids=CHANGES.keys())
def test_forked_processes_report_the_same(
    root: Path, change: Callable[[Path], object], path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = snapshot_of(root)
    started = one_file_a_block(monkeypatch)
    assert differences(snapshot) == ([], snapshot.ctimes)
    assert len(started) == len(snapshot.paths) - 1
    change(root)
    difference = snapshot.compare()
    found = None if difference is None else difference.changed
    assert found == (None if path is None else [path.replace("ROOT", str(root))])
    for child in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def checked_blocks(monkeypatch: pytest.MonkeyPatch, record: Path) -> Callable[[], list[tuple[int, int]]]:
    """Return a function that returns which process has checked which block, by its first file, from now on."""
    real = StatSnapshot._touched_among

    def noted(snapshot: StatSnapshot, start: int, end: int) -> list[int]:
        with record.open("a") as stream:
            stream.write(f"{start} {os.getpid()}\n")
        return real(snapshot, start, end)

    def checked() -> list[tuple[int, int]]:
        pairs = (map(int, line.split()) for line in record.read_text().splitlines())
        return sorted((start, process) for start, process in pairs)

    monkeypatch.setattr(StatSnapshot, "_touched_among", noted)
    return checked


def test_the_processes_check_each_file_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(root)
    one_file_a_block(monkeypatch)
    checked = checked_blocks(monkeypatch, root / "record")
    assert differences(snapshot) == ([], snapshot.ctimes)
    assert [start for start, _ in checked()] == [*range(len(snapshot.paths))]


@pytest.mark.parametrize("is_ignored", [False, True])
def test_the_parent_takes_over_what_a_process_found(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_ignored: bool
) -> None:
    """Also if it ignores SIGCHLD, so that it gets no exit status."""
    snapshot = snapshot_of(root)
    (root / "src/deep/c.txt").write_text("other")
    one_file_a_block(monkeypatch)
    checked = checked_blocks(monkeypatch, root / "record")
    parent, claim = os.getpid(), stat_snapshot._claim
    monkeypatch.setattr(stat_snapshot, "_claim", lambda claims: None if os.getpid() == parent else claim(claims))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN) if is_ignored else signal.getsignal(signal.SIGCHLD)
    try:
        assert differences(snapshot)[0] == ["src/deep/c.txt"]
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert len(checked()) == len(snapshot.paths)
    assert parent not in {process for _, process in checked()}


def test_the_parent_checks_the_files_of_a_process_that_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(root)
    (root / "src/deep/c.txt").write_text("other")
    one_file_a_block(monkeypatch)
    parent, write = os.getpid(), os.write

    def cut_short(descriptor: int, data: bytes) -> int:
        if os.getpid() == parent:
            return write(descriptor, data)
        write(descriptor, data[: data.index(b"\n") + 1] if b"\n" in data else b"")
        os._exit(0)

    with monkeypatch.context() as patch:
        patch.setattr("orch23.snapshot.stat_snapshot.os.write", cut_short)
        assert differences(snapshot)[0] == ["src/deep/c.txt"]

    def refused() -> int:
        raise BlockingIOError

    monkeypatch.setattr("orch23.snapshot.stat_snapshot.os.fork", refused)
    assert differences(snapshot)[0] == ["src/deep/c.txt"]


def test_a_touched_file_is_hashed_again_and_is_unchanged(root: Path) -> None:
    snapshot = snapshot_of(root)
    os.utime(root / "a.txt")
    changed, again = differences(snapshot)
    assert (changed, again != snapshot.ctimes) == ([], True)
    snapshot.ctimes = again
    assert differences(snapshot) == ([], again)


def test_a_racy_file_is_hashed_again(root: Path) -> None:
    snapshot = snapshot_of(root)
    snapshot.ctimes[0] = 0
    assert differences(snapshot) == ([], snapshot_of(root).ctimes)


def test_a_racy_file_that_is_deleted_is_reported(root: Path) -> None:
    snapshot = snapshot_of(root)
    snapshot.ctimes[snapshot.paths.index("a.txt")] = 0
    (root / "a.txt").unlink()
    assert differences(snapshot)[0] == ["a.txt"]


def test_a_file_that_is_racy_now_is_hashed_again_the_next_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(root)
    os.utime(root / "a.txt")
    monkeypatch.undo()
    monkeypatch.chdir(root)
    snapshot.since_ns = time.time_ns()
    changed, again = differences(snapshot)
    assert changed == []
    assert again[snapshot.paths.index("a.txt")] == 0


def test_a_clock_that_went_back_makes_the_snapshot_invalid(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(root)
    monkeypatch.setattr("orch23.snapshot.stat_snapshot.time.time_ns", lambda: snapshot.since_ns - 1)
    assert snapshot.compare() is None


def test_every_change_of_an_unhashed_file_is_reported(root: Path) -> None:
    for change in (os.utime, lambda path: path.write_text("two"), lambda path: path.unlink()):
        snapshot = StatSnapshot(time.time_ns())
        (root / "program").write_text("one")
        (root / "empty").write_text("")
        assert snapshot.add_unhashed_file(str(root / "program"))
        assert snapshot.add_unhashed_file(str(root / "empty"))
        assert snapshot.outside == {}
        assert differences(snapshot)[0] == []
        then = (root / "empty").stat().st_ctime_ns
        while (root / "clock").write_text("") or (root / "clock").stat().st_ctime_ns == then:
            pass  # the clock of the file system has not moved on yet
        change(root / "program")
        os.utime(root / "empty")
        assert differences(snapshot)[0] == [str(root / "program"), str(root / "empty")]


def test_a_racy_file_or_a_link_is_not_added_as_an_unhashed_file(root: Path) -> None:
    (root / "link").symlink_to("a.txt")
    snapshot = StatSnapshot(time.time_ns())
    assert snapshot.add_unhashed_file(str(root / "link"))
    assert list(snapshot.outside) == [str(root / "link")]
    snapshot = StatSnapshot((root / "a.txt").stat().st_ctime_ns)
    assert not snapshot.add_unhashed_file(str(root / "a.txt"))


def test_an_empty_directory_may_be_missing_or_empty(root: Path) -> None:
    snapshot = StatSnapshot(time.time_ns())
    for name in ("listed", "no-tool"):
        snapshot.outside[str(root / name)] = EMPTY_DIRECTORY
    assert differences(snapshot)[0] == []
    (root / "listed" / "left").write_text("")
    (root / "no-tool").mkdir()
    assert differences(snapshot)[0] == [str(root / "listed")]


def test_a_racy_directory_is_not_added(root: Path) -> None:
    snapshot = StatSnapshot((root / "listed").stat().st_ctime_ns)
    assert not snapshot.add_path(str(root / "listed"))


def test_a_young_directory_is_compared_by_its_entries_until_its_times_can_be_trusted(root: Path) -> None:
    listed = root / "listed"
    (listed / "a").write_text("")
    snapshot = StatSnapshot(time.time_ns())
    snapshot.outside[str(listed)] = signature(str(listed), ENTRIES)
    difference = snapshot.compare()
    assert difference is not None
    assert (difference.changed, difference.aged) == ([], {str(listed): signature(str(listed))})
    snapshot.update_times(difference)
    assert snapshot.outside == {str(listed): signature(str(listed))}


def test_a_directory_that_is_still_young_is_compared_by_its_entries_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = root / "listed"
    now = listed.stat().st_ctime_ns
    monkeypatch.setattr("orch23.snapshot.stat_snapshot.time.time_ns", lambda: now)
    snapshot = StatSnapshot(now)
    snapshot.outside[str(listed)] = signature(str(listed), ENTRIES)
    difference = snapshot.compare()
    assert difference is not None
    assert (difference.changed, difference.aged) == ([], {})


def pipe_in_place_of_a_file(folder: Path) -> None:
    (folder / "a").unlink()
    os.mkfifo(folder / "a")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "b").write_text(""),
        lambda folder: (folder / "a").unlink(),
        lambda folder: (folder / "a").rename(folder / "b"),
        lambda folder: ((folder / "a").unlink(), (folder / "a").mkdir()),
        lambda folder: ((folder / "a").unlink(), (folder / "a").symlink_to("b")),
        pipe_in_place_of_a_file,
        lambda folder: (folder.rename(f"{folder}s"), folder.write_text("")),
    ],
)
def test_every_change_of_the_entries_of_a_young_directory_is_reported(
    root: Path, change: Callable[[Path], object]
) -> None:
    listed = root / "listed"
    (listed / "a").write_text("")
    snapshot = StatSnapshot(time.time_ns())
    snapshot.outside[str(listed)] = signature(str(listed), ENTRIES)
    change(listed)
    assert differences(snapshot)[0] == [str(listed)]


@pytest.mark.parametrize(
    ("digits", "device", "age_ns", "expected"),
    [
        (123_456, 7, FINE_RACY_NS - 1, True),
        (123_456, 7, FINE_RACY_NS, False),
        (0, 7, FINE_RACY_NS, True),  # as with inodes that keep whole seconds
        (0, 7, RACY_NS - 1, True),
        (0, 7, RACY_NS, False),
        (123_456, 8, FINE_RACY_NS, True),  # as on a network file system
        (123_456, 8, RACY_NS - 1, True),
        (123_456, 8, RACY_NS, False),
    ],
)
def test_how_long_a_file_is_racy_follows_from_its_file_system(
    monkeypatch: pytest.MonkeyPatch, digits: int, device: int, age_ns: int, expected: bool
) -> None:
    monkeypatch.setattr(signatures, "_devices", {-1, 7})
    ctime = 10**18 + digits
    assert is_racy(device, ctime - 5, ctime, ctime + age_ns) is expected
    assert is_racy(device, ctime + age_ns, ctime, ctime + age_ns) is True, "a file from the future is racy"


def test_the_devices_of_local_file_systems_are_those_that_the_kernel_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_devices", set())
    memory = Path("/dev/shm").stat().st_dev
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    kinds = {line.split()[2]: line.split(" - ")[1].split()[0] for line in mounts}
    kind = kinds.get(f"{os.major(memory)}:{os.minor(memory)}")
    process = Path("/proc").stat().st_dev
    ctime = time.time_ns() // 1000 * 1000 + 1
    assert is_racy(memory, ctime, ctime, ctime + FINE_RACY_NS) is (kind != "tmpfs")
    assert is_racy(process, ctime, ctime, ctime + FINE_RACY_NS)


def states_of(snapshot: StatSnapshot) -> dict[str, tuple[str, int, bool]]:
    """Return the state of each file that was hashed, by its path. Whatever else the snapshot has is checked by this."""
    states = ((path, snapshot.contents((number,))[0]) for number, path in enumerate(snapshot.paths))
    return {path: state for path, state in states if state[0].strip("0")}


def test_a_damaged_snapshot_file_is_none_or_has_fewer_states(root: Path) -> None:
    whole = snapshot_of(root)
    data, states, rest = whole.to_bytes(KEY), states_of(whole), set(StatSnapshot.__slots__) - {"details", "sums"}
    assert parse_snapshot(data, KEY) is not None
    damaged = 0
    for place in range(len(data)):
        assert parse_snapshot(data[:place], KEY) is None
        for mask in (1, 255):
            found = parse_snapshot(data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :], KEY)
            if found is not None:
                damaged += 1
                assert all(getattr(found, name) == getattr(whole, name) for name in rest)
                assert states_of(found) == {}
                again = parse_snapshot(found.to_bytes(KEY), KEY)
                assert again is not None
                assert states_of(again) == {}
    assert damaged == 2 * len(whole.details), "only states of files are verified later"
    assert len(states) == len(whole.paths)
    assert parse_snapshot(b"", KEY) is None
    assert parse_snapshot(SNAPSHOT_FORMAT + b"\0\0\0\0", KEY) is None


def many(names: Iterable[str]) -> StatSnapshot:
    """Return a snapshot of files with these names, and states that follow from them."""
    snapshot = StatSnapshot(1)
    for name in names:
        content = (hashlib.sha256(name.encode()).hexdigest(), len(name), False)
        snapshot.add_files([name], [len(name)], [content])
    return snapshot


@given(
    st.integers(1, 700),
    st.lists(st.integers(0, 800), max_size=20, unique=True),
    st.lists(st.integers(0, 800), max_size=20, unique=True),
    st.none() | st.integers(0, 10**6),
)
def test_a_merge_has_the_states_of_both_and_none_of_a_damaged_block(
    size: int, new: list[int], decided: list[int], place: int | None
) -> None:
    before = many(f"f{number}" for number in range(size))
    data = bytearray(before.to_bytes(KEY))
    start = data.index(before.details)
    if place is not None:
        data[start + place % len(before.details)] ^= 1
    read = parse_snapshot(bytes(data), KEY)
    assert read is not None
    newer = many(f"f{number}" for number in new)
    newer.details = bytearray(b"n" * len(newer.details))
    read.merge(newer, SnapshotDifference({}, []), [f"f{number}" for number in decided])
    gone = {f"f{number}" for number in decided}
    kept = {path: state for path, state in states_of(before).items() if path not in gone}
    expected = {path: state for path, state in states_of(newer).items() if path not in kept} | kept
    again = parse_snapshot(read.to_bytes(KEY), KEY)
    assert again is not None
    assert set(again.paths) == set(expected)
    assert len(again.paths) == len(expected) == len(again.ctimes)
    found = states_of(again)
    assert found.items() <= expected.items()
    assert len(expected) - len(found) <= (0 if place is None else 256)


def test_no_thread_sees_a_damaged_block_that_another_one_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(many(["a", "b"]).to_bytes(KEY))
    data[data.index(many(["a"]).details)] ^= 1
    read = parse_snapshot(bytes(data), KEY)
    assert read is not None
    sum_of = stat_snapshot._sum_of
    found: list[str] = []

    def slow_sum_of(block: bytes) -> bytes:
        monkeypatch.setattr(stat_snapshot, "_sum_of", sum_of)
        found.append(read.contents((1,))[0][0])  # as another thread would
        return sum_of(block)

    monkeypatch.setattr(stat_snapshot, "_sum_of", slow_sum_of)
    assert [read.contents((0,))[0][0], *found] == ["00" * 32] * 2


def test_a_snapshot_that_was_made_with_another_key_is_none(root: Path) -> None:
    data, other = snapshot_of(root).to_bytes(KEY), snapshot_of(root)
    other.paths.pop()
    other.ctimes.pop()
    forged = other.to_bytes(b"")
    for bad in (forged, data[:33] + forged[33:], forged[:33] + data[33:]):
        assert parse_snapshot(bad, KEY) is None
        assert parse_facts(bad, KEY) is None
    assert parse_snapshot(data, b"") is None


def test_facts_are_read_without_a_look_at_the_files(root: Path) -> None:
    snapshot = snapshot_of(root)
    snapshot.facts = {"pipeline": "a.yaml"}
    data = snapshot.to_bytes(KEY)
    assert parse_facts(data[:-1], KEY) == {"pipeline": "a.yaml"}
    assert parse_snapshot(data[:-1] + bytes([data[-1] ^ 1]), KEY) is None
    assert parse_facts(data.replace(b"a.yaml", b"b.yaml"), KEY) is None


def merged(
    old: StatSnapshot, newer: StatSnapshot, *, changed: list[str], written: tuple[str, ...] = ()
) -> StatSnapshot:
    old.merge(newer, SnapshotDifference({}, changed), written)
    return old


def at(*paths: str, ctime: int, absent: tuple[str, ...] = (), outside: dict[str, str] | None = None) -> StatSnapshot:
    """Return a snapshot of these files, all of which changed at one time."""
    snapshot = StatSnapshot(0)
    for path in paths:
        snapshot.add_files([path], [ctime], [(bytes([ctime] * 32).hex(), ctime, False)])
    snapshot.absent = [*absent]
    snapshot.outside = outside or {}
    return snapshot


def known(snapshot: StatSnapshot) -> dict[str, tuple[int, int]]:
    details = [snapshot.contents((number,))[0][1] for number in range(len(snapshot.paths))]
    return dict(zip(snapshot.paths, zip(snapshot.ctimes, details, strict=True), strict=True))


def test_only_what_a_partial_build_decided_on_is_merged() -> None:
    """Case: an input of a stage beside the edited one was saved before it was looked at, and so never decided on."""
    newer = at("edited", "beside", "made", "new", ctime=2)
    snapshot = merged(at("edited", "beside", "made", "far", ctime=1), newer, changed=["edited"], written=("made",))
    assert known(snapshot) == {"edited": (2, 2), "made": (2, 2), "new": (2, 2), "beside": (1, 1), "far": (1, 1)}


def test_what_came_or_went_beside_a_partial_build_is_a_difference_the_next_time() -> None:
    newer = at("came", ctime=2, absent=("went", "changed", "never"))
    snapshot = merged(at("went", "changed", ctime=1, absent=("came",)), newer, changed=["changed"])
    assert known(snapshot) == {"went": (1, 1)}
    assert snapshot.absent == ["came", "changed", "never"]


def test_folders_and_programs_that_a_partial_build_did_not_decide_on_are_kept() -> None:
    newer = at(ctime=2, outside={"listed": "2", "other": "2", "new": "2"})
    snapshot = merged(at(ctime=1, outside={"listed": "1", "other": "1"}), newer, changed=["listed"])
    assert snapshot.outside == {"listed": "2", "other": "1", "new": "2"}


@pytest.mark.parametrize("aim", ["elsewhere", "nowhere", None])
def test_a_link_where_nothing_may_be_is_seen(tmp_path: Path, aim: str | None) -> None:
    (tmp_path / "elsewhere").mkdir()
    snapshot = StatSnapshot(0)
    snapshot.outside[str(tmp_path / "missing")] = NO_ENTRY
    assert differences(snapshot)[0] == []
    if aim is None:
        (tmp_path / "missing").mkdir()
    else:
        (tmp_path / "missing").symlink_to(aim)
    assert differences(snapshot)[0] == [str(tmp_path / "missing")]


@pytest.mark.parametrize("size", [0, 3, stat_snapshot._BLOCK, stat_snapshot._BLOCK + 1, (1 << 20) + 1])
def test_a_touched_file_of_any_size_is_compared_by_its_bytes(root: Path, size: int) -> None:
    (root / "a.txt").write_bytes(bytes(size))
    snapshot = snapshot_of(root)
    os.utime(root / "a.txt")
    assert differences(snapshot)[0] == []
    (root / "a.txt").write_bytes(bytes(size)[:-1] + b"x")
    assert differences(snapshot)[0] == ["a.txt"]
