"""`template show`, `diff`, `update`: a newer version comes into a project, and the user's edits stay."""

import shutil
from pathlib import Path

import pytest

from scripts.make_templates import make_all
from tests.project import Project
from tests.template_repository import PIPELINE, TemplateRepository, git, house

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared_copier")]

HERE = Path(__file__).parents[3]
LINES = "".join(f"line {number}\n" for number in range(1, 13))
ANSWERS = ".orch23-house.answers.yml"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the repository and a project with its version 1.0 once, side by side; each test copies them."""
    folder = tmp_path_factory.mktemp("first")
    files = {"pipelines/house.yaml.jinja": PIPELINE, "notes.md": LINES, "old.md": "old\n"}
    repository = TemplateRepository(folder / "house").version(files, "1.0")
    made = Project(folder / "project").run("init", repository.url, "--defaults", "--data", "word=ahoy")
    assert made.code == 0, made.err
    return folder


@pytest.fixture
def repository(first: Path, tmp_path: Path) -> TemplateRepository:
    shutil.copytree(first / "house", tmp_path / "house", symlinks=True)
    return TemplateRepository(tmp_path / "house")


@pytest.fixture
def housed(first: Path, tmp_path: Path, repository: TemplateRepository) -> Project:
    """Give a project, in no git repository, that has version 1.0."""
    project = Project(first / "project").copy(tmp_path / "project")
    project.replace(ANSWERS, (first / "house").as_uri(), repository.url)
    return project


def two(repository: TemplateRepository, **files: str) -> None:
    """Make version 2.0: another last line of the notes, no old.md, a new.md."""
    notes = LINES.replace("line 12\n", "line twelve\n")
    base = {"pipelines/house.yaml.jinja": PIPELINE, "notes.md": notes, "new.md": "new\n"}
    repository.version({**base, **files}, "2.0")


def test_edits_stay_and_what_is_new_comes(housed: Project, repository: TemplateRepository) -> None:
    housed.replace("notes.md", "line 1\n", "line one\n")
    two(repository)
    updated = housed.run("template", "update")
    assert updated.code == 0, updated.err
    assert housed.read("notes.md") == LINES.replace("line 1\n", "line one\n").replace("line 12\n", "line twelve\n")
    assert updated.out.splitlines() == [
        "house 1.0 -> 2.0",
        " create     new.md",
        " merge      notes.md",
        " delete     old.md",
        f" update     {ANSWERS}",
    ]
    assert (housed.read("new.md"), housed.exists("old.md")) == ("new\n", False)
    assert "_commit: '2.0'\n" in housed.read(ANSWERS)
    assert "echo ahoy" in housed.read("pipelines/house.yaml")
    again = housed.run("template", "update", "house")
    assert (again.code, again.out, again.err) == (0, "", "house 2.0: up to date\n")


def test_the_same_lines_edited_are_a_conflict_with_its_place(housed: Project, repository: TemplateRepository) -> None:
    housed.replace("notes.md", "line 12\n", "line 12, mine\n")
    two(repository)
    updated = housed.run("template", "update")
    assert updated.code == 6
    assert " conflict   notes.md:12\n" in updated.out
    assert "error[E679]: your edit and the template conflict: notes.md:12" in updated.err
    assert "--> notes.md:12:1" in updated.err
    assert housed.read("notes.md").splitlines()[11:] == [
        "<<<<<<< yours",
        "line 12, mine",
        "=======",
        "line twelve",
        ">>>>>>> template 2.0",
    ]
    assert housed.read("new.md") == "new\n"
    assert housed.run("template", "update").code == 0


def test_a_dry_run_says_the_same_and_writes_nothing(housed: Project, repository: TemplateRepository) -> None:
    housed.replace("notes.md", "line 12\n", "line 12, mine\n")
    two(repository)
    before = housed.files()
    dry = housed.run("template", "update", "--dry-run")
    assert (dry.code, housed.files()) == (6, before)
    wet = housed.run("template", "update")
    assert (wet.out, wet.err) == (dry.out, dry.err)


def test_a_diff_is_what_the_update_then_does(housed: Project, repository: TemplateRepository) -> None:
    assert housed.run("template", "diff", "--exit-code").code == 0
    housed.replace("notes.md", "line 1\n", "line one\n")
    two(repository)
    before = housed.files()
    shown = housed.run("template", "diff")
    assert (shown.code, housed.files()) == (0, before)
    assert housed.run("template", "diff", "house", "--exit-code").code == 1
    assert "--- a/notes.md\n+++ b/notes.md\n" in shown.out
    assert "-line 12\n+line twelve\n" in shown.out
    assert "line one\n" not in shown.out
    assert "+new\n" in shown.out
    assert "-old\n" in shown.out


def test_what_the_user_removed_stays_removed_and_what_he_edited_is_not_deleted(
    housed: Project, repository: TemplateRepository
) -> None:
    housed.delete("notes.md")
    housed.edit("old.md", "mine\n")
    two(repository)
    updated = housed.run("template", "update")
    assert updated.code == 0
    assert (housed.exists("notes.md"), housed.read("old.md")) == (False, "mine\n")
    assert " keep       notes.md  (you removed it)\n" in updated.out
    assert " keep       old.md  (removed from the template, but you edited it)\n" in updated.out


def test_a_new_file_of_both_is_a_conflict_and_neither_is_lost(housed: Project, repository: TemplateRepository) -> None:
    housed.write({"new.md": "mine\n"})
    two(repository)
    assert housed.run("template", "update").code == 6
    assert {"mine", "new"} <= set(housed.read("new.md").splitlines())


def test_what_is_no_text_is_left_and_the_templates_put_beside_it(project: Project, tmp_path: Path) -> None:
    repository = TemplateRepository(tmp_path / "house").version({"logo": b"\0one"}, "1.0")
    project.run("init", repository.url, "--defaults")
    project.write({"logo": b"\0mine"})
    repository.version({"logo": b"\0two"}, "2.0")
    updated = project.run("template", "update")
    assert updated.code == 6
    assert (project.files()["logo"], project.files()["logo.new"]) == (b"\0mine", b"\0two")
    assert "error[E679]: logo was left as it is (not a text file; see logo.new)" in updated.err


def test_what_is_put_beside_takes_the_place_of_nothing(project: Project, tmp_path: Path) -> None:
    repository = TemplateRepository(tmp_path / "house").version({"logo": b"\0one"}, "1.0")
    project.run("init", repository.url, "--defaults")
    project.write({"logo": b"\0mine", "logo.new": "precious\n", "logo.new2/x": "a folder\n"})
    repository.version({"logo": b"\0two"}, "2.0")
    updated = project.run("template", "update")
    assert (updated.code, "see logo.new3" in updated.err) == (6, True)
    files = project.files()
    assert (files["logo"], files["logo.new"], files["logo.new3"]) == (b"\0mine", b"precious\n", b"\0two")


def test_a_template_that_keeps_no_answers_is_updated_from_the_version_of_last_time(
    project: Project, tmp_path: Path
) -> None:
    secret = {"token": {"type": "str", "secret": True, "default": "none"}}
    repository = TemplateRepository(tmp_path / "house").version({"x": "1\n"}, "1.0", settings=secret, answers=False)
    assert project.run("init", repository.url, "--defaults", "--data", "token=hush", "--data", "word=ö").code == 0
    repository.version({"x": "2\n"}, "2.0", settings=secret, answers=False)
    assert project.run("template", "update").code == 0
    assert project.read(ANSWERS).startswith('_commit: "2.0"\n')
    assert 'word: "ö"\n' in project.read(ANSWERS)
    assert "hush" not in project.read(ANSWERS)
    project.edit("x", "mine\n")
    again = project.run("template", "update", "--data", "word=hey")
    assert (again.code, project.read("x")) == (0, "mine\n")
    assert 'word: "hey"\n' in project.read(ANSWERS)


def test_an_answer_can_be_given_again(housed: Project) -> None:
    updated = housed.run("template", "update", "--data", "word=hey")
    assert (updated.code, updated.out.splitlines()[0]) == (0, "house 1.0")
    assert "echo hey" in housed.read("pipelines/house.yaml")
    assert "word: hey\n" in housed.read(ANSWERS)
    refused = housed.run("template", "update", "--data", "colour=red")
    assert (refused.code, "error[E675]" in refused.err) == (64, True)


def test_a_new_question_gets_its_default(housed: Project, repository: TemplateRepository) -> None:
    asked = {"greeting": {"type": "str", "default": "servus"}}
    repository.version({"notes.md.jinja": "[[ greeting ]] [[ word ]]\n"}, "2.0", settings=asked)
    assert housed.run("template", "update").code == 0
    assert housed.read("notes.md") == "servus ahoy\n"


def test_a_version_can_be_named_and_an_older_one_taken_back(housed: Project, repository: TemplateRepository) -> None:
    two(repository)
    repository.version({"notes.md": "three\n"}, "3.0")
    assert housed.run("template", "update", "--ref", "2.0").code == 0
    assert housed.exists("new.md")
    assert housed.run("template", "update", "--ref", "1.0").code == 0
    assert (housed.read("notes.md"), housed.exists("new.md"), housed.read("old.md")) == (LINES, False, "old\n")


def test_a_project_in_git_with_uncommitted_edits_is_updated_and_its_index_left_alone(
    housed: Project, repository: TemplateRepository
) -> None:
    git(housed.root, "init", "--quiet")
    git(housed.root, "add", "notes.md")
    staged = git(housed.root, "ls-files", "--stage")
    housed.replace("notes.md", "line 1\n", "line one\n")
    two(repository)
    assert housed.run("template", "update").code == 0
    assert git(housed.root, "ls-files", "--stage") == staged


@pytest.mark.usefixtures("copier_as_ever")
def test_nothing_is_written_through_a_link_that_came_since(
    housed: Project, repository: TemplateRepository, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text(LINES)
    housed.delete("notes.md")
    (housed.root / "notes.md").symlink_to(elsewhere)
    two(repository)
    updated = housed.run("template", "update")
    assert (updated.code, elsewhere.read_text()) == (6, LINES)
    assert "notes.md was left as it is (is a link)" in updated.err


def test_a_project_with_two_is_updated_of_both_or_of_one(housed: Project, tmp_path: Path) -> None:
    other = TemplateRepository(tmp_path / "other").version({"other.md": "one\n"}, "1.0")
    assert housed.run("init", other.url, "--defaults").code == 0
    other.version({"other.md": "two\n"}, "2.0")
    assert housed.run("template", "update", "house").err == "house 1.0: up to date\n"
    whose = housed.run("template", "update", "--ref", "1.0")
    assert (whose.code, "house or other" in whose.err) == (64, True)
    assert housed.run("template", "update").code == 0
    assert housed.read("other.md") == "two\n"


def test_an_update_finds_the_project_from_a_folder_below(housed: Project, repository: TemplateRepository) -> None:
    (housed.root / "src").mkdir()
    two(repository)
    assert Project(housed.root / "src").run("template", "update").code == 0
    assert housed.exists("new.md")


# ---- what cannot be updated --------------------------------------------------------------------------


def test_a_project_without_templates_is_reported_the_way(project: Project) -> None:
    for command in ("update", "diff"):
        refused = project.run("template", command)
        assert (refused.code, "error[E677]" in refused.err, "orch23 init" in refused.err) == (66, True, True)


def test_a_name_that_the_project_has_not_is_reported_those_it_has(housed: Project) -> None:
    refused = housed.run("template", "update", "quickstart")
    assert (refused.code, "it has house" in refused.err) == (66, True)
    assert housed.run("template", "update", "../house").code == 66


def test_a_template_whose_repository_has_moved_keeps_its_name_in_the_project(
    housed: Project, repository: TemplateRepository
) -> None:
    two(repository)
    moved = repository.folder.rename(repository.folder.with_name("moved"))
    housed.replace(ANSWERS, repository.url, moved.as_uri())
    assert housed.run("template", "update", "house").code == 0
    assert [path.name for path in housed.root.glob(".orch23-*.yml")] == [ANSWERS]
    assert "_commit: '2.0'\n" in housed.read(ANSWERS)


def test_a_name_longer_than_a_file_can_have_is_one_that_the_project_has_not(housed: Project) -> None:
    assert housed.run("template", "update", "x" * 300).code == 66


def test_answers_that_do_not_say_where_they_are_from_are_reported(housed: Project) -> None:
    housed.edit(ANSWERS, "name: x\n")
    refused = housed.run("template", "update")
    assert (refused.code, "error[E677]" in refused.err) == (66, True)


def test_a_history_that_was_rewritten_is_reported(housed: Project, repository: TemplateRepository) -> None:
    git(repository.folder, "tag", "--delete", "1.0")
    two(repository)
    refused = housed.run("template", "update")
    assert (refused.code, "error[E672]" in refused.err, "1.0" in refused.err) == (66, True, True)


def test_a_repository_that_is_gone_is_reported(housed: Project, repository: TemplateRepository) -> None:
    shutil.rmtree(repository.folder)
    assert housed.run("template", "update").code == 66


@pytest.mark.stride(3)
@pytest.mark.parametrize("commit", ["--upload-pack=x", "v9; touch x", "HEAD~99"])
def test_a_version_in_the_answers_is_a_version_and_nothing_else(housed: Project, commit: str) -> None:
    housed.replace(ANSWERS, "_commit: '1.0'", f"_commit: '{commit}'")
    assert housed.run("template", "update").code == 66


@pytest.mark.usefixtures("copier_as_ever")
def test_a_newer_version_that_runs_code_is_refused_and_nothing_changes(
    housed: Project, repository: TemplateRepository
) -> None:
    before = housed.files()
    repository.version({"notes.md": "x\n"}, "2.0", settings={"_tasks": ["touch x"]})
    assert housed.run("template", "update").code == 2
    assert housed.files() == before


# ---- those of ours, and how others are shown ----------------------------------------------------------


def test_a_template_of_ours_is_updated_from_an_older_orch23(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, shipped = tmp_path / "source", tmp_path / "shipped"
    for folder in ("pipelines", "prompts", "specs"):
        shutil.copytree(HERE / folder, source / folder, ignore=shutil.ignore_patterns("*.lock", "__pycache__"))
    for other in (source / "pipelines").glob("*.template.yaml"):
        if not other.name.startswith("quickstart."):
            other.unlink()
    shipped.mkdir()
    monkeypatch.setattr("orch23.features.templates.rendering.TEMPLATES_FOLDER", shipped)
    assert make_all(source, shipped) == ["quickstart v1: new"]
    assert project.run("init", "quickstart", "--defaults", "--data", "name=four").code == 0
    project.replace("pipelines/quickstart.yaml", "    max: 4\n", "    max: 2\n")

    older_shipped = shutil.copytree(shipped, tmp_path / "older")
    pipeline = source / "pipelines/quickstart.yaml"
    pipeline.write_text(pipeline.read_text().replace("    retry: 0\n", "    retry: 0\n    timeout: 60s\n"))
    assert make_all(source, shipped) == ["quickstart v2: new"]
    assert make_all(source, shipped) == ["quickstart v2"]
    updated = project.run("template", "update")
    assert updated.code == 0, updated.err
    assert updated.out.splitlines()[0] == "quickstart v1 -> v2"
    text = project.read("pipelines/quickstart.yaml")
    assert all(line in text for line in ("name: four\n", "    max: 2\n", "    timeout: 60s\n"))
    assert project.run("validate", "pipelines/quickstart.yaml").code == 0

    monkeypatch.setattr("orch23.features.templates.rendering.TEMPLATES_FOLDER", older_shipped)
    older = project.run("template", "update")
    assert older.code == 66
    assert "up to v1, not v2" in older.err
    assert "upgrade" in older.err


def test_a_company_template_is_shown_by_its_url(project: Project, tmp_path: Path) -> None:
    repository = house(tmp_path / "house")
    shown = project.run("template", "show", repository.url)
    assert shown.code == 0, shown.err
    assert shown.out.startswith(f"house 1.0  {repository.url}\nquestions:\n")
    assert "  name: The name  default: house\n" in shown.out
    assert "  pipelines/house.yaml\n" in shown.out
    assert project.files() == {}


@pytest.mark.stride(9)
@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("layered_app", "v5"),
        ("planner_coder_tester", "v3"),
        ("quickstart", "v3"),
        ("tdd_loop", "v6"),
        ("work_orders", "v5"),
    ],
)
def test_a_version_without_the_questions_about_a_server_is_updated_unattended(
    project: Project, name: str, version: str
) -> None:
    made = project.run("init", name, "--ref", version, "--defaults", "--data", "provider=anthropic")
    assert made.code == 0, made.err
    updated = project.run("template", "update")
    assert updated.code == 0, updated.err
    assert "provider: anthropic\n" in project.read(f"pipelines/{name}.yaml")
    assert project.run("validate", f"pipelines/{name}.yaml").code == 0
    server = ("--data", "provider=server", "--data", "base_url=http://127.0.0.1:9/v1", "--data", "model=m")
    assert project.run("template", "update", name, *server).code == 0
    assert "    base_url: http://127.0.0.1:9/v1\n" in project.read(f"pipelines/{name}.yaml")
