"""The attempt loop of one stage: run, judge, verify, brief, and again, as often as `retry` allows.

Runs in a worker thread. Writes bytes into the store and exchanges through the conversation; changes no state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.secrets import Secrets
from orch23.engine.conversation import RecordedConversation
from orch23.engine.failure import Failure, fit, likeness, refusal
from orch23.engine.guarding import guard_manifest
from orch23.engine.live import Live
from orch23.engine.outside import Outside
from orch23.engine.running import Files, Runner
from orch23.engine.spending import NOTHING, Spent
from orch23.engine.telling import Keep
from orch23.engine.turn import Pass, Turn
from orch23.engine.verification import Notice, Verifier
from orch23.model.consent import Grant
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.event import AttemptFinished, AttemptStarted, Event, EventData
from orch23.model.paths import is_glob
from orch23.model.pipeline import Condition
from orch23.model.plugins import load_as
from orch23.model.ports import ContentStore
from orch23.model.record import Record
from orch23.model.step import Step
from orch23.resolve.commands import short_command
from orch23.resolve.prompts import GivenInput, Sources
from orch23.resolve.resolution import Resolved
from orch23.resolve.tree import Tree

Converse: TypeAlias = Callable[[Resolved, int, set[str]], RecordedConversation]
"""Open the conversation of a stage's attempt; all of them share the fingerprints that were asked."""

Validate: TypeAlias = Callable[[str, Json], tuple[Diagnostic, ...]]
"""Judge a value by the schema file at a path."""


class Attempted(Struct, frozen=True, kw_only=True):
    """How a stage ended. `failure` is None where it passed; `outputs` are its result, or the last attempt's.

    `took_s` is what the process of the last attempt took. `accepted` are outputs that a user wrote. `partial` says that
    its program failed, so that what it did not write may only not have been written yet. `claim` is the record of the
    lock file that was found to hold: it is kept as it is.
    """

    outputs: Files
    deleted: tuple[str, ...]
    exchanges: tuple[str, ...]
    attempts: int
    spent: Spent = NOTHING
    failure: Failure | None = None
    note: str = ""
    took_s: float = 0.0
    accepted: tuple[str, ...] = ()
    partial: bool = False
    claim: Record | None = None


class Attempts(Struct, kw_only=True):
    """One stage's way through its attempts."""

    resolved: Resolved
    tree: Tree
    runner: Runner
    verifier: Verifier
    contents: ContentStore
    converse: Converse
    sources: Sources
    validate: Validate
    variables: Mapping[str, Json]
    notice: Notice
    keep: Keep
    pace: Callable[[str], None]
    live: Live
    outside: Outside
    own: tuple[GivenInput, ...] = ()
    hidden: frozenset[str] = frozenset()
    protected: tuple[str, ...] = ()
    secrets: Secrets = field(default_factory=Secrets)
    asked: set[str] = field(default_factory=set)
    spent: Spent = NOTHING

    def run(self, start: tuple[Files, Failure] | None = None, written: Iterable[str] = ()) -> Attempted:
        """Go through the attempts. `start` is a recorded result that a changed verification failed, with its brief.

        `written` are the paths of it that the stage wrote.
        """
        stage, retry = self.resolved.stage, self.resolved.stage.retry
        if self.resolved.broken:
            return self._done(Pass({}, ()), 0, refusal("preflight", self.resolved.broken, retryable=False))
        unmet = self._requirements()
        if unmet:
            return self._done(Pass({}, ()), 0, refusal("preflight", unmet, retryable=False))
        base = self.resolved.base
        failure = fit(start[1], stage) if start else None
        last = Pass(start[0] if start else base, (), answer=None, written=frozenset(written))
        seen: set[str] = set()
        same: list[dict[str, Json]] = []
        for attempt in range(1, retry.max + 2):
            self.pace(stage.name)
            self._begin(attempt)
            from_tree = last.tree if failure is not None and retry.start_from == "current" else base
            laid = last.exchanges if retry.start_from == "current" else ()
            earlier: frozenset[str] = last.written if retry.start_from == "current" else frozenset()
            turn = Turn(attempt=attempt, start=from_tree, laid=laid, failure=failure, previous=last.answer)
            last = run_of(stage.step).attempt(self, stage.step, turn)
            last = replace(last, written=(earlier | last.written) & last.tree.keys())
            failure = last.failure or self.verifier.verify(self._owned(last), last.tree, attempt)
            failure = fit(failure, stage) if failure else None
            self._end(attempt, failure)
            if failure is None:
                return self._done(last, attempt, None)
            same = [*same, likeness(failure)]
            if stop := self._stop(failure, same, last.proposal in seen and last.proposal is not None):
                return self._done(last, attempt, failure, stop)
            seen |= {last.proposal} if last.proposal else set()
        return self._done(last, retry.max + 1, failure, "retries exhausted" if retry.max else "")

    def forbidden(self) -> Attempted | None:
        """Return how a stage ends before any of its inputs is taken into the store: what of it would leave a secret.

        Every request is looked at again before it is sent, with what the attempts before have added.
        """
        problems, step = guard_manifest(self.secrets, self.resolved), self.resolved.stage.step
        if not problems and not self.resolved.broken:
            problems = run_of(step).forbidden(self, step)
        return self._done(Pass({}, ()), 0, refusal("preflight", problems, retryable=False)) if problems else None

    def verify_recorded(self, outputs: Files, deleted: tuple[str, ...]) -> Failure | None:
        """Verify a recorded result as it is, for a verification that changed; what is broken can verify nothing."""
        if self.resolved.broken:
            return refusal("preflight", self.resolved.broken, retryable=False)
        return self.verifier.verify(outputs, recorded_tree(self.resolved, outputs, deleted))

    def _stop(self, failure: Failure, same: list[dict[str, Json]], repeated: bool) -> str:  # noqa: FBT001 - a fact
        """Return why there is no further attempt, or an empty string."""
        retry = self.resolved.stage.retry
        if not failure.retryable:
            return "not retryable"
        if failure.kind not in retry.when:
            return f"{failure.kind} is not in retry.when" if retry.max else ""
        limit = retry.no_progress
        if limit and repeated:
            return "no progress: this proposal was made before"
        if limit and len(same) >= limit and all(one == same[-1] for one in same[-limit:]):
            return f"no progress: the same failure {limit} times in a row"
        return ""

    # ---- values ---------------------------------------------------------------------------

    def _owned(self, last: Pass, tree: Files | None = None) -> Files:
        """Return what a tree has of this stage's own: what differs from the base or was written as it is there already.

        Literal outputs are its own in any case: a program leaves no trace where it writes the same bytes.
        """
        stage, base = self.resolved.stage, self.resolved.base
        certain = {path for path in stage.outputs if not is_glob(path)} | last.written
        whole = last.tree if tree is None else tree
        return {path: entry for path, entry in sorted(whole.items()) if base.get(path) != entry or path in certain}

    def _requirements(self) -> tuple[Diagnostic, ...]:
        manifest = self.resolved.manifest
        required = self.resolved.stage.requires
        unmet = [c for c in required if manifest.get(f"requires:{c.kind}:{c.path}") is not True]
        return tuple(_unmet(c, is_folder=bool(self.tree.matching(f"{c.path.rstrip('/')}/**"))) for c in unmet)

    def _done(self, last: Pass, attempts: int, failure: Failure | None, note: str = "") -> Attempted:
        tree = last.tree if failure is None or last.left is None else last.left
        return Attempted(
            outputs=self._owned(last, tree),
            deleted=tuple(sorted(path for path in self.resolved.base if path not in tree)),
            exchanges=last.exchanges,
            attempts=attempts,
            spent=self.spent,
            failure=failure,
            note=note,
            took_s=last.took_s,
            partial=tree is last.left,
        )

    # ---- telling --------------------------------------------------------------------------

    def _begin(self, attempt: int) -> None:
        retry = self.resolved.stage.retry
        data = AttemptStarted(attempt=attempt, max_attempts=retry.max + 1, key=self.resolved.key)
        self.tell(data, f"attempt {attempt} of {retry.max + 1}")

    def _end(self, attempt: int, failure: Failure | None) -> None:
        brief = failure.brief if failure else None
        if failure is not None:
            command = f"$ {short_command(failure.brief.command)}\n" if failure.brief.command else ""
            text = f"{failure.summary}\n{command}\n{failure.brief.excerpt}\n"
            self.keep(self.resolved.stage.name, attempt, "failure.txt", text)
        data = AttemptFinished(
            attempt=attempt,
            passed=brief is None,
            failure_kind=brief.kind if brief else "",
            command=brief.command if brief else "",
            exit_code=brief.exit_code if brief else 0,
            failing=tuple(brief.failing) if brief else (),
            excerpt=brief.excerpt if brief else "",
        )
        self.tell(data, f"attempt {attempt} {'failed: ' + failure.summary if failure else 'passed'}")

    def tell(self, data: EventData, message: str) -> None:
        """Tell an event of the stage."""
        self.notice(Event(data, message, self.resolved.stage.name))


class Needs(Struct, frozen=True):
    """What a step would need of the user if it ran now.

    `grants` are what the user has to consent to; `barred` is the complaint where nothing beyond this machine may be
    reached, if it would reach that.
    """

    grants: tuple[Grant, ...] = ()
    barred: Diagnostic | None = None


NEEDS_NOTHING = Needs()


class Run:
    """How a kind of step runs. One value serves all stages, in several threads at once."""

    def needs(self, step: Any, contents: ContentStore) -> Needs:
        """Return what a step that has `grants` needs, looked up before the first stage starts."""
        del step, contents
        return NEEDS_NOTHING

    def attempt(self, attempts: Attempts, step: Any, turn: Turn) -> Pass:
        """Run a step once.

        Raises:
            CancelledBuildError: the build was asked to stop.
            MissingBytesError: the store lost the bytes of an input.
            ConfigurationError: it could not be started at all.
            ProviderError: whoever was asked cannot answer.

        """
        raise NotImplementedError

    def forbidden(self, attempts: Attempts, step: Any) -> tuple[Diagnostic, ...]:
        """Return what of a step may not leave this machine, before anything of the stage is stored."""
        del attempts, step
        return ()


def run_of(step: Step) -> Run:
    """Return how a step runs."""
    return load_as(Run, step.run)


def recorded_tree(resolved: Resolved, outputs: Files, deleted: tuple[str, ...]) -> Files:
    """Return the stage's own files as a record leaves them: the base, less what it deleted, under its outputs."""
    return {**{path: e for path, e in resolved.base.items() if path not in deleted}, **outputs}


def _unmet(condition: Condition, *, is_folder: bool) -> Diagnostic:
    """Complain of what a stage requires; `is_folder` says that there are files below its path."""
    absent, folder = condition.kind == "file_absent", condition.path.endswith("/")
    state = (
        ("there is a file" if absent else "there is no file") if folder else f"it is {'' if absent else 'not '}there"
    )
    message = f"requires {condition.kind} {condition.path}: {state}"
    if is_folder and not absent and not folder:
        hint = f"write `{condition.path}/`: then there must be a file below it"
        return Diagnostic("E318", f"requires {condition.kind} {condition.path}: it is a folder", hint=hint)
    return Diagnostic("E318", message, hint="no model was asked; make it so, or drop the condition")
