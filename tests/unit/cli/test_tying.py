"""Where the text of each stage stands in a pipeline."""

import pytest

from orch23.cli.tying import block_lines
from orch23.load.pipeline import parse_pipeline

PLAIN = """\
version: 1
stages:
  # first
  a:
    shell: [make, a]
    outputs: [a]

  "b": {shell: [make, b], outputs: [b]}
  off:
    if: false
    shell: [make, off]
    outputs: [off]
  'c':
    shell:
      command: |+
        make c

    outputs: [c]
# the end
jobs: 2
"""


def found(text: str) -> dict[str, tuple[int, int]] | None:
    parsed = parse_pipeline(text, "p.yaml")
    assert parsed.pipeline is not None, parsed.diagnostics
    lines = block_lines(parsed.pipeline, text)
    return None if lines is None else dict(lines)


def test_a_stage_ends_where_the_next_begins_or_the_next_key() -> None:
    lines = found(PLAIN.replace("command: |+\n        make c\n\n", "[make, c]\n"))
    assert lines == {"a": (3, 7), "b": (7, 8), "off": (8, 12), "c": (12, 17)}


def test_the_last_stage_may_end_with_the_text() -> None:
    text = "version: 1\nstages:\n  a: {shell: [make, a], outputs: [a]}\n"
    assert found(text) == {"a": (2, 4)}
    assert found(f"jobs: 2\n{text}") == {"a": (3, 5)}


@pytest.mark.parametrize(
    "stages",
    [
        "stages: {a: {shell: [make, a], outputs: [a]}, b: {shell: [make, b], outputs: [b]}}",
        "stages: {\n  a: {shell: [make, a], outputs: [a]}, b: {shell: [make, b], outputs: [b]}}",
        "stages:\n  ? a\n  : {shell: [make, a], outputs: [a]}",
        'stages:\n  "\\x61": {shell: [make, a], outputs: [a]}',
    ],
)
def test_stages_that_cannot_be_told_apart_by_lines_have_none(stages: str) -> None:
    assert found(f"version: 1\n{stages}\n") is None
