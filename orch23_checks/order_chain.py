"""Follow work orders one after another: what is there before and after each, and what then cannot hold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23_checks.dependencies import Dependencies, Present
from orch23_checks.work_order import Order, conditions


def chain_problems(
    orders: Sequence[tuple[Order, Sequence[tuple[str, Dependencies]]]],
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
    state = Present(roots)
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


def _before(order: Order, files: set[str]) -> Iterator[Diagnostic]:
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


def _scope(order: Order) -> Iterator[Diagnostic]:
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


def _missing(subject: str, needed: Dependencies, state: Present, installed: frozenset[str]) -> Iterator[Diagnostic]:
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
