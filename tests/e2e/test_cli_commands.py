"""Every command does what its help says: answers on stdout, nothing else there, the right exit code."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.model import features
from orch23.model.features import has_feature
from tests.e2e.pipelines import of_any_tier
from tests.project import Outcome, Project, scripted

ROOT = Path(__file__).parents[2]
COPY = {"inputs": ["in.txt"], "outputs": ["out.txt"], "shell": "cp in.txt out.txt"}
AFTER = {"inputs": ["out.txt"], "outputs": ["last.txt"], "shell": "cp out.txt last.txt"}


@pytest.fixture
def two(project: Project) -> Project:
    return project.write(
        {"in.txt": "one\n", "pipeline.yaml": json.dumps({"version": 1, "stages": {"copy": COPY, "after": AFTER}})}
    )


READING = [
    ("plan", "--json"),
    ("build", "-n", "--json"),
    ("status", "--json"),
    ("status", "--all", "--json"),
    ("explain", "copy", "--json"),
    ("graph", "--json"),
    ("vars", "--json"),
    ("runs", "--json"),
    ("show", "copy", "--key", "--json"),
    ("show", "copy", "--diff", "--json"),
    ("doctor", "--json"),
    ("gc", "-n", "--json"),
    ("cache", "stats", "--json"),
    ("model", "list", "--json"),
    ("validate", "--output-format", "json"),
    ("validate", "--output-format", "sarif"),
    ("schema",),
]


@pytest.mark.slow
@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_stdout_is_one_json_document_and_nothing_is_written(two: Project, argv: tuple[str, ...]) -> None:
    assert two.build().code == 0
    before = _everything(two.root)
    outcome = two.run(*argv)
    assert (outcome.code, outcome.err) == (0, "")
    json.loads(outcome.out)
    assert _everything(two.root) == before


@pytest.mark.needs("authoring")
@pytest.mark.needs("doctor", "inspecting")
def test_plan_and_status_write_nothing_into_a_new_project(two: Project) -> None:
    before = _everything(two.root)
    for argv in (("plan",), ("status",), ("explain", "copy"), ("graph",), ("runs",), ("doctor",), ("build", "-n")):
        assert two.run(*argv).code == 0, argv
    assert _everything(two.root) == before


@pytest.mark.slow
def test_exit_code_asks_whether_something_would_run(two: Project) -> None:
    assert two.run("plan").code == 0
    assert two.run("plan", "--exit-code").code == 1
    assert two.run("status", "--exit-code").code == 1
    two.build()
    assert two.run("plan", "--exit-code").code == 0
    assert two.run("status", "--exit-code").code == 0


@pytest.mark.slow
def test_the_selection_is_the_same_for_plan_and_build(two: Project) -> None:
    two.build()
    two.edit("in.txt", "two\n")
    assert two.plan("copy") == {"copy": "run"}
    assert two.plan("--until", "copy") == {"copy": "run"}
    assert two.plan("--only", "after") == {"after": "fresh"}
    assert set(two.plan("--downstream", "copy")) == {"copy", "after"}
    assert two.plan("--force", "after")["after"] == "run"
    assert two.build("copy").code == 0
    assert two.ran() == ["copy"]
    assert two.build("--only", "after").code == 0
    assert two.ran() == ["after"]


@pytest.mark.slow
def test_a_build_of_one_stage_tells_nothing_of_others_that_could_not_go_on_anyway(project: Project) -> None:
    both = {"inputs": ["out.txt", "other.txt"], "outputs": ["last.txt"], "shell": "cat out.txt other.txt > last.txt"}
    other = {"outputs": ["other.txt"], "shell": "echo > other.txt"}
    items = {**COPY, "foreach": {"from": "list.json#/items", "key": "k"}, "outputs": ["made/${{ item.k }}"]}
    lister = {"outputs": ["list.json"], "shell": "exit 1"}
    stages = {"copy": COPY, "other": other, "both": both, "lister": lister, "items": items}
    project.write({"in.txt": "one\n", "pipeline.yaml": json.dumps({"version": 1, "stages": stages})})
    outcome = project.build("copy")
    assert outcome.code == 0
    assert "blocked" not in outcome.err
    assert "1 stage: 1 built" in outcome.err
    assert "blocked" in project.build().err


def test_a_list_that_is_no_yaml_is_reported_with_its_place_and_no_code_within_the_code(project: Project) -> None:
    each = {"foreach": {"from": "list.yaml#/items", "key": "k"}, "outputs": ["${{ item.k }}"], "shell": "true"}
    project.write(
        {"list.yaml": "items:\n  - [\n", "pipeline.yaml": json.dumps({"version": 1, "stages": {"each": each}})}
    )
    reported = project.run("plan")
    assert reported.code == 65
    assert "`list.yaml` is not valid YAML: line " in reported.err
    assert "E801" not in reported.err


@pytest.mark.needs("authoring")
@pytest.mark.needs("inspecting")
@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("build", "cpoy"), 66, " build copy`?"),
        (("build", "--force", "cpoy"), 66, " build --force copy`?"),
        (("plan", "cpoy"), 66, " plan copy`?"),
        (("explain", "cpoy"), 66, " explain copy`?"),
        (("explain",), 64, "name a stage"),
        (("explain", "copy", "after"), 64, "the command takes"),
        (("graph", "copy"), 64, "the command takes"),
        (("build", "other.yaml"), 66, "other.yaml"),
        (("build", "pipelin.yaml", "copy"), 66, " build pipeline.yaml copy`?"),
        (("-C", ".", "plan", "pipeline.yml"), 66, " -C . plan pipeline.yaml`?"),
        (("-C", "nowhere", "build"), 66, "`nowhere` is not an existing directory"),
        (("-C", "pipeline.yaml", "build"), 66, "`pipeline.yaml` is not an existing directory"),
        (("build", "--set", "x"), 64, "--set NAME=VALUE"),
        (("build", "--set", "x=1"), 65, "E843"),
        (("log",), 66, "there are no runs"),
        (("show", "copy"), 66, "no result yet"),
        (("help", "E999"), 66, "E999"),
        (("accept", "copy"), 64, "no output of `copy` was edited"),
    ],
)
def test_what_makes_no_sense_is_said(two: Project, argv: tuple[str, ...], code: int, said: str) -> None:
    outcome = two.run(*argv)
    assert (outcome.code, outcome.out) == (code, "")
    assert said in outcome.err


@pytest.mark.needs("authoring")
def test_inputs_and_outputs_are_in_the_json_of_graph_plan_and_status(project: Project) -> None:
    inputs = ["src/**", "!src/v", {"list": "d/*"}, "n.md#A", {"path": "o", "optional": True}]
    verify = {"inputs": ["t"], "steps": [{"shell": "true"}]}
    each = {"foreach": {"from": "y"}, "inputs": ["${{ item }}.c"], "outputs": ["o/${{ item }}"], "shell": "true"}
    first = {"inputs": inputs, "verify": verify, "outputs": ["y", "z/"], "shell": "true"}
    off = {"if": False, "outputs": ["q"], "shell": "true"}
    text = json.dumps({"version": 1, "stages": {"a": first, "each": each, "off": off}})
    project.write({"pipeline.yaml": text, "src/a": "", "n.md": "# A\n", "t": ""})
    known = ["src/**", "!src/v", "!src/v/**", {"list": "d/*"}, "n.md#A", "o", "t"]
    wanted = {"a": (known, ["y", "z/"]), "each": (["**/*.c"], ["o/**"])}
    for argv, key in ((("graph", "--json"), "nodes"), (("plan", "--json"), "stages"), (("status", "--json"), "stages")):
        rows = json.loads(project.run(*argv).out)[key]
        found = {row["stage"]: (row["inputs"], row["outputs"]) for row in rows}
        assert found == wanted | ({"off": ([], [])} if key == "stages" else {})


def test_status_lists_all_stages_with_their_descriptions(project: Project) -> None:
    each = {"foreach": {"from": "y.json"}, "desc": "Copy ${{ item }}.", "outputs": ["o/${{ item }}"], "shell": "true"}
    stages = {
        "a": {"desc": "List them.", "outputs": ["y.json"], "shell": "echo '[\"n\"]' > y.json"},
        "each": {**each, "inputs": ["y.json"], "shell": ["cp", "y.json", "o/${{ item }}"]},
        "off": {"desc": "Not now.", "if": False, "outputs": ["q"], "shell": "true"},
        "one": {**each, "foreach": {"in": ["x"]}, "if": "${{ item == 'y' }}", "outputs": ["p/${{ item }}"]},
        "none": {**each, "foreach": {"in": []}, "outputs": ["r/${{ item }}"]},
        "never": {**each, "if": False, "outputs": ["s/${{ item }}"]},
    }
    project.write({"pipeline.yaml": json.dumps({"version": 1, "stages": stages})})
    raw = "Copy ${{ item }}."
    skipped = {"off": "Not now.", "one@x": raw, "none": raw, "never": raw}

    def listed(*more: str) -> dict[str, str]:
        rows = project.run("status", "--all", "--json", *more).json()["stages"]
        text = project.run("status", "--all", *more).out
        assert all(row["stage"] in text and row["desc"] in text for row in rows)
        assert text.count("\n     Copy") + text.count("\n     List") + text.count("\n     Not") == len(rows)
        return {row["stage"]: row["desc"] for row in rows}

    assert listed() == {"a": "List them.", "each": raw, **skipped}
    assert project.build().code == 0
    assert listed() == {"a": "List them.", "each@n": "Copy n.", **skipped}
    assert listed("a") == {"a": "List them."}
    assert project.run("status").out.startswith("pipeline: up to date (2 stages, 4 skipped)\n")
    # The plan of an edit has no lines for other stages.
    project.edit("o/n", "2\n")
    assert listed() == {"a": "List them.", "each@n": "Copy n.", **skipped}


@pytest.mark.needs("inspecting")
def test_jsonl_is_the_journal_itself(two: Project) -> None:
    outcome = two.build("--output", "jsonl")
    assert outcome.out == two.journals()[-1].read_text()
    assert outcome.err == ""
    assert two.run("log", "--json").out == outcome.out


def test_quiet_says_nothing_where_all_is_well(two: Project) -> None:
    first, again = two.build("-q"), two.build("--output", "quiet")
    assert (first.code, first.out, of_any_tier(first.err)) == (0, "", "")
    assert again == Outcome(0, "", "")


@pytest.mark.needs("upkeep")
def test_clean_removes_what_was_made_and_a_build_brings_it_back(two: Project) -> None:
    two.write({"mine.txt": "mine"}).build()
    assert two.run("clean", "after").out == "removed 1 file\n"
    assert (two.exists("last.txt"), two.exists("out.txt")) == (False, True)
    assert two.run("clean").out == "removed 1 file\n"
    assert two.read("mine.txt") == "mine"
    assert two.build().code == 0
    assert two.ran() == []
    assert two.read("last.txt") == "one\n"


@pytest.mark.needs("upkeep")
def test_clean_leaves_an_edit_unless_it_is_forced(two: Project) -> None:
    two.build()
    two.edit("out.txt", "edited\n")
    outcome = two.run("clean")
    assert outcome.code == 6
    assert "out.txt" in outcome.err
    assert two.exists("last.txt")
    assert two.run("clean", "--force").code == 0
    assert not two.exists("out.txt")


@pytest.mark.needs("upkeep")
def test_reset_forgets_results_and_keeps_answers_and_logs(project: Project) -> None:
    stages = {"code": {"outputs": ["a.py"], "llm": {"returns": "code"}}}
    project.write(scripted(stages, {"code": ["```\nx = 1\n```\n"]}))
    assert project.build().code == 0
    exchanges = sorted((project.root / ".orch23" / "exchanges").rglob("*.json"))
    outcome = project.run("reset", "--outputs")
    assert outcome.code == 0
    assert "removed a.py\n" in outcome.out
    assert not project.exists("a.py")
    assert not project.exists(".orch23/cas")
    assert sorted((project.root / ".orch23" / "exchanges").rglob("*.json")) == exchanges
    project.delete("pipeline.lock")
    assert project.build().code == 0
    (answer,) = project.events_of("llm_response")
    assert answer["data"]["replayed"] is True


@pytest.mark.needs("upkeep")
def test_reset_takes_back_no_output_that_somebody_edited(two: Project) -> None:
    two.build()
    two.edit("out.txt", "edited\n")
    two.run("reset", "--outputs")
    assert two.read("out.txt") == "edited\n"
    assert not two.exists("last.txt")


@pytest.mark.needs("upkeep")
def test_reset_names_the_outputs_that_it_leaves_and_how_to_remove_them(two: Project) -> None:
    assert "left the outputs" not in two.run("reset").out
    two.build()
    left = two.run("reset", "pipeline.yaml").out.splitlines()[-1]
    assert left == "left the outputs: `orch23 reset pipeline.yaml --outputs` removes those that you did not edit"
    assert two.exists("out.txt")
    removed = two.run("reset", "pipeline.yaml", "--outputs").out
    assert ("removed out.txt\n" in removed, "left the outputs" in removed, two.exists("out.txt")) == (
        True,
        False,
        False,
    )


@pytest.mark.needs("upkeep")
def test_reset_forgets_nothing_where_a_stage_is_named(project: Project) -> None:
    stage = {"outputs": ["a"], "shell": "echo 1 > a"}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "stages": {"a": stage}})})
    assert project.build().code == 0
    refused = project.run("reset", "a")
    assert refused.code == 64
    assert "the command takes no stage, not `a`" in refused.err
    assert project.plan() == {"a": "fresh"}


@pytest.mark.slow
def test_reset_fixes_what_a_build_cannot(two: Project) -> None:
    two.build()
    two.write({".orch23/VERSION": "99\n"})
    journal = two.journals()[-1]
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([lines[0][:-9], *lines[1:]]))
    assert two.build().code == 3
    assert two.run("reset").code == 0
    assert (two.root / "logs" / f"{journal.name}.damaged").exists()
    assert two.build().code == 0


@pytest.mark.needs("inspecting")
def test_show_finds_what_an_attempt_saw_and_said(project: Project) -> None:
    stages = {"code": {"outputs": ["a.py"], "llm": {"returns": "code"}, "retry": 1}}
    project.write(scripted(stages, {"code": ["```\nx = (\n```\n", "```\nx = 1\n```\n"]}))
    assert project.build().code == 0
    assert project.run("show", "code", "--response").out == "```\nx = 1\n```\n"
    assert project.run("show", "code", "--response", "--attempt", "1").out == "```\nx = (\n```\n"
    assert "It failed: llm_output_invalid" in project.run("show", "code", "--prompt").out
    assert "+x = 1\n" in project.run("show", "code", "--diff").out
    assert project.run("show", "code", "--cost").out.startswith("code in ")
    assert project.run("show", "code", "--attempt", "3").code == 66
    for path in (project.root / "logs").iterdir():
        if path.is_dir():
            subprocess.run(["rm", "-r", str(path)], check=True)
    assert project.run("show", "code", "--response").out == "```\nx = 1\n```\n"


@pytest.mark.needs("authoring")
def test_vars_say_where_they_come_from(project: Project) -> None:
    document = {"version": 1, "vars": {"a": 1, "b": "x"}, "stages": {"s": {"shell": "true"}}}
    project.write({"p.yaml": json.dumps(document)})
    assert project.run("vars", "p.yaml", "--set", "b=y").out == "a=1\nb=y\n"
    assert "b=y   (--set)" in project.run("vars", "p.yaml", "--set", "b=y", "--origin").out


@pytest.mark.needs("authoring")
def test_schema_is_written_where_it_is_wanted(project: Project) -> None:
    assert project.run("schema", "--out", ".orch23/pipeline.schema.json").out == ""
    assert json.loads(project.read(".orch23/pipeline.schema.json")) == project.run("schema").json()


def test_colours_only_where_they_are_wanted(two: Project) -> None:
    assert "\x1b" not in two.run("plan").out
    assert "\x1b[" in two.run("--color", "always", "plan").out
    assert "\x1b[" in two.run("plan", env={"CLICOLOR_FORCE": "1"}).out
    assert "\x1b" not in two.run("plan", env={"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}).out


# ---- in processes of their own ---------------------------------------------------------------------

HEAVY = (
    *("networkx", "jinja2", "jsonschema", "yaml", "anthropic", "openai", "genai_prices", "httpx2", "pydantic"),
    *("rich", "pytest", "asyncio", "copier", "plumbum"),
)
PROBE = f"""\
import sys
from orch23.cli.main import main
for command in sys.argv[1:]:
    code = main(command.split())
    print("\\nheavy:", [name for name in {HEAVY!r} if name in sys.modules], code, command, flush=True)
"""
COMMANDS = (
    *("build", "plan", "status", "explain", "validate", "graph", "affected", "diff", "vars", "schema", "runs"),
    *("log", "show"),
    *("accept", "clean", "reset", "gc", "cache", "init", "template", "model", "doctor", "help"),
)


def orch23(*argv: str, cwd: Path, program: str = PROBE) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(cwd)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *argv],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """All in one process: what one loads, all after it have; the first is to blame."""
    asked = ["--help", "--version", *(f"{name} --help" for name in COMMANDS if has_feature(features.COMMANDS, name))]
    process = orch23(*asked, cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert err == ""
    assert re.findall(r"^heavy: .*", out, re.MULTILINE) == [f"heavy: [] 0 {one}" for one in asked]


RUN = "from orch23.entry import run; run()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_a_build_in_good_order(project: Project, number: int, code: int) -> None:
    document = {"version": 1, "stages": {"slow": {"shell": "echo started; sleep 600"}}}
    project.write({"pipeline.yaml": json.dumps(document)})
    process = orch23("build", "--output", "jsonl", cwd=project.root, program=RUN)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "attempt_started":
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    last = json.loads(out.splitlines()[-1])
    assert (process.returncode, last["type"], last["data"]["status"]) == (code, "run_finished", "interrupted")
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_reader_that_leaves_stops_neither_the_build_nor_the_peace(two: Project) -> None:
    process = orch23("build", "--output", "jsonl", cwd=two.root, program=RUN)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert two.read("last.txt") == "one\n"


def _everything(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
    }
