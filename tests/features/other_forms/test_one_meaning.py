"""No response with several meanings is accepted, whatever it is put together from.

A second reader, written from the page and not from the code, collects everything in a response that claims to be a
file. An accepted proposal has all of these claims, and for each path only one content.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from hypothesis import event, given
from hypothesis import strategies as st

from orch23.model.llm import Judgement, Proposal
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

PATHS = st.sampled_from(["src/a.txt", "src/b.txt", "c.txt"])
TEXTS = st.sampled_from(
    ["one\n", "two\n", "one", "", "a &lt; b\n", "  one\n", "<file>\n", "</file>\n", "```\nx\n```\n"]
)
LINES = st.lists(st.sampled_from(["one", "two\n", "", "a\nb"]), min_size=1, max_size=3)
SCOPE = ProposalScope(cwd=".", write_scope=WriteScope(("src/", "c.txt"), delete=("src/",)), base={"src/b.txt": "one\n"})


def judge(text: str) -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns="files")
    return judge_response(text, "end", SCOPE, step=step, outputs=("c.txt",))


# ---- responses ------------------------------------------------------------------------------------


@st.composite
def values(draw: st.DrawFn) -> Any:
    content = draw(TEXTS | LINES)
    names = (
        st.sampled_from(["path", "Path", "file_path", "filePath"]),
        st.sampled_from(["content", "Content", "contents"]),
    )
    entry: Any = {draw(names[0]): draw(PATHS), draw(names[1]): content}
    if draw(st.integers(0, 5)) == 0:
        entry |= {"path": draw(PATHS), "content": draw(TEXTS)}
    name = draw(st.sampled_from(["write_file", "answer", "append_file", "Write"]))
    arguments = draw(st.sampled_from([entry, json.dumps(entry)]))
    called = {"name": name, draw(st.sampled_from(["arguments", "input"])): arguments}
    forms = [entry, [entry], {"files": [entry]}, {"Writes": [entry]}, {draw(PATHS): content}, called]
    forms += [{"function": called}, {"tool_calls": [called, *draw(st.sampled_from([[], [called], [entry]]))]}]
    return draw(st.sampled_from(forms))


@st.composite
def elements(draw: st.DrawFn) -> str:
    path, text, start = draw(PATHS), draw(TEXTS), draw(st.sampled_from(["\n", ""]))
    end = draw(st.sampled_from(["</file>", "</file>", "</file>", "", "</file></file>"]))
    nested = f"<file>\n<path>{path}</path>\n<content>{start}{text}</content>\n{end}"
    called = f"<tool_call>\n{json.dumps(draw(values()))}\n</tool_call>"
    return draw(st.sampled_from([f'<file path="{path}">{start}{text}{end}', nested, called]))


PROSE = st.sampled_from(
    ["Done.", "As asked, in [1]:", "```", "{x}", '{"', "delete: src/b.txt", "<file>", "- c.txt", "No changes."]
)
COMMENTED = values().map(lambda value: json.dumps(value, indent=1).replace(",\n", ", // as asked\n"))
PARTS = st.one_of(
    COMMENTED, values().map(json.dumps), values().map(lambda value: json.dumps(value, indent=1)), elements(), PROSE
)
FENCED = PARTS.map(lambda text: f"```\n{text}\n```")
RESPONSES = st.lists(PARTS | PARTS | FENCED, min_size=1, max_size=3).map("\n\n".join)


# ---- the second reader ----------------------------------------------------------------------------


def claims(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each path that a response names a content for, with all that this content may be."""
    for found in re.finditer(r'^[ ]*<file path="(.*?)">\n?(.*?)</file>', text, re.DOTALL | re.MULTILINE):
        yield found[1], readings(found[2])
    for found in re.finditer(r"<path>(.*?)</path>\n<content>\n?(.*?)</content>", text, re.DOTALL):
        yield found[1], readings(found[2])
    text = text.replace(", // as asked\n", ",\n")
    at = 0
    while (at := min((n for n in (text.find("{", at), text.find("[", at)) if n >= 0), default=-1)) >= 0:
        try:
            value, at = json.JSONDecoder(object_pairs_hook=list).raw_decode(text, at)
        except ValueError:
            at += 1
        else:
            yield from claims_of(value)


def readings(text: str) -> frozenset[str]:
    escaped = text.replace("&lt;", "<")
    dedented = re.sub(r"^ +", "", text, flags=re.MULTILINE)
    return frozenset({text, escaped, dedented})


def claims_of(value: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the claims of a JSON value, whose objects are lists of pairs: a key may be there twice."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        yield from claims(value)
    if not isinstance(value, list):
        return
    pairs = [one for one in value if isinstance(one, tuple)]
    paths = [one for key, one in pairs if key.lower().replace("_", "") in ("path", "filepath")]
    contents = [one for key, one in pairs if key.lower() in ("content", "contents")]
    for path in paths:
        for content in contents:
            yield path, contents_of(content)
    for key, one in pairs:
        if re.fullmatch(r"[\w/]+\.txt", key):
            yield key, contents_of(one)
        if key.lower() not in ("content", "contents"):
            yield from claims_of(one)
    for one in value:
        if not isinstance(one, tuple):
            yield from claims_of(one)


def contents_of(content: Any) -> frozenset[str]:
    if isinstance(content, str):
        return frozenset({content})
    whole = {"".join(content)} if any("\n" in one for one in content) or len(content) == 1 else set()
    lines = {"\n".join(content)} if not all("\n" in one for one in content[:-1]) or len(content) == 1 else set()
    return frozenset(whole | lines)


@given(RESPONSES)
def test_what_is_accepted_has_one_meaning(text: str) -> None:
    with mock.patch.object(proposal, "_other_form", return_value=None):
        usual = judge(text)
    found = judge(text)
    if isinstance(usual, Proposal):
        assert found == usual, "what was accepted without other forms is unchanged"
        return
    event(f"accepted: {isinstance(found, Proposal)}")
    if not isinstance(found, Proposal):
        return
    written = {one.path: one.content.rstrip("\n") for one in found.writes}
    claimed: dict[str, set[str]] = {}
    for path, contents in claims(text):
        claimed.setdefault(path, set()).update(one.rstrip("\n") for one in contents)
    assert claimed.keys() == written.keys()
    for path, found_contents in claimed.items():
        assert found_contents == {written[path]}, path
    assert "append" not in text
    assert found.deletes == ()
    assert "delete: src" not in text
