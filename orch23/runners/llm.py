"""Run an llm step: render the prompt, get a response from recordings or a model, validate it."""

import contextlib
from collections.abc import Callable, Container, Iterator
from functools import partial

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from orch23.attempt.attempt import AttemptInput, AttemptLoop, AttemptResult, Models, StepRunner
from orch23.attempt.conversation import CallResult, RecordedConversation
from orch23.attempt.failures import Failure, failure_of
from orch23.attempt.process_runner import Files
from orch23.attempt.run_events import StageReporter
from orch23.attempt.sent_data import (
    TrackedText,
    author_files,
    guard_proposal,
    sent_bytes,
    sent_files,
    sent_media,
    track_reads,
    utf8_size,
)
from orch23.attempt.stage_outcomes import StageUsage
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes, digest_json, is_script
from orch23.model.errors import MissingBytesError, ProviderError
from orch23.model.event import FilesProposed, LlmRequest, StepOutput
from orch23.model.event_data import RecordingMode
from orch23.model.features import EXPLORE, load_feature
from orch23.model.llm import ExchangeOutcome, Proposal, ProposedWrite, Request, Response, response_data
from orch23.model.media import may_be_media
from orch23.model.paths import escape_pattern, match_any, with_above
from orch23.model.pipeline import SliceInput, WriteScope
from orch23.model.text import LineSplitter
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_codes import (
    EMPTY,
    FORBIDDEN_DELETE,
    NOT_SHOWN,
    OUTSIDE_WRITE_SCOPE,
    TOO_LARGE,
    UNSAFE_PATH,
)
from orch23.proposal.proposal_files import MAX_FILE_BYTES, ProposalScope
from orch23.providers.media import media_errors
from orch23.providers.registry import media_limits_of
from orch23.resolve.prompt_inputs import (
    EXPLORES,
    MAX_PREVIOUS_LENGTH,
    AttemptContext,
    AuthorTexts,
    Dialogue,
    Exploration,
    PromptInput,
)
from orch23.resolve.resolution import is_discovered
from orch23.resolve.text_slices import moved_lines, text_part
from orch23.steps.llm.spec import LLMStep


class _Rejected(Struct, frozen=True):
    """A response that the stage cannot use. `identity` is equal for responses that propose the same."""

    failure: Failure
    outcome: ExchangeOutcome
    identity: str | None = None


def _models(attempts: AttemptLoop) -> Models:
    if attempts.models is None:
        message = "BUG: an llm stage in a build that calls no model"
        raise TypeError(message)
    return attempts.models


class LlmEvents(Struct, kw_only=True):
    """Reports the conversation of one attempt. `usage` sums up all its responses, also truncated ones.

    `files` are the author's files that a request is built from.
    """

    report: StageReporter
    files: tuple[str, ...]
    context: AttemptContext
    mode: RecordingMode
    sources: AuthorTexts
    is_recorded: Callable[[Request], bool]
    lines: LineSplitter
    usage: StageUsage = field(default_factory=StageUsage)

    def requested(self, request: Request) -> None:
        """Keep and report a request, before it is sent."""
        # Bytes of former responses: those that are turns, else the one that the prompt may show.
        turns = [message.content for message in request.messages if message.role == "assistant"]
        self._keep("prompt.txt", f"{request.system}\n\n{request.text}" if request.system else request.text)
        data = LlmRequest(
            fingerprint=request.fingerprint(),
            model=request.model,
            provider=request.provider,
            endpoint=request.endpoint,
            attempt=self.context.attempt,
            recorded=self.is_recorded(request),
            mode=self.mode,
            files=(*sent_files(self.files, self.context, self.sources), *sent_media(request)),
            bytes=sent_bytes(request),
            previous_bytes=sum(map(utf8_size, turns or [self.context.previous or ""])),
            brief_bytes=utf8_size(self.context.feedback.excerpt) if self.context.feedback else 0,
        )
        what = " to explore" if request.returns == EXPLORES else ""
        self.report.emit(data, f"calling {request.provider} {request.model}{what}")

    def received(self, text: str) -> None:
        """Report a part of a response, if live output is enabled."""
        self.lines.feed(text)
        self.report.watch(self.lines.rest)

    def responded(self, request: Request, response: Response) -> None:
        """Keep and report a response."""
        self.lines.flush()
        self._keep("response.txt", response.text)
        self.usage = self.usage.plus(response, is_fallback=request.fallback)
        data = replace(
            response_data(request.fingerprint(), response),
            attempt=self.context.attempt,
            mode=self.mode,
            fallback=request.fallback,
        )
        text = "response from the transcripts" if response.replayed else "response received"
        text += f" of the fallback {request.provider} {request.model}" if request.fallback else ""
        self.report.emit(data, text)

    def _keep(self, name: str, text: str) -> None:
        self.report.keep(self.context.attempt, name, text)


class _LLMRunner(StepRunner):
    def forbidden(self, attempts: AttemptLoop, step: LLMStep) -> tuple[Diagnostic, ...]:
        with contextlib.suppress(MissingBytesError):  # the stage reports it when it reads its inputs
            step = step.of_attempt(attempts.resolved.stage.retry, 1)
            context = _context(attempts, step, AttemptInput(attempt=1, start=attempts.resolved.base))
            params = _models(attempts).conversations.open(attempts.resolved, 1, set()).params
            request, errors = _models(attempts).requests.build(attempts.resolved, step, context, params)
            return errors if request is not None else ()
        return ()

    def attempt(self, attempts: AttemptLoop, step: LLMStep, turn: AttemptInput) -> AttemptResult:
        """Call the model, and return the tree that its response proposes, if all of it may be written."""
        declared, retry = step, attempts.resolved.stage.retry
        step = declared.of_attempt(retry, turn.attempt)
        if attempts.resolved.stage.explore:
            exploring = _explore(attempts, declared, step, turn)
            if exploring is not None:
                return exploring
        explored = attempts.history.explored.exchanges if attempts.history.explored else ()
        start, exchanges = turn.start, tuple(dict.fromkeys((*explored, *turn.exchanges)))
        context = _context(attempts, step, turn)
        called = _call(attempts, declared, step, turn, context)
        if isinstance(called, AttemptResult):
            return called
        conversation, call = called
        fingerprint, text = call.request.fingerprint(), call.response.text
        dialogue = _dialogue(attempts, context, call.request, text)
        # The default of its model, or more after a truncated response.
        limit = call.request.params.get("max_tokens")
        sent = replace(step, max_tokens=limit) if isinstance(limit, int) else step
        judged = _judge(attempts, sent, turn, call.response)
        if isinstance(judged, _Rejected):
            conversation.recorded.settle(fingerprint, judged.outcome, judged.failure.feedback.diagnostics)
            # The same model would refuse again.
            has_another = declared.of_attempt(retry, turn.attempt + 1) != step
            escalates, cut_off = judged.outcome == "refused" and has_another, judged.outcome == "truncated"
            failure = replace(judged.failure, escalates=escalates, cut_off=cut_off)
            return AttemptResult(start, exchanges, failure, text, judged.identity, dialogue=dialogue)
        tree, kept, earlier = _tree(attempts, start, judged)
        files = tuple(one.path for one in judged.writes)
        attempts.report.emit(FilesProposed(files=files), f"{len(files)} file{'s' if len(files) != 1 else ''} proposed")
        settle = partial(_settle, conversation, fingerprint)
        return AttemptResult(
            tree,
            (*exchanges, *earlier, fingerprint),
            None,
            text,
            judged.digest(),
            written=frozenset((*files, *kept)),
            settle=settle,
            dialogue=dialogue,
            keeps=judged.keeps,
        )


def _call(
    attempts: AttemptLoop, declared: LLMStep, step: LLMStep, turn: AttemptInput, context: AttemptContext
) -> tuple[RecordedConversation, CallResult] | AttemptResult:
    """Send a request of an attempt; return its response with its conversation, or the failed attempt."""
    start, exchanges, models = turn.start, turn.exchanges, _models(attempts)
    conversation = models.conversations.open(attempts.resolved, turn.attempt, attempts.history.used)
    request, errors = models.requests.build(attempts.resolved, step, context, conversation.params)
    if request is None or errors:
        return AttemptResult(start, exchanges, failure_of("preflight", errors, retryable=False))
    if declared.fallback:
        conversation = _with_fallbacks(attempts, conversation, context)
    request = conversation.next_sample(request)
    hopeless = _unreadable(context, request)
    if context.exploring is None:
        attempts.history.seen |= _read_files(context)
        scope = attempts.resolved.stage.fence
        hopeless = (*hopeless, *_oversized_outputs(step, scope, start, context), *_unshown_edits(attempts))
    # A recorded response of an earlier version is still used.
    if hopeless and not conversation.is_recorded(request):
        return AttemptResult(start, exchanges, failure_of("preflight", hopeless, retryable=False))
    if attempts.resolved.stage.verifies_first and not conversation.is_recorded(request):
        from orch23.attempt.broken_verification import base_errors  # noqa: PLC0415 - only before such a call

        if broken := base_errors(attempts.resolved, attempts.runner):
            return AttemptResult(start, exchanges, failure_of("preflight", broken, retryable=False))
    try:
        return conversation, _complete(attempts, step, conversation, request, context)
    except ProviderError as error:
        # A timeout is a failed attempt, which `retry` may repeat; any other provider error stops the stage.
        if any(diagnostic.code != "E402" for diagnostic in error.diagnostics):
            raise
        failure, dialogue = failure_of("timeout", error.diagnostics), _dialogue(attempts, context, request, None)
        return AttemptResult(start, exchanges, failure, turn.previous_response, dialogue=dialogue)


def _explore(attempts: AttemptLoop, declared: LLMStep, step: LLMStep, turn: AttemptInput) -> AttemptResult | None:
    """Let the model name what it needs to see, as often as it may; return the attempt if that failed."""
    if attempts.history.explored is None:
        explore = load_feature(EXPLORE["begin"])
        safeguards, never_send = attempts.safeguards, _models(attempts).requests.pipeline.never_send
        attempts.history.explored = explore(
            attempts.resolved, attempts.tree, never_send, safeguards.secrets, safeguards.protected
        )
    explored: Exploration = attempts.history.explored
    explored.is_done = False
    # A later turn of a conversation has only what failed.
    while explored.may_ask and turn.dialogue is None:
        context = replace(_context(attempts, step, turn), exploring=explored)
        called = _call(attempts, declared, step, turn, context)
        if isinstance(called, AttemptResult):
            return called
        conversation, call = called
        fingerprint, before = call.request.fingerprint(), len(explored.inputs)
        errors = explored.take(call.response.text, fingerprint)
        conversation.recorded.settle(fingerprint, "invalid" if errors else "accepted", ())
        text = f"shown: {', '.join(one.place for one in explored.inputs[before:]) or 'nothing more'}"
        for line in (text, *(f"error: {one}" for one in errors)):
            attempts.report.emit(StepOutput(step=EXPLORES, line=line), line)
    return None


def _tree(attempts: AttemptLoop, start: Files, judged: Proposal) -> tuple[Files, Files, tuple[str, ...]]:
    """Return the files after a proposal, those that it keeps of the last result, and the exchanges of that result."""
    (last, exchanges), stage = attempts.shown.kept, attempts.resolved.stage
    # Files of `edits` are kept as the model was shown them: as in the base, and not as in the last result.
    own = (p for p in last if p not in start and match_any(stage.fence.write, p) and not match_any(stage.edits, p))
    kept = {path: last[path] for path in own} if judged.keeps else {}
    tree = kept | {path: entry for path, entry in start.items() if path not in judged.deletes}
    tree |= {one.path: _entry(attempts, start, one) for one in judged.writes}
    return tree, kept, exchanges if kept else ()


def _entry(attempts: AttemptLoop, start: Files, write: ProposedWrite) -> FileEntry:
    """Store a file. A script is executable; so is a file that was executable before without being a script."""
    data = write.content.encode("utf-8")
    base = attempts.resolved.base.get(write.path)
    if base is not None and match_any(attempts.resolved.stage.edits, write.path):
        return FileEntry(attempts.contents.put(data), executable=base.executable)  # the mode is the user's
    before = start.get(write.path, attempts.resolved.files.get(write.path))
    stays = before is not None and before.executable and not is_script(attempts.tree.read(write.path, before))
    return FileEntry(attempts.contents.put(data), executable=stays or is_script(data))


def _with_fallbacks(
    attempts: AttemptLoop, first: RecordedConversation, context: AttemptContext
) -> RecordedConversation:
    from orch23.attempt.fallback import FallbackConversation  # noqa: PLC0415 - few stages have fallbacks

    conversations, resolved = _models(attempts).conversations, attempts.resolved
    others = conversations.open_fallbacks(resolved, context.attempt, first.used)
    build = partial(_fallback_request, attempts, context)
    setting = conversations.fallback_setting(resolved)
    return FallbackConversation(**asdict(first), others=others, build=build, setting=setting)


def _fallback_request(attempts: AttemptLoop, context: AttemptContext, other: RecordedConversation) -> Request | None:
    """Return the request of a fallback in an attempt; None if it must not be sent."""
    step = other.call.step
    # This model may read a file as text that the provider's model has read as a picture.
    this = track_reads(replace(context, model=step.model))
    request, errors = _models(attempts).requests.build(attempts.resolved, step, this, other.params)
    if request is None or errors:
        return None
    return request if not _unreadable(this, request) or other.is_recorded(request) else None


def _unreadable(context: AttemptContext, request: Request) -> tuple[Diagnostic, ...]:
    media = media_errors(request, media_limits_of(request.provider)) if request.media else ()
    return (*_binary_inputs(context), *media)


def _dialogue(
    attempts: AttemptLoop, context: AttemptContext, request: Request, response: str | None
) -> Dialogue | None:
    """Return what the next attempt continues; None if it sends a prompt of its own."""
    stage = attempts.resolved.stage
    if not stage.retry.is_conversation:
        return None
    return Dialogue(
        request=request,
        response=response if response and response.strip() else None,
        shown={(one.path, one.slice): one.digest for one in context.given},
        files=sent_files(author_files(stage, context), context, _models(attempts).requests.sources),
    )


def _settle(conversation: RecordedConversation, fingerprint: str, failure: Failure | None) -> None:
    """Record whether the files of a response passed their verification."""
    # Codes and tests alone: messages may have texts of inputs, and exchanges are committed.
    codes = failure.feedback.diagnostic_codes() if failure is not None else ()
    conversation.recorded.settle(fingerprint, "accepted" if failure is None else "failed", codes)


def _judge(attempts: AttemptLoop, step: LLMStep, turn: AttemptInput, response: Response) -> Proposal | _Rejected:
    stage, start = attempts.resolved.stage, turn.start
    base = {path: _text_of(attempts, path, entry) for path, entry in {**attempts.resolved.files, **start}.items()}
    slices = _shown_slices(attempts, step, start)
    scope = ProposalScope(
        cwd=stage.cwd,
        write_scope=stage.fence,
        base=base,
        not_shown=attempts.shown.hidden | _unseen(attempts, slices),
        protected=attempts.safeguards.protected,
        slices=slices,
        kept=frozenset(attempts.shown.kept[0]),
        edits=stage.edits,
    )
    validate = (lambda value: _models(attempts).validate(step.schema or "", value)) if step.schema else None
    judged = judge_response(response.text, response.stop, scope, step=step, outputs=stage.outputs, validate=validate)
    if not isinstance(judged, Proposal):
        failure = failure_of(judged.kind, judged.diagnostics, retryable=judged.outcome != "refused")
        return _Rejected(failure, judged.outcome, digest_json(ascii(response.text)))
    if refused := [*_link_errors(attempts, judged), *_withheld_errors(attempts, judged)]:
        return _Rejected(failure_of("write_scope_violation", refused), "invalid", judged.digest())
    if turn.failure is not None and attempts.history.has_failed and judged.keeps:
        return _changes_nothing(turn.failure, judged)
    # A result records which outputs were deleted. A deleted input could not be recorded.
    message, hint = "cannot be deleted: it is an input", "leave it out of `deletes`"
    deleted = (path for path in judged.deletes if path not in start)
    if inputs := [Diagnostic(FORBIDDEN_DELETE, message, subject=path, hint=hint) for path in deleted]:
        return _Rejected(failure_of("write_scope_violation", inputs), "invalid", judged.digest())
    # Responses are redacted before they are recorded: a file with a redaction mark must not be written (ADR 9).
    secrets = guard_proposal(attempts.safeguards.secrets, judged, base)
    return _Rejected(failure_of("llm_output_invalid", secrets), "invalid") if secrets else judged


def _link_errors(attempts: AttemptLoop, judged: Proposal) -> Iterator[Diagnostic]:
    """Yield an error for each file that is, or is behind, a symbolic link: promotion writes through none."""
    for path in (one.path for one in judged.writes):
        above = reversed([*with_above(path)])
        if link := next((one for one in above if attempts.tree.links(escape_pattern(one))), None):
            shown = attempts.resolved.files.get(path)
            hint = f"change `{shown.link}` instead" if shown and shown.link else "name the file itself, or another one"
            yield Diagnostic(UNSAFE_PATH, f"`{link}` is a symbolic link", subject=path, hint=hint)


def _withheld_errors(attempts: AttemptLoop, judged: Proposal) -> Iterator[Diagnostic]:
    """Yield an error for each file that a later request could not have. One that the stage names is its result."""
    never_send, named = _models(attempts).requests.pipeline.never_send, attempts.resolved.stage.literal_outputs
    for path in (one.path for one in judged.writes):
        if match_any(never_send, path) and path not in named:
            message = "matches a pattern of `never_send`, so no model may write it"
            yield Diagnostic(OUTSIDE_WRITE_SCOPE, message, subject=path, hint="write another file, or leave it out")


def _changes_nothing(before: Failure, judged: Proposal) -> _Rejected:
    """Refuse a response that keeps the files of a failed result; the next attempt gets what failed once more."""
    unchanged = Diagnostic(EMPTY, "the response changes nothing, and the files failed", hint="change what failed")
    failure = failure_of("llm_output_invalid", (unchanged,))
    feedback = replace(failure.feedback, excerpt=f"{failure.feedback.excerpt}\n\n{before.feedback.excerpt}")
    return _Rejected(replace(failure, feedback=feedback), "empty", judged.digest())


def _complete(
    attempts: AttemptLoop, step: LLMStep, conversation: RecordedConversation, request: Request, context: AttemptContext
) -> CallResult:
    events = LlmEvents(
        report=attempts.report,
        files=author_files(attempts.resolved.stage, context),
        context=context,
        mode=conversation.recorded.mode,
        sources=_models(attempts).requests.sources,
        is_recorded=conversation.is_recorded,
        lines=attempts.report.response_lines(context.attempt),
        usage=attempts.history.usage,
    )
    try:
        return conversation.complete(request, step.timeout_s, events)
    finally:
        # A call that failed may be paid for too.
        attempts.history.usage = events.usage


def _context(attempts: AttemptLoop, step: LLMStep, turn: AttemptInput) -> AttemptContext:
    """Return what an attempt adds to the prompt. It records which of its parts the prompt reads."""
    previous = turn.previous_response
    if previous is not None and len(previous) > MAX_PREVIOUS_LENGTH:
        # The prompt cuts a long response. Half a secret would not be recognized after the cut.
        previous = attempts.safeguards.secrets.redact(previous)
    return track_reads(
        AttemptContext(
            attempt=turn.attempt,
            previous=previous,
            feedback=turn.failure.feedback if turn.failure else None,
            own=attempts.shown.own if step.own_outputs else (),
            given=_given_inputs(attempts, step, turn.start),
            model=step.model,
            shows_previous=turn.is_applied,
            dialogue=turn.dialogue,
        )
    )


LLM_RUNNER = _LLMRunner()


_REPLACEMENT, _PDF = "\ufffd", "%PDF-"
# git looks for a NUL in as many bytes.
_BEGINNING = 8000


def _given_inputs(attempts: AttemptLoop, step: LLMStep, start: Files) -> tuple[PromptInput, ...]:
    """Return the inputs of a prompt, with the stage's own files as this attempt finds them."""
    sliced, resolved = _sliced(attempts, step), attempts.resolved
    found = (_as_found(attempts, one, start, sliced) for one in _inputs(attempts) if not one.base)
    given = tuple(one for one in found if one is not None)
    # A file that is a whole input is shown once; one of which only a slice is an input is shown as a whole too, unless
    # the model responds with edits.
    inputs = {one.path for one in given if one.explored or not one.slice or one.path in sliced}
    own = tuple(
        _own_file(attempts, path, entry)
        for path, entry in sorted(start.items())
        if path not in inputs
        and (not is_discovered(resolved.stage, f"base:{path}") or entry != resolved.base.get(path))
    )
    return (*given, *own)


def _inputs(attempts: AttemptLoop) -> tuple[PromptInput, ...]:
    """Return the declared inputs, and what the model asked to see, before any attempt changed them."""
    explored = attempts.history.explored
    return (*attempts.resolved.given, *(explored.inputs if explored is not None else ()))


def _as_found(attempts: AttemptLoop, one: PromptInput, start: Files, sliced: frozenset[str]) -> PromptInput | None:
    """Return an input as this attempt finds it: an earlier one may have changed it; None if it was deleted."""
    base, entry = attempts.resolved.base.get(one.path), start.get(one.path)
    may_change = one.explored or (
        one.path in sliced if one.slice else match_any(attempts.resolved.stage.edits, one.path)
    )
    if base is None or not may_change:
        return one
    if entry == base:  # as in the attempts after a change: all of them share what is before it
        return one if one.slice or one.explored else replace(one, base=True)
    if entry is None:
        return None
    lines = _lines_of(attempts, one, start)
    if lines is None:
        return replace(_own_file(attempts, one.path, entry), base=not one.explored, explored=one.explored)
    text = "".join(f"{one}\n" for one in _text_of(attempts, one.path, entry, "replace").split("\n")[slice(*lines)])
    name = f"L{lines[0] + 1}-{lines[1]}" if one.explored else one.slice
    found = PromptInput(one.path, name, digest_bytes(text.encode()).sha256, partial(str, text), explored=one.explored)
    return found if text else None


def _own_file(attempts: AttemptLoop, path: str, entry: FileEntry) -> PromptInput:
    return PromptInput(path, "", entry.digest.sha256, partial(_text_of, attempts, path, entry, "replace"), base=True)


def _lines_of(attempts: AttemptLoop, one: PromptInput, start: Files) -> tuple[int, int] | None:
    """Return the lines of a slice, from 0, as this attempt finds them; None if a slice has no lines, or is lost."""
    before, entry = attempts.resolved.base.get(one.path), start.get(one.path)
    if before is None or entry is None or one.slice[:1] in ("", "/"):
        return None
    text = _text_of(attempts, one.path, before, "replace")
    part = text_part(text, one.path, one.slice)
    if entry == before:
        return part.start, part.end
    return moved_lines(text, _text_of(attempts, one.path, entry, "replace"), part.start, part.end)


def _shown_slices(attempts: AttemptLoop, step: LLMStep, start: Files) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the lines that a model was shown of each file of which it was not shown all, by path."""
    parts = [one for one in _inputs(attempts) if one.slice and (one.explored or one.path in _sliced(attempts, step))]
    if not parts or step.returns != "edits":
        return {}
    whole = {one.path for one in _given_inputs(attempts, step, start) if not one.slice}
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for one in parts:
        # The value at a pointer is shown as JSON and not as the lines of the file, so no line of it was shown.
        lines = _lines_of(attempts, one, start)
        if one.path not in whole:
            found[one.path] = (*found.get(one.path, ()), *((lines,) if lines is not None else ()))
    return found


def _binary_inputs(context: AttemptContext) -> tuple[Diagnostic, ...]:
    """Return an error for each binary file that the prompt has read: a model would get replacement characters."""
    found = []
    for one in context.given:
        text = one.read.text if isinstance(one.read, TrackedText) else None
        # Only a file that is not UTF-8 has replacement characters; a text may quote them. No text has a NUL.
        if text is not None and ("\0" in text[:_BEGINNING] or (_REPLACEMENT in text and text.startswith(_PDF))):
            message = "is binary and cannot be shown in a prompt; no model was called"
            hint = f'remove it from `inputs`, or exclude it from a pattern: "!{one.path}"'
            if may_be_media(text):
                hint += "; or show it with `| block` to a model that is known to accept pictures and PDFs"
            found.append(Diagnostic("E837", message, hint=hint, subject=one.path))
    return tuple(found)


def _read_files(context: AttemptContext) -> set[str]:
    """Return the files that the prompt has read as a whole."""
    given = (one for one in context.given if not one.slice)
    return {one.path for one in given if isinstance(one.read, TrackedText) and one.read.text is not None}


def _unseen(attempts: AttemptLoop, slices: Container[str] = ()) -> frozenset[str]:
    """Return the files of `edits` that the model has seen in no attempt: it may not change them."""
    edits, seen = attempts.resolved.stage.edits, attempts.history.seen
    return frozenset(
        path for path in attempts.resolved.base if path not in seen and path not in slices and match_any(edits, path)
    )


def _unshown_edits(attempts: AttemptLoop) -> tuple[Diagnostic, ...]:
    """Return an error for each file that `edits` names and no prompt shows: no response could change it."""
    message = "is named in `edits`, and the prompt does not show it; no model was called"
    hint = "show it: `{{ inputs | blocks }}` in the prompt shows all files"
    sliced = {one.path for one in attempts.resolved.stage.inputs if isinstance(one, SliceInput)}
    named = sorted(_unseen(attempts, sliced).intersection(attempts.resolved.stage.edits))
    return tuple(Diagnostic(NOT_SHOWN, message, hint=hint, subject=path) for path in named)


def _oversized_outputs(
    step: LLMStep, scope: WriteScope, start: Files, context: AttemptContext
) -> tuple[Diagnostic, ...]:
    """Return an error for each file, if a response could only write files that are too large for a response.

    A file that the prompt does not show does not count: a model may write a new one in its place.
    """
    can_delete = bool(scope.delete) and step.returns in ("files", "blocks")
    if step.returns in ("edits", "json") or can_delete or not scope.write:
        return ()
    shown = _read_files(context)
    sizes = {path: start[path].digest.size_bytes if path in start and path in shown else 0 for path in scope.write}
    if any(size <= MAX_FILE_BYTES for size in sizes.values()):
        return ()
    hint = "write `returns: edits`: the response then has only what changes"
    most = f"a response with `returns: {step.returns}` can write {MAX_FILE_BYTES:,} of a file; no model was called"
    return tuple(
        Diagnostic(TOO_LARGE, f"has {size:,} bytes, and {most}", hint=hint, subject=path)
        for path, size in sizes.items()
    )


def _text_of(attempts: AttemptLoop, path: str, entry: FileEntry, errors: str = "surrogateescape") -> str:
    # A response is compared with the exact bytes of a file: bytes that are not UTF-8 become surrogates.
    return attempts.tree.read(path, entry).decode("utf-8", errors=errors)


def _sliced(attempts: AttemptLoop, step: LLMStep) -> frozenset[str]:
    """Return the files of which slices are inputs, if the model responds with edits of them."""
    if step.returns != "edits":
        return frozenset()
    return frozenset(one.path for one in attempts.resolved.stage.inputs if isinstance(one, SliceInput))
