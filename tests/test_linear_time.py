"""Any text from a step, a model, a server or a repository costs linear time: no pattern or parser is quadratic.

The patterns are found in the modules, not by name. A pattern whose text is not known needs an entry here. This is the
one test that measures time: it compares the CPU time of texts of growing sizes with each other.
"""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.sax.saxutils import quoteattr

import pytest
from msgspec.structs import replace

from orch23.attempt import likely_cause
from orch23.attempt.failures import command_failed
from orch23.attempt.likely_cause import FailedStep, ProjectFacts
from orch23.attempt.process_runner import with_refused_writes
from orch23.checks.schema_validator import make_validator
from orch23.load.yaml_errors import PIPELINE_LIMITS
from orch23.load.yaml_text import parse_yaml
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.llm import Proposal, RefusedResponse
from orch23.model.parsing import parse_json
from orch23.model.pipeline import BriefLimits, PathInput, Stage, WriteScope
from orch23.proposal.omissions import find_placeholders, is_diff
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.providers.rate_limits import stated_limits
from orch23.resolve.slices import take_slice
from orch23.resolve.templates import render_prompt
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep
from orch23.store.lock_file import decode_lock
from orch23.text.excerpt import fit_output, fit_parts, normalise, shorten_tree_paths
from orch23.text.secret_patterns import KEY_FORMATS
from orch23.text.secrets import secrets_from
from orch23.text.source_syntax import syntax_fault
from orch23.verdict.reported_results import judge_results, read_reports
from orch23.verdict.run_results import ReportedFailure, group_failures
from orch23.verdict.unfinished_test import last_started, stack_at_the_end
from orch23.verdict.verdict import judge_pytest
from tests import linear_time as linear


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """Return all modules: each process collects the tests, and only those that run them load and walk the modules."""
    return tuple(linear.product_modules())


@functools.cache
def found_patterns() -> tuple[list[linear.UsedPattern], list[str]]:
    return linear.used_patterns(list(modules()))


@functools.cache
def used_patterns() -> list[linear.UsedPattern]:
    keys = [linear.UsedPattern(f"KEY_FORMATS {one.name}", one.pattern, 0, "finditer") for one in KEY_FORMATS]
    return [one for one in (*found_patterns()[0], *keys) if linear.repeats_without_bound(one)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the long tests, which `make thorough` alone runs, each pattern and each function as a case."""
    is_thorough = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
    if "used" in metafunc.fixturenames:
        patterns = used_patterns() if is_thorough else []
        metafunc.parametrize("used", patterns, ids=lambda used: f"{used.place}-{used.method}")
    if "name_of_function" in metafunc.fixturenames:
        metafunc.parametrize("name_of_function", names_of_functions() if is_thorough else [])


# Patterns that are made when they are used: why each takes linear time.
MADE = {
    "orch23.checks.schema_validator.compile_regex": "RE2",
    "orch23.verdict.readers.regex._compiled": "RE2",
    "orch23.checks.schema_validator._search_short_text": "a text of at most 2,000 characters, and a bound of its ways",
    "orch23.proposal.omissions._either": "its patterns are values of the module",
    "orch23.text.secret_patterns.KeyFormat.find": "its patterns are in KEY_FORMATS, below",
    "orch23.text.secrets.Secrets._outside_marks": "the marks of orch23 itself",
    "orch23.execute.sandbox_tree.scratch_matcher": "names of files",
    "orch23.model.paths._regex": "paths of at most 1,024 bytes",
    "orch23.model.paths._pieces_overlap": "one character",
    "orch23.model.patterns._LazyPattern.__getattr__": "its patterns are values of modules",
    "orch23.providers.model_facts._is_snapshot": "names of models",
    "orch23.load.stage_texts.split_stages": "a line break, a fixed number of spaces, and a key",
    "orch23.language.stand_ins._takes": "its patterns are those of the language",
    "orch23.features.toolchains.versions._of_debian": "the lines of one package, which is in the list once",
    "orch23.features.templates.dry_run._copier_line": "anchored at the beginning of a line",
}
PACKAGES = (
    "model",
    "text",
    "language",
    "proposal",
    "verdict",
    "decide",
    "resolve",
    "checks",
    "plan",
    "load",
    "providers",
    "report",
    "store",
    "features",
)
# Functions that would take longer, but get no long text.
BOUNDED = {
    "orch23.model.paths._piece_regex": "a piece of a pattern, at most a set of 1,000 characters",
    "orch23.model.paths._set_regex": "sets of at most 1,000 characters",
    "orch23.plan.nodes._folders_above": "paths of a pipeline, which have at most 4,096 characters",
    "orch23.model.paths.with_above": "paths of directories of a project, and places in a pipeline, at most 100 deep",
    "orch23.text.source_syntax.python_comments": "source that parses",
    "orch23.verdict.unfixable_tests.module_levels": "patterns of a pipeline",
    "orch23.load.yaml_text._events": "its callers stop at a depth of 100",
}


# ---- patterns -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.needs("fetch")
def test_each_pattern_is_known_or_has_an_entry() -> None:
    patterns, unknown = found_patterns()
    assert sorted(set(unknown)) == sorted(MADE)
    assert len({one.text for one in patterns}) > 200, "the walk finds them"


def too_slow(used: linear.UsedPattern, growth: Callable[..., float]) -> str:
    found = ((growth(used, shape), shape(20)) for shape in linear.shapes(used))
    return next((f"{used.place} {used.method}: {times:.1f} times for {text!r}" for times, text in found if times), "")


@pytest.mark.slow
def test_no_pattern_takes_quadratic_time() -> None:
    assert [found for used in used_patterns() if (found := too_slow(used, linear.quick_growth))] == []


@pytest.mark.thorough
def test_a_pattern_takes_at_most_two_and_a_half_times_for_a_doubling(used: linear.UsedPattern) -> None:
    assert too_slow(used, linear.growth) == ""


@pytest.mark.slow
@pytest.mark.stride(4)
@pytest.mark.parametrize("pattern", [r"\s*x$", r"(\w+)\s*:", "c.*d.*e", r"a.*b.*c"])
def test_a_quadratic_pattern_is_noticed_before_it_takes_minutes(pattern: str) -> None:
    assert too_slow(linear.UsedPattern("x", pattern, 0, "search"), linear.quick_growth)


# ---- functions ------------------------------------------------------------------------------------


def judged(text: str, returns: str = "files", base: str = "a\n" * 1_000) -> object:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns)  # type: ignore[arg-type]
    scope = ProposalScope(cwd=".", write_scope=WriteScope(("*.py",)), base={"a.py": base})
    return judge_response(text, "end", scope, step=step, outputs=("a.py",))


def failure(text: str) -> ReportedFailure:
    return ReportedFailure("t.py::test", "call", "AssertionError", "t.py:1", text)


def cause_of(text: str) -> object:
    """Return the cause of a step in a project without files."""
    nowhere = Path("/nowhere")
    facts = ProjectFacts(root=nowhere, environ={}, is_isolated=lambda: True, may_read=lambda _stage, _path: True)
    stage = Stage(name="s", step=LLMStep(provider="scripted", model="m", prompt="p.j2"))
    failed = FailedStep(
        project=facts, stage=stage, staged={}, interpreter="/nowhere/p", output=text, network=False, command=text
    )
    return likely_cause.likely_cause(failed)


def reported(form: str, text: str) -> object:
    """Judge a text as a report, as the name of a test in one, and as what that test prints."""
    event = {"Action": "run", "Package": "p", "Test": text}
    texts = {
        "tap": f"TAP version 13\nok 1 {text}\nnot ok 2 a\n  ---\n  a: {text}\n  ...\n# {text}\n1..2\n",
        "junit": f"<a><testcase name={quoteattr(text)}><failure message={quoteattr(text)}/></testcase></a>",
        "go": "\n".join(json.dumps({**event, **more}) for more in ({}, {"Action": "output", "Output": text})),
        "regex": f"a FAILED {text}\n{text}",
        "sarif": json.dumps({"runs": [{"results": [{"level": "error", "message": {"text": text}}]}]}),
    }
    read = [read_reports(form, {"": one}, pattern="(?P<id>a) (?P<outcome>.+)") for one in (text, texts[form])]
    return [judge_results(1, one, text, ["a.py"]) for one in read]


def depfile_of(text: str) -> object:
    """Judge a text as a depfile in each syntax, as a name in one, and as the command that writes it."""
    from orch23.features.depfiles.reading import tracked_inputs  # noqa: PLC0415 - a feature, which may be missing

    texts = {"make": f"o: {text}\n{text}: a.h\n", "ninja": f"    {text}\n{text}\n", "json": json.dumps([text])}
    stage = Stage(name="s", step=ShellStep(text), inputs=(PathInput("a b.h"),), outputs=("o/**/*.x*",))
    known = {"a b.h": FileEntry(digest_bytes(b""))}
    every = [(syntax, one) for syntax, named in texts.items() for one in (text, named)]
    return [tracked_inputs(replace(stage, depfile=(syntax, "d")), known, one, ()) for syntax, one in every]


RETURNS = ("files", "blocks", "edits", "json", "text", "code")
FUNCTIONS: dict[str, linear.Function] = {
    **{f"judge {returns}": functools.partial(judged, returns=returns) for returns in RETURNS},
    "a file in an envelope": lambda text: judged(json.dumps({"writes": [{"path": "a.py", "content": text}]})),
    "an element of XML": lambda text: [judged(f'<file path="a.py">{start}{text}</file>') for start in ("", "\n")],
    "parts of an element": lambda text: judged(f"<file><path>a.py</path><content>{text}</content></file>"),
    "JSON in prose": lambda text: judged(f"{text}\n{json.dumps({'a.py': text.splitlines()})}\n{text}"),
    "a call of a tool": lambda text: judged(json.dumps({"name": "write", "arguments": text})),
    "blanks to ignore": lambda text: judged(
        f"a.py\n<<<<<<< SEARCH\n{text} \n=======\nx\n>>>>>>> REPLACE\n", "edits", text
    ),
    "a block to search": lambda text: judged(f"a.py\n<<<<<<< SEARCH\n{text}\n=======\nx\n>>>>>>> REPLACE\n", "edits"),
    "a base to search": lambda text: judged("a.py\n<<<<<<< SEARCH\nab\n=======\nx\n>>>>>>> REPLACE\n", "edits", text),
    "likely_cause": cause_of,
    "a depfile": depfile_of,
    "network_cause": lambda text: likely_cause.network_cause(text, text, 6),
    "refused writes": lambda text: with_refused_writes(command_failed("timeout", "c", exit_code=1, output=text), text),
    "normalise": lambda text: shorten_tree_paths(normalise(text), "a"),
    "fit_parts": lambda text: fit_parts([text, f"E  {text}", text], BriefLimits()),
    "groups": lambda text: [one.text() for one in group_failures([failure(text), failure(f"{text}b")])],
    **{f"a report of {form}": functools.partial(reported, form) for form in ("tap", "junit", "go", "regex", "sarif")},
    **{f"the last test of {form}": functools.partial(last_started, form) for form in ("tap", "go", "")},
    "a stack": lambda text: stack_at_the_end(f"Stack (most recent call first):\n{text}", "."),
    "an output": lambda text: fit_output(f"{text}\n{text}\nError: x\n{text}", BriefLimits(400, 200, 100)),
    "a report": lambda text: judge_pytest(1, text.encode(), (), text),
    "secrets": lambda text: secrets_from({"API_KEY": "kQ8vT2mZ7xLp4Rw9"}).redact(text),
    "placeholders": lambda text: [find_placeholders(f"a{end}", text, "x") for end in (".py", ".md", ".js")],
    "a diff": lambda text: is_diff("a.py", text, None),
    "syntax": lambda text: [syntax_fault(f"a{end}", text) for end in (".json", ".toml")],
    "JSON": lambda text: parse_json(text, max_bytes=1 << 22, max_depth=100, lenient=True),
    "YAML": lambda text: parse_yaml(text, "p.yaml", PIPELINE_LIMITS),
    "a value by a schema": lambda text: list(make_validator({"type": "string", "pattern": "(a+)+$"}).iter_errors(text)),
    "rate limits": lambda text: stated_limits({"x-ratelimit-limit-tokens": text, "x-ratelimit-reset-tokens": text}),
    "a lock file": lambda text: decode_lock(text.encode(), "p.lock"),
    "a section": lambda text: take_slice(text, "a.md", "# a", lambda *_: None),
    "a template": lambda text: render_prompt(text, {}, "p.j2"),
}


def names_of_functions() -> dict[str, linear.Function]:
    found = dict(linear.functions_of_a_text(modules(), PACKAGES))
    assert {name for name in BOUNDED if not name.startswith("orch23.features.")} <= found.keys()
    return {**{name: one for name, one in found.items() if name not in BOUNDED}, **FUNCTIONS}


def grows(function: linear.Function, growth: Callable[..., float]) -> str:
    feed = linear.refusing(function)
    found = ((growth(feed, shape), shape(20)) for shape in (*linear.shapes(), *linear.word_shapes()))
    return next((f"{times:.1f} times for {text!r}" for times, text in found if times), "")


@pytest.mark.slow
def test_no_function_of_a_text_takes_quadratic_time() -> None:
    quick = functools.partial(linear.quick_growth, largest=4_000)
    every = {name: one for name, one in names_of_functions().items() if name not in FUNCTIONS}
    third = dict(list(every.items())[::3])  # `make thorough` takes the others too
    found = {name: grows(one, quick) for name, one in (third | FUNCTIONS).items()}
    assert {name: worst for name, worst in found.items() if worst} == {}


@pytest.mark.thorough
def test_a_function_takes_at_most_two_and_a_half_times_for_a_doubling(name_of_function: str) -> None:
    assert grows(names_of_functions()[name_of_function], linear.growth) == ""


def test_every_cause_of_a_failure_is_fed() -> None:
    causes = {name for name in vars(likely_cause) if name.endswith("_cause") and not name.startswith("_")}
    assert causes == {"likely_cause", "network_cause"} & FUNCTIONS.keys()


# ---- bounds ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize(("returns", "number"), [("blocks", 80_000), ("files", 80_000), ("edits", 20_000)])
def test_a_response_has_a_limited_number_of_files(returns: str, number: int) -> None:
    texts = {
        "blocks": "".join(f"f{n}.py\n```\nx\n```\n" for n in range(number)),
        "files": json.dumps({f"f{n}.py": "" for n in range(number)}),
        "edits": "a.py\n" + "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n" * number,
    }
    judgement = judged(texts[returns], returns)
    assert isinstance(judgement, RefusedResponse)
    (one,) = judgement.diagnostics
    assert one.code == "E210"
    assert f"has {number:,} " in one.message
    assert "the limit is 1,000" in one.message


@pytest.mark.parametrize("returns", RETURNS)
def test_a_response_has_a_limited_size(returns: str) -> None:
    judgement = judged("x" * 3_000_000, returns)
    assert isinstance(judgement, RefusedResponse)
    assert [one.code for one in judgement.diagnostics] == ["E210"]


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    # Parsing 2 MB takes many seconds, in which no signal and no limit of time can end the build.
    for returns, text in (("code", "```\n{}```"), ("code", "{}"), ("text", "{}"), ("blocks", "a.py\n```\n{}```")):
        judgement = judged(text.format("x = (\n" * 40_000), returns)
        assert isinstance(judgement, RefusedResponse)
        assert {one.code for one in judgement.diagnostics} == {"E210"}, returns


def test_thoughts_do_not_count_for_the_size_of_a_response() -> None:
    text = "<think>" + "</think><think>" * 200_000 + "</think>```\nx = 1\n```"
    assert isinstance(judged(text, "code"), Proposal)
