"""What becomes of each file: a table of what the template had, what it has, and what the user made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.templates.changes import Blocked, Change, Existing, File, Kind, Merging, There, of_init, of_update

A, B, C = File(b"a\n"), File(b"b\n"), File(b"c\n")
RUN = File(b"a\n", executable=True)
LINK = Blocked("is a link")


def clean(mine: bytes, base: bytes, theirs: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Merge by putting all three together."""
    return mine + base + theirs, ()


def clash(mine: bytes, base: bytes, theirs: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Merge with conflicts."""
    return b"<<<" + mine + theirs, (1, 7)


def no_text(mine: bytes, base: bytes, theirs: bytes) -> tuple[None, tuple[int, ...]]:
    """Refuse to merge."""
    return None, ()


def update(base: File | None, theirs: File | None, mine: There, merge=clean) -> tuple[Change, ...]:
    had = {} if base is None else {"x": base}
    has = {} if theirs is None else {"x": theirs}
    return of_update(had, has, {"x": mine}, Merging(merge, lambda path: f"{path}.new"))


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "kind", "after"),
    [
        (A, A, B, Kind.SAME, None),
        (A, A, None, Kind.SAME, None),
        (A, B, B, Kind.SAME, None),
        (A, B, A, Kind.UPDATE, B),
        (A, RUN, A, Kind.UPDATE, RUN),
        (A, B, C, Kind.MERGE, File(b"c\na\nb\n")),
        (None, B, C, Kind.MERGE, File(b"c\nb\n")),
        (None, A, None, Kind.CREATE, A),
        (None, A, RUN, Kind.SAME, None),
        (A, B, None, Kind.KEEP, None),
        (A, None, A, Kind.DELETE, None),
        (A, None, B, Kind.KEEP, None),
        (A, None, None, Kind.SAME, None),
        (A, B, LINK, Kind.CONFLICT, None),
    ],
)
def test_an_update_of_one_file(base, theirs, mine, kind, after) -> None:
    (change,) = update(base, theirs, mine)
    assert (change.kind, change.after) == (kind, after)


def test_a_conflict_is_written_with_its_lines() -> None:
    (change,) = update(A, B, C, clash)
    assert (change.kind, change.lines, change.after) == (Kind.CONFLICT, (1, 7), File(b"<<<c\nb\n"))


def test_what_is_no_text_stays_and_the_templates_lies_beside_it() -> None:
    kept, beside = update(A, B, C, no_text)
    assert (kept.kind, kept.after, kept.path) == (Kind.CONFLICT, None, "x")
    assert (beside.kind, beside.after, beside.path) == (Kind.CREATE, B, "x.new")


def test_a_merge_that_gives_mine_writes_nothing() -> None:
    (change,) = update(A, B, C, lambda mine, _base, _theirs: (mine, ()))
    assert (change.kind, change.after) == (Kind.KEEP, None)


def test_a_merged_program_can_still_be_run() -> None:
    (change,) = update(A, B, File(b"c\n", executable=True))
    assert change.after is not None
    assert change.after.executable


files = st.none() | st.builds(File, st.sampled_from([b"a\n", b"b\n", b"c\n"]), st.booleans())


@given(files, files, files, st.sampled_from([clean, clash, no_text]))
def test_an_edit_of_the_users_is_never_lost(base, theirs, mine, merge) -> None:
    for change in update(base, theirs, mine, merge):
        if change.path != "x" or mine is None or (base is not None and mine.data == base.data):
            continue
        assert change.kind is not Kind.DELETE
        assert change.after is None or mine.data in change.after.data or mine.data == change.after.data


@pytest.mark.parametrize(
    ("mine", "existing", "kind", "after"),
    [
        (None, Existing.STOP, Kind.CREATE, A),
        (A, Existing.STOP, Kind.SAME, None),
        (RUN, Existing.OVERWRITE, Kind.SAME, None),
        (B, Existing.STOP, Kind.CONFLICT, None),
        (B, Existing.KEEP, Kind.KEEP, None),
        (B, Existing.OVERWRITE, Kind.OVERWRITE, A),
        (LINK, Existing.OVERWRITE, Kind.CONFLICT, None),
        (LINK, Existing.KEEP, Kind.CONFLICT, None),
    ],
)
def test_init_of_one_file(mine, existing, kind, after) -> None:
    (change,) = of_init({"x": A}, {"x": mine}, existing)
    assert (change.kind, change.after) == (kind, after)
