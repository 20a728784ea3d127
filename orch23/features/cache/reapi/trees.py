"""Directory trees as Directory messages, each with the digests of those in it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from msgspec import Struct

from orch23.features.cache.reapi.messages import Directory, DirectoryNode, FileNode, SymlinkNode, digest_proto
from orch23.features.cache.reapi.wire import encode
from orch23.model.action import check_inside, link_text
from orch23.model.digest import Digest, FileEntry, digest_bytes

MAX_TREE_DEPTH = 256
"""The maximum number of names in a path of a tree."""


class MerkleTree(Struct, frozen=True):
    """The digest of the Directory of a root, and the bytes of all Directory messages."""

    root: Digest
    blobs: Mapping[Digest, bytes]


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
