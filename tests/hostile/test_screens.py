"""Nothing that comes from outside steers a terminal, hides on it, or passes for a line of orch23's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from orch23.model.features import COMMANDS, has_feature
from tests.hostile.holding import unseen
from tests.project import Project, scripted

NASTY = "a\x1b[31mb\x1b]0;owned\x07c\x9b2Jd\u202ee\u2066f\u200bg\ufeffh\u00adi\u2028j\x00k\x7fl\rm"
NAMED = "n\u202eo\u200bp\u00adq"  # what a file may be called; control characters may not be in it
FORGED = json.dumps({"v": 1, "seq": 1, "type": "run_finished", "message": "forged", "data": {"status": "ok"}})
LINES = f"{NASTY}\n{FORGED}\n::error file=a::forged\n::set-output name=x::y\n\u2714 s forged\nerror[E999]: forged\n"

TEXTS = (
    *(("build",), ("plan",), ("status",), ("status", "--all"), ("plan", "-v")),
    *(("graph",), ("graph", "--format", "mermaid")),
    *(("graph", "--format", "dot"), ("runs",), ("log",), ("vars",), ("vars", "--origin"), ("validate",)),
    *(("explain", name) for name in ("print", "say", "fail", "test")),
    *(("show", name, *more) for name in ("print", "say", "fail", "test") for more in ((), ("--key",))),
    *(("show", "say", more) for more in ("--prompt", "--response", "--cost")),
    *(("validate", "--output-format", form) for form in ("concise", "github")),
    *(
        ("report", "-o", "-"),
        ("log", "--state"),
        ("log", "--json"),
        ("plan", "--json"),
        ("status", "--json"),
        ("runs", "--json"),
    ),
    *(("explain", "say", "--json"), ("graph", "--format", "json"), ("vars", "--json"), ("show", "say", "--json")),
    *(("validate", "--output-format", form) for form in ("json", "sarif")),
)


def hostile(project: Project) -> Project:
    """Write a pipeline of stages that print, say, fail and are called what no screen should show as it is."""
    stages: dict[str, dict[str, Any]] = {
        "print": {
            "desc": NASTY,
            "inputs": ["lines.txt", "in/*"],
            "outputs": ["out/"],
            "shell": f"cat lines.txt; mkdir -p out; cp lines.txt 'out/{NAMED}'",
        },
        "say": {"outputs": ["said.txt"], "inputs": ["shown.txt"], "llm": {"returns": "text"}},
        "fail": {
            "inputs": ["lines.txt"],
            "shell": "cat lines.txt lines.txt >&2; exit 3",
        },
        "test": {"inputs": ["test_a.py"], "pytest": {}},
        "model": {
            "outputs": ["m.txt"],
            "llm": {
                "provider": "command",
                "model": f"m{NAMED}",
                "prompt": "pipeline.md.j2",
                "returns": "text",
                "command": ["bash", "-c", "cat lines.txt >&2; exit 1"],
            },
        },
    }
    test = (
        "import pytest\nNASTY = " + ascii(NASTY) + "\n"
        "@pytest.mark.parametrize('x', [NASTY])\ndef test_it(x):\n    print(x)\n    assert x == 1, x\n"
    )
    files = scripted(stages, {"say": [LINES]}, vars={"v": NASTY})
    document = json.loads(files["pipeline.yaml"])
    stages["say"]["llm"] = {**document.pop("defaults")["llm"], "returns": "text"}
    files["pipeline.yaml"] = json.dumps({**document, "stages": stages})
    # No prompt shows a file with a NUL: it is binary.
    shown = LINES.replace("\0", "")
    return project.write({**files, "lines.txt": LINES, "shown.txt": shown, f"in/{NAMED}": LINES, "test_a.py": test})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Give a project in which all of it has been built once."""
    project = hostile(Project(tmp_path_factory.mktemp("screens") / "project"))
    failed = project.build("-k", "-v")
    assert failed.code in {1, 5}
    assert {"print", "say", "fail", "test", "model"} <= set(project.ran())
    assert unseen(failed.out + failed.err) == [], failed.err
    return project


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("argv", [one for one in TEXTS if has_feature(COMMANDS, one[0])], ids=" ".join)
def test_no_screen_shows_what_steers_it_or_hides(built: Project, argv: tuple[str, ...]) -> None:
    shown = built.run(*argv)
    assert unseen(shown.out + shown.err) == []
    assert shown.code in {0, 1, 5}


@pytest.mark.needs("inspecting")
def test_what_is_printed_passes_for_no_line_of_the_journal(built: Project) -> None:
    first = built.journals()[0]
    events = built.events(first.stem)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert not [event for event in events if event["message"] == "forged"]
    assert unseen(first.read_text()) == []
    assert built.run("log", first.stem, "--json").out == first.read_text()


@pytest.mark.slow
def test_no_line_of_a_screen_is_what_a_step_printed_as_it_is(built: Project) -> None:
    """Lines that a program of CI, or a person, takes for orch23's own are never at the beginning of a line."""
    for argv in (("build", "-k"), ("log",), ("show", "say", "--response"), ("show", "fail")):
        shown = built.run(*argv)
        lines = (shown.out if argv[0] != "show" else "").splitlines() + shown.err.splitlines()
        assert not [line for line in lines if line.startswith(("::", "error[E999]", "\u2714 s forged", FORGED[:8]))], (
            argv
        )


def test_a_journal_whose_name_has_signs_is_none(project: Project) -> None:
    stage = {"outputs": ["a.txt"], "render": {"template": "a.j2"}}
    assert project.write({**scripted({"a": stage}, {}), "a.j2": "a"}).build().code == 0
    (journal,) = project.journals()
    journal.rename(journal.with_name("2000\x1b[31m\u202e.jsonl"))
    assert "2000" not in project.run("runs").out, "no run is called so"
    for argv in (("runs",), ("runs", "--json"), ("log",), ("log", "2000\x1b")):
        shown = project.run(*argv)
        assert unseen(shown.out + shown.err) == [], argv
        assert "this is a bug" not in shown.err


@pytest.mark.slow
def test_a_name_that_no_project_can_hold_is_escaped_where_it_is_refused(project: Project) -> None:
    files = {"a": {"outputs": ["d/"], "shell": "mkdir -p d; touch d/$'x\\e[31m\\n::error::forged'"}}
    project.write(scripted(files, {}))
    refused = project.build()
    assert refused.code == 2
    assert unseen(refused.err) == []
    assert not [line for line in refused.err.splitlines() if line.startswith("::")]


def test_the_artifacts_of_a_run_are_what_was_said(built: Project) -> None:
    """What is kept for people to read with other programs is kept as it is, in files of its own."""
    kept = [path for path in Path(built.root / "logs").rglob("*.txt") if "response" in path.name]
    assert any("\x1b[31m" in path.read_text() for path in kept)
