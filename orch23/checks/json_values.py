"""The check `json_values`: keys of a JSON object must have given values, in a given order."""

import json
from collections.abc import Iterator, Mapping

from orch23.checks.check import FILE_OPTION, Check, CheckInput, OptionReader
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, json_builtin

_NAME = "json_values"
_OPTIONS = FILE_OPTION | {
    "values": "Mapping of keys to the values that they must have.",
    "order": "List of all keys, in the order in which the output must have them.",
}
_SHOWN = 80


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    options = OptionReader(_NAME, given, _OPTIONS)
    file = options.json_path()
    values = options.mapping("values", "write `values: {passed: true}`")
    order = options.text_list("order", ())
    found = options.document(file, "E313")
    if options.failed:
        return tuple(options.errors)
    if not isinstance(found, Mapping):
        error = Diagnostic("E334", "is not an object", hint="write an object with these keys", subject=file)
        return (*options.errors, error)
    return (*options.errors, *_value_errors(file, found, values), *_order_errors(file, tuple(found), order))


JSON_VALUES = Check(
    _NAME,
    1,
    _run,
    is_portable=True,
    summary="A JSON object has required values, and its keys are in a required order.",
    codes=("E334", "E335"),
    options=_OPTIONS,
    example="""- check: json_values
  with: {file: build/report.json, values: {passed: true}, order: [passed, report]}
""",
)


def _value_errors(file: str, found: Mapping[str, Json], values: Mapping[str, Json]) -> Iterator[Diagnostic]:
    for key, wanted in values.items():
        if key not in found or _canonical(found[key]) != _canonical(wanted):
            actual = f"is {_shown(found[key])}" if key in found else "is missing"
            what = f"{actual}, but must be {_shown(wanted)}"
            yield Diagnostic("E334", what, hint=f"write {_shown(wanted)}", subject=f"{file}#/{key}")


def _order_errors(file: str, found: tuple[str, ...], order: tuple[str, ...]) -> Iterator[Diagnostic]:
    if order and found != order:
        what = f"has the keys {', '.join(found)[:_SHOWN]}" if found else "has no keys"
        yield Diagnostic("E335", what, hint=f"write exactly {', '.join(order)}, in this order", subject=file)


def _shown(value: Json) -> str:
    text = _canonical(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _canonical(value: Json) -> str:
    # Python compares True and 1 as equal; as JSON texts they differ. Keys of an object have no order.
    return json.dumps(value, sort_keys=True, default=json_builtin)
