"""The files of pending batches."""

from pathlib import Path

import pytest

from orch23.features.batches.pending import BatchServer, PendingBatch, PendingBatches
from orch23.store.access import hold_build_lock, key_of_store
from orch23.store.json_text import StoreKey


def files_of(folder: Path, key: StoreKey) -> PendingBatches:
    files = PendingBatches(folder, key)
    server = BatchServer(provider="x")
    files.write(PendingBatch(label="a", pipeline="p", server=server, model="m", created_s=1.0, calls={}, batch_id="b"))
    return files


def test_a_batch_of_another_key_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ORCH23_TRUST", "0")
    store = tmp_path / "p" / ".orch23"
    with hold_build_lock(store / "lock"):
        pass
    folder, key = store / "batches", key_of_store(store)
    files_of(folder, StoreKey())
    assert PendingBatches(folder, key).of_pipeline("p") == ()
    assert (folder / "a.json.damaged").is_file()
    assert len(files_of(folder, key).of_pipeline("p")) == 1
