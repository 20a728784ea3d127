"""Open a pipeline for planning or building: its plan, its world, everything that is wrong with it."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.checks.registry import checks_of
from orch23.engine.appraise import Appraiser, FactsOf
from orch23.engine.claims import Claims
from orch23.engine.expansion import expanded, source_producers
from orch23.engine.memory import Memory
from orch23.engine.ownership import Git, NoGit
from orch23.engine.proof import bounded
from orch23.engine.unknown_names import unknown_check, unknown_executor
from orch23.engine.walk import expand_now
from orch23.engine.world import World
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import CheckStep, ForeachStage, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.model.record import LockFile, Record
from orch23.plan.graph import build_plan, unknown_needs
from orch23.plan.inputs import inputs_of_nobody, literal_reads, missing_inputs
from orch23.resolve.prompts import Sources
from orch23.resolve.slices import YamlReader
from orch23.steps.registry import is_llm
from orch23.store.history import History
from orch23.store.opening import Store

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep

CheckStepOf = Callable[["LLMStep"], tuple[Diagnostic, ...]]
"""Say what keeps a stage's provider from being asked, as far as can be known before any stage starts."""


class Machinery(Struct, frozen=True, kw_only=True):
    """What planning needs besides the pipeline: facts of the machine, files of the author, providers' own checks."""

    facts_of: FactsOf
    sources: Sources
    read_yaml: YamlReader
    check_provider: CheckStepOf


class Session(Struct, frozen=True, kw_only=True):
    """One pipeline, opened: what decisions are taken from."""

    pipeline: Pipeline
    store: Store
    memory: Memory
    lock: LockFile
    history: History
    appraiser: Appraiser

    @property
    def world(self) -> World:
        """Give the world that is decided on."""
        return self.appraiser.world

    @property
    def lock_path(self) -> Path:
        """Give the lock file's place."""
        return self.memory.lock_path


def open_session(  # noqa: PLR0913 - what a build knows, each with its own name
    pipeline: Pipeline,
    store: Store,
    machinery: Machinery,
    memory: Memory,
    *,
    forced: Collection[str] = (),
    overwrite_edited: bool = False,
    git: Git | None = None,
    claims: Claims | None = None,
    trusts_lock: bool = False,
    plan: Plan | None = None,
) -> Session:
    """Return the pipeline opened on the store's records and what earlier builds left.

    `git` is what git has of the project, `claims` what its other pipelines own; without them there is nothing.
    With `trusts_lock`, results that only the lock file has are not verified first. `plan` is the part of the plan that
    an edit reaches, with all of its items.

    Raises:
        InvalidInputError: the graph has complaints, an input is made by nobody, a provider or check is unknown.
        CorruptStateError: the lock file or the journal is damaged.

    """
    part = plan
    if plan is None:
        plan = check_plan(pipeline, store, machinery)
    elif problems := [*_without_plan(pipeline, machinery), *nobody_makes(plan, store)]:
        raise InvalidInputError(*problems)
    lock, history = memory.read()
    lock = bounded(_with_interrupted(lock, history, store), plan, store.records)
    world = World(
        plan,
        store,
        lock,
        promised=dict(store.promoter.pending()),
        git=git or NoGit(),
        claims=claims,
        trusts_lock=trusts_lock,
    )
    appraiser = Appraiser(
        world,
        machinery.facts_of,
        machinery.sources,
        machinery.read_yaml,
        forced=forced,
        overwrite_edited=overwrite_edited,
        failed_before=history.failed,
    )
    if part is None:
        _expand_sources(appraiser, machinery.check_provider)
    return Session(pipeline=pipeline, store=store, memory=memory, lock=lock, history=history, appraiser=appraiser)


def check_plan(pipeline: Pipeline, store: Store, machinery: Machinery) -> Plan:
    """Return the plan of a pipeline before any expansion, or raise all that is wrong with it at once.

    Raises:
        InvalidInputError: with every complaint.

    """
    problems = _without_plan(pipeline, machinery)
    plan, found = build_plan(pipeline, compiled=store.plans)
    problems += found
    if plan is None:
        problems += inputs_of_nobody(
            pipeline, lambda path: store.workspace.found(path) is not None, store.workspace.is_folder
        )
    else:
        problems += nobody_makes(plan, store)
    if problems or plan is None:
        raise InvalidInputError(*problems)
    return plan


def sound_part(
    pipeline: Pipeline, store: Store, machinery: Machinery, *, names: Collection[str], unread: tuple[str, ...]
) -> tuple[Diagnostic, ...]:
    """Return what is wrong with the sound stages of a pipeline that has unsound ones as well, to tell it in one run.

    `names` are all stages that are declared. Of an input that a text of the unsound ones might make nothing is said.
    """
    problems = _without_plan(pipeline, machinery)
    problems += unknown_needs(pipeline, names)
    made = tuple(text for text in unread if text and not text.isspace())

    def may_exist(path: str) -> bool:
        if store.workspace.found(path) is not None:
            return True
        return any(path in text or (text.endswith("/") and path.startswith(text)) for text in made)

    return (*problems, *inputs_of_nobody(pipeline, may_exist, store.workspace.is_folder))


def _without_plan(pipeline: Pipeline, machinery: Machinery) -> list[Diagnostic]:
    """Return what is wrong with the stages of a pipeline, each by itself."""
    return [
        *unknown_executor(pipeline),
        *_unknown_checks(pipeline),
        *_prompt_files(pipeline, machinery),
        *_providers(pipeline, machinery),
    ]


def nobody_makes(plan: Plan, store: Store) -> tuple[Diagnostic, ...]:
    """Return a complaint for each literal input that is neither on disk nor made by a stage."""
    exists = {path: store.workspace.found(path) is not None for path in literal_reads(plan)}
    return missing_inputs(plan, exists, store.workspace.is_folder)


def _expand_sources(appraiser: Appraiser, check: CheckStepOf) -> None:
    """Expand every foreach over a static list or a file that no stage makes, so that its mistakes show at once.

    They are expanded together: an expansion orders the whole plan. What one of them turns out not to make may be the
    list of another.
    """
    # Not `expand_each`: with 100 lists that would order the whole plan 100 times. Not a `Walk`: nothing is decided yet,
    # and the mistakes of all lists are reported at once, also of those behind stages that have yet to run.
    world = appraiser.world
    problems: list[Diagnostic] = []
    seen: set[str] = set()
    while found := {
        node.name: (node, expansion)
        for node in world.plan.unexpanded
        if node.name not in seen and not source_producers(world.plan, node)
        if (expansion := expand_now(appraiser, node)) is not None
    }:
        seen |= found.keys()
        problems += (problem for _, expansion in found.values() for problem in expansion.problems)
        sound = {name: one for name, one in found.items() if not one[1].problems}
        plan, wrong = expanded(world.plan, {name: expansion for name, (_, expansion) in sound.items()})
        problems += wrong
        for node, expansion in sound.values():
            if declared_llm_of(node) is None:
                problems += _item_providers(world.plan.pipeline, expansion.stages, check)
        if plan is not None:
            world.extend(plan)
    if not problems:  # what nobody makes any more is taken away, so it is no input
        exists = {path: world.remains(path) for path in literal_reads(world.plan)}
        problems += missing_inputs(world.plan, exists, world.store.workspace.is_folder)
    if problems:
        raise InvalidInputError(*problems)


def _item_providers(pipeline: Pipeline, items: tuple[Stage, ...], check: CheckStepOf) -> Iterator[Diagnostic]:
    """Give what is wrong with the llm steps of items that differ in them."""
    for item in items:
        if is_llm(item.step):
            for one in _provider(pipeline, item.name, item.step, check):
                yield replace(one, subject=item.name)


def _with_interrupted(lock: LockFile, history: History, store: Store) -> LockFile:
    """Return the lock with what an interrupted run had finished, since it had no time to write it."""
    records: dict[str, Record] = dict(lock.records)
    for name, key in history.unlocked.items():
        found = next((r for r in store.records.by_key(key) if not r.failed), None)
        known = records.get(name)
        if found is not None and (known is None or known.key != key):
            records[name] = replace(found, stage=name)
    return replace(lock, records=records)


def _unknown_checks(pipeline: Pipeline) -> list[Diagnostic]:
    known = checks_of(pipeline.plugins)
    problems: list[Diagnostic] = []
    for stage in pipeline.stages:
        if isinstance(stage, ForeachStage):
            problems += (
                unknown_check(pipeline, stage.name, place, name) for place, name in _named_checks(known, stage)
            )
            continue
        for position, step in zip(stage.verify.places, stage.verify.steps, strict=True):
            if isinstance(step, CheckStep) and step.name not in known:
                problems.append(unknown_check(pipeline, stage.name, ("verify", position), step.name))
    return problems


def _named_checks(known: Container[str], node: ForeachStage) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Give each unknown check that the body of a foreach names for all items, with its place below the stage."""
    verify = node.body.get("verify")
    whole = isinstance(verify, Mapping)
    steps = verify.get("steps") if isinstance(verify, Mapping) else verify
    for number, step in enumerate(steps) if isinstance(steps, list | tuple) else ():
        name = step.get("check") if isinstance(step, Mapping) else None
        if isinstance(name, str) and "${{" not in name and name not in known:
            yield (("verify", "steps", number) if whole else ("verify", number)), name


def _prompt_files(pipeline: Pipeline, machinery: Machinery) -> list[Diagnostic]:
    """Complain of every prompt, template and schema file that cannot be read."""
    problems = []
    for stage in pipeline.stages:
        if isinstance(stage, ForeachStage):
            continue
        for field, path in stage.author_files.items():
            text, problem = machinery.sources.text(path)
            if text is None and problem is not None:
                place = pipeline.locate("stages", stage.name, *field)
                problems.append(replace(problem, location=place, subject=None))
    return problems


def _providers(pipeline: Pipeline, machinery: Machinery) -> list[Diagnostic]:
    problems: list[Diagnostic] = []
    for node in pipeline.stages:
        step = node.step if isinstance(node, Stage) else declared_llm_of(node)
        if is_llm(step):
            problems += _provider(pipeline, node.name, step, machinery.check_provider)
    return list(dict.fromkeys(problems))  # a schema may serve several stages


def _provider(pipeline: Pipeline, name: str, step: "LLMStep", check: CheckStepOf) -> list[Diagnostic]:
    where = ("stages", name, "llm", "provider")
    return [replace(one, location=one.location or pipeline.locate(*where)) for one in check(step)]


def declared_llm_of(node: ForeachStage) -> "LLMStep | None":
    """Return the llm step of a foreach where all of its items have the same; None where an item has a say in it."""
    from orch23.resolve.steps import declared_llm  # noqa: PLC0415 - it loads the language of pipelines

    return declared_llm(node)
