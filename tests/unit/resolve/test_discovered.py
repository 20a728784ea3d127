"""A record is today's if today's values of the aspects that it names give its key."""

from typing import Any

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.pipeline import ChainLink, Pipeline, Stage, WriteScope
from orch23.model.record import Facts, Record, retained_key
from orch23.resolve.discovered import NO_FILE, as_of_records, found_manifest, todays_manifest, with_manifest
from orch23.resolve.resolution import ResolvedStage, resolve_stage
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep
from tests.unit.resolve.test_resolution import Files

EDITS = ("src/**", "named.py")
ASKS = LLMStep(provider="command", model="m", prompt="p.j2")


def resolved(base: dict[str, str], step: Any = ASKS) -> ResolvedStage:
    stage = Stage(
        name="s",
        step=step,
        outputs=EDITS,
        edits=EDITS,
        fence=WriteScope(EDITS),
        chain=ChainLink(chain="s", index=0),
    )
    files = Files({}, base=base, author={"p.j2": "do"})
    pipeline = Pipeline(name="p", file="p.yaml", stages=(stage,))
    return resolve_stage(stage, files, Facts(), files, pipeline=pipeline, read_yaml=lambda _: None)


def entry(text: str) -> FileEntry:
    return FileEntry(digest_bytes(text.encode()))


def record(made: ResolvedStage, *written: str, deleted: tuple[str, ...] = ()) -> Record:
    found = with_manifest(made, found_manifest(made, (*written, *deleted)))
    outputs = {path: entry(f"new {path}") for path in written}
    return Record(stage="s", key=found.key, manifest=found.manifest, outputs=outputs, deleted=deleted)


def bases(made: ResolvedStage) -> dict[str, Any]:
    return {aspect: value for aspect, value in made.manifest.items() if aspect.startswith("base:")}


def test_a_pattern_of_a_model_is_in_the_key_and_its_files_are_not() -> None:
    before = {"src/a.py": "a", "named.py": "n"}
    assert bases(resolved(before)) == {"base:named.py": str(entry("n"))}
    assert resolved(before).key == resolved({**before, "src/a.py": "mine"}).key
    assert resolved(before).key != resolved({**before, "named.py": "mine"}).key


def test_all_files_that_match_are_in_the_key_of_a_program() -> None:
    assert bases(resolved({"src/a.py": "a"}, ShellStep(command="true"))) == {"base:src/a.py": str(entry("a"))}


def test_a_record_names_what_its_run_changed_created_and_deleted() -> None:
    before = {"src/a.py": "a", "src/b.py": "b", "src/c.py": "c"}
    made = record(resolved(before), "src/a.py", "src/new.py", deleted=("src/b.py",))
    named = {aspect: value for aspect, value in made.manifest.items() if aspect.startswith("base:")}
    assert named == {
        "base:src/a.py": str(entry("a")),
        "base:src/b.py": str(entry("b")),
        "base:src/new.py": NO_FILE,
    }


def test_a_record_is_todays_until_a_base_that_it_names_changes() -> None:
    before = {"src/a.py": "a", "src/b.py": "b"}
    made = record(resolved(before), "src/a.py", "src/new.py")
    for other in ({"src/b.py": "mine"}, {"src/c.py": "more"}):
        assert as_of_records(resolved({**before, **other}), [made]).key == made.key
    for other in ({"src/a.py": "mine"}, {"src/new.py": "mine"}):
        now = as_of_records(resolved({**before, **other}), [made])
        assert now.key != made.key
        assert now.manifest == todays_manifest(resolved({**before, **other}), made)


def test_the_first_record_that_is_todays_counts_and_else_the_first_one() -> None:
    before = {"src/a.py": "a", "src/b.py": "b"}
    newest, older = record(resolved(before), "src/b.py"), record(resolved(before), "src/a.py")
    now = resolved({**before, "src/b.py": "mine"})
    assert as_of_records(now, [newest, older]).key == older.key
    both = resolved({"src/a.py": "mine", "src/b.py": "mine"})
    assert as_of_records(both, [newest, older]).manifest == todays_manifest(both, newest)
    assert as_of_records(both, []).key == both.key


def test_a_record_that_reset_kept_is_found_by_its_key() -> None:
    before = {"src/a.py": "a", "src/b.py": "b"}
    made, other = record(resolved(before), "src/a.py"), record(resolved(before), "src/b.py")
    kept = Record(stage="s", key=retained_key(made.key), manifest={}, outputs=made.outputs, failed=True)
    assert as_of_records(resolved({**before, "src/b.py": "mine"}), [other, kept]).key == made.key


def test_a_second_discovery_replaces_the_first() -> None:
    made = resolved({"src/a.py": "a", "src/b.py": "b"})
    once = with_manifest(made, found_manifest(made, ["src/a.py"]))
    assert found_manifest(once, ["src/b.py"]) == found_manifest(made, ["src/b.py"])
