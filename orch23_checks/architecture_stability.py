"""The check `architecture_stability`: layers stay in order and keep what was accepted.

An architecture is a JSON object with a list `execution_layers`. Of a layer this check reads `name`, `kind`,
`depends_on` (names of layers), `files` (what it makes), `uses` (files of others that it imports) and `purpose` (what a
person would call it); whatever else it holds is compared, and belongs to the schema of the pipeline.

Stable means: code that exists keeps its place. A layer that was accepted is still there, is of the same kind and makes
the same files; it may make more, stand on other layers, and be told something new. It may not be told the same in
other words alone, since that would have its code written again for nothing.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from orch23.checks.check import Check, CheckInput, Codes, unknown_options
from orch23.checks.check_options import parse_json_output, plan_path, text_list_option
from orch23.checks.schema_errors import describe_violation
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json

CODES: Codes = {
    "E340": (
        "the layers of an architecture are not in order",
        "A layer depends on itself, on a layer that is listed after it, or on one that is not there. The list is the "
        "order in which the layers are made. Move the layer, or correct its `depends_on`.",
    ),
    "E341": (
        "two layers of an architecture share a name or a file",
        "Each layer has a name of its own, and each file is made by one layer, which is asked for it alone. Rename "
        "the layer, or take the file off one of the two.",
    ),
    "E342": (
        "a layer uses a file of no layer below it",
        "What a layer imports must be there before it: the files under `uses` are made by layers that it stands on, "
        "directly or through others. Add that layer to `depends_on`, or take the file off.",
    ),
    "E343": (
        "an accepted layer is gone",
        "The architecture that was accepted last has this layer, and the new one has not; its code would vanish. Keep "
        "the layer under its name. If it shall go, name it in the option `released` of the check.",
    ),
    "E344": (
        "an accepted layer is of another kind",
        "The kind says by which rules the code of a layer is written, so another kind makes another layer of it. "
        "Keep the kind, and add a new layer for what is new.",
    ),
    "E345": (
        "an accepted layer lost a file",
        "A file that this layer made in the architecture accepted last is now made by another layer or by none, so "
        "that whatever imports it would break. Leave it where it was. If it shall go or move, name its path in the "
        "option `released` of the check.",
    ),
    "E346": (
        "an accepted layer is reworded and not changed",
        "Only the `purpose` of the layer differs from the architecture accepted last, so its code would be written "
        "again without a reason. Keep the purpose word for word; if the layer shall do something new, its slices of "
        "the intent, its files or its constraints say so.",
    ),
}
"""The codes of this check alone."""


_NAME = "architecture_stability"
_OPTIONS = ("file", "released")
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
    """Judge one architecture; against the one before it only if both have their shape."""
    wrong = unknown_options(_NAME, given.options, _OPTIONS)
    read = plan_path(_NAME, given), text_list_option(_NAME, given.options, "released", ())
    match read:
        case (str() as file, tuple() as released):
            pass
        case _:
            return (*wrong, *(one for one in read if isinstance(one, Diagnostic)))
    document = parse_json_output(file, given.outputs[file], "E313")
    if isinstance(document, Diagnostic):
        return (*wrong, document)
    shape = tuple(_shape_problems(file, document))
    if shape:
        return (*wrong, *shape)
    layers = _layers(document)
    return (*wrong, *_order(layers), *_owners(layers), *_changes(_before(file, given), layers, released))


ARCHITECTURE_STABILITY = Check(_NAME, 1, _run)


class _Layer(Struct, frozen=True):
    """What is read of a layer, and all that it says but for its purpose."""

    name: str
    kind: str
    depends_on: tuple[str, ...]
    files: tuple[str, ...]
    uses: tuple[str, ...]
    purpose: str
    facts: Mapping[str, Json]


def _layers(document: Json) -> tuple[_Layer, ...]:
    """Return the layers of a document that has the shape."""
    listed = document["execution_layers"] if isinstance(document, Mapping) else ()
    return tuple(
        _Layer(
            name=str(one["name"]),
            kind=str(one["kind"]),
            depends_on=_texts(one.get("depends_on")),
            files=_texts(one["files"]),
            uses=_texts(one.get("uses")),
            purpose=str(one.get("purpose", "")),
            facts={key: value for key, value in one.items() if key != "purpose"},
        )
        for one in (listed if isinstance(listed, Sequence) else ())
        if isinstance(one, Mapping)
    )


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _before(file: str, given: CheckInput) -> tuple[_Layer, ...]:
    """Return the layers that were accepted last: none, if there are none or they were judged by another shape."""
    data = given.previous.get(file)
    document = None if data is None else parse_json_output(file, data, "E313")
    if document is None or isinstance(document, Diagnostic) or next(_shape_problems(file, document), None):
        return ()
    return _layers(document)


def _shape_problems(file: str, document: Json) -> Iterator[Diagnostic]:
    from jsonschema import Draft7Validator  # noqa: PLC0415 - heavy, and hardly ever needed

    for error in sorted(
        Draft7Validator(ARCHITECTURE_SCHEMA).iter_errors(document), key=lambda one: list(map(str, one.path))
    ):
        for pointer, message in describe_violation(error):
            hint = "a layer has a `name`, a `kind` and its `files`"
            yield Diagnostic("E314", message, hint=hint, subject=f"{file}#{pointer}")


# ---- one architecture by itself -------------------------------------------------------------------


def _order(layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    """Complain of a layer that stands on one which is unknown or not made before it; so there is no cycle."""
    names = {layer.name for layer in layers}
    earlier: set[str] = set()
    for layer in layers:
        for name in layer.depends_on:
            if name not in earlier:
                what = "itself" if name == layer.name else "a later layer" if name in names else "no layer"
                hint = "list the layers so that each stands after those that it depends on"
                yield Diagnostic("E340", f"depends on `{name[:80]}`, which is {what}", hint=hint, subject=layer.name)
        earlier.add(layer.name)


def _owners(layers: Sequence[_Layer]) -> Iterator[Diagnostic]:
    """Complain of what belongs to two layers, and of imports from layers that a layer does not stand on."""
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
    below: dict[str, frozenset[str]] = {}
    for layer in layers:
        direct = [name for name in layer.depends_on if name in below]
        below[layer.name] = frozenset(direct).union(*(below[name] for name in direct))
        for file in layer.uses:
            if owner.get(file) not in below[layer.name]:
                maker = owner.get(file)
                whose = f"is of `{maker}`, on which it does not stand" if maker else "no layer makes"
                hint = "add its layer to `depends_on`, or take the file off `uses`"
                yield Diagnostic("E342", f"uses `{file[:80]}`, which {whose}", hint=hint, subject=layer.name)


# ---- an architecture and the one before -----------------------------------------------------------


def _changes(before: Sequence[_Layer], after: Sequence[_Layer], released: Sequence[str]) -> Iterator[Diagnostic]:
    """Complain of each layer that lost its place. What is released by name may go, and may move."""
    now = {layer.name: layer for layer in after}
    made = {file: layer.name for layer in after for file in layer.files}
    let_go = "; whoever owns the pipeline may let it go under `released`"
    for old in before:
        new = now.get(old.name)
        if old.name in released:
            continue
        if new is None:
            hint = "keep it, under its name" + let_go
            yield Diagnostic("E343", "was a layer, and is none any more", hint=hint, subject=old.name)
            continue
        if new.kind != old.kind:
            what = f"was of the kind `{old.kind[:80]}`, and is `{new.kind[:80]}`"
            yield Diagnostic("E344", what, hint="keep its kind, or add a layer of the other one", subject=old.name)
        for file in old.files:
            if file not in new.files and file not in released:
                where = f"`{made[file]}` makes it now" if file in made else "no layer makes it now"
                hint = "keep it in its layer" + let_go
                yield Diagnostic("E345", f"made `{file[:80]}`; {where}", hint=hint, subject=old.name)
        if new.purpose != old.purpose and new.facts == old.facts:
            hint = f"keep its purpose word for word: {old.purpose[:400]}"
            yield Diagnostic("E346", "says the same in other words", hint=hint, subject=old.name)
