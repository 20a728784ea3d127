"""Schema and values of work orders, and the errors of their sequence."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23_checks.acceptance_commands import CommandDependencies, PresentFiles

MAX_ORDERS = 99  # an id has two digits: WO-01 to WO-99
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

# The schema of a manifest without its orders: an error in one order does not hide those of the others.
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


class WorkOrder(Struct, frozen=True):
    """A work order. `label` is its name in messages; preconditions are pairs of kind and path."""

    label: str
    preconditions: tuple[tuple[str, str], ...]
    postconditions: tuple[str, ...]
    allowed_files: tuple[str, ...]
    acceptance_commands: tuple[str, ...]
    verify_exempt: Json


def read_order(label: str, order: Mapping[str, Json]) -> WorkOrder:
    """Return an order as a value, without what does not fit the schema."""
    return WorkOrder(
        label,
        conditions(order.get("preconditions")),
        tuple(path for kind, path in conditions(order.get("postconditions")) if kind == "file_exists"),
        _texts(order.get("allowed_files")),
        _texts(order.get("acceptance_commands")),
        order.get("verify_exempt"),
    )


def conditions(value: Json) -> tuple[tuple[str, str], ...]:
    """Return kind and path of each condition in a list."""
    pairs = ((item.get("kind"), item.get("path")) for item in _items(value) if isinstance(item, Mapping))
    return tuple((kind, path) for kind, path in pairs if isinstance(kind, str) and isinstance(path, str))


def required_paths(manifest: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the paths that the contract of a manifest requires; empty without a contract."""
    contract = manifest.get("verify_contract")
    requires = contract.get("requires") if isinstance(contract, Mapping) else None
    return tuple(path for kind, path in conditions(requires) if kind == "file_exists")


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(item for item in _items(value) if isinstance(item, str))


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def chain_errors(
    orders: Sequence[tuple[WorkOrder, Sequence[tuple[str, CommandDependencies]]]],
    required: Sequence[str],
    present: Iterable[str],
    *,
    roots: tuple[str, ...] = ("",),
    installed: frozenset[str] = frozenset(),
) -> Iterator[Diagnostic]:
    """Yield E101 to E104, E106 and W101, in the order of the work.

    Each order comes with pairs of the subject of a command and its dependencies. `present` are the paths before the
    first order; each order adds its postconditions.
    """
    state = PresentFiles(roots)
    state.add(present)
    for order, needs in orders:
        yield from _precondition_errors(order, state.files)
        yield from _scope_errors(order)
        state.add(order.postconditions)
        for subject, needed in needs:
            yield from _dependency_warnings(subject, needed, state, installed)
    for number, path in enumerate(required):
        if path not in state.files:
            yield Diagnostic(
                "E106",
                f"`{path}` is missing after the last order, so the whole verification never runs",
                hint="let an order make it, with a postcondition, or remove it from the contract",
                subject=f"verify_contract requires[{number}]",
            )


def are_exempt(orders: Iterable[WorkOrder], required: Sequence[str], present: Iterable[str]) -> Iterator[bool]:
    """Yield for each order whether a required file is still missing after it."""
    missing = set(required) - set(present)
    for order in orders:
        missing -= {*order.postconditions}
        yield bool(missing)


def _precondition_errors(order: WorkOrder, files: set[str]) -> Iterator[Diagnostic]:
    kinds: dict[str, set[str]] = {}
    for kind, path in order.preconditions:
        kinds.setdefault(path, set()).add(kind)
    contradictory = {path for path, found in kinds.items() if len(found) > 1}
    reported: set[str] = set()
    for number, (kind, path) in enumerate(order.preconditions):
        subject = f"{order.label} preconditions[{number}]"
        if path in contradictory:
            if path not in reported:
                reported.add(path)
                what = f"`{path}` is required to exist and to be absent"
                yield Diagnostic("E102", what, hint="keep one of the two conditions", subject=subject)
        elif kind == "file_exists" and path not in files:
            what = f"`{path}` is not in the project, and no earlier order has it as a postcondition"
            hint = "let an earlier order make it, or remove the condition"
            yield Diagnostic("E101", what, hint=hint, subject=subject)
        elif kind != "file_exists" and path in files:
            what = f"`{path}` exists at this point: it is in the project, or an earlier order makes it"
            hint = "remove the condition, or require that the file exists"
            yield Diagnostic("E101", what, hint=hint, subject=subject)


def _scope_errors(order: WorkOrder) -> Iterator[Diagnostic]:
    allowed, promised = set(order.allowed_files), set(order.postconditions)
    for number, path in enumerate(order.postconditions):
        if path not in allowed:
            yield Diagnostic(
                "E103",
                f"`{path}` is not in `allowed_files`, so the order cannot make it",
                hint="add it to `allowed_files`, or remove the postcondition",
                subject=f"{order.label} postconditions[{number}]",
            )
    for number, path in enumerate(order.allowed_files):
        if path not in promised:
            yield Diagnostic(
                "E104",
                f"`{path}` has no postcondition",
                hint="add it to `postconditions` as `file_exists`, or remove it from `allowed_files`",
                subject=f"{order.label} allowed_files[{number}]",
            )


def _dependency_warnings(
    subject: str, needed: CommandDependencies, state: PresentFiles, installed: frozenset[str]
) -> Iterator[Diagnostic]:
    absent = [
        f"imports `{name}`"
        for name in needed.modules
        if name.partition(".")[0] not in installed and not state.has_module(name)
    ]
    absent += [f"runs `{path}`" for path in needed.scripts if not state.has_script(path)]
    hint = "let this order or an earlier one make it, or add an installed module to the check's option `installed`"
    for what in absent:
        yield Diagnostic("W101", f"{what}, which may not exist", hint=hint, severity=Severity.WARNING, subject=subject)
