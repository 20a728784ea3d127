"""The check `work_orders`: a manifest of work orders, each order and their sequence."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from orch23.checks.check import PLAN_OPTIONS, Check, CheckInput, OptionReader
from orch23.checks.schema_errors import schema_violations
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.paths import unsafe_reason
from orch23_checks.acceptance_commands import CommandDependencies, command_dependencies, judge_command
from orch23_checks.order_chain import (
    MANIFEST_SCHEMA,
    WORK_ORDER_SCHEMA,
    WorkOrder,
    are_exempt,
    chain_errors,
    read_order,
    required_paths,
)

_NAME = "work_orders"
_OPTIONS = PLAN_OPTIONS | {
    "verify": "Path of the script that verifies the whole project. Default: `scripts/verify.sh`.",
    "verify_exempt": "`optional`, or `required`: each order has the key `verify_exempt`. Default: `optional`.",
    "installed": "List of the packages that acceptance commands may import. Default: none.",
    "pythonpath": "List of the directories of Python modules. Default: `.`.",
}
_GLOB = frozenset("*?[]")
_EXEMPT = ("optional", "required")


class _Options(Struct, frozen=True):
    """The values of the options; `present` are the paths that the project has."""

    file: str
    present: tuple[str, ...]
    verify: str
    verify_exempt: str
    installed: frozenset[str]
    roots: tuple[str, ...]


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    reader = OptionReader(_NAME, given, _OPTIONS)
    options = _read_options(reader)
    manifest = reader.document(options.file, "E000")
    if reader.failed:
        return tuple(reader.errors)
    invalid = tuple(_manifest_errors(options.file, manifest))
    orders = manifest.get("work_orders") if isinstance(manifest, Mapping) else None
    if invalid or not isinstance(manifest, Mapping) or not isinstance(orders, Sequence) or isinstance(orders, str):
        return (*reader.errors, *invalid)
    return (*reader.errors, *_order_errors(manifest, orders, options))


WORK_ORDERS = Check(
    _NAME,
    1,
    _run,
    summary="A sequence of work orders can be carried out: each file exists when an order needs it. For the template "
    "`work_orders`.",
    codes=(
        *("E000", "E001", "E003", "E004", "E005", "E006", "E007"),
        *("E101", "E102", "E103", "E104", "E105", "E106", "W101"),
    ),
    options=_OPTIONS,
    example="""- check: work_orders
  with: {under: project, installed: [pytest]}
""",
)


def _read_options(reader: OptionReader) -> _Options:
    file, present = reader.json_path(), reader.project_paths()
    verify = reader.text("verify", "scripts/verify.sh")
    exempt = reader.text("verify_exempt", "optional")
    if exempt not in _EXEMPT:
        hint = "write `verify_exempt: optional` or `required`"
        reader.fail_option("verify_exempt", f"is `{exempt}`", hint)
    installed = frozenset(reader.text_list("installed", ()))
    return _Options(file, present, verify, exempt, installed, reader.pattern_list("pythonpath", (".",)))


def _manifest_errors(file: str, manifest: Json) -> Iterator[Diagnostic]:
    hint = "write `{work_orders: [...], verify_contract: {requires: [...]}}`"
    for place, message in schema_violations(MANIFEST_SCHEMA, manifest):
        yield Diagnostic("E000", message, hint=hint, subject=_place(place) or file)
    for number, path in enumerate(required_paths(manifest) if isinstance(manifest, Mapping) else ()):
        yield from _path_errors(f"verify_contract requires[{number}].path", path)


def _order_errors(manifest: Mapping[str, Json], orders: Sequence[Json], options: _Options) -> Iterator[Diagnostic]:
    read: list[tuple[WorkOrder, Sequence[tuple[str, CommandDependencies]]]] = []
    for number, order in enumerate(orders):
        expected = f"WO-{number + 1:02d}"
        identity = order.get("id") if isinstance(order, Mapping) else None
        label = expected if identity == expected else f"work_orders[{number}]"
        if isinstance(identity, str) and identity != expected:
            what = f"has the id {_shown(identity)}, not `{expected}`"
            yield Diagnostic("E001", what, hint="number the orders from WO-01, in order, without a gap", subject=label)
        invalid = tuple(_schema_errors(label, order))
        yield from invalid
        if not isinstance(order, Mapping):
            continue
        value = read_order(label, order)
        needs = []
        for position, command in enumerate(value.acceptance_commands):
            subject = f"{label} acceptance_commands[{position}]"
            judged = judge_command(command, subject, options.verify)
            yield from judged.errors
            needs.append((subject, command_dependencies(judged.argv)))
        if not invalid:
            read.append((value, needs))
    if len(read) == len(orders):
        required = required_paths(manifest)
        yield from chain_errors(read, required, options.present, roots=options.roots, installed=options.installed)
        expected_values = are_exempt((value for value, _ in read), required, options.present)
        for (value, _), is_exempt in zip(read, expected_values, strict=True):
            yield from _exempt_errors(value, options.verify_exempt, is_exempt=is_exempt)


def _schema_errors(label: str, order: Json) -> Iterator[Diagnostic]:
    """Yield E005 for each invalid value, and E004 or E005 for each path that is not the plain path of one file."""
    hint = f"see the schema `{WORK_ORDER_SCHEMA['title']}`"
    for place, message in schema_violations(WORK_ORDER_SCHEMA, order):
        yield Diagnostic("E005", message, hint=hint, subject=f"{label} {_place(place)}".rstrip())
    if not isinstance(order, Mapping):
        return
    for key in ("preconditions", "postconditions", "allowed_files", "context_files"):
        entries = order.get(key)
        for number, one in enumerate(entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ()):
            path, suffix = (one.get("path"), ".path") if isinstance(one, Mapping) else (one, "")
            if isinstance(path, str) and path:
                yield from _path_errors(f"{label} {key}[{number}]{suffix}", path)


def _path_errors(subject: str, path: str) -> Iterator[Diagnostic]:
    wild = sorted(_GLOB & set(path))
    if wild:
        what = f"{_shown(path)} contains {' '.join(f'`{char}`' for char in wild)}"
        yield Diagnostic("E004", what, hint="name each file", subject=subject)
        return
    reason = unsafe_reason(path)
    if reason is not None:
        hint = "write the plain path of one file, relative to the root of the repository"
        yield Diagnostic("E005", f"{_shown(path)} {reason}", hint=hint, subject=subject)


def _exempt_errors(order: WorkOrder, wanted: str, *, is_exempt: bool) -> Iterator[Diagnostic]:
    """Yield an error if `verify_exempt` does not follow from the contract: a plan cannot exempt its own orders."""
    stated, expected, subject = order.verify_exempt, str(is_exempt).lower(), f"{order.label} verify_exempt"
    if stated is None and wanted == "required":
        yield Diagnostic("E005", f"is missing: it is {expected}", hint="compute it from the contract", subject=subject)
    elif stated is not None and stated != is_exempt:
        what = f"is {str(stated).lower()}, but by the contract it is {expected}"
        yield Diagnostic("E005", what, hint="leave it out: it follows from `verify_contract`", subject=subject)


def _place(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _shown(value: str) -> str:
    return f"`{value[:80]}`" if len(value) <= 80 else f"`{value[:80]}...`"  # noqa: PLR2004 - as long as a line
