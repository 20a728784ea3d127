"""Whole builds against a server with a prompt cache: what is paid for the input, compared with the least possible."""

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orch23.providers.cache_marks import CachedPrefixes
from tests.loopback import loopback
from tests.project import Project
from tests.simulated_cache import CachedServer, text_of

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

KEY = {"ANTHROPIC_API_KEY": "sk-ant-story"}
RULES = "Each function has a docstring, annotations of all arguments, and no side effects.\n" * 100
JOBS = 8
ITEMS = tuple(f"unit{number:02}" for number in range(16))
RETRIED = """\
version: 1
name: cached
defaults:
  llm: {provider: anthropic, model: claude-opus-5, base_url: "URL", endpoint_alias: claude, returns: text CACHE}
stages:
  code:
    inputs: [rules.md]
    outputs: [code.txt]
    llm: {prompt: code.md.j2}
    retry: {max: 2}
    verify:
      - shell: ["python3", "-c", "import sys; sys.exit('good' not in open('code.txt').read())"]
"""
EACH = RETRIED.replace(
    "    inputs: [rules.md]\n    outputs: [code.txt]\n",
    '    foreach: {in: [ITEMS], as: unit}\n    inputs: [rules.md, "notes/${{ unit }}.md"]\n'
    '    outputs: ["out/${{ unit }}.txt"]\n',
).replace("open('code.txt')", "open('out/${{ unit }}.txt')")
PROMPT = """\
{{ inputs['rules.md'] | block }}
{% for input in inputs %}{% if input.path != 'rules.md' %}{{ input | block }}
{% endif %}{% endfor %}
{% if brief %}It failed: {{ brief.kind }}
{{ previous }}
{% endif %}"""


BLOCKS = """\
{{ inputs | blocks }}
{% if brief %}It failed: {{ brief.kind }}
{{ previous }}
{% endif %}"""
PROMPTS = {"a block for each input": PROMPT, "all inputs as blocks": BLOCKS}


def project(root: Path, text: str, url: str, cache: str = "", prompt: str = PROMPT) -> Project:
    pipeline = text.replace("URL", url).replace("ITEMS", ", ".join(ITEMS)).replace(" CACHE", cache)
    notes = {f"notes/{name}.md": f"{name} adds its two arguments, and nothing else.\n" * 50 for name in ITEMS}
    return Project(root).write({"pipeline.yaml": pipeline, "code.md.j2": prompt, "rules.md": RULES, **notes})


def third_time(text: str) -> str:
    """Return a bad response, another bad one, and a good one: the prompt has the response before it."""
    before = re.findall(r"^bad (\d)$", text, re.MULTILINE)
    return "good" if "2" in before else f"bad {2 if before else 1}"


# Arithmetic of its own, not that of the simulated cache: four characters a token, as both count them.


def shared_length(texts: Sequence[str]) -> int:
    return sum(itertools.takewhile(bool, (len(set(column)) == 1 for column in zip(*texts, strict=False))))


def least_of_a_stage(texts: Sequence[str]) -> float:
    """Return the least price of the attempts of a stage: what they share is written once, the rest is input."""
    shared = shared_length(texts)
    written, read = 1.25 * shared, 0.1 * shared * (len(texts) - 1)
    return (written + read + sum(len(text) - shared for text in texts)) / 4


def least_of_items(texts: Sequence[Sequence[str]]) -> float:
    """Return the least price of items: all share one part, the attempts of each item another."""
    family = shared_length([text for attempts in texts for text in attempts])
    calls = sum(len(attempts) for attempts in texts)
    alone = sum(least_of_a_stage([text[family:] for text in attempts]) for attempts in texts)
    return alone + (1.25 * family + 0.1 * family * (calls - 1)) / 4


def by_item(server: CachedServer) -> list[list[str]]:
    found: dict[str, list[str]] = {}
    for call in server.calls:
        text = text_of(call.body)
        found.setdefault(next(name for name in ITEMS if f"notes/{name}.md" in text), []).append(text)
    return list(found.values())


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_the_attempts_of_a_stage_read_what_the_first_has_written(tmp_path: Path, prompt: str) -> None:
    rule = CachedServer(third_time, lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED, server.url, prompt=prompt)
        assert story.build(env=KEY).code == 0
    assert len(rule.calls) == 3
    assert rule.calls[0].counted.written_5m > 0
    assert all(call.counted.read == rule.calls[0].counted.written_5m for call in rule.calls[1:])
    texts = [text_of(call.body) for call in rule.calls]
    assert rule.in_units() <= 1.1 * least_of_a_stage(texts)
    assert rule.in_units() < 0.6 * sum(len(text) for text in texts) / 4, "without a cache"


class HeldFirst:
    """Holds the first event of the first call until eight items want to call, or a second call has arrived."""

    def __init__(self, rule: CachedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.together = threading.Event()
        self.wanting = itertools.count(1)
        self.rule = rule
        rule.before = self.hold
        begin = CachedPrefixes.begin

        def counted(
            prefixes: CachedPrefixes, names: Sequence[str], lifetime_s: float, most_s: float
        ) -> tuple[str, ...]:
            if next(self.wanting) == JOBS:
                self.together.set()
            return begin(prefixes, names, lifetime_s, most_s)

        monkeypatch.setattr(CachedPrefixes, "begin", counted)

    def hold(self, _text: str) -> None:
        if len(self.rule.calls) > 1:
            self.together.set()
        assert self.together.wait(60)


@pytest.mark.stride(7)
@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize(("respond", "attempts"), [(lambda _text: "good", 1), (third_time, 3)])
def test_sixteen_items_write_what_they_share_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, respond: Callable[[str], str], attempts: int, prompt: str
) -> None:
    rule = CachedServer(respond, lambda: 0.0)
    HeldFirst(rule, monkeypatch)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", EACH, server.url, prompt=prompt)
        built = story.build("--jobs", str(JOBS), env=KEY)
        assert built.code == 0, built.err
    texts = by_item(rule)
    assert [len(one) for one in texts] == [attempts] * 16
    assert [call.counted.read > 0 for call in rule.calls] == [False] + [True] * (16 * attempts - 1)
    if attempts == 3:
        assert rule.in_units() <= 1.1 * least_of_items(texts)


@pytest.mark.stride(2)
@pytest.mark.parametrize("cache", [", cache: off", ", cache: {share: false}"])
def test_without_sharing_items_mark_nothing_for_others(tmp_path: Path, cache: str) -> None:
    rule = CachedServer(lambda _text: "good", lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", EACH.replace("retry: {max: 2}", "retry: 0"), server.url, cache)
        assert story.build("--jobs", "2", env=KEY).code == 0
    assert len(rule.calls) == 16
    assert all(call.counted.plain > 0 for call in rule.calls)
    assert not any(call.counted.read or call.counted.written_5m for call in rule.calls)


def test_the_use_of_the_cache_is_not_part_of_the_key(tmp_path: Path) -> None:
    rule = CachedServer(third_time, lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED, server.url)
        assert story.build(env=KEY).code == 0
        for cache in (", cache: off", ", cache: {ttl: 1h}", ", cache: {share: false}"):
            project(tmp_path / "p", RETRIED, server.url, cache)
            assert set(story.plan().values()) == {"fresh"}, cache
    assert len(rule.calls) == 3


def test_the_cost_of_a_stage_has_what_the_cache_saved(tmp_path: Path) -> None:
    rule = CachedServer(third_time, lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED, server.url)
        assert story.build(env=KEY).code == 0
    counted = [call.counted for call in rule.calls]
    read, written = sum(one.read for one in counted), sum(one.written_5m for one in counted)
    (shown,) = story.run("show", "code", "--cost", "--json").json()["runs"]
    assert (shown["cache_read_tokens"], shown["cache_write_tokens"]) == (read, written)
    assert float(shown["cache_saved"]) * 1_000_000 == pytest.approx(5 * (0.9 * read - 0.25 * written))
    said = f"{read:,} read from and {written:,} written to the prompt cache, which saved $"
    assert said in story.run("show", "code", "--cost").out


def test_a_cache_that_is_only_written_costs_more(tmp_path: Path) -> None:
    rule = CachedServer(lambda _text: "good", lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED, server.url)
        assert story.build(env=KEY).code == 0
    assert "written to the prompt cache, which cost $" in story.run("show", "code", "--cost").out


def test_an_hour_is_written_read_and_paid_for(tmp_path: Path) -> None:
    rule = CachedServer(third_time, lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED, server.url, ", cache: {ttl: 1h}")
        assert story.build(env=KEY).code == 0
    written = rule.calls[0].counted.written_1h
    assert written > 0
    assert [call.counted.read for call in rule.calls] == [0, written, written]
    paid = sum(float(event["data"]["cost"]) for event in story.events_of("llm_response"))
    # Seven tokens of output each, at five times the price of input.
    assert paid * 1_000_000 == pytest.approx(5 * rule.in_units() + 25 * 7 * 3)


# ---- stages of their own ----------------------------------------------------------------------------

STAGES = """\
version: 1
name: cached
defaults:
  llm: {provider: anthropic, model: claude-opus-5, base_url: "URL", endpoint_alias: claude, returns: text}
stages:
"""
TWELVE = STAGES + "".join(
    f"  s{number}: {{inputs: [rules.md], outputs: [s{number}.txt], llm: {{prompt: p{number}.md.j2}}}}\n"
    for number in range(12)
)
PROMPT_OF = "Write it.\n{{ inputs | blocks }}\nThis is number NUMBER.\n"
SYSTEM = TWELVE.replace("inputs: [rules.md], ", "").replace("{prompt:", "{system: rules.md, prompt:")
PAIR = STAGES + "".join(
    f"  {name}:\n    foreach: {{in: [a, b, c, d], as: unit}}\n    inputs: [rules.md{more}]\n"
    f"    outputs: ['{name}/${{{{ unit }}}}.txt']\n    llm: {{prompt: item.md.j2}}\n"
    for name, more in (("code", ""), ("doc", ", 'code/${{ unit }}.txt'"))
)
FILES = {
    "rules.md": RULES,
    "item.md.j2": "Write it.\n{{ inputs | blocks }}\nNow {{ item }}.\n",
    **{f"p{number}.md.j2": PROMPT_OF.replace("NUMBER", str(number)) for number in range(12)},
}
ALONE = {f"p{number}.md.j2": f"Write number {number}.\n" for number in range(12)}


@pytest.mark.parametrize("jobs", [1, JOBS])
@pytest.mark.parametrize(
    ("pipeline", "files"), [(TWELVE, {}), (SYSTEM, ALONE), (PAIR, {})], ids=["prompts", "system text", "two foreach"]
)
def test_stages_whose_requests_begin_alike_write_the_beginning_once(
    tmp_path: Path, pipeline: str, files: dict[str, str], jobs: int
) -> None:
    rule = CachedServer(lambda _text: "good", lambda: 0.0)
    with loopback(rule=rule) as server:
        story = Project(tmp_path / "p").write({"pipeline.yaml": pipeline.replace("URL", server.url), **FILES, **files})
        built = story.build("--jobs", str(jobs), env=KEY)
        assert built.code == 0, built.err
    texts = [f"{call.body.get('system') or ''}{text_of(call.body)}" for call in rule.calls]
    assert rule.in_units() <= 1.1 * least_of_items([[text] for text in texts])
    assert len([call for call in rule.calls if call.counted.written_5m]) == 1


def test_a_first_attempt_writes_for_the_next_one_only_if_that_is_likely(tmp_path: Path) -> None:
    """Of this stage twenty attempts passed: a mark costs a quarter of the prompt for nothing. Later many failed."""
    answers = {"good"}
    rule = CachedServer(lambda text: third_time(text) if "bad" in answers else "good", lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED, server.url)

        def written() -> list[int]:
            """Build after an edit of the input, and return the tokens that each attempt has written."""
            before = len(rule.calls)
            story.edit("rules.md", f"{story.read('rules.md')}Rule {before}.\n")
            assert story.build(env=KEY).code == 0
            return [call.counted.written_5m for call in rule.calls[before:]]

        assert written()[0] > 0, "nothing is known of this stage"
        assert [written() for _ in range(3)][-1] == [0], "all of its attempts have passed"
        answers.add("bad")
        after = [written() for _ in range(3)]
    assert after[0][0] == 0
    assert after[0][1] > 0, "an attempt that is not the last one writes for the next"
    assert after[-1][0] > 0, "two of three attempts failed"


def test_a_last_attempt_writes_nothing(tmp_path: Path) -> None:
    rule = CachedServer(lambda text: "good" if "bad" in text else "bad 1", lambda: 0.0)
    with loopback(rule=rule) as server:
        story = project(tmp_path / "p", RETRIED.replace("max: 2", "max: 1"), server.url)
        for name in ("first", "second", "third"):
            story.edit("rules.md", f"{story.read('rules.md')}Rule {name}.\n")
            assert story.build(env=KEY).code == 0
    assert [call.counted.written_5m > 0 for call in rule.calls[1::2]] == [False] * 3
    assert all(call.counted.read for call in rule.calls[1::2]), "each reads what the first attempt wrote"
