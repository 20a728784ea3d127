"""What a request may not hold, where it is said to come from, and what of the project is in it."""

from collections.abc import Mapping

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.safeguards import guard_manifest
from orch23.attempt.sent_data import (
    TrackedText,
    author_files,
    guard_proposal,
    guard_request,
    sent_bytes,
    sent_files,
    track_reads,
    utf8_size,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_bytes
from orch23.model.llm import Message, Proposal, ProposedWrite, Request, RetryFeedback
from orch23.model.pipeline import Retry, Stage
from orch23.model.record import Facts
from orch23.resolve.prompt_inputs import AttemptContext, PromptInput
from orch23.resolve.prompts import make_request
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.llm.spec import LLMStep
from orch23.text.secrets import Secrets

KEY = "abcd-1234-efgh-5678"
SECRETS = Secrets({"MY_KEY": KEY})


class Files(Struct, frozen=True):
    """The author's files, as texts."""

    texts: Mapping[str, str] = field(default_factory=dict)

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        return self.texts.get(path), None


STEP = LLMStep(provider="command", model="m", prompt="p.j2")
EVERYTHING = (
    "{{ inputs | map(attribute='text') | join(' ') }}{{ own[0].text if own }}{{ previous or '' }}"
    "{{ brief.excerpt if brief else '' }}"
)


def given(path: str, text: str, part: str = "") -> PromptInput:
    return PromptInput(path, part, digest_bytes(text.encode()).sha256, lambda: text)


def guarded(
    step: LLMStep, files: Mapping[str, str], this: AttemptContext, *, retry: Retry | None = None, wire: Json = None
) -> tuple[Request, tuple[Diagnostic, ...], AttemptContext]:
    """Make the request of a round and hold it to the secrets."""
    stage, sources, this = Stage(name="code", step=step, retry=retry or Retry()), Files(files), track_reads(this)
    request, problems = make_request(stage, step, this, sources, {})
    assert request is not None, problems
    request = replace(request, endpoint="e", params={"max_tokens": 1}, schema=wire)
    return (*guard_request(SECRETS, request, stage, this, sources), this)


def places(*texts: object, **more: object) -> list[str]:
    _, problems, _ = guarded(*texts, **more)  # type: ignore[arg-type] # as `guarded` takes them
    assert all(one.code == "E601" and KEY not in str(one) and one.hint for one in problems)
    assert all("MY_KEY" in one.message for one in problems)
    return [one.subject or "" for one in problems]


def test_a_request_without_secrets_is_the_request() -> None:
    request, problems, _ = guarded(STEP, {"p.j2": "hello"}, AttemptContext(model="m"))
    assert problems == ()
    assert request.messages == (Message("user", "hello"),)


def test_every_place_that_a_secret_comes_from_is_named_with_its_line() -> None:
    this = AttemptContext(
        model="m",
        given=(given("specs/a.md", f"one\ntwo {KEY}\n"), given("fine.md", "fine")),
        own=(given("src/b.py", f"\n\nK = '{KEY}'\n"),),
        previous=f"x\n{KEY}",
        feedback=RetryFeedback(kind="verify_failed", excerpt=f"\n\n\n{KEY}"),
    )
    files = {"p.j2": f"{EVERYTHING}\n{KEY}", "s.j2": f"{KEY}\n"}
    assert places(replace(STEP, system="s.j2"), files, this) == [
        "p.j2:2", "s.j2:1", "specs/a.md:2", "src/b.py:3",
        "the previous answer, line 2", "the report of the failed attempt, line 4",
    ]  # fmt: skip


def test_of_a_slice_the_line_is_that_of_the_file() -> None:
    text = f"# B\nuse {KEY}\n"
    files = {"p.j2": "{{ inputs[0].text }}", "specs/a.md": f"# A\nfine\n\n{text}# C\n"}
    assert places(STEP, files, AttemptContext(model="m", given=(given("specs/a.md", text, "B"),))) == ["specs/a.md:5"]
    del files["specs/a.md"]
    assert places(STEP, files, AttemptContext(model="m", given=(given("specs/a.md", text, "B"),))) == [
        "specs/a.md#B, line 2"
    ]


def test_secrets_in_inputs_that_the_prompt_does_not_show_are_ignored() -> None:
    this = AttemptContext(model="m", given=(given("specs/a.md", KEY),), previous=KEY)
    assert guarded(STEP, {"p.j2": "{{ inputs[0].path }}"}, this)[1] == ()


def test_where_only_the_rendering_makes_the_secret_the_rendered_line_is_named() -> None:
    files = {"p.j2": f"one\n{{{{ '{KEY[:9]}' ~ '{KEY[9:]}' }}}}"}
    assert places(STEP, files, AttemptContext(model="m")) == ["the rendered prompt, line 2"]


def test_the_prompt_of_a_retry_and_the_schema_are_checked() -> None:
    files = {"p.j2": "fine", "r.j2": KEY, "s.json": f'{{"title": "{KEY}"}}'}
    again = AttemptContext(model="m", attempt=2, feedback=RetryFeedback(kind="verify_failed"))
    assert places(STEP, files, again, retry=Retry(prompt="r.j2")) == ["r.j2:1"]
    assert places(replace(STEP, schema="s.json"), files, AttemptContext(model="m"), wire={"title": KEY}) == ["s.json:1"]


def test_a_secret_in_the_endpoint_or_the_parameters_is_refused_even_where_prompts_are_redacted() -> None:
    request, _, this = guarded(STEP, {"p.j2": "fine"}, AttemptContext(model="m"))
    stage = Stage(name="code", step=replace(STEP, secrets="redact"))
    for changed in (replace(request, endpoint=f"https://h/?k={KEY}"), replace(request, params={"stop": KEY})):
        (problem,) = guard_request(SECRETS, changed, stage, this, Files())[1]
        assert problem.code == "E602"


def test_redact_sends_another_request_of_another_fingerprint() -> None:
    this = AttemptContext(model="m", given=(given("specs/a.md", f"use {KEY}."),))
    files = {"p.j2": "{{ inputs[0].text }} or {{ inputs[0].text }}", "s.j2": KEY}
    step = replace(STEP, system="s.j2", secrets="redact")
    request, problems, _ = guarded(step, files, this, wire={"title": [KEY]})
    assert problems == ()
    assert request.messages[0].content == "use [redacted MY_KEY]. or use [redacted MY_KEY]."
    assert (request.identity, request.system) == (request.messages, "[redacted MY_KEY]")
    assert request.schema == {"title": ["[redacted MY_KEY]"]}
    same, _, _ = guarded(step, {**files, "s.j2": "[redacted MY_KEY]"}, this, wire=request.schema)
    assert same.fingerprint() == request.fingerprint()


def test_redact_keeps_a_secret_out_of_the_identity_of_a_system_prompt() -> None:
    """It is recorded with the exchange, which may be committed."""
    this = AttemptContext(model="m", given=(given("a.md", f"use {KEY}."), given("b.md", "b")))
    step = replace(STEP, system="s.j2", secrets="redact")
    request, problems, _ = guarded(step, {"p.j2": "fine", "s.j2": "{{ inputs | blocks }}"}, this)
    assert problems == ()
    assert request.system_identity is not None
    assert "use [redacted MY_KEY]." in request.system_identity
    assert KEY not in request.system_identity
    only = replace(request, system_identity=KEY)
    stage = Stage(name="code", step=replace(step, secrets="refuse"))
    (problem,) = guard_request(SECRETS, only, stage, this, Files({"p.j2": "fine", "s.j2": "fine"}))[1]
    assert problem.code == "E601"


@pytest.mark.parametrize(
    ("stable", "left"), [(8, 8), (len(f"the key {KEY}"), len("the key [redacted MY_KEY]")), (12, 0)]
)
def test_redacted_requests_keep_the_length_of_their_stable_head(stable: int, left: int) -> None:
    request, _, this = guarded(replace(STEP, secrets="redact"), {"p.j2": "fine"}, AttemptContext(model="m"))
    held = replace(request, messages=(Message("user", f"the key {KEY} is it"),), stable=stable)
    changed, _ = guard_request(SECRETS, held, Stage(name="code", step=replace(STEP, secrets="redact")), this, Files())
    assert changed.stable == left


def test_a_manifest_with_a_secret_is_refused_by_its_part() -> None:
    stage = Stage(name="s", step=STEP)
    manifest: dict[str, Json] = {"env:A": "x", "env:B": [KEY], "command": ["curl", KEY], f"input:{KEY}": "0"}
    resolved = ResolvedStage(
        stage=stage,
        manifest=manifest,
        key="",
        core="",
        identity="",
        facts=Facts(),
        files={},
        base={},
        verify_files={},
        given=(),
    )
    problems = guard_manifest(SECRETS, resolved)
    assert [(one.code, one.subject) for one in problems] == [("E602", "env"), ("E602", "command"), ("E602", "input")]
    assert KEY not in "".join(map(str, problems))


def test_a_proposal_that_a_secret_was_taken_out_of_is_not_taken_as_it_is() -> None:
    mark = "[redacted MY_KEY]"
    proposal = Proposal("s", (ProposedWrite("a.py", f"K = '{mark}'\n"), ProposedWrite("b.py", f"{mark}\n")))
    (problem,) = guard_proposal(SECRETS, proposal, {"b.py": f"{mark}\n"})
    assert (problem.code, problem.subject) == ("E603", "a.py")
    assert guard_proposal(Secrets(), Proposal("s", (ProposedWrite("a", "[redacted by law]"),)), {}) == ()
    (named,) = guard_proposal(SECRETS, Proposal("s", (ProposedWrite(f"out/{mark}.py", "x = 1\n"),)), {})
    assert named.code == "E603"


def test_the_egress_manifest_lists_what_the_prompt_has_read_and_no_more() -> None:
    inputs = (
        given("specs/a.md", "\u00e4bc", "Part"),
        given("unread.md", "never"),
        given("docs/**", "docs/x\n", "list"),
    )
    this = AttemptContext(
        model="m",
        given=inputs,
        own=(given("src/b.py", "B = 1\n"),),
        previous="12345",
        feedback=RetryFeedback(kind="x", excerpt="\u00e4"),
    )
    step = replace(STEP, system="s.j2", schema="o.json")
    files = {
        "p.j2": "{{ inputs[0].text }}{{ inputs[1].digest }}{{ inputs[2].text }}{{ own[0].text if own }}",
        "s.j2": "system",
        "o.json": "{}",
    }
    request, problems, this = guarded(step, files, this, wire={"type": "object"})
    assert problems == ()
    sent = sent_files(author_files(Stage(name="s", step=step), this), this, Files(files))
    assert [(one.path, one.slice, one.bytes) for one in sent] == [
        ("specs/a.md", "Part", 4), ("docs/**", "list", 7), ("src/b.py", "", 6), ("p.j2", "", len(files["p.j2"])),
        ("s.j2", "", 6), ("o.json", "", 2),
    ]  # fmt: skip
    assert sent[0].sha256 == digest_bytes("\u00e4bc".encode()).sha256
    assert sent_bytes(request) == len(request.messages[0].content.encode()) + len("system") + len('{"type":"object"}')
    assert [utf8_size(text) for text in ("12345", "\u00e4")] == [5, 2]


def test_a_text_is_read_once_and_only_on_demand() -> None:
    texts = iter(("text",))
    reading = TrackedText(lambda: next(texts))
    untouched = reading.text
    assert (untouched, reading(), reading(), reading.text) == (None, "text", "text", "text")
