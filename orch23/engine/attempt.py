"""The attempt loop of one stage: run, judge, verify, brief, and again, as often as `retry` allows.

Runs in a worker thread. Writes bytes into the store and exchanges through the conversation; changes no state.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.proposal_codes import DELETE
from orch23.decide.secrets import Secrets
from orch23.engine.conversation import Answered, RecordedConversation
from orch23.engine.failure import Failure, Left, fit, likeness, refusal
from orch23.engine.guarding import author_files, guard_manifest, guard_paths, guard_proposal, watched
from orch23.engine.live import Live
from orch23.engine.question import Questions, model_of
from orch23.engine.running import Files, Ran, Runner
from orch23.engine.spending import NOTHING, Spent
from orch23.engine.telling import Keep, Telling
from orch23.engine.verification import Notice, Verifier, in_short, undeclared_writes
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json, digest_json
from orch23.model.errors import MissingBytesError, ProviderError
from orch23.model.event import AttemptFinished, AttemptStarted, Event, EventData, FilesProposed
from orch23.model.llm import Proposal, Request
from orch23.model.paths import is_glob
from orch23.model.pipeline import Condition, LLMStep, PytestStep, RenderStep, ShellStep
from orch23.model.ports import ContentStore
from orch23.model.record import Record
from orch23.providers.codes import TIMED_OUT
from orch23.resolve.commands import short_command
from orch23.resolve.prompts import MAX_PREVIOUS, GivenInput, Round, Sources
from orch23.resolve.resolution import Resolved
from orch23.resolve.tree import Tree

if TYPE_CHECKING:
    from orch23.decide.verdict import Verdict

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


class _Pass(Struct, frozen=True):
    """What one run left: the tree of the stage's own files, the exchanges it rests on, what is wrong with it.

    `written` are the paths that the responses behind the tree wrote, also where the bytes are those of the base. `left`
    is what a program had written when it failed: no attempt goes on from it, but `on_failure: keep` promotes it.
    """

    tree: Files
    exchanges: tuple[str, ...]
    failure: Failure | None = None
    answer: str | None = None
    proposal: str | None = None
    took_s: float = 0.0
    written: frozenset[str] = frozenset()
    left: Files | None = None


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
    own: tuple[GivenInput, ...] = ()
    hidden: frozenset[str] = frozenset()
    protected: tuple[str, ...] = ()
    secrets: Secrets = field(default_factory=Secrets)
    _asked: set[str] = field(default_factory=set)
    _spent: Spent = NOTHING

    @property
    def _questions(self) -> Questions:
        return Questions(self.secrets, self.sources, self.variables)

    def run(self, start: tuple[Files, Failure] | None = None, written: Iterable[str] = ()) -> Attempted:
        """Go through the attempts. `start` is a recorded result that a changed verification failed, with its brief.

        `written` are the paths of it that the stage wrote.
        """
        stage, retry = self.resolved.stage, self.resolved.stage.retry
        if self.resolved.broken:
            return self._done(_Pass({}, ()), 0, refusal("preflight", self.resolved.broken, retryable=False))
        unmet = self._requirements()
        if unmet:
            return self._done(_Pass({}, ()), 0, refusal("preflight", unmet, retryable=False))
        base = self.resolved.base
        failure = fit(start[1], stage) if start else None
        last = _Pass(start[0] if start else base, (), answer=None, written=frozenset(written))
        seen: set[str] = set()
        same: list[dict[str, Json]] = []
        for attempt in range(1, retry.max + 2):
            self.pace(stage.name)
            self._begin(attempt)
            from_tree = last.tree if failure is not None and retry.start_from == "current" else base
            laid = last.exchanges if retry.start_from == "current" else ()
            earlier: frozenset[str] = last.written if retry.start_from == "current" else frozenset()
            last = self._pass(attempt, from_tree, laid, failure, last.answer)
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
        if not problems and isinstance(step, LLMStep) and not self.resolved.broken:
            with contextlib.suppress(MissingBytesError):  # whoever takes the inputs in will say so
                this = self._round(step, 1, self.resolved.base, None, None)
                params = self.converse(self.resolved, 1, set()).params
                request, wrong = self._questions.request(self.resolved, step, this, params)
                problems = wrong if request is not None else ()
        return self._done(_Pass({}, ()), 0, refusal("preflight", problems, retryable=False)) if problems else None

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

    # ---- one pass -------------------------------------------------------------------------

    def _pass(
        self, attempt: int, start: Files, laid: tuple[str, ...], failure: Failure | None, previous: str | None
    ) -> _Pass:
        match self.resolved.stage.step:
            case LLMStep() as step:
                return self._ask(step, attempt, start, laid, failure, previous)
            case ShellStep() | PytestStep() as step:
                return self._process(step, attempt, start)
            case RenderStep():
                entry = FileEntry(self.contents.put(self.resolved.rendered or b""))
                return _Pass({self.resolved.stage.outputs[0]: entry}, ())
            case _ as never:
                assert_never(never)

    def _process(self, step: ShellStep | PytestStep, attempt: int, start: Files) -> _Pass:
        stage = self.resolved.stage
        files = {**self.resolved.parts, **self.resolved.files}
        ran = self.runner.run(step, {**files, **start})
        if not isinstance(ran, Ran):
            return _Pass(start, (), ran, left=self._left(step, start, ran))
        result = ran.result
        if result.output.text:
            self.keep(stage.name, attempt, "output.txt", result.output.text)
        changed = {**result.written, **dict.fromkeys(result.removed)}
        inputs = {path: e for path, e in files.items() if path not in start}
        problems = in_short(undeclared_writes(stage, changed, inputs, self.protected))
        tree = {p: e for p, e in start.items() if p not in result.removed} | dict(result.written)
        if problems:
            failure = replace(refusal("write_scope_violation", problems), left=Left(result.written, result.removed))
            return _Pass(start, (), failure, left=self._left(step, start, failure))
        named = guard_paths(self.secrets, result.written)
        if named:
            return _Pass(start, (), refusal("write_scope_violation", named, retryable=False))
        if isinstance(step, PytestStep) and step.report is not None and ran.verdict is not None:
            tree[step.report] = self._report(ran.verdict)
        return _Pass(tree, (), took_s=result.duration_s)

    def _report(self, verdict: "Verdict") -> FileEntry:
        from orch23.decide.verdict import report_json  # noqa: PLC0415 - only where pytest ran

        return FileEntry(self.contents.put(report_json(verdict)))

    def _left(self, step: ShellStep | PytestStep, start: Files, failure: Failure) -> Files | None:
        """Return the stage's own files as a failed program left them: what it changed within its write scope."""
        left = failure.left
        if left is None or guard_paths(self.secrets, left.written):
            return None
        files = {**self.resolved.parts, **self.resolved.files}
        inputs = {path: e for path, e in files.items() if path not in start}
        changed = {**left.written, **dict.fromkeys(left.removed)}
        refused = undeclared_writes(self.resolved.stage, changed, inputs, self.protected)
        mine = {path: entry for path, entry in changed.items() if path not in refused}
        tree = {path: entry for path, entry in {**start, **mine}.items() if entry is not None}
        if isinstance(step, PytestStep) and step.report is not None and left.verdict is not None:
            tree[step.report] = self._report(left.verdict)
        return tree

    def _ask(
        self,
        step: LLMStep,
        attempt: int,
        start: Files,
        laid: tuple[str, ...],
        failure: Failure | None,
        previous: str | None,
    ) -> _Pass:
        from orch23.decide.proposal import judge_answer  # noqa: PLC0415 - for answers of models alone

        stage = self.resolved.stage
        this = self._round(step, attempt, start, failure, previous)
        conversation = self.converse(self.resolved, attempt, self._asked)
        request, problems = self._questions.request(self.resolved, step, this, conversation.params)
        if request is None or problems:
            return _Pass(start, laid, refusal("preflight", problems, retryable=False))
        try:
            answered = self._complete(step, conversation, conversation.choose(request), this)
        except ProviderError as error:
            if all(diagnostic.code == TIMED_OUT for diagnostic in error.diagnostics):
                return _Pass(start, laid, refusal("timeout", error.diagnostics), previous)
            raise
        fingerprint, response = answered.request.fingerprint(), answered.response
        base = {path: self._shown(path, entry) for path, entry in {**self.resolved.files, **start}.items()}
        judged = judge_answer(
            response.text,
            response.stop,
            step=step,
            cwd=stage.cwd,
            fence=stage.fence,
            outputs=stage.outputs,
            base=base,
            validate=(lambda value: self.validate(step.schema or "", value)) if step.schema else None,
            hidden=self.hidden,
            protected=self.protected,
        )
        if not isinstance(judged, Proposal):
            refused = refusal(judged.kind, judged.diagnostics, retryable=judged.outcome != "refused")
            conversation.settle(fingerprint, judged.outcome, refused.brief.diagnostics)
            return _Pass(start, laid, refused, response.text, digest_json(ascii(response.text)))
        stray = [_undeletable(path) for path in judged.deletes if path not in start]
        if stray:
            refused = refusal("write_scope_violation", stray)
            conversation.settle(fingerprint, "invalid", refused.brief.diagnostics)
            return _Pass(start, laid, refused, response.text, judged.digest())
        marked = guard_proposal(self.secrets, judged, base)
        if marked:
            refused = refusal("llm_output_invalid", marked)
            conversation.settle(fingerprint, "invalid", refused.brief.diagnostics)
            return _Pass(start, laid, refused, response.text)
        conversation.settle(fingerprint, "accepted", ())
        tree = {path: entry for path, entry in start.items() if path not in judged.deletes}
        for write in judged.writes:
            tree[write.path] = FileEntry(self.contents.put(write.content.encode("utf-8")))
        files = tuple(sorted(write.path for write in judged.writes))
        self._tell(FilesProposed(files=files), f"{len(files)} files proposed")
        written = frozenset(write.path for write in judged.writes)
        return _Pass(tree, (*laid, fingerprint), None, response.text, judged.digest(), written=written)

    def _complete(self, step: LLMStep, conversation: RecordedConversation, request: Request, this: Round) -> Answered:
        telling = Telling(
            stage=self.resolved.stage.name,
            files=author_files(self.resolved.stage, this),
            this=this,
            mode=conversation.mode,
            sources=self.sources,
            notice=self.notice,
            keep=self.keep,
            is_recorded=conversation.is_recorded,
            lines=self.live.of_answer(this.attempt),
            spent=self._spent,
        )
        try:
            return conversation.complete(request, step.timeout_s, telling)
        finally:
            self._spent = telling.spent

    def _round(self, step: LLMStep, attempt: int, start: Files, failure: Failure | None, previous: str | None) -> Round:
        """Return what an attempt adds to the prompt; it knows afterwards what the prompt has read of it.

        What is too long to be shown whole loses its secrets first: nobody would know the half of one that is cut.
        """
        if previous is not None and len(previous) > MAX_PREVIOUS:
            previous = self.secrets.redact(previous)
        return watched(
            Round(
                attempt=attempt,
                previous=previous,
                brief=failure.brief if failure else None,
                own=self.own if step.own_outputs else (),
                given=self._given(start),
                model=model_of(self.resolved, step, attempt),
            )
        )

    # ---- values ---------------------------------------------------------------------------

    def _given(self, start: Files) -> tuple[GivenInput, ...]:
        """Return the inputs of a prompt, with the stage's own files as this attempt finds them."""
        declared = tuple(one for one in self.resolved.given if not one.base)
        inputs = {one.path for one in declared if not one.slice}
        own = tuple(
            GivenInput(path, "", entry.digest.sha256, _reader(self, path, entry), base=True)
            for path, entry in sorted(start.items())
            if path not in inputs
        )
        return (*declared, *own)

    def _owned(self, last: _Pass, tree: Files | None = None) -> Files:
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

    def _done(self, last: _Pass, attempts: int, failure: Failure | None, note: str = "") -> Attempted:
        tree = last.tree if failure is None or last.left is None else last.left
        return Attempted(
            outputs=self._owned(last, tree),
            deleted=tuple(sorted(path for path in self.resolved.base if path not in tree)),
            exchanges=last.exchanges,
            attempts=attempts,
            spent=self._spent,
            failure=failure,
            note=note,
            took_s=last.took_s,
            partial=tree is last.left,
        )

    def _shown(self, path: str, entry: FileEntry) -> str:
        """Return a file as answers are judged against it: bytes that are no UTF-8 are kept as lone surrogates."""
        return self.tree.read(path, entry).decode("utf-8", errors="surrogateescape")

    # ---- telling --------------------------------------------------------------------------

    def _begin(self, attempt: int) -> None:
        retry = self.resolved.stage.retry
        data = AttemptStarted(attempt=attempt, max_attempts=retry.max + 1, key=self.resolved.key)
        self._tell(data, f"attempt {attempt} of {retry.max + 1}")

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
        self._tell(data, f"attempt {attempt} {'failed: ' + failure.summary if failure else 'passed'}")

    def _tell(self, data: EventData, message: str) -> None:
        self.notice(Event(data, message, self.resolved.stage.name))


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


def _undeletable(path: str) -> Diagnostic:
    """Complain of a delete that nothing could record: a result takes away versions of its outputs, and no input."""
    return Diagnostic(DELETE, "cannot be deleted: it is an input", subject=path, hint="leave it out of `deletes`")


def _reader(attempts: Attempts, path: str, entry: FileEntry) -> Callable[[], str]:
    return lambda: attempts.tree.read(path, entry).decode("utf-8", errors="replace")
