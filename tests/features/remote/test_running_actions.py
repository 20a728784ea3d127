"""Places of actions on other machines: the next build finds those of a killed one."""

from pathlib import Path

import pytest

from orch23.features.remote.running_actions import ActionFiles
from orch23.model.digest import digest_bytes
from orch23.store.access import hold_build_lock, key_of_store

ONE, TWO = digest_bytes(b"one"), digest_bytes(b"two")


def test_the_next_build_finds_an_action_once_and_only_for_the_same_engine(tmp_path: Path) -> None:
    folder = tmp_path / "running"
    ActionFiles(folder).note("tls://a", ONE, "worker-1")
    found = ActionFiles(folder)
    assert found.take("tls://b", ONE) == ""
    assert found.take("tls://a", TWO) == ""
    assert found.take("tls://a", ONE) == "worker-1"
    assert found.take("tls://a", ONE) == ""
    # It may be killed as well: the place stays until it is forgotten.
    assert ActionFiles(folder).take("tls://a", ONE) == "worker-1"
    found.forget("tls://a", "worker-1")
    assert ActionFiles(folder).take("tls://a", ONE) == ""
    assert [*folder.iterdir()] == []


def test_equal_actions_have_a_place_each(tmp_path: Path) -> None:
    running = ActionFiles(tmp_path)
    running.note("a", ONE, "1")
    running.note("a", ONE, "2")
    found = ActionFiles(tmp_path)
    assert {found.take("a", ONE), found.take("a", ONE)} == {"1", "2"}


def test_a_build_does_not_find_its_own_actions(tmp_path: Path) -> None:
    running = ActionFiles(tmp_path)
    running.note("a", ONE, "1")
    assert running.take("a", ONE) == ""


def test_old_damaged_and_long_entries_are_not_used_and_do_not_stay(tmp_path: Path) -> None:
    running = ActionFiles(tmp_path, clock=lambda: 0.0)
    running.note("a", ONE, "1")
    running.note("a", ONE, "x" * 10_000)
    (tmp_path / "other.json").write_text("{}")
    assert ActionFiles(tmp_path, clock=lambda: 10 * 86_400.0).take("a", ONE) == ""
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    running = ActionFiles(tmp_path / "file")
    running.note("a", ONE, "1")
    running.forget("a", "1")
    assert running.take("a", ONE) == ""


def test_a_running_action_of_another_key_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ORCH23_TRUST", "0")
    store = tmp_path / "p" / ".orch23"
    with hold_build_lock(store / "lock"):
        key, running = key_of_store(store), store / "running"
    ActionFiles(running).note("engine", ONE, "place")
    assert ActionFiles(running, store_key=key).take("engine", ONE) == ""
    ActionFiles(running, store_key=key).note("engine", ONE, "place")
    assert ActionFiles(running, store_key=key).take("engine", ONE) == "place"
