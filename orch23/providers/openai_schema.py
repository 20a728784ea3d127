"""Say how a schema in the reduced form (see `wire`) is sent to OpenAI's interfaces: strictly, or else as advice."""

from collections.abc import Mapping

from orch23.model.digest import Json

NAME = "answer"
_DEEPEST = 10
_UNKNOWN_FORMATS = frozenset({"uri"})


def answer_format(schema: Json) -> dict[str, Json]:
    """Return the named schema as both interfaces take it."""
    return {"name": NAME, "schema": schema, "strict": is_strict(schema)}


def is_object(schema: Json) -> bool:
    """Say whether the answer is an object: the vendor takes no other schema."""
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def is_strict(schema: Json) -> bool:
    """Say whether a schema keeps the further rules of strict outputs; one that breaks them would be refused.

    The root is an object, all properties of all objects are required, nothing is nested deeper than ten times.
    """
    return is_object(schema) and _is_fit(schema, 0)


def _is_fit(schema: Json, depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > _DEEPEST or schema.get("format") in _UNKNOWN_FORMATS:
        return False
    properties, required = schema.get("properties"), schema.get("required")
    inner: list[Json] = [schema["items"]] if "items" in schema else []
    if schema.get("type") == "object":
        if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
            return False
        if set(properties) != set(required) or schema.get("additionalProperties") is not False:
            return False
        inner += properties.values()
    branches = schema.get("anyOf")
    inner += branches if isinstance(branches, list | tuple) else ()
    return all(_is_fit(one, depth + 1) for one in inner)
