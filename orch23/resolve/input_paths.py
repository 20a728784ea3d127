"""Turn the entries of `inputs` into their values: files, globs, listings, slices."""

from collections.abc import Mapping

from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.paths import is_glob, match_any, meets, normal, split_slice
from orch23.model.pipeline import GlobInput, Input, ListInput, PathInput, SliceInput
from orch23.resolve.fields import Fields
from orch23.resolve.wild import MARK


def read_inputs(owner: Fields, key: str) -> tuple[Input, ...]:
    """Return the inputs listed at a key, each once.

    An entry `!PATTERN` removes files from the patterns and listings before it; entries after it may add them again.
    """
    found: list[Input] = []
    items = owner.items(key)
    for number, entry in enumerate(items):
        at = f"{key}/{number}"
        if isinstance(entry, str) and entry.startswith("!"):
            unknown = any(MARK in str(one) for one in items[:number])  # what an item will say may be a pattern
            found = _without(owner, at, entry, found, unknown=unknown)
        elif (value := _read(owner, at, entry)) is not None:
            found.append(value)
    return tuple(dict.fromkeys(found))


def _without(owner: Fields, at: str, entry: str, found: list[Input], *, unknown: bool) -> list[Input]:
    """Return the inputs with an exclusion added to those that it concerns, or complain that it has no effect."""
    text = entry.removeprefix("!")
    file, _ = split_slice(text)
    if file != text:
        hint = f'write "!{file}", or remove the slice from the list'
        owner.complain(at, "E850", f"`{entry}` excludes a slice; only whole files can be excluded", hint)
        return found
    path = owner.path_at(at, text, "pattern")
    if path is None:
        return found
    exclude = (normal(path),) if is_glob(path) else (path, f"{path}/**")
    literal = [one.path for one in found if isinstance(one, PathInput | SliceInput) and match_any(exclude, one.path)]
    if literal:
        message = f"`{entry}` excludes `{literal[0]}`, which is listed before it as a single file"
        owner.complain(at, "E850", message, "remove one of the two")
        return found
    patterns = [one for one in found if isinstance(one, GlobInput | ListInput)]
    concerned = [one for one in patterns if any(meets(one.pattern, other) for other in exclude)]
    if not concerned and not unknown:
        shown = ", ".join(f"`{one.pattern}`" for one in patterns)
        message = f"`{entry}` excludes nothing: " + (f"{shown} cannot match it" if shown else "no pattern is before it")
        hint = f'write it after the pattern that it limits, or remove it; a file of this name is written "./{entry}"'
        owner.complain(at, "E850", message, hint)
    return [replace(one, exclude=(*one.exclude, *exclude)) if one in concerned else one for one in found]


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
    path, selector = split_slice(text)
    if path == text:
        found = owner.path_at(at, path, "pattern")
        if found is None:
            return None
        if not is_glob(found):
            return PathInput(found, optional=optional)
        return GlobInput(normal(found), folder=found.endswith("/") and not is_glob(found.rstrip("/")))
    literal = owner.path_at(at, path)
    if literal is None:
        return None
    if not selector.strip() or "\n" in selector:
        hint = "write file.md#Heading or file.json#/pointer"
        owner.complain(at, "E850", f"the slice `{text}` selects nothing", hint)
        return None
    return SliceInput(literal, selector.strip(), optional=optional)
