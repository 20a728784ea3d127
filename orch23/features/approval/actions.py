"""Run `approve` and `reject`, `show --changes`, and the questions of `build --ask`."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from orch23.attempt.safeguards import guard_edit
from orch23.cli.console import Console
from orch23.cli.opening import open_for_command, open_stages
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.project_state import ProjectState
from orch23.execute.git_revision import git_command, run_git
from orch23.features.approval.changes import diff_text, file_changes
from orch23.features.approval.decisions import Change, is_rejected, waiting_changes
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import InvalidInputError, NotFoundError, UsageError
from orch23.model.llm import Exchange
from orch23.model.text import visible
from orch23.plan.planner import Selection
from orch23.report.values import pluralize
from orch23.snapshot.fast_path import remove_snapshots
from orch23.store.exchanges import user_fingerprint
from orch23.store.run_logs import format_timestamp
from orch23.store.safe_files import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE, make_folder, try_unlink, write_atomic
from orch23.text.secrets import secrets_from

_MOST_ASKED = 200  # lines of a diff in a question
_MOST_TEXT = 20_000


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
    state, line = open_for_reading(project).state, project.pipeline.command_line
    make_folder(state.store.approvals, PRIVATE_FOLDER_MODE)
    for name, change in _changes_of(state, names).items():
        _keep(console, state, change, name, by, text)
        what = "approved" if not text else "rejected"
        console.write_out(f"{what} {visible(name)}: {_count(change)} ({change.digest[:12]})\n")
    console.write_out(f"`{visible(line('build'))}` {'promotes them' if not text else 'starts another attempt'}\n")


def _keep(console: Console, state: ProjectState, change: Change, name: str, by: str | None, text: str) -> None:
    """Store a decision about a change durably; it replaces an earlier one.

    Raises:
        InvalidInputError: the text has a secret.
    """
    if found := guard_edit(secrets_from(console.environ), {"-m": text}):
        raise InvalidInputError(*found)
    store, by = state.store, by or _user(console.environ, state.store.root)
    decision = Exchange(
        fingerprint=user_fingerprint("approval", name, change.digest),
        stage=name,
        request={},
        response=text,
        outcome="rejected" if text else "approved",
        provenance=f"{by}, {format_timestamp(datetime.now(UTC))}",
    )
    place = store.approvals / f"{change.digest}.json"
    with store.build_lock():
        if text:
            try_unlink(place)
        store.exchanges.put(decision, change.members[name])
        if not text:
            write_atomic(place, store.key.encode(decision), mode=PRIVATE_FILE_MODE)
        remove_snapshots(str(store.root), change.pipeline)


def _changes_of(state: ProjectState, names: tuple[str, ...]) -> dict[str, Change]:
    """Return the change of each stage that waits.

    Raises:
        NotFoundError: none waits.
    """
    found = {name: one for one in waiting_changes(state) for name in one.members}
    hint = f"`{state.plan.pipeline.command_line('status')}` lists what waits; a build makes a result first"
    if missing := [name for name in names if name not in found]:
        texts = (f"no change of `{name}` waits for approval" for name in missing)
        raise NotFoundError(*(Diagnostic("E647", text, hint=hint) for text in texts))
    return {name: found[name] for name in names}


def _count(change: Change) -> str:
    return pluralize(len(change.new), "file")


def _user(environ: Mapping[str, str], root: Path) -> str:
    """Return who would commit here, from the environment or the files of git; without git the login."""
    git, home = git_command(root), environ.get("HOME", "")
    if author := environ.get("GIT_AUTHOR_NAME"):
        return author
    for file in ((), ("--file", f"{home}/.gitconfig"), ("--file", f"{home}/.config/git/config")):
        if git and (found := (run_git(git, "config", *file, "--get", "user.name") or b"").strip()):
            return found.decode("utf-8", "replace")
    return environ.get("LOGNAME") or environ.get("USER") or f"user {os.getuid()}"


def show_changes(project: Project, name: str, *, lists_files: bool) -> tuple[str, Mapping[str, Json]]:
    """Return the waiting change of a stage or of its group, as text and JSON.

    Raises:
        NotFoundError: none waits.
    """
    state = open_for_reading(project).state
    Selection(targets=(name,)).nodes(state.plan)
    change = _changes_of(state, (name,))[name]
    status = "rejected" if is_rejected(state.store, change) else "waits for approval"
    head = f"{status}: {_count(change)} of {' '.join(change.members)} ({change.digest[:12]})"
    files = file_changes(state, change)
    text = "".join(f"  {visible(one.summary)}\n" for one in files) if lists_files else diff_text(files)
    entries = {path: [str(one.get(path) or "") for one in (change.old, change.new)] for path in sorted(change.new)}
    facts = {"stage": name, "state": status, "digest": change.digest, "stages": [*change.members], "files": entries}
    return f"{visible(head)}\n{text}", cast("Mapping[str, Json]", facts)


def ask(console: Console, args: PipelineArguments, code: int, build: Callable[[], int]) -> int:
    """Ask about each change that waits, and build again, until none is decided; return the last exit code."""
    import click  # noqa: PLC0415 - only for questions

    while code:  # a change that waits since an earlier build need not be of what is built now
        state, decided = open_for_reading(open_for_command(console, args)[0]).state, False
        for change in (one for one in waiting_changes(state) if not is_rejected(state.store, one)):
            diff = diff_text(file_changes(state, change), _MOST_ASKED)
            console.write_err(f"\n{visible(change.stage)}: {_count(change)} wait for approval\n{diff}")
            said = click.prompt("Promote? y, n, or what to change", default="n", err=True).strip()
            if said.lower() not in ("n", "no"):
                _keep(console, state, change, change.stage, None, "" if said.lower() in ("y", "yes") else said)
                decided = True
        if not decided:
            break
        code = build()
    return code
