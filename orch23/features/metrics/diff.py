"""Run `diff`: compare metrics of the workspace, git revisions and runs."""

from orch23.cli.console import Console
from orch23.cli.opening import found_project, open_for_command, select_pipeline_run
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project
from orch23.execute.git_revision import GitRevision, open_revision
from orch23.features.metrics.states import MetricsState, revision_metrics, run_metrics, workspace_metrics
from orch23.features.metrics.values import (
    MetricsComparison,
    MetricsError,
    MetricValues,
    compare_metrics,
    comparison_json,
    comparison_markdown,
    comparison_text,
)
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import NotFoundError, UsageError
from orch23.store.run_logs import run_ids

_DEFAULT = "HEAD"
_MOST_NAMES = 2
_RUNS_HINT = "`orch23 runs` lists the runs, `git log` the commits"


def compare_states(
    console: Console, *, args: PipelineArguments, show_all: bool, as_json: bool, as_markdown: bool
) -> None:
    """Compare the metrics of the workspace with those of HEAD, or of what the command line names."""
    names = found_project(console, args.arguments).stages
    if len(names) > _MOST_NAMES:
        message = f"the command compares at most two states, not {len(names)}"
        raise UsageError(Diagnostic("E641", message, hint="`orch23 diff BEFORE NOW`"))
    if as_json and as_markdown:
        raise UsageError(Diagnostic("E641", "`--json` and `--md` contradict each other", hint="give one of them"))
    project, _ = open_for_command(console, args)
    workspace = workspace_metrics(project)
    states = [_named(console, project, name, workspace) for name in names or (_DEFAULT,)]
    before, now = states if len(states) == _MOST_NAMES else (states[0], workspace)
    compared = _compare(project, before, now)
    console.write_diagnostics([problem for _, problem in compared.problems])
    if as_json:
        text = comparison_json(compared)
    elif as_markdown:
        text = comparison_markdown(compared, show_all=show_all)
    else:
        text = comparison_text(compared, console.out_style, show_all=show_all)
    console.write_out(text)


def _named(console: Console, project: Project, name: str, workspace: MetricsState) -> MetricsState:
    """Return the state that a name means: a run, by the beginning of its id, or a git revision."""
    known = run_ids(project.store.logs)
    runs = [one for one in known if one.startswith(name)]
    if name in runs:
        runs = [name]
    revision, error = (None, None) if name in runs else _revision(project, name)
    if revision is not None:
        console.resources.enter_context(revision)
    if revision is not None and runs:
        message = f"`{name}` is the beginning of run {runs[0]}, and the git revision {revision.commit[:12]}"
        hint = f"write more of the one that you mean: `orch23 diff {runs[0]}`, `orch23 diff {revision.commit[:12]}`"
        raise NotFoundError(Diagnostic("E687", message, hint=hint))
    if revision is not None:
        return revision_metrics(project, revision, name)
    if runs:
        run = select_pipeline_run(project, known, name, "diff {pipeline} {run}")
        return run_metrics(project, run, name, workspace.declared)
    if name == _DEFAULT and error is not None:
        hint = "without a commit, name a run: `orch23 diff RUN`; `orch23 runs` lists them"
        raise NotFoundError(Diagnostic("E665", error.diagnostics[0].message, hint=hint))
    raise NotFoundError(Diagnostic("E687", f"`{name}` is neither a run nor a git revision", hint=_RUNS_HINT))


def _revision(project: Project, name: str) -> tuple[GitRevision | None, NotFoundError | None]:
    try:
        return open_revision(project.store.root, name), None
    except NotFoundError as error:
        return None, error


def _values(path: str, state: MetricsState, problems: list[tuple[str, Diagnostic]]) -> MetricValues:
    """Return the values of a file in one state; none, with a problem, if it cannot be read."""
    stage = state.declared.get(path)
    try:
        values = state.values(path)
    except MetricsError as error:
        message = str(error)
        hint = "compare with a newer run, or with a commit" if error.is_lost else "correct what its stage writes"
    else:
        # A file that was not declared then is a new one, not a missing one.
        if values is not None or stage is None:
            return values or {}
        is_now, message = state.state.kind == "workspace", "does not exist"
        hint = f"`orch23 build {stage}` makes it" if is_now else "commit metrics files, or compare with a run"
    place = f"{'at' if state.state.kind == 'revision' else 'in'} {state.state.text}"
    problem = Diagnostic("W688", f"`{path}` {place} {message}", hint=hint, severity=Severity.WARNING)
    problems.append((path, problem))
    return {}


def _compare(project: Project, before: MetricsState, now: MetricsState) -> MetricsComparison:
    problems: list[tuple[str, Diagnostic]] = []
    paths = dict.fromkeys((*now.declared, *before.declared))
    files = {path: compare_metrics(_values(path, before, problems), _values(path, now, problems)) for path in paths}
    return MetricsComparison(
        pipeline=project.pipeline.name,
        file=project.pipeline.file,
        before=before.state,
        now=now.state,
        files=files,
        problems=tuple(problems),
    )
