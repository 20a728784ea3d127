"""Turn the entries of `inputs` into their values: files, globs, listings, slices."""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from orch23.model.fields import Problems, given
from orch23.model.paths import is_glob, match_any, meets, normal, split_slice
from orch23.model.pipeline import GlobInput, Input, ListInput, PathInput, SliceInput
from orch23.resolve.document import InputDocument
from orch23.resolve.wild import MARK


def read_inputs(entries: Sequence[str | InputDocument], at: Problems) -> tuple[Input, ...]:
    """Return the inputs of a list, each once.

    An entry `!PATTERN` removes files from the patterns and listings before it; entries after it may add them again.
    """
    found: list[Input] = []
    for number, entry in enumerate(entries):
        if isinstance(entry, str) and entry.startswith("!"):
            unknown = any(_is_unknown(one) for one in entries[:number])  # what an item gives may be a pattern
            found = _without(at, str(number), entry, found, unknown=unknown)
        elif (value := _read(at, str(number), entry)) is not None:
            found.append(value)
    return tuple(dict.fromkeys(found))


def _is_unknown(entry: str | InputDocument) -> bool:
    texts = (entry,) if isinstance(entry, str) else (entry.path, entry.list)
    return any(isinstance(text, str) and MARK in text for text in texts)


def _without(at: Problems, key: str, entry: str, found: list[Input], *, unknown: bool) -> list[Input]:
    """Return the inputs with an exclusion added to those that it concerns, or report that it has no effect."""
    text = entry.removeprefix("!")
    file, _ = split_slice(text)
    if file != text:
        hint = f'write "!{file}", or remove the slice from the list'
        at.add(key, "E850", f"`{entry}` excludes a slice; only whole files can be excluded", hint)
        return found
    path = at.path_at(key, text, "pattern")
    if path is None:
        return found
    exclude = (normal(path),) if is_glob(path) else (path, f"{path}/**")
    literal = [one.path for one in found if isinstance(one, PathInput | SliceInput) and match_any(exclude, one.path)]
    if literal:
        message = f"`{entry}` excludes `{literal[0]}`, which is listed before it as a single file"
        at.add(key, "E850", message, "remove one of the two")
        return found
    patterns = [one for one in found if isinstance(one, GlobInput | ListInput)]
    concerned = [one for one in patterns if any(meets(one.pattern, other) for other in exclude)]
    if not concerned and not unknown:
        shown = ", ".join(f"`{one.pattern}`" for one in patterns)
        message = f"`{entry}` excludes nothing: " + (f"{shown} cannot match it" if shown else "no pattern is before it")
        hint = f'write it after the pattern that it limits, or remove it; a file of this name is written "./{entry}"'
        at.add(key, "E850", message, hint)
    return [replace(one, exclude=(*one.exclude, *exclude)) if one in concerned else one for one in found]


def _read(at: Problems, key: str, entry: str | InputDocument) -> Input | None:
    if isinstance(entry, str):
        return _of_text(at, key, entry, optional=False)
    below = at.below(key)
    if entry.list is not UNSET:
        for name, value in (("optional", entry.optional), ("schema", entry.schema)):
            if value is not UNSET:
                below.add(name, "E802", f"unknown key `{name}` beside `list`", "a listing has no other key; remove it")
        pattern = below.path_at("list", entry.list, "pattern")
        return None if pattern is None else ListInput(normal(pattern))
    if entry.path is UNSET:
        return None
    schema = below.file("schema", entry.schema)
    found = _of_text(below, "path", entry.path, optional=given(entry.optional, False))  # noqa: FBT003 - its default
    if isinstance(found, PathInput):
        return PathInput(found.path, optional=found.optional, schema=schema)
    if found is not None and schema is not None:
        hint = "name the file, without `#` or wildcard"
        below.add("schema", "E856", "a `schema` needs a literal file as `path`", hint)
    if isinstance(found, GlobInput) and entry.optional is not UNSET:
        below.add("optional", "E856", "a pattern is never missing, so `optional` has no effect", "remove it")
    return found


def _of_text(at: Problems, key: str, text: str, *, optional: bool) -> Input | None:
    path, selector = split_slice(text)
    if path == text:
        found = at.path_at(key, path, "pattern")
        if found is None:
            return None
        if not is_glob(found):
            return PathInput(found, optional=optional)
        return GlobInput(normal(found), folder=found.endswith("/") and not is_glob(found.rstrip("/")))
    literal = at.path_at(key, path)
    if literal is None:
        return None
    if not selector.strip() or "\n" in selector:
        hint = "write file.md#Heading or file.json#/pointer"
        at.add(key, "E850", f"the slice `{text}` selects nothing", hint)
        return None
    return SliceInput(literal, selector.strip(), optional=optional)
