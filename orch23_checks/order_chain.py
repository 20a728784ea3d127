"""Schema and values of work orders, and the errors of their sequence."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23_checks.acceptance_commands import CommandDependencies, PresentFiles

MAX_ORDERS = 99  # an id has two digits
MAX_CONTEXT_FILES = 10

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

WORK_ORDER_SCHEMA: Mapping[str, Json] = {
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
        "context_files": {"type": "array", "items": _TEXT, "uniqueItems": True, "maxItems": MAX_CONTEXT_FILES},
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

MANIFEST_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "required": ["work_orders"],
    "additionalProperties": False,
    "properties": {
        "system_overview": {"type": ["string", "array"], "items": {"type": "string"}},
        "work_orders": {"type": "array", "minItems": 1, "maxItems": MAX_ORDERS},
        "verify_contract": _CONTRACT,
    },
}
"""The manifest without a look into its orders."""


def manifest_schema() -> dict[str, Json]:
    """Return the schema of a whole manifest, `work_orders.v1`."""
    order: dict[str, Json] = {key: value for key, value in WORK_ORDER_SCHEMA.items() if key not in ("$schema", "title")}
    properties: dict[str, Json] = dict(_mapping(MANIFEST_SCHEMA["properties"]))
    properties["work_orders"] = {**_mapping(properties["work_orders"]), "items": order}
    head: dict[str, Json] = {"$schema": WORK_ORDER_SCHEMA["$schema"], "title": "work_orders.v1"}
    return {**head, **MANIFEST_SCHEMA, "properties": properties}


class WorkOrder(Struct, frozen=True):
    """A work order whose shape is right. `label` is how complaints call it; conditions are pairs of kind and path."""

    label: str
    preconditions: tuple[tuple[str, str], ...]
    postconditions: tuple[str, ...]
    allowed_files: tuple[str, ...]
    context_files: tuple[str, ...]
    acceptance_commands: tuple[str, ...]


def read_order(label: str, order: Mapping[str, Json]) -> WorkOrder:
    """Return an order as a value; what is not of the right shape is left out."""
    return WorkOrder(
        label,
        conditions(order.get("preconditions")),
        tuple(path for kind, path in conditions(order.get("postconditions")) if kind == "file_exists"),
        text_items(order.get("allowed_files")),
        text_items(order.get("context_files")),
        text_items(order.get("acceptance_commands")),
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


def text_items(value: Json) -> tuple[str, ...]:
    """Return the texts in a list."""
    return tuple(one for one in _items(value) if isinstance(one, str))


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def chain_problems(
    orders: Sequence[tuple[WorkOrder, Sequence[tuple[str, CommandDependencies]]]],
    required: Sequence[str],
    present: Iterable[str],
    *,
    roots: tuple[str, ...] = ("",),
    installed: frozenset[str] = frozenset(),
) -> Iterator[Diagnostic]:
    """Give E101 to E104, E106 and W101, in the order of the work.

    Each order comes with what its commands need, by the subject that a complaint of the command has. `present` are the
    paths that are there before the first order; each order adds those that its postconditions promise.
    """
    state = PresentFiles(roots)
    state.add(present)
    for order, needs in orders:
        yield from _before(order, state.files)
        yield from _scope(order)
        state.add(order.postconditions)
        for subject, needed in needs:
            yield from _missing(subject, needed, state, installed)
    for number, path in enumerate(required):
        if path not in state.files:
            yield Diagnostic(
                "E106",
                f"`{path}` is not there after the last order, so the whole verification never runs",
                hint="let an order make it, with a postcondition that says so, or take it off the contract",
                subject=f"verify_contract requires[{number}]",
            )


def with_verify_exempt(
    orders: Sequence[Mapping[str, Json]], required: Sequence[str], present: Iterable[str]
) -> tuple[dict[str, Json], ...]:
    """Return the orders anew, each with `verify_exempt`: whether the contract cannot be met yet when it is done.

    A value that an order has already is never looked at.
    """
    missing = set(required) - set(present)
    found: list[dict[str, Json]] = []
    for order in orders:
        missing -= {path for kind, path in conditions(order.get("postconditions")) if kind == "file_exists"}
        found.append({**order, "verify_exempt": bool(missing)})
    return tuple(found)


def _before(order: WorkOrder, files: set[str]) -> Iterator[Diagnostic]:
    kinds: dict[str, set[str]] = {}
    for kind, path in order.preconditions:
        kinds.setdefault(path, set()).add(kind)
    told: set[str] = set()
    for number, (kind, path) in enumerate(order.preconditions):
        subject = f"{order.label} preconditions[{number}]"
        if len(kinds[path]) > 1:
            if path not in told:
                told.add(path)
                what = f"`{path}` is asked both to be there and to be absent"
                yield Diagnostic("E102", what, hint="keep one of the two conditions", subject=subject)
        elif (path in files) != (kind == "file_exists"):
            if kind == "file_exists":
                what = f"`{path}` is not in the project, and no earlier order has it as a postcondition"
                hint = "let an earlier order make it, or drop the condition"
            else:
                what = f"`{path}` is there by then: it is in the project, or an earlier order makes it"
                hint = "drop the condition, or ask that the file exists"
            yield Diagnostic("E101", what, hint=hint, subject=subject)


def _scope(order: WorkOrder) -> Iterator[Diagnostic]:
    allowed, promised = set(order.allowed_files), set(order.postconditions)
    for number, path in enumerate(order.postconditions):
        if path not in allowed:
            yield Diagnostic(
                "E103",
                f"`{path}` is not in `allowed_files`, so the order cannot make it",
                hint="add it to `allowed_files`, or drop the postcondition",
                subject=f"{order.label} postconditions[{number}]",
            )
    for number, path in enumerate(order.allowed_files):
        if path not in promised:
            yield Diagnostic(
                "E104",
                f"`{path}` has no postcondition",
                hint="add `file_exists` of it to `postconditions`, or take it off `allowed_files`",
                subject=f"{order.label} allowed_files[{number}]",
            )


def _missing(
    subject: str, needed: CommandDependencies, state: PresentFiles, installed: frozenset[str]
) -> Iterator[Diagnostic]:
    absent = [
        f"imports `{name}`, which is not guaranteed to exist"
        for name in needed.modules
        if name.partition(".")[0] not in installed and not state.has_module(name)
    ]
    absent += [
        f"runs `{path}`, which is not guaranteed to exist" for path in needed.scripts if not state.has_script(path)
    ]
    hint = "let this order or an earlier one make it, or name what is installed in the check's `installed`"
    for what in absent:
        yield Diagnostic("W101", what, hint=hint, severity=Severity.WARNING, subject=subject)
