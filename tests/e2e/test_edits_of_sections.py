"""A model edits a section of a file that is larger than the limits of a request and of a response."""

import pytest

from tests.e2e.pipelines import green
from tests.project import Project, scripted

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


def edited(project: Project, *answers: str, files: dict[str, str], **stage: object) -> None:
    whole = {"inputs": ["spec.md"], "llm": {"returns": "edits"}, "retry": {"max": len(answers) - 1}, **stage}
    project.write({**scripted({"work": whole}, {"work": [*answers]}), "spec.md": "change it\n", **files})


def sent(project: Project, text: str) -> bool:
    """Return whether a request of the newest build has a text."""
    return any(text in path.read_text() for path in (project.root / ".orch23" / "exchanges").rglob("*.json"))


GUIDE = "# Guide\n\n" + "word " * 60_000 + "\n\n# Use\n\nRun it.\n\n# More\n\nRun it.\n"
PART: dict[str, object] = {"inputs": ["docs/guide.md#Use"], "outputs": ["docs/guide.md"]}


def test_a_file_over_the_limits_is_edited_in_the_section_that_is_an_input(project: Project) -> None:
    answer = f"docs/guide.md\n{edit('Run it.' + chr(10), 'Run it twice.' + chr(10))}"
    edited(project, answer, files={"docs/guide.md": GUIDE}, **PART)
    green(project.build())
    assert project.read("docs/guide.md") == GUIDE.replace("Run it.", "Run it twice.", 1)
    assert not sent(project, "word word word"), "only the section was shown"
    assert set(project.plan().values()) == {"fresh"}


def test_a_later_attempt_is_shown_the_section_as_it_is_then(project: Project) -> None:
    first = f"docs/guide.md\n{edit('Run it.' + chr(10), 'Run it once.' + chr(10))}"
    second = f"docs/guide.md\n{edit('Run it once.' + chr(10), 'Run it twice.' + chr(10))}"
    verify = {"steps": [{"shell": "grep -q 'Run it twice.' docs/guide.md"}]}
    edited(project, first, second, files={"docs/guide.md": GUIDE}, verify=verify, **PART)
    green(project.build())
    assert project.read("docs/guide.md") == GUIDE.replace("Run it.", "Run it twice.", 1)
    assert sent(project, "# Use\\n\\nRun it once.")
