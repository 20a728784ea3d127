"""How much of a prompt stays the same: what a provider may keep between the attempts of a stage."""

from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request, RetryFeedback
from orch23.model.pipeline import Item, Retry, Stage
from orch23.resolve.prompt_inputs import AttemptContext, PromptInput
from orch23.resolve.prompts import make_request
from orch23.steps.llm.spec import LLMStep

PROMPT = """\
Do it.
{% for input in inputs %}{{ input.path }}:
{{ input.text }}
{% endfor %}
{%- if brief %}It failed: {{ brief.excerpt }}
{{ previous }}
{% endif %}Now answer.
"""
BRIEF = RetryFeedback(kind="verify_failed", command="pytest", exit_code=1, excerpt="assert 1 == 2")


class Files:
    """Prompts by path."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        return self.texts[path], None


def given(path: str, text: str, *, base: bool = False) -> PromptInput:
    return PromptInput(path, "", "", lambda: text, base=base)


SPEC = given("spec.md", "the spec")


def ask(
    this: AttemptContext, prompt: str = PROMPT, *, retry: Retry | None = None, item: Item | None = None, **more
) -> Request:
    step = LLMStep(provider="anthropic", model="m", prompt="p")
    stage = Stage(name="code", step=step, retry=retry or Retry(max=2), item=item)
    request, problems = make_request(stage, step, this, Files(p=prompt, **more), {})
    assert request is not None, problems
    return request


def shared(request: Request) -> str:
    return request.messages[0].content[: request.stable]


def first(**more) -> AttemptContext:
    return AttemptContext(**{"model": "m", "given": (SPEC,), **more})


def later(attempt: int = 2, **more) -> AttemptContext:
    return first(attempt=attempt, feedback=BRIEF, previous="my answer", **more)


def test_lines_before_the_feedback_are_shared_by_all_attempts() -> None:
    one, two, three = ask(first()), ask(later()), ask(later(3))
    assert shared(one) == shared(two) == shared(three) == "Do it.\nspec.md:\nthe spec\n"
    assert "It failed" in two.messages[0].content


def test_feedback_at_the_end_leaves_all_lines_before_it() -> None:
    prompt = "Do it.\nAll of it.\n{% if brief %}{{ brief.excerpt }}{% endif %}"
    assert shared(ask(first(), prompt)) == "Do it.\nAll of it.\n" == shared(ask(later(), prompt))


@pytest.mark.parametrize("files", [(), (given("a.py", "x = 2", base=True),)])
def test_blanks_where_the_feedback_will_be_end_no_attempts_part(files: tuple[PromptInput, ...]) -> None:
    """The end of a first prompt is blank. Another attempt has feedback there, with files of its own or not."""
    prompt = "Do it.\n{{ inputs | blocks }}\n{% if brief %}{{ brief.excerpt }}{% endif %}\n"
    start, after = ask(first(), prompt), ask(later(given=(SPEC, *files)), prompt)
    assert shared(start) == shared(after)
    assert "the spec" in shared(start)
    assert start.messages[0].content[start.stable :].strip()


def test_the_stages_own_files_are_other_files_at_each_attempt() -> None:
    start = ask(first(given=(SPEC, given("a.py", "x = 1", base=True))))
    after = ask(later(given=(SPEC, given("a.py", "x = 2", base=True), given("b.py", "y", base=True))))
    assert shared(start) == shared(after) == "Do it.\nspec.md:\nthe spec\n"


def test_a_retry_prompt_of_its_own_shares_what_it_begins_with() -> None:
    retry = Retry(max=1, prompt="again")
    one = ask(first(), retry=retry, again="Do it.\nBetter: {{ brief.excerpt }}")
    two = ask(later(), retry=retry, again="Do it.\nBetter: {{ brief.excerpt }}")
    assert shared(one) == shared(two) == "Do it.\n"


@pytest.mark.parametrize(
    "prompt", ["{{ attempt }}. Do it.\nAll.\n", "one line", "{% if brief %}Mend it.{% else %}Do it.{% endif %}\n"]
)
def test_nothing_is_shared_where_no_whole_line_is(prompt: str) -> None:
    assert ask(first(), prompt).stable == 0


@pytest.mark.parametrize("item", [None, Item(key="a", name="item", value="a")])
def test_a_stage_that_is_asked_once_shares_nothing(item: Item | None) -> None:
    assert ask(first(), retry=Retry(max=0), item=item).stable == 0


def test_a_prompt_that_cannot_do_without_its_own_files_shares_nothing_and_still_works() -> None:
    prompt = "Do it.\n{{ inputs['a.json'].value + 1 }}\n"
    request = ask(first(given=(SPEC, given("a.json", "1", base=True))), prompt)
    assert (request.messages[0].content, request.stable) == ("Do it.\n2\n", 0)


def test_the_number_is_not_part_of_the_fingerprint() -> None:
    with_retry, without = ask(first()), ask(first(), retry=Retry(max=0))
    assert with_retry.stable != without.stable
    assert with_retry.fingerprint() == without.fingerprint()


# ---- what all items of a foreach share --------------------------------------------------------------

ITEMS = """\
Rules:
{{ inputs['rules.md'].text }}
Write {{ item }}.
{% for input in inputs %}{{ input.text }}
{% endfor %}
{%- if brief %}It failed: {{ brief.excerpt }}
{% endif %}"""
RULES = given("rules.md", "be brief")


def item_of(name: str) -> Item:
    return Item(key=name, name="unit", value=name)


def inputs_of(name: str) -> tuple[PromptInput, ...]:
    own = PromptInput(f"{name}.md", "", "", lambda: f"about {name}", own=True)
    return RULES, own


def item_request(name: str, **more) -> Request:
    return ask(first(given=inputs_of(name)), ITEMS, item=item_of(name), **more)


def test_items_share_the_text_before_the_first_that_is_their_own() -> None:
    both = [item_request(name) for name in ("a", "b")]
    assert [one.messages[0].content[: one.family] for one in both] == ["Rules:\nbe brief\n"] * 2
    assert all(one.family < one.stable for one in both)
    retried = ask(later(given=inputs_of("a")), ITEMS, item=item_of("a"))
    assert (retried.family, retried.stable) == (both[0].family, both[0].stable)


def test_a_stage_without_a_foreach_shares_nothing_with_items() -> None:
    assert ask(first(given=inputs_of("a")), ITEMS).family == 0


def test_an_input_that_only_this_item_has_ends_what_is_shared() -> None:
    prompt = "Same.\n{% for input in inputs %}{{ input.text }}\n{% endfor %}"
    found = ask(first(given=inputs_of("a")), prompt, item=item_of("a"))
    assert found.messages[0].content[: found.family] == "Same.\nbe brief\n"


def test_a_prompt_may_look_an_input_up_by_its_item() -> None:
    prompt = "Same.\n{{ inputs[item ~ '.md'].text }}\n"
    found = ask(first(given=inputs_of("a")), prompt, item=item_of("a"))
    assert found.messages[0].content[: found.family] == "Same.\n"


def test_an_item_of_several_values_is_replaced_in_each() -> None:
    prompt = "Same.\n{{ item.size + 1 }}\n{{ item.names | join }}\n"
    item = Item(key="a", name="unit", value={"size": 3, "names": ["x", "y"], "is_new": True, "none": None})
    found = ask(first(), prompt, item=item)
    assert found.messages[0].content[: found.family] == "Same.\n"


def test_a_prompt_that_cannot_be_rendered_for_another_item_shares_nothing() -> None:
    prompt = "Same.\n{{ {'a': 1}[item] + 1 }}\n"
    assert ask(first(), prompt, item=item_of("a")).family == 0


@pytest.mark.parametrize(
    ("system", "family", "users"), [("same", 16, "stages"), ("for {{ item }}", 0, "attempts"), ("", 16, "")]
)
def test_the_system_text_is_before_all_that_items_share(system: str, family: int, users: str) -> None:
    step = LLMStep(provider="anthropic", model="m", prompt="p", system="s")
    stage = Stage(name="code@a", step=step, retry=Retry(max=2), item=item_of("a"))
    files = Files(p=ITEMS, s=system)
    found, _ = make_request(stage, step, first(given=inputs_of("a")), files, {})
    assert found is not None
    assert (found.family, found.system_users) == (family, users)


@pytest.mark.parametrize(("retries", "users"), [(2, "attempts"), (0, "")])
def test_the_attempts_of_a_stage_share_its_system_text(retries: int, users: str) -> None:
    step = LLMStep(provider="anthropic", model="m", prompt="p", system="s")
    stage = Stage(name="code", step=step, retry=Retry(max=retries))
    found, _ = make_request(stage, step, first(), Files(p=PROMPT, s="same"), {})
    assert found is not None
    assert found.system_users == users


def test_the_own_files_of_an_attempt_do_not_move_the_end_of_what_attempts_share() -> None:
    prompt = "Do it.\n{% for input in inputs %}{{ input.text }}\n{% endfor %}\n\n{% if brief %}It failed.\n{% endif %}"
    own = given("code.py", "x = 1", base=True)
    both = [ask(this, prompt) for this in (first(), later(given=(SPEC, own)))]
    assert [shared(one) for one in both] == ["Do it.\n"] * 2


def test_a_prompt_may_look_up_a_file_of_its_own() -> None:
    prompt = "Do it.\n{{ inputs['code.py'].text }}\n"
    own = given("code.py", "x = 1", base=True)
    assert shared(ask(first(given=(SPEC, own)), prompt)) == "Do it.\n"


def test_what_follows_the_shared_part_is_never_only_blanks() -> None:
    # An API refuses a block of blanks, and all attempts must be cut at the same place.
    prompt = "one\ntwo\n\n{% if brief %}It failed.\n{% endif %}\n\n"
    both = [ask(this, prompt) for this in (first(), later())]
    assert [shared(one) for one in both] == ["one\n"] * 2
    assert both[0].messages[0].content[both[0].stable :].startswith("two\n")


@pytest.mark.slow
@drawn(st.text("a\n", max_size=12), st.text("ab\n", max_size=6), st.text("ab\n", max_size=6))
def test_all_shared_lines_are_found(head: str, one: str, other: str) -> None:
    prompt = "{% if attempt == 1 %}" + head + one + "{% else %}" + head + other + "{% endif %}"
    stable, texts = ask(first(), prompt).stable, (head + one, head + other)
    assert texts[0][:stable] == texts[1][:stable]
    ends = [at for at, pair in enumerate(zip(*texts, strict=False), 1) if pair == ("\n", "\n")]
    longest = max((at for at in ends if texts[0][:at] == texts[1][:at]), default=0)
    if any(text[at:].isspace() for at in (longest, min(map(len, texts))) for text in texts):
        return  # a text that goes on with blanks only is cut earlier
    assert stable >= longest
    assert stable == longest or stable == min(map(len, texts))


# ---- data blocks ----------------------------------------------------------------------------------

DOCS = (Path(__file__).parents[3] / "docs" / "prompts.md").read_text()
EXAMPLE = DOCS.split("```jinja\n")[1].split("```")[0]
INPUTS = tuple(given(f"specs/{name}.md", f"# {name}\n" + "text\n" * 2000) for name in "abc")


def test_the_example_of_the_docs_shares_all_inputs() -> None:
    """The inputs come first and the feedback last, so only the own files and the feedback are other ones."""
    mine = given("app.py", "x = 1\n", base=True)
    one = ask(first(given=INPUTS), EXAMPLE)
    two = ask(later(given=(*INPUTS, mine)), EXAMPLE)
    three = ask(later(3, given=(*INPUTS, given("app.py", "x = 2\n", base=True))), EXAMPLE)
    assert one.stable == two.stable == three.stable
    assert shared(one) == shared(two) == shared(three)
    assert shared(one).count("\n--- end ") == 3
    assert "--- begin" not in one.messages[0].content[one.stable :]
    head = two.messages[0].content[two.stable :].lstrip("\n").partition("\n")[0]
    assert head.startswith("--- begin ")
    assert 'path="app.py"' in head


def test_a_prompt_that_ends_with_its_inputs_shares_them_as_a_whole() -> None:
    prompt = "{{ inputs | blocks }}{% if brief %}\n{{ brief.excerpt }}{% endif %}"
    one, two = ask(first(given=INPUTS), prompt), ask(later(given=INPUTS), prompt)
    assert shared(one) == one.messages[0].content == shared(two)


@pytest.mark.parametrize(("start_from", "count"), [("current", 1), ("baseline", 2)])
def test_own_files_are_shared_if_each_attempt_starts_from_the_same(start_from: str, count: int) -> None:
    retry = replace(Retry(max=2), start_from=start_from)
    mine = given("app.py", "x = 1\n", base=True)
    one, two = (ask(this, EXAMPLE, retry=retry) for this in (first(given=(SPEC, mine)), later(given=(SPEC, mine))))
    assert shared(one) == shared(two)
    assert shared(one).count("\n--- end ") == count


def test_the_delimiters_of_a_request_are_not_in_its_fingerprint() -> None:
    request = ask(first(given=INPUTS), "{{ inputs | blocks }}")
    assert request.messages[0].content.count("--- begin ") == request.identity[0].content.count("--- begin ") == 3
    assert request.messages[0].content != request.identity[0].content


def test_a_system_prompt_with_blocks_has_an_identity_of_its_own() -> None:
    step = LLMStep(provider="anthropic", model="m", prompt="p", system="s")
    sources = Files(p="Do it.", s="{{ inputs | blocks }}")
    stage = Stage(name="code", step=step)

    def built() -> Request:
        request, problems = make_request(stage, step, first(given=INPUTS), sources, {})
        assert request is not None, problems
        return request

    request = built()
    assert request.system_identity is not None
    assert request.system_identity.count("--- begin ") == request.system.count("--- begin ") == 3
    assert request.system_identity != request.system
    assert request.parts()["system"] == request.system_identity
    sources.texts["s"] = "No data."
    assert (built().system, built().system_identity) == ("No data.", None)
