"""`init` tells git how to treat lock files and transcripts, beside what the user has told it."""

from pathlib import Path

import pytest

from tests.repository import Repository

LINES = """\
/pipeline.lock linguist-generated text eol=lf
/pipelines/*.lock linguist-generated text eol=lf
**/*.transcripts/** linguist-generated text eol=lf
**/*.transcripts/originals/** -text
"""

pytestmark = pytest.mark.usefixtures("prepared_copier")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "project")
    made.init()
    return made


def create(project: Repository, *more: str) -> str:
    done = project.run("init", "quickstart", "--defaults", *more)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.slow
def test_init_writes_the_attributes_once_beside_the_lines_of_the_user(repository: Repository) -> None:
    repository.write({".gitattributes": "*.png binary\n*.md text"})
    assert " merge      .gitattributes\n" in create(repository)
    expected = f"*.png binary\n*.md text\n{LINES}"
    assert repository.read(".gitattributes") == expected
    assert ".gitattributes" not in create(repository, "--keep")
    assert repository.read(".gitattributes") == expected
    repository.edit(".gitattributes", "/pipeline.lock -linguist-generated\n")
    create(repository, "--overwrite")
    assert repository.read(".gitattributes") == "/pipeline.lock -linguist-generated\n" + "".join(
        LINES.splitlines(keepends=True)[1:]
    )


@pytest.mark.slow
def test_git_understands_the_attributes(repository: Repository) -> None:
    assert " create     .gitattributes\n" in create(repository)
    assert repository.read(".gitattributes") == LINES
    folder = "pipelines/quickstart.transcripts"
    said = repository.git(
        "check-attr",
        "text",
        "eol",
        "linguist-generated",
        "--",
        "pipelines/quickstart.lock",
        f"{folder}/a.json",
        f"{folder}/originals/b",
        "poetry.lock",
    )
    found = {(path, name): value for path, name, value in (line.split(": ") for line in said.splitlines())}
    for path in ("pipelines/quickstart.lock", f"{folder}/a.json"):
        assert [found[path, name] for name in ("text", "eol", "linguist-generated")] == ["set", "lf", "set"]
    assert found[f"{folder}/originals/b", "text"] == "unset"
    assert found["poetry.lock", "text"] == "unspecified"


@pytest.mark.slow
def test_attributes_that_are_no_file_stay(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine\n")
    (repository.root / ".gitattributes").symlink_to(tmp_path / "elsewhere")
    create(repository)
    assert (tmp_path / "elsewhere").read_text() == "mine\n"
