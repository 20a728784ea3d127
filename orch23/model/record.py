"""Manifests and keys of stages, records of their results, and the lock file.

Aspects are flat strings. Those with a subject are `prefix:subject`, as in `input:specs/todo.md`; those
that only verification depends on start with `verify`. The idea is n2's (hash.rs): one list, two uses.
"""

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from orch23.model.digest import FileEntry, Json, digest_json


class Facts(Struct, frozen=True, kw_only=True):
    """What is true of the machine and of the providers, looked up before resolving.

    `plugins` are name and version of each plugin that has a part in the stage's step; `verify_plugins` are those of the
    kinds of steps in its `verify` that plugins add, by kind.
    """

    python: str = ""
    pytest: str = ""
    interpreter: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    api: str = ""
    params: Mapping[str, Json] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    verify_plugins: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, int | str] = field(default_factory=dict)


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


def is_verify_aspect(aspect: str) -> bool:
    """Return whether an aspect matters to verification alone."""
    return aspect == "ensures" or aspect.partition(":")[0].partition(".")[0] == "verify"


def core_of(manifest: Manifest) -> str:
    """Return the digest of all but the verification: with an equal core, old outputs may be verified as they are."""
    return digest_json({a: v for a, v in manifest.items() if not is_verify_aspect(a)})


def identity_of(manifest: Manifest) -> str:
    """Return the digest of what stays the same while a stage's inputs come and go: kind, outputs, item."""
    return digest_json({a: manifest.get(a) for a in ("kind", "outputs", "item")})


class Base(Struct, frozen=True):
    """The bytes that a run started from at a path, where its base had moved (ADR 19).

    `instead_of` is what it would have started from otherwise: the original, or the version of the item before; None
    where there was no file. The base is in force only as long as that is still so.
    """

    start: FileEntry
    instead_of: FileEntry | None = None


class Record(Struct, frozen=True, kw_only=True):
    """Written after verify passed: a verifying trace and, with the store, a constructive one (a la Carte).

    `stage` is only a label: the key has no name in it, so a renamed stage finds its record.
    `exchanges` are fingerprints; laid in this order on the base they give the outputs again.
    `originals` says, for outputs of a chain, what a person had at that path (None: nothing).
    `bases` are the paths where the run started from other bytes than these.
    `accepted` are the outputs whose bytes a user wrote, not a run.
    `git` maps the sha256 of outputs, originals and bases to their git blob ids, so that git can give the bytes back.
    `texts` is the digest of what the prompt was rendered from besides the contents of inputs.
    A kept failure, or what `reset` retained (`failed`), makes nothing fresh and restores nothing; its bytes are merely
    known.
    """

    stage: str
    key: str
    manifest: Manifest
    outputs: Mapping[str, FileEntry] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    originals: Mapping[str, FileEntry | None] = field(default_factory=dict)
    bases: Mapping[str, Base] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    git: Mapping[str, str] = field(default_factory=dict)
    texts: str = ""
    failed: bool = False


def same_result(one: Record, other: Record) -> bool:
    """Return whether two records have the same outputs and deleted the same files."""
    return (dict(one.outputs), one.deleted) == (dict(other.outputs), other.deleted)


def retained_key(key: str) -> str:
    """Return the key of what `reset` retains of a record with this key: no stage has it."""
    return digest_json({"retained": key})


class LockFile(Struct, frozen=True):
    """The committed records of one pipeline, by stage name.

    `retained` is what `reset` left of records: whose files these are, and what they started from. A stage has no entry
    there once it has a record again.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    retained: Mapping[str, Record] = field(default_factory=dict)

    def without(self, stages: Collection[str]) -> "LockFile":
        """Return the lock file without these stages, and without the items of each of them."""

        def stays(name: str) -> bool:
            return name not in stages and name.partition("@")[0] not in stages

        return LockFile(
            {name: record for name, record in self.records.items() if stays(name)},
            {name: record for name, record in self.retained.items() if stays(name)},
        )

    def owner_records(self) -> dict[str, Record]:
        """Return what is known of each stage: its record, else what was retained of it."""
        return {**self.retained, **self.records}

    def originals(self) -> dict[str, FileEntry | None]:
        """Return the original of every path that any record names."""
        found: dict[str, FileEntry | None] = {}
        for _, record in sorted(self.owner_records().items()):
            found.update(record.originals)
        return found
