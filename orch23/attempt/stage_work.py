"""Do the work of one stage in a worker thread: verify a recorded result, or run its attempts."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.attempt import AttemptHistory, AttemptLoop, Models, Shown, StageResult, step_runner
from orch23.attempt.failures import Failure, failure_of
from orch23.attempt.process_runner import Files, ProcessRunner, StageTrace
from orch23.attempt.run_events import Reporter
from orch23.attempt.safeguards import Safeguards, guard_edit
from orch23.attempt.verification import Verifier
from orch23.decide.decisions import DecidedStage
from orch23.decide.open_pipeline import OpenPipeline, missing_input_errors
from orch23.decide.project_state import ObsoleteFiles, ProjectState
from orch23.decide.stage_view import StageTree
from orch23.execute.interpreters import find_interpreter
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import FileEntry
from orch23.model.errors import ConfigurationError, MissingBytesError
from orch23.model.event import Warned
from orch23.model.paths import is_glob, match, may_overlap, normalize_pattern
from orch23.model.pipeline import ForeachStage, SliceInput, Stage
from orch23.model.plan import Plan, VerifyOnly
from orch23.model.record import Record
from orch23.model.text import join_first
from orch23.plan.nodes import WriterIndex, writes_of
from orch23.plan.planner import ALL_STAGES, Selection, list_producers
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.attempt.base_verification import StepRun
    from orch23.attempt.likely_cause import ProjectFacts
    from orch23.attempt.pytest_trust import TestTrust
    from orch23.model.ports import Executor


def record_edit(opened: OpenPipeline, resolved: ResolvedStage, outputs: Files) -> str:
    """Keep accepted files as an exchange, so that they can be rebuilt, and return its fingerprint."""
    from orch23.model.llm import Exchange  # noqa: PLC0415 - only for edits of a user
    from orch23.store.exchanges import user_fingerprint  # noqa: PLC0415 - as above

    store, step = opened.store, resolved.stage.step
    texts: dict[str, str | None] = {
        path: opened.state.read(path, entry).decode("utf-8", errors="replace") for path, entry in outputs.items()
    }
    fingerprint = user_fingerprint("accepted", resolved.stage.name, dict(texts))
    exchange = Exchange(
        fingerprint=fingerprint,
        stage=resolved.stage.name,
        request={},
        response="",
        outcome="accepted_by_hand",
        provenance="accepted by hand",
        files=texts,
    )
    store.exchanges.put(exchange, step.transcripts if is_llm(step) else None)
    return fingerprint


_MOST_LOST = 3
_UNVERIFIED = "the result in the lock file does not pass"


class InputsChangedError(Exception):
    """Inputs changed between the decision and the start of a stage: `args` are their paths."""


class Worker(Struct, frozen=True, kw_only=True):
    """Runs the attempts of stages. Called from many threads; reads the state, never changes it.

    `executor_of` returns the executor of a stage, `is_isolated` whether its steps run in a sandbox. `models` is None in
    a build without any stage that may call one.
    """

    opened: OpenPipeline
    executor_of: "Callable[[Stage], Executor]"
    models: Models | None = None
    safeguards: Safeguards
    reporter: Reporter
    is_isolated: Callable[[Stage], bool] = lambda _: True
    selection: Selection = ALL_STAGES
    tested: dict[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    # The items of a foreach share most of their inputs: each warning is given once.
    warned: set[Diagnostic] = field(default_factory=set)
    warned_checks: set[tuple[str, str]] = field(default_factory=set)
    traces: dict[str, StageTrace] = field(default_factory=dict)
    base_runs: "dict[str, tuple[StepRun, ...]]" = field(default_factory=dict)

    def work(self, resolved: ResolvedStage, verify: VerifyOnly | StageResult | None) -> StageResult:
        """Return the result of `_work`, with what its processes showed."""
        done = self._work(resolved, verify)
        return replace(done, trace=self.traces.pop(resolved.stage.name, StageTrace()))

    def _work(self, resolved: ResolvedStage, verify: VerifyOnly | StageResult | None) -> StageResult:
        """Run a stage, or verify its recorded result first; a failure is then feedback for the first attempt.

        If the recorded result has edits of the user, or only the lock file has it, the stage fails instead.

        Raises:
            CancelledBuildError: the build was interrupted.
            InputsChangedError: a source input changed since it was resolved; nothing was started.
            MissingBytesError: the bytes of an input are lost.
            ProviderError, LimitError, ConfigurationError: an error that stops more than this stage.
        """
        resolved = self._with_base(resolved) if isinstance(verify, VerifyOnly) else resolved
        if isinstance(verify, VerifyOnly) and verify.claim and is_llm(resolved.stage.step):
            # A new model call would cost money and give another result: the files are verified as they are (ADR 21).
            return self._verify_claim(resolved, verify.record)
        resolved = self._checked_patterns(resolved) if resolved.unmatched else resolved
        if isinstance(verify, VerifyOnly) and verify.claim and resolved.stage.edits:
            # In a clone, the bytes that a program started from may be lost: its result proves itself.
            resolved = replace(resolved, base=self._readable(self._newest(resolved.base)))
        attempts = self._attempts(resolved, verify.history if isinstance(verify, StageResult) else None)
        if (forbidden := attempts.forbidden()) is not None:
            return forbidden
        self._store_inputs(resolved, verify.record.outputs if isinstance(verify, VerifyOnly) and verify.adopted else {})
        stage = resolved.stage
        if stage.runs_pytest or stage.schema_files or getattr(stage.step, "read", ()):
            from orch23.attempt.stage_errors import stage_warnings  # noqa: PLC0415 - only for such stages

            self._warn(stage, stage_warnings(self.opened.state.plan, [stage], self.opened.store.workspace))
        if isinstance(verify, StageResult) and verify.failure is not None:
            self._store_outputs(verify.outputs)
            return attempts.run((verify, verify.failure))
        if isinstance(verify, VerifyOnly):
            return self._verify_first(resolved, verify, attempts)
        return self._with_accepted(resolved, attempts.run(), attempts)

    def _with_accepted(self, resolved: ResolvedStage, ran: StageResult, attempts: AttemptLoop) -> StageResult:
        """Keep the accepted files of a command where it made again what it had made when the user accepted them."""
        former = self.opened.state.former.get(resolved.stage.name)
        if ran.failure is not None or former is None or resolved.stage.step.asks_model:
            return ran
        again = [path for path in former.accepted if path in former.made and ran.outputs.get(path) == former.made[path]]
        on_disk = self.opened.state.store.workspace.entry
        kept = {path: entry for path in again if (entry := former.outputs[path]) == on_disk(path)}
        if not kept or self.opened.decider.overwrite_edited:
            return ran
        self._store_outputs(kept)
        outputs = {**ran.outputs, **kept}
        if attempts.verify_recorded(outputs, ran.deleted) is not None:
            return ran
        return replace(ran, outputs=outputs, accepted=tuple(kept), made={path: former.made[path] for path in kept})

    def _checked_patterns(self, resolved: ResolvedStage) -> ResolvedStage:
        """Warn about patterns that match no file, and return the stage with the errors about them."""
        from orch23.decide.unmatched_inputs import unmatched_inputs  # noqa: PLC0415 - only for such patterns

        errors, warnings = unmatched_inputs(self.opened.state.plan, [resolved], self.opened.store.workspace)
        self._warn(resolved.stage, warnings)
        return replace(resolved, broken=(*resolved.broken, *errors)) if errors else resolved

    def _warn(self, stage: Stage, warnings: Sequence[Diagnostic]) -> None:
        """Report the warnings that were not reported yet."""
        for one in set(warnings) - self.warned:
            self.warned.add(one)
            self.reporter.of_stage(stage.name).warn(one)

    def prepare(self, stages: Sequence[Stage]) -> None:
        """Load what stages that call models need. An error is ignored: the call of the stage raises it again."""
        with contextlib.suppress(Exception, SystemExit):
            import orch23.resolve.templates  # noqa: F401, PLC0415 - it loads jinja2, which renders the prompts

            step_runner(stages[0].step)
            if self.models is not None:
                self.models.conversations.prepare(stages)

    def _verify_first(self, resolved: ResolvedStage, verify: VerifyOnly, attempts: AttemptLoop) -> StageResult:
        recorded = verify.record
        if verify.claim:
            return self._run_claim(recorded, attempts)
        self._store_outputs(recorded.outputs)
        if verify.adopted:
            return self._adopt(resolved, recorded, verify.adopted, attempts)
        recorded = replace(recorded, made=self._readable(recorded.made)) if recorded.made else recorded
        again = self._formatted(resolved, recorded, attempts)
        recorded, failure = (recorded, again) if isinstance(again, Failure) else (again, None)
        failure = failure or attempts.verify_recorded(recorded.outputs, recorded.deleted)
        if failure is None:
            if resolved.stage.step.starts_processes:
                attempts.runner.trace.sandboxes.add("")  # where a recorded process ran is not known
            return _verified(recorded)
        if verify.shared:
            # Another machine wrote these files: no model may see them, nor what their tests printed.
            message = f"the result of the shared cache does not pass: {failure.summary}"
            warning = Diagnostic("W697", message, None, "it is ignored, and the stage runs", Severity.WARNING)
            self.reporter.of_stage(resolved.stage.name).warn(warning)
            return attempts.run()
        return attempts.run((recorded, failure))

    def _formatted(self, resolved: ResolvedStage, recorded: Record, attempts: AttemptLoop) -> Record | Failure:
        """Return a recorded result of another verification as the `format` of today makes it."""
        is_todays = recorded.key in (resolved.key, resolved.earlier_key)
        if is_todays or not (resolved.stage.format or recorded.made):
            return recorded
        from orch23.attempt.formatting import format_recorded  # noqa: PLC0415 - few stages have formatters

        self._store_outputs(recorded.made)
        return format_recorded(resolved, attempts.runner, recorded)

    def compare(self, decided: DecidedStage) -> tuple[Record, ...]:
        """Return the results that have files on disk which differ from a recorded result only by formatting.

        Raises:
            As `work`.
        """
        from orch23.attempt.formatting import same_when_formatted  # noqa: PLC0415 - few stages have formatters

        resolved, found = decided.resolved, list[Record]()
        self._store_inputs(resolved)
        for record, there in decided.maybe_formatted:
            self._store_outputs(record.outputs)
            self._store_outputs(there)
            same = same_when_formatted(resolved, self._attempts(resolved).runner, record, there)
            found += [] if same is None else [same]
        return tuple(found)

    def _adopt(
        self, resolved: ResolvedStage, recorded: Record, adopted: Collection[str], attempts: AttemptLoop
    ) -> StageResult:
        """Verify a result with the user's committed edits, and accept it. The files stay in any case."""
        texts = {p: self.opened.state.read(p, recorded.outputs[p]).decode("utf-8", "replace") for p in adopted}
        secret = guard_edit(self.safeguards.secrets, texts)
        failure = failure_of("preflight", secret, retryable=False) if secret else None
        failure = failure or attempts.verify_recorded(recorded.outputs, recorded.deleted)
        made = {path: entry for path, entry in recorded.made.items() if path not in adopted}
        done = replace(_verified(recorded), exchanges=(), made=made)
        if failure is not None:
            note = f"the edit of {', '.join(adopted)} does not pass"
            return replace(done, failure=failure, note=note, outputs={})
        fingerprint = record_edit(self.opened, resolved, recorded.outputs)
        return replace(done, exchanges=(fingerprint,), accepted=tuple(adopted))

    def _verify_claim(self, resolved: ResolvedStage, claim: Record) -> StageResult:
        """Verify a model's result that only the lock file has. If it fails, no model is called.

        Where the recorded version of a file is lost, its newest one is used.
        """
        files = {one: self._newest(getattr(resolved, one)) for one in ("files", "verify_files")}
        resolved = replace(resolved, base=self._newest(resolved.base), **files)
        failure = self.verify(resolved, self._newest(claim.outputs), claim.deleted)
        if failure is None:
            return _holds(claim)
        hint = f"no model was called: `--resample {resolved.stage.name}` requests a new result"
        problems = (*failure.diagnostics, Diagnostic("E696", _UNVERIFIED, hint=hint))
        failure = replace(failure, diagnostics=problems)
        return replace(_holds(claim), failure=failure, note=_UNVERIFIED, outputs={}, claim=None)

    def _run_claim(self, claim: Record, attempts: AttemptLoop) -> StageResult:
        """Run a step whose result only the lock file has: the new result counts.

        Outputs that the user edited and accepted stay as they are.
        """
        ran = attempts.run()
        if attempts.resolved.stage.edits:
            base = attempts.resolved.base
            # What it was given as in the claim, and left so, is as in the claim.
            kept = {p: e for p, e in base.items() if claim.outputs.get(p) == e and p not in ran.deleted}
            gone = {path for path in claim.deleted if path not in base and path not in ran.outputs}
            ran = replace(ran, outputs={**kept, **ran.outputs}, deleted=tuple(sorted({*ran.deleted, *gone})))
        changed = {path for path in {*ran.outputs, *claim.outputs} if ran.outputs.get(path) != claim.outputs.get(path)}
        # The exit code of a command is its only proof (ADR 21), so it runs again and its new outputs count.
        if ran.failure is not None or ran.deleted != claim.deleted or not changed <= set(claim.accepted):
            return ran
        self._store_outputs({path: claim.outputs[path] for path in changed})
        return replace(_holds(claim), usage=ran.usage, took_s=ran.took_s)

    def _newest(self, files: Files) -> Files:
        # If an earlier version of a chain is lost, the newest one is verified instead (ADR 21).
        state, on_disk = self.opened.state, self.opened.state.store.workspace.entry
        return {path: one if state.has_bytes(path, one) else on_disk(path) or one for path, one in files.items()}

    def _with_base(self, resolved: ResolvedStage) -> ResolvedStage:
        """Return a stage with a recorded result, compared with its newest files if the bytes of its base are lost.

        Then nothing must fail there. Only ids that the pipeline names may fail: what failed before is not known.
        """
        stage, base, verify = resolved.stage, resolved.base, resolved.stage.verify
        is_compared = verify.fails_on_base or verify.may_fail
        if not is_compared or not (lost := sorted(base.keys() - self._readable(base).keys())):
            return resolved
        text = f"the former bytes of {join_first(lost, _MOST_LOST)} are lost: the result is not compared with its base"
        self.reporter.of_stage(stage.name).emit(Warned(), text, "warning")
        verify = replace(verify, fails_on_base=(), may_fail=verify.named_failures)
        return replace(resolved, base=self._newest(base), stage=replace(stage, verify=verify))

    def _store_inputs(self, resolved: ResolvedStage, unneeded: Collection[str] = ()) -> None:
        """Copy every input into the store and hash it on the way, so that the stage gets exactly the bytes of its key.

        `unneeded` are paths whose base is not needed: a result that has other bytes there is verified.
        """
        # All attempts read from the store, so an edit during the run cannot mix two versions (ADR 4).
        for data in resolved.composed:
            self.opened.store.contents.put(data)
        unneeded = () if resolved.stage.verify.fails_on_base else unneeded
        base = {path: entry for path, entry in resolved.base.items() if path not in unneeded}
        inputs = {**resolved.unkeyed, **resolved.verify_files, **resolved.files, **base}
        view = StageTree(self.opened.state, resolved.stage.name)
        absent = {*self.opened.store.contents.absent([entry.digest for entry in inputs.values()])}
        new = [(path, entry) for path, entry in inputs.items() if entry.digest in absent]
        changed = tuple(path for path, entry in new if not self._store_input(view, path, entry))
        if changed:
            raise InputsChangedError(*changed)

    def _store_input(self, view: StageTree, path: str, entry: FileEntry) -> bool:
        """Copy an input into the store; return False if it changed since the stage was resolved."""
        store, place = self.opened.store, entry.link or path
        if store.contents.has(entry.digest):
            return True
        if store.workspace.entry(place) == replace(entry, link=""):
            return store.add_file(place) == entry.digest
        try:
            store.contents.put(view.read(path, entry))
        except MissingBytesError:
            if view.input_of(path) == entry:  # a stage made it, and no copy is left
                raise
            return False  # the user saved another version meanwhile: nothing is lost
        return True

    def _store_outputs(self, outputs: Files) -> None:
        """Store the bytes of outputs: sandbox directories are filled from the store alone."""
        store, state = self.opened.store, self.opened.state
        for path, entry in outputs.items():
            if not store.contents.has(entry.digest):
                store.contents.put(state.read(path, entry))

    def verify(self, resolved: ResolvedStage, outputs: Files, deleted: tuple[str, ...] = ()) -> Failure | None:
        """Verify some outputs of a stage as they are, and without the deleted files; return the failure, or None.

        Raises:
            InputsChangedError: a source input changed since it was resolved; nothing was started.
            MissingBytesError: the bytes of an input or output are lost.
        """
        resolved = self._with_base(resolved)
        self._store_inputs(resolved, outputs)
        self._store_outputs(outputs)
        return self._attempts(resolved).verify_recorded(outputs, deleted)

    def _attempts(self, resolved: ResolvedStage, history: AttemptHistory | None = None) -> AttemptLoop:
        stage, opened = resolved.stage, self.opened
        tree = StageTree(opened.state, stage.name)
        report, former = self.reporter.of_stage(stage.name), opened.state.former.get(stage.name)
        runner = ProcessRunner(
            stage=stage,
            facts=resolved.facts,
            executor=self.executor_of(stage),
            contents=opened.store.contents,
            tree=tree,
            redact=self.safeguards.secrets.redact,
            trust=partial(_trust, opened.state, resolved, opened.state.plan),
            report=report,
            project=partial(self._project_facts, stage),
            trace=self.traces.setdefault(stage.name, StageTrace(former.tests if former else {})),
            begin=partial(self.safeguards.begin_attempt, stage.name),
        )
        # A check may compare a result with the last accepted one, as `architecture_stability` does.
        previous = opened.lock.records.get(stage.name)
        verifier = Verifier(
            resolved=resolved,
            runner=runner,
            trial=lambda files: self._trial(stage, files),
            unnamed=partial(self._unnamed, stage.name),
            previous=self._readable(previous.outputs) if previous else {},
            plugins=opened.pipeline.plugins,
            warned=self.warned_checks,
            base_runs=self.base_runs,
        )
        return AttemptLoop(
            resolved=resolved,
            runner=runner,
            verifier=verifier,
            models=self.models,
            safeguards=self.safeguards,
            report=report,
            history=history or AttemptHistory(),
            shown=self._shown(resolved, tree) if is_llm(stage.step) else Shown(),
        )

    def _unnamed(self, name: str) -> Iterator[Diagnostic]:
        """Yield an error for each module that tests of a stage, or of one that reads its files, import in vain.

        The tests fail before they run if a model supplies it, and without it, so no model needs to be called.
        """
        state, plan = self.opened.state, self.opened.state.plan
        selected = plan.nodes if self.selection.selects_all else self.selection.nodes(plan)
        for one in (name, *plan.downstream.get(name, ())):
            stage = plan.nodes.get(one)
            if isinstance(stage, Stage) and stage.runs_pytest and one in selected:
                # Thousands of items may have one stage that tests them.
                if one not in self.tested:
                    from orch23.attempt.supplied_modules import planned_errors  # noqa: PLC0415 - only for such stages

                    with contextlib.suppress(ConfigurationError):  # a stage before it may make its interpreter
                        where = find_interpreter(stage.python, state.store.root, self.safeguards.network.environ)
                        self.tested[one] = tuple(planned_errors(state, stage, where))
                yield from self.tested.get(one, ())

    def _project_facts(self, stage: Stage) -> "ProjectFacts":
        from orch23.attempt.likely_cause import ProjectFacts  # noqa: PLC0415 - only for failures

        plan = self.opened.state.plan

        def may_read(name: str, path: str) -> bool:
            # As an input, what this stage or a later one makes would be a cycle.
            makers = WriterIndex(plan.all_nodes).writers_of(path)
            # A part of the plan has all stages that follow this one.
            later = any(name in Selection(targets=(maker,)).nodes(plan) for maker in makers if maker in plan.nodes)
            return not later and not ObsoleteFiles(self.opened.state).is_obsolete(path)

        def is_made(pattern: str) -> bool:
            # Declared, or below a declared folder and made: not yet in the workspace, where it is promoted later.
            made = (path for record in [*self.opened.state.results.values()] for path in record.outputs)
            written = (path for one in plan.nodes.values() if isinstance(one, Stage) for path in one.literal_outputs)
            return any(match(pattern, path) for path in chain(map(normalize_pattern, written), made))

        return ProjectFacts(
            root=self.opened.store.root,
            environ=self.safeguards.network.environ,
            is_isolated=partial(self.is_isolated, stage),
            may_read=may_read,
            is_made=is_made,
        )

    def _readable(self, files: Files) -> dict[str, FileEntry]:
        return {path: entry for path, entry in files.items() if self.opened.state.has_bytes(path, entry)}

    def _shown(self, resolved: ResolvedStage, tree: StageTree) -> Shown:
        from orch23.resolve.prompt_inputs import PromptInput  # noqa: PLC0415 - only for stages with a prompt

        state, name = self.opened.state, resolved.stage.name
        previous, last = self.opened.lock.records.get(name), state.former.get(name)
        own = tuple(
            PromptInput(path, "", entry.digest.sha256, partial(_text_of, tree, path, entry))
            for path, entry in sorted(self._readable(previous.outputs if previous else {}).items())
        )
        is_kept = last is not None and all(state.on_disk(path) == entry for path, entry in last.outputs.items())
        kept = (last.outputs, last.exchanges) if last is not None and is_kept else ({}, ())
        return Shown(own, self._hidden(resolved), kept)

    def _hidden(self, resolved: ResolvedStage) -> frozenset[str]:
        """Return the files in the write scope that the prompt does not show: a model may not overwrite them."""
        state, stage = self.opened.state, resolved.stage
        view, obsolete = StageTree(state, stage.name), ObsoleteFiles(state)
        former = state.former.get(stage.name)
        # The stage may replace the outputs of its own last result without seeing them.
        known = {*resolved.base, *resolved.files, *(former.outputs if former else ())}
        globs = filter(is_glob, writes_of(stage))
        found = frozenset[str]().union(*map(state.store.workspace.writable_files, globs))
        others = (path for path in found - known if not obsolete.is_obsolete(path))
        return frozenset(path for path in others if not view.made_by_chain(path))

    def _trial(self, stage: Stage, files: Files) -> tuple[Diagnostic, ...]:
        """Expand every foreach over one of these files, without changing the plan; return the errors of its items."""
        state, decider = self.opened.state, self.opened.decider
        if not state.plan.unexpanded:
            return ()
        from orch23.decide.list_expansion import expand_each  # noqa: PLC0415 - few edits have a list

        def read(plan: Plan, node: ForeachStage, source: str) -> bytes | None:
            # With a second producer the final list is not known yet.
            if source not in files or any(up != stage.name for up in list_producers(plan, node)):
                return None
            return state.read(source, files[source])

        problems: list[Diagnostic] = []
        for one in expand_each(state.plan, read, decider.read_yaml, decider.former_items):
            decider.keep_items(one.node, one.items)
            problems += one.problems
            problems += self._item_inputs(one.plan, one.items, stage.name, files) if one.items else ()
        return tuple(problems)

    def _item_inputs(self, plan: Plan, items: tuple[Stage, ...], maker: str, files: Files) -> list[Diagnostic]:
        """Return errors of items: inputs that do not exist and no stage makes, and missing slices.

        A slice is searched in the files of the list's maker and in those that the maker sees; files that other stages
        make later are not known yet.
        """
        earlier = self.opened.decider.earlier
        known = frozenset[str]() if earlier is None else earlier.untouched(plan)
        missing = [
            error
            for error in missing_input_errors(plan, self.opened.store, known)
            if any(f"`{stage.name}`" in error.message for stage in items)
        ]
        ended = Selection(targets=(maker,)).nodes(plan)
        writers = [pattern for name, node in plan.nodes.items() if name not in ended for pattern in writes_of(node)]
        slices = [
            (stage.name, one)
            for stage in items
            for one in (*stage.inputs, *stage.verify.inputs)
            if isinstance(one, SliceInput) and not any(may_overlap(pattern, one.path) for pattern in writers)
        ]
        errors = (self._slice_error(name, one, self._known(maker, one.path, files)) for name, one in slices)
        return [*missing, *filter(None, errors)]

    def _slice_error(self, stage: str, one: SliceInput, data: bytes | None) -> Diagnostic | None:
        """Return the error of a slice that is not in a file; the file itself may be missing."""
        if data is None:
            return None
        from orch23.resolve.slices import take_slice  # noqa: PLC0415 - few items have slices
        from orch23.resolve.text_slices import SliceError  # noqa: PLC0415 - as above

        try:
            take_slice(data.decode("utf-8", "replace"), one.path, one.selector, self.opened.decider.read_yaml)
        except SliceError as error:
            return Diagnostic("E833", f"`{one.path}#{one.selector}`: {error}", hint=error.hint, subject=stage)
        return None

    def _known(self, maker: str, path: str, files: Files) -> bytes | None:
        """Return the bytes at a path once a stage has made these files; None if there are none or they are lost."""
        entry = files.get(path) or StageTree(self.opened.state, maker).version(path)
        try:
            return None if entry is None else self.opened.state.read(path, entry)
        except MissingBytesError:
            return None


def _trust(state: ProjectState, resolved: ResolvedStage, plan: Plan) -> "TestTrust":
    from orch23.attempt.pytest_trust import TestTrust  # noqa: PLC0415 - for steps of pytest, and failures

    return TestTrust(state, resolved, plan)


def _text_of(tree: StageTree, path: str, entry: FileEntry) -> str:
    return tree.read(path, entry).decode("utf-8", errors="replace")


def _verified(record: Record) -> StageResult:
    """Return the result of a stage whose recorded result passed."""
    return StageResult(
        outputs=record.outputs,
        deleted=record.deleted,
        exchanges=record.exchanges,
        attempts=0,
        made=record.made,
        verified=True,
    )


def _holds(claim: Record) -> StageResult:
    """Return the result of a stage whose record in the lock file passed: the record is kept as it is."""
    return replace(_verified(claim), accepted=claim.accepted, claim=claim)
