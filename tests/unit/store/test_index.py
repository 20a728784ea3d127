"""The index gives what was written, or says that it cannot be read; it never gives anything else."""

import contextlib
import os
import random
import signal
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.store.index import IndexFaultError, StoreIndex

pytestmark = pytest.mark.slow  # files are damaged at each place

ROWS = {f"key {number}".encode(): f"value {number}".encode() * (number % 5) for number in range(100)}
KEYS = st.integers(0, 30).map(lambda number: f"k{number}".encode())
EDITS = st.lists(st.tuples(st.sampled_from("ab"), KEYS, st.one_of(st.none(), st.binary(max_size=9))), max_size=8)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[StoreIndex]:
    made = StoreIndex(tmp_path / "store" / "index.sqlite")
    made.write({"a": ROWS, "b": {}})
    yield made
    made.close()


def test_rows_come_back_and_a_missing_row_is_none(index: StoreIndex) -> None:
    assert dict(index.rows("a")) == ROWS
    assert dict(index.rows("b")) == {}
    for _ in range(4):  # after many questions it has the whole table
        assert all(index.get("a", key) == value for key, value in ROWS.items())
    assert index.get("a", b"other") is None
    assert index.get("b", b"key 1") is None
    assert index.has_table("a")
    assert not index.has_table("c")
    assert index.tables() == ("a", "b")
    with pytest.raises(IndexFaultError):
        index.get("c", b"key 1")
    assert stat.S_IMODE(index.path.stat().st_mode) == 0o600


@given(st.lists(st.tuples(EDITS, st.booleans()), max_size=6))
def test_any_history_of_writes_leaves_what_a_mapping_would(
    steps: list[tuple[list[tuple[str, bytes, bytes]], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = StoreIndex(Path(folder) / "x")
        known: dict[str, dict[bytes, bytes]] = {"a": {}, "b": {}}
        index.write(known)
        for edits, again in steps:
            changed: dict[str, dict[bytes, bytes | None]] = {}
            for table, key, value in edits:
                changed.setdefault(table, {})[key] = value
            for table, some in changed.items():
                known[table] |= {key: value for key, value in some.items() if value is not None}
                known[table] = {key: value for key, value in known[table].items() if some.get(key, b"") is not None}
            index.write({"a": known["a"]} if again else {}, changed if not again else {"b": changed.get("b", {})})
            reader = StoreIndex(Path(folder) / "x")
            assert {table: dict(reader.rows(table)) for table in known} == known
            assert all(reader.get("a", f"k{n}".encode()) == known["a"].get(f"k{n}".encode()) for n in range(31))
            reader.close()
        index.close()


def answers(index: StoreIndex) -> dict[bytes, bytes | None]:
    return {key: index.get("a", key) for key in (*ROWS, b"other")}


@pytest.mark.stride(3)
@pytest.mark.parametrize("kind", ["flip", "zero", "cut", "swap"])
def test_damage_is_a_fault_and_never_another_value(index: StoreIndex, kind: str) -> None:
    right = {**ROWS, b"other": None}
    index.close()
    sound = index.path.read_bytes()
    faults = 0
    for at in range(0, len(sound), 61):
        damaged = {
            "flip": sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :],
            "zero": sound[:at] + bytes(512) + sound[at + 512 :],
            "cut": sound[:at],
            "swap": sound[:at] + sound[-64:] + sound[at + 64 :],
        }[kind]
        index.path.write_bytes(damaged)
        reader = StoreIndex(index.path)
        try:
            assert answers(reader) == right
        except IndexFaultError:
            faults += 1
        assert all(isinstance(name, str) for name in reader.tables())
        reader.close()
        assert index.path.read_bytes() == damaged, "who reads writes nothing"
    assert faults > 0


COLUMNS = [
    ("tables", "number"),
    ("tables", "name"),
    ("tables", "buckets"),
    ("tables", "sum"),
    ("rows", "place"),
    ("rows", "data"),
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
@pytest.mark.parametrize("value", ["NULL", "1", "-1", "1.5", "'x'", "x'00ff'", "CAST({} AS BLOB)", "CAST({} AS TEXT)"])
def test_a_value_of_another_type_is_a_fault_and_never_another_value(
    index: StoreIndex, table: str, column: str, value: str
) -> None:
    index.close()
    with contextlib.closing(sqlite3.connect(index.path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        with contextlib.suppress(sqlite3.IntegrityError):  # a NULL where none may be
            connection.execute(f"UPDATE OR REPLACE {table} SET {column} = {value.format(column)}")
        connection.commit()
    assert all(isinstance(name, str) for name in index.tables())
    with contextlib.suppress(IndexFaultError):
        assert answers(index) == {**ROWS, b"other": None}
    with contextlib.suppress(IndexFaultError):
        assert dict(index.rows("a")) == ROWS
    assert index.has_table("a") in (True, False)
    index.write({}, {"a": {b"more": b"1"}}, dropped=("b",))
    index.write({"a": ROWS})
    assert answers(index) == {**ROWS, b"other": None}


def test_an_unreadable_index_is_written_again(index: StoreIndex) -> None:
    index.close()
    index.path.write_bytes(b"no database at all" * 100)
    index.write({"a": ROWS})
    assert dict(index.rows("a")) == ROWS


def test_changes_of_a_table_that_cannot_be_read_leave_no_index(index: StoreIndex) -> None:
    index.write({}, {"a": {b"key 1": b"x"}})
    assert index.get("a", b"key 1") == b"x"
    index.close()
    index.path.write_bytes(index.path.read_bytes()[:3000])
    index.write({}, {"a": {b"key 1": b"y"}})
    assert not index.has_table("a")
    index.write({"a": ROWS})
    assert dict(index.rows("a")) == ROWS


def test_a_journal_beside_it_is_a_fault_and_the_next_writer_starts_again(index: StoreIndex) -> None:
    index.close()
    journal = Path(f"{index.path}-journal")
    journal.write_bytes(b"interrupted")
    with pytest.raises(IndexFaultError):
        index.get("a", b"key 1")
    assert journal.read_bytes() == b"interrupted"
    index.write({"b": {b"x": b"y"}})
    assert index.tables() == ("b",)
    assert not journal.exists()


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "nothing"])
def test_anything_but_a_file_is_a_fault(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "index.sqlite"
    if kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to("elsewhere")
    elif kind == "pipe":
        os.mkfifo(place)
    with pytest.raises(IndexFaultError):
        StoreIndex(place).get("a", b"x")
    StoreIndex(place).write({"a": ROWS})
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index = StoreIndex(tmp_path / "file" / "index.sqlite")
    index.write({"a": ROWS})
    assert not index.has_table("a")


def test_a_child_of_this_process_gets_a_fault(index: StoreIndex) -> None:
    assert index.get("a", b"key 1") == ROWS[b"key 1"]
    child = os.fork()
    if child == 0:
        try:
            index.get("a", b"key 2")
        except IndexFaultError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert index.get("a", b"key 3") == ROWS[b"key 3"]


def test_while_another_process_writes_a_reader_gets_one_state_or_a_fault(index: StoreIndex) -> None:
    """Tables are rewritten with other numbers of buckets: what was known of one must not be looked for in another."""
    index.close()
    child = os.fork()
    if child == 0:
        writer = StoreIndex(index.path)
        for number in range(300):
            some = dict.fromkeys(list(ROWS)[: 10 + number % 90], b"%d" % number)
            writer.write({"a": {**some, b"key 0": b"%d" % number}})
        os._exit(0)
    reader = StoreIndex(index.path)
    seen = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        try:
            assert reader.get("a", b"key 0") is not None
            seen += 1
        except IndexFaultError:
            reader.close()
    assert seen > 0
    reader.close()


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_the_state_before_or_after_or_a_fault(index: StoreIndex) -> None:
    """A read must say so; and the next writer goes on from there."""
    chance = random.Random(1)
    index.write({"a": dict.fromkeys(ROWS, b"0")})
    index.close()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            writer = StoreIndex(index.path)
            for number in range(10_000):
                writer.write({"a": dict.fromkeys(ROWS, b"%d" % number)})
            os._exit(1)
        threading.Event().wait(chance.random() / 20)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reader = StoreIndex(index.path)
        try:
            values = {value for _, value in reader.rows("a")}
            assert len(values) == 1
        except IndexFaultError:
            pass
        reader.close()
        index.write({"a": dict.fromkeys(ROWS, b"again")})
        assert {value for _, value in index.rows("a")} == {b"again"}
        index.close()


def test_no_other_open_of_the_file_drops_the_locks(index: StoreIndex) -> None:
    """POSIX locks go with any descriptor of the file that the process closes."""
    index.get("a", b"key 1")
    connection = sqlite3.connect(index.path, isolation_level=None, timeout=0)
    connection.execute("BEGIN EXCLUSIVE")
    other = StoreIndex(index.path)
    with pytest.raises(IndexFaultError):
        other.get("a", b"key 1")
    connection.execute("ROLLBACK")
    connection.close()
    assert StoreIndex(index.path).get("a", b"key 1") == ROWS[b"key 1"]
