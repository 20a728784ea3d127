"""A file of slices alone: they are found in it as in the source, and nothing shows that the key does not hold."""

import json
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from orch23.cli.project_loading import read_yaml
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.pipeline import CheckStep, PathInput, Pipeline, SliceInput, Stage, Verify
from orch23.model.record import Facts
from orch23.model.step import Step
from orch23.resolve.resolution import resolve_stage
from orch23.resolve.slices import compose_slices, take_slice
from orch23.resolve.text_slices import SliceError
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.shell.spec import ShellStep

PIPELINE = Pipeline(name="p", file="p.yaml", stages=())
DATA = {
    "tasks": [{"id": "T0", "n": 1}, {"id": "T1", "n": 2, "to": {"k": 3}}, {"id": 2, "n": 4}],
    "years": {"2024": "a", "2025": "b"},
    "x": {"y": 1, "z": [5, 6]},
    "odd": {"[id=T0]": 1, "a/b": 2},
}


def composed(value, *pointers):
    return json.loads(compose_slices(take_slice(json.dumps(value), "f.json", one, json.loads) for one in pointers))


@pytest.mark.parametrize(
    ("pointers", "wanted"),
    [
        (["/x/y"], {"x": {"y": 1}}),
        (["/x/z/1"], {"x": {"z": [None, 6]}}),
        (["/x", "/x/y"], {"x": {"y": 1, "z": [5, 6]}}),
        (["/years/2024"], {"years": {"2024": "a"}}),
        (["/odd/[id=T0]", "/odd/a~1b"], {"odd": {"[id=T0]": 1, "a/b": 2}}),
        (["/tasks/[id=T1]"], {"tasks": [{"id": "T1", "n": 2, "to": {"k": 3}}]}),
        (["/tasks/[id=T1]/to/k"], {"tasks": [{"id": "T1", "to": {"k": 3}}]}),
        (["/tasks/[id=2]/n"], {"tasks": [{"id": "2", "n": 4}]}),
        (["/tasks/[id=2]/n", "/tasks/[id=2]/id"], {"tasks": [{"id": 2, "n": 4}]}),
        (["/tasks/0/n", "/tasks/[id=T1]/n"], {"tasks": [{"n": 1}, {"id": "T1", "n": 2}]}),
        (["/tasks/1/id", "/tasks/[id=T1]/n"], {"tasks": [None, {"id": "T1", "n": 2}]}),
        (["/tasks/[n=1]", "/tasks/[id=T0]"], {"tasks": [{"id": "T0", "n": 1}]}),
        (["/tasks/[n=2]/to", "/tasks/[id=T1]/n"], {"tasks": [{"id": "T1", "n": 2, "to": {"k": 3}}]}),
        (["/tasks/1/n", "/tasks/[id=T1]/n", "/tasks/[n=2]/id"], {"tasks": [None, {"id": "T1", "n": 2}]}),
    ],
)
def test_values_are_where_they_are_in_the_source(pointers, wanted):
    assert composed(DATA, *pointers) == composed(DATA, *reversed(pointers)) == wanted


def test_a_field_that_is_not_a_scalar_selects_as_it_does_in_the_source():
    value = [{"id": {"k": 1, "n": 2}, "x": 3}]
    assert composed(value, "/[id={'k': 1, 'n': 2}]/x") == [{"id": "{'k': 1, 'n': 2}", "x": 3}]
    assert composed(value, "/[id={'k': 1, 'n': 2}]/id/k") == [{"id": {"k": 1}}]


def sections(text, *headings):
    return compose_slices(take_slice(text, "f.md", one, json.loads) for one in headings).decode()


SPEC = "# App\nintro\n## Login\nby name\n### Token\nt\n## Logout\nby click\n# End\nend\n"


@pytest.mark.parametrize(
    ("headings", "wanted"),
    [
        (["Login"], "## Login\nby name\n### Token\nt\n"),
        (["Logout", "Login"], "## Login\nby name\n### Token\nt\n\n## Logout\nby click\n"),
        (["Login", "Token"], "## Login\nby name\n### Token\nt\n"),
        (["End", "Logout"], "## Logout\nby click\n\n# End\nend\n"),
    ],
)
def test_sections_follow_each_other_deeper_ones_first(headings, wanted):
    assert sections(SPEC, *headings) == sections(SPEC, *reversed(headings)) == wanted


def test_a_section_is_kept_that_another_one_only_quotes():
    text = "# A\n```\n## B\nb\n```\n# C\n## B\nb\n"
    assert sections(text, "A", "B") == "## B\nb\n\n# A\n```\n## B\nb\n```\n"


# ---- for all documents ------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "id", "0", "1", "[id=a]", "a/b", "~"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)  # what YAML may hold here
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["C"]) | st.sampled_from("\x7f\x85\u2028\ufeff"), max_size=5)
    | names
)
values = st.recursive(leaves, lambda one: st.lists(one, max_size=3) | st.dictionaries(names, one, max_size=3))
documents = st.lists(values, max_size=4) | st.dictionaries(names, values, max_size=4)


def pointers_of(value, pointer=""):
    """Give each pointer into a value, positions and fields alike."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in steps:
        spellings = [str(step)]
        if isinstance(value, list) and isinstance(below, dict):
            plain = (name for name in ("id", "a") if isinstance(below.get(name), str | int))
            spellings += [f"[{name}={below[name]}]" for name in plain]
        for one in spellings:
            here = f"{pointer}/{one.replace('~', '~0').replace('/', '~1')}"
            yield here
            yield from pointers_of(below, here)


@st.composite
def cuts(draw):
    """Give a document and some slices of it."""
    value = draw(documents)
    text = json.dumps(value)
    found = []
    for pointer in draw(st.lists(st.sampled_from(sorted(set(pointers_of(value))) or ["/none"]), max_size=4)):
        try:
            found.append(take_slice(text, "f.json", pointer, json.loads))
        except SliceError:  # two items have that field
            continue
    assume(found)
    return value, found


@given(cuts())
def test_each_slice_is_found_in_the_file_by_its_own_pointer(cut):
    _, found = cut
    text = compose_slices(found).decode()
    assert [take_slice(text, "f.json", one.selector, json.loads).text for one in found] == [one.text for one in found]


@pytest.mark.slow
@given(cuts())
def test_a_yaml_parser_reads_the_same_values_as_a_json_parser(cut):
    text = compose_slices(cut[1]).decode()
    assert yaml.safe_load(text) == json.loads(text)
    assert repr(yaml.safe_load(text)) == repr(json.loads(text))  # True is not 1, and 1.0 is not 1


titles = st.sampled_from(["A", "B", "C", "D", "E"])
bodies = st.sampled_from(["", "text\n", "```\n# A\n```\n", "\n\n", "caf\u00e9\r\n", "# \n"])
parts_of_text = st.lists(
    st.tuples(st.integers(1, 4), titles, bodies), min_size=1, max_size=5, unique_by=lambda one: one[1]
)


def markdown(parts):
    return "".join(f"{'#' * level} {title}\n{body}" for level, title, body in parts)


@given(parts_of_text, st.data())
def test_each_section_is_found_in_the_file_by_its_own_heading(parts, data):
    chosen = data.draw(st.lists(st.sampled_from([title for _, title, _ in parts]), min_size=1))
    text = sections(markdown(parts), *chosen)
    found = [take_slice(text, "f.md", one, json.loads) for one in chosen]
    assert found == [take_slice(markdown(parts), "f.md", one, json.loads) for one in chosen]


# ---- nothing that is not in the key ------------------------------------------------------------


@dataclass
class Tree:
    """One file."""

    path: str
    data: bytes
    executable: bool = False

    def entry(self, path):
        return FileEntry(digest_bytes(self.data), self.executable) if path == self.path else None

    def matching(self, pattern, exclude=()):
        return {}

    def listed(self, pattern, exclude=()):
        return ()

    def links(self, pattern):
        return ()

    def versions(self):
        return {}

    def read(self, path, entry):
        return self.data


class NoTexts:
    def text(self, path):
        return "", None


LLM = LLMStep(provider="p", model="m", prompt="p.j2", returns="text")
STEPS: dict[str, Step] = {"shell": ShellStep("x"), "pytest": PytestStep(paths=("t",)), "llm": LLM}


def written(value):
    """Return the text of a document, readable as JSON and as YAML."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text).encode()


def resolved(step, tree, selectors, verified=()):
    stage = Stage(
        name="s",
        step=STEPS[step],
        inputs=tuple(SliceInput(tree.path, one) for one in selectors),
        outputs=("out",),
        verify=Verify((ShellStep("y"),), tuple(SliceInput(tree.path, one) for one in verified)),
    )
    return resolve_stage(stage, tree, Facts(), NoTexts(), pipeline=PIPELINE, read_yaml=read_yaml)


def changed(draw, value):
    """Return a document that is much as another one, so that some of its slices are the same."""
    if draw(st.integers(0, 9)) == 0:
        return draw(values)
    if isinstance(value, dict):
        items = [(name, changed(draw, one)) for name, one in draw(st.permutations(list(value.items())))]
        if draw(st.integers(0, 3)) == 0 and sorted(value) == [str(n) for n in range(len(value))]:
            return [one for _, one in sorted(items)]
        return {**dict(items), **({"more": "REST"} if draw(st.booleans()) else {})}
    if isinstance(value, list):
        items = [changed(draw, one) for one in value]
        return {str(n): one for n, one in enumerate(items)} if draw(st.integers(0, 3)) == 0 else items
    return value


@pytest.mark.slow
@given(cuts(), st.data(), st.sampled_from(sorted(STEPS)), st.sampled_from(["f.json", "f.yaml"]))
def test_what_is_staged_of_data_follows_from_the_key(cut, data, step, path):
    value, found = cut
    selectors = [one.selector for one in found]
    verified = data.draw(st.lists(st.sampled_from(selectors)))
    other = changed(data.draw, value)
    one = resolved(step, Tree(path, written(value)), selectors, verified)
    two = resolved(step, Tree(path, b" " + written(other), executable=True), selectors, verified)
    assert not one.broken
    if one.key == two.key:
        assert (one.parts, one.verify_parts, one.composed) == (two.parts, two.verify_parts, two.composed)


@given(parts_of_text, st.data(), st.sampled_from(sorted(STEPS)))
def test_what_is_staged_of_text_follows_from_the_key(parts, data, step):
    chosen = data.draw(st.lists(st.sampled_from([title for _, title, _ in parts]), min_size=1, unique=True))
    other = markdown([*data.draw(st.permutations(parts)), *data.draw(st.sampled_from([[], [(1, "Z", "REST\n")]]))])
    one = resolved(step, Tree("f.md", markdown(parts).encode()), chosen, chosen[:1])
    two = resolved(step, Tree("f.md", b"\xff\n" + other.encode()), data.draw(st.permutations(chosen)), chosen[:1])
    if one.key == two.key:
        assert (one.parts, one.verify_parts, one.composed) == (two.parts, two.verify_parts, two.composed)


def test_a_mapping_whose_keys_look_like_positions_has_another_key_than_a_list():
    one = resolved("shell", Tree("f.json", b'{"x": {"0": "a"}}'), ["/x/0"])
    two = resolved("shell", Tree("f.json", b'{"x": ["a"]}'), ["/x/0"])
    assert (one.composed[0], two.composed[0]) == (b'{"x":{"0":"a"}}\n', b'{"x":["a"]}\n')
    assert {aspect: one.manifest[aspect] for aspect in one.manifest.keys() - two.manifest.keys()} == {
        "keys:f.json#/x/0": [1],
        "verify.keys:f.json#/x/0": [1],
    }


def test_a_model_that_is_only_shown_slices_has_the_key_that_it_had():
    asked = Stage(name="s", step=LLM, inputs=(SliceInput("f.json", "/x/0"),), outputs=("out",))
    checked = Verify((CheckStep("python_syntax"),))
    tree = Tree("f.json", b'{"x": {"0": "a"}}')
    for verify in (Verify(), checked):
        stage = Stage(name="s", step=LLM, inputs=asked.inputs, outputs=("out",), verify=verify)
        found = resolve_stage(stage, tree, Facts(), NoTexts(), pipeline=PIPELINE, read_yaml=read_yaml)
        assert not [aspect for aspect in found.manifest if "keys" in aspect]
        assert (found.parts, found.verify_parts) == ({}, {})


def test_nothing_is_composed_of_a_file_that_is_given_as_a_whole():
    inputs = (SliceInput("f.json", "/x/0"), PathInput("f.json"))
    stage = Stage(name="s", step=STEPS["shell"], inputs=inputs, outputs=("out",), verify=Verify((ShellStep("y"),)))
    tree = Tree("f.json", b'{"x": {"0": "a"}}')
    found = resolve_stage(stage, tree, Facts(), NoTexts(), pipeline=PIPELINE, read_yaml=read_yaml)
    assert (found.parts, found.verify_parts, found.composed) == ({}, {}, ())
    assert not [aspect for aspect in found.manifest if "keys" in aspect]
