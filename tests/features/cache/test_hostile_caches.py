"""Whatever a shared cache has in place of a result, the stage is built, and nothing else is written."""

import gzip
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orch23.features.cache.reapi.entries import decode_result, encode_result
from orch23.features.cache.reapi.messages import ActionResultProto, OutputFile, OutputSymlink, digest_proto
from orch23.features.cache.reapi.wire import encode
from orch23.model.digest import Digest, FileEntry, digest_bytes
from tests.e2e.pipelines import calls, green, pipeline, proposing, shell
from tests.project import Project

STAGES = """
  make: {inputs: [in.txt], outputs: [out.txt, more/], shell: "cp in.txt out.txt; mkdir -p more; cp in.txt more/a.txt"}
"""
RECORD, OUT = "record.json", "outputs/out.txt"
EVIL = b"evil\n"
UNSANDBOXED = {"ORCH23_ALLOW_UNSANDBOXED": "1"}


class Cache:
    """The files of a shared cache with one result, for changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (self.entry,) = (path for path in root.glob("ac/*/*") if path.is_file())

    def blob(self, digest: Digest) -> Path:
        return self.root / "cas" / digest.sha256[:2] / digest.sha256

    def put(self, data: bytes) -> FileEntry:
        entry = FileEntry(digest_bytes(data))
        place = self.blob(entry.digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        write(place, data)
        return entry

    @property
    def files(self) -> dict[str, Any]:
        """The files of the entry: bytes of those that it contains, the others as entries."""
        found = decode_result(self.entry.read_bytes())
        return {path: one.entry if one.contents is None else one.contents for path, one in found.items()}

    def change(self, **files: Any) -> None:
        """Change files of the entry; None removes one. Bytes are put into the cache."""
        self.store({**self.files, **files})

    def store(self, files: Mapping[str, Any]) -> None:
        kept = {path: one for path, one in files.items() if one is not None}
        for one in kept.values():
            if isinstance(one, bytes):
                self.put(one)
        write(self.entry, encode_result(kept))

    def record(self, **fields: Any) -> None:
        """Change fields of the record."""
        self.change(**{RECORD: json.dumps({**json.loads(self.files[RECORD]), **fields}).encode()})


def write(place: Path, data: bytes) -> None:
    place.unlink(missing_ok=True)
    place.write_bytes(data)


def raw(cache: Cache, *files: OutputFile, **more: Any) -> None:
    """Write an entry that no encoder of orch23 makes."""
    text = cache.files[RECORD]
    own = OutputFile(path=RECORD, digest=digest_proto(digest_bytes(text)), contents=text)
    write(cache.entry, encode(ActionResultProto(output_files=(own, *files), **more)))


def named(cache: Cache, path: str) -> OutputFile:
    return OutputFile(path=path, digest=digest_proto(cache.put(EVIL).digest))


def replaced(cache: Cache, make: Callable[[Path], object]) -> None:
    in_place_of(cache.blob(digest_bytes(b"right\n")), make)


def in_place_of(place: Path, make: Callable[[Path], object]) -> None:
    place.unlink()
    make(place)


def huge(size_bytes: int) -> FileEntry:
    return FileEntry(Digest("ab" * 32, size_bytes))


DAMAGE: Mapping[str, Callable[[Cache], object]] = {
    "no bytes": lambda cache: write(cache.entry, b""),
    "garbage": lambda cache: write(cache.entry, os.urandom(500)),
    "half of the entry": lambda cache: write(cache.entry, cache.entry.read_bytes()[:-20]),
    "an archive": lambda cache: write(cache.entry, gzip.compress(cache.entry.read_bytes())),
    "no record": lambda cache: cache.change(**{RECORD: None}),
    "a record that is not JSON": lambda cache: cache.change(**{RECORD: b"{" * 100_000}),
    "a record with more fields": lambda cache: cache.record(failed=False),
    "the record of another stage": lambda cache: cache.record(key="cd" * 32),
    "a request that is a path": lambda cache: cache.record(exchanges=["../../../secret"]),
    "a file that is not an output": lambda cache: cache.change(**{"other.txt": EVIL}),
    "an output less": lambda cache: cache.change(**{OUT: None}),
    "a folder less": lambda cache: cache.change(**{"outputs/more/a.txt": None}),
    "an output more": lambda cache: cache.change(**{"outputs/elsewhere.txt": EVIL}),
    "the pipeline": lambda cache: cache.change(**{"outputs/pipeline.yaml": EVIL}),
    "a protected name": lambda cache: cache.change(**{"outputs/more/conftest.py": EVIL}),
    "a store": lambda cache: cache.change(**{"outputs/.orch23/VERSION": EVIL}),
    "a hook of git": lambda cache: cache.change(**{"outputs/more/.git/hooks/pre-commit": EVIL}),
    "a path out of the project": lambda cache: raw(cache, named(cache, "outputs/../../evil.txt")),
    "a path out of the folder": lambda cache: raw(cache, named(cache, OUT), named(cache, "outputs/more/../evil.txt")),
    "an absolute path": lambda cache: raw(cache, named(cache, OUT), named(cache, "outputs//tmp/evil.txt")),
    "a file twice": lambda cache: raw(cache, named(cache, OUT), named(cache, OUT), named(cache, "outputs/more/a")),
    "a file that is a folder": lambda cache: cache.change(**{"outputs/more/b": EVIL, "outputs/more/b/c": EVIL}),
    "a link": lambda cache: raw(
        cache, named(cache, OUT), output_symlinks=(OutputSymlink(path="outputs/more/a", target="/etc/passwd"),)
    ),
    "a failed process": lambda cache: raw(cache, named(cache, OUT), named(cache, "outputs/more/a"), exit_code=1),
    "a deleted input": lambda cache: cache.record(deleted=["in.txt"]),
    "a deleted file elsewhere": lambda cache: cache.record(deleted=["../../home"]),
    "10 TB": lambda cache: cache.change(**{OUT: huge(10 << 40)}),
    "more bytes than an int64": lambda cache: cache.change(
        **{OUT: huge((1 << 63) - 1), "outputs/more/b": huge(1 << 62)}
    ),
    "a blob has other bytes": lambda cache: write(cache.blob(digest_bytes(b"right\n")), b"wrong\n"),
    "a blob is cut": lambda cache: write(cache.blob(digest_bytes(b"right\n")), b"right"),
    "a blob is empty": lambda cache: write(cache.blob(digest_bytes(b"right\n")), b""),
    "a blob is longer": lambda cache: write(cache.blob(digest_bytes(b"right\n")), b"right\n" * 1000),
    "a blob is a link": lambda cache: replaced(cache, lambda place: place.symlink_to("/etc/passwd")),
    "a blob is a folder": lambda cache: replaced(cache, Path.mkdir),
    "an entry of 30 MB": lambda cache: os.truncate(cache.entry, 30 << 20),
    "an entry is a folder": lambda cache: in_place_of(cache.entry, Path.mkdir),
    "a digest that is a path": lambda cache: raw(
        cache, OutputFile(path=OUT, digest=digest_proto(Digest("../../../../etc/passwd", 1)))
    ),
}
"""Entries that are not used, with a warning."""

MISSING: Mapping[str, Callable[[Cache], object]] = {
    "a blob is gone": lambda cache: cache.blob(digest_bytes(b"right\n")).unlink(),
    "a blob that no one has": lambda cache: cache.change(**{OUT: huge(6)}),
}
"""Entries without their bytes: misses, without a warning about the entry."""


@pytest.mark.slow
def test_a_result_may_not_delete_a_file_that_its_stage_may_only_write(tmp_path: Path) -> None:
    stages = """
  edit:
    inputs: [in.txt, kept.txt]
    outputs: [out.txt]
    allowed_paths: {write: [out.txt, kept.txt]}
    llm: {prompt: p.j2, returns: files}
"""
    files = {"in.txt": "right\n", "kept.txt": "kept\n", "p.j2": proposing("edit", {"out.txt": "'made'"})}
    one, two = (
        Project(tmp_path / name / "project").write(pipeline(stages, files, head="cache: {platform: any}\n"))
        for name in ("one", "two")
    )
    green(one.build("--cache", str(tmp_path / "cache")))
    Cache(tmp_path / "cache").record(deleted=["kept.txt"])
    done = two.build("--cache", str(tmp_path / "cache"))
    green(done)
    assert "W698" in done.err
    assert (two.read("kept.txt"), calls(two)) == ("kept\n", ["edit"])


def checkout(root: Path) -> Project:
    head = "cache: {platform: any}\ndefaults: {sandbox: off}\n"
    return Project(root).write(shell(STAGES, {"in.txt": "right\n"}, head=head))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with the result of a stage."""
    root = tmp_path_factory.mktemp("made")
    green(checkout(root / "one").build("--cache", str(root / "cache"), env=UNSANDBOXED))
    return root / "cache"


@pytest.fixture
def cache(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    for name, value in UNSANDBOXED.items():
        monkeypatch.setenv(name, value)
    return Cache(shutil.copytree(made, tmp_path / "cache"))


def built_anyway(tmp_path: Path, *, restored: int = 0) -> str:
    """Build in a second checkout, and return what it reported."""
    project = checkout(tmp_path / "two/project")
    done = project.build("--cache", str(tmp_path / "cache"))
    green(done)
    made = {path: data for path, data in project.files().items() if path not in ("pipeline.yaml", "pipeline.lock")}
    assert made == dict.fromkeys(("in.txt", "out.txt", "more/a.txt"), b"right\n")
    assert project.ran() == ([] if restored else ["make"])
    assert not any(path.name.startswith("evil") for path in tmp_path.rglob("*"))
    assert project.build().err.endswith("up to date (1 stage)\n")
    return done.err


@pytest.mark.slow
def test_a_result_that_nothing_was_done_to_is_used(cache: Cache, tmp_path: Path) -> None:
    cache.store(cache.files)
    assert "warning" not in built_anyway(tmp_path, restored=1)


@pytest.mark.slow
@pytest.mark.stride(8)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_result_that_the_stage_cannot_have_is_not_used(
    cache: Cache, tmp_path: Path, damage: Callable[[Cache], object]
) -> None:
    damage(cache)
    told = built_anyway(tmp_path)
    assert "W698" in told, told


@pytest.mark.slow
def test_a_page_in_place_of_an_entry_is_called_so(cache: Cache, tmp_path: Path) -> None:
    write(cache.entry, b"\n<!doctype html><title>Log in</title>")
    assert "it is not an entry, but HTML or XML, such as a page to log in" in built_anyway(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("damage", MISSING.values(), ids=MISSING)
def test_a_result_without_its_bytes_is_not_used(
    cache: Cache, tmp_path: Path, damage: Callable[[Cache], object]
) -> None:
    damage(cache)
    assert "W698" not in built_anyway(tmp_path)
    # The build has repaired the entry.
    third = checkout(tmp_path / "three")
    green(third.build("--cache", str(tmp_path / "cache")))
