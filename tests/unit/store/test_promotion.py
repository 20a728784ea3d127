import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError, SafetyError
from orch23.model.file_policy import DeclaredPatterns
from orch23.store.content_store import DiskContentStore
from orch23.store.json_text import TRUSTED
from orch23.store.promotion import Promoter, PromotionResult
from orch23.store.record_format import entries_to_json
from orch23.store.workspace import Workspace
from tests.doubles import file_digest

Texts = Mapping[str, str | None]


class Place:
    """A project with a store, spoken of in texts."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir(parents=True)
        self.contents = DiskContentStore(folder / "cas")
        self.redo = folder / "promote.json"

    def promoter(self) -> Promoter:
        return Promoter(self.root, self.redo, self.contents, file_digest)

    def entries(self, texts: Texts) -> dict[str, FileEntry | None]:
        return {p: None if t is None else FileEntry(self.contents.put(t.encode())) for p, t in texts.items()}

    def put(self, texts: Texts) -> None:
        for path, text in texts.items():
            if text is not None:
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).write_text(text)

    def promote(self, new: Texts, old: Texts) -> PromotionResult:
        return self.promoter().promote(self.entries(new), self.entries(old))

    def files(self) -> dict[str, str]:
        found = sorted(p for p in self.root.rglob("*") if p.is_file() or p.is_symlink())
        return {p.relative_to(self.root).as_posix(): p.read_text() for p in found}

    def folders(self) -> set[str]:
        return {p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_dir()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


OLD: Texts = {"src/a.py": "a1", "src/b.py": "b1", "old/deep/c.py": "c1", "new/d.py": None}
NEW: Texts = {"src/a.py": "a2", "src/b.py": "b1", "old/deep/c.py": None, "new/d.py": "d2"}
AFTER = {"src/a.py": "a2", "src/b.py": "b1", "new/d.py": "d2"}
BEFORE = {path: text for path, text in OLD.items() if text is not None}


def test_files_are_written_replaced_and_removed(place: Place) -> None:
    place.put(OLD)
    done = place.promote(NEW, OLD)
    assert place.files() == AFTER
    assert done == PromotionResult(("new/d.py", "src/a.py"), ("old/deep/c.py",), ())
    assert place.folders() == {"src", "new"}
    assert not place.redo.exists()


def test_promoting_twice_is_harmless_and_the_second_time_writes_nothing(place: Place) -> None:
    place.put(OLD)
    place.promote(NEW, OLD)
    inode = (place.root / "src/a.py").stat().st_ino
    place.promote(NEW, OLD)
    assert place.promote(NEW, NEW) == PromotionResult()
    assert place.files() == AFTER
    assert (place.root / "src/a.py").stat().st_ino == inode


def test_the_executable_bit_is_part_of_a_file(place: Place) -> None:
    digest = place.contents.put(b"run")
    plain, program = FileEntry(digest), FileEntry(digest, executable=True)
    place.promoter().promote({"x": plain}, {})
    place.promoter().promote({"x": program}, {"x": plain})
    assert Workspace(place.root, None).entry("x") == program


def test_a_file_that_the_user_edited_meanwhile_is_left_and_named(place: Place) -> None:
    place.put({**OLD, "src/a.py": "edited", "old/deep/c.py": "edited", "new/d.py": "mine"})
    done = place.promote({**NEW, "src/e.py": "e2"}, OLD)
    assert done == PromotionResult(("src/e.py",), (), ("new/d.py", "old/deep/c.py", "src/a.py"))
    assert place.files()["src/a.py"] == "edited"
    assert place.files()["old/deep/c.py"] == "edited"
    assert place.files()["new/d.py"] == "mine"


def test_a_path_that_old_does_not_name_must_be_free(place: Place) -> None:
    place.put({"a": "mine"})
    assert place.promote({"a": "new"}, {}) == PromotionResult((), (), ("a",))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_anything_but_a_regular_file_is_a_user_edit(place: Place, kind: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("victim")
    target = place.root / "a"
    if kind == "link":
        target.symlink_to(tmp_path / "victim")
    elif kind == "pipe":
        os.mkfifo(target)
    else:
        target.mkdir()
    before = target.lstat().st_mode
    for old in ({}, {"a": "victim"}):
        assert place.promote({"a": "new"}, old).edited == ("a",)
        assert place.promote({"a": None}, {"a": "victim"}).edited == ("a",)
    assert target.lstat().st_mode == before
    assert (tmp_path / "victim").read_text() == "victim"


@pytest.mark.parametrize("path", ["linked/a", "deep/linked/a", "../a", "/tmp/orch23-a", "a/../b", ""])
def test_no_promotion_leaves_the_root(place: Place, tmp_path: Path, path: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (place.root / "deep").mkdir()
    (place.root / "linked").symlink_to(tmp_path / "elsewhere")
    (place.root / "deep" / "linked").symlink_to("../../elsewhere")
    for text in ("new", None):
        with pytest.raises(SafetyError):
            place.promote({"ok": "ok", path: text}, {path: "x"})
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (place.root / "ok").exists()
    assert not place.redo.exists()


def test_a_link_that_was_made_between_the_look_and_the_write_is_not_followed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (place.root / "d").mkdir()
    real = Promoter._apply  # the moment between the look and the write

    def late(self: Promoter, *args: Any) -> PromotionResult:
        (place.root / "d").rmdir()
        (place.root / "d").symlink_to(tmp_path / "elsewhere")
        return real(self, *args)

    monkeypatch.setattr(Promoter, "_apply", late)
    with pytest.raises(SafetyError):
        place.promote({"d/a": "new"}, {})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_the_bytes_nothing_is_written(place: Place) -> None:
    lost = FileEntry(digest_bytes(b"lost"))
    good = FileEntry(place.contents.put(b"good"))
    with pytest.raises(MissingBytesError):
        place.promoter().promote({"a": good, "z": lost}, {})
    assert place.files() == {}


def test_a_directory_may_become_a_file_and_a_file_a_directory(place: Place) -> None:
    old = {"a": "file", "b/x": "x", "b/y/z": "z"}
    new = {"a": None, "a/x": "x", "b/x": None, "b/y/z": None, "b": "file"}
    place.put(old)
    assert place.promote(new, old).edited == ()
    assert place.files() == {"a/x": "x", "b": "file"}


def test_a_file_where_a_directory_should_be_is_a_user_edit(place: Place) -> None:
    place.put({"a": "mine"})
    assert place.promote({"a/b": "new", "c": "c"}, {}) == PromotionResult(("c",), (), ("a/b",))
    assert place.files() == {"a": "mine", "c": "c"}


def test_a_folder_that_is_not_empty_stays(place: Place) -> None:
    place.put({"d/ours": "1", "d/theirs": "2"})
    place.promote({"d/ours": None}, {"d/ours": "1"})
    assert place.files() == {"d/theirs": "2"}


def test_a_shared_inode_is_not_written_through(place: Place, tmp_path: Path) -> None:
    place.put({"a": "old"})
    (tmp_path / "other").hardlink_to(place.root / "a")
    place.promote({"a": "new"}, {"a": "old"})
    assert (tmp_path / "other").read_text() == "old"


def test_nothing_interrupted_nothing_to_recover(place: Place) -> None:
    assert place.promoter().recover() is None


@pytest.mark.slow
def test_after_a_fault_at_any_call_all_files_are_old_or_all_are_new(
    tmp_path: Path, disk: Any, fault: int | None
) -> None:
    states: list[str] = []

    def make(at: int) -> Callable[[], object]:
        place = Place(tmp_path / str(at))
        make.place = place  # type: ignore[attr-defined]
        place.put(OLD)
        new, old = place.entries(NEW), place.entries(OLD)
        return lambda: place.promoter().promote(new, old)

    def check() -> None:
        place: Place = make.place  # type: ignore[attr-defined]
        for path in OLD:
            here = place.root / path
            assert (here.read_text() if here.exists() else None) in (OLD[path], NEW[path])
        place.promoter().recover()
        states.append("after" if place.files() == AFTER else "before")
        assert place.files() in (BEFORE, AFTER)
        assert not place.redo.exists()
        assert place.promoter().recover() is None

    assert disk.every_point(make, fault, check) >= 12
    assert {"before", "after"} == set(states)


@pytest.mark.slow
def test_a_fault_during_recovery_can_be_recovered_from(tmp_path: Path, disk: Any, fault: int | None) -> None:
    def make(at: int) -> Callable[[], object]:
        place = Place(tmp_path / str(at))
        make.place = place  # type: ignore[attr-defined]
        place.put(OLD)
        new, old = place.entries(NEW), place.entries(OLD)
        with disk.failing(9, None):
            place.promoter().promote(new, old)
        assert place.redo.exists()
        return lambda: place.promoter().recover()

    def check() -> None:
        place: Place = make.place  # type: ignore[attr-defined]
        place.promoter().recover()
        assert place.files() == AFTER

    disk.every_point(make, fault, check)


def crashed(place: Place, disk: Any) -> None:
    place.put(OLD)
    new, old = place.entries(NEW), place.entries(OLD)
    with disk.failing(7, None):
        place.promoter().promote(new, old)
    assert place.redo.exists()
    assert place.files() != AFTER


def test_recovery_takes_what_was_done_before_the_crash_as_done(place: Place, disk: Any) -> None:
    place.put(OLD)
    new, old = place.entries(NEW), place.entries(OLD)
    for at in range(1, 100):
        with disk.failing(at, None):
            place.promoter().promote(new, old)
        if place.files() == AFTER and place.redo.exists():
            break
        place.promoter().recover()
        place.promoter().promote(old, new)
    assert place.promoter().recover() == PromotionResult(("new/d.py", "src/a.py"), ("old/deep/c.py",), ())


def test_recovery_leaves_later_user_edits(place: Place, disk: Any) -> None:
    crashed(place, disk)
    place.put({"src/a.py": "edited since"})
    done = place.promoter().recover()
    assert done is not None
    assert done.edited == ("src/a.py",)
    assert place.files() == {**AFTER, "src/a.py": "edited since"}


def test_a_damaged_redo_record_is_never_acted_on(place: Place, disk: Any, damage: Callable[[Path], None]) -> None:
    crashed(place, disk)
    before = place.files()
    damage(place.redo)
    promoter = place.promoter()
    assert promoter.recover() is None
    assert place.files() == before
    assert len(promoter.damaged) == 1
    assert not place.redo.exists()


def test_recovery_without_the_bytes_promotes_the_rest(place: Place, disk: Any) -> None:
    crashed(place, disk)
    place.contents.path_of(digest_bytes(b"a2")).unlink()
    promoter = place.promoter()
    promoter.recover()
    assert place.files() == {**AFTER, "src/a.py": "a1"}
    assert len(promoter.damaged) == 1


PATHS = st.sampled_from(["a", "b", "a/x", "a/y", "d/e/f", "d/e/g", "d/h"])
TREES = st.dictionaries(PATHS, st.sampled_from(["1", "2", ""]), max_size=5).filter(
    lambda tree: not any(other.startswith(f"{path}/") for path in tree for other in tree)
)


@given(TREES, TREES)
def test_any_tree_becomes_any_other(old: dict[str, str], new: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        place.put(old)
        wanted: Texts = {path: new.get(path) for path in {*old, *new}}
        assert place.promote(wanted, old).edited == ()
        assert place.files() == dict(sorted(new.items()))


def test_the_redo_record_is_there_before_the_first_file_changes_and_until_all_are_on_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(OLD)
    seen: list[tuple[bool, dict[str, str]]] = []
    real = Promoter._remove  # the first change

    def remove(self: Promoter, *args: Any) -> bool:
        seen.append((place.redo.exists(), place.files()))
        return real(self, *args)

    monkeypatch.setattr(Promoter, "_remove", remove)
    monkeypatch.setattr(
        "orch23.store.promotion.sync_filesystem", lambda _: seen.append((place.redo.exists(), place.files()))
    )
    place.promote(NEW, OLD)
    assert [kept for kept, _ in seen] == [
        True,
        True,
        True,
    ]  # at first, with all bytes, with all names
    assert seen[0][1] == BEFORE
    assert seen[2][1] == AFTER
    assert not place.redo.exists()


def test_no_file_has_its_name_before_the_bytes_of_all_are_on_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(BEFORE)
    seen: list[tuple[list[str], list[str]]] = []

    def sync(_root: Path) -> None:
        found = place.files()
        seen.append((sorted(text for path, text in found.items() if ".orch23-" in path), sorted(found.values())))

    monkeypatch.setattr("orch23.store.promotion.sync_filesystem", sync)
    place.promote({"src/a.py": "a2", "src/b.py": "b2", "new/d.py": "d2"}, BEFORE)
    assert [temps for temps, _ in seen] == [["a2", "b2", "d2"], []]
    assert seen[0][1] == sorted(["a2", "b2", "d2", *BEFORE.values()])


def test_what_is_pending_is_what_a_recovery_leaves_and_looking_changes_nothing(place: Place, disk: Any) -> None:
    crashed(place, disk)
    (place.root / "src/a.py").write_text("mine")
    before = place.files()
    pending = place.promoter().pending()
    assert place.files() == before
    assert "src/a.py" not in pending
    place.promoter().recover()
    after = Workspace(place.root, None)
    assert {path: after.entry(path) for path in pending} == dict(pending)
    assert place.promoter().pending() == {}


# ---- protected names ------------------------------------------------------------------------------

HELD = (".git/config", "sub/.git/hooks/x", ".orch23/records/x", "logs/x.jsonl", "conftest.py", ".venv/bin/python")


@pytest.mark.parametrize("path", HELD)
@pytest.mark.parametrize("text", ["new", None])
def test_a_protected_path_is_neither_written_nor_removed(place: Place, path: str, text: str | None) -> None:
    place.put({path: "old", "a": "1"})
    before = place.files()
    with pytest.raises(SafetyError, match=r"E694.*left as it is"):
        place.promote({path: text, "a": "2"}, {path: "old", "a": "1"})
    assert place.files() == before
    assert not place.redo.exists()


def test_one_that_is_as_it_should_be_keeps_nothing_from_being_promoted(place: Place) -> None:
    place.put({"conftest.py": "1"})
    assert place.promote({"conftest.py": "1", "a": "2"}, {"conftest.py": "1"}).written == ("a",)


def test_of_many_the_first_are_named(place: Place) -> None:
    with pytest.raises(SafetyError) as refused:
        place.promote({f"{number:02}/conftest.py": "x" for number in range(30)}, {})
    reported = [one.message for one in refused.value.diagnostics]
    assert len(reported) == 11
    assert reported[-1] == "20 more paths were left as they are"


def test_a_declared_one_is_written_and_removed(place: Place) -> None:
    declared = DeclaredPatterns(("conftest.py", "**/pyproject.toml", "vendor/"))
    new = {"conftest.py": "1", "vendor/a/pyproject.toml": "2"}
    done = place.promoter().promote(place.entries(new), {}, declared.write_error)
    assert done.written == ("conftest.py", "vendor/a/pyproject.toml")
    gone = place.promoter().promote(dict.fromkeys(new), place.entries(new), declared.write_error)
    assert gone.removed == ("conftest.py", "vendor/a/pyproject.toml")


@pytest.mark.parametrize("path", [".git/config", ".orch23/records/x", "logs/x.jsonl"])
def test_some_are_not_even_then(place: Place, path: str) -> None:
    with pytest.raises(SafetyError, match="E694"):
        place.promoter().promote(place.entries({path: "1"}), {}, DeclaredPatterns((path, "**")).write_error)
    assert place.files() == {}


PIPELINE = "version: 1\nstages:\n  a: {shell: 'true'}\n"


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        ({"d/x.yaml": PIPELINE}, True),
        ({"d/x.yml": PIPELINE}, True),
        ({"d/x.yaml": '{"name": "x", "version": 1, "stages": {}}'}, True),
        ({"d/x.lock": '{\n "orch23_lock": 1}'}, True),
        ({"d/x.yaml": "version: 1.0.0\nname: web\n"}, False),
        ({}, False),
    ],
)
def test_the_lock_file_of_a_pipeline_is_orch23s_alone(place: Place, there: Texts, refused: bool) -> None:
    place.put(there)
    before = place.files()
    old = {"d/x.lock": there.get("d/x.lock")}
    declared = DeclaredPatterns(("d/x.lock",)).write_error
    if refused:
        with pytest.raises(SafetyError, match="lock file of a pipeline"):
            place.promoter().promote(place.entries({"d/x.lock": "1"}), place.entries(old), declared)
        assert place.files() == before
    else:
        assert place.promoter().promote(place.entries({"d/x.lock": "1"}), {}, declared).written == ("d/x.lock",)


def interrupted(place: Place, new: Texts, old: Texts) -> None:
    """Leave a redo record of which nothing was done."""
    document = {"new": entries_to_json(place.entries(new)), "old": entries_to_json(place.entries(old))}
    place.redo.write_bytes(TRUSTED.encode(document))


def test_an_interrupted_promotion_of_protected_paths_is_finished_without_them(place: Place) -> None:
    old = dict.fromkeys(HELD, "old")
    place.put(old)
    interrupted(place, {**dict.fromkeys(HELD[:3]), **dict.fromkeys(HELD[3:], "new"), "a": "1"}, old)
    promoter = place.promoter()
    assert promoter.recover() == PromotionResult(("a",), (), ())
    assert place.files() == {**old, "a": "1"}
    assert len(promoter.damaged) == len(HELD)
    assert not place.redo.exists()


def test_what_the_pipeline_declares_of_it_is_promoted(place: Place) -> None:
    interrupted(place, {"conftest.py": "1"}, {})
    assert place.promoter().recover(DeclaredPatterns(("conftest.py",)).write_error) == PromotionResult(
        ("conftest.py",), (), ()
    )


def test_what_is_pending_leads_to_nothing_sealed(place: Place) -> None:
    interrupted(place, {".git/config": "1", "a": "1"}, {})
    assert list(place.promoter().pending()) == ["a"]
