"""The classes of the language and the schema that follows from them: the same documents are good to both."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from orch23.resolve.complaints import own_complaints
from orch23.resolve.document import Document, PipelineDocument, keys_of
from orch23.resolve.reading import conforms
from orch23.resolve.schema import published_schema, relaxed_schema, schema_of
from tests.documents import EXPRESSIONS, ODD, WHOLE, broken_documents

THOUSAND = 1_000
DRIVES = 4
"""The documents are broken by as many seeds, so that several processes can share them."""


def fits(document: Any) -> bool:
    try:
        msgspec.convert(document, PipelineDocument)
    except msgspec.ValidationError:
        return False
    return True


def test_the_document_that_has_every_key_is_good() -> None:
    assert fits(WHOLE)
    assert own_complaints(WHOLE, schema_of(PipelineDocument)) == ()
    assert keys_below(WHOLE) >= {key for kind in kinds(Document) for key in keys_of(kind)}


def kinds(owner: type[Document]) -> list[type[Document]]:
    return [one for kind in owner.__subclasses__() for one in (kind, *kinds(kind))]


def keys_below(value: Any) -> set[str]:
    below = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return (set(value) if isinstance(value, Mapping) else set()).union(*map(keys_below, below))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRIVES))
def test_msgspec_and_the_schema_take_the_same_documents(seed: int) -> None:
    rules, good = schema_of(PipelineDocument), 0
    for document in broken_documents(seed, THOUSAND // DRIVES):
        found = own_complaints(document, rules)
        assert fits(document) == (found == ()), (found, document)
        good += not found
    assert THOUSAND // DRIVES // 10 < good < THOUSAND // DRIVES // 2, "both kinds of documents are tried"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRIVES))
def test_documents_with_expressions_are_the_same_to_all_three(seed: int) -> None:
    good = 0
    for document in broken_documents(seed, THOUSAND // DRIVES // 2, (*EXPRESSIONS, *ODD[:4])):
        found = own_complaints(document, relaxed_schema())
        assert conforms(document) == (found == ()), (found, document)
        assert (own_complaints(document, published_schema()) == ()) == (found == ()), (found, document)
        good += not found
    assert good > THOUSAND // DRIVES // 20


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("jobs", 1.0),
        ("jobs", True),
        ("version", 1.0),
        ("version", True),
        ("version", "1"),
        ("name", "x\n"),
        ("name", "..."),
        ("stop_conditions", {"max_wall": "5m\n"}),
        ("stop_conditions", {"max_cost_usd": float("inf")}),
        ("stop_conditions", {"max_tokens": True}),
        ("pools", {"a": None}),
        ("defaults", None),
        ("defaults", {"cwd": " \t"}),
        ("defaults", {"retry": 1.5}),
    ],
)
def test_in_the_corners_both_are_as_strict(key: str, value: Any) -> None:
    document = {"version": 1, "stages": {"s": {"shell": "x"}}, key: value}
    assert not fits(document)
    assert own_complaints(document, schema_of(PipelineDocument))
