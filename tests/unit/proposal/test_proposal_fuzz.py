"""Whatever is answered, the judge does not break, and what it accepts keeps the rules, as this page reads them.

The rules are written again here, from what is promised and not from the code, so that an error in one is no error in
the other.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping

from hypothesis import example, find, given
from hypothesis import strategies as st

from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

BASE: Mapping[str, str] = {
    "ws/src/a.py": "def f():\n    return 1\n",
    "ws/src/old_a.txt": "old\n",
    "ws/src/D/x.txt": "x\n",
}
FENCE = WriteScope(("ws/src/", "ws/README.md"), protect=("ws/src/locked/",), delete=("ws/src/old_*",))
OUTPUTS = ("ws/src/a.py",)
HIDDEN = frozenset({"ws/src/hidden.txt"})


def judge(text: str, returns: str = "files", stop: str = "end") -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns)  # type: ignore[arg-type]
    return judge_response(
        text,
        stop,  # type: ignore[arg-type]
        ProposalScope(cwd="ws", write_scope=FENCE, base=BASE, not_shown=HIDDEN),
        step=step,
        outputs=OUTPUTS,
    )


# ---- the rules, read again -----------------------------------------------------------------------

PROTECTED = re.compile(
    r"(^|/)(\.git|\.orch23|\.env[^/]*|[^/]*\.pth|sitecustomize\.py|usercustomize\.py|conftest\.py|pytest\.ini|tox\.ini"
    r"|setup\.cfg|pyproject\.toml|makefile)(/|$)"
)
DEVICE = re.compile(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?$")


def keep_the_rules(path: str) -> None:
    """Hold a path from the root to safety.md, Paths."""
    assert path.startswith("ws/src/") or path == "ws/README.md", "in the fence"
    assert not path.startswith("ws/src/locked/"), "protected by the pipeline"
    assert not PROTECTED.search(path.casefold()), "a protected name"
    assert unicodedata.is_normalized("NFC", path)
    assert not re.search(r'[\\:*?"<>|]', path)
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in path)
    assert len(path.encode()) <= 1024 + len("ws/")
    names = path.split("/")
    assert len(names) <= 33
    for name in names:
        assert name not in {"", ".", ".."}
        assert not name.startswith(("-", "~"))
        assert not name.endswith((".", " "))
        assert len(name.encode()) <= 200
        assert not DEVICE.match(name.casefold())


def hold(proposal: Proposal) -> None:
    """Hold an accepted proposal to every rule."""
    paths = [write.path for write in proposal.writes]
    for path in (*paths, *proposal.deletes):
        keep_the_rules(path)
    for path in proposal.deletes:
        assert path.startswith("ws/src/old_")
        assert path in BASE
    assert not HIDDEN & {*paths, *proposal.deletes}
    there = {*BASE, *HIDDEN} - set(proposal.deletes)
    folded = [unicodedata.normalize("NFC", path.casefold()) for path in {*paths, *there}]
    assert len(folded) == len(set(folded)), "two files that are one on many disks"
    assert not set(paths) & set(proposal.deletes)
    for path in paths:
        assert not any(other.casefold().startswith(f"{path.casefold()}/") for other in {*paths, *there}), "a directory"
    if not paths and not proposal.deletes:
        assert set(OUTPUTS) <= set(BASE), "what stays is there"
    sizes = [len(write.content.encode()) for write in proposal.writes]
    assert all(size <= 200_000 for size in sizes)
    assert sum(sizes) <= 500_000
    for write in proposal.writes:
        assert "\0" not in write.content
        if not write.base_sha256:  # null, though the file was shown
            continue
        text = BASE.get(write.path)
        expected = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        assert write.base_sha256.lower() == expected
        if write.path.endswith(".py"):
            compile(write.content, write.path, "exec", dont_inherit=True)


# ---- answers ---------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["src", "src", "src", "a.py", "old_a.txt", "D", "d", "x.txt", "hidden.txt", "locked", "README.md"]),
    st.sampled_from(
        [".git", ".env.local", "conftest.py", "..", ".", "", "con", "aux.txt", "A.py", "café", "cafe\u0301"]
    ),
    st.text(alphabet=st.sampled_from("ab.-~ :/\\*\u200b\u202e\u3164\x00\n\u00dfS"), max_size=6),
    st.text(max_size=4),
)
PATHS = st.one_of(
    st.lists(NAMES, min_size=1, max_size=4).map("/".join),
    NAMES.map(lambda name: f"src/{name}"),
    st.integers(1, 45).map(lambda depth: "src/" + "d/" * depth + "f"),
    st.integers(150, 250).map(lambda length: f"src/{'n' * length}"),
)
CONTENTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["x = 1\n", "def f(:\n", "# ... rest of code unchanged\n", "a\x00b"]),
)
BASES = st.one_of(
    st.none(), st.just(""), st.sampled_from([hashlib.sha256(text.encode()).hexdigest() for text in BASE.values()])
)
WRITES = st.fixed_dictionaries({"path": PATHS, "content": CONTENTS}, optional={"base_sha256": BASES})
ENVELOPES = st.one_of(
    st.fixed_dictionaries(
        {"writes": st.lists(WRITES, max_size=4)},
        optional={
            "summary": st.text(max_size=5),
            "deletes": st.lists(PATHS, max_size=3),
            "error": st.none() | st.text(max_size=5),
        },
    ),
    st.fixed_dictionaries({"edits": st.lists(WRITES, max_size=4)}),
    st.dictionaries(PATHS, CONTENTS, max_size=4),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
STOPS = st.sampled_from(["end", "stop_sequence", "max_tokens", "unknown", "refusal"])
RETURNS = st.sampled_from(["files", "blocks", "edits", "json", "text", "code"])


@given(ENVELOPES)
@example({"writes": [{"path": "src/b.py", "content": "x = 1\n"}], "deletes": ["src/old_a.txt"]})
@example({"src/d/x.txt": "case"})
@example({"src/HIDDEN.txt": "case"})
@example({"src/old_a.txt/b": "x"})
@example({"src/b.txt": "x" * 200_000, "src/c.txt": "x" * 200_000, "src/d.txt": "x" * 100_000})
@example({"src/b.txt": "x" * 200_001})
@example({"src/b.txt": "x" * 200_000, "src/c.txt": "x" * 200_000, "src/d.txt": "x" * 100_001})
def test_what_is_accepted_keeps_every_rule(answer) -> None:
    judgement = judge(json.dumps(answer))
    if isinstance(judgement, Proposal):
        hold(judgement)
    else:
        assert judgement.diagnostics
        assert all(d.message and d.hint for d in judgement.diagnostics)


def test_some_of_it_is_accepted() -> None:
    """Rules of what is accepted say something only if something is."""
    answer = find(ENVELOPES, lambda one: isinstance(judge(json.dumps(one)), Proposal))
    assert answer


@given(st.one_of(st.text(), ANYTHING.map(json.dumps), ENVELOPES.map(json.dumps)), RETURNS, STOPS)
def test_no_response_makes_the_judge_raise(text: str, returns: str, stop: str) -> None:
    judgement = judge(text, returns, stop)
    assert isinstance(judgement, Proposal | RefusedResponse)
    if stop == "refusal":
        assert isinstance(judgement, RefusedResponse)
    if isinstance(judgement, RefusedResponse):
        assert judgement.diagnostics
        assert all(str(d).isprintable() for d in judgement.diagnostics)


@given(st.text(alphabet=st.sampled_from("`~ \npython#.x=1(\r\u2028\x0c"), max_size=60), STOPS)
def test_no_code_fences_make_the_judge_raise(text: str, stop: str) -> None:
    judgement = judge(text, "code", stop)
    if isinstance(judgement, Proposal):
        (write,) = judgement.writes
        assert write.path == "ws/src/a.py"
        assert write.content.endswith("\n")
        assert write.content.strip()
        compile(write.content, write.path, "exec", dont_inherit=True)
