"""The key of a stage: each thing that the design page names is in it, and nothing of what it says is not."""

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.action import StepLimits
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.paths import match, match_any
from orch23.model.pipeline import (
    BriefLimits,
    ChainLink,
    CheckStep,
    Condition,
    EnsuresStep,
    GlobInput,
    Item,
    ListInput,
    PathInput,
    Pipeline,
    Retry,
    SliceInput,
    Stage,
    Verify,
    WriteScope,
)
from orch23.model.record import Facts, core_of, identity_of, is_verify_aspect, key_of
from orch23.model.step import Tool
from orch23.resolve.resolution import resolve_stage
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.render.spec import RenderStep
from orch23.steps.shell.spec import ShellStep


class Files(Struct):
    """A tree and the author's files, in memory."""

    texts: dict[str, str]
    base: dict[str, str] = field(default_factory=dict)
    author: dict[str, str] = field(default_factory=dict)
    listing: tuple[str, ...] = ("a.txt", "b.txt")
    executable: frozenset[str] = frozenset()

    def entry(self, path):
        if path not in self.texts:
            return None
        return FileEntry(digest_bytes(self.texts[path].encode()), executable=path in self.executable)

    def matching(self, pattern, exclude=()):
        paths = (path for path in sorted(self.texts) if match(pattern, path))
        return {path: self.entry(path) for path in paths if not match_any(exclude, path)}

    def listed(self, pattern, exclude=()):
        return self.listing

    def links(self, pattern):
        return ()

    def versions(self):
        return {path: FileEntry(digest_bytes(text.encode())) for path, text in self.base.items()}

    def read(self, path, entry):
        for text in (self.texts.get(path), self.base.get(path)):
            if text is not None and digest_bytes(text.encode()) == entry.digest:
                return text.encode()
        raise MissingBytesError(entry.digest.sha256)

    def text(self, path):
        return self.author[path], None


PROMPT = (
    "{{ vars.v }} {{ item }} {% for i in inputs %}{{ i.path }}{{ i.slice }}{{ i.text }}{% endfor %}{{ brief }}{{ own }}"
)
FILES = Files(
    {"in.txt": "in", "g/a": "ga", "g/b": "gb", "s.md": "# H\nsection\n# I\nrest\n", "t.py": "test"},
    base={"out": "before"},
    author={
        "p.j2": PROMPT,
        "sys.j2": "system",
        "schema.json": "{}",
        "t.j2": "{{ vars.v }}{% for i in inputs %}{{ i.text }}{% endfor %}",
    },
)
FACTS = Facts(
    python="3.11",
    pytest="8",
    interpreter="/usr/bin/python3",
    tools={"gcc": "13"},
    endpoint="e",
    params={"max_tokens": 5},
    checks={"c": 1},
)
LLM = LLMStep(provider="anthropic", model="m", prompt="p.j2", system="sys.j2", schema="schema.json")
STAGE = Stage(
    name="s",
    step=LLM,
    desc="d",
    inputs=(PathInput("in.txt"), GlobInput("g/*"), SliceInput("s.md", "H"), ListInput("**")),
    outputs=("out",),
    fence=WriteScope(("out",), protect=("out/p",), delete=("out/d",)),
    verify=Verify(
        (
            CheckStep("c", {"n": 1}),
            ShellStep(("make", "test")),
            PytestStep(paths=("t.py",)),
            EnsuresStep((Condition("file_exists", "out"),)),
        ),
        inputs=(PathInput("t.py"),),
    ),
    requires=(Condition("file_exists", "in.txt"),),
    ensures=(Condition("file_exists", "out"),),
    env={"A": "1"},
    tools=(Tool("gcc"),),
    salt="1",
    item=Item(key="k", name="item", value={"id": "k"}),
    chain=ChainLink(chain="s", index=0),
)
SHELL = replace(STAGE, step=ShellStep(("make",)), chain=None)
PYTEST = replace(STAGE, step=PytestStep(args=("-q",), report="out"), chain=None)
RENDER = replace(STAGE, step=RenderStep("t.j2"), chain=None)


def resolved(stage=STAGE, files=FILES, facts=FACTS, variables=None):
    pipeline = Pipeline(name="p", file="p.yaml", stages=(), vars=variables or {"v": "x"})
    return resolve_stage(stage, files, facts, files, pipeline=pipeline, read_yaml=lambda text: text)


def texts(**changed):
    return replace(FILES, texts={**FILES.texts, **changed})


def author(**changed):
    return replace(FILES, author={**FILES.author, **changed})


def llm(**changed):
    return {"stage": replace(STAGE, step=replace(LLM, **changed))}


def step(number, new):
    steps = tuple(new if n == number else old for n, old in enumerate(STAGE.verify.steps))
    return {"stage": replace(STAGE, verify=replace(STAGE.verify, steps=steps))}


IN_THE_KEY = {
    "kind": ({"stage": replace(STAGE, step=ShellStep(("make",)))}, {}),
    "rendered prompt: its template": ({"files": author(**{"p.j2": PROMPT + "!"})}, {}),
    "rendered prompt: a var that it uses": ({"variables": {"v": "y"}}, {}),
    "system text": ({"files": author(**{"sys.j2": "other"})}, {}),
    "provider": (llm(provider="openai"), {}),
    "model": (llm(model="n"), {}),
    "endpoint": ({"facts": replace(FACTS, endpoint="f")}, {}),
    "parameters": ({"facts": replace(FACTS, params={"max_tokens": 6})}, {}),
    "returns": (llm(returns="json"), {}),
    "schema": ({"files": author(**{"schema.json": "[]"})}, {}),
    "context: files": (llm(max_files=11), {}),
    "context: bytes": (llm(max_bytes=100_000), {}),
    "item": ({"stage": replace(STAGE, item=Item(key="k", name="item", value={"id": "k", "n": 1}))}, {}),
    "an input": ({"files": texts(**{"in.txt": "other"})}, {}),
    "an input's executable bit": ({"files": replace(FILES, executable=frozenset({"in.txt"}))}, {}),
    "a file of a glob": ({"files": texts(**{"g/a": "other"})}, {}),
    "one more file of a glob": ({"files": texts(**{"g/c": "new"})}, {}),
    "a slice": ({"files": texts(**{"s.md": "# H\nother\n# I\nrest\n"})}, {}),
    "a listing": ({"files": replace(FILES, listing=("a.txt",))}, {}),
    "base": ({"files": replace(FILES, base={"out": "other"})}, {}),
    "base: none": ({"files": replace(FILES, base={})}, {}),
    "outputs": ({"stage": replace(STAGE, outputs=("out", "out2"))}, {}),
    "fence": ({"stage": replace(STAGE, fence=replace(STAGE.fence, write=("out/",)))}, {}),
    "protect": ({"stage": replace(STAGE, fence=replace(STAGE.fence, protect=()))}, {}),
    "delete": ({"stage": replace(STAGE, fence=replace(STAGE.fence, delete=()))}, {}),
    "cwd": ({"stage": replace(STAGE, cwd="g")}, {}),
    "scratch": ({"stage": replace(STAGE, scratch=("x",))}, {}),
    "network": ({"stage": replace(STAGE, network=True)}, {}),
    "requires": ({"stage": replace(STAGE, requires=())}, {}),
    "what requires saw": ({"stage": replace(STAGE, requires=(Condition("file_absent", "in.txt"),))}, {}),
    "verify steps": (step(1, ShellStep(("make", "check"))), {}),
    "verify: options of a check": (step(0, CheckStep("c", {"n": 2})), {}),
    "verify: the revision of a check": ({"facts": replace(FACTS, checks={"c": 2})}, {}),
    "verify: pytest": (step(2, PytestStep(paths=("t.py",), args=("-x",))), {}),
    "verify: conditions": (step(3, EnsuresStep((Condition("file_absent", "out"),))), {}),
    "verify: all": ({"stage": replace(STAGE, verify=replace(STAGE.verify, run_all=True))}, {}),
    "verify inputs": ({"files": texts(**{"t.py": "other"})}, {}),
    "ensures": ({"stage": replace(STAGE, ensures=())}, {}),
    "env values": ({"stage": replace(STAGE, env={"A": "2"})}, {}),
    "interpreter": ({"facts": replace(FACTS, python="3.12")}, {}),
    "pytest": ({"facts": replace(FACTS, pytest="9")}, {}),
    "declared tools": ({"facts": replace(FACTS, tools={"gcc": "14"})}, {}),
    "salt": ({"stage": replace(STAGE, salt="2")}, {}),
    "rendered command": ({"stage": replace(SHELL, step=ShellStep(("make", "x")))}, {"stage": SHELL}),
    "a command as a string": ({"stage": replace(SHELL, step=ShellStep("make"))}, {"stage": SHELL}),
    "pytest's command": ({"stage": replace(PYTEST, step=PytestStep(args=("-x",), report="out"))}, {"stage": PYTEST}),
    "what a template makes": ({"stage": RENDER, "variables": {"v": "y"}}, {"stage": RENDER}),
    "the interpreter of a shell step": ({"stage": SHELL, "facts": replace(FACTS, python="3.12")}, {"stage": SHELL}),
}

NOT_IN_THE_KEY = {
    "desc": {"stage": replace(STAGE, desc="other")},
    "the stage's name": {"stage": replace(STAGE, name="renamed")},
    "needs": {"stage": replace(STAGE, needs=("x",))},
    "retry": {"stage": replace(STAGE, retry=Retry(max=9, when=("timeout",), start_from="baseline", no_progress=2))},
    "the prompt of a retry": {"stage": replace(STAGE, retry=Retry(max=1, prompt="sys.j2"))},
    "the style of retries": {"stage": replace(STAGE, retry=Retry(max=1, style="conversation"))},
    "the models of later attempts": {"stage": replace(STAGE, retry=Retry(max=1, escalate=("m", "bigger")))},
    "brief": llm(brief=BriefLimits(1, 2, 3)),
    "own outputs": llm(own_outputs=True),
    "timeout": {"stage": replace(STAGE, timeout_s=1.0)},
    "limits": {"stage": replace(STAGE, limits=StepLimits(memory=1))},
    "timeout of a request": llm(timeout_s=1.0),
    "mode": llm(mode="replay"),
    "transcripts": llm(transcripts="t"),
    "on_failure": {"stage": replace(STAGE, on_failure="keep")},
    "absolute paths": {"facts": replace(FACTS, interpreter="/opt/python3")},
    "the place in a chain": {"stage": replace(STAGE, chain=ChainLink(chain="other", index=4))},
    "the name of an item": {"stage": replace(STAGE, item=Item(key="j", name="task", value={"id": "k"}))},
    "the rest of a sliced file": {"files": texts(**{"s.md": "# H\nsection\n# I\nother\n"})},
    "a file that is no input": {"files": texts(unrelated="new")},
    "a var that nothing uses": {"variables": {"v": "x", "unused": "y"}},
    "a check that is not used": {"facts": replace(FACTS, checks={"c": 1, "d": 9})},
    "allowed_paths.read": {"stage": replace(STAGE, fence=replace(STAGE.fence, read=("x",)))},
    "cache": {"stage": replace(STAGE, cache=False)},
}


@pytest.mark.parametrize("what", IN_THE_KEY)
def test_it_is_in_the_key(what):
    changed, before = IN_THE_KEY[what]
    assert resolved(**changed).key != resolved(**before).key


@pytest.mark.parametrize("what", NOT_IN_THE_KEY)
def test_it_is_not_in_the_key(what):
    assert resolved(**NOT_IN_THE_KEY[what]).manifest == resolved().manifest


def test_the_first_of_escalate_is_the_model_of_the_key():
    escalated = replace(STAGE, retry=Retry(max=1, escalate=("n", "bigger")))
    assert resolved(stage=escalated).key == resolved(**llm(model="n")).key
    other = replace(STAGE, retry=Retry(max=1, escalate=((("provider", "q"), ("model", "n")), "bigger")))
    assert resolved(stage=other).key == resolved(**llm(provider="q", model="n")).key


@pytest.mark.parametrize("what", [what for what in IN_THE_KEY if what.startswith(("verify", "ensures"))])
def test_what_verification_alone_depends_on_is_not_in_the_core(what):
    changed, before = IN_THE_KEY[what]
    assert resolved(**changed).core == resolved(**before).core


@pytest.mark.parametrize(
    "what", [w for w in IN_THE_KEY if not w.startswith(("verify", "ensures", "pytest", "interpreter"))]
)
def test_everything_else_is_in_the_core(what):
    changed, before = IN_THE_KEY[what]
    assert resolved(**changed).core != resolved(**before).core


def test_the_order_in_which_the_author_lists_files_is_what_the_model_sees_and_so_in_the_key():
    turned = replace(STAGE, inputs=(STAGE.inputs[1], STAGE.inputs[0], *STAGE.inputs[2:]))
    assert resolved(stage=turned).key != resolved().key
    assert resolved(stage=replace(SHELL, inputs=turned.inputs)).key == resolved(stage=SHELL).key


def test_key_and_core_are_those_of_the_manifest():
    for found, has_verification in (
        (resolved(), True),
        (resolved(stage=replace(SHELL, verify=Verify(), ensures=())), False),
    ):
        manifest = found.manifest
        assert (found.key, found.core, found.identity) == (key_of(manifest), core_of(manifest), identity_of(manifest))
        assert any(map(is_verify_aspect, manifest)) is (found.key != found.core) is has_verification
        assert None not in manifest.values()


def test_slices_and_listings_stage_no_whole_file():
    found = resolved()
    assert set(found.files) == {"in.txt", "g/a", "g/b"}
    assert set(found.verify_files) == {"t.py"}
    assert set(found.base) == {"out"}


def test_a_model_never_sees_the_inputs_of_verification():
    assert [(one.path, one.slice) for one in resolved().given] == [
        ("in.txt", ""),
        ("g/a", ""),
        ("g/b", ""),
        ("s.md", "H"),
        ("**", "list"),
        ("out", ""),
    ]


def test_a_file_that_two_inputs_name_is_given_once():
    twice = replace(STAGE, inputs=(PathInput("g/b"), GlobInput("g/*")))
    assert [one.path for one in resolved(stage=twice).given] == ["g/b", "g/a", "out"]


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ((PathInput("nothing"),), "E822"),
        ((SliceInput("nothing", "H"),), "E822"),
        ((SliceInput("s.md", "Z"),), "E833"),
    ],
)
def test_an_error_in_an_input_is_reported_and_not_raised(inputs, code):
    assert [d.code for d in resolved(stage=replace(SHELL, inputs=inputs)).broken] == [code]


@pytest.mark.parametrize(
    "inputs",
    [(PathInput("nothing", optional=True),), (SliceInput("nothing", "H", optional=True),), (GlobInput("n/*"),)],
)
def test_an_optional_input_and_an_empty_glob_may_be_missing(inputs):
    assert resolved(stage=replace(SHELL, inputs=inputs)).broken == ()


def test_too_much_context_is_an_error():
    files, size = resolved(**llm(max_files=5, max_bytes=10)).broken
    assert [files.code, size.code] == ["E834", "E834"]
    assert "`explore`" in (files.hint or "")
    for way in ("#L10-40`", "with `returns: edits`", "`explore`", "llm.context.max_bytes"):
        assert way in (size.hint or "")


def test_a_prompt_that_does_not_render_is_an_error_with_its_location():
    (problem,) = resolved(files=author(**{"p.j2": "\n{{ nothing }}"})).broken
    assert problem.code == "E832"
    assert problem.location is not None
    assert (problem.location.file, problem.location.line) == ("p.j2", 2)


def test_files_of_a_program_are_in_the_key_if_there_is_a_program():
    assert not any(one.startswith("program:") for one in resolved(**llm(read=("in.txt",))).manifest)
    assert "program:in.txt" in resolved(**llm(command=("ask",), read=("in.txt",))).manifest
