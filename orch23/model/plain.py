"""The type of plain values: what JSON can say."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json: TypeAlias = Any  # msgspec cannot decode a type that refers to itself and is no class
