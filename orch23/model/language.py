"""Building blocks of the pipeline language: documents, scalar types, step kinds.

A document is a mapping that a user writes, after its expressions are evaluated. Its class is the only declaration: the
JSON schema, the reference page, the known keys and the reader are generated from it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args, get_type_hints

from msgspec import UNSET, Meta, Struct, StructMeta, UnsetType, field
from msgspec.structs import fields

from orch23.model.fields import Problems
from orch23.model.pipeline import ModelChoice
from orch23.model.plugins import load_object_as
from orch23.model.step import Step

_MOST_SECONDS: Final = 1_000_000_000
_MOST_DOLLARS: Final = 1_000_000_000_000
END_OF_TEXT: Final = r"$(?!\n)"
"""The end of a text. In Python `$` alone also matches before a line break at the end."""
# The name of a stage is also the name of a folder in `logs/`.
NAME_PATTERN: Final = r"^(?!\.+$)[A-Za-z0-9._-]{1,64}" + END_OF_TEXT
"""The names that stages and pools may have."""
LITERAL_NODE: Final = {"x-literal": True}
"""Marks a node that must not contain expressions: it is read before anything is rendered."""
LITERAL: Final = Meta(extra_json_schema=LITERAL_NODE)
RATE_PATTERN: Final = (
    r"^[0-9]{1,12}[kM]?/(?:s|min|h|day|[0-9]{1,5}h|[0-9]{1,7}m|[0-9]{1,9}(?:\.[0-9]{1,6})?s)" + END_OF_TEXT
)
"""A number of requests or tokens, and the time in which it is allowed."""
SIZE_PATTERN: Final = r"^[0-9]{1,12}(?:\.[0-9]{1,6})? ?(?:[KMGT]i?)?B?" + END_OF_TEXT
"""A number of bytes, with or without a unit."""
PUBLIC_KEY_PATTERN: Final = r"^ed25519:[A-Za-z0-9+/]{43}=(?: [A-Za-z0-9][A-Za-z0-9._@-]{0,63})?" + END_OF_TEXT
"""A public key as text, and its name; the part before `=` has 32 bytes."""
DISTRIBUTION_PATTERN: Final = r"^[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?" + END_OF_TEXT
"""The names that an installed distribution and its entry points may have."""


Reader: TypeAlias = Callable[[Problems, str, Any], Any]
"""Returns what the value of a key means, and reports errors at the key."""


def of_type(_at: Problems, _key: str, value: Any) -> Any:
    """Return a value whose type has no reader, as it is written."""
    return value


class Key(Struct):
    """What a key declares beside its type: an example, a default, and how it is written if a field cannot be named so.

    `default` is UNSET for a key that may be left out, NODEFAULT for one that is required. A key that is not `in_key` is
    not part of the key of a stage: a change of its value makes nothing stale. The value becomes the field `to` of the
    model's value, or the one of the same name. `read` is for a reader that is not that of the type, or None if other
    code reads the key. `elsewhere` are the names of the key in other tools, with blanks between: an error suggests it.
    """

    example: str = ""
    default: Any = UNSET
    name: str | None = None
    in_key: bool = True
    read: Reader | None = of_type
    to: str = ""
    elsewhere: str = ""
    text: str = ""

    def doc(self, text: str) -> Any:
        """Return the declaration with its meaning, as the value of a field."""
        self.text = text
        return self

    @property
    def description(self) -> str:
        """Return the meaning in one line."""
        text = " ".join(self.text.split())
        return text if self.in_key or "part of the key" in text else f"{text} Not part of the key."


class DocumentType(StructMeta):
    """Make the class of a mapping from its fields, whose values are declarations of keys."""

    declared: Mapping[str, Key]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        """Return the class, with the declarations of its own and inherited keys in `declared`, by field."""
        own = {key: value for key, value in namespace.items() if isinstance(value, Key)}
        values = {key: field(default=one.default, name=one.name) for key, one in own.items()}
        declared = {key: one for base in bases for key, one in getattr(base, "declared", {}).items()} | own
        settings = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True, **config}
        return super().__new__(mcs, name, bases, {**namespace, **values, "declared": declared}, **settings)


# Before, a key was declared in five places (ADR 29).
class Document(Struct, metaclass=DocumentType):
    """One mapping of the language. Undeclared keys are refused."""

    exactly_one: ClassVar[tuple[str, ...]] = ()
    """Fields of which exactly one must be set."""
    later: ClassVar[tuple[str, ...]] = ()
    """Keys that are reserved for a later version."""


class OneOf(Document):
    """A mapping that must have exactly one of some keys."""

    def __post_init__(self) -> None:
        """Refuse a mapping that has none of these keys, or several of them.

        Raises:
            ValueError: msgspec turns it into a ValidationError.
        """
        if sum(getattr(self, name) is not UNSET for name in self.exactly_one) != 1:
            message = f"exactly one of {', '.join(self.exactly_one)} is needed"
            raise ValueError(message)


def read_fields(document: Document, at: Problems) -> dict[str, Any]:
    """Return the fields of the model's value that a document gives, each read as its key declares.

    A key that is left out and has no default gives none.
    """
    found = {}
    for name, key, to, read in _readers(type(document)):
        value = getattr(document, name)
        if value is not UNSET:
            found[to] = read(at, key, value) if read else value
    return found


@cache
def _readers(kind: type[Document]) -> tuple[tuple[str, str, str, Reader | None], ...]:
    """Return the field, the key, the field of the model's value and the reader of each key that is read here."""
    types = get_type_hints(kind, include_extras=True)
    return tuple(
        (name, one.name or name, one.to or name, _reader_of(types[name]) if one.read is of_type else one.read)
        for name, one in kind.declared.items()
        if one.read
    )


def _reader_of(hint: Any) -> Reader | None:
    metas = (meta for part in (hint, *get_args(hint)) for meta in getattr(part, "__metadata__", ()))
    return next((meta.extra["read"] for meta in metas if meta.extra), None)


def reads(read: Reader) -> Meta:
    """Return the reader of a type."""
    return Meta(extra={"read": read})


def mapping_of(kind: Callable[..., Any]) -> Reader:
    """Return the reader of a mapping whose keys are the fields of a class."""
    return lambda at, key, document: kind(**read_fields(document, at.below(key)))


def form(way: str, **more: Any) -> Meta:
    """Return what errors about the form of a value suggest, and other rules."""
    return Meta(extra_json_schema={"x-form": way, **more})


def quantity(way: str, read: Reader, **more: Any) -> Meta:
    """Return the same for a number with a unit, and its reader."""
    return Meta(extra_json_schema={"x-code": "E815", "x-form": way, **more}, extra={"read": read})


def item(text: str) -> Meta:
    """Return the rule of a text in a list: it is not empty."""
    return Meta(min_length=1, description=text)


Text: TypeAlias = Annotated[str, Meta(pattern=r"\S")]
Word: TypeAlias = Annotated[str | int | float, Meta(description="One argument: a string or a number.")]
File: TypeAlias = Annotated[str, Meta(pattern=r"\S"), reads(Problems.path_at)]
Path: TypeAlias = Annotated[str, Meta(min_length=1, description="A path relative to the root of the project.")]
Paths: TypeAlias = Path | Annotated[tuple[Path, ...], Meta(description="Several paths.")]
Words: TypeAlias = Annotated[tuple[Word, ...], reads(Problems.words)]
ProgramArguments: TypeAlias = Annotated[Words, Meta(min_length=1)]
Patterns: TypeAlias = Annotated[tuple[Path, ...], reads(Problems.paths)]
IfCondition: TypeAlias = bool | str
ConditionKind: TypeAlias = Literal["file_exists", "file_absent"]
Name: TypeAlias = Annotated[str, Meta(pattern=NAME_PATTERN), LITERAL]

Duration: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=_MOST_SECONDS)]
    | Annotated[float, Meta(gt=0, le=_MOST_SECONDS)]
    | Annotated[
        str,
        Meta(
            pattern=r"^(?=[0-9])(?:[0-9]{1,9}(?:\.[0-9]+)?|(?:[0-9]{1,5}h)?(?:[0-9]{1,7}m)?(?:[0-9]{1,9}(?:\.[0-9]+)?s)?)"
            + END_OF_TEXT
        ),
    ],
    quantity("write 300s, 45m, 2h, 1h30m or a number of seconds", Problems.duration),
]
Count: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern="^[0-9]+[kM]?" + END_OF_TEXT)],
    quantity("write 4000, 4k or 2M", Problems.count),
]
Size: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern=SIZE_PATTERN)],
    quantity("write 512MiB, 4GiB or a number of bytes", Problems.size),
]
Amount: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=_MOST_DOLLARS)]
    | Annotated[float, Meta(gt=0, le=_MOST_DOLLARS)]
    | Annotated[str, Meta(pattern=r"^(?=.*[1-9])[0-9]{1,12}(?:\.[0-9]{1,12})?" + END_OF_TEXT)],
    quantity("write US dollars, more than 0: 2.50, or '2.50'", Problems.dollars),
]
TokenRate: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=_MOST_DOLLARS)]
    | Annotated[float, Meta(ge=0, le=_MOST_DOLLARS)]
    | Annotated[str, Meta(pattern=r"^[0-9]{1,12}(?:\.[0-9]{1,12})?" + END_OF_TEXT)],
    quantity("write US dollars for a million tokens: 2.50, or '2.50'", Problems.dollars),
]
RateText: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=RATE_PATTERN)],
    quantity("write a number per time: 10/min, 20/s, 30k/min or 500/30s", Problems.rate, examples=["10/min"]),
]
Address: TypeAlias = Annotated[str, Meta(pattern="^https?://", extra_json_schema={"examples": ["http://localhost"]})]


class ModelDocument(Document):
    """A model with its settings. What is left out is as in `llm`; another provider takes no setting of its own kind."""

    provider: Text | UnsetType = Key().doc("The provider. Default: that of `llm`. Another one needs a `model`.")
    model: Text | UnsetType = Key().doc("The model's name. Default: that of `llm`.")
    effort: Text | UnsetType = Key().doc("How much the model thinks.")
    thinking: Text | UnsetType = Key().doc("The thinking mode of the model.")
    max_tokens: Count | UnsetType = Key().doc("The maximum tokens of one response.")
    base_url: Address | UnsetType = Key().doc("The address of a compatible server.")
    endpoint_alias: Text | UnsetType = Key().doc("A name that replaces the address in keys.")
    api: Literal["responses", "chat"] | UnsetType = Key().doc("The interface to use, if the provider has several.")


ModelEntry: TypeAlias = Annotated[
    Annotated[str, item("A model's name.")] | ModelDocument,
    Meta(description="A model's name, or a mapping of the settings that differ."),
]


def read_choice(document: str | ModelDocument, at: Problems) -> str | ModelChoice:
    """Return what an entry of a list of models states: a mapping with a `model` alone is short for its name."""
    if isinstance(document, str):
        return document
    stated = read_fields(document, at)
    if not stated:
        at.add("", "E810", "the entry states nothing", "write at least `model`")
    elif "provider" in stated and "model" not in stated:
        at.add("", "E810", "`model` is missing", "a `provider` needs the name of one of its models")
    return stated["model"] if stated.keys() == {"model"} else tuple(stated.items())


def read_choices(at: Problems, key: str, entries: Sequence[str | ModelDocument]) -> tuple[str | ModelChoice, ...]:
    """Return what each entry of a list of models states."""
    return tuple(read_choice(one, at.below(f"{key}/{number}")) for number, one in enumerate(entries))


class Language(Struct, frozen=True, kw_only=True, eq=False):
    """How a step kind is written under its key.

    `form` is the type of the value; `read` returns the step, and reports errors at the stage. A value that is not a
    mapping is short for a mapping that has it under the key `short`. `defaults` is the type of the value under
    `defaults`, if there may be one. `verifies` is the description as a step of `verify`, if it differs. The examples
    are of the key of a stage, and if they differ, of `defaults` and of a step of `verify`. `elsewhere` are the names of
    the key in other tools.
    """

    form: Any
    description: str
    read: Callable[[Any, Problems], Step | None]
    short: str = ""
    defaults: type[Document] | None = None
    verifies: str = ""
    example: str = ""
    example_of_defaults: str = ""
    example_of_verify: str = ""
    elsewhere: str = ""


def language_of(kind: type[Step]) -> Language:
    """Return how a step kind is written."""
    return load_object_as(Language, kind.language)


def keys_of(kind: type[Document]) -> tuple[str, ...]:
    """Return the keys of a class: its own first, then those of each base class."""
    names = {field.name: field.encode_name for field in fields(kind)}
    owners = [base for base in kind.__mro__ if issubclass(base, Document)]
    depth = {name: number for number, base in enumerate(owners) for name in base.__struct_fields__}
    return tuple(names[name] for name in sorted(names, key=lambda name: depth[name]))
