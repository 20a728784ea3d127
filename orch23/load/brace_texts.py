"""Find texts of a pipeline that look like an expression, and lack its `$`: `{{ vars.model }}`.

Prompts and templates, where such texts are right, are files of their own.
"""

from collections.abc import Iterator, Mapping, Sequence

from orch23.load.yaml_text import ParsedText
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23.model.fields import leaves
from orch23.model.parsing import as_mapping
from orch23.model.patterns import lazy_pattern

_BRACES = lazy_pattern(r"(?<![${])\{\{-?\s*(\w+)[^{}\n]{0,200}\}\}")
_ITEM = "item"
_MOST = 10


def brace_warnings(parsed: ParsedText, text: str) -> tuple[Diagnostic, ...]:
    """Return a warning for each value that has a name of expressions in `{{ }}`. `text` is the text of the pipeline."""
    return tuple(_warnings(parsed))[:_MOST] if _BRACES.search(text) else ()


def _warnings(parsed: ParsedText) -> Iterator[Diagnostic]:
    stages = as_mapping(as_mapping(parsed.tree).get("stages"))
    texts = ((path, value) for path, value in leaves(parsed.tree) if isinstance(value, str))
    for path, value in texts:
        names = {"vars", *_item_names(stages, path)}
        for found in _BRACES.finditer(value):
            is_in_expression = value.count("${{", 0, found.start()) > value.count("}}", 0, found.start())
            if found[1] in names and not is_in_expression:
                message = f"`{found[0]}` is not an expression, so it is used as it is written"
                place = parsed.location_of("/".join(map(str, path)))
                yield Diagnostic(
                    "W805", message, place, f"write `${found[0]}`", Severity.WARNING, fix=(found[0], f"${found[0]}")
                )
                break


def _item_names(stages: Mapping[str, Json], path: Sequence[str | int]) -> Iterator[str]:
    if len(path) > 1 and path[0] == "stages":
        foreach = as_mapping(stages.get(str(path[1]))).get("foreach")
        if foreach is not None:
            name = as_mapping(foreach).get("as", _ITEM)
            yield name if isinstance(name, str) else _ITEM
