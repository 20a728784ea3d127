"""Caches that Bazel filled: a recorded one, and where `bazel` is installed, new ones, whose copies it uses."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.messages import (
    EMPTY_BLOB,
    ActionProto,
    ActionResultProto,
    Command,
    Directory,
    Tree,
    digest_of,
)
from orch23.features.cache.reapi.wire import decode, encode
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import Digest, digest_bytes
from tests.cache_conformance import LIMIT
from tests.cache_server import serving_cache
from tests.nginx import running_nginx
from tests.reapi_oracle import files_of as files_of_tree

RECORDED = Path(__file__).parent / "bazel_disk_cache"
WORKSPACE = Path(__file__).parent / "bazel_workspace"
BAZEL = shutil.which("bazel")
OPTIONS = ("--symlink_prefix=/", "--spawn_strategy=local", "--incompatible_strict_action_env", "--curses=no")
OUTPUTS = {
    "upper.txt": b"SOME PLAIN WORDS\n",
    "count.txt": b"3\n",
    "nothing.txt": b"",
    "copies/plain": b"SOME PLAIN WORDS\n",
    "copies/deep/program": b"SOME PLAIN WORDS\n",
}
"""What the workspace builds, in three actions."""


@dataclass(frozen=True)
class Place:
    """A cache: its URL, the folder in which its files are, and the option of Bazel that names it."""

    url: str
    folder: Path
    option: str = ""


@dataclass(frozen=True)
class Content:
    """All entries of a cache by their actions, and all its blobs."""

    entries: Mapping[Digest, bytes]
    blobs: Mapping[Digest, bytes]


@contextlib.contextmanager
def opened(url: str) -> Iterator[CacheClient]:
    warnings: list[str] = []
    with contextlib.closing(CacheClient(open_shared_cache(url), warnings.append)) as client:
        yield client
    assert warnings == []


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, by kind and name, in the layout of the directory as in that of the server."""
    files = [path for kind in ("ac", "cas") for path in (folder / kind).rglob("*") if path.is_file()]
    return {f"{path.relative_to(folder).parts[0]}/{path.name}": path.read_bytes() for path in files}


def read_all(place: Place) -> Content:
    """Return all that a cache has. The client verifies each blob. Each action is a blob, too."""
    files = files_of(place.folder)
    blobs, entries = {}, {}
    with opened(place.url) as client:
        for name, data in files.items():
            kind, sha256 = name.split("/")
            if kind == "cas":
                digest = Digest(sha256, len(data))
                blobs[digest] = client.get(digest, LIMIT)
                if f"ac/{sha256}" in files:
                    entries[digest] = client.entry(digest)
        assert client.damaged == 0
    found = {f"cas/{digest.sha256}": data for digest, data in blobs.items()}
    assert found | {f"ac/{action.sha256}": data for action, data in entries.items()} == files
    return Content(
        {action: data for action, data in entries.items() if data is not None},
        {digest: data for digest, data in blobs.items() if data is not None},
    )


def write_all(content: Content, place: Place) -> None:
    """Store all of it in another cache, as a build stores its results."""

    def source(data: bytes) -> Callable[[], Iterator[bytes]]:
        return lambda: iter([data])

    with opened(place.url) as client:
        for action, entry in content.entries.items():
            client.upload(action, entry, {digest: source(data) for digest, data in content.blobs.items()})
        assert client.flush(60) == ()


def outputs_of(content: Content) -> dict[str, bytes]:
    """Decode each entry, with its action and command; return the outputs by their paths below `bin`."""
    blobs = {EMPTY_BLOB: b"", **content.blobs}
    found: dict[str, bytes] = {}
    for action, entry in content.entries.items():
        command = decode(Command, blobs[digest_of(decode(ActionProto, blobs[action]).command_digest)])
        assert command.arguments[:2] == ("/bin/bash", "-c")
        result = decode(ActionResultProto, entry)
        assert result.exit_code == 0
        printed = blobs[digest_of(result.stdout_digest)] if result.stdout_digest else result.stdout_raw
        assert printed == (b"counted\n" if "echo counted" in command.arguments[2] else b"")
        for file in result.output_files:
            found[file.path] = blobs[digest_of(file.digest)]
        for directory in result.output_directories:
            tree = decode(Tree, blobs[digest_of(directory.tree_digest)])
            messages = [encode(one) for one in (tree.root or Directory(), *tree.children)]
            read = {digest_bytes(data): data for data in messages}.__getitem__
            for path, one in files_of_tree(digest_bytes(messages[0]), read).items():
                found[f"{directory.path}/{path}"] = blobs[one.digest]
    return {path.partition("/bin/")[2]: data for path, data in found.items()}


def recorded_in(folder: Path) -> Place:
    """Return a copy of the recorded cache: a read sets the time of a file."""
    shutil.copytree(RECORDED, folder)
    return Place(str(folder), folder)


def test_a_directory_that_bazel_filled_is_read(tmp_path: Path) -> None:
    content = read_all(recorded_in(tmp_path / "cache"))
    assert len(content.entries) == 3
    assert outputs_of(content) == OUTPUTS


def test_a_server_with_what_bazel_stored_is_read() -> None:
    with serving_cache() as server:
        for name, data in files_of(RECORDED).items():
            kind, sha256 = name.split("/")
            (server.entries if kind == "ac" else server.blobs)[sha256] = data
        content = read_all(Place(server.url, RECORDED))
    assert outputs_of(content) == OUTPUTS


def test_a_copy_has_the_files_of_bazel(tmp_path: Path) -> None:
    original, copied = recorded_in(tmp_path / "cache"), tmp_path / "copy"
    write_all(read_all(original), Place(str(copied), copied))

    def tree(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/**/*") if path.is_file()}

    assert tree(copied) == tree(RECORDED)


@dataclass(frozen=True)
class Build:
    """How many actions a build of Bazel ran or found, by kind, and its outputs."""

    counts: Mapping[str, int]
    outputs: Mapping[str, bytes]


class Bazel:
    """Runs builds, each with its own output base and its own server, which ends with the build."""

    def __init__(self, folder: Path) -> None:
        if BAZEL is None:
            pytest.skip("needs Bazel 4, 5 or 6 (apt-get install bazel-bootstrap)")
        self._bazel, self._folder, self._number = BAZEL, folder, 0
        names = ("PATH", "JAVA_HOME")
        self._environ = {"HOME": str(folder), **{name: os.environ[name] for name in names if name in os.environ}}
        # That of Debian does not know its version, which is 4.
        version = re.search(r"bazel (\d+)", self._run("--version"))
        if version is not None and int(version[1]) not in range(4, 7):
            pytest.skip(f"needs Bazel 4, 5 or 6, not {version[1]}: later ones download modules")

    def build(self, place: Place) -> Build:
        """Build the workspace with a cache, from nothing."""
        self._number += 1
        base = self._folder / f"base{self._number}"
        startup = (
            *("--nohome_rc", "--noworkspace_rc", f"--output_user_root={self._folder}/user"),
            *(f"--output_base={base}", "--max_idle_secs=60", "--host_jvm_args=-Xmx256m"),
        )
        try:
            log = self._run(*startup, "build", *OPTIONS, place.option, "//:all")
        finally:
            self._run(*startup, "shutdown")
        report = re.search(r"\d+ processes: (.*)\.\n", log)
        assert report is not None, log
        counts = {kind: int(count) for count, kind in re.findall(r"(\d+) ([^,]+)", report[1])}
        outputs = {
            name: path.read_bytes() for name in OUTPUTS for path in base.glob(f"execroot/*/bazel-out/*/bin/{name}")
        }
        return Build({kind: count for kind, count in counts.items() if kind != "internal"}, outputs)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._bazel, *arguments],
            cwd=WORKSPACE,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def bazel(tmp_path_factory: pytest.TempPathFactory) -> Bazel:
    return Bazel(tmp_path_factory.mktemp("bazel"))


@pytest.fixture
def directory(tmp_path: Path) -> Place:
    folder = tmp_path / "directory"
    return Place(str(folder), folder, f"--disk_cache={folder}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Place]:
    with running_nginx(tmp_path) as (url, folder):
        yield Place(url, folder, f"--remote_cache={url}")


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("filled", ["directory", "server"])
def test_bazel_runs_nothing_with_a_copy_of_what_it_stored(
    bazel: Bazel, directory: Place, server: Place, filled: str
) -> None:
    first, second = (directory, server) if filled == "directory" else (server, directory)
    assert bazel.build(first) == Build({"local": 3}, OUTPUTS)
    content = read_all(first)
    assert outputs_of(content) == OUTPUTS
    write_all(content, second)
    # Later versions say `disk cache hit` for a directory.
    build = bazel.build(second)
    assert build.outputs == OUTPUTS
    assert build.counts in ({"remote cache hit": 3}, {"disk cache hit": 3})
