"""Wildcards skip what `.gitignore` files ignore, as git itself does, and what orch23 writes; literal paths do not."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orch23.model.digest import digest_bytes
from orch23.model.pipeline import Stage
from orch23.plan.nodes import OutputIndex
from orch23.steps.shell.spec import ShellStep
from orch23.store.workspace import Workspace


def project(root: Path, files: dict[str, str]) -> Workspace:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Workspace(root, None)


def outputs(*declared: str) -> OutputIndex:
    return OutputIndex({"a": Stage(name="a", step=ShellStep("true"), outputs=declared)})


FILES = {
    ".gitignore": "*.mo\nbuild/\n/local\n!keep.mo\n",
    "a.mo": "",
    "a.po": "",
    "keep.mo": "",
    "local": "",
    "sub/local": "",
    "sub/.gitignore": "*.po\n!a.mo\n",
    "sub/a.mo": "",
    "sub/a.po": "",
    "build/x.o": "",
    "build/deep/y.o": "",
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**", (".gitignore", "a.po", "keep.mo", "sub/.gitignore", "sub/a.mo", "sub/local")),
        ("*.mo", ("keep.mo",)),
        ("a.mo", ("a.mo",)),
        ("sub/", ("sub/.gitignore", "sub/a.mo", "sub/local")),
        ("build/*.o", ("build/x.o",)),
        ("build/**", ("build/deep/y.o", "build/x.o")),
        ("b*/**", ()),
    ],
)
def test_wildcards_skip_what_is_ignored_and_enter_what_is_named(
    tmp_path: Path, pattern: str, expected: tuple[str, ...]
) -> None:
    assert project(tmp_path, FILES).listing(pattern) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("build/deep/y.o", ("build/deep/y.o",)),
        ("build/", ("build/deep/y.o", "build/x.o")),
        ("**/x.o", ("build/x.o",)),
        ("other/z.o", ()),
    ],
)
def test_declared_outputs_are_seen_although_they_are_ignored(
    tmp_path: Path, declared: str, expected: tuple[str, ...]
) -> None:
    assert project(tmp_path, FILES).listing("**/*.o", outputs(declared)) == expected


def test_everything_is_everything(tmp_path: Path) -> None:
    assert project(tmp_path, FILES).writable_files("**") == tuple(sorted(FILES))


def test_lines_that_mean_nothing_to_git_are_skipped(tmp_path: Path) -> None:
    workspace = project(tmp_path, {"a": "", "b": "", ".gitignore": ""})
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\n[\n\\\n!\n\na\n# b\n")
    assert workspace.listing("?") == ("b",)


def test_a_changed_ignore_file_is_noticed_by_the_same_workspace(tmp_path: Path) -> None:
    workspace = project(tmp_path, {"a": "", "b": "", ".gitignore": "a\n"})
    assert workspace.listing("?") == ("b",)
    (tmp_path / ".gitignore").write_text("b\n")
    assert workspace.listing("?") == ("a",)


def test_a_link_is_not_an_ignore_file(tmp_path: Path) -> None:
    workspace = project(tmp_path, {"a": "", "rules": "a\n"})
    (tmp_path / ".gitignore").symlink_to("rules")
    assert "a" in workspace.listing("*")


def test_the_ignore_files_are_among_what_a_listing_reads(tmp_path: Path) -> None:
    workspace = project(tmp_path, FILES)
    found: set[str] = set()
    workspace.tracked(found).listing("sub/*")
    assert {".gitignore", "sub/.gitignore"} <= found


def test_files_of_orch23_do_not_match(tmp_path: Path) -> None:
    name = "a" * 64
    workspace = project(
        tmp_path,
        {
            "pipeline.lock": '{\n "orch23_lock": 1\n}\n',
            "poetry.lock": "[[package]]\n",
            f"said/{name}.json": '{\n "client": "",\n "orch23_exchange": 2\n}\n',
            f"data/{name}.json": "{}\n",
            f"heard/originals/{digest_bytes(b'mine').sha256}": "mine",
            f"data/originals/{digest_bytes(b'mine').sha256}": "another",
            "logs/20261121T143022Z-1a2b3c4d.jsonl": "",
            "logs/20261121T143022Z-1a2b3c4d/a/attempt-1/prompt.md": "",
            "logs/train.log": "",
            "nested/logs/20261121T143022Z-1a2b3c4d-2.jsonl": "",
            "nested/.orch23/VERSION": "",
            ".orch23/VERSION": "",
        },
    )
    data = (f"data/{name}.json", f"data/originals/{digest_bytes(b'mine').sha256}")
    assert workspace.listing("**") == (*data, "logs/train.log", "poetry.lock")
    assert workspace.listing(".orch23/*") == workspace.listing("nested/.orch23/") == ()
    assert workspace.listing("heard/**") == ()
    assert workspace.listing("pipeline.lock") == ("pipeline.lock",)


NAMES = st.sampled_from(["a", "b", "ab", "a.o", "b.o"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
RULES = st.lists(
    st.builds(
        # The library takes `a/**/` for `a/`, where git takes it for the folders in `a`.
        lambda no, root, body, end: f"{no}{root}{body}{'' if body.endswith('**') else end}",
        st.sampled_from(["", "", "!"]),
        st.sampled_from(["", "", "/", "**/"]),
        st.lists(st.sampled_from(["a", "b", "*", "*.o", "?", "[ab]", "**"]), min_size=1, max_size=2).map("/".join),
        st.sampled_from(["", "", "/", "/**"]),
    ),
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git says what it ignores")
@example(paths={"a/b"}, rules=["a/", "!a/b"], below=[])
@given(paths=st.sets(PATHS, min_size=1, max_size=8), rules=RULES, below=RULES)
def test_what_is_ignored_is_what_git_ignores(paths: set[str], rules: list[str], below: list[str]) -> None:
    files = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        workspace = project(root, dict.fromkeys(files, "") | {".gitignore": "".join(f"{one}\n" for one in rules)})
        if (root / "a").is_dir():
            (root / "a/.gitignore").write_text("".join(f"{one}\n" for one in below))
        listed = [path for path in workspace.listing("**") if not path.endswith(".gitignore")]
        assert sorted(listed) == sorted(path for path in _of_git(root) if not path.endswith(".gitignore"))


def _of_git(root: Path) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True, env=environment)
    command = ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, env=environment)
    return [path for path in done.stdout.split("\0") if path]
