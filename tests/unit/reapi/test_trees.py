"""Trees of files as Directory messages: canonical, read back as they were, hostile ones refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.reapi import trees
from orch23.reapi.messages import EMPTY_BLOB, Directory, DirectoryNode, FileNode, SymlinkNode, digest_proto
from orch23.reapi.trees import content_of, tree_of
from orch23.reapi.wire import DecodeError, decode, encode
from tests.reapi_oracle import oracle_of

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
    content = content_of(tree.root, tree.blobs.__getitem__)
    assert content.files == files
    assert content.folders >= set(folders)
    assert tree_of(content.files, content.folders) == tree


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
    read = content_of(tree.root, tree.blobs.__getitem__).files
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


def folder(name: str, content: Directory) -> DirectoryNode:
    return DirectoryNode(name=name, digest=digest_proto(digest_bytes(encode(content))))


def file(name: str) -> FileNode:
    return FileNode(name=name, digest=digest_proto(ONE.digest))


def read_tree(*directories: Directory) -> None:
    """Read a tree; the first is its root."""
    blobs = {digest_bytes(encode(one)): encode(one) for one in (*directories, Directory())}
    content_of(digest_bytes(encode(directories[0])), blobs.__getitem__)


@pytest.mark.parametrize(
    ("directory", "match"),
    [
        (Directory(files=(file("b"), file("a"))), "sorted"),
        (Directory(files=(file("a"), file("a"))), "twice"),
        (Directory(files=(file("a"),), directories=(folder("a", Directory()),)), "twice"),
        (Directory(files=(file("a"),), symlinks=(SymlinkNode(name="a", target="b"),)), "twice"),
        (Directory(files=(FileNode(name="a"),)), "digest"),
        (Directory(files=(FileNode(name="a", digest=digest_proto(Digest("A" * 64, 1))),)), "digest"),
        (Directory(files=(FileNode(name="a", digest=digest_proto(Digest("a" * 64, -1))),)), "digest"),
        *((Directory(files=(file(name),)), r"slash|leads out") for name in ("", ".", "..", "a/b", "/", "a\0")),
        *((Directory(directories=(folder(name, Directory()),)), r"slash|leads out") for name in ("..", "/")),
        *(
            (Directory(files=(file("f"),), symlinks=(SymlinkNode(name="l", target=target),)), "link")
            for target in ("/etc/passwd", "../f", "", "g", "l", "f/", "./f", "f/../../f")
        ),
    ],
)
def test_a_hostile_directory_is_refused(directory: Directory, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        read_tree(directory)


def test_a_link_to_a_folder_or_a_link_is_refused() -> None:
    with pytest.raises(DecodeError, match="no file"):
        read_tree(Directory(directories=(folder("d", Directory()),), symlinks=(SymlinkNode(name="l", target="d"),)))
    links = (SymlinkNode(name="l", target="m"), SymlinkNode(name="m", target="f"))
    with pytest.raises(DecodeError, match="no file"):
        read_tree(Directory(files=(file("f"),), symlinks=links))


def doubled(levels: int) -> list[Directory]:
    """Return directories of which each has the next one twice: few messages, and a file at 2**levels paths."""
    made = [Directory(files=(file("f"),))]
    for _ in range(levels):
        below = digest_proto(digest_bytes(encode(made[-1])))
        made.append(
            Directory(directories=(DirectoryNode(name="a", digest=below), DirectoryNode(name="b", digest=below)))
        )
    return made[::-1]


def test_a_tree_that_grows_at_each_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MAX_TREE_NODES", 1000)
    read_tree(*doubled(7))
    for levels in (10, 60):
        with pytest.raises(DecodeError, match="too many"):
            read_tree(*doubled(levels))


def test_a_tree_with_too_long_paths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Directory(files=(file("f" * 200),))
    monkeypatch.setattr(trees, "MAX_PATH_CHARACTERS", 200)
    read_tree(long)
    monkeypatch.setattr(trees, "MAX_PATH_CHARACTERS", 199)
    with pytest.raises(DecodeError, match="too long"):
        read_tree(long)


def test_a_tree_that_is_too_deep_is_refused() -> None:
    deep = [Directory(files=(file("f"),))]
    for _ in range(256):
        deep.append(
            Directory(directories=(DirectoryNode(name="d", digest=digest_proto(digest_bytes(encode(deep[-1])))),))
        )
    read_tree(*deep[-2::-1])
    with pytest.raises(DecodeError, match="too long"):
        read_tree(*deep[::-1])
