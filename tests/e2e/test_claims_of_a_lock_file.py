"""Stories of results that only a lock file has: they are verified before they count, and no model is asked."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.record import LockFile, Record
from orch23.store.lock_file import read_lock, write_lock
from tests.project import decisions
from tests.repository import EchoModel, Repository, ends, green, llm, pipeline, spec, up_to_date

UNTRUSTED = {"ORCH23_TRUST": "0"}
GOOD_TEST = "import code_under_test\n\ndef test_it():\n    assert code_under_test.good\n"

STAGES: Mapping[str, Mapping[str, Any]] = {
    "text": llm(["a.md"], ["out/a.txt"]),
    "code": {"inputs": ["in.txt"], "outputs": ["src/code_under_test.py"], "shell": "cat in.txt > $OUT"},
    "tests": {
        "inputs": ["src/code_under_test.py", "tests/test_it.py"],
        "pytest": {"paths": ["tests"], "pythonpath": ["src"]},
    },
    "page": {"inputs": ["out/a.txt"], "outputs": ["page.txt"], "render": {"template": "page.j2"}},
    "package": {
        "inputs": ["out/a.txt", "page.txt"],
        "outputs": ["all.txt"],
        "shell": "cat out/a.txt page.txt > all.txt",
    },
}
NAMES = list(STAGES)


@pytest.fixture(autouse=True)
def model():
    with EchoModel().answering() as answering:
        yield answering


def maker(root: Path, stages: Mapping[str, Mapping[str, Any]] = STAGES) -> Repository:
    """Return a project that was built and committed, as its author has it."""
    project = Repository(root)
    project.init()
    files = pipeline({name: dict(stage) for name, stage in stages.items()})
    project.write(files)
    project.write({"a.md": spec("out/a.txt: hello"), "in.txt": "good = True\n", "tests/test_it.py": GOOD_TEST})
    project.write({"page.j2": "{% for one in inputs %}{{ one.text }}{% endfor %}\n"})
    project.replace("a.yaml", "$OUT", "src/code_under_test.py") if "code" in stages else None
    green(project.build("a.yaml"))
    project.commit()
    return project


def cloned(project: Repository, root: Path) -> Repository:
    clone = project.clone(root)
    clone.run = _untrusting(clone)  # type: ignore[method-assign]
    return clone


def _untrusting(project: Repository) -> Callable[..., Any]:
    run = project.run
    return lambda *argv, env=None: run(*argv, env={**UNTRUSTED, **(env or {})})


def forge(project: Repository, stage: str, change: Callable[[Record], Record]) -> None:
    lock = read_lock(project.root / "a.lock")
    records = {**lock.records, stage: change(lock.records[stage])}
    write_lock(project.root, "a.lock", LockFile(records, lock.retained), "a")


def entry(text: str) -> FileEntry:
    return FileEntry(digest_bytes(text.encode()))


@pytest.mark.slow
def test_a_clone_verifies_each_result_once_and_asks_no_model(tmp_path, model):
    author = maker(tmp_path / "author")
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    lock = clone.read("a.lock")
    planned = clone.run("plan", "a.yaml", "--json").json()
    assert decisions(planned) == dict.fromkeys(NAMES, "verify")
    assert all(one["reasons"][0]["code"] == "claim" for one in planned["stages"])
    assert planned["llm_calls"] == {"min": 0, "max": 0}
    assert "verify: claim" in clone.run("plan", "a.yaml").out
    assert green(clone.build("a.yaml")).code == 0
    assert ends(clone) == dict.fromkeys(NAMES, "verified")
    assert clone.read("a.lock") == lock, "verification leaves the lock file as it is"
    assert clone.git("status", "--porcelain") == ""
    up_to_date(clone.build("a.yaml"))
    assert len(model.calls) == calls


@pytest.mark.slow
def test_a_claim_whose_files_are_gone_is_restored_once_it_is_verified(tmp_path, model):
    author = maker(tmp_path / "author")
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    lock = clone.read("a.lock")
    for path in ("out/a.txt", "page.txt", "all.txt"):
        clone.delete(path)
    green(clone.build("a.yaml"))
    assert clone.git("status", "--porcelain") == ""
    assert (len(model.calls), clone.read("a.lock")) == (calls, lock)


@pytest.mark.slow
def test_a_lost_store_makes_claims_of_all_results(tmp_path):
    author = maker(tmp_path / "author")
    shutil.rmtree(author.root / ".orch23")
    assert set(author.plan("a.yaml", env=UNTRUSTED).values()) == {"verify"}
    green(author.build("a.yaml", env=UNTRUSTED))
    up_to_date(author.build("a.yaml", env=UNTRUSTED))


@pytest.mark.slow
def test_where_everything_is_trusted_a_clone_is_up_to_date_and_stays_so(tmp_path):
    clone = cloned(maker(tmp_path / "author"), tmp_path / "clone")
    up_to_date(clone.build("a.yaml", env={"ORCH23_TRUST": "1"}))
    up_to_date(clone.build("a.yaml"))


@pytest.mark.slow
def test_what_a_model_is_said_to_have_written_and_does_not_pass_fails_without_a_call(tmp_path, model):
    author = maker(tmp_path / "author")
    author.write({"out/a.txt": "bad\n"})
    forge(author, "text", lambda one: replace(one, outputs={"out/a.txt": entry("bad\n")}))
    author.commit()
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    for _ in range(2):
        refused = clone.build("a.yaml", "--keep-going")
        assert refused.code == 1
        assert ends(clone)["text"] == "failed"
        assert ends(clone)["package"] == "blocked"
        assert "the result in the lock file does not pass" in refused.out + refused.err
        assert "--resample text" in refused.out + refused.err
    assert len(model.calls) == calls
    green(clone.build("a.yaml", "--resample", "text", env={"ORCH23_TRUST": "1"}))
    assert len(model.calls) == calls + 1


@pytest.mark.slow
def test_tests_that_are_said_to_have_passed_run(tmp_path):
    author = maker(tmp_path / "author")
    author.write({"src/code_under_test.py": "good = False\n"})
    bad = entry("good = False\n")
    forge(author, "code", lambda one: replace(one, outputs={"src/code_under_test.py": bad}))
    lock = read_lock(author.root / "a.lock")
    planned = author.plan("a.yaml", env={"ORCH23_TRUST": "1"})
    assert planned["code"] == "fresh", "else the forgery is none"
    assert lock.records["code"].outputs["src/code_under_test.py"] == bad
    author.commit()
    clone = cloned(author, tmp_path / "clone")
    green(clone.build("a.yaml"))
    assert clone.read("src/code_under_test.py") == "good = True\n", "what the command makes is the result"
    assert ends(clone)["code"] == "built"


@pytest.mark.slow
def test_a_failing_test_in_a_clone_fails_whatever_the_lock_file_says(tmp_path):
    stages = {"check": {"inputs": ["in.txt"], "shell": "grep True in.txt"}}
    author = maker(tmp_path / "author", stages)
    author.edit("in.txt", "good = False\n")
    red = author.build("a.yaml")
    assert red.code == 1
    now = author.run("plan", "a.yaml", "--json").json()["stages"][0]["key"]
    assert now
    manifest = author.run("explain", "check", "a.yaml", "--json").json()
    assert manifest
    forge(author, "check", lambda one: _with_input(one, "in.txt", "good = False\n", now))
    assert author.plan("a.yaml", env={"ORCH23_TRUST": "1"})["check"] == "fresh", "else the forgery is none"
    author.commit()
    clone = cloned(author, tmp_path / "clone")
    assert clone.build("a.yaml").code == 1
    assert clone.build("a.yaml").code == 1


def _with_input(record: Record, path: str, text: str, key: str) -> Record:
    manifest = {**record.manifest, f"input:{path}": str(entry(text))}
    return replace(record, manifest=manifest, key=key)


@pytest.mark.slow
def test_accepted_edits_of_a_clone_stay(tmp_path, model):
    author = maker(tmp_path / "author")
    author.edit("out/a.txt", "mine\n")
    green(author.run("accept", "text", "a.yaml"))
    green(author.build("a.yaml"))
    author.commit()
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    lock = clone.read("a.lock")
    green(clone.build("a.yaml"))
    assert (clone.read("out/a.txt"), clone.read("a.lock"), len(model.calls)) == ("mine\n", lock, calls)
    up_to_date(clone.build("a.yaml"))


@pytest.mark.slow
def test_an_accepted_output_of_a_command_stays_if_the_command_still_passes(tmp_path):
    author = maker(tmp_path / "author")
    author.edit("page.txt", "mine\n")
    green(author.run("accept", "page", "a.yaml"))
    green(author.build("a.yaml"))
    author.commit()
    clone = cloned(author, tmp_path / "clone")
    lock = clone.read("a.lock")
    green(clone.build("a.yaml"))
    assert (clone.read("page.txt"), clone.read("a.lock")) == ("mine\n", lock)
    assert set(ends(clone).values()) == {"verified"}


def chain(root: Path, *, transcripts: bool) -> Repository:
    """Return a project in which two items edit one file, the second after the first."""
    project = Repository(root)
    project.init()
    stage = {
        "foreach": {"from": "items.json", "key": "id", "as": "item", "order": "sequential"},
        "inputs": ["a.md"],
        "outputs": ["code.txt"],
        "llm": {},
        "verify": [{"shell": "! grep -q bad code.txt"}],
        "retry": 0,
    }
    items = [{"id": name, "text": name, "files": ["code.txt"]} for name in ("one", "two")]
    project.write(pipeline({"step": stage})).write({"items.json": json.dumps(items), "a.md": "x\n"})
    if not transcripts:
        project.write({".gitignore": ".orch23/\nlogs/\ntranscripts/\n"})
    green(project.build("a.yaml"))
    project.commit()
    return project


@pytest.mark.slow
@pytest.mark.parametrize("transcripts", [True, False])
def test_a_chain_is_verified_with_the_versions_that_can_be_had(tmp_path, model, transcripts):
    author = chain(tmp_path / "author", transcripts=transcripts)
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    lock = clone.read("a.lock")
    assert set(clone.plan("a.yaml").values()) == {"verify"}
    green(clone.build("a.yaml"))
    assert set(ends(clone).values()) == {"verified"}
    assert (clone.read("a.lock"), len(model.calls)) == (lock, calls)
    up_to_date(clone.build("a.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("transcripts", [True, False])
def test_a_forged_end_of_a_chain_fails_without_a_call(tmp_path, model, transcripts):
    author = chain(tmp_path / "author", transcripts=transcripts)
    author.write({"code.txt": "bad\n"})
    last = max(read_lock(author.root / "a.lock").records)
    forge(author, last, lambda one: replace(one, outputs={"code.txt": entry("bad\n")}))
    author.commit()
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    assert clone.build("a.yaml").code == 1
    assert "failed" in ends(clone).values()
    assert len(model.calls) == calls


@pytest.mark.slow
def test_a_clone_in_which_an_input_changed_asks_for_that_stage_alone(tmp_path, model):
    author = maker(tmp_path / "author")
    calls = len(model.calls)
    clone = cloned(author, tmp_path / "clone")
    clone.edit("a.md", spec("out/a.txt: other"))
    planned = clone.plan("a.yaml")
    assert (planned["text"], planned["code"], planned["tests"]) == ("run", "verify", "verify")
    green(clone.build("a.yaml", env={"ORCH23_TRUST": "1"}))
    assert len(model.calls) == calls + 1
