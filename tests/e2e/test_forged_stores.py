"""Stores that others wrote into, or that were copied: only what builds of this user wrote counts (ADR 60)."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from orch23.model.digest import FileEntry, canonical_json, digest_bytes, digest_json
from orch23.model.record import LockFile
from orch23.snapshot.stat_snapshot import StatSnapshot, parse_snapshot
from orch23.snapshot.store_registry import registered_stores, registration, sealing_key
from orch23.store.access import authenticate_store, key_of_store
from orch23.store.index import FILES_TABLE, StoreIndex
from orch23.store.json_text import TRUSTED, add_checksum, checked_line, mac_of
from orch23.store.lock_file import read_lock, write_lock
from orch23.store.records import Records
from tests.processes import run_program
from tests.project import Outcome, Project
from tests.repository import green, up_to_date

PIPELINE = {
    "version": 1,
    "stages": {
        "copy": {"inputs": ["in.txt"], "outputs": ["out.txt"], "shell": "cp in.txt out.txt"},
        "test": {"inputs": ["out.txt", "wanted.txt"], "shell": "grep good out.txt"},
    },
}
STORE = ".orch23"
CLAIM = "no build of yours verified it"


class Untrusting(Project):
    """A project whose user trusts nothing beforehand."""

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
        return super().run(*argv, env={"ORCH23_TRUST": "0", **(env or {})})


def made(root: Path) -> Project:
    project = Untrusting(root)
    project.write({"pipeline.yaml": json.dumps(PIPELINE), "in.txt": "good\n", "wanted.txt": "1\n"})
    green(project.run("build"))
    return project


def record_files(root: Path) -> dict[str, Path]:
    """Return the files of records by the name of their stage."""
    files = [path for path in (root / STORE / "records").rglob("*") if path.is_file()]
    return {json.loads(path.read_text().splitlines()[0])["body"]["record"]["stage"]: path for path in files}


def forge_record(root: Path, stage: str, line_of: Callable[[bytes, bytes], bytes]) -> None:
    """Add the record that a stage would have with the inputs of today, if it had passed."""
    inner, mac = checked_line(record_files(root)[stage].read_bytes().splitlines(keepends=True)[0])
    body = json.loads(inner)
    manifest = body["record"]["manifest"]
    for aspect in [name for name in manifest if name.startswith("input:")]:
        data = (root / aspect.removeprefix("input:")).read_bytes()
        manifest[aspect] = hashlib.sha256(data).hexdigest()
    key = body["record"]["key"] = digest_json(manifest)
    path = root / STORE / "records" / key[:2] / key
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(line_of(canonical_json(body), mac))


LINES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "without a MAC": lambda inner, _mac: add_checksum(inner),
    "with that of another record": add_checksum,
    "with that of another key": lambda inner, _mac: add_checksum(inner, mac_of(inner, b"x" * 32)),
    "without a checksum": lambda inner, _mac: b'{"body":' + inner + b"}\n",
}


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize("line_of", LINES.values(), ids=LINES)
def test_a_forged_record_proves_nothing(tmp_path, line_of):
    project = made(tmp_path / "p")
    project.edit("wanted.txt", "2\n")
    project.edit("in.txt", "bad\n")
    assert project.run("build").code == 1
    (project.root / "pipeline.lock").unlink()
    forge_record(project.root, "test", line_of)
    assert project.run("plan", "--exit-code").code != 0
    assert "test" in project.run("status").out
    assert project.run("build").code == 1, "the command of the test was not run"


@pytest.mark.slow
def test_a_record_under_the_key_of_another_stage_is_damage(tmp_path):
    project = made(tmp_path / "p")
    files = record_files(project.root)
    files["test"].write_bytes(files["copy"].read_bytes())
    (project.root / "pipeline.lock").unlink()
    checked = project.run("cache", "verify")
    assert "record of another key" in checked.out + checked.err
    assert "copy  fresh" in project.run("build").err
    up_to_date(project.run("build"))


@pytest.mark.slow
@pytest.mark.parametrize("place", [-75, -3, 20])
def test_damage_of_a_record_is_repaired(tmp_path, place):
    project = made(tmp_path / "p")
    path = record_files(project.root)["test"]
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))
    (project.root / STORE / "index.sqlite").unlink(missing_ok=True)
    green(project.run("build"))
    damaged = path.read_bytes().splitlines(keepends=True)
    assert len(damaged) == 1, "the record was written again, without the damaged line"
    up_to_date(project.run("build"))


@pytest.mark.slow
def test_records_that_were_rolled_back_are_still_those_of_the_user(tmp_path):
    project = made(tmp_path / "p")
    shutil.copytree(project.root / STORE, tmp_path / "before")
    project.edit("in.txt", "good two\n")
    green(project.run("build"))
    shutil.rmtree(project.root / STORE)
    (tmp_path / "before").rename(project.root / STORE)
    built = project.run("build")
    assert built.code == 0
    assert project.read("out.txt") == "good two\n"
    up_to_date(project.run("build"))


@pytest.mark.slow
@pytest.mark.parametrize("in_the_store", [False, True])
def test_a_forged_result_with_another_verification_proves_nothing(tmp_path, in_the_store):
    """The verification changed, so outputs of the former one would only be verified again, by nothing."""
    project = made(tmp_path / "p")
    lock = read_lock(project.root / "pipeline.lock")
    manifest = {**lock.records["copy"].manifest, "verify:0": "x"}
    outputs = {"out.txt": FileEntry(digest_bytes(b"good, forged\n"))}
    forged = replace(lock.records["copy"], manifest=manifest, key=digest_json(manifest), outputs=outputs)
    project.edit("out.txt", "good, forged\n")
    if in_the_store:
        shutil.rmtree(project.root / STORE / "records")
        Records(project.root / STORE / "records").put(forged)
    else:
        shutil.rmtree(project.root / STORE)
    shutil.rmtree(project.root / "logs")
    records = {**lock.records, "copy": forged}
    write_lock(project.root, "pipeline.lock", LockFile({} if in_the_store else records, lock.retained), "pipeline")
    assert project.plan()["copy"] == "run"
    project.run("build")
    assert project.read("out.txt") == "good\n"


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "proven"), [("old", False), ("copy", False), ("old", True)])
def test_a_record_that_others_added_removes_no_file(tmp_path, stage, proven):
    project = made(tmp_path / "p")
    project.write({"README.md": "mine\n"})
    outputs = {"README.md": FileEntry(digest_bytes(b"mine\n"))}
    old = read_lock(project.root / "pipeline.lock").records["copy"]
    forged = replace(old, stage=stage, key="ab" * 32, outputs=outputs, pipeline="pipeline.yaml")
    place = project.root / STORE
    Records(place / "records", None, key_of_store(place) if proven else TRUSTED).put(forged)
    (project.root / "pipeline.lock").unlink()
    project.edit("in.txt", "good two\n")
    project.run("build")
    assert project.exists("README.md") is not proven, "with the key the file is removed, so the test shows it"


# ---- snapshots and the index ------------------------------------------------------------------------


def program(root: Path, *argv: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run orch23 as a process of its own does, with its snapshots."""
    kept = {name: os.environ[name] for name in ("PATH", "ORCH23_ALLOW_UNSANDBOXED") if name in os.environ}
    state = registered_stores().removesuffix("/orch23/stores")
    return run_program(argv, cwd=root, env={**kept, "HOME": str(home), "XDG_STATE_HOME": state, **env})


def idle(root: Path, home: Path) -> Path:
    """Build until nothing is left to do and no file is too young, and return the snapshot."""
    for _ in range(5):
        done = program(root, "build", home=home)
        assert done.returncode == 0, done.stderr
    (found,) = (root / STORE / "snapshots").iterdir()
    return found


def snapshot_of(path: Path, key: bytes) -> StatSnapshot:
    snapshot = parse_snapshot(path.read_bytes(), key)
    assert snapshot is not None
    return snapshot


@pytest.mark.stride(2)
@pytest.mark.parametrize("key", [b"", b"x" * 32, None])
@pytest.mark.slow
def test_only_a_snapshot_with_the_key_of_the_store_is_used(tmp_path, key):
    root = made(tmp_path / "p").root
    path = idle(root, tmp_path)
    own = sealing_key(str(root / STORE))
    assert own is not None
    (root / "in.txt").write_text("bad\n")
    snapshot = snapshot_of(path, own)
    number = snapshot.paths.index("in.txt")
    snapshot.ctimes[number] = (root / "in.txt").stat().st_ctime_ns
    path.write_bytes(snapshot.to_bytes(own if key is None else key))
    done = program(root, "build", home=tmp_path)
    assert done.returncode == (0 if key is None else 1), "with the right key the forgery works, so the test shows it"


@pytest.mark.stride(2)
@pytest.mark.parametrize("forges", [False, True])
@pytest.mark.slow
def test_only_rows_with_the_key_of_the_store_are_used(tmp_path, forges):
    root = made(tmp_path / "p").root
    path = idle(root, tmp_path)
    index = StoreIndex(root / STORE / "index.sqlite", key_of_store(root / STORE))
    tables = {name: dict(index.rows(name)) for name in index.tables()}
    index.close()
    assert FILES_TABLE in tables
    path.unlink()
    if forges:
        index.path.unlink()
        StoreIndex(index.path).write(tables)
    again = StoreIndex(index.path, key_of_store(root / STORE))
    assert again.has_table(FILES_TABLE) is not forges
    assert Records(root / STORE / "records", again, key_of_store(root / STORE)).is_indexed() is not forges
    again.close()
    done = program(root, "build", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert StoreIndex(index.path, key_of_store(root / STORE)).has_table(FILES_TABLE), "it is made again"


# ---- other files of a store -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_forged_promotion_is_not_finished(tmp_path):
    project = made(tmp_path / "p")
    entry = digest_text = hashlib.sha256(b"good\n").hexdigest() + ":5"
    mine = hashlib.sha256(b"mine\n").hexdigest() + ":5"
    project.write({"notes.txt": "mine\n"})
    body = canonical_json({"new": {"notes.txt": entry}, "old": {"notes.txt": mine}})
    redo = project.root / STORE / "promote.json"
    redo.write_bytes(add_checksum(body))
    assert project.run("plan").code == 0
    built = project.run("build")
    assert built.code == 0
    assert "promote.json: was not written by a build of yours" in built.err
    assert project.read("notes.txt") == "mine\n", digest_text
    assert not redo.exists()
    redo.write_bytes(key_of_store(project.root / STORE).line(body))
    project.run("build")
    assert project.read("notes.txt") == "good\n", "with the key the forgery works, so the test shows it"


# ---- copies, other places, other users --------------------------------------------------------------


def as_before(root: Path, place: Path | None = None) -> None:
    """Give a store the form of versions without keys."""
    for path in record_files(root).values():
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(add_checksum(checked_line(line)[0]) for line in lines))
    number = (root / STORE / "id").read_text().strip()
    (Path(registered_stores()) / number).write_text(f"{place or root}/{STORE}\n")
    (root / STORE / "index.sqlite").unlink(missing_ok=True)
    shutil.rmtree(root / STORE / "snapshots", ignore_errors=True)


def test_a_new_store_has_a_key_that_only_its_user_can_read(tmp_path):
    project = made(tmp_path / "p")
    key, path = registration(str(project.root / STORE)) or (b"", "")
    assert len(key) == 32
    assert path == str(project.root / STORE)
    number = (project.root / STORE / "id").read_text().strip()
    assert (Path(registered_stores()) / number).stat().st_mode & 0o777 == 0o600
    assert not any(
        key.hex().encode() in path.read_bytes() for path in (project.root / STORE).rglob("*") if path.is_file()
    )


@pytest.mark.slow
def test_a_store_of_an_earlier_version_is_authenticated_once(tmp_path):
    project = made(tmp_path / "p")
    as_before(project.root)
    (project.root / "pipeline.lock").rename(tmp_path / "lock")
    assert "up to date" in project.run("plan").out
    (tmp_path / "lock").rename(project.root / "pipeline.lock")
    up_to_date(project.run("build"))
    key, _ = registration(str(project.root / STORE)) or (b"", "")
    for path in record_files(project.root).values():
        for line in path.read_bytes().splitlines(keepends=True):
            inner, mac = checked_line(line)
            assert mac == mac_of(inner, key) != b""
    project.edit("wanted.txt", "2\n")
    forge_record(project.root, "test", LINES["without a MAC"])
    assert CLAIM in project.run("plan", "-v").out + project.run("explain", "test").out


@pytest.mark.slow
def test_a_store_of_an_earlier_version_at_another_place_makes_claims(tmp_path):
    project = made(tmp_path / "a")
    as_before(project.root)
    shutil.copytree(project.root, tmp_path / "b", symlinks=True)
    copy = Untrusting(tmp_path / "b")
    assert CLAIM in copy.run("explain", "test").out
    built = copy.run("build")
    assert built.code == 0
    assert "up to date" not in built.err
    up_to_date(copy.run("build"))
    assert copy.read(".orch23/id") != project.read(".orch23/id")
    up_to_date(project.run("build"))


@pytest.mark.slow
def test_trust_authenticates_a_store_at_another_place(tmp_path):
    project = made(tmp_path / "a")
    as_before(project.root)
    project.root.rename(tmp_path / "b")
    moved = Untrusting(tmp_path / "b")
    assert "is trusted from now on" in moved.run("trust").out
    up_to_date(moved.run("build"))
    assert "is trusted from now on" not in moved.run("trust").out


@pytest.mark.slow
def test_results_of_this_user_count_wherever_the_store_is(tmp_path):
    project = made(tmp_path / "a")
    shutil.copytree(project.root, tmp_path / "b", symlinks=True)
    up_to_date(Untrusting(tmp_path / "b").run("build"))
    project.root.rename(tmp_path / "c")
    (tmp_path / "c/pipeline.lock").unlink()
    built = Untrusting(tmp_path / "c").run("build")
    assert built.code == 0
    assert " built" not in built.err


@pytest.mark.slow
def test_a_store_without_its_registration_is_that_of_someone_else(tmp_path):
    project = made(tmp_path / "p")
    number = (project.root / STORE / "id").read_text().strip()
    (Path(registered_stores()) / number).unlink()
    assert "W693" in project.run("plan").err
    green(project.run("trust"))
    up_to_date(project.run("build"))
    assert registration(str(project.root / STORE)) != (b"", str(project.root / STORE))


@pytest.mark.slow
def test_an_id_alone_proves_nothing(tmp_path):
    project = made(tmp_path / "p")
    for path in (project.root / STORE).iterdir():
        if path.name != "id":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    built = project.run("build")
    assert built.code == 0
    assert "up to date" not in built.err
    up_to_date(project.run("build"))


@pytest.mark.slow
def test_a_restored_cache_counts_only_if_the_environment_trusts_it(tmp_path):
    project = made(tmp_path / "p")
    other = {"XDG_STATE_HOME": str(tmp_path / "fresh")}
    up_to_date(project.run("build", env={**other, "ORCH23_TRUST": "1"}))
    up_to_date(project.run("build", env={**other, "ORCH23_TRUST": "1"}))
    up_to_date(project.run("build"))
    assert "W693" in project.run("plan", env=other).err
    assert "W693" in project.run("build", env=other).err


def test_results_of_a_build_that_trusts_all_count_later(tmp_path):
    project = Untrusting(tmp_path / "p")
    project.write({"pipeline.yaml": json.dumps(PIPELINE), "in.txt": "good\n", "wanted.txt": "1\n"})
    green(project.run("build", env={"ORCH23_TRUST": "1"}))
    up_to_date(project.run("build"))


@pytest.mark.slow
def test_a_state_directory_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    project = made(tmp_path / "p")
    as_before(project.root)
    monkeypatch.setattr("orch23.store.access.os.access", lambda *_: False)
    up_to_date(project.run("build"))
    up_to_date(project.run("build"))
    assert registration(str(project.root / STORE)) == (b"", str(project.root / STORE))


def test_a_build_that_is_killed_while_it_authenticates_is_repeated(tmp_path, monkeypatch):
    project = made(tmp_path / "p")
    as_before(project.root)
    with monkeypatch.context() as patched:
        patched.setattr("orch23.store.access.register_store", _killed)
        with pytest.raises(KeyboardInterrupt):
            authenticate_store(project.root / STORE)
    up_to_date(project.run("build"))
    assert (registration(str(project.root / STORE)) or (b"",))[0]


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
