"""Manifests and keys of stages, records of their results, and the lock file.

Aspects are flat strings. Those with a subject are `prefix:subject`, as in `input:specs/todo.md`; those that only
verification depends on start with `verify`. As in n2 (hash.rs), the key is computed from them, and the reasons of a run
are the aspects that differ.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json, digest_json

if TYPE_CHECKING:
    from orch23.model.media import MediaKind


class Facts(Struct, frozen=True, kw_only=True):
    """Facts about the machine and the providers, looked up before a stage is resolved.

    `plugins` are name and version of each plugin that is part of the step of the stage; `verify_plugins` are those of
    the plugins that add step kinds to its `verify`, by kind. `accepts` are the media that the first model accepts.
    `empty_caches` are the caches of tools that the stage has to fill.
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
    accepts: "frozenset[MediaKind]" = frozenset()
    empty_caches: tuple[str, ...] = ()


class KeyTexts(Struct, frozen=True):
    """The aspects and errors of a stage's prompt or template; `rendered` is the text of a template.

    `digest` covers everything that a prompt is rendered from, without the contents of the inputs and the item.
    """

    aspects: dict[str, Json] = {}
    broken: tuple[Diagnostic, ...] = ()
    rendered: bytes | None = None
    digest: str = ""


ACTION_FORMAT = 1
"""The version of the meaning of a manifest; raised when the same aspects get another meaning (ADR 3)."""

PROGRAM_ASPECT = "program:"
"""Before the path of a file that the program of an llm stage consists of."""

# Without absolute paths, times and the version of orch23, so that two machines get the same key (ADR 3).
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
    "resample",
    "cache_disabled",
    "tool_cache_empty",
    "claim",
    "shared_cache",
]


class Reason(Struct, frozen=True):
    """Why a stage is not fresh: a code, the aspect, path or stage that differs, and its value then and now."""

    code: ReasonCode
    subject: str = ""
    old: Json = None
    new: Json = None


def key_of(manifest: Manifest) -> str:
    """Return the stage key: sha256 in hex of the manifest's canonical JSON."""
    # A manifest has digests of inputs, and no keys of other stages: a stage that runs again and writes the same bytes
    # leaves the stages after it fresh (ADR 3).
    return digest_json(manifest)


def is_verify_aspect(aspect: str) -> bool:
    """Return whether only verification depends on an aspect."""
    return aspect == "ensures" or aspect.partition(":")[0].partition(".")[0] == "verify"


def core_of(manifest: Manifest, key: str | None = None) -> str:
    """Return the digest of all but the verification: with an equal core, old outputs only have to be verified.

    Without a verification it is the key, which is not computed again if it is given.
    """
    # The search in one text saves time for thousands of inputs.
    text = "\n".join(("", *manifest))
    verify = {*filter(is_verify_aspect, manifest)} if "\nensures" in text or "\nverify" in text else ()
    if key is not None and not verify:
        return key
    return digest_json({a: v for a, v in manifest.items() if a not in verify})


def program_of(manifest: Manifest) -> dict[str, Json]:
    """Return the digests of the files that the program of an llm stage consists of, by path."""
    prefix = PROGRAM_ASPECT
    return {name.removeprefix(prefix): value for name, value in manifest.items() if name.startswith(prefix)}


def without_program(manifest: Manifest) -> Manifest:
    """Return a manifest without the files of the program, as earlier versions wrote it."""
    return {name: value for name, value in manifest.items() if not name.startswith(PROGRAM_ASPECT)}


def identity_of(manifest: Manifest) -> str:
    """Return the digest of the aspects that an edit of inputs does not change: kind, outputs, item."""
    return digest_json({a: manifest.get(a) for a in ("kind", "outputs", "item")})


# With one fixed version of a path as the base, an accepted edit was not shown to the model after the next change of the
# specification, and merged work was reverted when its stage was renamed (ADR 19).
class Base(Struct, frozen=True):
    """The bytes that a run started from at a path, if its base had moved (ADR 19).

    `instead_of` is what it would have started from otherwise: the original, or the version of the item before; None if
    there was no file. The base is in force only while that is the same.
    """

    start: FileEntry
    instead_of: FileEntry | None = None


class Record(Struct, frozen=True, kw_only=True):
    """The record of a verified result: a verifying trace, with the store a constructive one (ADR 3).

    `stage` is only a label: the key does not contain a name, so a renamed stage finds its record.
    `exchanges` are fingerprints; applied to the base in this order, they give the outputs again.
    `originals` has, for outputs of a chain, the file that the user had at that path (None: no file).
    `bases` are the paths at which the run started from other bytes than these.
    `made` are the bytes that the step made at paths where the output has others: those of an answer that `format`
    changed, and of a command whose output a user edited.
    `accepted` are the outputs whose bytes a user wrote, not a run.
    `git` maps the sha256 of outputs, originals and bases to their git blob ids, to find lost bytes in git.
    `texts` is the digest of everything in the prompt except the contents of inputs.
    `failed` marks a kept failure, or a record that `reset` retained: no stage is fresh by it, and it is not restored.
    It only says that orch23 wrote these bytes.
    `pipeline` is the file of the pipeline; empty in a lock file and in records of earlier versions.
    `task` is the digest of the task text, only of a stage with `once`: it runs again only if that changes (ADR 90).
    `tests` has how many tests each run of tests reported, by the digest of its command and its tests (ADR 93).
    `forgiven` are the failed tests and findings that `may_fail` allowed (ADR 95).
    `proof` names the first tests that failed on the base and passed in the result (ADR 96).
    """

    stage: str
    key: str
    manifest: Manifest
    outputs: Mapping[str, FileEntry] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    originals: Mapping[str, FileEntry | None] = field(default_factory=dict)
    # In the record: accepting or committing a file alone must not make a stage stale (ADR 19).
    bases: Mapping[str, Base] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    made: Mapping[str, FileEntry] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    # A prompt with lost bytes cannot be rendered. The rest of it can still be compared by this digest (ADR 19).
    texts: str = ""
    failed: bool = False
    pipeline: str = ""
    task: str = ""
    tests: Mapping[str, int] = field(default_factory=dict)
    forgiven: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()

    @property
    def starts(self) -> Sequence[tuple[str, FileEntry | None]]:
        """The files that the run started from or that it replaced, as originals or bases: (path, file)."""
        return (*self.originals.items(), *((path, base.start) for path, base in self.bases.items()))

    def start_of(self, path: str) -> FileEntry | None:
        """The file that the user had at `path` as the run began; None if there was none or it is not known."""
        return self.bases[path].start if path in self.bases else self.originals.get(path)

    @property
    def is_released(self) -> bool:
        """Whether `orch23 release` gave these files to the user."""
        return self.manifest.get("kind") == "released"

    @property
    def is_kept_failure(self) -> bool:
        """Whether a failed run left these files. A record that `reset` retained has failed as well."""
        return self.failed and "action_format" in self.manifest

    @property
    def is_of_editor(self) -> bool:
        """Whether a program with `edits` made it."""
        return "edits" in self.manifest and self.manifest.get("kind") != "llm"


def same_result(one: Record, other: Record) -> bool:
    """Return whether two records have the same outputs and deleted the same files."""
    return (dict(one.outputs), one.deleted) == (dict(other.outputs), other.deleted)


def written_paths(record: Record | None) -> tuple[str, ...]:
    """Return the paths that a result writes or deletes."""
    return (*record.outputs, *record.deleted) if record else ()


def starts_from(record: Record, path: str, version: FileEntry | None) -> bool:
    """Return whether a result started from a version of a path, or from a file of the user instead of it."""
    moved = record.bases.get(path)
    return record.manifest.get(f"base:{path}") == str(version) or (moved is not None and moved.instead_of == version)


def retained_key(key: str) -> str:
    """Return a key for the record that `reset` retains of one with this key; no stage has such a key."""
    return digest_json({"retained": key})


class LockFile(Struct, frozen=True):
    """The committed records of one pipeline, by stage name.

    `retained` has what `reset` keeps of records: which stage owns a file, and from what it started. An entry is dropped
    when its stage has a record again. `others` are further records of the same stages, of the other side of a
    merge that git could not finish. `released` has the files that `orch23 release` gave to the user, by former stage.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    # Results are rebuilt from the same base, with recorded responses (ADR 19).
    retained: Mapping[str, Record] = field(default_factory=dict)
    others: tuple[Record, ...] = ()
    released: Mapping[str, Record] = field(default_factory=dict)

    def where(self, stays: Callable[[str, Record], bool]) -> "LockFile":
        """Return the lock file with the records of which `stays` is true, by name and record."""

        def part(records: Mapping[str, Record]) -> Mapping[str, Record]:
            return {name: record for name, record in records.items() if stays(name, record)}

        others = tuple(record for record in self.others if stays(record.stage, record))
        return LockFile(part(self.records), part(self.retained), others, part(self.released))

    def owner_records(self) -> dict[str, Record]:
        """Return the record of each stage, else what `reset` retained of it."""
        return {**self.retained, **self.records}

    def originals(self) -> dict[str, FileEntry | None]:
        """Return the original of every path that any record names."""
        records = (record for _, record in sorted(self.owner_records().items()))
        return {path: original for record in records for path, original in record.originals.items()}
