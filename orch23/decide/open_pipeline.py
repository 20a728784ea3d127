"""Open a pipeline for planning or building: lock file, history, plan, state, and all of its errors."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.decisions import FactsOf, StageDecider
from orch23.decide.machine_facts import unknown_executor_errors
from orch23.decide.ownership import (
    GitFiles,
    NoGitFiles,
    OtherPipelines,
    with_lost_records,
    without_impossible_records,
)
from orch23.decide.project_state import ObsoleteFiles, ProjectState
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import digest_bytes
from orch23.model.errors import CorruptStateError, InvalidInputError
from orch23.model.parsing import YamlReader
from orch23.model.pipeline import CheckStep, ForeachStage, ModelChoice, Pipeline, Stage, family_of
from orch23.model.plan import Plan, Resample, RunHistory, resample_of
from orch23.model.record import LockFile, Record
from orch23.plan.diagnostics import missing_inputs_errors, unmade_inputs_errors
from orch23.plan.planner import build_plan, unknown_needs_errors
from orch23.steps.registry import is_llm
from orch23.store.lock_file import (
    KnownLock,
    LockWrite,
    lock_digest,
    lock_path,
    read_known_lock,
    read_lock,
    read_lock_records,
    write_lock,
    write_lock_records,
)
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import read_regular

if TYPE_CHECKING:
    from orch23.decide.earlier_build import EarlierBuild
    from orch23.decide.shared_results import SharedResults
    from orch23.resolve.prompt_inputs import AuthorTexts
    from orch23.steps.llm.spec import LLMStep

# Each of them looks into up to 100 directories.
_MOST_SUGGESTIONS = 50


class WholePriorState(Struct):
    """The whole lock file and history.

    `sha256` is the digest of the lock file that an earlier build wrote, in hex, if known. `_known` is that file.
    """

    root: Path
    logs: Path
    pipeline_file: str
    sha256: str = ""
    _known: KnownLock | None = None

    def read(self) -> tuple[LockFile, RunHistory]:
        """Return the lock file and the history.

        Raises:
            CorruptStateError: the lock file or the journal is damaged.
        """
        from orch23.store.history import read_history  # noqa: PLC0415 - few edits read journals

        place = lock_path(self.root, self.pipeline_file)
        self._known = read_known_lock(place, self.sha256) if self.sha256 else None
        digest = lock_digest(place) if self._known is None else self.sha256
        history = read_history(self.logs, self.pipeline_file, digest)
        return read_lock(place) if self._known is None else self._known.lock, history

    def is_last_written(self, store: ProjectStore) -> bool:
        """Return whether the lock file is the one that the last build of this store wrote."""
        digest = lock_digest(lock_path(self.root, self.pipeline_file)).encode()
        return store.lock_files.get(self.pipeline_file, digest) is not None

    def write(self, lock: LockFile, pipeline_name: str) -> LockWrite:
        """Write the lock file.

        Raises:
            SafetyError: a directory of its path is a link.
        """
        path = lock_path(Path(), self.pipeline_file).as_posix()
        return write_lock(self.root, path, lock, pipeline_name, self._known)


class PartialPriorState(Struct):
    """The records of some stages, after a build with nothing to do, which leaves no other history.

    `sha256` is the digest of the lock file of the build before, in hex. A file with the change time `ctime_ns` is
    still that one; if that is 0, the file is hashed. `_data` are its bytes and `_records` the records of the stages,
    once it was read.
    """

    root: Path
    pipeline_file: str
    stages: Collection[str]
    sha256: str
    ctime_ns: int = 0
    _data: bytes = b""
    _records: Mapping[str, Record] = {}

    def read(self) -> tuple[LockFile, RunHistory]:
        """Return the records of the stages.

        Raises:
            CorruptStateError: the lock file is not the one that the build before left.
        """
        place = lock_path(self.root, self.pipeline_file)
        # Read before the change time is checked: that shows a change between the two.
        self._data = read_regular(place) or b""
        if not self._is_unchanged() and digest_bytes(self._data).sha256 != self.sha256:
            message = "the lock file was changed since the last build"
            hint = "build again: the whole lock file is read then"
            raise CorruptStateError(Diagnostic("E702", message, Location(str(place), 1, 1), hint))
        lock = read_lock_records(place, self.stages, self._data, is_known=True)
        self._records = lock.records
        return lock, RunHistory()

    def write(self, lock: LockFile, pipeline_name: str) -> LockWrite:
        """Write the records of these stages that changed since they were read; the others stay.

        The sha256 of the result is empty if the file was changed since it was read.

        Raises:
            SafetyError: a directory of its path is a link.
        """
        place = lock_path(Path(), self.pipeline_file).as_posix()
        changed = LockFile({name: one for name, one in lock.records.items() if one != self._records.get(name)})
        return write_lock_records(
            self.root, place, changed, pipeline_name, self._data, is_unchanged=self._is_unchanged()
        )

    def _is_unchanged(self) -> bool:
        with contextlib.suppress(OSError):
            lock = lock_path(self.root, self.pipeline_file)
            return self.ctime_ns != 0 and os.lstat(lock).st_ctime_ns == self.ctime_ns
        return False


PriorState: TypeAlias = WholePriorState | PartialPriorState
"""The lock file of a pipeline, and the history of its runs."""

CheckProvider = Callable[["LLMStep"], tuple[Diagnostic, ...]]
"""Return the errors of a stage's provider that are known before any stage starts."""


class PlanningTools(Struct, frozen=True, kw_only=True):
    """What planning needs besides the pipeline: facts of the machine, the author's files, checks of providers."""

    facts_of: FactsOf
    sources: "AuthorTexts"
    read_yaml: YamlReader
    check_provider: CheckProvider


class OpenPipeline(Struct, frozen=True, kw_only=True):
    """An opened pipeline, which decisions are based on."""

    pipeline: Pipeline
    store: ProjectStore
    prior: PriorState
    lock: LockFile
    history: RunHistory
    decider: StageDecider

    @property
    def state(self) -> ProjectState:
        """The state that is decided on."""
        return self.decider.state

    @property
    def lock_path(self) -> Path:
        """The path of the lock file."""
        return lock_path(self.store.root, self.pipeline.file)


class OpeningOptions(Struct, frozen=True, kw_only=True):
    """What the user demands, and what is known of the project beside its records.

    The models of `resample` are called again, and those of an interrupted `--resample` if the build `keeps_promises`.
    `git` has the files of the project in git, `claims` those of its other pipelines. With `trusts_lock`, results that
    only the lock file has are not verified first. `part` is the part of the plan that an edit affects, with all of its
    items. `earlier` is the last build with nothing to do, if it was for the same command. `shared` are the results in a
    shared cache.
    """

    forced: Collection[str] = ()
    resample: Collection[str] = ()
    keeps_promises: bool = True
    overwrite_edited: bool = False
    git: GitFiles = field(default_factory=NoGitFiles)
    claims: OtherPipelines | None = None
    trusts_lock: bool = False
    part: Plan | None = None
    earlier: "EarlierBuild | None" = None
    shared: "SharedResults | None" = None


NOTHING_ASKED = OpeningOptions()


def open_pipeline(
    pipeline: Pipeline, store: ProjectStore, tools: PlanningTools, memory: PriorState, options: OpeningOptions
) -> OpenPipeline:
    """Open a pipeline on the records of the store and the results of earlier builds.

    Raises:
        InvalidInputError: the graph has errors, no stage makes an input, a provider or check is unknown.
        CorruptStateError: the lock file or the journal is damaged.
    """
    # A part of a plan comes from the dependency index (ADR 31): its lists are expanded already.
    plan = options.part
    if plan is None:
        plan = check_plan(pipeline, store, tools, options.earlier)
    elif problems := [*_without_plan(pipeline, tools, store), *missing_input_errors(plan, store)]:
        raise InvalidInputError(*problems)
    lock, history = memory.read()
    if isinstance(memory, WholePriorState) and not memory.is_last_written(store):
        lock = with_lost_records(lock, plan, store, options.git)
    # A lock file comes with a clone: a forged record must not make a stage remove files that it may not write.
    lock = without_impossible_records(_with_interrupted(lock, history, store), plan, store.records)
    users, owned, done = with_users_files(store, lock, plan, options.git)
    state = ProjectState(
        plan,
        users,
        owned,
        done=done,
        expected=dict(store.promoter.pending()),
        git=options.git,
        other_pipelines=options.claims,
        trusts_lock=options.trusts_lock,
        shared=options.shared,
    )
    promised = _resample(plan, history.resample, options.forced, options.resample)
    now = promised if options.keeps_promises else _resample(plan, {}, options.forced, options.resample)
    decider = StageDecider(
        state,
        tools.facts_of,
        tools.sources,
        tools.read_yaml,
        forced=(*options.forced, *options.resample),
        resample=now,
        overwrite_edited=options.overwrite_edited,
        failed_before=history.failed,
        earlier=None if options.forced or promised else options.earlier,
    )
    if options.part is None:
        _check_lists(decider, tools.check_provider)
    history = replace(history, resample=promised)
    return OpenPipeline(pipeline=pipeline, store=store, prior=memory, lock=lock, history=history, decider=decider)


def with_users_files(
    store: ProjectStore, lock: LockFile, plan: Plan, git: GitFiles
) -> tuple[ProjectStore, LockFile, Mapping[str, Record]]:
    """Return a store and a lock file in which `once` stages that are done own no files, and the records of these."""
    declared = (one.once if isinstance(one, Stage) else one.body.get("once") for one in plan.pipeline.stages)
    if not any(one.task for one in lock.owner_records().values()) and not any(declared):
        return store, lock, {}
    from orch23.decide.once import users_files  # noqa: PLC0415 - few stages have `once`

    return users_files(store, lock, plan, git)


def _resample(plan: Plan, before: Resample, forced: Collection[str], own: Collection[str]) -> Resample:
    """Return the stages whose models are called again: `own`, and those promised `before` that are not `forced` now."""
    named = {name: known for name, known in before.items() if name not in forced and family_of(name) not in forced}
    # Who names a foreach again means all of its items.
    named = {name: known for name, known in named.items() if known is not None or family_of(name) not in own}
    named |= {name: named.get(name) or () for name in own}
    found: dict[str, tuple[str, ...] | None] = {}
    for name in named:
        items = plan.expansions.get(name)
        for one in (name,) if items is None else (item.name for item in items):
            node = plan.nodes.get(one, plan.nodes.get(family_of(one)))
            if node is not None and node.kind == "llm":
                found[one] = resample_of(named, one)
    return {one: known for one, known in found.items() if known is not None or found.get(family_of(one)) is not None}


def check_plan(
    pipeline: Pipeline, store: ProjectStore, tools: PlanningTools, earlier: "EarlierBuild | None" = None
) -> Plan:
    """Return the plan of a pipeline before the lists that stages make are read, or raise all of its errors at once.

    Inputs that the `earlier` build found, and that have not changed since, are not looked up.

    Raises:
        InvalidInputError: with all errors.
    """
    from orch23.decide.list_expansion import FormerItems, first_plan  # noqa: PLC0415 - a part of a plan has no lists

    former: FormerItems = (lambda _: {}) if earlier is None else partial(earlier.items_of, variables=pipeline.vars)
    read, is_folder = store.workspace.read, store.workspace.is_folder
    plan, found = first_plan(pipeline, lambda *where: read(where[-1]), tools.read_yaml, former, store.plans, is_folder)
    problems = [*_without_plan(pipeline, tools, store), *found]
    if plan is None:
        problems += unmade_inputs_errors(
            pipeline, lambda path: store.workspace.input_entry(path) is not None, is_folder, _similar_paths(store)
        )
    else:
        known = {item.name for items in plan.expansions.values() for item in items}
        problems += missing_input_errors(plan, store, known if earlier is None else known | earlier.untouched(plan))
        if any(isinstance(node, Stage) and node.tool_caches for node in plan.nodes.values()):
            from orch23.model.features import TOOL_CACHES, load_feature  # noqa: PLC0415 - few stages have tool caches

            problems += load_feature(TOOL_CACHES["errors"], "`tool_caches` needs")(plan, store.tool_caches)
    if problems or plan is None:
        raise InvalidInputError(*dict.fromkeys(problems))  # items may repeat an error of their foreach
    return plan


def check_items(plan: Plan, store: ProjectStore, tools: PlanningTools) -> StageDecider:
    """Check the items of each foreach whose list no stage makes, and return a decider that has them in its plan.

    No earlier result counts.

    Raises:
        InvalidInputError: with all errors of lists and items.
    """
    decider = StageDecider(ProjectState(plan, store, LockFile()), tools.facts_of, tools.sources, tools.read_yaml)
    _check_lists(decider, tools.check_provider)
    return decider


def errors_of_sound_stages(
    pipeline: Pipeline, store: ProjectStore, tools: PlanningTools, *, names: Collection[str], unread: tuple[str, ...]
) -> tuple[Diagnostic, ...]:
    """Return the errors of the valid stages of a pipeline that has invalid ones as well, so that one run shows all.

    `names` are all declared stages. Inputs that an invalid stage may make, by its text, are not reported.
    """
    problems = _without_plan(pipeline, tools, store)
    problems += unknown_needs_errors(pipeline, names)
    # Other errors of the graph may be about stages that are left out.
    problems += (one for one in build_plan(pipeline)[1] if one.code == "E820")
    made = tuple(text for text in unread if text and not text.isspace())

    def may_exist(path: str) -> bool:
        if store.workspace.input_entry(path) is not None:
            return True
        return any(path in text or (text.endswith("/") and path.startswith(text)) for text in made)

    return (*problems, *unmade_inputs_errors(pipeline, may_exist, store.workspace.is_folder, _similar_paths(store)))


def _without_plan(pipeline: Pipeline, tools: PlanningTools, store: ProjectStore) -> list[Diagnostic]:
    return [
        *unknown_executor_errors(pipeline),
        *_unknown_checks(pipeline),
        *_prompt_files(pipeline, tools, store),
        *_providers(pipeline, tools),
    ]


def missing_input_errors(
    plan: Plan,
    store: ProjectStore,
    known: Collection[str] = (),
    exists: Callable[[str], object] | None = None,
    is_result: Callable[[str], bool] = lambda _path: False,
) -> tuple[Diagnostic, ...]:
    """Return an error for each literal input that does not exist and that no stage makes; `known` stages have all."""
    found_by = exists or store.workspace.input_entry

    def errors(deleted: Collection[str]) -> tuple[Diagnostic, ...]:
        is_there, is_folder = (lambda path: path in deleted or bool(found_by(path))), store.workspace.is_folder
        return missing_inputs_errors(plan, is_there, is_folder, known, _similar_paths(store), is_result)

    if not (found := errors(())):
        return ()
    # A stage and those before it start from a file that its last result deleted.
    records = read_lock(lock_path(store.root, plan.pipeline.file)).owner_records().values()
    ours = [one for one in records if plan.is_declared(one.stage)]
    deleted = {path for one in ours for path in one.deleted if one.originals.get(path) is not None}
    return errors(deleted) if deleted else found


def _similar_paths(store: ProjectStore) -> Callable[[str], list[str]]:
    """Return the function that finds what may be meant by a path that does not exist, for the first such paths."""
    left = iter(range(_MOST_SUGGESTIONS))

    def find(path: str) -> list[str]:
        if next(left, None) is None:
            return []
        from orch23.decide.unmatched_inputs import similar_paths  # noqa: PLC0415 - only for errors

        return similar_paths(store.workspace, path)

    return find


def _check_lists(decider: StageDecider, check: CheckProvider) -> None:
    state, plan = decider.state, decider.state.plan
    exists, is_folder = ObsoleteFiles(state).has_lasting_file, state.store.workspace.is_folder
    problems: list[Diagnostic] = []
    # A file that no stage makes any more will be removed, so it counts neither as a list nor as an existing input.
    for node in plan.pipeline.stages:
        if isinstance(node, ForeachStage) and node.name in plan.expansions:
            source = node.foreach.source
            if source is not None and not ObsoleteFiles(state.tracked(node.name)).has_lasting_file(source):
                from orch23.decide.list_expansion import missing_list  # noqa: PLC0415 - only for errors

                problems += missing_list(plan, node, is_folder).problems
            problems += _item_providers(plan, node, check)
    has_ended_stages = not all(plan.is_declared(record.stage) for record in state.former.values())
    before_makers = plan.upstream_of_chains
    if not problems and (plan.expansions or has_ended_stages or before_makers):  # otherwise `check_plan` has found all
        known = () if plan.expansions or has_ended_stages else plan.nodes.keys() - before_makers.keys()
        problems += missing_input_errors(plan, state.store, known, exists, state.is_only_result)
    if problems:
        raise InvalidInputError(*problems)


def _item_providers(plan: Plan, node: ForeachStage, check: CheckProvider) -> Iterator[Diagnostic]:
    """Yield the errors of llm steps of the items of a foreach, where these steps differ."""
    # A step that all items share was checked with the foreach.
    for item in plan.expansions[node.name] if _declared(node)[0] is None else ():
        if is_llm(item.step):
            found_wrong = _provider(plan.pipeline, item.name, item.step, item.retry.usable, check)
            yield from (replace(one, subject=item.name) for one in found_wrong)


def _with_interrupted(lock: LockFile, history: RunHistory, store: ProjectStore) -> LockFile:
    """Return the lock file with the results of an interrupted run, which did not write it."""
    records: dict[str, Record] = dict(lock.records)
    for name, key in history.unlocked.items():
        found = next((r for r in store.records.by_key(key) if not r.failed), None)
        known = records.get(name)
        if found is not None and (known is None or known.key != key):
            records[name] = replace(found, stage=name)
    return replace(lock, records=records)


def _unknown_checks(pipeline: Pipeline) -> list[Diagnostic]:
    named = [(stage, *one) for stage in pipeline.stages for one in _named_checks(stage)]
    if not named:
        return []
    from orch23.decide.list_expansion import unknown_check_error  # noqa: PLC0415 - few edits have a check

    found = (
        unknown_check_error(pipeline, stage, (*_place_of_steps(pipeline, stage), position), name)
        for stage, position, name in named
    )
    return list(dict.fromkeys(filter(None, found)))  # a check of `defaults` may serve several stages


def _named_checks(node: Stage | ForeachStage) -> Iterator[tuple[int, str]]:
    """Yield each check that a stage names, with its position in `verify`; of a foreach those that all items share."""
    if isinstance(node, Stage):
        yield from ((n, step.name) for n, step in enumerate(node.verify.steps) if isinstance(step, CheckStep))
        return
    verify = node.body.get("verify")
    listed = verify.get("steps") if isinstance(verify, Mapping) else verify
    for number, step in enumerate(listed) if isinstance(listed, list | tuple) else ():
        name = step.get("check") if isinstance(step, Mapping) else None
        if isinstance(name, str) and "${{" not in name:
            yield number, name


def _place_of_steps(pipeline: Pipeline, node: Stage | ForeachStage) -> tuple[str, ...]:
    """Return where the steps of `verify` are written, which may be a list, or a mapping with `steps`."""
    if isinstance(node, ForeachStage):
        return ("verify", "steps") if isinstance(node.body.get("verify"), Mapping) else ("verify",)
    written, own = pipeline.locations, f"stages/{node.family}/verify"
    is_mapping = f"{own}/0" not in written and any(f"{at}/steps" in written for at in (own, "defaults/verify"))
    return ("verify", "steps") if is_mapping else ("verify",)


def _prompt_files(pipeline: Pipeline, tools: PlanningTools, store: ProjectStore) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    stages = [stage for stage in pipeline.stages if isinstance(stage, Stage)]
    files = [(("stages", one.name, *place), path) for one in stages for place, path in one.author_files.items()]
    for place, path in (*files, *([(("run_log",), pipeline.run_log)] if pipeline.run_log else ())):
        text, problem = tools.sources.text(path)
        if text is None and problem is not None:
            from orch23.decide.unmatched_inputs import with_similar  # noqa: PLC0415 - only for errors

            where = pipeline.locate_written("/".join(map(str, place)))
            found.append(replace(with_similar(problem, path, store.workspace), location=where, subject=None))
    return list(dict.fromkeys(found))  # a file of `defaults` may serve several stages


def _providers(pipeline: Pipeline, tools: PlanningTools) -> list[Diagnostic]:
    problems: list[Diagnostic] = []
    for node in pipeline.stages:
        step, choices = (node.step, node.retry.usable) if isinstance(node, Stage) else _declared(node)
        if is_llm(step):
            problems += _provider(pipeline, node.name, step, choices, tools.check_provider)
    return list(dict.fromkeys(problems))  # a schema may serve several stages


def _provider(
    pipeline: Pipeline, name: str, step: "LLMStep", choices: tuple[str | ModelChoice, ...], check: CheckProvider
) -> list[Diagnostic]:
    """Return the errors of each step that an attempt can have, each once, where the field at fault is written."""
    found: dict[Diagnostic, Location | None] = {}
    at = f"stages/{family_of(name)}"
    # They replace the model of the step.
    for number, choice in enumerate(choices or (step.model,)):
        changed = () if not choices else ("model",) if isinstance(choice, str) else [key for key, _ in choice]
        for one in check(step.with_choice(choice)):
            key = _field_of(one)
            place = f"{at}/retry/escalate/{number}/{key}" if key in changed else f"{at}/llm/{key}"
            found.setdefault(one, pipeline.locate_written(place))
    for number, fallback in enumerate(step.fallbacks()):
        for one in check(fallback):
            found.setdefault(one, pipeline.locate_written(f"{at}/llm/fallback/{number}/{_field_of(one)}"))
    return [replace(one, location=one.location or place, subject=None) for one, place in found.items()]


def _field_of(error: Diagnostic) -> str:
    return error.subject or "provider"


def _declared(node: ForeachStage) -> "tuple[LLMStep | None, tuple[str | ModelChoice, ...]]":
    """Return the llm step of a foreach, if all of its items have the same one, and the models of their attempts."""
    from orch23.language.llm_steps import declared_escalation, declared_llm_step  # noqa: PLC0415 - loads the language

    return declared_llm_step(node), declared_escalation(node)
