"""The check `json_values`: keys of a JSON object must have given values, in a given order."""

import json
from collections.abc import Iterator, Mapping, Sequence

from orch23.checks.check import Check, CheckInput, Codes, unknown_options, wrong_option
from orch23.checks.check_options import parse_json_output, plan_path, text_list_option
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json

CODES: Codes = {
    "E334": (
        "a value is not the one that is known",
        "The option `values` of the check `json_values` says what some keys of a JSON object have to be, since it is "
        "known beforehand: an id that is echoed, or whether a program ended with 0. The file says something else, or "
        "nothing. Write the value that is named, or correct the option.",
    ),
    "E335": (
        "the keys of an object are in another order",
        "The option `order` of the check `json_values` lists the keys of a JSON object: these and no others, in this "
        "order. Write them so, or correct the option.",
    ),
}
"""The codes of this check alone."""


_NAME = "json_values"
_OPTIONS = ("file", "values", "order")
_SHOWN = 80


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    """Judge one file: every key that differs, then the order of all."""
    wrong = unknown_options(_NAME, given.options, _OPTIONS)
    read = (plan_path(_NAME, given), _values(given.options), text_list_option(_NAME, given.options, "order", ()))
    match read:
        case (str() as file, dict() as values, tuple() as order):
            pass
        case _:
            return (*wrong, *(one for one in read if isinstance(one, Diagnostic)))
    found = parse_json_output(file, given.outputs[file], "E313")
    if isinstance(found, Diagnostic):
        return (*wrong, found)
    if not isinstance(found, Mapping):
        return (*wrong, Diagnostic("E334", "is no object", hint="write an object with these keys", subject=file))
    return (*wrong, *_differences(file, found, values), *_disorder(file, tuple(found), order))


JSON_VALUES = Check(_NAME, 1, _run)


def _values(options: Mapping[str, Json]) -> dict[str, Json] | Diagnostic:
    values = options.get("values", {})
    if isinstance(values, Mapping):
        return dict(values)
    return wrong_option(_NAME, "values", "is not a mapping", "write `values: {passed: true}`")


def _differences(file: str, found: Mapping[str, Json], values: Mapping[str, Json]) -> Iterator[Diagnostic]:
    for key, wanted in values.items():
        if key in found and _text(found[key]) == _text(wanted):
            continue
        is_what = f"is {_shown(found[key])}" if key in found else "is missing"
        what = f"{is_what}, and has to be {_shown(wanted)}"
        yield Diagnostic("E334", what, hint=f"write {_shown(wanted)}", subject=f"{file}#/{key}")


def _disorder(file: str, found: Sequence[str], order: tuple[str, ...]) -> Iterator[Diagnostic]:
    if order and tuple(found) != order:
        what = f"has the keys {', '.join(found)[:_SHOWN] or 'of nothing'}"
        yield Diagnostic("E335", what, hint=f"write exactly {', '.join(order)}, in this order", subject=file)


def _shown(value: Json) -> str:
    text = _text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _text(value: Json) -> str:
    """Return the one text of a value: true is not 1, and an object has no order."""
    return json.dumps(value, sort_keys=True, default=lambda one: dict(one) if isinstance(one, Mapping) else list(one))
