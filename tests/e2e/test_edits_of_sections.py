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


CODE = (
    "class A:\n    def run(self):\n        return 1\n\nclass B:\n    def run(self):\n        return 1\n\n"
    + "# word\n" * 60_000
)
METHOD: dict[str, object] = {"inputs": ["src/m.py#def B.run"], "outputs": ["src/m.py"]}


def test_a_method_is_edited_and_not_an_equal_one_of_another_class(project: Project) -> None:
    answer = f"src/m.py\n{edit('        return 1' + chr(10), '        return 2' + chr(10))}"
    edited(project, answer, files={"src/m.py": CODE}, **METHOD)
    green(project.build())
    changed = CODE.replace("return 1", "return 2").replace("return 2", "return 1", 1)
    assert project.read("src/m.py") == changed
    assert not sent(project, "# word"), "only the method was shown"


def test_a_range_of_lines_grows_with_the_edits_of_an_attempt(project: Project) -> None:
    text = "".join(f"{number}\n" for number in range(1, 60_000))
    first = f"n.txt\n{edit('3' + chr(10), '3' + chr(10) + 'three' + chr(10))}"
    second = f"n.txt\n{edit('4' + chr(10), '4' + chr(10) + 'four' + chr(10))}"
    verify = {"steps": [{"shell": "grep -q four n.txt"}]}
    part: dict[str, object] = {"inputs": ["n.txt#L2-4"], "outputs": ["n.txt"]}
    edited(project, first, second, files={"n.txt": text}, verify=verify, **part)
    green(project.build())
    assert project.read("n.txt") == text.replace("3\n4\n", "3\nthree\n4\nfour\n", 1)
    assert sent(project, "2\\n3\\nthree\\n4\\n")
    assert not sent(project, "100\\n101")


def test_a_section_with_the_name_of_a_line_is_found_again_after_an_edit(project: Project) -> None:
    text = "# A\n\na\n\n# L1\n\nb\n\n# C\n\nb\n"
    first = f"g.md\n{edit('b' + chr(10), 'b' + chr(10) + 'c' + chr(10))}"
    second = f"g.md\n{edit('c' + chr(10), 'd' + chr(10))}"
    verify = {"steps": [{"shell": "grep -q d g.md"}]}
    edited(project, first, second, files={"g.md": text}, verify=verify, inputs=["g.md#L1"], outputs=["g.md"])
    green(project.build())
    assert project.read("g.md") == text.replace("b\n", "b\nd\n", 1)
