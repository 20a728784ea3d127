"""The attempts of a stage, and their texts: prompt, response, failed tests, differences, also of outputs."""

from collections.abc import Callable, Sequence
from difflib import unified_diff
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from orch23.features.pages.html.page import AttemptView, Badge, Row
from orch23.features.pages.html.texts import LongText, TextReader
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.event import LlmResponse
from orch23.model.ports import ContentStore, ResultIndex
from orch23.model.record import Record
from orch23.model.run_facts import AttemptFacts, CallFacts, StageFacts
from orch23.model.text import format_duration, format_money, parse_amount, shorten_command
from orch23.report.values import pluralize
from orch23.resolve.commands import typed_command

_MAX_BYTES = 400_000
_MAX_LINES = 400
_MAX_FILES = 40


class ChangeReader(Struct, frozen=True):
    """Compares the outputs of a result with the files that the stage started from, or with its result before."""

    records: ResultIndex
    contents: ContentStore

    def changes(self, stage: str, key: str) -> tuple[LongText, ...]:
        """Return the diff of each output of the newest record with a key, or why there is none."""
        record = next(iter(self.records.by_key(key)), None)
        if record is None:
            return ()
        paths = [*record.outputs]
        found = (self._change(stage, record, path) for path in paths[:_MAX_FILES])
        changes = tuple(one for one in found if one is not None)
        more = len(paths) - _MAX_FILES
        return (*changes, LongText(title=f"{more} more files", text="not shown")) if more > 0 else changes

    def _change(self, stage: str, record: Record, path: str) -> LongText | None:
        now = record.outputs[path]
        before = record.start_of(path) or self._earlier(stage, record, path)
        if before == now:
            return None
        if max(now.digest.size_bytes, before.digest.size_bytes if before else 0) > _MAX_BYTES:
            return LongText(title=path, text=f"{now.digest.size_bytes:,} bytes: too long to compare")
        then, text = self._text(before), self._text(now)
        if then is None or text is None:
            return LongText(title=path, text="its bytes are no longer in the store")
        if "\0" in then or "\0" in text:
            return LongText(title=path, text=f"binary file of {now.digest.size_bytes:,} bytes")
        diff = text_difference(then, text, "before", "after")
        return LongText(title=path, text=diff, is_diff=bool(diff))

    def _earlier(self, stage: str, record: Record, path: str) -> FileEntry | None:
        """Return the output at a path of the newest record of the stage that is older than this one."""
        older = False
        for one in self.records.labelled(stage):
            if older and one.outputs.get(path) is not None:
                return one.outputs[path]
            older = older or one == record
        return None

    def _text(self, entry: FileEntry | None) -> str | None:
        if entry is None:
            return ""
        try:
            return self.contents.get(entry.digest).decode("utf-8", errors="replace")
        except MissingBytesError:
            return None


Changes = Callable[[str, str], tuple[LongText, ...]]
"""Returns what a stage with a key changed."""


def text_difference(then: str, now: str, old: str, new: str) -> str:
    """Return a unified diff of two texts with these names, at most 400 lines of it."""
    lines = unified_diff(then.splitlines(), now.splitlines(), old, new, lineterm="")
    shown = list(islice(lines, _MAX_LINES))
    more = sum(1 for _ in lines)
    return "\n".join([*shown, *([f"... {more:,} more lines"] if more else [])])


_DIGITS = 16
_MAX_FAILING = 50
_MAX_PRINTED = 12
_FIRST = (("prompt.txt", "Prompt"), ("response.txt", "Response"))


def attempt_texts(stage: StageFacts, read: TextReader, limit: int, *, brief: bool = False) -> dict[int, list[LongText]]:
    """Return the texts of each attempt, at least `limit` characters of each. Deleted files are left out.

    With `brief`, an attempt that passed has only prompt and response.
    """

    def kept(number: int, names: Sequence[tuple[str, str]]) -> list[LongText]:
        files = ((title, read(stage.name, number, name, limit)) for name, title in names)
        return [replace(file, title=title) for title, file in files if file is not None and file.text.strip()]

    found: dict[int, list[LongText]] = {}
    former = ""
    for number, attempt in sorted(stage.attempts.items()):
        texts = kept(number, _FIRST)
        response = next((one for one in texts if one.title == "Response"), None)
        is_brief = brief and attempt.ended is not None and attempt.ended.passed
        if response is not None:
            if former and not is_brief:
                diff = text_difference(former, response.text, "attempt before", "this attempt")
                texts.append(LongText(title="Response, compared", text=diff, is_diff=True))
            former = response.text
        excerpt = attempt.ended.excerpt if attempt.ended is not None else ""
        texts += [LongText(title="Failure", text=excerpt)] if excerpt else []
        printed = [("output.txt", "Output of the step")]
        printed += [(one.printed, f"Output of {one.step}") for one in attempt.checks if one.printed]
        texts += [] if is_brief else kept(number, printed[:_MAX_PRINTED])
        found[number] = texts
    return found


def attempt_view(attempt: AttemptFacts, texts: Sequence[LongText]) -> AttemptView:
    """Return an attempt as the page shows it."""
    ended = attempt.ended
    if ended is None:
        badge, summary = Badge("not finished", "…", "active"), "it has not come to its end"
    elif ended.passed:
        badge, summary = Badge("passed", "✔", "good"), ""
    else:
        badge, summary = Badge("failed", "✘", "bad"), _reason(attempt)
    return AttemptView(
        number=attempt.number,
        badge=badge,
        summary=summary,
        facts=(*_times(attempt), *_checks(attempt), *(row for call in attempt.calls for row in _call(call))),
        failing=first_failing(ended.failing if ended is not None else (), _MAX_FAILING),
        texts=tuple(texts),
    )


def first_failing(tests: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the first of some failed tests, and how many more there are."""
    more = len(tests) - most
    return (*tests[:most], *([f"and {more:,} more"] if more > 0 else []))


def _reason(attempt: AttemptFacts) -> str:
    first = attempt.message.partition("\n")[0]
    return first.removeprefix(f"attempt {attempt.number} failed: ")


def _times(attempt: AttemptFacts) -> list[Row]:
    rows = []
    if attempt.end_s is not None:
        rows.append(Row("time", format_duration(attempt.end_s - attempt.start_s)))
    ended = attempt.ended
    if ended is not None and not ended.passed and ended.command:
        code = "" if ended.exit_code is None else f" (exit status {ended.exit_code})"
        rows.append(Row("command", f"{shown_command(ended.command)}{code}"))
    return rows


def shown_command(command: str) -> str:
    """Return a command as the pipeline has it, in one line."""
    return shorten_command(typed_command(command))


def _checks(attempt: AttemptFacts) -> list[Row]:
    steps = [f"{one.step} {'passed' if one.passed else 'failed'}" for one in attempt.checks]
    return [Row("verified by", ", ".join(steps))] if steps else []


def _call(call: CallFacts) -> list[Row]:
    request, response = call.request, call.response
    model = " ".join(filter(None, (request.provider, request.model)))
    files = f"{pluralize(len(request.files), 'file')}, " if request.files else ""
    rows = [Row("model", f"{model} at {request.endpoint}" if request.endpoint not in ("", request.provider) else model)]
    rows.append(Row("in the prompt", f"{files}{request.bytes + request.previous_bytes + request.brief_bytes:,} bytes"))
    if response is None:
        return [*rows, Row("response", "none"), Row("fingerprint", request.fingerprint[:_DIGITS])]
    tokens = f"{response.input_tokens:,}+{response.output_tokens:,}"
    if response.cache_read_tokens or response.cache_write_tokens:
        tokens += (
            f" ({response.cache_read_tokens:,} read from and {response.cache_write_tokens:,} written to its cache)"
        )
    rows += [Row("tokens", tokens)] if response.input_tokens or response.output_tokens else []
    rows.append(Row("response", _paid(call, response)))
    return [*rows, Row("fingerprint", request.fingerprint[:_DIGITS])]


def _paid(call: CallFacts, response: LlmResponse) -> str:
    amount = parse_amount(response.cost)
    money = "price unknown" if amount is None else format_money(amount)
    origin = f", from {response.provenance}" if response.provenance else ""
    fallback = ", of a fallback" if response.fallback else ""
    if response.replayed:
        return f"recorded{origin}{fallback}" + (f", was paid before: {money}" if amount else "")
    seconds = call.end_s
    time = "" if seconds is None else f", after {format_duration(seconds - call.start_s)}"
    return f"{payment(response)}{f': {money}' if amount or amount is None else ''}{origin}{fallback}{time}"


def payment(response: LlmResponse) -> str:
    """Return who paid for a response."""
    if response.replayed:
        return "recorded"
    amount = parse_amount(response.cost)
    return "received in this run, free" if amount is not None and not amount else "paid in this run"
