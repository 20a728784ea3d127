"""A large input folder is mounted and not copied for each step: what a step does has the same result as in a copy."""

import errno
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import LEAST_SHARED_FILES
from orch23.execute.shared_trees import SharedTrees
from orch23.model.action import Action, ActionOutcome, Completed, InputsChanged, StepLimits, TimedOut
from orch23.model.digest import FileEntry, digest_bytes
from orch23.store.index import file_system_type
from orch23.store.json_text import Keys, StoreKey
from orch23.store.safe_files import make_subfolder
from tests.doubles import memory
from tests.sandbox.probe import launcher
from tests.sandbox.users import need

pytestmark = pytest.mark.slow  # processes run

FILES = {
    **{f"big/a/f{n}": f"{n}\n".encode() for n in range(LEAST_SHARED_FILES)},
    **{f"big/c/f{n}": b"same\n" for n in range(4)},
    "big/deep/er/x": b"x\n",
    "src/main": b"m\n",
}
WRITERS = ("namespaces", "bubblewrap", "landlock", "none")  # the first mounts what a step may write, the others move it
MOUNTERS = ("namespaces", "bubblewrap")


class Source:
    """Contents by path, and how many were copied."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.copied: list[str] = []

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        data = self.files.get(path)
        if data is None or digest_bytes(data) != entry.digest:
            return False
        self.copied.append(path)
        Path(target).write_bytes(data)
        return True


class World:
    """An executor of a tier; its large folders are shared, or not."""

    def __init__(self, folder: Path, tier: str, *, shared: bool = True, key: StoreKey | None = None) -> None:
        self.folder, self.source, self.kept = folder, Source(FILES), memory()
        trees = SharedTrees(folder / "trees", self.source, key or StoreKey())
        vars(trees)["can_move"] = True  # also on a tmpfs, where only writes through a shared mapping go unnoticed
        self.executor = LocalExecutor(
            sandbox_dirs=SandboxDirs(folder / "rooms", self.source, shared=(lambda: trees) if shared else None),
            contents=self.kept,
            workers=2,
            launcher=launcher(tier),
        )

    def run(self, script: str, **more: object) -> ActionOutcome:
        inputs = {path: FileEntry(digest_bytes(data)) for path, data in self.source.files.items()}
        fields: dict[str, object] = {"argv": ("bash", "-c", script), "inputs": inputs, **more}
        self.source.copied = []
        return self.executor.run(Action(**fields))  # type: ignore[arg-type]  # the tests spell the fields

    def said(self, script: str, **more: object) -> str:
        outcome = self.run(script, **more)
        assert isinstance(outcome, Completed), outcome
        return outcome.result.output.text

    def trees(self) -> list[Path]:
        return sorted((self.folder / "trees").glob("*"))

    def copied_of_folder(self) -> int:
        return sum(path.startswith("big/") for path in self.source.copied)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    need("namespaces")
    world = World(tmp_path, "namespaces")
    yield world
    world.executor.close()
    assert list((tmp_path / "rooms").iterdir()) == []


SCRIPTS = {
    "nothing": "true",
    "read": "cat big/a/f7 big/deep/er/x; ls big/a | wc -l; find big -type f | wc -l; stat -c '%a %Y' big big/a/f1",
    "a new file": "echo n > big/n; mkdir big/new; echo n > big/new/n; cat big/n",
    "changed": "echo changed > big/a/f1; chmod 755 big/a/f2; echo more >> big/a/f3; truncate -s 0 big/a/f4",
    "changed and restored": "echo 0 > big/a/f1; echo 1 > big/a/f1; chmod +x big/a/f2; chmod -x big/a/f2",
    "removed": "rm big/a/f1 big/deep/er/x; rm -r big/c; ls big",
    "removed and made again": "rm -r big/c; mkdir big/c; echo same > big/c/f2; rm big/a/f5; echo 5 > big/a/f5",
    "all removed": "rm -r big/*; ls -a big",
    "a file for a folder": "rm -r big/c; echo c > big/c; rm big/a/f1; mkdir big/a/f1; echo x > big/a/f1/x",
    "renamed": "mv big/a/f1 big/a/renamed; mv big/a/f2 src/; mv src/main big/; mv big/c big/d; mv big/deep src/deep",
    "a link for a folder": "rm -r big/c; ln -s a big/c",
    "moved out of the way": "mkdir o; mv big o/ 2>/dev/null || echo busy > said",
    "removed as a whole": "rm -r big || echo busy > said",
    "removed as a whole and made again": "rm -r big && mkdir -p big/a && echo 1 > big/a/f1",
    "a file renamed": "echo n > n; python3 -c \"import os; os.rename('n', 'big/n'); os.rename('big/a/f1', 'f1')\"",
    "linked out": "ln big/a/f1 src/f1 || echo refused > said",
    "links": "ln -s f1 big/a/l; ln big/a/f2 big/a/m; ln -s / big/root",
    "special files": "mkfifo big/a/p; mknod big/a/f1.dev c 0 0 2>/dev/null || true; chmod u+s big/a/f3",
    "locked": "mkdir big/k; echo n > big/k/n; chmod 000 big/k/n big/k; chmod 000 big/a/f1; chmod 500 big/c",
    "scratch": "mkdir big/__pycache__; echo x > big/__pycache__/x; rm -r big/c; echo x > big/a/x.log",
    "names": r"printf x > $'big/a\nb'; printf x > $'big/\xff'; printf x > big/.hidden",
    "below an output folder": "echo o > big/out/o; echo p > big/c/out/p; ls big/c",
    "fails": "echo n > big/n; echo broken >&2; exit 3",
    "marks": "setfattr -n user.overlay.opaque -v y big/c 2>/dev/null || true; mkdir big/w; echo n > big/w/n",
    "a mark by hand": "python3 -c \"import os; os.setxattr('big/c', 'user.overlay.opaque', b'y')\" 2>/dev/null || true",
}


@pytest.mark.stride(13)
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(("tier", "folders"), [(tier, ("big/out", "big/c/out")) for tier in WRITERS] + [("none", ())])
def test_a_step_has_the_same_result_as_with_copies(
    tier: str, folders: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    if tier != "none":
        need(tier)
    outcomes = []
    for shared in (True, False):
        world = World(tmp_path / str(shared), tier, shared=shared)
        try:
            more = {"scratch": ("__pycache__", "*.log"), "output_folders": folders}
            outcome = world.run(SCRIPTS[name], **more)
            assert isinstance(outcome, Completed), outcome
            result = outcome.result
            bytes_of = {path: world.kept.get(entry.digest) for path, entry in result.written.items()}
            found = result.exit_code, result.written, bytes_of, result.removed, result.output.text
            outcomes.append((*found, [(one.code, one.subject) for one in result.violations]))
            # What the step has done is not seen by the next one.
            assert world.said("cat big/a/f1 big/c/f0; ls big | tr '\\n' ' '") == "1\nsame\na c deep "
        finally:
            world.executor.close()
    assert outcomes[0] == outcomes[1]


def test_the_files_are_copied_once_and_then_followed(world: World) -> None:
    assert world.said("cat big/a/f1 src/main") == "1\nm\n"
    assert world.copied_of_folder() == len(FILES) - 1
    assert world.said("cat big/a/f2") == "2\n"
    assert world.source.copied == ["src/main"]
    world.source.files |= {"big/a/f1": b"edited\n", "big/more/g": b"g\n"}
    del world.source.files["big/deep/er/x"], world.source.files["big/c/f0"]
    assert world.said("cat big/a/f1 big/more/g; ls big big/c | tr '\\n' ' '; stat -c %Y big big/c") == (
        "edited\ng\nbig: a c more  big/c: f1 f2 f3 315619200\n315619200\n"
    )
    assert sorted(world.source.copied) == ["big/a/f1", "big/more/g", "src/main"]
    assert len(world.trees()) == 1


def test_a_file_becomes_a_folder_and_a_folder_a_file(world: World) -> None:
    world.said("true")
    del world.source.files["big/a/f1"], world.source.files["big/deep/er/x"]
    world.source.files |= {"big/a/f1/in": b"in\n", "big/deep": b"deep\n"}
    assert world.said("cat big/a/f1/in big/deep") == "in\ndeep\n"
    assert sorted(world.source.copied) == ["big/a/f1/in", "big/deep", "src/main"]


@pytest.mark.parametrize("tier", MOUNTERS)
def test_a_program_of_the_folder_is_found(tier: str, tmp_path: Path) -> None:
    need(tier)
    world = World(tmp_path, tier)
    try:
        program = b"#!/bin/sh\necho run\n"
        world.source.files["big/tool"] = program
        inputs = {path: FileEntry(digest_bytes(data)) for path, data in world.source.files.items()}
        inputs["big/tool"] = FileEntry(digest_bytes(program), executable=True)
        for writable in ((), None):
            assert world.said("", argv=("big/tool",), inputs=inputs, writable=writable) == "run\n"
            missing = world.run("", argv=("big/no-tool",), inputs=inputs, writable=writable)
            assert isinstance(missing, Completed)
            assert missing.result.exit_code == 127
            assert missing.result.output.text.endswith("big/no-tool: not found\n")
    finally:
        world.executor.close()


@pytest.mark.parametrize("tier", MOUNTERS)
def test_a_read_only_tree_has_the_folder_and_refuses_writes(tier: str, tmp_path: Path) -> None:
    need(tier)
    world = World(tmp_path, tier)
    try:
        attempts = "echo x > big/a/f1 || echo refused; rm -f big/c/f0 || echo refused"
        script = f"cat big/a/f1; {{ {attempts}; }} 2> /dev/null; echo r > out/r"
        outcome = world.run(script, writable=("out/",))
        assert isinstance(outcome, Completed)
        assert (outcome.result.output.text, list(outcome.result.written)) == ("1\nrefused\nrefused\n", ["out/r"])
        assert outcome.result.removed == ()
        assert world.copied_of_folder() == len(FILES) - 1
        assert world.said("cat big/a/f1", writable=()) == "1\n"
        assert world.copied_of_folder() == 0
    finally:
        world.executor.close()


def test_a_folder_that_a_check_may_write_is_copied(world: World) -> None:
    assert world.said("echo n > big/a/f1; cat big/a/f1", writable=("big/a/",)) == "n\n"
    assert not (world.folder / "trees").exists()


def test_steps_at_the_same_time_with_other_files_have_a_copy_each(world: World) -> None:
    wait = "touch here; echo ready; sleep 1; cat big/a/f1"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(world.said, wait)
        while not list((world.folder / "trees").glob("*/manifest")):
            time.sleep(0.01)
        world.source.files["big/a/f1"] = b"second\n"
        second = pool.submit(world.said, wait)
        assert (first.result(), second.result()) == ("ready\n1\n", "ready\nsecond\n")


CHANGES = ["write", "replace", "remove", "add", "mode"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_that_someone_changed_is_made_again(world: World, change: str) -> None:
    _changed_copy(world, change)
    assert world.said("cat big/a/f1; ls big/a | wc -l; stat -c %a big/a/f1") == f"1\n{LEAST_SHARED_FILES}\n644\n"
    assert world.copied_of_folder() == len(FILES) - 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_step_that_was_moved_a_changed_copy_runs_again(tmp_path: Path, change: str) -> None:
    world = World(tmp_path, "none")
    try:
        _changed_copy(world, change)
        outcome = world.run("cat big/a/f1; ls big/a | wc -l; stat -c %a big/a/f1; echo one >> ran")
        assert isinstance(outcome, Completed)
        result = outcome.result
        assert [*result.written, *result.removed, *result.violations] == ["ran"]
        if change != "replace":  # by the same bytes
            assert result.output.text == f"1\n{LEAST_SHARED_FILES}\n644\n"
        assert world.said("cat big/a/f1; ls big/a | wc -l; stat -c %a big/a/f1") == f"1\n{LEAST_SHARED_FILES}\n644\n"
    finally:
        world.executor.close()


def _changed_copy(world: World, change: str) -> None:
    world.said("true")
    file = world.trees()[0] / "files/big/a/f1"
    if change == "write":
        file.write_bytes(b"0\n")
        os.utime(file, (315_619_200, 315_619_200))
    elif change == "replace":
        file.unlink()
        file.write_bytes(b"1\n")
    elif change == "remove":
        file.unlink()
    elif change == "add":
        file.with_name("more").write_bytes(b"1\n")
    else:
        file.chmod(0o755)


def test_a_later_build_uses_the_copy_if_it_was_made_with_its_key(tmp_path: Path) -> None:
    need("namespaces")

    def copied(key: bytes) -> int:
        world = World(tmp_path, "namespaces", key=StoreKey(lambda: Keys(key, key, trusts_all=False)))
        world.said("true")
        world.executor.close()
        return world.copied_of_folder()

    assert [copied(b"one"), copied(b"one"), copied(b"other"), copied(b"other")] == [
        len(FILES) - 1,
        0,
        len(FILES) - 1,
        0,
    ]
    assert len([*(tmp_path / "trees").iterdir()]) == 1
    manifest = next((tmp_path / "trees").iterdir()) / "manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b'"big"', b'"bag"'))
    assert copied(b"other") == len(FILES) - 1


def test_a_copy_from_before_a_restart_of_the_machine_is_made_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.said("true")
    (boot := tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr("orch23.execute.shared_trees._BOOT_ID", boot)
    later = World(tmp_path, "namespaces")
    later.said("true")
    later.executor.close()
    assert later.copied_of_folder() == len(FILES) - 1


def test_an_input_that_changed_meanwhile_is_reported_and_leaves_no_copy(world: World) -> None:
    world.said("true")
    stale = world.source.files["big/a/f1"]
    inputs = {path: FileEntry(digest_bytes(data)) for path, data in world.source.files.items()}
    inputs["big/a/f1"] = FileEntry(digest_bytes(b"not there\n"))
    assert world.run("true", inputs=inputs) == InputsChanged(("big/a/f1",))
    world.source.files["big/a/f1"] = stale
    assert world.said("cat big/a/f1") == "1\n"


def test_without_overlayfs_the_files_are_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    some = lambda part, mode: None if part.name == "work" else make_subfolder(part, mode)  # noqa: E731
    monkeypatch.setattr("orch23.execute.shared_trees.make_subfolder", some)
    assert world.said("cat big/a/f1; echo n > big/a/f1") == "1\n"
    assert world.copied_of_folder() == len(FILES) - 1, "the copy for the first try serves the second"
    assert world.said("cat big/a/f1") == "1\n"
    assert world.copied_of_folder() == len(FILES) - 1


@pytest.mark.parametrize("tier", ["landlock", "none"])
def test_a_tier_without_mounts_copies_the_files_once(tier: str, tmp_path: Path) -> None:
    if tier != "none":
        need(tier)
    world = World(tmp_path, tier)
    try:
        assert world.said("cat big/a/f1; stat -c %Y . big") == "1\n315619200\n315619200\n"
        assert world.copied_of_folder() == len(FILES) - 1
        # Also for its tests, whose tree is read-only, and after an edit of another file.
        world.source.files["src/main"] = b"edited\n"
        assert world.said("cat big/a/f1 src/main", writable=()) == "1\nedited\n"
        assert world.said("rm -r src; ls big | tr '\\n' ' '") == "a c deep "
        assert world.source.copied == ["src/main"]
        world.source.files["big/a/f1"] = b"edited\n"
        assert world.said("cat big/a/f1") == "edited\n"
        assert sorted(world.source.copied) == ["big/a/f1", "src/main"]
        assert len(world.trees()) == 1
    finally:
        world.executor.close()


TRACES = {
    "bytes": "echo x > big/a/f1",
    "bytes with all times": "touch -r big/a/f1 t; printf '7\n' > big/a/f1; touch -r t big/a/f1 big/a big",
    "a mapping": "python3 -c \"import mmap; f = open('big/a/f1', 'r+b'); mmap.mmap(f.fileno(), 0)[0:1] = b'7'\"",
    "a mode": "chmod 600 big/a/f1; chmod 644 big/a/f1",
    "a mode of the folder": "chmod 700 big",
    "an empty folder": "mkdir big/c/new",
    "an attribute": "python3 -c \"import os; os.setxattr('big', 'user.note', b'x')\" || touch big/note",
    "a name": "mv big/a/f1 big/a/f; mv big/a/f big/a/f1",
    "a link outside": "ln big/a/f1 kept",
    "another folder": "mv big was; cp -a was big",
    "a link for it": "mv big was; ln -s was big",
}


@pytest.mark.stride(4)
@pytest.mark.parametrize("trace", TRACES)
def test_no_later_step_gets_a_folder_that_a_step_changed(trace: str, tmp_path: Path) -> None:
    world = World(tmp_path, "none")
    try:
        if trace == "a mapping" and file_system_type(tmp_path) == "tmpfs":
            pytest.skip("there, SharedTrees moves nothing")
        world.said(TRACES[trace])
        look = "cat big/a/f1; ls big; stat -c %a big; python3 -c \"import os; print(os.listxattr('big'))\""
        assert world.said(look) == "1\na\nc\ndeep\n755\n[]\n"
        assert world.copied_of_folder() == len(FILES) - 1
    finally:
        world.executor.close()


def test_steps_at_the_same_time_have_a_moved_folder_each(tmp_path: Path) -> None:
    world = World(tmp_path, "none")
    meet = f"touch {tmp_path}/$$.here; until [ $(ls {tmp_path} | grep -c here) = 2 ]; do sleep 0.01; done"
    try:
        with ThreadPoolExecutor() as pool:
            said = [*pool.map(lambda n: world.said(f"echo {n} > big/a/f1; {meet}; cat big/a/f1"), (1, 2))]
        assert said == ["1\n", "2\n"]
    finally:
        world.executor.close()


@pytest.mark.parametrize(("kind", "moves"), [("tmpfs", False), ("ext4", True), ("nfs", False), ("", False)])
def test_a_folder_is_moved_only_where_times_show_each_change(
    kind: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch23.execute.shared_trees.file_system_type", lambda _path: kind)
    assert SharedTrees(tmp_path, Source({})).can_move is moves


def test_a_step_starts_when_its_changes_get_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("orch23.execute.shared_trees.is_racy", lambda *_: len(asked) < 3)
    monkeypatch.setattr("time.sleep", lambda _s: asked.append(1))
    world = World(tmp_path, "none")
    try:
        assert world.said("cat big/a/f1") == "1\n"
        assert len(asked) >= 3
    finally:
        world.executor.close()


def test_a_clock_that_was_set_back_delays_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "none")
    try:
        world.said("true")
        an_hour_before = time.time_ns() - 3_600_000_000_000
        monkeypatch.setattr("time.time_ns", lambda: an_hour_before)
        monkeypatch.setattr("time.sleep", lambda _s: pytest.fail("the step would wait for an hour"))
        assert world.said("cat big/a/f1") == "1\n"
        assert world.copied_of_folder() == 0
    finally:
        world.executor.close()


def test_files_that_cannot_be_moved_to_another_mount_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    rename = os.rename

    def rename_on_one_mount(one: str | Path, other: str | Path, **more: int) -> None:
        if str(other).startswith(f"{tmp_path}/rooms/"):
            tried.append(str(other))
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(one), None, str(other))
        rename(one, other, **more)  # as they came

    world = World(tmp_path, "none")
    world.source.files |= {path.replace("big", "huge"): data for path, data in FILES.items() if "big" in path}
    try:
        monkeypatch.setattr("os.rename", rename_on_one_mount)
        look = "cat big/a/f1 huge/deep/er/x src/main; ls huge; stat -c %Y . big huge/a"
        times = "315619200\n" * 3
        assert world.said(look) == f"1\nx\nm\na\nc\ndeep\n{times}"
        outcome = world.run("echo n > big/a/f1; rm huge/a/f2")
        assert isinstance(outcome, Completed)
        assert (list(outcome.result.written), outcome.result.removed) == (["big/a/f1"], ("huge/a/f2",))
        assert world.said(look, writable=()) == f"1\nx\nm\na\nc\ndeep\n{times}"
        assert len(tried) == 1, "the second step does not try it again"
    finally:
        world.executor.close()
    assert list((tmp_path / "rooms").iterdir()) == []


def test_what_a_step_writes_to_a_mount_counts(world: World) -> None:
    script = "{code}; sleep 5"
    limits = StepLimits(disk=20_000_000)
    for code in (
        "head -c 40000000 /dev/zero > big/n",
        "exec 9> big/n; rm big/n; head -c 40000000 /dev/zero >&9",
        "for n in $(seq 1 40); do head -c 1000000 /dev/zero >> big/a/f$n; done",
    ):
        outcome = world.run(script.format(code=code), limits=limits)
        assert isinstance(outcome, Completed), outcome
        assert [one.code for one in outcome.result.violations] == ["E620"], code


def test_a_step_that_is_killed_leaves_nothing_and_its_writes_are_reported(world: World) -> None:
    outcome = world.run("echo n > big/n; rm big/a/f1; sleep 60", timeout_s=1)
    assert isinstance(outcome, TimedOut)
    assert (list(outcome.written), outcome.removed) == (["big/n"], ("big/a/f1",))


def test_no_more_than_eight_copies_are_kept(tmp_path: Path) -> None:
    need("namespaces")
    world = World(tmp_path, "namespaces")
    try:
        for number in range(10):
            world.source.files = {f"big{number}/f{n}": b"" for n in range(LEAST_SHARED_FILES)}
            world.said(f"test -e big{number}/f1")
        assert len(world.trees()) == 8
        world.source.files = {f"big9/f{n}": b"" for n in range(LEAST_SHARED_FILES)}
        world.said("true")
        assert world.source.copied == []
    finally:
        world.executor.close()
