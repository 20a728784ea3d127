"""`gc` keeps a store small and loses nothing that is needed; `cache` says what it holds and whether it is sound."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orch23.features.upkeep.garbage_collection import stored_blobs
from orch23.store.project_store import open_store
from tests.e2e.pipelines import calls, pipeline, prompt, shell
from tests.project import Project

BIG = 40_000
STAGES = """\
  make:
    inputs: [in.txt]
    outputs: [big.txt]
    shell: "text=$(cat in.txt); for i in $(seq 400); do printf %s $text; done > big.txt"
  use: {inputs: [big.txt], outputs: [last.txt], shell: "wc -c < big.txt > last.txt"}
"""


def text(number: int) -> str:
    return f"{number:04}" * 25


@pytest.fixture
def grown(project: Project) -> Project:
    """Build five versions of 40 kB each; the last one is in force."""
    stages = STAGES
    project.write(shell(stages, {"in.txt": text(0)}))
    for number in range(1, 6):
        project.edit("in.txt", text(number))
        assert project.build().code == 0
    return project


def blobs(project: Project) -> set[str]:
    return {digest.sha256 for digest, _ in stored_blobs(project.root / ".orch23/cas")}


def stored(project: Project) -> int:
    found: int = project.run("cache", "stats", "--json").json()["size_bytes"]
    return found


@pytest.mark.slow
def test_nothing_goes_while_the_store_is_small(grown: Project) -> None:
    before = blobs(grown)
    outcome = grown.run("gc")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("nothing to remove; the store holds ")
    assert blobs(grown) == before


@pytest.mark.slow
def test_the_least_recently_used_results_go_first(grown: Project) -> None:
    grown.replace("in.txt", text(5), text(1))
    assert grown.build().code == 0  # the oldest result is restored, and so is used again
    assert grown.ran() == []
    grown.replace("in.txt", text(1), text(5))
    assert grown.build().code == 0
    outcome = grown.run("gc", "--keep", "125kB", "--json")
    reported = outcome.json()
    assert (outcome.code, outcome.err, reported["keep_bytes"]) == (0, "", 125_000)
    assert reported["size_bytes"] - reported["freed_bytes"] == reported["left_bytes"] <= 125_000
    assert abs(stored(grown) - reported["left_bytes"]) < 1_000
    states = {}
    for number in range(1, 6):
        grown.write({"in.txt": text(number)})
        states[number] = grown.plan()["make"]
    assert states[5] == "fresh"
    assert states[1] == "restore", "what was used last but one went before what was used before it"
    assert states[2] == "run"


@pytest.mark.slow
def test_what_is_needed_stays_however_small_the_store_is_to_be(grown: Project) -> None:
    outcome = grown.run("gc", "--keep", "0B")
    assert "all of it is needed" in outcome.out
    (grown.root / "big.txt").unlink()
    (grown.root / "last.txt").unlink()
    assert set(grown.plan().values()) == {"restore"}
    assert grown.build().code == 0
    assert grown.ran() == []
    assert len(grown.read("big.txt")) == BIG


@pytest.mark.slow
def test_what_todays_plan_would_restore_stays(grown: Project) -> None:
    grown.replace("in.txt", text(5), text(2))
    before = grown.plan()
    assert before["make"] == "restore"
    grown.run("gc", "--keep", "0B")
    assert grown.plan() == before


@pytest.mark.slow
def test_a_pipeline_that_is_not_valid_keeps_what_its_lock_file_names(grown: Project) -> None:
    whole = grown.read("pipeline.yaml")
    grown.edit("pipeline.yaml", whole.replace("inputs", "inptus"))
    outcome = grown.run("gc", "--keep", "0B")
    assert (outcome.code, "W671" in outcome.err) == (0, True)
    grown.edit("pipeline.yaml", whole)
    grown.delete("big.txt")
    assert grown.plan()["make"] == "restore"


@pytest.mark.slow
def test_what_goes_is_made_again_and_the_same(grown: Project) -> None:
    grown.run("gc", "--keep", "0B")
    grown.replace("in.txt", text(5), text(2))
    assert grown.plan()["make"] == "run"
    assert grown.build().code == 0
    assert grown.read("big.txt") == text(2) * 400
    assert set(grown.plan().values()) == {"fresh"}


@pytest.mark.slow
def test_a_dry_run_says_what_would_go_and_writes_nothing(grown: Project) -> None:
    before = {path: path.read_bytes() for path in grown.root.rglob("*") if path.is_file()}
    foreseen = grown.run("gc", "-n", "--keep", "0B", "--json").json()
    assert {path: path.read_bytes() for path in grown.root.rglob("*") if path.is_file()} == before
    done = grown.run("gc", "--keep", "0B", "--json").json()
    assert foreseen["dry_run"] is True
    assert {**foreseen, "dry_run": False} == done
    assert done["stored_files"] > 4


@pytest.mark.slow
def test_by_age_what_was_not_used_since_goes_whatever_its_size(grown: Project) -> None:
    old = [path for path in (grown.root / ".orch23/records").rglob("*") if path.is_file()]
    for path in sorted(old, key=lambda path: path.stat().st_mtime_ns)[:6]:
        os.utime(path, (0, 0))
    reported = grown.run("gc", "--keep", "30d", "--json").json()
    assert (reported["keep_bytes"], reported["results"]) == (None, 6)
    grown.replace("in.txt", text(5), text(2))
    assert grown.plan()["make"] == "run"
    grown.replace("in.txt", text(2), text(4))
    assert grown.plan()["make"] == "restore"


@pytest.mark.slow
def test_what_the_lock_of_another_pipeline_needs_stays(grown: Project) -> None:
    other = "version: 1\nname: other\nstages:\n  o: {outputs: [sub/o.txt], shell: 'echo other > sub/o.txt'}\n"
    grown.write({"deep/down/other.yaml": other})
    assert grown.build("deep/down/other.yaml").code == 0
    grown.run("gc", "--keep", "0B")
    grown.delete("sub/o.txt")
    assert grown.build("deep/down/other.yaml").code == 0
    assert grown.ran() == []


@pytest.mark.slow
def test_what_lies_on_the_disk_is_still_known_to_be_made(grown: Project) -> None:
    (grown.root / "pipeline.lock").unlink()
    grown.replace("in.txt", text(5), text(6))  # today's key has no record, and no lock names the one of the disk
    for journal in grown.journals():
        journal.unlink()
    grown.run("gc", "--keep", "0B")
    assert grown.plan()["make"] == "run", "what a stage made must not look like a person's edit"
    assert grown.build().code == 0


@pytest.mark.slow
def test_a_damaged_lock_file_stops_it_before_anything_goes(grown: Project) -> None:
    before = blobs(grown)
    lock = grown.read("pipeline.lock")
    grown.edit("pipeline.lock", lock.replace("big.txt", "bag.txt"))
    outcome = grown.run("gc", "--keep", "0B")
    assert (outcome.code, "E703" in outcome.err) == (3, True)
    assert blobs(grown) == before


@pytest.mark.slow
def test_it_waits_for_no_build(grown: Project) -> None:
    with open_store(grown.root).build_lock():
        assert grown.run("gc").code == 75
        assert grown.run("cache", "verify").code == 75
        assert grown.run("gc", "-n").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["5", "GB", "-1GB", "30 days", "", "1e9B", "٣GB"])
def test_what_is_neither_size_nor_age_is_refused(project: Project, keep: str) -> None:
    outcome = project.run("gc", "--keep", keep)
    assert (outcome.code, "E641" in outcome.err) == (64, True)


@pytest.mark.slow
def test_a_project_without_a_store_gets_none(project: Project) -> None:
    assert project.run("gc").code == 0
    assert project.run("cache", "verify").code == 0
    assert project.run("cache", "stats").code == 0
    assert not project.exists(".orch23")


@pytest.mark.slow
def test_the_size_can_be_set_for_gc_and_builds_by_the_environment(grown: Project) -> None:
    reported = grown.run("gc", "-n", "--json", env={"ORCH23_GC_KEEP": "1kB"}).json()
    assert reported["keep_bytes"] == 1000
    assert grown.run("cache", "stats", "--json", env={"ORCH23_GC_KEEP": "1kB"}).json()["cap_bytes"] == 1000


@pytest.mark.slow
def test_a_build_beyond_the_size_says_what_gc_would_free(grown: Project) -> None:
    env = {"ORCH23_GC_KEEP": "100kB"}
    assert grown.run("gc").code == 0  # it measures
    grown.replace("in.txt", text(5), text(6))
    outcome = grown.build(env=env)
    assert outcome.code == 0
    assert outcome.err.count("`orch23 gc` would free up to ") == 1
    (reported,) = [event["message"] for event in grown.events_of("warning") if "orch23 gc" in event["message"]]
    assert reported in outcome.err
    assert grown.run("gc", env=env).code == 0
    assert "orch23 gc" not in grown.build(env=env).err
    grown.replace("in.txt", text(6), text(7))
    assert "orch23 gc" not in grown.build().err


@pytest.mark.slow
def test_what_is_only_needed_is_no_reason_to_say_something(project: Project) -> None:
    project.write(shell(STAGES, {"in.txt": text(0)}))
    assert "orch23 gc" not in project.build(env={"ORCH23_GC_KEEP": "10kB"}).err


# ---- answers ---------------------------------------------------------------------------------------------

ASKING = "  ask: {inputs: [topic.txt], outputs: [said.md], llm: {returns: code, prompt: ask.md.j2}}\n"
PROMPT = prompt("ask", "```\n{{ inputs[0].text }}```\n")


@pytest.fixture
def asked(project: Project) -> Project:
    project.write(pipeline(ASKING, {"topic.txt": "one\n", "ask.md.j2": PROMPT}))
    assert project.build().code == 0
    project.edit("topic.txt", "two\n")
    assert project.build().code == 0
    assert calls(project) == ["ask", "ask"]
    return project


@pytest.mark.slow
def test_no_answer_is_bought_twice(asked: Project) -> None:
    reported = asked.run("gc", "--keep", "0B", "--json").json()
    assert (reported["results"], reported["recorded_answers"]) == (0, 0)
    assert reported["stored_files"] > 0
    asked.edit("topic.txt", "one\n")
    assert asked.plan() == {"ask": "restore"}, "the bytes are made again from the answer"
    assert asked.build().code == 0
    assert asked.read("said.md") == "one\n"
    assert calls(asked) == ["ask", "ask"]


@pytest.mark.slow
def test_with_a_clear_word_answers_go_that_nothing_needs(asked: Project) -> None:
    reported = asked.run("gc", "--keep", "0B", "--forget-paid-answers", "--json").json()
    assert (reported["results"], reported["recorded_answers"]) == (1, 1)
    asked.delete("said.md")
    assert asked.build().code == 0
    assert calls(asked) == ["ask", "ask"]
    asked.edit("topic.txt", "one\n")
    assert asked.build().code == 0
    assert calls(asked) == ["ask", "ask", "ask"]


@pytest.mark.slow
def test_the_answers_of_a_stage_that_is_stale_today_stay_even_then(asked: Project) -> None:
    asked.edit("topic.txt", "three\n")
    reported = asked.run("gc", "--keep", "0B", "--forget-paid-answers", "--json").json()
    assert reported["recorded_answers"] == 0


@pytest.mark.slow
def test_the_bytes_of_an_edit_that_was_overwritten_are_never_cleared(grown: Project) -> None:
    grown.edit("big.txt", "mine")
    assert grown.build("--overwrite-edited").code == 0
    grown.run("gc", "--keep", "0B", "--forget-paid-answers")
    kept = [path.read_bytes() for path in (grown.root / ".orch23/exchanges/originals").iterdir()]
    assert kept == [b"mine"]
    grown.edit("big.txt", "mine again")
    assert grown.run("clean", "--force").code == 0
    grown.run("gc", "--keep", "0B")
    assert len(list((grown.root / ".orch23/exchanges/originals").iterdir())) == 2


# ---- a kill ----------------------------------------------------------------------------------------------

KILLED = """\
import os, sys
from pathlib import Path
at, calls = int(sys.argv[1]), 0
for name in ("unlink", "rename", "replace", "rmdir"):
    def wrap(real):
        def call(*args, **kwargs):
            global calls
            calls += 1
            if calls == at:
                os._exit(137)
            return real(*args, **kwargs)
        return call
    setattr(os, name, wrap(getattr(os, name)))
from orch23.cli.main import main
code = main(["-C", sys.argv[2], "gc", "--keep", "0B"])
print(calls)
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_at_any_moment_loses_nothing_that_is_needed(grown: Project, tmp_path: Path) -> None:
    source = str(Path(__file__).parents[2])
    saved = tmp_path / "saved"
    subprocess.run(["cp", "-a", grown.root, saved], check=True)

    def killed(at: int) -> "subprocess.CompletedProcess[str]":
        subprocess.run(["rm", "-rf", grown.root], check=True)
        subprocess.run(["cp", "-a", saved, grown.root], check=True)
        argv = [sys.executable, "-c", KILLED, str(at), str(grown.root)]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": source, "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
        return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)

    whole = killed(0)
    points = int(whole.stdout.split()[-1])
    assert points > 10
    tries = points if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 2
    for at in range(1, points + 1, max(1, points // tries)):
        assert killed(at).returncode == 137
        assert set(grown.plan().values()) == {"fresh"}
        grown.delete("big.txt")
        grown.delete("last.txt")
        assert grown.build().code == 0
        assert grown.ran() == []
        assert grown.run("gc", "--keep", "0B").code == 0
        assert grown.run("cache", "verify", "--exit-code").code == 0


# ---- cache -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stats_tell_how_much_there_is_of_each_kind(asked: Project) -> None:
    found: dict[str, Any] = asked.run("cache", "stats", "--json").json()
    kinds = {name: kind["number"] for name, kind in found["kinds"].items()}
    assert (kinds["results"], kinds["recorded_answers"], kinds["bytes_of_persons"]) == (2, 2, 0)
    assert kinds["stored_files"] == len(blobs(asked))
    files = [path for path in (asked.root / ".orch23").rglob("*") if path.is_file()]
    assert found["size_bytes"] == sum(path.stat().st_size for path in files)
    assert found["size_bytes"] == sum(kind["size_bytes"] for kind in found["kinds"].values())
    shown = asked.run("cache", "stats").out
    assert "2  recorded responses" in shown
    assert "`orch23 gc` keeps 10.0 GB" in shown


@pytest.mark.slow
def test_verify_names_what_is_damaged_and_a_build_makes_it_again(grown: Project) -> None:
    assert grown.run("cache", "verify", "--exit-code").code == 0
    victim = max((grown.root / ".orch23/cas").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    victim.chmod(0o644)
    victim.write_bytes(b"x" * BIG)
    record = next(path for path in (grown.root / ".orch23/records").rglob("*") if path.is_file())
    record.write_bytes(record.read_bytes().replace(b"last.txt", b"lust.txt").replace(b"big.txt", b"bag.txt"))
    outcome = grown.run("cache", "verify")
    assert outcome.code == 0
    assert f"damaged: {victim.name}" in outcome.out
    assert f"damaged: records/{record.name[:12]}" in outcome.out
    assert outcome.out.endswith("2 damaged\n")
    assert not victim.exists()
    assert not record.exists()
    assert grown.run("cache", "verify", "--exit-code").code == 0
    assert grown.build().code == 0


@pytest.mark.slow
def test_verify_ends_with_1_if_it_is_asked_to(grown: Project) -> None:
    victim = next(path for path in (grown.root / ".orch23/cas").rglob("*") if path.is_file())
    victim.chmod(0o644)
    victim.write_bytes(b"")
    outcome = grown.run("cache", "verify", "--exit-code", "--json")
    assert outcome.code == 1
    assert [line[:64] for line in json.loads(outcome.out)["damaged"]] == [victim.name]


@pytest.mark.slow
def test_a_damaged_answer_and_a_persons_bytes_are_set_aside(asked: Project) -> None:
    answer = next((asked.root / ".orch23/exchanges").rglob("*.json"))
    answer.write_bytes(answer.read_bytes()[:100])
    asked.edit("said.md", "mine")
    assert asked.build("--overwrite-edited").code == 0
    (kept,) = (asked.root / ".orch23/exchanges/originals").iterdir()
    kept.chmod(0o644)
    kept.write_bytes(b"his")
    outcome = asked.run("cache", "verify", "--exit-code")
    assert outcome.code == 1
    assert answer.with_name(f"{answer.name}.damaged").exists()
    assert kept.with_name(f"{kept.name}.damaged").read_bytes() == b"his"
    assert asked.run("cache", "verify", "--exit-code").code == 0


@pytest.mark.slow
def test_what_a_run_left_that_no_lock_file_has_stays(project: Project) -> None:
    stages = (
        "  first: {outputs: [a.txt], shell: 'echo a > a.txt'}\n"
        "  second: {inputs: [a.txt], outputs: [b.txt], shell: 'exit 1'}\n"
    )
    project.write(shell(stages))
    assert project.build().code == 1
    (project.root / "pipeline.lock").unlink()
    project.write(shell(stages.replace("echo a", "echo aa")))  # so that today's plan needs something else
    project.delete("a.txt")
    project.run("gc", "--keep", "0B")
    project.write(shell(stages))
    assert project.plan()["first"] == "restore"


# ---- the line that shows long work -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("output", "lines"), [("auto", 1), ("quiet", 0), ("jsonl", 0)])
def test_long_hashing_is_shown_once_on_what_is_no_terminal(
    project: Project, output: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 0.25)
    monkeypatch.setattr("orch23.cli.console.monotonic", lambda: next(clock))
    stages = "  a: {inputs: ['in/**'], outputs: [out.txt], shell: cat in/* > out.txt}\n"
    project.write(shell(stages, {f"in/{number}.txt": str(number) for number in range(9)}))
    outcome = project.build("--output", output)
    assert outcome.code == 0
    assert outcome.err.count("hashing many files\n") + outcome.err.count("copying many files\n") == lines
