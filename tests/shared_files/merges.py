"""Merges of two users' branches in a history, and what a lock file knows after one."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.shared_files.values import Lock

if TYPE_CHECKING:
    from tests.shared_files.steps import Steps

LOCKS = ("ours", "theirs", "markers", "deleted")
FILES = ("hand", "ours", "theirs")


Part = tuple[tuple[Any, ...], ...]
"""The steps of one user between the last common commit and the merge."""


def merge(steps: "Steps", theirs: Part, mine: Part, lock: str, files: str) -> bool:
    """Let two users work in folders of their own, and merge the first one's branch into the second one's.

    One version of each lock file is kept, and files in conflict are resolved in one way.
    """
    if not steps.setup.git:
        return False
    steps._make_commit()
    here, written = steps.repository, dict(steps.written)
    steps._clone("bare")
    for step in theirs:
        steps.play(step)
    steps._make_commit()
    peer, steps.repository, steps.written = steps.repository.root, here, written
    steps.store.complete = False  # the responses of the other user stay in the other folder
    steps._read_head()
    for step in mine:
        steps.play(step)
    steps._make_commit()
    here.git("fetch", "-q", str(peer), "HEAD")
    _merge(steps, lock, files)
    return True


def _merge(steps: "Steps", lock: str, files: str) -> None:
    git = steps.repository.git
    branch = git("rev-parse", "FETCH_HEAD").strip()
    with contextlib.suppress(AssertionError):  # the conflicts
        git("merge", "-q", "--no-commit", "--no-ff", branch)
    for path in sorted({line.split("\t")[1] for line in git("ls-files", "-u").splitlines()}):
        _resolve(steps, path, lock if path.endswith(".lock") else files)
    disk = steps.disk()
    steps.written = {path: text for path, text in steps.written.items() if disk.get(path) == text}
    for name in ("a.lock", "b.lock"):
        if name in disk:
            _learn(steps, disk[name], [_at(steps, f"{side}:{name}") for side in ("HEAD", branch)])
    steps._make_commit()


def _resolve(steps: "Steps", path: str, how: str) -> None:
    """Resolve a file in conflict. A pipeline file stays as it is in the first branch; no spec gets a line by hand."""
    repository = steps.repository
    sides = {"ours": _at(steps, f":2:{path}"), "theirs": _at(steps, f":3:{path}")}
    if path.endswith(".yaml"):
        how = "ours"
    if how == "markers" and None not in sides.values():
        return
    if how == "hand" and sides["ours"] is not None and not path.endswith(".md"):
        repository.write({path: sides["ours"]})
        steps._edit(path)
        return
    text = sides["theirs" if how == "theirs" else "ours"]
    if text is not None:
        repository.write({path: text})
    elif repository.exists(path):
        repository.delete(path)
    if how == "deleted":
        steps._lockless(path.removesuffix(".lock"))


def _at(steps: "Steps", name: str) -> str | None:
    """Return a text of git, None if there is none."""
    with contextlib.suppress(AssertionError):
        return steps.repository.git("show", name)
    return None


# ---- what is known ---------------------------------------------------------------------------------


def past_locks(steps: "Steps", name: str) -> list[Lock]:
    """Return what the versions of a lock file in the commits of HEAD know, the newest first."""
    if not steps.setup.git:
        return []
    texts = [_at(steps, f"{commit}:{name}") for commit in steps.repository.git("rev-list", "HEAD").split()]
    return [steps.locks[text] for text in dict.fromkeys(texts) if text in steps.locks]


def _learn(steps: "Steps", text: str, sides: list[str | None]) -> None:
    """Remember what a merged lock file knows: each record that is as one of the sides has it."""
    versions = _versions(text)
    if text in steps.locks or any(len(_blocks(one)) < one.count(': {\n   "manifest"') for one in versions):
        return  # known already, or it has a record twice
    known = [(_blocks(side), steps.locks[side]) for side in sides if side is not None and side in steps.locks]
    found = [_known(_blocks(version), known) for version in versions]
    if len(known) < len(sides):
        return  # a lock file that the model has not seen
    first, last = found[0], found[-1]
    others = tuple(made for name, made in last.results.items() if first.results.get(name, made) != made)
    results, retained = {**last.results, **first.results}, {**last.retained, **first.retained}
    steps.locks[text] = replace(first, results=results, retained=retained, others=others)


def _known(blocks: Mapping[tuple[str, str], Any], sides: Sequence[tuple[Mapping[tuple[str, str], Any], Lock]]) -> Lock:
    found: dict[str, dict[str, Any]] = {"records": {}, "retained": {}}
    for (part, name), block in blocks.items():
        for side, lock in sides:
            if side.get((part, name)) == block:
                found[part][name] = (lock.results if part == "records" else lock.retained)[name]
    return Lock(found["records"], found["retained"])


def _blocks(text: str) -> dict[tuple[str, str], Any]:
    document = json.loads(text)
    parts = ("records", "retained")
    return {(part, name): block for part in parts for name, block in document.get(part, {}).items() if name != "~"}


def _versions(text: str) -> list[str]:
    """Return the two texts of a file with git's markers, or the text of a file without any."""
    if "\n<<<<<<< " not in text:
        return [text]
    one, other, where = "", "", "both"
    for line in text.splitlines(keepends=True):
        if line.startswith("<<<<<<< "):
            where = "one"
        elif line == "=======\n":
            where = "other"
        elif line.startswith(">>>>>>> "):
            where = "both"
        else:
            one += line if where != "other" else ""
            other += line if where != "one" else ""
    return [one, other]
