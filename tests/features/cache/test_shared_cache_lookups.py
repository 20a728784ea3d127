"""Lookups in a slow shared cache: they hold up nothing but their own stages, and do not depend on their order."""

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orch23.attempt.stage_work import Worker
from orch23.decide.decisions import DecidedStage, StageDecider
from orch23.features.cache import server_login
from orch23.features.cache.claims import RECORD
from orch23.features.cache.reapi.entries import decode_result
from orch23.model.digest import Digest
from tests.doubles import MemoryCache
from tests.e2e.pipelines import green, pipeline, prompt, shell
from tests.project import Project

pytestmark = pytest.mark.slow

_LONG_S = 20.0
"""A cache waits so long for what it should not have to wait for; then a test fails."""
CHAIN = """
  a: {inputs: [in.txt], outputs: [a.txt], shell: "cat in.txt > a.txt; echo a >> a.txt"}
  b: {inputs: [a.txt], outputs: [b.txt], shell: "cat a.txt > b.txt; echo b >> b.txt"}
  c: {inputs: [b.txt], outputs: [c.txt], shell: "cat b.txt > c.txt; echo c >> c.txt"}
  d: {inputs: [c.txt], outputs: [d.txt], shell: "cat c.txt > d.txt; echo d >> d.txt"}
"""
FILES = ("a.txt", "b.txt", "c.txt", "d.txt", "pipeline.lock")
# Another result in each run.
RANDOM = CHAIN.replace("cat in.txt > a.txt", "cat in.txt /proc/sys/kernel/random/uuid > a.txt")


@pytest.fixture(autouse=True)
def _unsandboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> MemoryCache:
    backend = MemoryCache()
    monkeypatch.setattr(server_login, "open_shared_cache", lambda *_: backend)
    return backend


def checkout(root: Path, stages: str, **files: str) -> Project:
    head = "cache: {platform: any}\ndefaults: {sandbox: off}\n"
    return Project(root).write(shell(stages, {"in.txt": "right\n", **files}, head=head))


class Held:
    """Requests for one digest of a backend, which get no reply until they are released.

    `others` are the digests of the other requests of that kind so far.
    """

    def __init__(self, backend: MemoryCache, kind: str, digest: Digest, until: Callable[[list[Digest]], bool]) -> None:
        self.others: list[Digest] = []
        self.was_released = True
        self._kind, self._digest, self._until, self._free = kind, digest, until, threading.Event()
        backend.before = self._before

    def _before(self, kind: str, digest: Digest | None) -> None:
        if digest is None:
            return
        if (kind, digest) == (self._kind, self._digest):
            self.was_released &= self._free.wait(_LONG_S)
            return
        if kind == "entry":
            self.others.append(digest)
        if self._until(self.others):
            self._free.set()


def stored(backend: MemoryCache, root: Path, stages: str) -> dict[str, Digest]:
    """Store the results of some stages, and return their entries by stage, in plan order."""
    green(checkout(root, stages).build("--cache", "/shared"))
    return entries(backend)


def entries(backend: MemoryCache) -> dict[str, Digest]:
    """Return the entries of a backend by stage, in plan order."""
    records = {entry: decode_result(data)[RECORD].contents for entry, data in backend.entries.items()}
    return dict(sorted((json.loads(text or b"")["stage"], entry) for entry, text in records.items()))


def test_a_lookup_without_a_reply_does_not_hold_up_other_stages(backend: MemoryCache, tmp_path: Path) -> None:
    # It is first in the plan, and the others go on to the end of their chain meanwhile. The last two are not stored.
    stages = f"  Slow: {{inputs: [in.txt], outputs: [slow.txt], shell: cp in.txt slow.txt}}{CHAIN}"
    slow, *_ = stored(backend, tmp_path / "one", stages).values()
    held = Held(backend, "entry", slow, lambda asked: len(set(asked)) == 6)
    more = (
        "  e: {inputs: [d.txt], outputs: [e.txt], shell: cp d.txt e.txt}\n"
        "  f: {inputs: [e.txt], outputs: [f.txt], shell: cp e.txt f.txt}\n"
    )
    two = checkout(tmp_path / "two", stages + more)
    green(two.build("--cache", "/shared"))
    assert held.was_released
    assert two.ran() == ["e", "f"]


def test_a_lookup_without_a_reply_does_not_hold_up_stages_that_run(backend: MemoryCache, tmp_path: Path) -> None:
    slow = "  Slow: {inputs: [in.txt], outputs: [slow.txt], shell: cp in.txt slow.txt}\n"
    (first,) = stored(backend, tmp_path / "one", slow).values()
    # The chain is not in the cache: each of its stages runs, and is then looked up by the next one.
    held = Held(backend, "entry", first, lambda others: len(set(others)) == 4)
    two = checkout(tmp_path / "two", slow + CHAIN)
    green(two.build("--cache", "/shared", "--jobs", "1"))
    assert held.was_released
    assert sorted(two.ran()) == ["a", "b", "c", "d"]


def test_a_chain_is_looked_up_while_its_first_file_is_downloaded(backend: MemoryCache, tmp_path: Path) -> None:
    first = [*stored(backend, tmp_path / "one", CHAIN).values()]
    blob = next(one for one, data in backend.blobs.items() if data == b"right\na\n")
    held = Held(backend, "blob", blob, lambda others: set(others) == set(first))
    two = checkout(tmp_path / "two", CHAIN)
    green(two.build("--cache", "/shared"))
    assert held.was_released
    assert two.ran() == []
    assert [two.read(path) for path in FILES] == [Project(tmp_path / "one").read(path) for path in FILES]


def test_a_plan_looks_a_chain_up_while_it_asks_for_its_first_file(backend: MemoryCache, tmp_path: Path) -> None:
    stored(backend, tmp_path / "one", CHAIN)
    free, was_free = threading.Event(), []

    def before(kind: str, _digest: Digest | None) -> None:
        if kind == "entry" and backend.asked.count("entry") == 8:
            free.set()
        elif kind == "missing":
            was_free.append(free.wait(_LONG_S))

    backend.before = before
    assert set(checkout(tmp_path / "two", CHAIN).plan("--cache", "/shared").values()) == {"restore"}
    assert was_free == [True] * 4


def test_the_stages_of_a_lock_file_are_looked_up_at_once(backend: MemoryCache, tmp_path: Path) -> None:
    first = [*stored(backend, tmp_path / "one", CHAIN).values()]
    held = Held(backend, "entry", first[0], lambda others: set(others) == set(first[1:]))
    two = checkout(tmp_path / "two", CHAIN, **{"pipeline.lock": Project(tmp_path / "one").read("pipeline.lock")})
    green(two.build("--cache", "/shared"))
    assert held.was_released
    assert two.ran() == []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_if_a_file_of_an_entry_is_lost_all_that_follows_is_built_from_the_new_one(
    backend: MemoryCache, tmp_path: Path, *, is_damaged: bool
) -> None:
    first = stored(backend, tmp_path / "one", RANDOM).values()
    made = Project(tmp_path / "one").read("a.txt").encode()
    blob = next(one for one, data in backend.blobs.items() if data == made)
    backend.blobs[blob] = made[::-1]
    if not is_damaged:
        del backend.blobs[blob]
    # The results of all other stages are here before that is known.
    held = Held(backend, "blob", blob, lambda others: set(others) == set(first))
    two = checkout(tmp_path / "two", RANDOM)
    green(two.build("--cache", "/shared"))
    assert held.was_released
    assert two.ran() == ["a", "b", "c", "d"]
    assert two.read("a.txt").encode() != made
    assert two.read("d.txt") == f"{two.read('a.txt')}b\nc\nd\n"
    assert two.build().err.endswith("up to date (4 stages)\n")


class InOrder:
    """Requests for entries of a backend, each of which gets its reply after those before it in an order.

    Those that were not requested yet do not count.
    """

    def __init__(self, backend: MemoryCache, order: Sequence[Digest]) -> None:
        self._order, self._turn = order, threading.Condition()
        self._asked: set[Digest] = set()
        self._done: set[Digest] = set()
        backend.before = self._before

    def _before(self, kind: str, digest: Digest | None) -> None:
        if kind != "entry" or digest is None:
            return
        with self._turn:
            self._asked.add(digest)
            before = set(self._order[: self._order.index(digest)])
            assert self._turn.wait_for(lambda: not before & self._asked - self._done, _LONG_S)
            self._done.add(digest)
            self._turn.notify_all()


@pytest.mark.stride(3)
@pytest.mark.parametrize("step", [1, -1, 2])
def test_the_order_of_replies_changes_no_result(backend: MemoryCache, tmp_path: Path, step: int) -> None:
    sources = {f"s{n:02}": f"s{n - 1:02}.txt" if n % 3 else "in.txt" for n in range(12)}
    stages = "".join(
        f'  {name}: {{inputs: [{source}], outputs: [{name}.txt], shell: "sort {source} {source} > {name}.txt"}}\n'
        for name, source in sources.items()
    )
    first = [*stored(backend, tmp_path / "one", stages).values()]
    InOrder(backend, [*first[::step], *(first[1::step] if step > 1 else ())])
    one, two = Project(tmp_path / "one"), checkout(tmp_path / "two", stages)
    green(two.build("--cache", "/shared"))
    assert two.ran() == []
    paths = ("pipeline.lock", *(f"{name}.txt" for name in sources))
    assert [two.read(path) for path in paths] == [one.read(path) for path in paths]


def test_a_signal_ends_the_wait_for_a_lookup(backend: MemoryCache, tmp_path: Path) -> None:
    end = threading.Event()

    def before(kind: str, _digest: Digest | None) -> None:
        if kind == "entry":
            os.kill(os.getpid(), signal.SIGINT)
            end.wait(_LONG_S)

    backend.before = before
    project = checkout(tmp_path / "one", CHAIN)
    done = project.build("--cache", "/shared")
    assert not end.is_set()
    end.set()
    assert done.code == 130
    assert project.ran() == []


def test_a_limit_of_the_run_ends_the_wait_for_a_lookup(backend: MemoryCache, tmp_path: Path) -> None:
    end = threading.Event()
    backend.before = lambda kind, _digest: kind == "entry" and end.wait(_LONG_S)
    project = checkout(tmp_path / "one", f"{CHAIN}stop_conditions: {{max_wall: 0.2s}}\n")
    done = project.build("--cache", "/shared")
    assert not end.is_set()
    end.set()
    assert "max_wall" in done.err
    assert project.ran() == []


def test_a_file_that_many_items_edit_is_restored_without_deciding_them_again_and_again(
    backend: MemoryCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = """
  edit:
    foreach: {from: items.json, as: item, order: sequential}
    inputs: [notes.md]
    outputs: [notes.md]
    llm: {prompt: edit.j2, returns: text}
"""
    items = [f"i{number:02}" for number in range(12)]
    files = {"notes.md": "notes", "items.json": json.dumps(items), "edit.j2": prompt("edit", "{{ item }}")}
    one, two = (Project(tmp_path / name).write(pipeline(stages, files)) for name in ("one", "two"))
    green(one.build("--cache", "/shared"))
    names = {entry: name for name, entry in entries(backend).items()}
    decided: list[str] = []
    turn = threading.Condition()
    decide = StageDecider.decide

    def counted(decider: StageDecider, name: str, *, need_intermediate: bool = False) -> DecidedStage:
        try:
            return decide(decider, name, need_intermediate=need_intermediate)
        finally:
            with turn:
                decided.append(name)
                turn.notify_all()

    def before(kind: str, digest: Digest | None) -> None:
        """Reply once a decision has needed the entry, except the first one, which is waited for before."""
        if kind == "entry" and digest in names and names[digest] != "edit@i00":
            with turn:
                assert turn.wait_for(lambda: names[digest] in decided, _LONG_S)

    monkeypatch.setattr(StageDecider, "decide", counted)
    backend.before = before
    green(two.build("--cache", "/shared"))
    assert (two.ran(), two.read("notes.md")) == ([], one.read("notes.md"))
    # Once to find out that it is not known yet, once for the items before it, and once for itself.
    assert max(decided.count(name) for name in names.values()) <= 3


def test_a_build_that_restores_everything_loads_nothing_for_model_calls(
    backend: MemoryCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = "  write: {inputs: [in.txt], outputs: [a.txt], llm: {prompt: write.j2, returns: text}}\n"
    files = {"in.txt": "in", "write.j2": prompt("write", "a draft")}
    one, two = (Project(tmp_path / name).write(pipeline(stages, files)) for name in ("one", "two"))
    green(one.build("--cache", "/shared"))
    prepared: list[object] = []
    monkeypatch.setattr(Worker, "prepare", lambda *stages: prepared.append(stages))
    green(two.build("--cache", "/shared"))
    assert (two.ran(), prepared) == ([], [])


def test_files_that_are_on_disk_already_are_not_downloaded(backend: MemoryCache, tmp_path: Path) -> None:
    stored(backend, tmp_path / "one", CHAIN)
    committed = {path: Project(tmp_path / "one").read(path) for path in FILES}
    untrusted = {"ORCH23_TRUST": ""}
    backend.asked.clear()
    two = checkout(tmp_path / "two", CHAIN, **committed)
    assert set(two.plan("--cache", "/shared").values()) == {"fresh"}
    done = two.build("--cache", "/shared", env=untrusted)
    green(done)
    assert "shared cache: 4 confirmed\n" in done.err
    assert (two.ran(), set(backend.asked)) == ([], {"entry"})
    (used,) = two.events_of("shared_cache")
    assert (used["data"]["confirmed"], used["data"]["restored"]) == (4, 0)
    assert two.build(env=untrusted).err.endswith("up to date (4 stages)\n")
    # Only what differs is downloaded.
    three = checkout(tmp_path / "three", CHAIN, **{**committed, "c.txt": "another\n"})
    (three.root / "d.txt").unlink()
    done = three.build("--cache", "/shared", "--overwrite-edited", env=untrusted)
    green(done)
    assert (three.ran(), backend.asked.count("blob")) == ([], 2)
    assert "shared cache: 2 restored (" in done.err
    assert [three.read(path) for path in FILES] == [*committed.values()]
