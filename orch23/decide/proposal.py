"""Judge an answer: make a proposal of it, or say all that is wrong with it, so that one revision can mend it all.

Pure: nothing is written or read here. What the files of the room were, the caller says.
"""

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from orch23.decide import proposal_codes as codes
from orch23.decide.proposal_elision import lost_names, placeholders, syntax_fault, top_level_names
from orch23.decide.proposal_envelope import Entry, Envelope, first_block, read_envelope, read_json, stated_error
from orch23.decide.protected import admits, is_protected
from orch23.model.diagnostic import Diagnostic, errors
from orch23.model.digest import Json, digest_bytes
from orch23.model.llm import ExchangeOutcome, Judgement, Proposal, ProposedWrite, Refused, StopReason
from orch23.model.paths import match_any, unsafe_reason
from orch23.model.pipeline import FailureKind, Fence, LLMStep

MAX_FILE_BYTES = 200_000
MAX_TOTAL_BYTES = 500_000
_SHOWN_PLACEHOLDERS = 5  # of one file; more would only repeat the first

_SCOPE = frozenset({codes.OUTSIDE_FENCE, codes.UNSAFE_PATH, codes.PROTECTED, codes.DELETE})
_STALE = frozenset({codes.STALE_BASE, codes.NOT_SHOWN})

Validate: TypeAlias = Callable[[Json], tuple[Diagnostic, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """What the paths and contents of an answer are held to; `base` and `hidden` are relative to the root."""

    cwd: str
    fence: Fence
    base: Mapping[str, str | None]
    hidden: AbstractSet[str]
    protected: tuple[str, ...]

    def full(self, path: str) -> str:
        return path if self.cwd in ("", ".") else f"{self.cwd.rstrip('/')}/{path}"


def judge_answer(  # noqa: PLR0913 - all of it decides, and all but the answer is by name
    text: str,
    stop: StopReason,
    *,
    step: LLMStep,
    cwd: str,
    fence: Fence,
    outputs: tuple[str, ...],
    base: Mapping[str, str | None],
    validate: Validate | None = None,
    hidden: AbstractSet[str] = frozenset(),
    protected: tuple[str, ...] = (),
) -> Judgement:
    """Return what an answer proposes, or why it is refused.

    `base` maps a path to the text of the file as the model was shown it, None where it does not exist. `hidden` are
    existing files that the model was not shown. `protected` are patterns of protected files besides the names that
    always are: the pipeline and its prompts. `validate` judges the JSON value by the step's schema. All paths but
    those in the answer are relative to the root; those in the answer to `cwd`.
    """
    ended = _judge_stop(text, stop, step)
    if ended is not None:
        return ended
    scope = _Scope(cwd=cwd, fence=fence, base=base, hidden=hidden, protected=protected)
    match step.returns:
        case "files":
            return _judge_files(text, scope, validate)
        case "json":
            return _judge_json(text, _only(outputs), scope, validate)
        case "text":
            return _judge_single(_one_newline(text), _only(outputs), scope)
        case "code":
            return _judge_code(text, _only(outputs), scope)
        case _:
            assert_never(step.returns)


def _judge_stop(text: str, stop: StopReason, step: LLMStep) -> Refused | None:
    """Refuse an answer by how it ended. A code block that is closed is complete, whatever chatter was cut off."""
    if stop == "refusal":
        message = f"the model refused to answer: {_excerpt(text)}" if text.strip() else "the model refused to answer"
        return _refuse(codes.REFUSED, message, outcome="refused", kind="agent_error")
    if not text.strip():
        return _refuse(codes.EMPTY, "the model answered nothing", outcome="empty")
    if stop in ("end", "stop_sequence"):
        return None
    block = first_block(text) if step.returns == "code" else None
    if block is not None and block.closed:
        return None
    if stop == "max_tokens":
        hint = f"answer in fewer than {step.max_tokens} tokens, or raise `llm.max_tokens`"
        return _refuse(
            codes.TRUNCATED, f"the answer was cut off at {step.max_tokens} tokens", hint, outcome="truncated"
        )
    return _refuse(codes.TRUNCATED, "the answer ended without saying that it was done", outcome="truncated")


def _judge_files(text: str, scope: _Scope, validate: Validate | None) -> Judgement:
    value, fault = read_json(text)
    if fault is not None:
        return Refused("llm_output_invalid", "invalid", (fault,))
    reason = stated_error(value)
    if reason is not None:
        return _refuse(codes.AGENT_ERROR, f"the model says: {_excerpt(reason)}", kind="agent_error")
    envelope = read_envelope(value)
    found = [*envelope.faults, *(validate(value) if validate else ())]
    if not envelope.entries and not envelope.deletes and not envelope.faults:
        empty = Diagnostic(codes.EMPTY, "the answer proposes no file", hint="list each file in `writes`, in full")
        return Refused("llm_output_invalid", "empty", (*found, empty))
    found += _path_faults(envelope, scope)
    safe = [e for e in envelope.entries if unsafe_reason(e.path) is None]
    found += _size_faults(envelope.entries)
    found += [d for e in safe for d in (*_base_faults(e, scope), *_content_faults(e, scope, safe))]
    return _conclude(_proposal(envelope, scope), found)


def _judge_json(text: str, output: str, scope: _Scope, validate: Validate | None) -> Judgement:
    value, fault = read_json(text)
    if fault is not None:
        return Refused("llm_output_invalid", "invalid", (fault,))
    reason = stated_error(value)
    if reason is not None:
        return _refuse(codes.AGENT_ERROR, f"the model says: {_excerpt(reason)}", kind="agent_error")
    found = list(validate(value) if validate else ())
    content = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    found += _size_faults((Entry(output, content),))
    return _conclude(Proposal("", (ProposedWrite(output, content, _digest(scope.base.get(output))),)), found)


def _judge_code(text: str, output: str, scope: _Scope) -> Judgement:
    value, fault = read_json(text) if text.lstrip().startswith("{") else (None, None)
    reason = None if fault else stated_error(value)
    if reason is not None:
        return _refuse(codes.AGENT_ERROR, f"the model says: {_excerpt(reason)}", kind="agent_error")
    block = first_block(text)
    if block is not None:
        if not block.text.strip():
            return _refuse(codes.EMPTY, "the code block is empty", outcome="empty")
        return _judge_single(_one_newline(block.text), output, scope)
    if output.endswith(".py") and syntax_fault(text) is None:
        return _judge_single(_one_newline(text), output, scope)
    return _refuse(codes.NO_CODE, "the answer has no code block", "answer with one code block: ```python ... ```")


def _judge_single(content: str, output: str, scope: _Scope) -> Judgement:
    """Judge the one file of a stage whose path its author has typed: only the content is in question."""
    entry = Entry(output, content)
    at_root = replace(scope, cwd=".")
    found = [*_size_faults((entry,)), *_content_faults(entry, at_root, (entry,))]
    return _conclude(Proposal("", (ProposedWrite(output, content, _digest(scope.base.get(output))),)), found)


def _proposal(envelope: Envelope, scope: _Scope) -> Proposal:
    writes = tuple(
        sorted((ProposedWrite(scope.full(e.path), e.content, e.base) for e in envelope.entries), key=lambda w: w.path)
    )
    return Proposal(envelope.summary, writes, tuple(sorted(scope.full(path) for path in envelope.deletes)))


# ---- paths ------------------------------------------------------------------------------------


def _path_faults(envelope: Envelope, scope: _Scope) -> list[Diagnostic]:
    written = [entry.path for entry in envelope.entries]
    found = [_unsafe(path) for path in (*written, *envelope.deletes) if unsafe_reason(path) is not None]
    found += _duplicates((*written, *envelope.deletes))
    safe = [path for path in written if unsafe_reason(path) is None]
    found += _nested(safe, envelope.deletes, scope)
    for path in safe:
        found += _write_faults(path, scope)
    for path in envelope.deletes:
        if unsafe_reason(path) is None:
            found += _delete_faults(path, scope)
    return found


def _unsafe(path: str) -> Diagnostic:
    return Diagnostic(codes.UNSAFE_PATH, f"the path {unsafe_reason(path)}", subject=_shown(path))


def _duplicates(paths: Iterable[str]) -> list[Diagnostic]:
    """Find paths that some disk takes for one: equal after NFC and case-folding."""
    seen: dict[str, str] = {}
    found: list[Diagnostic] = []
    for path in paths:
        first = seen.get(_fold(path))
        if first is not None:
            like = "is there twice" if first == path else f"is the same file as {_shown(first)} on many disks"
            found.append(Diagnostic(codes.DUPLICATE_PATH, like, subject=_shown(path), hint="name each file once"))
        seen[_fold(path)] = path
    return found


def _nested(paths: list[str], deletes: tuple[str, ...], scope: _Scope) -> list[Diagnostic]:
    """Find paths that would have to be a file and a directory, among the proposed and against the existing files."""
    gone = {scope.full(path) for path in deletes}
    existing = {path for path, text in scope.base.items() if text is not None} | set(scope.hidden)
    full = {scope.full(path) for path in paths}
    files = {_fold(path): path for path in (*sorted(existing - gone), *sorted(full))}
    found: list[Diagnostic] = []
    for path in sorted({*files.values()}):
        for above in _parents(path):
            file = files.get(_fold(above))
            if file is not None and (path in full or file in full):
                message = f"is a file, and a directory for {_shown(path)}"
                found.append(Diagnostic(codes.FILE_AND_DIRECTORY, message, subject=_shown(file)))
    return found


def _write_faults(path: str, scope: _Scope) -> list[Diagnostic]:
    full = scope.full(path)
    if match_any(scope.fence.protect, full):
        return [Diagnostic(codes.OUTSIDE_FENCE, "is protected by `allowed_paths.protect`", subject=full)]
    if admits(scope.fence.write, full, scope.protected):
        return []
    if is_protected(full, scope.protected) and match_any(scope.fence.write, full):
        hint = "only a literal entry of `allowed_paths.write` or `outputs` admits it"
        return [Diagnostic(codes.PROTECTED, "is a protected file", subject=full, hint=hint)]
    hint = f"allowed are: {', '.join(scope.fence.write) or 'none'}"
    if scope.cwd not in ("", ".") and admits(scope.fence.write, path, scope.protected):
        short = path.removeprefix(f"{scope.cwd.rstrip('/')}/")
        hint = f"paths are relative to `{scope.cwd}`: did you mean `{short}`?"
    return [Diagnostic(codes.OUTSIDE_FENCE, "is outside the fence", subject=full, hint=hint)]


def _delete_faults(path: str, scope: _Scope) -> list[Diagnostic]:
    full = scope.full(path)
    if match_any(scope.fence.protect, full):
        return [Diagnostic(codes.OUTSIDE_FENCE, "is protected by `allowed_paths.protect`", subject=full)]
    if not admits(scope.fence.delete, full, scope.protected):
        return [Diagnostic(codes.DELETE, "may not be deleted", subject=full, hint="leave it out of `deletes`")]
    if full not in scope.hidden and scope.base.get(full) is None:
        return [Diagnostic(codes.DELETE, "cannot be deleted: it does not exist", subject=full)]
    return []


# ---- contents ---------------------------------------------------------------------------------


def _size_faults(entries: Iterable[Entry]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    total = 0
    for entry in entries:
        size = len(entry.content.encode("utf-8", "surrogatepass"))
        total += size
        if size > MAX_FILE_BYTES:
            message = f"has {size:,} bytes, over the {MAX_FILE_BYTES:,} a file may have"
            found.append(Diagnostic(codes.TOO_LARGE, message, subject=_shown(entry.path)))
    if total > MAX_TOTAL_BYTES:
        found.append(Diagnostic(codes.TOO_LARGE, f"{total:,} bytes in all, over the {MAX_TOTAL_BYTES:,} allowed"))
    return found


def _base_faults(entry: Entry, scope: _Scope) -> list[Diagnostic]:
    full = scope.full(entry.path)
    if full in scope.hidden:
        return [Diagnostic(codes.NOT_SHOWN, "exists, but was not shown", subject=full, hint="do not replace it unseen")]
    if entry.base == "":
        return []
    shown = _digest(scope.base.get(full))
    if entry.base is None and shown is not None:
        return [Diagnostic(codes.STALE_BASE, "was proposed as a new file, but it exists", subject=full)]
    if entry.base is not None and entry.base.lower() != shown:
        message = "was proposed for other bytes than those shown" if shown else "was proposed as a change, but is new"
        hint = f"its base_sha256 is {shown or 'null'}"
        return [Diagnostic(codes.STALE_BASE, message, subject=full, hint=hint)]
    return []


def _content_faults(entry: Entry, scope: _Scope, entries: Iterable[Entry]) -> list[Diagnostic]:
    full = scope.full(entry.path)
    base = scope.base.get(full)
    if "\0" in entry.content or any("\ud800" <= c <= "\udfff" for c in entry.content):
        return [Diagnostic(codes.BAD_TEXT, "holds a character that no text file has", subject=full)]
    found = [
        Diagnostic(
            codes.ELIDED,
            f"line {line} stands for text that is left out: {_excerpt(text)}",
            subject=full,
            hint="write the whole file",
        )
        for line, text in placeholders(entry.content, base)[:_SHOWN_PLACEHOLDERS]
    ]
    if full.endswith((".py", ".pyi")):
        found += _python_faults(entry, full, base, entries)
    return found


def _python_faults(entry: Entry, full: str, base: str | None, entries: Iterable[Entry]) -> list[Diagnostic]:
    fault = syntax_fault(entry.content)
    if fault is not None:
        if base is not None and syntax_fault(base) is not None:
            return []  # it was no Python of ours before: a template, or another version's syntax
        line, message = fault
        return [Diagnostic(codes.UNPARSABLE, f"line {line}: {message}", subject=full)]
    if base is None:
        return []
    others = [top_level_names(e.content) for e in entries if e is not entry and e.path.endswith((".py", ".pyi"))]
    lost = lost_names(entry.content, base, frozenset().union(*others))
    if not lost:
        return []
    message = f"is much shorter than before and no longer defines {', '.join(lost[:8])}"
    return [Diagnostic(codes.NAMES_LOST, message, subject=full, hint="write the whole file")]


# ---- conclusions ------------------------------------------------------------------------------


def _conclude(proposal: Proposal, found: Iterable[Diagnostic]) -> Judgement:
    """Return the proposal if nothing blocks it. Of mixed failures the kind is the one that weighs most."""
    diagnostics = tuple(dict.fromkeys(found))
    blocking = {d.code for d in errors(diagnostics)}
    if not blocking:
        return proposal
    kind: FailureKind = "llm_output_invalid"
    if blocking & _SCOPE:
        kind = "write_scope_violation"
    elif blocking <= _STALE:
        kind = "stale_context"
    return Refused(kind, "invalid", diagnostics)


def _refuse(
    code: str,
    message: str,
    hint: str | None = None,
    *,
    outcome: ExchangeOutcome = "invalid",
    kind: FailureKind = "llm_output_invalid",
) -> Refused:
    return Refused(kind, outcome, (Diagnostic(code, message, hint=hint),))


def _only(outputs: tuple[str, ...]) -> str:
    if len(outputs) != 1 or outputs[0].endswith("/"):
        message = f"BUG: an answer that is one file needs one literal output, not {outputs!r}"
        raise ValueError(message)
    return outputs[0]


def _one_newline(text: str) -> str:
    """End a text with exactly one newline; carriage returns before newlines go."""
    return text.replace("\r\n", "\n").strip("\n").rstrip() + "\n"


def _digest(text: str | None) -> str | None:
    return None if text is None else digest_bytes(text.encode("utf-8", "surrogatepass")).sha256


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _parents(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


def _excerpt(text: str) -> str:
    return _shown(" ".join(text.split()), 200)


def _shown(text: str, limit: int = 120) -> str:
    """Give a text from outside as it may be printed: escaped and bounded."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return plain if len(plain) <= limit else f"{plain[:limit]}..."
