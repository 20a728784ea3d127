"""The change of a pipeline's text that a likely cause needs: one line, and the YAML means what it should."""

from typing import Any

import pytest
import yaml

from orch23.decide.yaml_edit import with_word, yaml_edit, yaml_line
from orch23.load.yaml_errors import PIPELINE_LIMITS
from orch23.load.yaml_text import parse_yaml
from orch23.model.event_data import LikelyCause


def cause(key: str, value: str, *, appends: bool = False) -> LikelyCause:
    return LikelyCause(kind="limit", text="t", key=key, value=value, appends=appends)


INPUT = cause("inputs", "b/c.md", appends=True)


def changed(body: str, wanted: LikelyCause) -> Any:
    """Return the stage `a` after the change; None if there is no change."""
    text = f"stages:\n{body}"
    places = parse_yaml(text, "p.yaml", PIPELINE_LIMITS).positions
    edit = yaml_edit(text, "a", places, wanted)
    if edit is None:
        return None
    assert text.split("\n")[edit.line - 1] == edit.old
    return yaml.safe_load(edit.apply(text))["stages"]["a"]


@pytest.mark.parametrize(
    ("body", "wanted", "key", "value"),
    [
        ("  a:\n    inputs: [a.md]\n", INPUT, "inputs", ["a.md", "b/c.md"]),
        ("  a:\n    inputs: []\n", INPUT, "inputs", ["b/c.md"]),
        ("  a:\n    inputs: ['x]', \"y,\"]  # two\n", INPUT, "inputs", ["x]", "y,", "b/c.md"]),
        ("  a:\n    inputs:\n      - a.md\n      - path: d\n        optional: true\n    shell: x\n", INPUT, "inputs",
         ["a.md", {"path": "d", "optional": True}, "b/c.md"]),
        ("  a:\n    inputs:\n    - a.md\n    shell: x\n", INPUT, "inputs", ["a.md", "b/c.md"]),
        ("  a:\n    # first\n    shell: x\n", INPUT, "inputs", ["b/c.md"]),
        ("  a: {shell: x}\n", INPUT, "inputs", ["b/c.md"]),
        ("  b: {shell: a}\n  a: {inputs: [x], shell: x}\n", INPUT, "inputs", ["x", "b/c.md"]),
        ("  a:\n    timeout: 5s # short\n", cause("timeout", "10s"), "timeout", "10s"),
        ("  a:\n    network: false\n", cause("network", "true"), "network", True),
        ("  a:\n    limits: {memory: 1GiB, files: 3}\n", cause("limits/memory", "2GiB"), "limits",
         {"memory": "2GiB", "files": 3}),
        ("  a:\n    limits: {files: 3}\n", cause("limits/memory", "2GiB"), "limits", {"memory": "2GiB", "files": 3}),
        ("  a:\n    limits:\n      files: 3\n", cause("limits/memory", "2GiB"), "limits",
         {"memory": "2GiB", "files": 3}),
        ("  a:\n    shell: x\n", cause("limits/memory", "2GiB"), "limits", {"memory": "2GiB"}),
        ("  a:\n    env: {A: b}\n", cause("env/B", "a b: c"), "env", {"A": "b", "B": "a b: c"}),
        ("  a:\n    verify: {steps: [{shell: x}]}\n", cause("verify/inputs", "b", appends=True), "verify",
         {"inputs": ["b"], "steps": [{"shell": "x"}]}),
    ],
)  # fmt: skip
def test_the_change_sets_the_key_and_nothing_else(body: str, wanted: LikelyCause, key: str, value: Any) -> None:
    before = yaml.safe_load(f"stages:\n{body}")["stages"]["a"]
    assert changed(body, wanted) == {**before, key: value}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("  a:\n    inputs: [a,\n      b]\n", INPUT),  # of several lines
        ("  a:\n    verify: [{shell: x}]\n", cause("verify/inputs", "b", appends=True)),  # a list has no key
        ("  a:\n    verify:\n      - shell: x\n", cause("verify/inputs", "b", appends=True)),
        ("  other: {shell: x}\n", INPUT),  # the stage is not in this text
    ],
)
def test_a_text_of_another_form_is_not_changed(body: str, wanted: LikelyCause) -> None:
    assert changed(body, wanted) is None


def test_without_a_text_the_key_is_written_in_one_line() -> None:
    assert yaml_line(INPUT) == "inputs: [..., b/c.md]"
    assert yaml_line(cause("limits/memory", "2GiB")) == "limits: {memory: 2GiB}"
    assert yaml_line(cause("env/A", 'x "y"')) == 'env: {A: "x \\"y\\""}'


def with_word_changed(body: str, old: str) -> Any:
    """Return the stages after the change of an input and of a word in the command; None if there is no change."""
    wanted = LikelyCause(
        kind="program", text="t", key="inputs", value="tools/wc", appends=True, old_word=old, new_word="tools/wc"
    )
    text = f"stages:\n{body}"
    places = parse_yaml(text, "p.yaml", PIPELINE_LIMITS).positions
    edits = with_word(yaml_edit(text, "a", places, wanted), text, "a", places, wanted)
    assert [edit.line for edit in edits] == sorted({edit.line for edit in edits})
    for edit in reversed(edits):
        assert text.split("\n")[edit.line - 1] == edit.old
        text = edit.apply(text)
    return yaml.safe_load(text)["stages"] if edits else None


@pytest.mark.parametrize(
    ("body", "old", "shell"),
    [
        ("  a:\n    inputs: [x]\n    shell: wc x > out/wc\n", "wc", "tools/wc x > out/wc"),
        ("  a:\n    inputs: [x]\n    shell: wc x\n    desc: wc\n  b: {shell: wc}\n", "wc", "tools/wc x"),
        ("  a:\n    inputs: [x]\n    shell: |\n      wc x && ./wc wc.txt\n      wc\n", "wc",
         "tools/wc x && ./wc wc.txt\ntools/wc\n"),
        ("  a:\n    shell: $HOME/wc x\n    inputs: [x]\n", "~/wc", "tools/wc x"),
        ("  a: {inputs: [x], shell: wc x}\n", "wc", "tools/wc x"),
        ("  a:\n    inputs:\n      - x\n    shell: [wc, x]\n", "wc", ["tools/wc", "x"]),
    ],
)  # fmt: skip
def test_a_word_of_the_command_is_replaced_together_with_the_key(body: str, old: str, shell: Any) -> None:
    before = yaml.safe_load(f"stages:\n{body}")["stages"]
    changed = with_word_changed(body, old)
    assert changed == {**before, "a": {**before["a"], "inputs": ["x", "tools/wc"], "shell": shell}}


@pytest.mark.parametrize(
    "body",
    [
        "  a:\n    inputs: [x]\n    shell: sh run.sh\n",
        "  a:\n    inputs: [x]\n    pytest: {args: [wc]}\n",
        "  a: {shell: sh run.sh}\n  wc: {shell: wc}\n",
    ],
)
def test_a_word_that_the_command_does_not_have_is_no_change(body: str) -> None:
    assert with_word_changed(body, "wc") is None
