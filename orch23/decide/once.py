"""Decide stages with `once`: one is done when its result is committed, and its files are the user's (ADR 90)."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.freshness import change_reasons
from orch23.decide.ownership import GitFiles
from orch23.model.digest import FileEntry, Json, digest_json
from orch23.model.errors import CorruptStateError
from orch23.model.media import accepting
from orch23.model.paths import match_any, may_overlap
from orch23.model.pipeline import ListInput, Stage, family_of
from orch23.model.plan import Plan
from orch23.model.ports import ResultIndex
from orch23.model.record import LockFile, Manifest, Reason, Record, same_result, starts_from
from orch23.resolve.prompt_files import prompt_names, render_file, schema_text
from orch23.resolve.prompt_inputs import AuthorTexts, PromptInput, PromptInputs
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm
from orch23.store.lock_file import decode_lock, lock_path
from orch23.store.project_store import ProjectStore

_OF_TASK = frozenset({"kind", "command", "item", "schema"})
_OF_INPUTS = frozenset({"input", "slice", "list", "keys"})
# What a template gets for a file that the stage may change, if it looks one up.
_OTHER_FILE = PromptInput("?", "", "?", lambda: "?")


def users_files(
    store: ProjectStore, lock: LockFile, plan: Plan, git: GitFiles
) -> tuple[ProjectStore, LockFile, Mapping[str, Record]]:
    """Return a store and a lock file in which stages that are done own no files, and the whole records of these.

    A result is done if the lock file of HEAD has it; without git, if the lock file has it. Also if its stage is gone.
    """
    nodes = {name: plan.nodes.get(name) or plan.nodes.get(family_of(name)) for name in lock.owner_records()}
    off = {n for n, one in nodes.items() if one and not (one.once if isinstance(one, Stage) else one.body.get("once"))}
    once = {name: one for name, one in lock.owner_records().items() if one.task and name not in off}
    head = _of_head(lock, plan, git).records
    # `reset` keeps no key, and two tasks may have an equal result.
    given = {n for n, one in once.items() if n in head and one.task == head[n].task and same_result(one, head[n])}
    taken = _taken_over([once[name] for name in sorted(given)], lock.records.values())

    def view(one: Record) -> Record:
        if one.task and one.stage in given:
            return replace(one, outputs={}, deleted=(), originals={}, bases={}, accepted=(), git={})
        moved = {path: taken[path, entry] for path, entry in one.originals.items() if (path, entry) in taken}
        return replace(one, originals={**one.originals, **moved}) if moved else one

    records, retained = ({name: view(one) for name, one in some.items()} for some in (lock.records, lock.retained))
    others = tuple(map(view, lock.others))
    own = frozenset(one.key for name, one in once.items() if name not in given)
    return (
        replace(store, records=_Results(store.records, own)),
        replace(lock, records=records, retained=retained, others=others),
        {name: head[name] for name in given},
    )


def _of_head(lock: LockFile, plan: Plan, git: GitFiles) -> LockFile:
    path = lock_path(Path(), plan.pipeline.file).as_posix()
    if (data := git.at_head(path)) is None:
        return lock
    with suppress(CorruptStateError):  # it is not there, or was committed with conflict markers or by a later version
        return decode_lock(data, path)
    return LockFile()


def _taken_over(
    done: Iterable[Record], records: Collection[Record]
) -> Mapping[tuple[str, FileEntry | None], FileEntry]:
    """Return what later stages started from, instead of an original: the result of a stage that is done is the user's.

    A stage that has run since from other bytes of the user has these as its original.
    """
    return {
        (path, one.originals.get(path)): entry
        for one in done
        for path, entry in one.outputs.items()
        if any(path in r.originals and starts_from(r, path, entry) for r in records)
    }


class _Results(Struct, frozen=True):
    """The `ResultIndex` of a store in which results of `once` stages have made no file, except those with `own` keys.

    By its key, each result is found: a promotion group may withhold it.
    """

    records: ResultIndex
    own: frozenset[str]

    def __getattr__(self, name: str) -> object:
        method = getattr(self.records, name)
        if name not in ("by_identity", "labelled", "owners", "having", "everything"):
            return method
        return lambda *args: tuple(one for one in method(*args) if not one.task or one.key in self.own)


def task_changes(record: Record, resolved: ResolvedStage) -> tuple[Reason, ...]:
    """Return what changed of a task text since a record that has another one."""
    then, now = (_task_aspects(resolved.stage, manifest) for manifest in (record.manifest, resolved.manifest))
    return change_reasons(then, now) or (Reason("prompt_changed", "prompt"),)


def _is_edited(stage: Stage, path: str, *, is_list: bool) -> bool:
    """Return whether an input is a file that the stage may change, or a listing that may have such files."""
    return any(may_overlap(one, path) for one in stage.outputs) if is_list else match_any(stage.outputs, path)


def _task_aspects(stage: Stage, manifest: Manifest) -> Manifest:
    def belongs(aspect: str) -> bool:
        prefix, _, subject = aspect.partition(":")
        path = subject.partition("#")[0] if prefix in ("slice", "keys") else subject
        is_input = prefix in _OF_INPUTS and not _is_edited(stage, path, is_list=prefix == "list")
        return is_input or aspect in _OF_TASK

    return {aspect: value for aspect, value in manifest.items() if belongs(aspect)}


def task_of(resolved: ResolvedStage, sources: AuthorTexts, variables: Mapping[str, Json]) -> str:
    """Return the digest of a task text: prompts, item, command, and inputs without files that the stage may change."""
    stage, step = resolved.stage, resolved.stage.step
    aspects = _task_aspects(stage, resolved.manifest)
    if not is_llm(step):
        return digest_json(dict(aspects))
    lists = {one.pattern for one in stage.inputs if isinstance(one, ListInput)}
    given = tuple(
        one
        for one in resolved.given
        if not one.base and not _is_edited(stage, one.path, is_list=one.slice == "list" and one.path in lists)
    )
    names = prompt_names(stage, given, variables, schema=schema_text(step, sources))
    names["inputs"] = PromptInputs(given, _OTHER_FILE)
    with accepting():
        rendered = [render_file(path, names, sources)[0] for path in (step.prompt, step.system)]
    # A template that needs these files, such as by position, counts as it is written.
    texts = [
        sources.text(path)[0] if text is None and path else text
        for path, text in zip((step.prompt, step.system), rendered, strict=True)
    ]
    return digest_json([dict(aspects), *texts])
