"""Files that `never_send` names, of a pipeline or of the project, are in no request to a model."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.pipelines import green
from tests.project import Project, files_answer, scripted

PRIVATE = "the private text"


def requests(project: Project) -> dict[Path, str]:
    return {path: path.read_text() for path in (project.root / ".orch23" / "exchanges").rglob("*.json")}


def sent(project: Project, text: str) -> bool:
    """Return whether a request of any build has a text."""
    return any(text in one for one in requests(project).values())


def asking(project: Project, *inputs: object, never_send: Sequence[str] = ()) -> None:
    work = {"inputs": list(inputs), "outputs": ["o.txt"], "llm": {"returns": "text"}}
    project.write(scripted({"work": work}, {"work": ["one\n", "two\n"]}, never_send=never_send))
    project.write({"docs/a.md": "public\n", "docs/clients.md": f"{PRIVATE}\n", "keys/k.txt": f"{PRIVATE}\n"})


@pytest.mark.parametrize("pattern", ["docs/clients.md", "docs/c*.md", "**/clients.md"])
def test_patterns_and_listings_leave_the_files_out(project: Project, pattern: str) -> None:
    asking(project, "docs/*.md", {"list": "**/*.md"}, never_send=[pattern])
    green(project.build())
    assert sent(project, "public")
    assert not sent(project, PRIVATE)
    assert not sent(project, "clients.md")
    project.edit("docs/clients.md", "another text\n")
    assert project.plan() == {"work": "fresh"}


@pytest.mark.parametrize(
    ("file", "text"), [("orch23.toml", ""), ("orch23.toml", "[tool.orch23]\n"), ("pyproject.toml", "[tool.orch23]\n")]
)
def test_the_patterns_of_the_project_hold_for_each_pipeline_and_an_edit_of_them_counts(
    project: Project, file: str, text: str
) -> None:
    asking(project, "docs/*.md")
    project.write({file: text})
    green(project.build())
    green(project.build())
    assert sent(project, PRIVATE)
    before = requests(project)
    project.write({file: f'{text}never_send = ["docs/clients.md"]\n'})
    assert project.plan() == {"work": "run"}
    green(project.build())
    after = [text for path, text in requests(project).items() if path not in before]
    assert len(after) == 1
    assert PRIVATE not in after[0]


@pytest.mark.parametrize(
    ("named", "never", "at"),
    [
        ("keys/k.txt", "keys/k.txt", "pipeline.yaml:"),
        ("keys/k.txt", "keys", "pipeline.yaml:"),
        ("keys/k.txt", "key?", "pipeline.yaml:"),
        ("keys/k.txt#L1", "keys/**", "pipeline.yaml:"),
        ("link.md", "keys/**", "pipeline.yaml:"),
    ],
)
def test_a_file_that_is_named_is_refused_before_a_call_with_its_place(
    project: Project, named: str, never: str, at: str
) -> None:
    asking(project, named, never_send=[never])
    (project.root / "link.md").symlink_to("keys/k.txt")
    for outcome in (project.run("plan"), project.build()):
        assert "[E604]" in outcome.err
        assert at in outcome.err
        assert f"`{never}" in outcome.err
    assert not sent(project, PRIVATE)


def test_an_existing_output_and_a_prompt_are_refused_and_no_model_replaces_what_it_cannot_see(project: Project) -> None:
    asking(project, "docs/a.md", never_send=["o.txt"])
    project.write({"o.txt": f"{PRIVATE}\n"})
    refused = project.build()
    assert "[E604]" in refused.err
    assert project.read("o.txt") == f"{PRIVATE}\n"
    asking(project, "docs/a.md", never_send=["prompts/**", "*.j2"])
    assert "[E604]" in project.build().err
    assert not sent(project, "public")


def test_a_model_cannot_write_a_file_below_a_pattern_that_it_was_not_shown(project: Project) -> None:
    answer = "src/new.py\n```python\nx = 1\n```\n\nsrc/private.py\n```python\ny = 1\n```\n"
    stage = {"inputs": ["docs/a.md"], "outputs": ["src/"], "llm": {"returns": "blocks"}}
    project.write(scripted({"work": stage}, {"work": [answer]}, never_send=["src/private.py"]))
    project.write({"docs/a.md": "public\n", "src/private.py": f"secret = '{PRIVATE}'\n"})
    outcome = project.build()
    assert "E213" in outcome.err
    assert not sent(project, PRIVATE)
    assert PRIVATE in project.read("src/private.py")


@pytest.mark.parametrize("key", ["edits", "outputs"])
def test_a_new_file_that_no_later_request_could_have_is_refused_with_feedback(project: Project, key: str) -> None:
    answers = [files_answer({f"src/{name}": "2\n"}) for name in ("private/k", "b", "c")]
    verify = [{"shell": "test -e src/c"}]
    stage = {"inputs": ["src/**"], key: ["src/**" if key == "edits" else "src/"], "verify": verify, "retry": 2}
    work = {**stage, "llm": {"returns": "files"}}
    project.write({**scripted({"work": work}, {"work": answers}, never_send=["src/private"]), "src/a": "1\n"})
    green(project.build())
    assert set(project.files("src")) == {"src/a", "src/b", "src/c"}
    prompt = project.run("show", "work", "--prompt", "--attempt", "2").out
    assert "[E204] src/private/k: matches a pattern of `never_send`" in prompt


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('never-send = ["a"]\n', "[E802]: unknown key `never-send`"),
        ('x = 1\n\nnever_send = "a"\n', "orch23.toml:3:1"),
        ("never_send = [1]\n", "[E811]: `never_send` must be a list of strings"),
        ('never_send = ["../a"]\n', "[E850]: the path `../a` climbs out"),
        ("never_send = [\n", "[E811]: `orch23.toml` is not valid TOML"),
        ("a" + ".a" * 5_000 + " = 1\n", "[E811]: `orch23.toml` is not valid TOML"),
    ],
)
def test_a_project_file_that_is_not_valid_stops_a_build_with_its_place(project: Project, text: str, wrong: str) -> None:
    asking(project, "docs/a.md")
    project.write({"orch23.toml": text})
    outcome = project.build()
    assert outcome.code == 65, outcome.err
    assert wrong in outcome.err
    assert "orch23.toml:" in outcome.err
    assert not sent(project, "public")


def test_steps_without_a_model_read_the_files(project: Project) -> None:
    project.write(
        {
            "pipeline.yaml": "version: 1\nname: p\nnever_send: [keys]\nstages:\n  s: {inputs: [keys/], outputs: [o],"
            " shell: cat keys/k > o}\n",
            "keys/k": "x\n",
        }
    )
    green(project.build())
    assert project.read("o") == "x\n"


def test_the_list_of_a_foreach_that_calls_a_model_is_refused(project: Project) -> None:
    items = {
        "foreach": {"from": "keys/list.json", "key": "id"},
        "outputs": ["${{ item.id }}.txt"],
        "llm": {"returns": "text"},
    }
    project.write(scripted({"work": items}, {"work@a": ["one\n"]}, never_send=["keys"]))
    project.write({"pipeline.md.j2": "{{ item.note }}\n", "keys/list.json": f'[{{"id": "a", "note": "{PRIVATE}"}}]'})
    for outcome in (project.run("plan"), project.build()):
        assert "[E604]" in outcome.err
        assert "pipeline.yaml:" in outcome.err
    assert not sent(project, PRIVATE)


def test_a_program_that_responds_in_place_of_a_model_reads_no_such_file(project: Project) -> None:
    stage = (
        "{outputs: [o], llm: {provider: command, model: m, prompt: p.md, returns: text, command: [cat], read: [keys]}}"
    )
    project.write(
        {
            "pipeline.yaml": f"version: 1\nname: p\nnever_send: ['**/k.txt']\nstages:\n  s: {stage}\n",
            "p.md": "text\n",
            "keys/k.txt": f"{PRIVATE}\n",
        }
    )
    assert "[E604]" in project.run("plan").err
    assert "`keys/k.txt` is never sent to a model" in project.build().err
    project.delete("keys/k.txt")
    assert "[E604]" not in project.build().err


def test_the_patterns_of_the_project_are_read_through_a_link(project: Project) -> None:
    asking(project, "docs/*.md")
    project.write({"shared/settings.toml": 'never_send = ["docs/clients.md"]\n'})
    (project.root / "orch23.toml").symlink_to("shared/settings.toml")
    green(project.build())
    green(project.build())
    assert not sent(project, PRIVATE)
    project.edit("shared/settings.toml", 'never_send = ["docs/a.md"]\n')
    assert project.plan() == {"work": "run"}


def test_a_pyproject_that_is_not_valid_stops_a_build_if_it_may_have_patterns(project: Project) -> None:
    asking(project, "docs/*.md")
    project.write({"pyproject.toml": '[tool.orch23]\nnever_send = ["docs/clients.md"]\n[project\n', "orch23.toml": ""})
    assert "[E811]: `pyproject.toml` is not valid TOML" in project.build().err
    assert not sent(project, PRIVATE)
    project.edit("pyproject.toml", "[project\n# orch23\n")
    green(project.build())


@pytest.mark.parametrize(
    "more",
    [
        {"llm": {"returns": "text", "prompt": "keys/p.j2"}},
        {"llm": {"returns": "text", "system": "keys/p.j2"}},
        {"llm": {"returns": "json", "schema": "keys/s.json"}, "outputs": ["o.json"]},
        {"retry": {"max": 1, "prompt": "keys/p.j2"}, "verify": [{"shell": "false"}]},
    ],
)
def test_a_file_of_each_part_of_a_prompt_is_refused_before_a_call(project: Project, more: dict[str, object]) -> None:
    work = {"inputs": ["docs/a.md"], "outputs": ["o.txt"], "llm": {"returns": "text"}, **more}
    project.write(scripted({"work": work}, {"work": ["one\n", "two\n"]}, never_send=["keys"]))
    project.write({"docs/a.md": "public\n", "keys/p.j2": f"{PRIVATE}\n", "keys/s.json": "{}"})
    for outcome in (project.run("plan"), project.build()):
        assert "[E604]" in outcome.err
        assert "keys/" in outcome.err
    assert requests(project) == {}
