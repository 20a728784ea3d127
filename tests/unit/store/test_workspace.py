import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import InvalidInputError, SafetyError
from orch23.model.paths import match
from orch23.snapshot import signatures
from orch23.snapshot.signatures import ENTRIES, FINE_RACY_NS, RACY, RACY_NS, signature
from orch23.snapshot.stat_snapshot import SnapshotDifference, StatSnapshot
from orch23.store import observations
from orch23.store.index import FILES_TABLE, StoreIndex
from orch23.store.safe_files import replace_file
from orch23.store.workspace import Workspace
from tests.ignored_paths import is_ignored


class Clock:
    """A clock that tells what it is told, and the stamps of files with it."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def put(root: Path, path: str, text: str = "x") -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of paths that are hashed from now on."""
    seen: list[str] = []
    real = Workspace._hash  # to count is the only way to see the cache work

    def counting(self: Workspace, path: str) -> object:
        seen.append(path)
        return real(self, path)

    monkeypatch.setattr(Workspace, "_hash", counting)
    return seen


def test_an_entry_is_the_bytes_and_the_executable_bit(root: Path) -> None:
    put(root, "a/b.txt", "hello").chmod(0o755)
    put(root, "c.txt", "hello").chmod(0o644)
    workspace = Workspace(root, None)
    assert workspace.entry("a/b.txt") == FileEntry(digest_bytes(b"hello"), executable=True)
    assert workspace.entry("c.txt") == FileEntry(digest_bytes(b"hello"))
    assert workspace.read("c.txt") == b"hello"


@pytest.mark.parametrize("path", ["missing", "missing/file", "file/below", "folder", "pipe", "link"])
def test_anything_but_a_regular_file_has_no_entry(root: Path, path: str) -> None:
    put(root, "file")
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to("file")
    workspace = Workspace(root, None)
    assert workspace.entry(path) is None
    assert workspace.read(path) is None


OUTSIDE = ["../outside", "/etc/passwd", "a/../b", "", "a//b", "./a", "linked/file", "deep/linked/file"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_or_through_a_link(root: Path, path: str) -> None:
    put(root, "../outside", "secret")
    put(root, "../elsewhere/file", "secret")
    put(root, "deep/x")
    (root / "linked").symlink_to("../elsewhere")
    (root / "deep" / "linked").symlink_to("../../elsewhere")
    workspace = Workspace(root, None)
    for look in (workspace.entry, workspace.read):
        with pytest.raises(SafetyError) as caught:
            look(path)
        assert caught.value.diagnostics[0].hint


def test_the_root_itself_may_be_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    put(root, "a")
    (tmp_path / "alias").symlink_to(root)
    assert Workspace(tmp_path / "alias", None).entry("a") is not None
    assert Workspace(tmp_path / "alias", None).listing("**") == ("a",)


def test_a_file_whose_bytes_are_refused_is_closed(root: Path) -> None:
    put(root, "pointer")
    workspace = Workspace(root, None)
    opened: list[int] = []

    def refuse(path: str, descriptor: int) -> bytes | None:
        opened.append(descriptor)
        raise InvalidInputError(Diagnostic("E698", path))

    workspace.as_committed = refuse
    with pytest.raises(InvalidInputError):
        workspace.read("pointer")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def save(workspace: Workspace) -> None:
    """Write what a workspace has seen into its index, as the store does."""
    index = workspace.earlier._index
    rows = workspace.pending_index_rows()
    if index is None:
        return
    if index.has_table(FILES_TABLE):
        index.write({}, {FILES_TABLE: rows})
    else:
        index.write({FILES_TABLE: {path: row for path, row in rows.items() if row is not None}})
    index.close()


def test_a_settled_file_is_hashed_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = put(root, "a")
    clock = Clock(target.stat().st_ctime_ns + 3 * RACY_NS)
    workspace = Workspace(root, StoreIndex(root / "cache"), clock)
    seen = hashed(monkeypatch)
    for _ in range(3):
        workspace.entry("a")
    assert seen == ["a"]
    save(workspace)
    assert Workspace(root, StoreIndex(root / "cache"), clock).entry("a") == workspace.entry("a")
    assert seen == ["a"]


@pytest.mark.parametrize(
    ("age_ns", "is_fine"),
    [(-(10**15), True), (-1, True), (0, True), (1, True), (FINE_RACY_NS - 1, True), (RACY_NS - 1, False)],
)
def test_a_racy_or_future_file_is_hashed_again_each_time(
    root: Path, monkeypatch: pytest.MonkeyPatch, age_ns: int, is_fine: bool
) -> None:
    target = put(root, "a")
    monkeypatch.setattr(signatures, "_devices", {-1, target.stat().st_dev} if is_fine else {-1})
    clock = Clock(target.stat().st_ctime_ns + age_ns)
    workspace = Workspace(root, StoreIndex(root / "cache"), clock)
    seen = hashed(monkeypatch)
    workspace.entry("a")
    clock.now_ns += 100 * RACY_NS
    workspace.entry("a")
    assert seen == ["a", "a"]
    workspace.entry("a")  # now it has been hashed when it was old
    assert len(seen) == (2 if age_ns > -(10**14) else 3)


def test_a_file_with_its_times_put_back_is_noticed(root: Path) -> None:
    target = put(root, "a", "one")
    before = target.stat()
    clock = Clock(before.st_ctime_ns + 3 * RACY_NS)
    workspace = Workspace(root, None, clock)
    assert workspace.entry("a") == FileEntry(digest_bytes(b"one"))
    target.write_text("two")
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert workspace.entry("a") == FileEntry(digest_bytes(b"two"))


def test_a_change_within_the_clock_tick_is_noticed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = put(root, "a", "one")
    frozen = os.lstat(target)
    workspace = Workspace(root, None, Clock(frozen.st_ctime_ns))
    real = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: frozen if str(path).endswith("/a") else real(path))
    assert workspace.entry("a") == FileEntry(digest_bytes(b"one"))
    target.write_text("two")
    assert workspace.entry("a") == FileEntry(digest_bytes(b"two"))


def test_a_clock_that_was_set_back_is_not_trusted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(put(root, "a").stat().st_ctime_ns + 100 * RACY_NS)
    workspace = Workspace(root, None, clock)
    seen = hashed(monkeypatch)
    workspace.entry("a")
    clock.now_ns -= 50 * RACY_NS
    workspace.entry("a")
    assert seen == ["a", "a"]


def test_an_invalidated_file_is_hashed_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(put(root, "a").stat().st_ctime_ns + 3 * RACY_NS)
    workspace = Workspace(root, None, clock)
    seen = hashed(monkeypatch)
    workspace.entry("a")
    workspace.invalidate(["a", "never seen"])
    workspace.entry("a")
    assert seen == ["a", "a"]


def test_racy_entries_are_not_saved(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(put(root, "a").stat().st_ctime_ns)
    workspace = Workspace(root, StoreIndex(root / "cache"), clock)
    workspace.entry("a")
    save(workspace)
    clock.now_ns += 100 * RACY_NS
    seen = hashed(monkeypatch)
    Workspace(root, StoreIndex(root / "cache"), clock).entry("a")
    assert seen == ["a"]


def test_a_damaged_cache_gives_no_wrong_entry(root: Path, damage: Callable[[Path], None]) -> None:
    clock = Clock(put(root, "a", "truth").stat().st_ctime_ns + 3 * RACY_NS)
    cache = root / ".orch23" / "index.sqlite"
    first = Workspace(root, StoreIndex(cache), clock)
    first.entry("a")
    save(first)
    damage(cache)
    second = Workspace(root, StoreIndex(cache), clock)
    assert second.entry("a") == FileEntry(digest_bytes(b"truth"))
    save(second)
    assert Workspace(root, StoreIndex(cache), clock).entry("a") == FileEntry(digest_bytes(b"truth"))


def test_the_cache_of_another_directory_is_not_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(put(root, "a").stat().st_ctime_ns + 3 * RACY_NS)
    first = Workspace(root, StoreIndex(tmp_path / "cache"), clock)
    first.entry("a")
    save(first)
    (tmp_path / "other").mkdir()
    seen = hashed(monkeypatch)
    Workspace(tmp_path / "other", StoreIndex(tmp_path / "cache"), clock).entry("a")
    Workspace(root, StoreIndex(tmp_path / "cache"), clock).entry("a")
    assert seen == []  # the one has no such file, the other knows it
    put(tmp_path / "other", "a")
    Workspace(tmp_path / "other", StoreIndex(tmp_path / "cache"), clock).entry("a")
    assert seen == ["a"]


def test_looking_saves_nothing(root: Path) -> None:
    put(root, "a")
    workspace = Workspace(root, StoreIndex(root / ".orch23" / "index.sqlite"))
    workspace.entry("a")
    workspace.listing("**")
    assert not (root / ".orch23").exists()


# ---- listings --------------------------------------------------------------------------------------


FILES = (
    *("a.py", "b.txt", "src/a.py", "src/deep/b.py", "src/deep/er/c.py", "src/.hidden.py", "logs/run.jsonl"),
    *(".git/config", "src/__pycache__/a.pyc", "node_modules/x.py", "src/logs/x.py", ".orch23/VERSION"),
)


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.py", "**/*.py", "src/", "src/*", "src/**", "src/*/b.py", "src/**/er/*.py", "**", "*/*", "s?c/a.py"),
        *("a.py", "missing.py", "src/deep", ".git/*", "logs/**", "nowhere/**", "[ab].*", "src/logs/*", "./src/a.py"),
    ],
)
def test_a_listing_is_what_the_pattern_matches_and_no_more(root: Path, pattern: str) -> None:
    for path in FILES:
        put(root, path)
    expected = tuple(sorted(path for path in FILES if match(pattern, path) and not is_ignored(path, pattern)))
    assert Workspace(root, None).listing(pattern) == expected


SEGMENT = st.text("ab*?", min_size=1, max_size=3) | st.just("**")
NAME = st.text("ab", min_size=1, max_size=2)


PATHS = st.lists(NAME, min_size=1, max_size=4).map("/".join)


@given(st.lists(SEGMENT, min_size=1, max_size=4), st.sets(PATHS, max_size=8))
def test_pruning_never_loses_a_match(pattern: list[str], paths: set[str]) -> None:
    files = sorted(p for p in paths if not any(other.startswith(f"{p}/") for other in paths))
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            put(Path(folder), path)
        whole = "/".join(pattern)
        assert Workspace(Path(folder), None).listing(whole) == tuple(p for p in files if match(whole, p))


def test_no_folder_is_entered_that_cannot_hold_a_match(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in FILES:
        put(root, path)
    entered: list[str] = []
    real = os.scandir

    def scandir(path: str) -> object:
        entered.append(path.removeprefix(f"{root}/"))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    Workspace(root, None).listing("**/*.py")
    assert sorted(entered) == ["", "logs/", "src/", "src/deep/", "src/deep/er/", "src/logs/"]
    entered.clear()
    Workspace(root, None).listing("src/*/b.py")
    assert sorted(entered) == ["src/", "src/deep/", "src/logs/"]


def test_links_are_followed_below_the_root(root: Path) -> None:
    put(root, "src/a.py")
    put(root, "lib/deep/b.py")
    (root / "src/link.py").symlink_to("a.py")
    (root / "src/linked").symlink_to("../lib")
    (root / "lib/deep/again.py").symlink_to("../../src/link.py")
    (root / "whole").symlink_to(root / "src")
    (root / "nowhere.py").symlink_to("missing.py")
    workspace = Workspace(root, None)
    below = ("src/a.py", "src/link.py", "src/linked/deep/again.py", "src/linked/deep/b.py")
    assert workspace.listing("src/**/*.py") == below
    assert workspace.listing("whole/**") == tuple(path.replace("src", "whole", 1) for path in below)
    assert workspace.listing("src/linked/*/b.py") == ("src/linked/deep/b.py",)
    assert workspace.listing("*.py") == workspace.listing("nowhere.py") == ()
    found = workspace.input_entry("whole/linked/deep/again.py")
    assert found is not None
    assert found.link == "src/a.py"
    assert str(found) == f"{workspace.entry('src/a.py')} -> src/a.py"
    assert workspace.input_entry("src/a.py") == workspace.entry("src/a.py")
    assert workspace.writable_files("src/**") == ("src/a.py",)
    assert workspace.writable_files("whole/*") == workspace.writable_files("src/linked/**") == ()


@pytest.mark.parametrize(
    ("link", "text", "pattern"),
    [
        ("out", "../elsewhere", "**"),
        ("out", "../elsewhere", "out/*"),
        ("out", "/etc", "*/passwd"),
        ("file", "/etc/passwd", "*"),
        ("file", "/etc/passwd", "file"),
        ("file", "../elsewhere/x.py", "fil?"),
        ("src/up", "../../", "src/**"),
        ("src/me", ".", "src/**"),
        ("src/me", "../src", "src/**"),
        ("self", "self", "self"),
        ("self", "self", "**"),
        ("git", ".git", "git/*"),
        ("git", ".git/config", "g*"),
        ("kept", "lib/../.orch23/VERSION", "kept"),
    ],
)
def test_links_out_of_the_project_and_in_a_circle_are_errors(root: Path, link: str, text: str, pattern: str) -> None:
    for path in ("../elsewhere/x.py", "src/a.py", "lib/b.py", ".git/config", ".orch23/VERSION"):
        put(root, path)
    (root / link).symlink_to(text)
    with pytest.raises(SafetyError):
        Workspace(root, None).listing(pattern)


def test_two_links_that_lead_to_each_other_are_an_error(root: Path) -> None:
    put(root, "a/x")
    put(root, "b/y")
    (root / "a/b").symlink_to("../b")
    (root / "b/a").symlink_to("../a")
    with pytest.raises(SafetyError, match="in a circle"):
        Workspace(root, None).listing("**")


def test_names_that_are_not_utf8_and_temporary_files_are_not_listed(root: Path) -> None:
    put(root, "a.py")
    put(root, ".orch23-1-1.tmp")
    (root / os.fsdecode(b"\xff.py")).write_text("x")
    assert Workspace(root, None).listing("*") == ("a.py",)


@pytest.mark.slow  # without coverage, whose tracing of starting threads fails now and then in CPython 3.11
def test_many_threads_may_look(root: Path) -> None:
    for number in range(50):
        put(root, f"d{number % 5}/{number}", str(number))
    workspace = Workspace(root, StoreIndex(root / "cache"))
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda n: workspace.entry(f"d{n % 5}/{n}"), list(range(50)) * 4))
    assert entries == [FileEntry(digest_bytes(str(n).encode())) for n in range(50)] * 4


def test_what_went_away_since_it_was_looked_at_is_not_remembered_as_absent(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    workspace = Workspace(tmp_path, None)
    assert workspace.entry("a") is not None
    (tmp_path / "a").unlink()
    assert not workspace.add_to_snapshot(StatSnapshot(tmp_path.stat().st_ctime_ns + 10 * RACY_NS))


def is_remembered(workspace: Workspace, root: Path) -> bool:
    """Return whether what was looked at can be kept, at a time when nothing is young."""
    return workspace.add_to_snapshot(StatSnapshot(root.stat().st_ctime_ns + 10 * RACY_NS))


def test_a_file_that_was_another_for_a_while_is_not_remembered(tmp_path: Path) -> None:
    """Case: a stage was decided on the text in between, which is not there any more."""
    put(tmp_path, "a", "one")
    workspace = Workspace(tmp_path, None)
    for text in ("one", "two", "one"):
        put(tmp_path, "a", text)
        workspace.entry("a")
    assert not is_remembered(workspace, tmp_path)


def test_a_file_that_this_build_wrote_is_remembered(tmp_path: Path) -> None:
    put(tmp_path, "a", "one")
    workspace = Workspace(tmp_path, None)
    assert (workspace.entry("a"), workspace.entry("new")) == (FileEntry(digest_bytes(b"one")), None)
    put(tmp_path, "a", "two")
    put(tmp_path, "new", "new")
    workspace.note_written(["a", "new"])
    assert [workspace.entry(path) for path in ("a", "new")] == [FileEntry(digest_bytes(t)) for t in (b"two", b"new")]
    assert is_remembered(workspace, tmp_path)
    put(tmp_path, "a", "three")
    workspace.entry("a")
    assert not is_remembered(workspace, tmp_path)


def listed_now(root: Path, *, between: Callable[[], object] = lambda: None) -> str:
    """Return how a snapshot keeps a folder that is listed a moment after it changed."""
    put(root, "d/a")
    folder = str(root / "d")
    workspace = Workspace(root, None, Clock((root / "d").stat().st_ctime_ns))
    assert workspace.listing("d/*") == ("d/a",)
    between()
    snapshot = StatSnapshot(root.stat().st_ctime_ns + 10 * RACY_NS)
    assert workspace.add_to_snapshot(snapshot)
    return snapshot.outside[folder]


def test_a_young_folder_is_remembered_by_its_entries(tmp_path: Path) -> None:
    entries = listed_now(tmp_path)
    assert entries.startswith(ENTRIES)
    assert signature(str(tmp_path / "d"), ENTRIES) == entries


def test_a_folder_that_changed_after_it_was_listed_is_not_remembered(tmp_path: Path) -> None:
    def change() -> None:
        os.utime(tmp_path / "d", ns=(0, 0))

    assert listed_now(tmp_path, between=change) == RACY


def test_a_file_that_came_within_the_clock_tick_of_the_listing_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case: the times of the folder do not show it, and no stage was decided on it."""

    def add() -> None:
        frozen = signature(str(tmp_path / "d"))
        put(tmp_path, "d/b")
        monkeypatch.setattr(observations, "signature", lambda _path: frozen)

    entries = listed_now(tmp_path, between=add)
    assert entries.startswith(ENTRIES)
    assert signature(str(tmp_path / "d"), ENTRIES) != entries


def test_a_young_folder_that_was_listed_twice_with_other_entries_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "d/a")
    workspace = Workspace(tmp_path, None, Clock((tmp_path / "d").stat().st_ctime_ns))
    frozen = signature(str(tmp_path / "d"))
    monkeypatch.setattr(observations, "signature", lambda _path: frozen)
    assert workspace.listing("d/*") == ("d/a",)
    put(tmp_path, "d/b")
    assert workspace.listing("d/*") == ("d/a", "d/b")
    snapshot = StatSnapshot(tmp_path.stat().st_ctime_ns + 10 * RACY_NS)
    assert workspace.add_to_snapshot(snapshot)
    assert snapshot.outside[str(tmp_path / "d")] == RACY


def test_a_folder_that_became_a_link_is_not_remembered(tmp_path: Path) -> None:
    put(tmp_path, "real/a")
    workspace = Workspace(tmp_path, None)
    assert workspace.entry("gone/a") is None
    (tmp_path / "gone").symlink_to("real")
    assert not is_remembered(workspace, tmp_path)


def test_a_file_that_this_build_wrote_with_a_known_digest_is_not_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, seen = Workspace(tmp_path, None), hashed(monkeypatch)
    workspace.note_written_file("d/a", digest_bytes(b"one").sha256, replace_file(tmp_path, "d/a", b"one", 0o644))
    assert workspace.has_digest("d/a", digest_bytes(b"one").sha256)
    assert not workspace.has_digest("d/a", digest_bytes(b"two").sha256)
    assert seen == []
    looks = StatSnapshot(tmp_path.stat().st_ctime_ns + 10 * RACY_NS)
    assert workspace.add_to_snapshot(looks)
    assert (looks.paths, looks.ctimes) == (["d/a"], [0]), "its times are too young to show another edit"
    assert looks.contents((0,))[0][0] == digest_bytes(b"one").sha256


@pytest.mark.parametrize("text", ["two", "longer"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_edit_of_what_this_build_wrote_is_seen(tmp_path: Path, text: str, when: str) -> None:
    workspace = Workspace(tmp_path, None)
    written = replace_file(tmp_path, "a", b"one", 0o644)

    def edit() -> None:
        put(tmp_path, "a", text)
        os.utime(tmp_path / "a", ns=(0, written.st_mtime_ns + 1))

    if when == "before":
        edit()
    workspace.note_written_file("a", digest_bytes(b"one").sha256, written)
    if when == "after":
        edit()
    assert not workspace.has_digest("a", digest_bytes(b"one").sha256)
    assert workspace.has_digest("a", digest_bytes(text.encode()).sha256)


def test_a_file_that_is_gone_is_not_still_what_was_written(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, None)
    workspace.note_written_file("a", digest_bytes(b"one").sha256, replace_file(tmp_path, "a", b"one", 0o644))
    (tmp_path / "a").unlink()
    assert not workspace.has_digest("a", digest_bytes(b"one").sha256)


# ---- views for one moment -------------------------------------------------------------------------

LOOKED_AT = ("a/f", "a/b/g", "a/none", "gone/f", "gone/b/f", "f/below", "link", "link/g", "broken", "f", "a/b")


def look_at(view: Workspace, path: str) -> object:
    """Return everything that a view says of a path."""
    found: list[object] = [view.input_entry(path), view.resolved_path(path)]
    try:
        return [*found, view.entry(path), view.is_file(path), view.listing("a/**"), view.writable_files(f"{path}/*")]
    except SafetyError as error:
        return [*found, str(error)]


@pytest.fixture
def tree(root: Path) -> Path:
    for path in ("a/f", "a/b/g", "f"):
        put(root, path)
    (root / "link").symlink_to("a/b")
    (root / "broken").symlink_to("a/missing")
    return root


@pytest.mark.parametrize("first", LOOKED_AT)
def test_what_one_stage_has_looked_at_is_noted_for_the_next_one_too(tree: Path, first: str) -> None:
    for second in LOOKED_AT:
        moment, after_another, alone = Workspace(tree, None).for_one_moment(), set[str](), set[str]()
        look_at(moment.tracked(set()), first)
        found = look_at(moment.tracked(after_another), second)
        assert found == look_at(Workspace(tree, None).tracked(alone), second)
        assert after_another == alone


def test_a_missing_folder_is_noted_for_each_stage_since_a_link_there_would_be_an_error(tree: Path) -> None:
    moment = Workspace(tree, None).for_one_moment()
    for _ in range(2):
        reads = set[str]()
        assert moment.tracked(reads).entry("gone/b/f") is None
        assert reads == {"gone/b/f", str(tree / "gone")}


def test_a_view_for_one_moment_looks_at_each_path_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tree, None)
    view = workspace.for_one_moment()
    calls: list[str] = []

    def counted(real: Callable[[str], object]) -> Callable[[str], object]:
        def call(path: str) -> object:
            calls.append(path)
            return real(path)

        return call

    monkeypatch.setattr(os, "lstat", counted(os.lstat))
    monkeypatch.setattr(os, "readlink", counted(os.readlink))
    for _ in range(3):
        for path in ("a/f", "a/b/g", "a/none", "gone/f", "f"):
            view.entry(path)
            view.tracked(set()).entry(path)
    assert sorted(calls) == [str(tree / path) for path in ("a", "a/b", "a/b/g", "a/f", "a/none", "f", "gone")]
    view.resolved_path("a/b/g")
    view.resolved_path("a/b/g")
    assert len(calls) == 8, "`a` and `a/b` are known as folders, and `a/b/g` is looked at once more"
    put(tree, "a/none")
    assert (view.entry("a/none"), workspace.entry("a/none")) == (None, FileEntry(digest_bytes(b"x")))
    view.invalidate(["a/none"])
    assert view.entry("a/none") == FileEntry(digest_bytes(b"x"))


def test_a_decision_hashes_a_young_file_once_and_the_next_decision_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "f")
    workspace, paths = Workspace(root, None), hashed(monkeypatch)
    for _ in range(2):
        decision = workspace.tracked(set())
        assert decision.entry("f") == decision.entry("f") == FileEntry(digest_bytes(b"x"))
    assert paths == ["f", "f"]


def test_a_file_with_its_change_time_of_the_snapshot_is_not_hashed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = put(root, "d/a")
    put(root, "d/b")
    clock = Clock(first.stat().st_ctime_ns + 3 * RACY_NS)
    earlier, snapshot = Workspace(root, None, clock), StatSnapshot(clock.now_ns)
    entries = {path: earlier.entry(path) for path in ("d/a", "d/b")}
    assert earlier.add_to_snapshot(snapshot)
    workspace, reads, seen = Workspace(root, None, clock), set[str](), hashed(monkeypatch)
    workspace.earlier.use_snapshot(snapshot)
    snapshot.merge(StatSnapshot(clock.now_ns), SnapshotDifference({}, ["d/a", "d/b"]), ())
    view = workspace.tracked(reads)
    assert (view.unchanged(entries), seen, reads) == (entries, [], {"d/a", "d/b"})
    (root / "d/a").write_text("edited")
    assert workspace.for_one_moment().unchanged(entries) == {"d/b": entries["d/b"]}
    assert view.unchanged(entries) == entries, "a view for one moment looks once"
    assert workspace.for_one_moment(continued=True).unchanged(["d/b", "d/c"]) == {"d/b": entries["d/b"]}
    (root / "d").rename(root / "e")
    (root / "d").symlink_to("e")
    assert workspace.for_one_moment().unchanged(entries) == {}
    with pytest.raises(SafetyError):
        workspace.entry("d/b")


def test_files_that_were_just_compared_are_not_looked_at_until_something_is_written_or_ends(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(root, "d/a")
    for name in ("b", "c", "e"):
        put(root, f"d/{name}")
    clock = Clock(first.stat().st_ctime_ns + 3 * RACY_NS)
    earlier, snapshot = Workspace(root, None, clock), StatSnapshot(clock.now_ns)
    entries = {path: earlier.entry(path) for path in ("d/a", "d/b", "d/c", "d/e")}
    assert earlier.add_to_snapshot(snapshot)
    touched = SnapshotDifference({snapshot.paths.index("d/b"): 7}, ["d/c"])
    looks, lstat = list[str](), os.lstat

    def look(path: str) -> os.stat_result:
        looks.append(Path(path).name)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", look)

    def looked_at(view: Workspace) -> set[str]:
        looks.clear()
        assert view.unchanged(entries) == entries
        return {*looks} - {"d"}

    for end in (lambda w: w.announce_writes(["o"]), lambda w: w.note_written(["o"]), lambda w: w.for_one_moment()):
        workspace = Workspace(root, None, clock)
        workspace.earlier.use_snapshot(snapshot)
        assert looked_at(workspace.tracked(set())) == {"a", "b", "c", "e"}, "not compared"
        workspace.earlier.use_comparison(touched)
        assert looked_at(workspace.tracked(set())) == {"b", "c"}, "they differed"
        assert looked_at(workspace.tracked(set())) == {"b", "c"}
        end(workspace)
        assert looked_at(workspace.tracked(set())) == {"a", "b", "c", "e"}


def test_a_file_that_git_converts_is_hashed_by_each_process(root: Path) -> None:
    first = put(root, "f")
    first.write_text("x\r\n")
    clock = Clock(first.stat().st_ctime_ns + 3 * RACY_NS)
    earlier, snapshot = Workspace(root, None, clock), StatSnapshot(clock.now_ns)
    earlier.as_committed = lambda _path, _descriptor: b"x\n"
    assert earlier.entry("f") == FileEntry(digest_bytes(b"x\n"))
    assert earlier.add_to_snapshot(snapshot)
    workspace = Workspace(root, None, clock)
    workspace.earlier.use_snapshot(snapshot)
    workspace.earlier.use_comparison(SnapshotDifference({}, []))
    assert workspace.tracked(set()).unchanged(["f"]) == {}
    assert workspace.tracked(set()).entry("f") == FileEntry(digest_bytes(b"x\r\n"))
