"""Every file of the store is written byte for byte as before, and the files of earlier versions are read."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orch23.model.digest import FileEntry, digest_bytes, digest_json
from orch23.model.errors import CorruptStateError
from orch23.model.event import parse_event
from orch23.model.llm import Exchange, Usage
from orch23.model.record import Base, LockFile, Record
from orch23.model.step import Grant
from orch23.store.content_store import DiskContentStore
from orch23.store.exchanges import Exchanges, exchange_text, parse_exchange
from orch23.store.grants import Grants
from orch23.store.json_text import TRUSTED
from orch23.store.lock_file import decode_lock, encode_lock
from orch23.store.promotion import Promoter
from orch23.store.record_format import record_from_json, record_to_json
from orch23.store.records import Records
from orch23.store.run_logs import Journal, parse_journal, read_journal
from orch23.store.run_state import StateFile
from tests.documents import read_state
from tests.doubles import file_digest

FOLDER = Path(__file__).parent / "formats"
"""Written by the code before values were Structs; `first.*` by the first version that had these formats."""

ODD = 'é "x" \\ \u2028 \U0001f600 \t'
MANIFEST: Mapping[str, Any] = {
    "kind": "llm",
    "outputs": ["a.py", "ü/b.py"],
    "params": {"temperature": 1e-7, "seed": 10**30, "top": 0.1, "none": None, "yes": True, "empty": {}, "list": []},
    ODD: ODD,
}


def entry(text: str, *, executable: bool = False) -> FileEntry:
    return FileEntry(digest_bytes(text.encode()), executable)


def first_record(stage: str = "code") -> Record:
    return Record(
        stage=stage,
        key=digest_bytes(stage.encode()).sha256,
        manifest=MANIFEST,
        outputs={"a.py": entry("a"), "ü/b.py": entry("b", executable=True)},
        deleted=("old.py", ODD),
        exchanges=("f" * 64,),
        originals={"a.py": None, "ü/b.py": entry("")},
    )


def full_record(stage: str = "full", *, texts: str = "00ff", failed: bool = False) -> Record:
    return Record(
        stage=stage,
        key=digest_bytes(stage.encode()).sha256,
        manifest=MANIFEST,
        outputs={"a.py": entry("a")},
        bases={"a.py": Base(entry("c", executable=True)), "b.py": Base(entry("d"), entry("e"))},
        accepted=("a.py",),
        git={digest_bytes(b"a").sha256: "0" * 40},
        texts=texts,
        failed=failed,
    )


def exchange(**more: Any) -> Exchange:
    return Exchange(
        fingerprint="ab" * 32,
        stage=ODD,
        request={"model": "m", "params": {"temperature": 1e-7}, "sent": ({"role": "user", "content": ODD},)},
        response=f"{ODD}\x00\x1b[31m\u200b\n",
        usage=Usage(1, 2, 3, 2**70),
        outcome="accepted",
        diagnostics=("one", ODD),
        duration_s=2,
        provenance="p",
        cost="0.0010",
        prices="list",
        **more,
    )


EVENTS = (
    parse_event("run_started", "began", data={"run_id": "r", "pipeline": "p.yaml", "stages": 2, "max_retries": 1}),
    parse_event("stage_decided", ODD, "code", data={"decision": "run", "reasons": ({"code": "forced"},)}),
    parse_event("stage_started", "starts", "code", data={"key": "00"}),
    parse_event("attempt_started", "1", "code", data={"attempt": 1, "max_attempts": 2}),
    parse_event(
        "check_result", "red\x1b[0m", "code", "warning", {"passed": False, "exit_code": 1, "excerpt": f"{ODD}\n"}
    ),
    parse_event(
        "attempt_finished", "red", "code", "warning", {"passed": False, "excerpt": f"{ODD}\n", "duration_s": 1e-7}
    ),
    parse_event("stage_finished", "built", "ä", data={"status": "built", "key": "01", "big": 10**30}),
    parse_event("run_finished", "ends", data={"status": "failed", "exit_code": 1, "stages": {"built": 1}}),
)


def ticking() -> Any:
    moments = (datetime(2026, 11, 23, 12, tzinfo=UTC) + timedelta(seconds=second) for second in range(10_000))
    return lambda: next(moments)


def write_all_formats(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every format, by the name of its golden file."""
    records = Records(folder / "records")
    one = full_record()
    for record in (one, full_record(texts=ODD), one):  # one file, and a line that moves its first record to the end
        records.put(record)
    lock = LockFile({"code": first_record(), "full": full_record()}, {"was": full_record("was", failed=True)})
    journal = Journal(folder / "logs", "run", ticking())
    state = StateFile(folder / "logs" / "run" / "state.json", ticking())
    for event in EVENTS:
        journal.notice(event)
        state.notice(event)
    journal.close()
    grants = Grants(folder / "grants.json")
    grants.add(
        [
            Grant(kind="program", name="p", keys=("K",), sha256="00", network=True, reads=("/r",), detail="p -x"),
            Grant(kind="server", name="https://é:1"),
        ],
        Path("/ü"),
    )
    return {
        "record": (folder / "records" / one.key[:2] / one.key).read_bytes(),
        "lock": encode_lock(lock, ODD).encode(),
        "exchange.json": exchange_text(exchange(superseded=True, files={"a": None, "b": ODD})).encode(),
        "journal.jsonl": journal.path.read_bytes(),
        "state.json": (folder / "logs" / "run" / "state.json").read_bytes(),
        "grants.json": (folder / "grants.json").read_bytes(),
        "redo.json": redo_of(folder),
    }


def redo_of(folder: Path) -> bytes:
    """Return what is on the disk while files are promoted."""
    root, redo = folder / "root", folder / "redo.json"
    root.mkdir()
    contents = DiskContentStore(folder / "cas")
    for text in ("a", "b"):
        contents.put(text.encode())
    seen: list[bytes] = []

    def apply(*_: object) -> None:
        seen.append(redo.read_bytes())

    promoter = Promoter(root, redo, contents, file_digest)
    promoter._apply = apply  # type: ignore[method-assign,assignment] # the moment between the record and the files
    promoter.promote({"a.txt": entry("a"), "ü": entry("b", executable=True)}, {"a.txt": None, "gone": entry("c")})
    return seen[0]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return write_all_formats(tmp_path_factory.mktemp("formats"))


NAMES = sorted(path.name for path in FOLDER.iterdir() if not path.name.startswith(("first", "second")))


def test_every_format_has_its_file(written: dict[str, bytes]) -> None:
    assert sorted(written) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_on_disk_are_those_of_before(name: str, written: dict[str, bytes]) -> None:
    assert written[name] == (FOLDER / name).read_bytes()


def test_a_lock_file_of_the_first_version_is_read() -> None:
    lock = decode_lock((FOLDER / "first.lock").read_bytes(), "first.lock")
    assert lock == LockFile({"code": first_record(), "plan": first_record("plan")})
    assert decode_lock((FOLDER / "second.lock").read_bytes(), "second.lock") == decode_lock(
        (FOLDER / "lock").read_bytes(), "lock"
    )


def test_records_of_the_first_version_are_read(tmp_path: Path) -> None:
    record = first_record()
    path = tmp_path / record.key[:2] / record.key
    path.parent.mkdir()
    path.write_bytes((FOLDER / "first.record").read_bytes())
    assert tuple(Records(tmp_path).by_key(record.key)) == (record,)


def test_an_exchange_of_the_first_version_is_read_and_written_unchanged(tmp_path: Path) -> None:
    data = (FOLDER / "first.exchange.json").read_bytes()
    found = parse_exchange(data)
    assert exchange_text(found).encode() == data
    assert found.request["sent"] == [{"role": "user", "content": ODD}]
    path = tmp_path / "ab" / f"{found.fingerprint}.json"
    path.parent.mkdir()
    path.write_bytes(data)
    assert Exchanges(tmp_path, tmp_path).get(found.fingerprint, None) == found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lock = decode_lock((FOLDER / "lock").read_bytes(), "lock")
    assert lock.records == {"code": first_record(), "full": full_record()}
    assert lock.retained == {"was": full_record("was", failed=True)}
    lines = read_journal(FOLDER / "journal.jsonl")
    assert [one.event.message for one in lines] == [one.message for one in EVENTS]
    assert [one.event.data for one in lines] == [one.data for one in EVENTS]
    for earlier in ("first", "second"):  # `second` has no possible amounts
        lines = read_journal(FOLDER / f"{earlier}.journal.jsonl")
        assert [one.event.data for one in lines] == [one.data for one in EVENTS], (
            "facts that are missing are as if none"
        )
    state = read_state(FOLDER / "state.json")
    assert state is not None
    assert state["last_test_output"] == f"{ODD}\n"
    path = tmp_path / "grants.json"
    path.write_bytes((FOLDER / "grants.json").read_bytes())
    path.chmod(0o600)
    assert {one.name: one.keys for one in Grants(path).read()} == {"p": ("K",), "https://é:1": ()}


# ---- what is not as it was written ------------------------------------------------------------------


def added(body: dict[str, Any]) -> None:
    body["unknown"] = 1


def removed(body: dict[str, Any]) -> None:
    del body[next(name for name in sorted(body, reverse=True) if name not in ("orch23_exchange", "orch23_lock", "v"))]


def mistyped(body: dict[str, Any]) -> None:
    for name, value in body.items():
        if name not in ("orch23_exchange", "orch23_lock", "v") and not isinstance(value, dict):
            body[name] = [value]


CHANGES = [added, removed, mistyped]


@pytest.mark.parametrize("change", [*CHANGES, lambda body: added(body["usage"]), lambda body: mistyped(body["usage"])])
def test_an_exchange_of_another_form_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    body = json.loads((FOLDER / "exchange.json").read_bytes())
    del body["sum"]
    change(body)
    with pytest.raises(ValueError, match="is not valid"):
        parse_exchange(json.dumps({**body, "sum": digest_json(body)}).encode())


@pytest.mark.parametrize("change", CHANGES)
def test_a_line_of_a_journal_of_another_form_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    first, second = (FOLDER / "journal.jsonl").read_bytes().splitlines(keepends=True)[:2]
    body = json.loads(first)
    del body["sum"]
    change(body)
    inner = json.dumps(body).encode()[:-1]
    line = inner + b',"sum":"%s"}\n' % hashlib.sha256(inner).hexdigest()[:16].encode()
    with pytest.raises(CorruptStateError, match="is not valid"):
        parse_journal(line + second, "journal")


@pytest.mark.parametrize("change", CHANGES)
def test_a_lock_file_of_another_form_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    body = json.loads((FOLDER / "lock").read_bytes())
    change(body)
    if change is removed:  # of the last fields only `retained` may be missing
        del body["records"]
    with pytest.raises(CorruptStateError, match="is not valid"):
        decode_lock(json.dumps(body).encode(), "lock")


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_of_another_form_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    body = json.loads((FOLDER / "second.lock").read_bytes())
    block = body["records"]["code"]
    del block["sum"]
    change(block)
    block["sum"] = digest_json(block)
    with pytest.raises(CorruptStateError, match="`code` is not valid"):
        decode_lock(json.dumps(body).encode(), "lock")


@pytest.mark.parametrize(
    "text", ["", "0" * 64, f"{'0' * 64}:01", f"{'0' * 64}:1\n", f"{'0' * 64}:1+x+x", f"{'A' * 64}:1"]
)
def test_a_file_identity_of_another_form_is_refused(text: str) -> None:
    body = record_to_json(first_record())
    body["outputs"]["a.py"] = text
    with pytest.raises(ValueError, match="is not valid"):
        record_from_json(body)


@pytest.mark.parametrize("blob", ["", "0" * 39, f"{'0' * 40}\n", "g" * 40])
def test_a_git_id_of_another_form_is_refused(blob: str) -> None:
    body = record_to_json(full_record())
    body["git"] = {"00": blob}
    with pytest.raises(ValueError, match="is not valid"):
        record_from_json(body)


@pytest.mark.parametrize("change", CHANGES)
def test_a_redo_record_of_another_form_is_dropped(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    body = json.loads((FOLDER / "redo.json").read_bytes())["body"]
    change(body)
    if change is mistyped:
        body["new"]["a.txt"] = f"{'0' * 64}:-1"
    redo = tmp_path / "redo.json"
    redo.write_bytes(TRUSTED.encode(body))
    promoter = Promoter(tmp_path, redo, DiskContentStore(tmp_path / "cas"), file_digest)
    assert promoter.pending() == {}
    assert promoter.recover() is None
    assert "is not valid" in promoter.damaged[0]
    assert not redo.exists()


@pytest.mark.parametrize("change", [*CHANGES, *(lambda body, one=one: one(body["grants"][0]) for one in CHANGES)])
def test_grants_of_another_form_are_none(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    body = json.loads((FOLDER / "grants.json").read_bytes())
    change(body)
    path = tmp_path / "grants.json"
    path.write_bytes(json.dumps(body).encode())
    path.chmod(0o600)
    assert Grants(path).read() == frozenset()


@pytest.mark.parametrize("change", [added, mistyped])
def test_a_line_of_records_of_another_form_is_dropped(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    record = full_record()
    first, second, _ = (FOLDER / "record").read_bytes().splitlines(keepends=True)
    body = json.loads(second)["body"]
    change(body)
    path = tmp_path / record.key[:2] / record.key
    path.parent.mkdir()
    path.write_bytes(first + TRUSTED.encode(body))
    records = Records(tmp_path)
    assert records.by_key(record.key) == (record,)
    assert "is not valid" in records.damaged[0]
