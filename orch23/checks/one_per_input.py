"""The check `one_per_input`: a JSON list must have one entry for each input file, in order."""

from collections.abc import Mapping, Sequence

from orch23.checks.check import Check, CheckInput, Codes, unknown_options
from orch23.checks.check_options import parse_json_output, pattern_list_option, plan_path, text_option
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.paths import match_any

CODES: Codes = {
    "E317": (
        "a list is not one entry for each input",
        "The check `one_per_input` holds a list in a JSON file to the stage's input files: one entry a file, in the "
        "order of the inputs, that says its path in the field that the option `field` names. The complaint says what "
        "is there and what belongs there. Write the list again, with exactly these paths.",
    ),
}
"""The codes of this check alone."""


_NAME = "one_per_input"
_OPTIONS = ("file", "list", "field", "inputs")


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    """Compare the paths that a list says with those of the inputs: by the patterns of `inputs`, then by name."""
    wrong = unknown_options(_NAME, given.options, _OPTIONS)
    read = (
        plan_path(_NAME, given),
        text_option(_NAME, given.options, "list", "history"),
        text_option(_NAME, given.options, "field", "source"),
        pattern_list_option(_NAME, given.options, "inputs", ("**",)),
    )
    match read:
        case (str() as file, str() as key, str() as field, tuple() as counted):
            pass
        case _:
            return (*wrong, *(one for one in read if isinstance(one, Diagnostic)))
    document = parse_json_output(file, given.outputs[file], "E313")
    if isinstance(document, Diagnostic):
        return (*wrong, document)
    wanted = _wanted(given.inputs, counted)
    said = _said(document, key, field)
    if said == wanted:
        return wrong
    shown = "no list" if said is None else ", ".join(f"`{one[:80]}`" for one in said[:20]) or "an empty list"
    hint = "write one entry for each of " + (", ".join(f"`{one}`" for one in wanted) or "no file at all")
    return (*wrong, Diagnostic("E317", f"`{field}` of its entries is {shown}", hint=hint, subject=f"{file} {key}"))


ONE_PER_INPUT = Check(_NAME, 1, _run)


def _wanted(inputs: Mapping[str, bytes], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the inputs by the first pattern that means them, and by name within one."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found |= dict.fromkeys(sorted(path for path in inputs if match_any((pattern,), path)))
    return tuple(found)


def _said(document: Json, key: str, field: str) -> tuple[str, ...] | None:
    """Return what the entries of the list say, or None where it is no list of entries."""
    entries = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return None
    return tuple(str(one.get(field, "")) if isinstance(one, Mapping) else "" for one in entries)
