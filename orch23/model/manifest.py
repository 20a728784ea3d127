"""Everything that determines a stage's result, as aspect -> value: hashed the key, compared the explanation.

Aspects are flat strings. Those with a subject are `prefix:subject`, as in `input:specs/todo.md`; those
that only verification depends on start with `verify`. The idea is n2's (hash.rs): one list, two uses.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from orch23.model.digest import Json, digest_json

ACTION_FORMAT = 1
"""The meaning of a manifest; raised when orch23 itself would make something else of the same aspects."""

Manifest: TypeAlias = Mapping[str, Json]

ReasonCode: TypeAlias = Literal[
    "first_run",
    "input_changed",
    "input_added",
    "input_removed",
    "base_changed",
    "command_changed",
    "prompt_changed",
    "model_changed",
    "params_changed",
    "schema_changed",
    "verify_changed",
    "env_changed",
    "tool_changed",
    "salt_changed",
    "output_missing",
    "output_edited",
    "previous_failed",
    "upstream_maybe",
    "forced",
    "cache_disabled",
    "claim",
]


class Reason(Struct, frozen=True):
    """Why a stage is not fresh: a code, the aspect (or path, or stage) meant, and its value then and now."""

    code: ReasonCode
    subject: str = ""
    old: Json = None
    new: Json = None


def key_of(manifest: Manifest) -> str:
    """Return the stage key: sha256 in hex of the manifest's canonical JSON."""
    return digest_json(manifest)


def is_verify(aspect: str) -> bool:
    """Say whether an aspect matters to verification alone."""
    return aspect == "ensures" or aspect.partition(":")[0].partition(".")[0] == "verify"


def core_of(manifest: Manifest) -> str:
    """Return the digest of all but the verification: with an equal core, old outputs may be verified as they are."""
    return digest_json({a: v for a, v in manifest.items() if not is_verify(a)})


def identity_of(manifest: Manifest) -> str:
    """Return the digest of what stays the same while a stage's inputs come and go: kind, outputs, item."""
    return digest_json({a: manifest.get(a) for a in ("kind", "outputs", "item")})
