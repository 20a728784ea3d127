"""Write plain values for programs, as one JSON document."""

import json
from collections.abc import Mapping

from orch23.model.hidden import plain_json
from orch23.model.plain import Json


def document(value: Mapping[str, Json]) -> str:
    """Return a value as the one JSON document that a `--json` command writes."""
    return plain_json(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=plain_value)) + "\n"


def plain_value(value: object) -> object:
    """Show json the mappings and sequences that are not dict and list."""
    return dict(value) if hasattr(value, "items") else list(value)  # type: ignore[call-overload] # a sequence
