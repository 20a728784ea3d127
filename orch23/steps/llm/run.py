"""Run an llm step: render the prompt, get a response from recordings or a model, validate it."""

import contextlib
from collections.abc import Callable

from orch23.decide.proposal import judge_response
from orch23.decide.proposal_codes import FORBIDDEN_DELETE
from orch23.engine.attempt import AttemptInput, AttemptLoop, AttemptResult, StepRunner
from orch23.engine.conversation import CallResult, RecordedConversation, model_of_attempt
from orch23.engine.egress import author_files, guard_proposal, track_reads
from orch23.engine.outcomes import failure_of
from orch23.engine.process_runner import Files
from orch23.engine.run_events import LlmEvents
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_json
from orch23.model.errors import MissingBytesError, ProviderError
from orch23.model.event import FilesProposed
from orch23.model.llm import Proposal, Request
from orch23.providers.codes import TIMED_OUT
from orch23.resolve.prompts import MAX_PREVIOUS_LENGTH, AttemptContext, PromptInput
from orch23.steps.llm.spec import LLMStep


class _Asking(StepRunner):
    """Asks a model."""

    def forbidden(self, attempts: AttemptLoop, step: LLMStep) -> tuple[Diagnostic, ...]:
        """Return which secrets the first request would send."""
        with contextlib.suppress(MissingBytesError):  # whoever takes the inputs in will say so
            this = _round(attempts, step, AttemptInput(attempt=1, start=attempts.resolved.base))
            models = attempts.models
            params = models.conversations.open(attempts.resolved, 1, set()).params
            request, wrong = models.requests.build(attempts.resolved, step, this, params)
            return wrong if request is not None else ()
        return ()

    def attempt(self, attempts: AttemptLoop, step: LLMStep, turn: AttemptInput) -> AttemptResult:
        """Ask, and take what the answer proposes if it is within the stage's write scope."""
        start, laid = turn.start, turn.exchanges
        stage = attempts.resolved.stage
        this = _round(attempts, step, turn)
        models = attempts.models
        conversation = models.conversations.open(attempts.resolved, turn.attempt, attempts.calls.used)
        request, problems = models.requests.build(attempts.resolved, step, this, conversation.params)
        if request is None or problems:
            return AttemptResult(start, laid, failure_of("preflight", problems, retryable=False))
        try:
            answered = _complete(attempts, step, conversation, conversation.next_sample(request), this)
        except ProviderError as error:
            if all(diagnostic.code == TIMED_OUT for diagnostic in error.diagnostics):
                return AttemptResult(start, laid, failure_of("timeout", error.diagnostics), turn.previous_response)
            raise
        fingerprint, response = answered.request.fingerprint(), answered.response
        base = {path: _shown(attempts, path, entry) for path, entry in {**attempts.resolved.files, **start}.items()}
        judged = judge_response(
            response.text,
            response.stop,
            step=step,
            cwd=stage.cwd,
            write_scope=stage.fence,
            outputs=stage.outputs,
            base=base,
            validate=(lambda value: models.validate(step.schema or "", value)) if step.schema else None,
            not_shown=attempts.shown.hidden,
            protected=attempts.safeguards.protected,
        )
        if not isinstance(judged, Proposal):
            refused = failure_of(judged.kind, judged.diagnostics, retryable=judged.outcome != "refused")
            conversation.settle(fingerprint, judged.outcome, refused.feedback.diagnostics)
            return AttemptResult(start, laid, refused, response.text, digest_json(ascii(response.text)))
        stray = [_undeletable(path) for path in judged.deletes if path not in start]
        if stray:
            refused = failure_of("write_scope_violation", stray)
            conversation.settle(fingerprint, "invalid", refused.feedback.diagnostics)
            return AttemptResult(start, laid, refused, response.text, judged.digest())
        marked = guard_proposal(attempts.safeguards.secrets, judged, base)
        if marked:
            refused = failure_of("llm_output_invalid", marked)
            conversation.settle(fingerprint, "invalid", refused.feedback.diagnostics)
            return AttemptResult(start, laid, refused, response.text)
        conversation.settle(fingerprint, "accepted", ())
        tree = {path: entry for path, entry in start.items() if path not in judged.deletes}
        for write in judged.writes:
            tree[write.path] = FileEntry(attempts.contents.put(write.content.encode("utf-8")))
        files = tuple(sorted(write.path for write in judged.writes))
        attempts.report.emit(FilesProposed(files=files), f"{len(files)} files proposed")
        written = frozenset(write.path for write in judged.writes)
        return AttemptResult(tree, (*laid, fingerprint), None, response.text, judged.digest(), written=written)


def _complete(
    attempts: AttemptLoop, step: LLMStep, conversation: RecordedConversation, request: Request, this: AttemptContext
) -> CallResult:
    telling = LlmEvents(
        report=attempts.report,
        files=author_files(attempts.resolved.stage, this),
        context=this,
        mode=conversation.mode,
        sources=attempts.models.requests.sources,
        is_recorded=conversation.is_recorded,
        lines=attempts.report.live.response_lines(this.attempt),
        usage=attempts.calls.usage,
    )
    try:
        return conversation.complete(request, step.timeout_s, telling)
    finally:
        attempts.calls.usage = telling.usage


def _round(attempts: AttemptLoop, step: LLMStep, turn: AttemptInput) -> AttemptContext:
    """Return what an attempt adds to the prompt; it knows afterwards what the prompt has read of it.

    What is too long to be shown whole loses its secrets first: nobody would know the half of one that is cut.
    """
    previous = turn.previous_response
    if previous is not None and len(previous) > MAX_PREVIOUS_LENGTH:
        previous = attempts.safeguards.secrets.redact(previous)
    return track_reads(
        AttemptContext(
            attempt=turn.attempt,
            previous=previous,
            feedback=turn.failure.feedback if turn.failure else None,
            own=attempts.shown.own if step.own_outputs else (),
            given=_given(attempts, turn.start),
            model=model_of_attempt(attempts.resolved, step, turn.attempt),
        )
    )


def _given(attempts: AttemptLoop, start: Files) -> tuple[PromptInput, ...]:
    """Return the inputs of a prompt, with the stage's own files as this attempt finds them."""
    declared = tuple(one for one in attempts.resolved.given if not one.base)
    inputs = {one.path for one in declared if not one.slice}
    own = tuple(
        PromptInput(path, "", entry.digest.sha256, _reader(attempts, path, entry), base=True)
        for path, entry in sorted(start.items())
        if path not in inputs
    )
    return (*declared, *own)


def _shown(attempts: AttemptLoop, path: str, entry: FileEntry) -> str:
    """Return a file as answers are judged against it: bytes that are no UTF-8 are kept as lone surrogates."""
    return attempts.tree.read(path, entry).decode("utf-8", errors="surrogateescape")


def _undeletable(path: str) -> Diagnostic:
    """Complain of a delete that nothing could record: a result takes away versions of its outputs, and no input."""
    return Diagnostic(
        FORBIDDEN_DELETE, "cannot be deleted: it is an input", subject=path, hint="leave it out of `deletes`"
    )


def _reader(attempts: AttemptLoop, path: str, entry: FileEntry) -> Callable[[], str]:
    return lambda: attempts.tree.read(path, entry).decode("utf-8", errors="replace")


LLM_RUNNER = _Asking()
