"""The check `architecture_stability`: layers stay in order and keep what was accepted.

An architecture is a JSON object with a list `execution_layers`. This check reads of a layer `name`, `kind`,
`depends_on` (names of layers), `files` (the files that it makes), `uses` (files of other layers that it imports) and
`purpose`. It compares all other keys; what they may be is up to the schema of the pipeline.

Stable means that existing code keeps its place: an accepted layer is still there, has the same kind and makes the same
files. It may make more files, depend on other layers, and get new facts. A change of its `purpose` alone is refused:
its code would be written again without a reason.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial

from msgspec import Struct

from orch23.checks.check import FILE_OPTION, Check, CheckInput, OptionReader, parse_json_output
from orch23.checks.schema_errors import schema_errors
from orch23.model.diagnostic import Diagnostic, Location, Severity, did_you_mean
from orch23.model.digest import Json
from orch23.model.parsing import as_mapping, to_struct
from orch23.model.paths import match_any

_NAME = "architecture_stability"
_OPTIONS = FILE_OPTION | {
    "released": "List of the names of accepted layers and files that may change. Default: none.",
    "released_in": "List of patterns of inputs with lines `Release: NAME, NAME`, which release more. Default: none.",
}
_LONGEST_WORD, _SIMILAR = 20, 0.8  # `realease` is similar to `release`, `please` is not
_TO_RELEASE = ", or name it in the option `released` of the check, or on a line `Release: NAME` of its `released_in`"
_TEXT_SCHEMA: Json = {"type": "string", "minLength": 1}
_TEXT_LIST_SCHEMA: Mapping[str, Json] = {"type": "array", "items": _TEXT_SCHEMA}

ARCHITECTURE_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "required": ["execution_layers"],
    "properties": {
        "execution_layers": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "kind", "files"],
                "properties": {
                    "name": _TEXT_SCHEMA,
                    "kind": _TEXT_SCHEMA,
                    "purpose": {"type": "string"},
                    "depends_on": _TEXT_LIST_SCHEMA,
                    "files": {**_TEXT_LIST_SCHEMA, "minItems": 1},
                    "uses": _TEXT_LIST_SCHEMA,
                },
            },
        }
    },
}


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    options = OptionReader(_NAME, given, _OPTIONS)
    file = options.json_path()
    patterns, named = options.pattern_list("released_in", ()), options.text_list("released", ())
    document = options.document(file, "E313")
    if options.failed:
        return tuple(options.errors)
    invalid = tuple(_schema_errors(file, document))
    if invalid:
        return (*options.errors, *invalid)
    layers = _layers(document)
    accepted = _accepted_layers(file, given)
    known = {name for layer in (*accepted, *layers) for name in (layer.name, *layer.files)} if accepted else set[str]()
    lines = tuple(_released(given, patterns, known))
    released = (*named, *(one for one in lines if isinstance(one, str)))
    return (
        *options.errors,
        *_order_errors(layers),
        *_owner_errors(layers),
        *_dependency_errors(layers),
        *_stability_errors(accepted, layers, released),
        *(one for one in lines if not isinstance(one, str)),
    )


ARCHITECTURE_STABILITY = Check(
    _NAME,
    1,
    _run,
    summary="The layers of an architecture depend only on earlier ones, no file has two, and accepted layers stay. For "
    "the template `layered_app`.",
    codes=("E340", "E341", "E342", "E343", "E344", "E345", "E346", "W347"),
    options=_OPTIONS,
    example="""- check: architecture_stability
  with: {file: app/spec/architecture.json, released: [views]}
""",
)


class _Layer(Struct, frozen=True):
    """A layer. `facts` are all its keys except `purpose`."""

    name: str
    kind: str
    files: tuple[str, ...]
    facts: Mapping[str, Json]
    depends_on: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    purpose: str = ""


def _layers(document: Json) -> tuple[_Layer, ...]:
    """Return the layers of a document that has the form of the schema."""
    listed = as_mapping(document)["execution_layers"]
    return tuple(
        to_struct({**one, "facts": {key: value for key, value in one.items() if key != "purpose"}}, _Layer)
        for one in map(as_mapping, listed if isinstance(listed, Sequence) else ())
    )


def _accepted_layers(file: str, given: CheckInput) -> tuple[_Layer, ...]:
    """Return the layers that were accepted last; none if there are none, or an older schema accepted them."""
    document = parse_json_output(file, given.previous.get(file, b""), "E313")
    if isinstance(document, Diagnostic) or next(_schema_errors(file, document), None):
        return ()
    return _layers(document)


def _schema_errors(file: str, document: Json) -> Iterator[Diagnostic]:
    return schema_errors(ARCHITECTURE_SCHEMA, document, file, "a layer has a `name`, a `kind` and its `files`")


# ---- one architecture by itself -------------------------------------------------------------------


def _order_errors(layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    """Yield an error for each dependency on an unknown or a later layer. Without these there is no cycle."""
    names = {layer.name for layer in layers}
    earlier: set[str] = set()
    for layer in layers:
        for name in layer.depends_on:
            if name not in earlier:
                what = "itself" if name == layer.name else "a later layer" if name in names else "not a layer"
                hint = "list each layer after those that it depends on"
                yield Diagnostic("E340", f"depends on `{name[:80]}`, which is {what}", hint=hint, subject=layer.name)
        earlier.add(layer.name)


def _owner_errors(layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    owner: dict[str, str] = {}
    names: set[str] = set()
    for layer in layers:
        if layer.name in names:
            yield Diagnostic("E341", "is the name of two layers", hint="rename one of them", subject=layer.name)
        names.add(layer.name)
        for file in layer.files:
            if file in owner:
                what = f"makes `{file[:80]}`, which `{owner[file]}` makes"
                yield Diagnostic("E341", what, hint="give each file to one layer, once", subject=layer.name)
            owner.setdefault(file, layer.name)


def _dependency_errors(layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    owner = {file: layer.name for layer in reversed(layers) for file in layer.files}
    below: dict[str, frozenset[str]] = {}
    for layer in layers:
        direct = [name for name in layer.depends_on if name in below]
        below[layer.name] = frozenset(direct).union(*(below[name] for name in direct))
        for file in layer.uses:
            maker = owner.get(file)
            if maker not in below[layer.name]:
                whose = f"is a file of `{maker}`, on which it does not depend" if maker else "no layer makes"
                hint = "add its layer to `depends_on`, or remove the file from `uses`"
                yield Diagnostic("E342", f"uses `{file[:80]}`, which {whose}", hint=hint, subject=layer.name)


# ---- lines of feedback ------------------------------------------------------------------------------


def _released(given: CheckInput, patterns: tuple[str, ...], known: Collection[str]) -> Iterator[str | Diagnostic]:
    """Yield the names on lines `Release: NAME, NAME`, and warnings about lines that release nothing.

    An older file may name what it has removed. `known` are the names of layers and files; none if nothing was accepted.
    """
    paths = sorted(path for path in given.inputs if match_any(patterns, path))
    warning = partial(Diagnostic, "W347", severity=Severity.WARNING)
    for path in paths:
        for number, line in enumerate(given.inputs[path].decode(errors="replace").splitlines(), 1):
            head, _, names = line.partition(":")
            word, place = head.strip(" \t*_`#>-").casefold(), Location(path, number, 1, len(line))
            found = [name.strip(" `") for name in names.split(",")] if line.startswith("Release:") else []
            yield from found
            for name in found if path == paths[-1] and known else ():
                if name and name not in known:
                    hint = did_you_mean(name, known) or "name a layer, or a file as in its `files`"
                    yield warning(f"no layer or file has the name `{name[:80]}`", place, hint)
            is_word = not found and names and word.isalpha() and len(word) < _LONGEST_WORD
            if is_word and SequenceMatcher(None, word, "release").ratio() >= _SIMILAR:
                yield warning("is not a line `Release: NAME, NAME`", place, "begin the line with `Release:`")


# ---- an architecture and the one before -----------------------------------------------------------


def _stability_errors(
    before: Sequence[_Layer], after: Sequence[_Layer], released: Sequence[str]
) -> Iterator[Diagnostic]:
    now = {layer.name: layer for layer in after}
    made = {file: layer.name for layer in after for file in layer.files}
    for old in before:
        new = now.get(old.name)
        if old.name in released:
            continue
        if new is None:
            hint = "keep it under its name" + _TO_RELEASE
            yield Diagnostic("E343", "was accepted, and is missing now", hint=hint, subject=old.name)
        else:
            yield from _changes(old, new, made, released)


def _changes(old: _Layer, new: _Layer, made: Mapping[str, str], released: Sequence[str]) -> Iterator[Diagnostic]:
    if new.kind != old.kind:
        what = f"had the kind `{old.kind[:80]}`, and has `{new.kind[:80]}` now"
        yield Diagnostic("E344", what, hint="keep its kind, or add a layer of the other kind", subject=old.name)
    for file in old.files:
        if file not in new.files and file not in released:
            where = f"`{made[file]}` makes it now" if file in made else "no layer makes it now"
            hint = "keep it in its layer" + _TO_RELEASE
            yield Diagnostic("E345", f"made `{file[:80]}`; {where}", hint=hint, subject=old.name)
    if new.purpose != old.purpose and new.facts == old.facts:
        hint = f"keep its purpose word for word: {old.purpose[:400]}"
        yield Diagnostic("E346", "has another purpose and no other change", hint=hint, subject=old.name)
