"""Directory trees as Directory messages, each with the digests of those in it, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from msgspec import Struct

from orch23.model.action import check_inside, link_text
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.reapi.messages import Directory, DirectoryNode, FileNode, SymlinkNode, digest_of, digest_proto
from orch23.reapi.wire import DecodeError, decode, encode, refuse

MAX_TREE_NODES = 1_000_000
"""The maximum number of files and folders in a tree that is read: one Directory may be in a tree many times."""

MAX_PATH_CHARACTERS = 64 << 20
"""The maximum length of all paths of a tree that is read, joined."""

MAX_TREE_DEPTH = 256
"""The maximum number of names in a path of a tree."""


class MerkleTree(Struct, frozen=True):
    """The digest of the Directory of a root, and the bytes of all Directory messages."""

    root: Digest
    blobs: Mapping[Digest, bytes]


class DirectoryContent(Struct, frozen=True):
    """What is in a tree: all files, and all folders, also those without files; by their paths from its root."""

    files: Mapping[str, FileEntry]
    folders: frozenset[str]


class _Folder:
    """A folder that is being filled. Only this module changes it."""

    def __init__(self) -> None:
        self.folders: dict[str, _Folder] = {}
        self.nodes: dict[str, FileNode | SymlinkNode] = {}

    def at(self, names: Sequence[str]) -> "_Folder":
        """Return the folder below this one, which is created."""
        folder = self
        if len(names) >= MAX_TREE_DEPTH:
            message = f"a path has more than {MAX_TREE_DEPTH} names"
            raise ValueError(message)
        for name in names:
            if name in folder.nodes:
                _conflict(name)
            folder = folder.folders.setdefault(name, _Folder())
        return folder


def tree_of(files: Mapping[str, FileEntry], folders: Iterable[str] = ()) -> MerkleTree:
    """Return the tree with some files and folders. An input that is staged as a link is a link here.

    Raises:
        ValueError: a path is absolute or contains `..`, a file is also a folder, or a path is not
            valid Unicode or has more than MAX_TREE_DEPTH names.

    """
    check_inside(files)
    root = _Folder()
    for path, entry in files.items():
        *above, name = path.split("/")
        target = link_text(path, files)
        folder = root.at(above)
        if name in folder.folders:
            _conflict(path)
        if target is None:
            node = FileNode(name=name, digest=digest_proto(entry.digest), is_executable=entry.executable)
            folder.nodes[name] = node
        else:
            folder.nodes[name] = SymlinkNode(name=name, target=target)
    for path in folders:
        check_inside((path,))
        root.at(path.split("/"))
    blobs: dict[Digest, bytes] = {}
    return MerkleTree(_encode_folder(root, blobs), blobs)


def _conflict(path: str) -> NoReturn:
    message = f"{path!r} is a file and a folder"
    raise ValueError(message)


def _encode_folder(folder: _Folder, blobs: dict[Digest, bytes]) -> Digest:
    """Add the messages of a folder and of all in it, and return its digest."""
    nodes = [folder.nodes[name] for name in sorted(folder.nodes)]
    data = encode(
        Directory(
            files=tuple(node for node in nodes if isinstance(node, FileNode)),
            directories=tuple(
                DirectoryNode(name=name, digest=digest_proto(_encode_folder(folder.folders[name], blobs)))
                for name in sorted(folder.folders)
            ),
            symlinks=tuple(node for node in nodes if isinstance(node, SymlinkNode)),
        )
    )
    digest = digest_bytes(data)
    blobs[digest] = data
    return digest


def content_of(root: Digest, read: Callable[[Digest], bytes]) -> DirectoryContent:
    """Return what is in a tree. `read` returns the verified bytes of a digest.

    Raises:
        DecodeError: a message is not a canonical Directory, a link leads to anything but a file of the tree, or the
            tree exceeds MAX_TREE_NODES, MAX_PATH_CHARACTERS or MAX_TREE_DEPTH.

    """
    files: dict[str, FileEntry] = {}
    links: dict[str, str] = {}
    folders: set[str] = set()
    seen: dict[Digest, Directory] = {}
    waiting, characters = [("", root)], 0
    while waiting:
        prefix, digest = waiting.pop()
        directory = seen.get(digest)
        if directory is None:
            directory = seen[digest] = _directory(read(digest))
        names = _names(directory)
        characters += len(prefix) * len(names) + sum(map(len, names))
        is_large = len(files) + len(links) + len(folders) + len(names) > MAX_TREE_NODES
        if is_large or characters > MAX_PATH_CHARACTERS or (names and prefix.count("/") >= MAX_TREE_DEPTH):
            refuse("the tree has too many files and folders, or too long paths")
        for file in directory.files:
            files[f"{prefix}{file.name}"] = FileEntry(digest_of(file.digest), file.is_executable)
        for link in directory.symlinks:
            links[f"{prefix}{link.name}"] = link.target
        for below in directory.directories:
            folders.add(f"{prefix}{below.name}")
            waiting.append((f"{prefix}{below.name}/", digest_of(below.digest)))
    linked = {path: _linked(path, target, files) for path, target in links.items()}
    return DirectoryContent(files | linked, frozenset(folders))


def _directory(data: bytes) -> Directory:
    """Return a Directory whose names are sorted, unique and names of files."""
    directory = decode(Directory, data)
    names = _names(directory)
    is_sorted = all(
        list(nodes) == sorted(nodes, key=lambda node: node.name)
        for nodes in (directory.files, directory.directories, directory.symlinks)
    )
    if not is_sorted or len(set(names)) != len(names):
        refuse("the names of a directory are not sorted, or a name is there twice")
    if any("/" in name for name in names):
        refuse("a name in a directory has a slash")
    try:
        check_inside(names)
    except ValueError as error:
        raise DecodeError(str(error)) from None
    return directory


def _names(directory: Directory) -> list[str]:
    nodes: Iterable[FileNode | DirectoryNode | SymlinkNode] = (
        *directory.files,
        *directory.directories,
        *directory.symlinks,
    )
    return [node.name for node in nodes]


def _linked(path: str, target: str, files: Mapping[str, FileEntry]) -> FileEntry:
    """Return the entry of a link to a file of the tree."""
    names = path.split("/")[:-1]
    for name in target.split("/"):
        if name != "..":
            names.append(name)
        elif names:
            names.pop()
        else:
            refuse(f"the link {path!r} leads out of the tree")
    link = "/".join(names)
    if link not in files:
        refuse(f"the link {path!r} leads to no file of the tree")
    return FileEntry(files[link].digest, files[link].executable, link)
