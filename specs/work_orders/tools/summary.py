"""Write digests of the files of each order, and git's hash of the tree: summary.py MANIFEST PROJECT SUMMARY."""

import hashlib
import json
import os
import sys
from pathlib import Path


def main(manifest: str, project: str, summary: str) -> None:
    """Write the summary of a project in which every order is done."""
    root = Path(project)
    orders = [
        {
            "id": order["id"],
            "title": order["title"],
            "verify_exempt": order["verify_exempt"],
            "files": {path: sha256(root / path) for path in sorted(order["allowed_files"])},
        }
        for order in json.loads(Path(manifest).read_text())["work_orders"]
    ]
    inputs = {Path(manifest).resolve(), Path(__file__).resolve()}  # in the project, if it is the root
    value = {"orders": orders, "repo_tree_hash_after": tree_hash(root.resolve(), inputs)}
    Path(summary).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


EMPTY = hashlib.sha1(b"tree 0\0", usedforsecurity=False).hexdigest()


def tree_hash(folder: Path, others: set[Path]) -> str:
    """Return what `git write-tree` would print of a folder whose files are all added, but for others."""
    entries = []
    for path in folder.iterdir():
        if path.is_dir():
            if (tree := tree_hash(path, others)) != EMPTY:
                entries.append((f"{path.name}/", "40000", path.name, tree))
        elif path not in others:
            mode = "100755" if os.access(path, os.X_OK) else "100644"
            entries.append((path.name, mode, path.name, object_hash("blob", path.read_bytes())))
    lines = (f"{mode} {name}\0".encode() + bytes.fromhex(digest) for _, mode, name, digest in sorted(entries))
    return object_hash("tree", b"".join(lines))


def object_hash(kind: str, data: bytes) -> str:
    """Return the name that git gives an object."""
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
