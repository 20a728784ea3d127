"""Format the files of an answer before they are verified, and find files that only formatting made different.

The programs of `format` get what the verification gets, in a tree that they may write.
"""

import posixpath
from collections.abc import Collection

from msgspec.structs import replace

from orch23.attempt.failures import Failure, failure_of
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessRunner
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.event import Warned
from orch23.model.record import Record
from orch23.model.step import ProcessStep
from orch23.model.text import join_first
from orch23.resolve.resolution import ResolvedStage, listing_line

CHANGED_VARIABLE = "ORCH23_CHANGED"
_CHANGED = ".orch23/changed"
_MOST = 3


def format_files(
    resolved: ResolvedStage, runner: ProcessRunner, tree: Files, changed: Collection[str]
) -> Files | Failure:
    """Run the programs of `format` one after another; return the files of `changed` that they changed.

    `tree` are the stage's own files and those of its base. What a program changes elsewhere is put back and reported.

    Raises:
        CancelledBuildError: the build was interrupted.
        MissingBytesError: the store lost the bytes of an input.
        ConfigurationError: a program could not be started at all.
    """
    if not changed:
        return {}
    stage, found, others = resolved.stage, dict(tree), set[str]()
    lines = "".join(f"{listing_line(posixpath.relpath(path, stage.cwd))}\n" for path in sorted(changed))
    listed = {_CHANGED: FileEntry(runner.contents.put(lines.encode("utf-8", "surrogateescape")))}
    env = {**stage.env, CHANGED_VARIABLE: posixpath.relpath(_CHANGED, stage.cwd)}
    runner = replace(runner, stage=replace(stage, env=env))
    for step in (one for one in stage.format if isinstance(one, ProcessStep)):
        ran = runner.run(step, {**resolved.verified_files(found), **listed})
        if not isinstance(ran, FinishedProcess):
            return replace(ran, reason=f"format: {ran.summary}")
        if gone := sorted({*ran.result.removed} & {*changed}):
            text, hint = "the formatter removed this file of the answer", "correct the command in `format`"
            errors = tuple(Diagnostic("E328", text, hint=hint, subject=path) for path in gone)
            return failure_of("verify_failed", errors, retryable=False)
        others |= {*ran.result.written, *ran.result.removed}.difference(changed)
        # Some formatters write a new file with another mode: the mode of the answer stays.
        written = ((path, entry) for path, entry in ran.result.written.items() if path in changed)
        found |= {path: FileEntry(entry.digest, found[path].executable) for path, entry in written}
    if others:
        names = join_first(sorted(others), _MOST)
        runner.report.emit(Warned(), f"`format` also changed {names}, which the answer did not change: put back")
    return {path: found[path] for path in sorted(changed) if found[path] != tree[path]}


def format_recorded(resolved: ResolvedStage, runner: ProcessRunner, record: Record) -> Record | Failure:
    """Format the answer behind a recorded result with the programs of today; return the record of the new result.

    `made` has the bytes of the answer that are left; elsewhere the formatted file is formatted again. Files that the
    user accepted stay as they are.
    """
    answer = {**record.outputs, **{path: one for path, one in record.made.items() if path not in record.accepted}}
    tree = {**resolved.base_without(record.deleted), **answer}
    own = [p for p, one in answer.items() if p not in record.accepted and resolved.base.get(p) != one]
    after = format_files(resolved, runner, tree, own)
    if isinstance(after, Failure):
        return after
    of_user = {path: one for path, one in record.made.items() if path in record.accepted}
    return replace(record, outputs={**answer, **after}, made={**of_user, **{path: answer[path] for path in after}})


def same_when_formatted(resolved: ResolvedStage, runner: ProcessRunner, record: Record, there: Files) -> Record | None:
    """Return a result with the files of `there` that are equal to its own once both are formatted; None without any."""
    tree = {**resolved.base_without(record.deleted), **record.outputs}
    own = {path: record.outputs[path] for path in there}
    ours = format_files(resolved, runner, tree, there)
    theirs = format_files(resolved, runner, {**tree, **there}, there)
    if isinstance(ours, Failure) or isinstance(theirs, Failure):
        return None
    ours, theirs = {**own, **ours}, {**there, **theirs}
    same = {path: entry for path, entry in there.items() if ours[path].digest == theirs[path].digest}
    made = {path: own[path] for path in same}
    return replace(record, outputs={**record.outputs, **same}, made={**made, **record.made}) if same else None
