"""The names of attributes: those of the pinned version of the conventions, and those that the page lists."""

import re
from importlib import import_module
from pathlib import Path

from opentelemetry.semconv.schemas import Schemas

from orch23.features.otel import conventions

ROOT = Path(conventions.__file__).parents[3]
PAGE = (ROOT / "docs/opentelemetry.md").read_text()
NAME = re.compile(r'"((?:orch23|gen_ai|server|error)\.[a-z_.]+)')


def test_the_names_are_those_of_the_conventions() -> None:
    ours = {value for value in vars(conventions).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    attributes = import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {value for value in vars(attributes).values() if isinstance(value, str)}
    assert len(ours) == 11
    assert ours <= known
    assert Schemas.V1_41_1.value == conventions.SCHEMA_URL


def test_the_page_lists_every_attribute_and_event_and_the_version() -> None:
    texts = [(ROOT / f"orch23/features/otel/{name}.py").read_text() for name in ("conventions", "build_spans")]
    names = {name.removesuffix(".") for text in texts for name in NAME.findall(text)}
    assert len(names) > 25
    assert {name for name in names if name not in PAGE} == set()
    assert conventions.CONVENTIONS in PAGE
