"""List the files of a stage that a failure kept out of the project, and copy them to a folder."""

from collections.abc import Mapping, Sequence

from orch23.attempt.kept_attempt import read_kept
from orch23.cli.console import Console
from orch23.cli.named_files import named_file
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.dry_run import preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import MissingBytesError, NotFoundError, UsageError
from orch23.model.event_data import StageStatus
from orch23.model.text import join_first, visible
from orch23.plan.planner import Selection
from orch23.report.values import aligned, format_size
from orch23.store.run_logs import AttemptFiles, stage_ends
from orch23.store.safe_files import list_folder, make_folder, replace_file, split_path


def show_withheld(
    console: Console, project: Project, stage: str, attempt: int | None, out: str | None
) -> tuple[str, Mapping[str, Json]]:
    """Return the withheld files of a stage, with sizes and reason, as text and JSON; copy them to a folder `out`.

    Raises:
        NotFoundError: there are none, or the store does not have their bytes any more.
        SafetyError: the path of the folder leads through a link in the project.
        UsageError: the folder has files, or cannot be written.
    """
    opened = open_for_reading(project)
    Selection(targets=(stage,)).nodes(opened.state.plan)
    run, why, files = _withheld(project, opened, stage, attempt)
    command = project.pipeline.command_line("show", stage)
    if not files:
        items = [name for name in preview(opened).plan.nodes if name.startswith(f"{stage}@")]
        text, hint = f"no file of `{stage}` is withheld", f"`{command}` shows how it ended"
        if items:
            text, hint = f"`{stage}` is a foreach: only its items run", f"name an item: {join_first(items, 5)}"
        raise NotFoundError(Diagnostic("E664", text, hint=hint))
    named: Sequence[Json] = [{"path": path, "size_bytes": one.digest.size_bytes} for path, one in files.items()]
    facts: Mapping[str, Json] = {"stage": stage, "run": run, "why": why, "files": named}
    if out is not None:
        _copy(console, opened, files, out)
        return "", facts
    rows = [(f"  {visible(path)}", format_size(one.digest.size_bytes)) for path, one in files.items()]
    copies = f"`{visible(command)} --withheld -o DIR` copies them"
    return f"{visible(why)}, in {run}\n{aligned(rows)}{copies}\n", facts


def _withheld(
    project: Project, opened: OpenPipeline, stage: str, attempt: int | None
) -> tuple[str, str, Mapping[str, FileEntry]]:
    """Return run, reason and files of the newest end of a stage, or of an attempt; no files if all are in place."""
    for run, message, end in stage_ends(project.store.logs, project.pipeline.file, stage):
        found: Mapping[str, FileEntry] = {}
        if end.status is StageStatus.WITHHELD and attempt in (None, end.attempts):
            records = opened.store.records.labelled(stage)
            found = next((one.outputs for one in records if one.key == end.key), {})
        elif end.status is StageStatus.FAILED or (attempt is not None and end.attempts):
            kept = read_kept(AttemptFiles(project.store.logs / run), stage, attempt or end.attempts)
            found = {} if kept is None else kept.outputs
        elif not end.status.has_result:
            continue  # it was blocked or cancelled, and an earlier run made its files
        why = message.partition("\n")[0] if attempt in (None, end.attempts) else f"attempt {attempt} failed"
        return run, why, {path: one for path, one in found.items() if opened.store.workspace.entry(path) != one}
    return "", "", {}


def _copy(console: Console, opened: OpenPipeline, files: Mapping[str, FileEntry], out: str) -> None:
    place = named_file(console.here, out)
    try:
        if list_folder(place.path):
            raise UsageError(Diagnostic("E641", f"`{out}` has files", hint="name a new or an empty folder"))
        data = {path: opened.store.contents.get(entry.digest) for path, entry in files.items()}
        make_folder(place.anchor)
        for path, entry in files.items():
            split_path(path)
            replace_file(place.anchor, f"{place.below}/{path}", data[path], 0o755 if entry.executable else 0o644)
    except OSError as error:
        raise UsageError(
            Diagnostic("E641", f"cannot write to `{out}`: {error.strerror}", hint="name another folder")
        ) from error
    except MissingBytesError:
        text, hint = "the store does not have these files any more", "build the stage again"
        raise NotFoundError(Diagnostic("E664", text, hint=hint)) from None
    console.write_err(f"wrote {visible(out)}\n")
