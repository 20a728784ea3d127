"""Turn the entries of `inputs` into their values: files, globs, listings, slices."""

from collections.abc import Mapping

from orch23.model.digest import Json
from orch23.model.paths import is_glob, normal
from orch23.model.pipeline import GlobInput, Input, ListInput, PathInput, SliceInput
from orch23.resolve.fields import Fields


def read_inputs(owner: Fields, key: str) -> tuple[Input, ...]:
    """Return the inputs listed at a key, each once."""
    found: dict[Input, None] = {}
    for number, entry in enumerate(owner.items(key)):
        value = _read(owner, f"{key}/{number}", entry)
        if value is not None:
            found[value] = None
    return tuple(found)


def _read(owner: Fields, at: str, entry: Json) -> Input | None:
    if isinstance(entry, str):
        return _of_text(owner, at, entry, optional=False)
    if not isinstance(entry, Mapping):
        owner.wrong_type(at, entry, "a path, `{path: …}` or `{list: …}`")
        return None
    item = Fields(entry, f"{owner.path}/{at}", owner.problems)
    kind = item.one_of(("path", "list"))
    if kind == "list":
        item.only(("list",))
        text = item.text("list")
        pattern = None if text is None else item.path_at("list", text, "pattern")
        return None if pattern is None else ListInput(normal(pattern))
    if kind is None:
        return None
    item.only(("path", "optional", "schema"))
    text = item.text("path")
    optional = item.flag("optional", default=False)
    schema = item.file("schema")
    found = None if text is None else _of_text(item, "path", text, optional=optional)
    if isinstance(found, PathInput):
        return PathInput(found.path, optional=optional, schema=schema)
    if found is not None and schema is not None:
        hint = "name the file, without `#` or wildcard"
        item.complain("schema", "E856", "a `schema` needs a literal file as `path`", hint)
    if isinstance(found, GlobInput) and item.has("optional"):
        item.complain("optional", "E856", "a pattern is never missing, so `optional` has no effect", "remove it")
    return found


def _of_text(owner: Fields, at: str, text: str, *, optional: bool) -> Input | None:
    path, sign, selector = text.partition("#")
    if not sign:
        found = owner.path_at(at, path, "pattern")
        if found is None:
            return None
        return GlobInput(normal(found)) if is_glob(found) else PathInput(found, optional=optional)
    literal = owner.path_at(at, path)
    if literal is None:
        return None
    if not selector.strip() or "\n" in selector:
        hint = "write file.md#Heading or file.json#/pointer"
        owner.complain(at, "E850", f"the slice `{text}` selects nothing", hint)
        return None
    return SliceInput(literal, selector.strip(), optional=optional)
