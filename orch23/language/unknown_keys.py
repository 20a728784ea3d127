"""Find what is meant by a key that a mapping of the language does not have: another key, or one of another mapping.

This module is imported only where something is wrong.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from orch23.language.document import StageDocument
from orch23.language.schema import document_classes
from orch23.model.diagnostic import nearest_names, question
from orch23.model.digest import Json
from orch23.model.language import keys_of
from orch23.model.parsing import json_at
from orch23.steps.registry import STEP_KINDS

KEY_VARIABLES: Final = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
}
"""The environment variable that the key of a provider is read from. A test compares them with the providers' own."""


def meant_keys(key: str, known: Collection[str]) -> list[str]:
    """Return the known keys that may be meant."""
    # Before keys that are spelled alike: `deps` is not meant as `desc`.
    return [one for one in _keys_called(key) if one in known] or nearest_names(key, sorted(known))


def _keys_called(word: str) -> tuple[str, ...]:
    """Return the keys that make-like tools, Docker Compose, or workflows of GitHub and GitLab call so."""
    return _keys_by_word().get(word.lower().replace("-", "_"), ())


@cache
def _keys_by_word() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for kind in document_classes().values():
        for field, one in kind.declared.items():
            for word in one.elsewhere.split():
                found.setdefault(word, {})[one.name or field] = None
    return {word: tuple(keys) for word, keys in found.items()}


def hint_of_secret(path: Sequence[object], value: Mapping[str, Json], whole: Json) -> str:
    """Return what to do with a secret in the mapping `value` at a path of the pipeline `whole`."""
    again = "If others can read this file, replace the secret"
    if "llm" not in path and "llm" not in value:
        return f"remove it: secrets come only from the environment. {again}"
    variables = [KEY_VARIABLES.get(name, "") for name in _providers(value, whole)]
    if named := next(filter(None, variables), ""):
        way = f"set {named} in the environment"
    elif variables:
        way = f"set the variable of the provider `{next(_providers(value, whole))}` in the environment"
    else:
        way = "set the variable of the provider in the environment, such as OPENAI_API_KEY"
    return f"remove it, and {way}, which is the only place that keys are read from. {again}"


def _providers(value: Mapping[str, Json], whole: Json) -> Iterator[str]:
    for one in (value, value.get("llm"), json_at(whole, "defaults", "llm")):
        if isinstance(name := json_at(one, "provider"), str):
            yield name


def hint_of_place(
    key: str, path: Sequence[object], value: Mapping[str, Json], schema: Mapping[str, Any], whole: Json
) -> str:
    """Return a hint if a key of `value` belongs to the stage around it, or to its step; else an empty text."""
    known = schema.get("properties", {})
    match path:
        case []:
            owners = (one for one in ("stop_conditions", "defaults") if key in _keys(known.get(one, {})))
            owner, text = next(owners, ""), value[key]
            is_new = type(text) in (str, int, float) and owner not in value
            line = f"`{owner}: {{{key}: {text}}}`" if is_new else "it there"
            return f"`{key}` is a key of `{owner}`: write {line}" if owner else ""
        case ["stages", _] | ["defaults"]:
            return _hint_of_step(key, value, known)
        case ["stages", _, str(owner)] | ["defaults", str(owner)]:
            stage = keys_of(StageDocument)
            meant = [key] if key in stage else meant_keys(key, {*known, *stage})
            if meant and not set(meant) - {*stage}.difference(known):
                if json_at(whole, *map(str, path[:-1]), meant[0]) is not None:
                    return f"{_asked(key, meant)} is a key of the stage, which has it: remove it here"
                return f"{_asked(key, meant)} is a key of the stage: write it next to `{owner}`"
    return ""


def _hint_of_step(key: str, value: Mapping[str, Json], known: Mapping[str, Any]) -> str:
    steps = {kind: _keys(known[kind]) for kind in known if kind in STEP_KINDS}
    here = {kind: keys for kind, keys in steps.items() if kind in value}
    if not here and any(one in steps for one in _keys_called(key)):
        return ""  # `command` without a step is meant as `shell`
    exact = next((kind for kind, keys in (here or steps).items() if key in keys), "")
    meant = [key] if exact else meant_keys(key, {*known, *(name for keys in here.values() for name in keys)})
    fitting = (kind for kind, keys in here.items() if meant and not set(meant) - {*keys}.difference(known))
    owner = exact or next(fitting, "")
    if exact and json_at(value, exact, key) is not None:
        return f"`{key}` is a key of `{exact}`, which has it: remove it here"
    return f"{_asked(key, meant)} is a key of `{owner}`: write it there" if owner else ""


def _asked(key: str, meant: Sequence[str]) -> str:
    return f"`{key}`" if [key] == meant else f"{question(meant)} It"


def _keys(node: Mapping[str, Any]) -> Collection[str]:
    inner = node.get("else", node)
    branches = (inner, *inner.get("oneOf", ()))
    return [name for one in branches if isinstance(one, Mapping) for name in one.get("properties", ())]
