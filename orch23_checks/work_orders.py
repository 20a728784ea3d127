"""The check `work_orders`: a manifest of work orders, each order and their sequence."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.checks.check import Check, CheckInput, Codes, unknown_options, wrong_option
from orch23.checks.check_options import (
    PLAN_OPTIONS,
    parse_json_output,
    pattern_list_option,
    plan_path,
    project_paths,
    text_list_option,
    text_option,
)
from orch23.checks.schema_errors import describe_violation
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.paths import unsafe_reason
from orch23_checks.acceptance_commands import CommandDependencies, command_dependencies, judge_command
from orch23_checks.order_chain import (
    MANIFEST_SCHEMA,
    WORK_ORDER_SCHEMA,
    WorkOrder,
    chain_problems,
    read_order,
    required_paths,
    with_verify_exempt,
)

CODES: Codes = {
    "E000": (
        "a plan of work orders has the wrong frame",
        "The manifest is not one strict JSON object with a list `work_orders` of 1 to 99 orders, or has a key that "
        "is not known, or the same key twice. Beside the orders it may hold `verify_contract` and "
        "`system_overview`. Write the whole manifest again in this form.",
    ),
    "E001": (
        "work orders are not counted WO-01 to WO-NN",
        "Work orders have the ids WO-01, WO-02 and so on, in the order in which they are done, without a gap and "
        "none twice. Renumber them.",
    ),
    "E003": (
        "an acceptance command needs a shell",
        "Acceptance commands run without a shell: a pipe, a redirection, `&&`, `;`, `$NAME`, a backtick, a line "
        "break or an assignment in front would reach the program as plain text. Write one program with its "
        "arguments, quote a character that is meant as text, or make several commands of it.",
    ),
    "E004": (
        "a path of a work order is a glob",
        "Paths in conditions, `allowed_files` and `context_files` name single files; `*`, `?` and brackets would "
        "leave open which. Name each file by itself.",
    ),
    "E005": (
        "a work order does not fit its schema",
        "A value is missing, is unknown, or is not what the schema `work_order.v1` asks for; a path is not plain "
        "and relative; or `verify_exempt` is not what follows from the contract. The complaint names the value. "
        "Change that value.",
    ),
    "E006": (
        "the code of `python -c` does not parse",
        "An acceptance command gives Python code that is no Python, or none at all. Mend the code, and look at the "
        "quotes around it.",
    ),
    "E007": (
        "an acceptance command is no command",
        "The command cannot be split into words, since a quote is never closed or an escape has nothing after it, "
        "or it names no program. Write a program with its arguments.",
    ),
    "E101": (
        "a precondition of a work order cannot hold",
        "The files that are there before an order are those of the project, as the listing has them, and those "
        "that earlier orders have as postconditions. This condition does not hold of them. Let an earlier order "
        "make the file, move the order, or drop the condition.",
    ),
    "E102": (
        "preconditions contradict each other",
        "One order asks that a path exists and that it is absent. Keep one of the two conditions.",
    ),
    "E103": (
        "a work order promises a file it may not write",
        "A postcondition names a path that is not in `allowed_files` of the same order. Add it there, or drop the "
        "postcondition.",
    ),
    "E104": (
        "a work order may write a file it does not promise",
        "Each path of `allowed_files` needs a postcondition `file_exists` of the same order, or later orders "
        "could not rely on it. Add the postcondition, or take the path off the list.",
    ),
    "E105": (
        "an acceptance command runs the whole verification",
        "The script that the option `verify` names runs after every order by itself, unless the order is exempt; "
        "as an acceptance command it would run too early, or twice. Leave the command out.",
    ),
    "E106": (
        "the contract of the verification is never met",
        "After the last order a file is still missing that `verify_contract` requires, so the whole verification "
        "would never run. Let an order make the file, or take it off the contract.",
    ),
    "W101": (
        "an acceptance command needs what may not exist",
        "It imports a module, or runs a script, that is neither of the standard library, nor in the project by "
        "then, nor named in the option `installed` of the check. This blocks nothing. Let an order make it, or "
        "name what is installed.",
    ),
}
"""The codes of this check, and those that its helper modules raise."""


if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_NAME = "work_orders"
_OPTIONS = (*PLAN_OPTIONS, "verify", "verify_exempt", "installed", "pythonpath")
_GLOB = frozenset("*?[]")
_EXEMPT = ("optional", "required")


class _Options(Struct, frozen=True):
    """The options, read; `present` are the paths that the project has."""

    file: str
    present: tuple[str, ...]
    verify: str
    verify_exempt: str
    installed: frozenset[str]
    roots: tuple[str, ...]


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    """Judge one manifest: its frame, each order, each command, and the chain if all orders can be read."""
    wrong = unknown_options(_NAME, given.options, _OPTIONS)
    options = _read_options(given)
    if not isinstance(options, _Options):
        return (*wrong, *options)
    manifest = parse_json_output(options.file, given.outputs[options.file], "E000")
    if isinstance(manifest, Diagnostic):
        return (*wrong, manifest)
    frame = tuple(_frame_problems(options.file, manifest))
    orders = manifest.get("work_orders") if isinstance(manifest, Mapping) else None
    if frame or not isinstance(manifest, Mapping) or not isinstance(orders, Sequence) or isinstance(orders, str):
        return (*wrong, *frame)
    return (*wrong, *_order_problems(manifest, orders, options))


WORK_ORDERS = Check(_NAME, 1, _run)


def _read_options(given: CheckInput) -> _Options | tuple[Diagnostic, ...]:
    options = given.options
    file, present = plan_path(_NAME, given), project_paths(_NAME, given)
    verify = text_option(_NAME, options, "verify", "scripts/verify.sh")
    exempt = text_option(_NAME, options, "verify_exempt", "optional")
    installed, roots = (
        text_list_option(_NAME, options, "installed", ()),
        pattern_list_option(_NAME, options, "pythonpath", (".",)),
    )
    if not isinstance(exempt, Diagnostic) and exempt not in _EXEMPT:
        exempt = wrong_option(_NAME, "verify_exempt", f"is `{exempt}`", "write `verify_exempt: optional` or `required`")
    read = (file, present, verify, exempt, installed, roots)
    match read:
        case (str(), tuple(), str(), str(), tuple(), tuple()):
            return _Options(read[0], read[1], read[2], read[3], frozenset(read[4]), read[5])
        case _:
            return tuple(one for one in read if isinstance(one, Diagnostic))


def _frame_problems(file: str, manifest: Json) -> Iterator[Diagnostic]:
    """Give E000 of everything outside of the orders."""
    hint = "write `{work_orders: [...], verify_contract: {requires: [...]}}`"
    for where, message in _violations(MANIFEST_SCHEMA, manifest):
        yield Diagnostic("E000", message, hint=hint, subject=where.lstrip(".") or file)
    for number, path in enumerate(required_paths(manifest) if isinstance(manifest, Mapping) else ()):
        yield from _path_problems(f"verify_contract requires[{number}].path", path)


def _order_problems(manifest: Mapping[str, Json], orders: Sequence[Json], options: _Options) -> Iterator[Diagnostic]:
    """Give what is wrong with each order, and with their chain where each can be read."""
    read: list[tuple[WorkOrder, Sequence[tuple[str, CommandDependencies]]]] = []
    mappings: list[Mapping[str, Json]] = []
    for number, order in enumerate(orders):
        expected = f"WO-{number + 1:02d}"
        identity = order.get("id") if isinstance(order, Mapping) else None
        label = expected if identity == expected else f"work_orders[{number}]"
        if isinstance(identity, str) and identity != expected:
            what = f"has the id {_shown(identity)}, not `{expected}`"
            yield Diagnostic("E001", what, hint="count the orders from WO-01, in order, without a gap", subject=label)
        shape = tuple(_shape_problems(label, order))
        yield from shape
        if not isinstance(order, Mapping):
            continue
        value = read_order(label, order)
        needs = []
        for position, command in enumerate(value.acceptance_commands):
            subject = f"{label} acceptance_commands[{position}]"
            judged = judge_command(command, subject, options.verify)
            yield from judged.problems
            needs.append((subject, command_dependencies(judged.argv)))
        if not shape:
            read.append((value, needs))
            mappings.append(order)
    if len(read) == len(orders):
        required = required_paths(manifest)
        yield from chain_problems(read, required, options.present, roots=options.roots, installed=options.installed)
        computed = with_verify_exempt(mappings, required, options.present)
        for (value, _), order, true in zip(read, mappings, computed, strict=True):
            yield from _exempt_problems(value.label, order, true, options.verify_exempt)


def _shape_problems(label: str, order: Json) -> Iterator[Diagnostic]:
    """Give E005 of each value that the schema does not have so, and E004 and E005 of each path."""
    hint = f"see the schema `{WORK_ORDER_SCHEMA['title']}`"
    for where, message in _violations(WORK_ORDER_SCHEMA, order):
        yield Diagnostic("E005", message, hint=hint, subject=f"{label} {where.lstrip('.')}".rstrip())
    if not isinstance(order, Mapping):
        return
    for key in ("preconditions", "postconditions", "allowed_files", "context_files"):
        entries = order.get(key)
        for number, one in enumerate(entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ()):
            path, suffix = (one.get("path"), ".path") if isinstance(one, Mapping) else (one, "")
            if isinstance(path, str) and path:
                yield from _path_problems(f"{label} {key}[{number}]{suffix}", path)


def _path_problems(subject: str, path: str) -> Iterator[Diagnostic]:
    wild = sorted(_GLOB & set(path))
    if wild:
        what = f"{_shown(path)} holds {' '.join(f'`{char}`' for char in wild)}"
        yield Diagnostic("E004", what, hint="name each file by itself", subject=subject)
        return
    reason = unsafe_reason(path)
    if reason is not None:
        hint = "write the plain path of one file, relative to the root of the repository"
        yield Diagnostic("E005", f"{_shown(path)} {reason}", hint=hint, subject=subject)


def _exempt_problems(
    label: str, order: Mapping[str, Json], computed: Mapping[str, Json], wanted: str
) -> Iterator[Diagnostic]:
    """Hold `verify_exempt` to what follows from the contract: nobody exempts an order by saying so."""
    said, true = order.get("verify_exempt"), str(computed["verify_exempt"]).lower()
    subject = f"{label} verify_exempt"
    if said is None and wanted == "required":
        yield Diagnostic("E005", f"is missing: it is {true}", hint="compute it from the contract", subject=subject)
    elif said is not None and said != computed["verify_exempt"]:
        what = f"is {str(said).lower()}, but by the contract it is {true}"
        yield Diagnostic("E005", what, hint="leave it out: it follows from `verify_contract`", subject=subject)


def _violations(schema: Mapping[str, Json], value: Json) -> Iterator[tuple[str, str]]:
    """Give the place (`.a[0].b`) and the message of each violation of a schema."""
    from jsonschema import Draft7Validator  # noqa: PLC0415 - heavy, and hardly ever needed

    for error in sorted(Draft7Validator(schema).iter_errors(value), key=_place):
        for _, message in describe_violation(error):
            yield _place(error), message


def _place(error: "ValidationError") -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)


def _shown(value: str) -> str:
    return f"`{value[:80]}`" if len(value) <= 80 else f"`{value[:80]}...`"  # noqa: PLR2004 - as long as a line
