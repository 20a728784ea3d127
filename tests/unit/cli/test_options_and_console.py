"""Arguments, project discovery and streams: terminals, pipes and encodings."""

import errno
import io
import os
from pathlib import Path

import click
import pytest

from orch23.cli import main
from orch23.cli.actions.completing import stage_names
from orch23.cli.console import Console, ignore_closed_pipe, use_color
from orch23.cli.declaration import complete_stage
from orch23.cli.discovery import find_project, is_project_root, required_pipeline
from orch23.cli.opening import parse_sets, selection_of
from orch23.cli.parameters import PipelineArguments
from orch23.model.errors import ExitCode, NotFoundError, UsageError
from orch23.plan.planner import ALL_STAGES, Selection
from tests.project import Project


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "environ", "terminal", "wanted"),
    [
        ("auto", {"TERM": "xterm"}, True, True),
        ("auto", {"TERM": "xterm"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False, False),
        ("auto", {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ("auto", {"FORCE_COLOR": "1"}, False, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"CLICOLOR_FORCE": "1", "TERM": "xterm"}, True, False),
    ],
)
def test_colours(choice: str, environ: dict[str, str], terminal: bool, wanted: bool) -> None:
    stream = Terminal() if terminal else io.StringIO()
    assert use_color(choice, environ, stream) is wanted  # type: ignore[arg-type]


def test_an_ascii_stream_gets_escapes_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    Console().write_out("naïve ✔\n")
    assert buffer.getvalue() == b"na\\xefve \\u2714\n"


def test_a_screen_without_a_reader_is_ignored() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        attempt = ignore_closed_pipe(lambda text: print(text, file=stream, flush=True), stream)
        attempt("a")
        attempt("b")
        assert os.path.samestat(os.fstat(writer), os.stat(os.devnull))


def test_other_errors_of_a_stream_are_raised() -> None:
    def write(_text: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        ignore_closed_pipe(write, io.StringIO())("a")


def taken(here: Path, *arguments: str) -> tuple[Path, tuple[str, ...]]:
    """Return the pipeline that is found, which has to be there, and the stages."""
    found = find_project(here, arguments)
    return required_pipeline(found), found.stages


def test_a_pipeline_may_be_anywhere_among_the_stages(tmp_path: Path) -> None:
    assert taken(tmp_path, "p.yaml", "a") == (tmp_path / "p.yaml", ("a",))
    assert taken(tmp_path, "a", "x/p.yml", "b") == (tmp_path / "x/p.yml", ("a", "b"))
    with pytest.raises(NotFoundError, match="E661"):
        taken(tmp_path, "a")
    (tmp_path / "pipeline.yaml").touch()
    assert taken(tmp_path, "each@k.yaml") == (tmp_path / "pipeline.yaml", ("each@k.yaml",))


def test_the_default_pipeline_is_the_nearest_in_parents_within_the_project(tmp_path: Path) -> None:
    below = tmp_path / "outer" / "project" / "src"
    below.mkdir(parents=True)
    (tmp_path / "outer" / "pipeline.yaml").touch()
    assert taken(below, "a") == (tmp_path / "outer" / "pipeline.yaml", ("a",))
    assert find_project(below).root == tmp_path / "outer"
    assert find_project(below, ("x.yaml",)).root == below, "who names a pipeline works where they are"
    assert find_project(below, ("../../pipeline.yaml",)).root == tmp_path / "outer", (
        "unless it is in a parent directory"
    )
    assert find_project(below, ("../x/pipeline.yaml",)).root == below, "and no further down"
    (below / ".orch23").mkdir()
    assert find_project(below).root == tmp_path / "outer", "a store may be left over"
    (tmp_path / "outer" / "project" / ".git").mkdir()
    assert find_project(below).root == tmp_path / "outer" / "project"
    with pytest.raises(NotFoundError, match="E661"):
        taken(below, "a")
    (tmp_path / "outer" / "project" / "pipeline.yaml").touch()
    assert taken(below) == (tmp_path / "outer" / "project" / "pipeline.yaml", ())
    (below / "pipeline.yaml").touch()
    assert taken(below) == (below / "pipeline.yaml", ())
    assert find_project(below).root == tmp_path / "outer" / "project"


def test_a_parent_pipeline_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "mine"
    below.mkdir()
    (tmp_path / "pipeline.yaml").touch()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    for named in ((), ("../pipeline.yaml",)):
        with pytest.raises(NotFoundError, match="belongs to another user") as caught:
            taken(below, *named)
        assert caught.value.diagnostics[0].hint == f"if you trust it, work there: `orch23 -C {tmp_path}`"
        assert find_project(below, named).root == below
    assert taken(tmp_path) == (tmp_path / "pipeline.yaml", ()), "who stands there has chosen it"


def test_a_user_without_a_name_is_reported_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orch23.toml").touch()
    (tmp_path / "mine").mkdir()
    os_user = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: os_user + 1)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    (warning,) = find_project(tmp_path / "mine").warnings
    assert warning.message.endswith(f"it belongs to another user, with the id {os_user}")


def test_a_parent_directory_that_cannot_be_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    for name in ("is_file", "exists"):
        monkeypatch.setattr(Path, name, refuse)
    assert find_project(tmp_path / "mine").root == tmp_path / "mine"


def test_a_named_pipeline_of_a_folder_below_another_project_is_built_where_it_is(project: Project) -> None:
    project.write({"pipeline.yaml": "version: 1\nstages: {a: {shell: 'false'}}\n"})
    project.write({"sub/x.yaml": "version: 1\nstages: {a: {outputs: [a.txt], shell: 'echo > a.txt'}}\n"})
    outcome = project.run("-C", "sub", "build", "x.yaml", "--output", "jsonl")
    assert (outcome.code, '"type":"run_finished"' in outcome.out) == (0, True), outcome.err
    assert (project.root / "sub/a.txt").is_file()
    assert (project.root / "sub/.orch23").is_dir()
    assert not (project.root / ".orch23").exists()


def test_without_a_pipeline_the_only_one_is_taken_and_of_two_the_hint_names_the_first(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    for name in ("work.yaml", "work.answers.yaml", "a.template.yaml"):
        (tmp_path / "pipelines" / name).touch()
    assert taken(tmp_path)[0] == tmp_path / "pipelines/work.yaml"
    (tmp_path / "pipelines" / "other.yaml").touch()
    with pytest.raises(NotFoundError, match=r"build pipelines/other\.yaml`"):
        taken(tmp_path)


def test_the_root_is_found_in_parent_directories(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert find_project(below).root == tmp_path
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.orch23]\n")
    assert find_project(below).root == tmp_path / "a"
    (below / "orch23.toml").touch()
    assert find_project(below).root == below


def test_vars_are_set_by_name_and_value() -> None:
    assert parse_sets(("a=1", "b=x=y", "c=")) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(UsageError) as refused:
        parse_sets(("a", "=1", "b=2"))
    assert len(refused.value.diagnostics) == 2


def test_options_choose_the_selection() -> None:
    assert selection_of(PipelineArguments(), ()) == ALL_STAGES
    assert selection_of(PipelineArguments(), ("a",)) == Selection(targets=("a",))
    assert selection_of(PipelineArguments(until=True), ("a",)) == Selection(targets=("a",))
    assert selection_of(PipelineArguments(only=True), ("a",)) == Selection(only=("a",))
    assert selection_of(PipelineArguments(downstream=True), ("a",)) == Selection(downstream=("a",))
    with pytest.raises(UsageError, match="needs a stage"):
        selection_of(PipelineArguments(only=True), ())
    with pytest.raises(UsageError, match="contradict"):
        selection_of(PipelineArguments(only=True, downstream=True), ("a",))


PIPELINE = """\
version: 1
stages:   # all of them
  clean-up:
    shell: x

  # a comment
  code_2:
    llm:
      prompt: p
other:
  not_a_stage: 1
"""


def test_stage_names_are_completed_without_a_yaml_reader(tmp_path: Path) -> None:
    assert stage_names(PIPELINE) == ["clean-up", "code_2"]
    assert stage_names("stages:\n  last:\n    shell: x") == ["last"]
    assert stage_names("nothing: here\n") == []
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "other.yaml").write_text("stages:\n  else:\n")
    root = click.Context(click.Command("orch23"))
    root.params["directory"] = str(tmp_path)
    context = click.Context(click.Command("build"), parent=root)
    parameter = click.Argument(["arguments"], nargs=-1)
    assert [item.value for item in complete_stage(context, parameter, "c")] == ["clean-up", "code_2"]
    assert "other.yaml" in [item.value for item in complete_stage(context, parameter, "")]
    context.params["arguments"] = ("other.yaml",)
    assert [item.value for item in complete_stage(context, parameter, "")] == ["else"]


@pytest.mark.parametrize(
    "text",
    [
        "tool = 23 # orch23",
        "tool = 'orch23'",
        "a = " + "[" * 9_000 + "# orch23",
        "\0 orch23",
        f"[tool.orch23]\n{'#' * 1_048_576}",
    ],
)
def test_a_pyproject_without_the_orch23_table_marks_no_root(tmp_path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert not is_project_root(tmp_path)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (InterruptedError(errno.EINTR, "interrupted"), ExitCode.MACHINE),
        (ImportError("no module"), ExitCode.BUG),
        (KeyboardInterrupt(), ExitCode.SIGINT),
    ],
)
def test_an_error_of_an_error_report_is_one_line(
    fault: BaseException, code: ExitCode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise fault

    monkeypatch.setattr("orch23.report.diagnostics.render_diagnostics", fail)
    assert main.main(["help", "E999"]) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("\n") == (not isinstance(fault, KeyboardInterrupt))


def test_all_items_of_a_foreach_can_be_named_as_in_needs(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("version: 1\n")
    assert taken(tmp_path, "a[*]", "b@x", "c") == (tmp_path / "pipeline.yaml", ("a", "b@x", "c"))
    assert taken(tmp_path, "a[*]", "x.yaml") == (tmp_path / "x.yaml", ("a",))
