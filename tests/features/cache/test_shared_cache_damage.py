"""What is damaged in a shared cache costs the stage that needs it, is reported, and is repaired."""

from collections.abc import MutableMapping
from pathlib import Path

import pytest

from orch23.model.digest import digest_bytes
from tests.cache_server import CacheServer, serving_cache
from tests.e2e.pipelines import green, shell
from tests.project import Project
from tests.reapi_server import serving_reapi

pytestmark = pytest.mark.slow

UNSANDBOXED = {"ORCH23_ALLOW_UNSANDBOXED": "1"}
HEAD = "cache: {platform: any}\ndefaults: {sandbox: off}\n"
NAMES = ("a", "b", "c", "d")
LARGE = "x" * 100_000
STAGES = "".join(
    f'  {name}: {{inputs: [in.txt], outputs: [{name}.txt, {name}2.txt], shell: "echo {name} > {name}.txt; '
    f'echo {name}2 > {name}2.txt"}}\n'
    for name in NAMES
)


@pytest.fixture(autouse=True)
def unsandboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in UNSANDBOXED.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "shared"


def checkout(root: Path) -> Project:
    return Project(root).write(shell(STAGES, {"in.txt": "in\n"}, head=HEAD))


def blob(cache: Path, data: bytes) -> Path:
    sha256 = digest_bytes(data).sha256
    return cache / "cas" / sha256[:2] / sha256


def test_a_file_that_cannot_be_replaced_costs_only_its_stage(tmp_path: Path, cache: Path) -> None:
    place = blob(cache, b"a\n")
    (place / "not empty").mkdir(parents=True)
    for name, counts in (("one", "4 not found, 3 stored"), ("two", "3 restored")):
        done = checkout(tmp_path / name).build("--cache", str(cache))
        green(done)
        assert counts in done.err
        assert "1 not stored (a)" in done.err
        (warning,) = (line for line in done.err.splitlines() if line.startswith("warning"))
        assert warning.startswith(
            "warning: results are not stored in the shared cache, and stay on this machine: a (cas/"
        )
        assert place.name in warning


IGNORED = "[W698] a result in the shared cache is ignored, and the stage is built:"


def flip(place: Path) -> None:
    """Change the last byte of a file."""
    data = place.read_bytes()
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_wrong_bytes_are_reported_with_their_stage_and_repaired(tmp_path: Path, cache: Path) -> None:
    stages = "  copy: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}\n"
    one, two, three = (
        Project(tmp_path / name).write(shell(stages, {"in.txt": LARGE}, head=HEAD)) for name in ("one", "two", "three")
    )
    green(one.build("--cache", str(cache)))
    flip(blob(cache, LARGE.encode()))
    done = two.build("--cache", str(cache))
    green(done)
    assert f"copy: {IGNORED} files of it cannot be used: out.txt (wrong bytes)" in done.err
    assert "W698" in two.run("log").out
    assert two.read("out.txt") == LARGE
    done = three.build("--cache", str(cache))
    green(done)
    assert (three.ran(), "W698" in done.err) == ([], False)


def test_a_blob_that_is_a_link_is_reported_as_such(tmp_path: Path, cache: Path) -> None:
    stages = "  copy: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}\n"
    one, two = (Project(tmp_path / n).write(shell(stages, {"in.txt": LARGE}, head=HEAD)) for n in ("one", "two"))
    green(one.build("--cache", str(cache)))
    place = blob(cache, LARGE.encode())
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    done = two.build("--cache", str(cache))
    green(done)
    why = f"out.txt (cas/{place.parent.name}/{place.name}: not a regular file)"
    assert f"copy: {IGNORED} files of it cannot be used: {why}" in done.err
    assert not place.is_symlink(), "it was replaced"


def test_a_cache_whose_blobs_are_all_wrong_is_repaired_by_one_build(tmp_path: Path, cache: Path) -> None:
    green(checkout(tmp_path / "one").build("--cache", str(cache)))
    for place in cache.glob("cas/*/*"):
        if place.stat().st_size:
            flip(place)
    done = checkout(tmp_path / "two").build("--cache", str(cache))
    green(done)
    assert "4 not found, 4 stored" in done.err
    assert done.err.count("W698") == 3, "no more warnings are shown"
    three = checkout(tmp_path / "three")
    green(three.build("--cache", str(cache)))
    assert three.ran() == []


def shorten(blobs: MutableMapping[str, bytes], data: bytes) -> None:
    blobs[digest_bytes(data).sha256] = data[:-5]


@pytest.mark.stride(9)
@pytest.mark.parametrize(
    ("kind", "case"),
    [(kind, case) for kind in ("http", "grpc") for case in ("short file", "large entry", "cut entry")]
    + [("http", "cut file")],
)
@pytest.mark.parametrize("size", [6, 3 << 20], ids=["small", "large"])
def test_what_a_server_has_and_does_not_return_whole_is_reported_once_with_its_stage(
    tmp_path: Path, kind: str, case: str, size: int
) -> None:
    stages = "  copy: {inputs: [in.txt], outputs: [out.txt, b.txt], shell: 'cp in.txt out.txt; echo b > b.txt'}\n"
    text = "x" * size
    one, two, three = (
        Project(tmp_path / name).write(shell(stages, {"in.txt": text}, head=HEAD)) for name in ("one", "two", "three")
    )
    with serving_cache() if kind == "http" else serving_reapi() as server:
        if isinstance(server, CacheServer):
            server.validate = lambda _entry: ()
        options = ("--cache", server.url, "--cache-write")
        green(one.build(*options))
        place = digest_bytes(text.encode()).sha256
        if case == "short file":
            shorten(server.blobs, text.encode())
        elif case == "large entry":
            for name in server.entries:
                server.entries[name] = bytes(30 << 20)
        elif isinstance(server, CacheServer):
            part = place if case == "cut file" else "/ac/"
            server.fault = lambda method, path: "truncate" if method == "GET" and part in path else ""
        else:
            # A stream that ends too early is that of a short file.
            server.replaced = lambda method, reply: reply[:-3] if method == "GetActionResult" else reply
        done = two.build(*options)
        green(done)
        (warning,) = (line for line in done.err.splitlines() if line.startswith("warning"))
        assert warning.startswith(
            "warning: copy: [W698] a result in the shared cache is ignored, and the stage is built: "
        )
        assert {"short file": "out.txt", "cut file": "out.txt", "large entry": "16 MiB", "cut entry": ""}[
            case
        ] in warning
        assert (two.ran(), two.read("out.txt")) == (["copy"], text)
        if case in {"short file", "large entry"}:
            green(three.build(*options))
            assert three.ran() == [], "it was repaired"
