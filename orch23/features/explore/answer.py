"""Read the response of a model that explores: the parts that it asks for, and the texts that it searches."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from orch23.model.digest import Json
from orch23.proposal.response_parser import parse_json_response, without_thoughts

_LISTS: Final = ("show", "search")
_MOST_ENTRIES: Final = 40
_LONGEST_ENTRY: Final = 500
FORM: Final = '{"show": ["src/shop.py#def total", "src/cart.js#L10-40", "README.md"], "search": ["round", "/_sum$/"]}'

_TEXTS: Mapping[str, Json] = {"type": "array", "items": {"type": "string"}}
EXPLORE_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "show": {**_TEXTS, "description": "Files or parts of files to see: PATH, PATH#L10-40, or PATH#def NAME."},
        "search": {**_TEXTS, "description": "Texts to search for, or regular expressions between slashes."},
    },
    "required": list(_LISTS),
    "additionalProperties": False,
}


class ExploreAnswer(Struct, frozen=True):
    """What a model asks for: places of files, and texts. `error` says why the response cannot be used."""

    show: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    error: str = ""


def read_answer(text: str) -> ExploreAnswer:
    """Return what a response asks for. Without thoughts and a code fence, it is one JSON object."""
    value, problem = parse_json_response(without_thoughts(text.removeprefix("\ufeff")))
    if problem is not None:
        return ExploreAnswer(error=f"{problem.message}; the form is {FORM}")
    if isinstance(value, list | tuple):  # of places: weak models leave the object out
        value = {"show": value}
    if not isinstance(value, Mapping) or not set(value) & set(_LISTS):
        return ExploreAnswer(error=f"the response is not an object with `show` and `search`; the form is {FORM}")
    lists: dict[str, tuple[str, ...]] = {}
    for name in _LISTS:
        given = value.get(name) or ()
        entries = (given,) if isinstance(given, str) else given
        if not isinstance(entries, list | tuple) or not all(isinstance(one, str) for one in entries):
            return ExploreAnswer(error=f"`{name}` is not a list of texts; the form is {FORM}")
        # Of several lines the first: no line matches them, and on a screen they would look like lines of orch23.
        texts = dict.fromkeys(s.splitlines()[0][:_LONGEST_ENTRY] for one in entries if (s := str(one).strip()))
        lists[name] = tuple(texts)[:_MOST_ENTRIES]
    return ExploreAnswer(show=lists["show"], search=lists["search"])
