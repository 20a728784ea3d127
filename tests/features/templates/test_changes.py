"""The change of each file, by the old template, the new template and the file of the user."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.templates.changes import (
    ChangeKind,
    MergeFunctions,
    NotAFile,
    PathState,
    TemplateChange,
    TemplateFile,
    init_change,
    update_changes,
)

A, B, C = TemplateFile(b"a\n"), TemplateFile(b"b\n"), TemplateFile(b"c\n")
RUN = TemplateFile(b"a\n", executable=True)
LINK = NotAFile("is a link")


def clean(mine: bytes, base: bytes, theirs: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Merge by putting all three together."""
    return mine + base + theirs, ()


def clash(mine: bytes, base: bytes, theirs: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Merge with conflicts."""
    return b"<<<" + mine + theirs, (1, 7)


def no_text(mine: bytes, base: bytes, theirs: bytes) -> tuple[None, tuple[int, ...]]:
    """Refuse to merge."""
    return None, ()


def update(
    base: TemplateFile | None, theirs: TemplateFile | None, mine: PathState, merge=clean
) -> tuple[TemplateChange, ...]:
    return update_changes("x", base, theirs, mine, MergeFunctions(merge, lambda path: f"{path}.new"))


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "kind", "after"),
    [
        (A, A, B, ChangeKind.SAME, None),
        (A, A, None, ChangeKind.SAME, None),
        (A, B, B, ChangeKind.SAME, None),
        (A, B, A, ChangeKind.UPDATE, B),
        (A, RUN, A, ChangeKind.UPDATE, RUN),
        (A, B, C, ChangeKind.MERGE, TemplateFile(b"c\na\nb\n")),
        (None, B, C, ChangeKind.MERGE, TemplateFile(b"c\nb\n")),
        (None, A, None, ChangeKind.CREATE, A),
        (None, A, RUN, ChangeKind.SAME, None),
        (A, B, None, ChangeKind.KEEP, None),
        (A, None, A, ChangeKind.DELETE, None),
        (A, None, B, ChangeKind.KEEP, None),
        (A, None, None, ChangeKind.SAME, None),
        (A, B, LINK, ChangeKind.CONFLICT, None),
    ],
)
def test_an_update_of_one_file(base, theirs, mine, kind, after) -> None:
    (change,) = update(base, theirs, mine)
    assert (change.kind, change.after) == (kind, after)


def test_a_conflict_is_written_with_its_lines() -> None:
    (change,) = update(A, B, C, clash)
    assert (change.kind, change.lines, change.after) == (ChangeKind.CONFLICT, (1, 7), TemplateFile(b"<<<c\nb\n"))


def test_a_file_that_is_not_a_text_stays_and_the_new_version_is_beside_it() -> None:
    kept, beside = update(A, B, C, no_text)
    assert (kept.kind, kept.after, kept.path) == (ChangeKind.CONFLICT, None, "x")
    assert (beside.kind, beside.after, beside.path) == (ChangeKind.CREATE, B, "x.new")


def test_a_merge_that_equals_the_users_file_writes_nothing() -> None:
    (change,) = update(A, B, C, lambda mine, _base, _theirs: (mine, ()))
    assert (change.kind, change.after) == (ChangeKind.KEEP, None)


def test_a_merged_program_stays_executable() -> None:
    (change,) = update(A, B, TemplateFile(b"c\n", executable=True))
    assert change.after is not None
    assert change.after.executable


files = st.none() | st.builds(TemplateFile, st.sampled_from([b"a\n", b"b\n", b"c\n"]), st.booleans())


@given(files, files, files, st.sampled_from([clean, clash, no_text]))
def test_a_user_edit_is_never_lost(base, theirs, mine, merge) -> None:
    for change in update(base, theirs, mine, merge):
        if change.path != "x" or mine is None or (base is not None and mine.data == base.data):
            continue
        assert change.kind is not ChangeKind.DELETE
        assert change.after is None or mine.data in change.after.data or mine.data == change.after.data


@pytest.mark.parametrize(
    ("mine", "existing", "kind", "after"),
    [
        (None, ChangeKind.CONFLICT, ChangeKind.CREATE, A),
        (A, ChangeKind.CONFLICT, ChangeKind.SAME, None),
        (RUN, ChangeKind.OVERWRITE, ChangeKind.SAME, None),
        (B, ChangeKind.CONFLICT, ChangeKind.CONFLICT, None),
        (B, ChangeKind.KEEP, ChangeKind.KEEP, None),
        (B, ChangeKind.OVERWRITE, ChangeKind.OVERWRITE, A),
        (LINK, ChangeKind.OVERWRITE, ChangeKind.CONFLICT, None),
        (LINK, ChangeKind.KEEP, ChangeKind.CONFLICT, None),
    ],
)
def test_init_of_one_file(mine, existing, kind, after) -> None:
    change = init_change("x", A, mine, existing)
    assert (change.kind, change.after) == (kind, after)
