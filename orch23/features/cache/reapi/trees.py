"""Directory trees as Directory messages, each with the digests of those in it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias

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


_Folder: TypeAlias = "dict[str, FileNode | SymlinkNode | _Folder]"


def tree_of(files: Mapping[str, FileEntry], folders: Iterable[str] = ()) -> MerkleTree:
    """Return the tree with some files and folders. An input that is staged as a link is a link here.

    Raises:
        ValueError: a path is absolute or contains `..`, a file is also a folder, or a path is not
            valid Unicode or has more than MAX_TREE_DEPTH names.
    """
    check_inside(files)
    root: _Folder = {}
    for path, entry in files.items():
        *above, name = path.split("/")
        target = link_text(path, files)
        folder = _folder_at(root, above)
        if name in folder:
            _conflict(path)
        if target is None:
            folder[name] = FileNode(name=name, digest=digest_proto(entry.digest), is_executable=entry.executable)
        else:
            folder[name] = SymlinkNode(name=name, target=target)
    for path in folders:
        check_inside((path,))
        _folder_at(root, path.split("/"))
    blobs: dict[Digest, bytes] = {}
    return MerkleTree(_encode_folder(root, blobs), blobs)


def _conflict(path: str) -> NoReturn:
    message = f"{path!r} is a file and a folder"
    raise ValueError(message)


def _folder_at(folder: _Folder, names: Sequence[str]) -> _Folder:
    """Return the folder below another one, which is created."""
    if len(names) >= MAX_TREE_DEPTH:
        message = f"a path has more than {MAX_TREE_DEPTH} names"
        raise ValueError(message)
    for name in names:
        inner = folder.setdefault(name, {})
        if not isinstance(inner, dict):
            _conflict(name)
        folder = inner
    return folder


def _encode_folder(folder: _Folder, blobs: dict[Digest, bytes]) -> Digest:
    nodes = [folder[name] for name in sorted(folder)]
    data = encode(
        Directory(
            files=tuple(node for node in nodes if isinstance(node, FileNode)),
            directories=tuple(
                DirectoryNode(name=name, digest=digest_proto(_encode_folder(inner, blobs)))
                for name in sorted(folder)
                if isinstance(inner := folder[name], dict)
            ),
            symlinks=tuple(node for node in nodes if isinstance(node, SymlinkNode)),
        )
    )
    digest = digest_bytes(data)
    blobs[digest] = data
    return digest
