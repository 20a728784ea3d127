"""The identity of installed packages: the same for the same wheels, wherever and by whom they were installed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.cache.distributions import InstalledPackages, StampedFiles, installed_packages
from tests.environments import Environment, record_line


def found(environment: Environment, files: StampedFiles | None = None) -> InstalledPackages:
    return installed_packages([environment.site], StampedFiles() if files is None else files)


def made(folder: Path, **installation) -> Environment:
    environment = Environment(folder)
    environment.install("zlib", "2.0")
    environment.install(**installation)
    return environment


def test_the_same_wheels_are_equal_at_another_place_and_time_and_by_another_installer(tmp_path: Path) -> None:
    one = made(tmp_path / "home" / "alice", scripts={"tool": f"#!{tmp_path}/alice/python\nimport app\n".encode()})
    two = made(
        tmp_path / "bob",
        installer="uv",
        scripts={"tool": b"#!/bin/sh\n'''exec' \"/home/bob/a long path/python\" \"$0\" \"$@\"\n' '''\nimport app\n"},
        origin={"url": "file:///home/bob/app.whl", "archive_info": {}},
    )
    for path in two.root.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert found(one) == found(two)
    assert found(one).faults == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda env: (
            (env.site / "more-1.dist-info").mkdir() or (env.site / "more-1.dist-info" / "RECORD").write_text("m")
        ),
        lambda env: (env.site / "app-1.0.dist-info").rename(env.site / "app-1.1.dist-info"),
        lambda env: shutil.rmtree(env.site / "app-1.0.dist-info"),
        lambda env: (env.site / "sitecustomize.py").write_text("x"),
        lambda env: (env.site / "fast.cpython-311-x86_64-linux-gnu.so").write_text("x"),
        lambda env: (env.site / "start.pth").write_text("import os\n"),
        lambda env: (env.site / "old.egg-info").write_text("Name: old\nVersion: 1\n"),
        lambda env: (env.site / "old-1.egg-info").mkdir() or (env.site / "old-1.egg-info" / "PKG-INFO").write_text("1"),
    ],
)
def test_another_package_or_module_is_another_identity(tmp_path: Path, change: Callable[[Environment], object]) -> None:
    environment = made(tmp_path)
    before = found(environment)
    change(environment)
    after = found(environment)
    assert after.digest != before.digest
    if not any("sitecustomize" in name or name.startswith("app") for name in os.listdir(environment.site)):
        assert after.faults == ()


def test_a_script_of_a_wheel_and_a_program_of_a_wheel_count(tmp_path: Path) -> None:
    digests = {
        found(made(tmp_path / str(number), scripts={"tool": data})).digest
        for number, data in enumerate((b"#!python\na\n", b"#!python\nb\n", b"\x7fELF 1", b"\x7fELF 2"))
    }
    assert len(digests) == 4


@given(st.data())
def test_one_changed_byte_of_a_record_is_another_identity(tmp_path_factory, data) -> None:
    environment = made(tmp_path_factory.mktemp("e"), files={"app/data.txt": b"1"})
    record = environment.site / "app-1.0.dist-info" / "RECORD"
    before = found(environment).digest
    lines = record.read_bytes().splitlines()
    mattering = [
        n for n, line in enumerate(lines) if line.startswith((b"app/__init__", b"app/data", b"app-1.0.dist-info/M"))
    ]
    assert len(mattering) == 3
    number = data.draw(st.sampled_from(mattering))
    line = lines[number]
    at = data.draw(st.integers(0, len(line) - 1))
    lines[number] = line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
    record.write_bytes(b"\n".join(lines) + b"\n")
    assert found(environment).digest != before


@given(st.permutations(range(9)))
def test_the_order_of_the_lines_of_a_record_does_not_matter(tmp_path_factory, order) -> None:
    environment = made(tmp_path_factory.mktemp("e"))
    record = environment.site / "app-1.0.dist-info" / "RECORD"
    before = found(environment).digest
    lines = record.read_bytes().splitlines()
    assert len(lines) <= 9
    record.write_bytes(b"\n".join(lines[n] for n in order if n < len(lines)))
    assert found(environment).digest == before


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda env: env.install("mine", origin={"url": "file:///w", "dir_info": {"editable": True}}), "`mine`"),
        (lambda env: (env.install("mine") / "direct_url.json").write_text("{"), "`mine`"),
        (lambda env: (env.site / "mine.pth").write_text("# a\n/home/alice/work\n"), "`mine.pth`"),
        (lambda env: (env.site / "mine.pth").write_text("../work\n"), "`mine.pth`"),
        (lambda env: (env.site / "mine.egg-link").write_text("/home/alice/work\n.\n"), "`mine.egg-link`"),
        (lambda env: (env.site / "mine-1-py3.egg").mkdir(), "`mine-1-py3.egg`"),
        (lambda env: (env.site / "mine").mkdir() or (env.site / "mine" / "a.py").write_text(""), "`mine`"),
        (lambda env: (env.site / "mine" / "below").mkdir(parents=True), "`mine`"),
        (lambda env: (env.site / "mine-1.dist-info").mkdir(), "`mine-1.dist-info`"),
    ],
)
def test_a_package_from_a_folder_of_this_machine_has_no_identity(tmp_path: Path, spoil, named) -> None:
    environment = made(tmp_path)
    assert found(environment).faults == ()
    spoil(environment)
    faults = found(environment).faults
    assert named in faults[0]
    assert str(tmp_path) not in "".join(faults)


def test_a_package_that_was_built_from_a_folder_has_one(tmp_path: Path) -> None:
    for origin in ({"url": "file:///w", "dir_info": {}}, {"url": "file:///w", "dir_info": {"editable": False}}):
        environment = made(tmp_path / str(len(origin["dir_info"])), origin=origin)
        assert found(environment).faults == ()


def test_a_package_of_the_system_is_known_by_its_metadata(tmp_path: Path) -> None:
    environment = made(tmp_path)
    (environment.site / "app-1.0.dist-info" / "RECORD").unlink()
    before = found(environment)
    # Without a record it is not known which modules belong to a package.
    assert before.faults == ()
    (environment.site / "app-1.0.dist-info" / "METADATA").write_text("Name: app\nVersion: 1.0+deb2\n")
    assert found(environment).digest != before.digest


def test_the_order_of_the_folders_counts_and_the_same_folder_only_once(tmp_path: Path) -> None:
    one, two = made(tmp_path / "1"), made(tmp_path / "2", version="3")
    link = tmp_path / "lib64"
    link.symlink_to(one.site)

    def of(*folders: Path) -> str:
        return installed_packages(folders, StampedFiles()).digest

    assert of(one.site, two.site) != of(two.site, one.site)
    assert of(one.site, link) == of(link) == of(one.site, tmp_path / "missing") == of(one.site)


def test_a_record_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    environment, files = made(tmp_path), StampedFiles()
    before = found(environment, files)
    read: list[str] = []
    computed = {key: value for key, (_, value) in files._known.items()}
    assert any(kind == "record" for kind, _ in computed)

    def get(kind: str, path: Path, compute: Callable[[Path], str]) -> str:
        def noted(one: Path) -> str:
            read.append(one.name)
            return compute(one)

        return StampedFiles.get(files, kind, path, noted)

    class Noting(StampedFiles, frozen=True):
        def get(self, kind: str, path: Path, compute: Callable[[Path], str]) -> str:
            return get(kind, path, compute)

    assert found(environment, Noting()) == before
    assert read == []
    record = environment.site / "app-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + record_line("app/new.py", b"new"))
    assert found(environment, Noting()).digest != before.digest
    assert read == ["RECORD"]


def test_what_an_uninstalled_package_left_does_not_count(tmp_path: Path) -> None:
    environment = made(tmp_path)
    before = found(environment)
    (environment.site / "gone" / "__pycache__").mkdir(parents=True)
    (environment.site / "~one" / "part").mkdir(parents=True)
    assert found(environment) == before
