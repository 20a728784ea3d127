"""What leaves the machine: only what a stage names, told in the journal, and never a file that holds secrets."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pipelines import calls, green, pipeline
from tests.project import Project, files_answer, scripted

SHOWN = "asks\n{% for one in inputs %}{{ one.path }}={{ one.text }}{% endfor %}"
PRIVATE = {
    ".env": "A=1\n",
    ".env.local": "A=2\n",
    "id_rsa": "r\n",
    "deploy/id_ed25519": "e\n",
    "tls/site.pem": "p\n",
    "tls/site.key": "k\n",
    ".netrc": "n\n",
    ".npmrc": "n\n",
    ".pypirc": "p\n",
    "credentials.json": "{}\n",
    ".aws/config": "c\n",
    "conf/secrets.yaml": "s\n",
}
PLAIN = {"a.txt": "a\n", "credentials.py": "C = 1\n", "secrets.md": "about\n", "keys.txt": "k\n", "id_rsa.pub": "pub\n"}


def stage(*inputs: str) -> str:
    listed = json.dumps([json.loads(one) if one.startswith("{") else one for one in inputs])
    llm = "{returns: text, prompt: p.j2, context: {max_files: 99}}"
    return f"  asks:\n    inputs: {listed}\n    outputs: [out.txt]\n    llm: {llm}\n"


def requests(project: Project) -> list[dict[str, Any]]:
    return [event["data"] for event in project.events_of("llm_request")]


def test_the_journal_says_what_a_model_was_given(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    files = {"specs/app.md": "# A\n\u00e4\n# B\nb\n", "src/unread.py": "x = 1\n", "s.j2": "be brief"}
    text = stage("specs/app.md#A", "src/unread.py").replace("prompt: p.j2", "prompt: p.j2, system: s.j2")
    project.write(pipeline(text, {**files, "p.j2": "asks\n{{ inputs[0].text }}{{ inputs[1].path }}"}))
    green(project.build())
    (reported,) = requests(project)
    shown = {(one["path"], one["slice"]): (one["bytes"], one["sha256"]) for one in reported["files"]}
    part = "# A\n\u00e4\n".encode()
    assert shown == {
        ("specs/app.md", "A"): (len(part), hashlib.sha256(part).hexdigest()),
        ("p.j2", ""): (len(project.read("p.j2").encode()), hashlib.sha256(project.read("p.j2").encode()).hexdigest()),
        ("s.j2", ""): (8, hashlib.sha256(b"be brief").hexdigest()),
    }
    assert reported["bytes"] == len("be brief") + len("asks\n") + len(part) + len("src/unread.py")
    assert (reported["recorded"], reported["endpoint"].split()[0]) == (False, "command")

    project.delete("out.txt")
    green(project.build("--force", "asks"))
    assert [one["recorded"] for one in requests(project)] == [True], "nothing left"
    assert len(calls(project)) == 1


@pytest.mark.needs("inspecting")
def test_no_pattern_leads_a_model_to_a_file_that_holds_secrets(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    there = {f"in/{path}": text for path, text in {**PRIVATE, **PLAIN}.items()}
    project.write(pipeline(stage('{"list": "in/**"}', "in/"), {**there, "p.j2": SHOWN}))
    green(project.build())
    (prompt,) = project.root.glob("logs/*/asks/attempt-1/prompt.txt")
    text = prompt.read_text()
    assert [path for path in PRIVATE if f"in/{path}=" in text or f"in/{path}\n" in text] == []
    assert [path for path in PLAIN if f"in/{path}=" not in text or f"in/{path}\n" not in text] == []
    record = project.run("show", "asks", "--key", "--json").out
    assert 'in/a.txt"' in record
    assert [path for path in PRIVATE if f'in/{path}"' in record] == [], "nor is it in the key"
    project.edit("in/.env", "A=other\n")
    project.write({"in/other.pem": "new\n"})
    assert project.plan() == {"asks": "fresh"}, "what is not given cannot make it stale"


@pytest.mark.parametrize("path", [".env", "tls/site.pem", "conf/secrets.yaml"])
def test_a_literal_path_may_and_then_it_counts(tmp_path: Path, path: str) -> None:
    project = Project(tmp_path / "p").write(pipeline(stage(path), {**PRIVATE, "p.j2": SHOWN}))
    green(project.build())
    assert project.read("out.txt") == f"{path}={PRIVATE[path]}"
    project.edit(path, "changed\n")
    assert project.plan() == {"asks": "run"}


def test_other_stages_see_what_their_patterns_mean(tmp_path: Path) -> None:
    text = "  packs:\n    inputs: [tls/]\n    outputs: [out.txt]\n    shell: cat tls/* > out.txt\n"
    project = Project(tmp_path / "p").write(pipeline(text, PRIVATE))
    green(project.build())
    assert project.read("out.txt") == "k\np\n"


def test_a_private_file_in_the_fence_is_neither_shown_nor_overwritten(tmp_path: Path) -> None:
    answers = {"code": [files_answer({"src/a.py": "A = 1\n", "src/site.pem": "mine\n"})]}
    project = Project(tmp_path / "p")
    project.write(scripted({"code": {"outputs": ["src/"], "llm": {"returns": "files"}}}, answers))
    project.write({"src/site.pem": "theirs\n", "src/a.py": "A = 0\n"})
    outcome = project.build()
    assert outcome.code == 1
    assert "[E213] src/site.pem" in outcome.err
    (prompt,) = project.root.glob("logs/*/code/attempt-1/prompt.txt")
    assert "src/a.py" in prompt.read_text()
    assert "site.pem" not in prompt.read_text()
    assert project.read("src/site.pem") == "theirs\n"


def test_an_item_of_a_model_names_no_private_file(tmp_path: Path) -> None:
    stages = {
        "plan": {"outputs": ["plan.json"], "llm": {"returns": "json"}},
        "code": {
            "foreach": {"from": "plan.json#/tasks", "key": "id", "as": "task"},
            "inputs": ["${{ task.file }}"],
            "outputs": ["out/${{ task.id }}.py"],
            "llm": {"returns": "code"},
        },
    }
    answers = {"plan": ['{"tasks": [{"id": "T1", "file": "deploy/id_ed25519"}]}'], "code": ["```python\nA = 1\n```"]}
    project = Project(tmp_path / "p").write(scripted(stages, answers)).write(PRIVATE)
    outcome = project.build()
    assert outcome.code != 0
    assert "E858" in outcome.err
    assert "`id_ed25519` holds secrets" in outcome.err


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize("data", [PNG, b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"], ids=["png", "pdf"])
def test_a_binary_file_is_refused_before_the_call_and_only_if_the_prompt_shows_it(tmp_path: Path, data: bytes) -> None:
    project = Project(tmp_path).write({**pipeline(stage("*.txt", "a.bin")), "p.j2": SHOWN, "a.txt": "a\n"})
    (tmp_path / "a.bin").write_bytes(data)
    refused = project.build()
    assert refused.code == 1
    assert "E837" in refused.err
    assert "a.bin" in refused.err
    assert not calls(project)
    project.write({"p.j2": "asks\n{{ inputs['a.txt'].text }}"})
    green(project.build())
    assert len(calls(project)) == 1


def test_text_in_another_encoding_is_shown(tmp_path: Path) -> None:
    project = Project(tmp_path).write({**pipeline(stage("a.txt")), "p.j2": SHOWN})
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\n")
    green(project.build())
    assert len(calls(project)) == 1
