"""The shape of a plan of work orders, as schemas and as values."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from orch23.model.digest import Json

MOST_ORDERS = 99  # an id has two digits
MOST_CONTEXT_FILES = 10

_TEXT: Json = {"type": "string", "minLength": 1}


def _conditions(*kinds: str) -> Json:
    return {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["kind", "path"],
            "additionalProperties": False,
            "properties": {"kind": {"enum": list(kinds)}, "path": _TEXT},
        },
    }


_REQUIRED: Json = [
    *("id", "title", "intent", "preconditions", "postconditions"),
    *("allowed_files", "forbidden", "acceptance_commands", "context_files"),
]

WORK_ORDER: Mapping[str, Json] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "work_order.v1",
    "description": "One piece of work: what holds before and after it, which files it may write, what shows it done.",
    "type": "object",
    "required": _REQUIRED,
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "description": "WO-01, WO-02 and so on, in the order of the work."},
        "title": _TEXT,
        "intent": _TEXT,
        "preconditions": _conditions("file_exists", "file_absent"),
        "postconditions": _conditions("file_exists"),
        "allowed_files": {"type": "array", "items": _TEXT, "uniqueItems": True, "minItems": 1},
        "forbidden": {"type": "array", "items": _TEXT},
        "acceptance_commands": {"type": "array", "items": _TEXT, "minItems": 1},
        "context_files": {"type": "array", "items": _TEXT, "uniqueItems": True, "maxItems": MOST_CONTEXT_FILES},
        "notes": {"type": ["string", "null"]},
        "verify_exempt": {"type": "boolean", "description": "Computed from the contract; a plan need not have it."},
    },
}

_CONTRACT: Json = {
    "type": "object",
    "description": "What must be there before the whole verification can pass.",
    "required": ["requires"],
    "additionalProperties": False,
    "properties": {"command": _TEXT, "requires": _conditions("file_exists")},
}

FRAME: Mapping[str, Json] = {
    "type": "object",
    "required": ["work_orders"],
    "additionalProperties": False,
    "properties": {
        "system_overview": {"type": ["string", "array"], "items": {"type": "string"}},
        "work_orders": {"type": "array", "minItems": 1, "maxItems": MOST_ORDERS},
        "verify_contract": _CONTRACT,
    },
}
"""The manifest without a look into its orders."""


def manifest_schema() -> dict[str, Json]:
    """Return the schema of a whole manifest, `work_orders.v1`."""
    order: dict[str, Json] = {key: value for key, value in WORK_ORDER.items() if key not in ("$schema", "title")}
    properties: dict[str, Json] = dict(_mapping(FRAME["properties"]))
    properties["work_orders"] = {**_mapping(properties["work_orders"]), "items": order}
    head: dict[str, Json] = {"$schema": WORK_ORDER["$schema"], "title": "work_orders.v1"}
    return {**head, **FRAME, "properties": properties}


class Order(Struct, frozen=True):
    """A work order whose shape is right. `label` is how complaints call it; conditions are pairs of kind and path."""

    label: str
    preconditions: tuple[tuple[str, str], ...]
    postconditions: tuple[str, ...]
    allowed_files: tuple[str, ...]
    context_files: tuple[str, ...]
    acceptance_commands: tuple[str, ...]


def read_order(label: str, order: Mapping[str, Json]) -> Order:
    """Return an order as a value; what is not of the right shape is left out."""
    return Order(
        label,
        conditions(order.get("preconditions")),
        tuple(path for kind, path in conditions(order.get("postconditions")) if kind == "file_exists"),
        texts(order.get("allowed_files")),
        texts(order.get("context_files")),
        texts(order.get("acceptance_commands")),
    )


def conditions(value: Json) -> tuple[tuple[str, str], ...]:
    """Return kind and path of each condition in a list."""
    found = []
    for one in _items(value):
        kind, path = (one.get("kind"), one.get("path")) if isinstance(one, Mapping) else (None, None)
        if isinstance(kind, str) and isinstance(path, str):
            found.append((kind, path))
    return tuple(found)


def required_paths(manifest: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the paths that the contract of a manifest requires; none without a contract."""
    contract = manifest.get("verify_contract")
    requires = contract.get("requires") if isinstance(contract, Mapping) else None
    return tuple(path for kind, path in conditions(requires) if kind == "file_exists")


def texts(value: Json) -> tuple[str, ...]:
    """Return the texts in a list."""
    return tuple(one for one in _items(value) if isinstance(one, str))


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
