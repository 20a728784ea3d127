"""The page in the docs that describes every key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orch23.resolve.schema import pipeline_schema, reference_page

ROOT = Path(__file__).parents[3]


def keys(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        properties = node.get("properties")
        yield from properties if isinstance(properties, dict) and "type" in node else ()
        for below in node.values():
            yield from keys(below)


def test_the_page_in_the_docs_is_the_one_that_the_schema_gives() -> None:
    assert (ROOT / "docs/pipeline-reference.md").read_text("utf-8") == reference_page()


def test_the_page_names_every_key() -> None:
    page = reference_page()
    found = set(keys(pipeline_schema()))
    assert len(found) > 100
    for name in found:
        assert f"| `{name}`" in page, name


def test_the_page_says_which_keys_are_of_a_later_version() -> None:
    assert "Not in this version yet, and refused: `matrix`, `approve`, `pinned`, `samples`." in reference_page()
