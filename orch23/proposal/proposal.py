"""Judge a model's response: return a proposal, or every error in it.

Pure: it reads and writes no files. The caller passes the texts of the files in the sandbox directory.
"""

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, errors
from orch23.model.digest import Json
from orch23.model.event_data import StopReason
from orch23.model.llm import ExchangeOutcome, Judgement, Proposal, ProposedWrite, RefusedResponse
from orch23.model.paths import match_any, unsafe_reason
from orch23.model.pipeline import FailureKind
from orch23.proposal import proposal_codes as codes
from orch23.proposal.edit_proposal import EditedFiles, read_edited_files
from orch23.proposal.fenced_files import has_search_block, is_path
from orch23.proposal.omissions import MARKDOWN, has_patch, repeated_end
from orch23.proposal.proposal_files import (
    MAX_FILE_BYTES,
    ProposalScope,
    base_errors,
    content_errors,
    normalize_envelope,
    path_errors,
    size_errors,
    text_digest,
    without_fence,
)
from orch23.proposal.response_parser import (
    MAX_RESPONSE_BYTES,
    AmbiguousFormError,
    FilesEnvelope,
    ProposedFile,
    code_block_of,
    is_only_thoughts,
    parse_json_response,
    read_blocks,
    read_files,
    says_no_change,
    stated_error,
    stated_in,
    without_thoughts,
)
from orch23.text.excerpt import escape_text
from orch23.text.source_syntax import is_source

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


# Errors of one response: a longer list does not help a model.
_SHOWN = 50

_SCOPE = frozenset({codes.OUTSIDE_WRITE_SCOPE, codes.UNSAFE_PATH, codes.PROTECTED, codes.FORBIDDEN_DELETE})

JsonValidator: TypeAlias = Callable[[Json], tuple[Diagnostic, ...]]


def judge_response(
    text: str,
    stop: StopReason,
    scope: ProposalScope,
    *,
    step: "LLMStep",
    outputs: tuple[str, ...],
    validate: JsonValidator | None = None,
) -> Judgement:
    """Return what a response proposes, or why it is refused.

    If every output is in the base or a kept file, a response may say that no change is needed: a proposal without
    files. Files of `edits` need not exist. `validate` checks the JSON value by the step's schema.
    """
    if not step.only_json:
        text = without_thoughts(text.removeprefix("\ufeff"), is_text=step.returns == "text")
    if (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_RESPONSE_BYTES:
        message = f"the response has {size:,} bytes; the limit is {MAX_RESPONSE_BYTES:,}"
        return _refuse(codes.TOO_LARGE, message, "respond with less, or divide the work into several stages")
    if (ended := _judge_stop(text, stop, step, next(iter(outputs), ""))) is not None:
        return ended
    return _named_as_patch(_judge_form(text, step, outputs, scope, validate), text, step)


def _judge_form(
    text: str, step: "LLMStep", outputs: tuple[str, ...], scope: ProposalScope, validate: JsonValidator | None
) -> Judgement:
    is_file = step.returns in ("json", "text") or (step.returns == "code" and "".join(outputs).endswith(".json"))
    if not is_file and says_no_change(text, only_json=step.only_json):
        return _keep(outputs, scope)
    match step.returns:
        case "files":
            return _judge_listed(read_files(text, only_json=step.only_json), text, step, scope)
        case "blocks":
            return _judge_listed(read_blocks(text), text, step, scope)
        case "edits":
            edited = read_edited_files(text, scope)
            return _judge_files(edited.envelope, scope, edited)
        case "json":
            return _judge_value(text, step, lambda response: _judge_json(response, outputs, scope, validate))
        case "text":
            output = _only(outputs)
            reason = None if output.endswith(".json") else stated_in(text)
            if reason is not None:
                return _model_error(reason)
            return _judge_single(without_fence(output, text, scope.base.get(output)), output, scope)
        case "code":
            return _judge_code(text, _only(outputs), scope)
        case _:
            assert_never(step.returns)


_MARKDOWN_BLOCKS = frozenset({"", "md", "markdown", "mdx", "text", "txt", "plain", "plaintext"})
# Errors of the form of a response, which say little if the response is a patch.
_FORM = frozenset({codes.NOT_JSON, codes.WRONG_SHAPE, codes.NO_CODE})


def _named_as_patch(judgement: Judgement, text: str, step: "LLMStep") -> Judgement:
    """Return the error that a response is a patch, instead of errors of its form, if it is one."""
    # With edits too: the error of a diff in a file asks for the whole file, which edits must not send.
    of_form = _FORM | {codes.DIFF} if step.returns == "edits" else _FORM
    if isinstance(judgement, Proposal) or not {d.code for d in judgement.diagnostics} <= of_form:
        return judgement
    if text.lstrip().startswith(("{", "[")) or (step.returns == "edits" and has_search_block(text)):
        return judgement
    if not has_patch(text):
        return judgement
    return _refuse(codes.DIFF, "the response is a diff or a patch", _SOMETHING[step.returns])


def _judge_stop(text: str, stop: StopReason, step: "LLMStep", output: str) -> RefusedResponse | None:
    """Refuse a response by its stop reason. A closed code block is complete, even if text after it was cut off."""
    if stop == "refusal":
        message = f"the model refused to answer: {_excerpt(text)}" if text.strip() else "the model refused to answer"
        hint = "change the prompt or the model"
        return _refuse(codes.REFUSED, message, hint, outcome="refused", kind="agent_error")
    if stop == "max_tokens":
        if _is_whole(text, step, output):
            return None
        if block := repeated_end(text):
            shown = _excerpt(block) or "white space"
            message = f"the response repeats itself until it was cut off at {step.max_tokens} tokens: {shown}"
            hint = "respond once, without repetitions, and end; more tokens do not help, a smaller task may"
            return _refuse(codes.REPEATS, message, hint, outcome="truncated")
        hint = f"respond in fewer than {step.max_tokens} tokens, or raise `llm.max_tokens`"
        message = f"the response was cut off at {step.max_tokens} tokens"
        return _refuse(codes.TRUNCATED, message, hint, outcome="truncated")
    if not text.strip():
        return _refuse(codes.EMPTY, "the response is empty", _SOMETHING[step.returns], outcome="empty")
    if stop in ("end", "stop_sequence") or _is_whole(text, step, output):
        return None
    message, hint = "the response ended without a stop reason", "respond again, to the end"
    return _refuse(codes.TRUNCATED, message, hint, outcome="truncated")


_SOMETHING = {
    "files": "list each file in `writes`, in full",
    "edits": "respond with SEARCH/REPLACE blocks, the path of the file in the line before",
    "blocks": "respond with one fenced block per file, its path in the line before",
    "json": "respond with one JSON value",
    "text": "respond with the text of the file",
    "code": "respond with the whole file in one fenced code block",
}


def _is_whole(text: str, step: "LLMStep", output: str) -> bool:
    block = code_block_of(output, text) if step.returns == "code" and not is_only_thoughts(text) else None
    return block is not None and block.is_closed


def _judge_json(
    response: tuple[Json, Diagnostic | None],
    outputs: tuple[str, ...],
    scope: ProposalScope,
    validate: JsonValidator | None,
) -> Judgement:
    value, error = response
    if error is not None:
        return RefusedResponse("llm_output_invalid", "invalid", (error,))
    if (reason := stated_error(value)) is not None:
        return _model_error(reason)
    found = list(validate(value) if validate else ())
    output = _only(outputs)
    content = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return _conclude(_one_file(output, content, scope), [*found, *size_errors((ProposedFile(output, content),))])


def _judge_listed(envelope: FilesEnvelope, text: str, step: "LLMStep", scope: ProposalScope) -> Judgement:
    """Judge the files of a response. If it has none in the usual form, it may have another."""
    judged = _judge_files(normalize_envelope(envelope, scope), scope)
    paths = [one.path for one in envelope.files if is_path(one.path) and unsafe_reason(one.path) is None]
    names_files = not envelope.errors and (paths or envelope.deletes or envelope.stated_error is not None)
    if isinstance(judged, Proposal) or names_files or (read := _other_form("files", step)) is None:
        return judged
    try:
        other = read(text, only_elements=step.returns == "blocks")
    except AmbiguousFormError as error:
        return _ambiguous(judged, error)
    if other is None or (other.errors and {d.code for d in judged.diagnostics} != {codes.NOT_JSON}):
        return judged
    return _judge_files(normalize_envelope(other, scope), scope)


def _judge_value(text: str, step: "LLMStep", judge: Callable[[tuple[Json, Diagnostic | None]], Judgement]) -> Judgement:
    """Judge a response that is JSON. If it is refused, the value may have text around it, or be in a call of a tool."""
    value, error = parse_json_response(text, only_json=step.only_json)
    judged = judge((value, error))
    if isinstance(judged, Proposal) or (read := _other_form("json", step)) is None:
        return judged
    try:
        others = [judge((other, None)) for other in read(text) if other != value]
    except AmbiguousFormError as unclear:
        return judged if error is None else _ambiguous(judged, unclear)
    # The errors of a value say more than that it has text around it.
    refused = others[0] if error is not None and others else judged
    return next((one for one in others if isinstance(one, Proposal)), refused)


def _other_form(kind: str, step: "LLMStep") -> Callable[..., Any] | None:
    """Return what reads another form of a response; None if the stage takes only JSON, or the feature is not there."""
    from orch23.model.features import OTHER_FORMS, is_installed, load_feature  # noqa: PLC0415 - seldom needed

    return load_feature(OTHER_FORMS[kind]) if not step.only_json and is_installed(OTHER_FORMS[kind]) else None


def _ambiguous(judged: RefusedResponse, error: AmbiguousFormError) -> RefusedResponse:
    """Return a response refused with the reason why it was not read in another form."""
    first, reason = judged.diagnostics[0], f"may mean several things: {escape_text(str(error), 200)}"
    hint = "respond once, in one form, with nothing beside it"
    if first.code in (codes.NOT_JSON, codes.WRONG_SHAPE):
        return _refuse(first.code, f"{first.message}; or it {reason}", hint)
    return _refuse(codes.WRONG_SHAPE, f"the response {reason}", hint)


def _judge_files(envelope: FilesEnvelope, scope: ProposalScope, edits: EditedFiles | None = None) -> Judgement:
    """Judge files and deletes. With `edits`, only the text that these write counts for the limits of size."""
    if envelope.stated_error is not None:
        return _model_error(envelope.stated_error)
    found = [*envelope.errors]
    if not any((envelope.files, envelope.deletes, envelope.errors)):
        empty = Diagnostic(codes.EMPTY, "the response proposes no file", hint=_SOMETHING["files"])
        return RefusedResponse("llm_output_invalid", "empty", (empty,))
    of_paths = path_errors(tuple(file.path for file in envelope.files), envelope.deletes, scope)
    # A hint how to write a file would contradict that of its path.
    refused = {one.subject: one.hint for one in of_paths if one.code in _SCOPE}
    safe = tuple(file for file in envelope.files if unsafe_reason(file.path) is None)
    of_files = [*size_errors(envelope.files if edits is None else edits.written)]
    of_files += [error for file in safe for error in base_errors(file, scope)]
    of_files += content_errors(safe, scope, frozenset() if edits is None else edits.edited)
    found += of_paths + [replace(one, hint=refused.get(one.subject, one.hint)) for one in of_files]
    writes = (ProposedWrite(scope.project_path(file.path), file.content, file.base) for file in envelope.files)
    proposal = Proposal(
        envelope.summary,
        tuple(sorted(writes, key=lambda write: write.path)),
        tuple(sorted(map(scope.project_path, envelope.deletes))),
    )
    return _conclude(proposal, found)


def _keep(outputs: tuple[str, ...], scope: ProposalScope) -> Judgement:
    """Return a proposal of no file, if every output is there: the files stay, and are verified."""
    there = {path for path, text in scope.base.items() if text is not None} | scope.kept
    needed = [one for one in outputs if one not in scope.edits]
    absent = next((one for one in needed if not any(match_any((one,), path) for path in there)), "")
    if outputs and not absent:
        return Proposal("", ())
    message = "the response proposes no file" + (f", and `{absent}` does not exist" if absent else "")
    return _refuse(codes.EMPTY, message, "respond with each file, in full", outcome="empty")


def _judge_code(text: str, output: str, scope: ProposalScope) -> Judgement:
    # If the output is JSON, a block of JSON may be the file, and not an error that the model states.
    reason = stated_in(text) if text.lstrip().startswith("{") or not output.endswith(".json") else None
    if reason is not None:
        return _model_error(reason)
    block = None if is_only_thoughts(text) else code_block_of(output, text)
    if block is None and len(text) <= MAX_FILE_BYTES and not is_source(output, text):
        return _refuse(codes.NO_CODE, "the response has no code block", _SOMETHING["code"])
    if block is not None and output.lower().endswith(MARKDOWN) and block.language not in _MARKDOWN_BLOCKS:
        message = f"the code block is `{escape_text(block.language, 40)}`, and the file is Markdown"
        return _refuse(codes.NO_CODE, message, "put the whole file in one block: ````markdown, its text, ````")
    if block is not None and not block.text.strip():
        return _refuse(codes.EMPTY, "the code block is empty", _SOMETHING["code"], outcome="empty")
    return _judge_single(text if block is None else block.text, output, scope)


def _judge_single(text: str, output: str, scope: ProposalScope) -> Judgement:
    """Judge the one file of a stage. The pipeline names its path, so only the content is judged."""
    # It ends with exactly one newline, and has no carriage returns before newlines.
    content = text.replace("\r\n", "\n").strip("\n").rstrip() + "\n"
    entry = ProposedFile(output, content)
    found = [*size_errors((entry,)), *content_errors((entry,), replace(scope, cwd="."))]
    return _conclude(_one_file(output, content, scope), found)


def _one_file(output: str, content: str, scope: ProposalScope) -> Proposal:
    return Proposal("", (ProposedWrite(output, content, text_digest(scope.base.get(output))),))


def _conclude(proposal: Proposal, found: Iterable[Diagnostic]) -> Judgement:
    """Return the proposal if it has no error. A violation of the write scope decides its kind of failure."""
    diagnostics = _bounded(tuple(dict.fromkeys(found)))
    blocking = {d.code for d in errors(diagnostics)}
    if not blocking:
        return proposal
    if blocking & _SCOPE:
        return RefusedResponse("write_scope_violation", "invalid", diagnostics)
    is_stale = blocking == {codes.STALE_BASE}
    return RefusedResponse("stale_context" if is_stale else "llm_output_invalid", "invalid", diagnostics)


def _bounded(found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Limit the number of errors; at least one of each code is kept."""
    if len(found) <= _SHOWN:
        return found
    first = {d.code: d for d in reversed(found)}
    kept = set(tuple(dict.fromkeys((*first.values(), *found)))[: max(_SHOWN, len(first))])
    rest = f"{len(found) - len(kept)} more errors are not listed"
    return (*(d for d in found if d in kept), Diagnostic(found[-1].code, rest, hint="fix the listed ones first"))


def _model_error(reason: str) -> RefusedResponse:
    hint = "fix the spec, the write scope or the context: the same request gets the same response"
    return _refuse(codes.MODEL_ERROR, f"the model says: {_excerpt(reason)}", hint, kind="agent_error")


def _refuse(
    code: str,
    message: str,
    hint: str | None = None,
    *,
    outcome: ExchangeOutcome = "invalid",
    kind: FailureKind = "llm_output_invalid",
) -> RefusedResponse:
    return RefusedResponse(kind, outcome, (Diagnostic(code, message, hint=hint),))


def _only(outputs: tuple[str, ...]) -> str:
    if len(outputs) != 1 or outputs[0].endswith("/"):
        message = f"BUG: a response that is one file needs one literal output, not {outputs!r}"
        raise ValueError(message)
    return outputs[0]


def _excerpt(text: str) -> str:
    return escape_text(" ".join(text.split()), 200)
