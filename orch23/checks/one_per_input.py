"""The check `one_per_input`: a JSON list must have one entry for each input file, in order."""

from collections.abc import Mapping, Sequence

from orch23.checks.check import FILE_OPTION, Check, CheckInput, OptionReader
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.paths import match

_NAME = "one_per_input"
_OPTIONS = FILE_OPTION | {
    "list": "Key of the list in the JSON object. Default: `history`.",
    "field": "Field of an entry that has the path. Default: `source`.",
    "inputs": "List of patterns: which inputs need an entry, in this order. Default: all, sorted by name.",
}
_SHOWN_ENTRIES = 20


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    options = OptionReader(_NAME, given, _OPTIONS)
    file = options.json_path()
    key = options.text("list", "history")
    field = options.text("field", "source")
    patterns = options.pattern_list("inputs", ("**",))
    document = options.document(file, "E313")
    if options.failed:
        return tuple(options.errors)
    # In the order of the first pattern that matches each, and sorted within one pattern.
    inputs = sorted(given.inputs)
    wanted = tuple(dict.fromkeys(path for one in patterns for path in inputs if match(one, path)))
    found = _entry_paths(document, key, field)
    if found == wanted:
        return tuple(options.errors)
    if found is None:
        shown = "missing: there is no list"
    else:
        shown = ", ".join(f"`{path[:80]}`" for path in found[:_SHOWN_ENTRIES]) or "an empty list"
    hint = "write one entry for each of " + (", ".join(f"`{path}`" for path in wanted) or "no file: an empty list")
    error = Diagnostic("E317", f"`{field}` of its entries is {shown}", hint=hint, subject=f"{file} {key}")
    return (*options.errors, error)


ONE_PER_INPUT = Check(
    _NAME,
    1,
    _run,
    is_portable=True,
    summary="A list in a JSON output has one entry for each input file, in order.",
    codes=("E317",),
    options=_OPTIONS,
    example="""- check: one_per_input
  with: {list: history, field: source, inputs: [specs/request.md, specs/feedback/]}
""",
)


def _entry_paths(document: Json, key: str, field: str) -> tuple[str, ...] | None:
    entries = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return None
    return tuple(str(entry.get(field, "")) if isinstance(entry, Mapping) else "" for entry in entries)
