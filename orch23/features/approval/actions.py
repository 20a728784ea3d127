"""Run `approve` and `reject`, `show --changes`, and the questions of `build --ask`."""

import getpass
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from orch23.attempt.safeguards import guard_edit
from orch23.cli.console import Console
from orch23.cli.opening import open_for_command, open_stages
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_for_reading
from orch23.engine.group_checks import forget_results
from orch23.execute.git_revision import git_command, run_git
from orch23.features.approval.changes import diff_text, file_changes
from orch23.features.approval.decisions import Change, Decision, is_rejected, keep, waiting_changes
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import InvalidInputError, NotFoundError, UsageError
from orch23.plan.planner import Selection
from orch23.report.diagnostics import visible
from orch23.report.values import pluralize
from orch23.snapshot.fast_path import remove_snapshots
from orch23.store.run_logs import format_timestamp
from orch23.store.safe_files import PRIVATE_FOLDER_MODE, make_folder
from orch23.text.secrets import secrets_from

_MOST_ASKED = 200  # lines of a diff in a question
_MOST_TEXT = 20_000
E_NOTHING = "E647"


def approve_changes(console: Console, *, args: PipelineArguments, by: str | None) -> None:
    """Approve the changes of stages."""
    _decide(console, args, by, "")


def reject_changes(console: Console, *, args: PipelineArguments, message: str, by: str | None) -> None:
    """Reject the changes of stages, with words."""
    if not message.strip() or len(message) > _MOST_TEXT:
        hint = f"say in 1 to {_MOST_TEXT:,} characters what the next attempt has to change"
        raise UsageError(Diagnostic("E641", f"`-m` has {len(message):,} characters", hint=hint))
    _decide(console, args, by, message)


def _decide(console: Console, args: PipelineArguments, by: str | None, text: str) -> None:
    """Store a decision about each named stage; an empty text approves."""
    project, names = open_stages(console, args)
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        make_folder(project.store.approvals, PRIVATE_FOLDER_MODE)
        changes = _changes_of(project, names)
        missing = [name for name in names if name not in changes]
        if missing:
            hint = f"`{project.pipeline.command_line('status')}` lists what waits; a build makes a result first"
            raise NotFoundError(
                *(Diagnostic(E_NOTHING, f"no change of `{one}` waits for approval", hint=hint) for one in missing)
            )
        for name, change in changes.items():
            keep_decision(console, project, change, name, by, text)
    again = project.pipeline.command_line("build")
    what = "approved" if not text else "rejected"
    for name, change in changes.items():
        console.write_out(f"{what} {visible(name)}: {_count(change)} ({change.digest[:12]})\n")
    console.write_out(f"`{visible(again)}` {'promotes them' if not text else 'starts another attempt'}\n")


def keep_decision(console: Console, project: Project, change: Change, name: str, by: str | None, text: str) -> None:
    """Store a decision about a change. The caller holds the build lock.

    Raises:
        InvalidInputError: the text has a secret.
    """
    secrets = secrets_from(console.environ)
    if found := guard_edit(secrets, {"-m": text}):
        raise InvalidInputError(*found)
    now = format_timestamp(datetime.now(UTC))
    keep(project.store, change, name, Decision(by=by or _user(console, project), at=now, text=text))
    # Its attempts are replayed from their recordings by the next build, which continues them.
    if text and change.members[name].asks_model:
        opened = open_for_reading(project)
        forget_results(opened, opened.store.records.by_key(change.members[name].key))
        project.store.save_index()
    remove_snapshots(str(project.settings.root), project.pipeline.file)


def _changes_of(project: Project, names: tuple[str, ...]) -> dict[str, Change]:
    """Return the waiting changes of stages, in the order of the names."""
    waiting = waiting_changes(project.store, project.pipeline.file)
    found = {name: next((one for one in waiting if name in one.members), None) for name in names}
    return {name: one for name, one in found.items() if one is not None}


def _count(change: Change) -> str:
    return pluralize(len(change.new), "file")


def _user(console: Console, project: Project) -> str:
    """Return the user of git, as in commits; without git the login."""
    git, home = git_command(project.settings.root), console.environ.get("HOME", "")
    files = ((), ("--file", f"{home}/.gitconfig"), ("--file", f"{home}/.config/git/config"))
    found = []
    for key in ("user.name", "user.email"):
        values = (run_git(git, "config", *file, "--get", key) for file in files if git)
        found.append(next(filter(None, values), b"").decode("utf-8", "replace").strip())
    name, address = found
    return f"{name} <{address}>" if name and address else name or address or getpass.getuser()


def show_changes(project: Project, name: str, *, lists_files: bool) -> tuple[str, Mapping[str, Json]]:
    """Return the waiting change of a stage or of its group, else that of its last result, as text and JSON.

    Raises:
        NotFoundError: it has no result.
    """
    opened = open_for_reading(project)
    Selection(targets=(name,)).nodes(opened.state.plan)
    change = _changes_of(project, (name,)).get(name)
    record = opened.lock.records.get(name)
    if change is not None:
        old, new = change.old, change.new
        state, said = ("rejected",) * 2 if is_rejected(project.store, change) else ("waiting", "waits for approval")
        head = f"{said}: {_count(change)} of {' '.join(change.members)} ({change.digest[:12]})"
    elif record is not None:
        old, state, head = dict(record.starts), "promoted", "promoted: what the stage started from, and its result"
        new = {**record.outputs, **dict.fromkeys(record.deleted)}
    else:
        hint = f"`{project.pipeline.command_line('build', name)}` makes one"
        raise NotFoundError(Diagnostic("E664", f"`{name}` has no result to show", hint=hint))
    files = file_changes(opened.state, old, new)
    listed = "".join(f"  {one.summary()}\n" for one in files)
    facts: dict[str, Json] = {
        "stage": name,
        "state": state,
        "digest": change.digest if change is not None else None,
        "stages": list(change.members) if change is not None else [name],
        "files": [one.facts() for one in files],
    }
    return f"{visible(head)}\n{listed if lists_files else diff_text(files)}", facts


def ask(console: Console, args: PipelineArguments, code: int, build: Callable[[], int]) -> int:
    """Ask about each change that waits, and build again, until none is decided; return the last exit code."""
    import click  # noqa: PLC0415 - only for questions

    while True:
        project, _ = open_for_command(console, args)
        state, decided = open_for_reading(project).state, False
        waiting = waiting_changes(project.store, project.pipeline.file)
        for change in (one for one in waiting if not is_rejected(project.store, one)):
            name, files = change.named, file_changes(state, change.old, change.new)
            console.write_err(f"\n{visible(name)}: {_count(change)} wait for approval\n{diff_text(files, _MOST_ASKED)}")
            said = click.prompt("Promote? y, n, or what to change", default="n", err=True).strip()
            if said.lower() in ("n", "no"):
                continue
            text = "" if said.lower() in ("y", "yes") else said
            with project.store.build_lock():
                keep_decision(console, project, change, name, None, text)
            decided = True
        if not decided:
            return code
        code = build()
