"""Do one stage's work in a worker thread: verify what is recorded, or go through the attempts."""

from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from orch23.checks.registry import checks_of
from orch23.engine.attempt import Attempted, Attempts, Models, Safeguards, Shown
from orch23.engine.expansion import expand_each, source_producers
from orch23.engine.failure import Failure, refusal
from orch23.engine.guarding import guard_edit
from orch23.engine.reporting import Reporter
from orch23.engine.running import Files, Runner
from orch23.engine.session import Session
from orch23.engine.trust import Trust
from orch23.engine.user_edits import keep_edit
from orch23.engine.verification import Verifier
from orch23.engine.world import StageTree
from orch23.model.decision import VerifyOnly
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.paths import is_glob, meets
from orch23.model.pipeline import ForeachStage, SliceInput, Stage
from orch23.model.plan import Plan
from orch23.model.ports import Executor
from orch23.model.record import Record
from orch23.plan.inputs import literal_reads, missing_inputs
from orch23.plan.select import Selection
from orch23.plan.writers import writes_of
from orch23.resolve.prompts import GivenInput
from orch23.resolve.resolution import Resolved
from orch23.resolve.slices import SliceError, take
from orch23.steps.registry import is_llm

_UNVERIFIED = "the result in the lock file does not pass"


class InputsChangedError(Exception):
    """Inputs changed between being resolved and being taken into the store."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        """Keep the paths."""
        super().__init__(", ".join(paths))
        self.paths = paths


class Worker(Struct, frozen=True, kw_only=True):
    """Makes and runs the attempts of stages. Called from many threads; reads the world, never changes it."""

    session: Session
    executor: Executor
    models: Models
    safeguards: Safeguards
    reporter: Reporter

    def work(self, resolved: Resolved, verify: VerifyOnly | None) -> Attempted:
        """Return how the stage ended. A recorded result is verified first; a failure briefs the first attempt.

        If it has edits of a user, or is a claim of the lock file, the stage ends with that failure.

        Raises:
            CancelledBuildError: the build was asked to stop.
            InputsChangedError: a source input changed since it was resolved; nothing was started.
            MissingBytesError: nobody has the bytes of an input any more.
            ProviderError, LimitError, ConfigurationError: what stops more than this stage.

        """
        if verify is not None and verify.claim and is_llm(resolved.stage.step):
            return self._verify_claim(self._with_newest(resolved), verify.record)
        attempts = self._attempts(resolved)
        forbidden = attempts.forbidden()
        if forbidden is not None:
            return forbidden
        self._take_in(resolved, verify.record.outputs if verify is not None and verify.adopted else {})
        if verify is None:
            return attempts.run()
        recorded = verify.record
        if verify.claim:
            return self._run_claim(recorded, attempts)
        self._hold(recorded.outputs)
        if verify.adopted:
            return self._adopt(resolved, recorded, verify.adopted, attempts)
        failure = attempts.verify_recorded(recorded.outputs, recorded.deleted)
        if failure is None:
            return _verified(recorded)
        base = {path: e for path, e in resolved.base.items() if path not in recorded.deleted}
        return attempts.run(({**base, **recorded.outputs}, failure), recorded.outputs)

    def _adopt(self, resolved: Resolved, recorded: Record, adopted: Collection[str], attempts: Attempts) -> Attempted:
        """Verify a result with a user's committed edits, and keep it as accepted. The files stay either way."""
        texts = {p: self.session.world.read(p, recorded.outputs[p]).decode("utf-8", "replace") for p in adopted}
        secret = guard_edit(self.safeguards.secrets, texts)
        failure = refusal("preflight", secret, retryable=False) if secret else None
        failure = failure or attempts.verify_recorded(recorded.outputs, recorded.deleted)
        done = Attempted(outputs=recorded.outputs, deleted=recorded.deleted, exchanges=(), attempts=0, verified=True)
        if failure is not None:
            note = f"the edit of {', '.join(adopted)} does not pass"
            return replace(done, failure=failure, note=note, outputs={})
        fingerprint = keep_edit(self.session, resolved, recorded.outputs)
        return replace(done, exchanges=(fingerprint,), accepted=tuple(adopted))

    def _verify_claim(self, resolved: Resolved, claim: Record) -> Attempted:
        """Verify what a model wrote, by the lock file alone, as it is; nothing is asked if it does not pass."""
        outputs = self._newest(claim.outputs)
        self._take_in(resolved, outputs)
        self._hold(outputs)
        failure = self._attempts(resolved).verify_recorded(outputs, claim.deleted)
        if failure is None:
            return _holds(claim)
        hint = f"no model was asked: `--resample {resolved.stage.name}` asks for a new result"
        problems = (*failure.diagnostics, Diagnostic("E696", _UNVERIFIED, hint=hint))
        failure = replace(failure, diagnostics=problems)
        return replace(_holds(claim), failure=failure, note=_UNVERIFIED, outputs={}, claim=None)

    def _run_claim(self, claim: Record, attempts: Attempts) -> Attempted:
        """Run a step of which only the lock file has a result: what comes of it now is the result.

        Bytes that a user wrote, and that were accepted then, stay.
        """
        ran = attempts.run()
        changed = {path for path in {*ran.outputs, *claim.outputs} if ran.outputs.get(path) != claim.outputs.get(path)}
        if ran.failure is not None or ran.deleted != claim.deleted or not changed <= set(claim.accepted):
            return ran
        self._hold({path: claim.outputs[path] for path in changed})
        return replace(_holds(claim), spent=ran.spent, took_s=ran.took_s)

    def _with_newest(self, resolved: Resolved) -> Resolved:
        """Return a stage with the newest versions of files of which nobody has those that it started from."""
        return replace(
            resolved,
            files=self._newest(resolved.files),
            verify_files=self._newest(resolved.verify_files),
            base=self._newest(resolved.base),
        )

    def _newest(self, files: Files) -> Files:
        world = self.session.world
        found = {}
        for path, entry in files.items():
            newest = None if world.has_bytes(path, entry) else world.store.workspace.entry(path)
            found[path] = newest or entry
        return found

    def _take_in(self, resolved: Resolved, unneeded: Collection[str] = ()) -> None:
        """Copy every input into the store, hashed on the way: the stage is given what its key says, or nothing.

        `unneeded` are paths of the base that nothing starts from, since only a result that has them is verified.
        """
        store, world = self.session.store, self.session.world
        for data in resolved.composed:
            store.contents.put(data)
        changed = []
        base = {path: entry for path, entry in resolved.base.items() if path not in unneeded}
        for path, entry in {**resolved.unkeyed, **resolved.verify_files, **resolved.files, **base}.items():
            if store.contents.has(entry.digest):
                continue
            place = entry.link or path
            if store.workspace.entry(place) != replace(entry, link=""):
                try:
                    store.contents.put(world.read(path, entry))
                except MissingBytesError:
                    if world.look(resolved.stage.name, path) == entry:  # made by a stage, and nowhere any more
                        raise
                    changed.append(path)  # saved since it was resolved: nothing is lost
            elif store.take_in(place) != entry.digest:
                changed.append(path)
        if changed:
            raise InputsChangedError(tuple(changed))

    def _hold(self, outputs: Files) -> None:
        """Keep the bytes of outputs where rooms are laid from: they may be in the workspace, in git, or made again."""
        store, world = self.session.store, self.session.world
        for path, entry in outputs.items():
            if not store.contents.has(entry.digest):
                store.contents.put(world.read(path, entry))

    def verify(self, resolved: Resolved, outputs: Files) -> Failure | None:
        """Verify some outputs of a stage as they are; return what is wrong, or None.

        Raises:
            InputsChangedError: a source input changed since it was resolved; nothing was started.
            MissingBytesError: nobody has the bytes of an input or of an output any more.

        """
        self._take_in(resolved, outputs)
        self._hold(outputs)
        return self._attempts(resolved).verify_recorded(outputs, ())

    def _attempts(self, resolved: Resolved) -> Attempts:
        stage, session = resolved.stage, self.session
        tree = StageTree(session.world, stage.name)
        report = self.reporter.of_stage(stage.name)
        runner = Runner(
            stage=stage,
            facts=resolved.facts,
            executor=self.executor,
            contents=session.store.contents,
            tree=tree,
            redact=self.safeguards.secrets.redact,
            trust=Trust(session.world, resolved, session.world.plan),
            live=report.live,
        )
        previous = session.lock.records.get(stage.name)
        verifier = Verifier(
            resolved=resolved,
            runner=runner,
            trial=lambda files: self._trial(stage, files),
            report=report,
            previous=self._readable(previous.outputs) if previous else {},
            checks=checks_of(session.pipeline.plugins),
        )
        return Attempts(
            resolved=resolved,
            runner=runner,
            verifier=verifier,
            models=self.models,
            safeguards=self.safeguards,
            report=report,
            shown=Shown(self._own(previous, tree), self._hidden(resolved)),
        )

    def _readable(self, files: Files) -> dict[str, FileEntry]:
        return {path: entry for path, entry in files.items() if self.session.world.has_bytes(path, entry)}

    def _own(self, previous: Record | None, tree: StageTree) -> tuple[GivenInput, ...]:
        """Return the stage's last accepted result, for prompts that show it."""
        if previous is None:
            return ()
        return tuple(
            GivenInput(path, "", entry.digest.sha256, _text_of(tree, path, entry))
            for path, entry in sorted(self._readable(previous.outputs).items())
        )

    def _hidden(self, resolved: Resolved) -> frozenset[str]:
        """Return the files inside the fence that exist and that the model is not shown: it may not write over them."""
        world, stage = self.session.world, resolved.stage
        former = world.former.get(stage.name)
        mine = set(former.outputs) if former else set()
        shown = set(resolved.base) | set(resolved.files)
        patterns = list(writes_of(stage))
        found = {p for pattern in patterns if is_glob(pattern) for p in world.store.workspace.everything(pattern)}
        return frozenset(
            path for path in found - shown - mine if not world.dead(path) and not world.made_by_chain(stage, path)
        )

    def _trial(self, stage: Stage, files: Files) -> tuple[Diagnostic, ...]:
        """Expand, on trial, every foreach that runs over one of these files; return what is wrong with its items."""
        world = self.session.world

        def text_of(plan: Plan, node: ForeachStage) -> str | None:
            source = node.foreach.source
            if source is None or source not in files or any(up != stage.name for up in source_producers(plan, node)):
                return None
            return world.read(source, files[source]).decode("utf-8", "replace")

        problems: list[Diagnostic] = []
        for one in expand_each(world.plan, text_of, self.session.appraiser.read_yaml):
            problems += one.problems
            problems += self._item_inputs(one.plan, one.items, stage.name, files) if one.items else ()
        return tuple(problems)

    def _item_inputs(self, plan: Plan, items: tuple[Stage, ...], maker: str, files: Files) -> list[Diagnostic]:
        """Complain of inputs of items that nobody makes, and of slices that are not there.

        A slice is looked for in the files of the list's maker and in what the maker sees of others, on the disk yet or
        not; what others make later is not known yet.
        """
        workspace = self.session.store.workspace
        exists = {path: workspace.found(path) is not None for path in literal_reads(plan)}
        names = {stage.name for stage in items}
        missing = [
            d
            for d in missing_inputs(plan, exists, workspace.is_folder)
            if any(f"`{name}`" in d.message for name in names)
        ]
        ended = Selection(targets=(maker,)).nodes(plan)
        writers = [pattern for name, node in plan.nodes.items() if name not in ended for pattern in writes_of(node)]
        for stage in items:
            for one in (*stage.inputs, *stage.verify.inputs):
                if not isinstance(one, SliceInput) or any(meets(pattern, one.path) for pattern in writers):
                    continue
                data = self._known(maker, one.path, files)
                if data is None:
                    continue
                try:
                    take(data.decode("utf-8", "replace"), one.path, one.selector, self.session.appraiser.read_yaml)
                except SliceError as error:
                    text = f"`{one.path}#{one.selector}`: {error}"
                    missing.append(Diagnostic("E833", text, hint=error.hint, subject=stage.name))
        return missing

    def _known(self, maker: str, path: str, files: Files) -> bytes | None:
        """Return what is at a path once a stage has made these files; None where nothing is, or nobody has it."""
        entry = files.get(path) or self.session.world.view(maker, path)
        try:
            return None if entry is None else self.session.world.read(path, entry)
        except MissingBytesError:
            return None


def _text_of(tree: StageTree, path: str, entry: FileEntry) -> Callable[[], str]:
    return lambda: tree.read(path, entry).decode("utf-8", errors="replace")


def _verified(record: Record) -> Attempted:
    """Return how a stage ended of which a recorded result passed."""
    return Attempted(
        outputs=record.outputs, deleted=record.deleted, exchanges=record.exchanges, attempts=0, verified=True
    )


def _holds(claim: Record) -> Attempted:
    """Return how a stage ended of which the result in the lock file passed: that is kept as it is."""
    return replace(_verified(claim), accepted=claim.accepted, claim=claim)
