"""What changed since a build with nothing to do is looked up, or everything is decided."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from orch23.decide.dependency_index import IndexHead, all_rows
from orch23.decide.partial_plan import Part, Since, part_of
from orch23.model.digest import Digest, digest_bytes
from orch23.model.event import RunStarted
from orch23.model.pipeline import Stage
from orch23.plan.nodes import reads_of
from orch23.store.project_store import ProjectStore, open_store
from tests.unit.decide.test_dependency_index import TEXT, bare, plan_of, record

BEFORE = digest_bytes(TEXT.encode())
LAST = Since(table="t", token="token", file="p.yaml", changed=(), digest_of={"p.yaml": BEFORE, "v.yaml": BEFORE}.get)
"""A build with nothing to do, since which nothing has changed."""


@pytest.fixture
def store(tmp_path: Path) -> ProjectStore:
    """Return a store with the table of a project at rest, and the project's files."""
    plan = plan_of()
    names = frozenset(plan.nodes)
    stages = {name: node for name, node in plan.nodes.items() if isinstance(node, Stage)}
    reads = {name: {*reads_of(node), f"{name}.out"} for name, node in stages.items()}
    began = RunStarted(name="p", spec_file="a.in")
    head = IndexHead("token", bare(plan), began, {"fresh": len(names), "skipped": 1}, ("p.yaml", "v.yaml"))
    table = all_rows(head, TEXT, plan, names, reads, {name: record(name) for name in names}, names - {"left"})
    assert table is not None
    (tmp_path / "p.yaml").write_text(TEXT)
    (tmp_path / "a.in").write_text("a")
    found = open_store(tmp_path)
    with found.build_lock():
        found.records.put(record("a"))
        found.save_index(fresh={"t": table})
    return found


def part(store: ProjectStore, since: Since, edited: Mapping[str, Stage] | None = None) -> Part | None:
    return part_of(since, store, lambda _index, _text: edited)


def test_what_a_change_reaches_is_a_part_of_the_plan(store: ProjectStore) -> None:
    found = part(store, replace(LAST, changed=("a.in",)))
    assert found is not None
    assert (found.names, found.plan.order, found.text) == (("a", "b"), ("a", "b"), "")
    assert found.digests == {"p.yaml": BEFORE, "v.yaml": BEFORE}
    assert found.idle_counts == {"fresh": 12, "skipped": 1}
    assert found.rows.head.began.spec_file == "a.in"


def test_the_index_of_a_foreign_store_is_not_used(store: ProjectStore) -> None:
    assert part(replace(store, is_foreign=True), replace(LAST, changed=("a.in",))) is None


def test_only_recorded_stages_are_searched_in_the_lock_file(store: ProjectStore) -> None:
    (store.root / "g.in").touch()
    found = part(store, replace(LAST, changed=("g.in",)))
    assert found is not None
    assert (found.names, found.recorded) == (("left", "right", "after"), ("right", "after"))


def test_an_edited_stage_takes_the_place_of_the_one_before(store: ProjectStore) -> None:
    stage = plan_of().nodes["b"]
    assert isinstance(stage, Stage)
    (store.root / "p.yaml").write_text("edited")
    since = replace(LAST, changed=("p.yaml",))
    found = part(store, since, {"b": replace(stage, salt="2")})
    assert found is not None
    assert (found.names, found.text) == (("b",), "edited")
    assert found.plan.nodes["b"] == replace(stage, salt="2")
    assert found.digests == {"p.yaml": digest_bytes(b"edited"), "v.yaml": BEFORE}
    assert part(store, since, None) is None
    assert part(store, since, {"b": replace(stage, outputs=("other.out",))}) is None
    assert part(store, since, {"new": stage}) is None


def unknown(_path: str) -> Digest | None:
    return None


@pytest.mark.parametrize(
    "since",
    [
        replace(LAST, token="other"),
        replace(LAST, token=None),
        replace(LAST, table="none"),
        replace(LAST, digest_of=unknown),
        replace(LAST, changed=("nobody.reads",)),
        replace(LAST, changed=("p1.in",)),
        LAST,
    ],
    ids=["another token", "no token", "no table", "not looked at", "unread", "gone", "nothing"],
)
def test_where_the_index_does_not_say_enough_there_is_no_part(store: ProjectStore, since: Since) -> None:
    changed = since.changed or (() if since is LAST else ("a.in",))
    assert part(store, replace(since, changed=changed)) is None


def test_of_records_that_changed_since_there_is_no_part(store: ProjectStore) -> None:
    other = open_store(store.root)
    other.records.put(record("of another build"))
    assert part(open_store(store.root), replace(LAST, changed=("a.in",))) is None
