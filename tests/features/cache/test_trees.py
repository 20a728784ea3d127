"""Trees of files as Directory messages: canonical, and read back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.cache.reapi.messages import EMPTY_BLOB, Directory
from orch23.features.cache.reapi.trees import tree_of
from orch23.features.cache.reapi.wire import decode
from orch23.model.digest import Digest, FileEntry, digest_bytes
from tests.reapi_oracle import files_of, oracle_of

ONE, TWO = FileEntry(digest_bytes(b"1")), FileEntry(digest_bytes(b"2"), executable=True)
NAMES = st.sampled_from(["a", "b", "a.b", "a-", "A", "é", "\U0001f600", "\uffee"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def test_an_empty_tree_has_the_digest_of_no_bytes() -> None:
    assert tree_of({}).root == EMPTY_BLOB == digest_bytes(b"")


def test_a_tree_has_these_digests() -> None:
    files = {"b/run.sh": TWO, "a.txt": ONE, "b/link": FileEntry(ONE.digest, link="a.txt")}
    tree = tree_of(files, ["out/log"])
    assert tree.root == Digest("7ae708227088b1ad26f9022711f365059190c8f1bc9f8abafbb4550a9e56b062", 231)
    assert tree_of(dict(reversed(files.items())), ["out", "out/log"]) == tree


def test_protobuf_reads_the_directories_with_sorted_names() -> None:
    tree = tree_of({"b/z": TWO, "b/\U0001f600": ONE, "b/\uffee": ONE, "a": ONE})
    root = oracle_of("Directory").FromString(tree.blobs[tree.root])
    assert [(one.name, one.digest.hash, one.is_executable) for one in root.files] == [("a", ONE.digest.sha256, False)]
    (below,) = root.directories
    inner = oracle_of("Directory").FromString(tree.blobs[Digest(below.digest.hash, below.digest.size_bytes)])
    assert [one.name for one in inner.files] == ["z", "\uffee", "\U0001f600"]  # by code point, not by UTF-16
    assert [one.is_executable for one in inner.files] == [True, False, False]


@given(st.dictionaries(PATHS, st.sampled_from([ONE, TWO])), st.lists(PATHS), st.dictionaries(NAMES, NAMES))
def test_a_tree_is_read_as_it_was(files: dict, folders: list[str], links: dict) -> None:
    for path, target in links.items():
        if target in files and path not in files:
            files[path] = FileEntry(files[target].digest, files[target].executable, target)
    files = {path: entry for path, entry in files.items() if not entry.link or not files[entry.link].link}
    try:
        tree = tree_of(files, folders)
    except ValueError:
        above = {path.rpartition("/")[0] for path in files} | set(folders)
        assert any(one == path or one.startswith(f"{path}/") for one in above for path in files)
        return
    assert files_of(tree.root, tree.blobs.__getitem__) == files


def test_a_link_to_another_input_is_a_link_and_any_other_a_file() -> None:
    files = {
        "bin/tool": FileEntry(TWO.digest, executable=True, link="lib/tool"),
        "lib/tool": TWO,
        "lib/same": FileEntry(TWO.digest, executable=True, link="lib/tool"),
        "away": FileEntry(ONE.digest, link="not/an/input"),
        "mode": FileEntry(TWO.digest, link="lib/tool"),
    }
    tree = tree_of(files)
    directories = [decode(Directory, data) for data in tree.blobs.values()]
    assert {(link.name, link.target) for one in directories for link in one.symlinks} == {
        ("tool", "../lib/tool"),
        ("same", "tool"),
    }
    read = files_of(tree.root, tree.blobs.__getitem__)
    assert read == {**files, "away": ONE, "mode": FileEntry(TWO.digest)}


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "", "a\0b", "\udc80", "a/" * 256 + "a"]
)
def test_a_path_out_of_the_tree_is_refused(path: str) -> None:
    with pytest.raises(ValueError):
        tree_of({path: ONE})
    with pytest.raises(ValueError):
        tree_of({}, [path])


def test_a_file_is_no_folder() -> None:
    for files, folders in (({"a": ONE, "a/b": ONE}, []), ({"a/b": ONE, "a": ONE}, []), ({"a": ONE}, ["a"])):
        with pytest.raises(ValueError, match="'a' is a file and a folder"):
            tree_of(files, folders)
