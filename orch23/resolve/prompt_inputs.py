"""What a prompt is rendered from: files of the author, inputs, values of an attempt; and what a key takes from it."""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.event_data import SentFile
from orch23.model.llm import Request, RetryFeedback
from orch23.model.parsing import StrictJsonError, parse_json

ReadText: TypeAlias = Callable[[], str]
ReadBytes: TypeAlias = Callable[[], bytes]
MAX_PREVIOUS_LENGTH = 20_000


class Dialogue(Struct, frozen=True, kw_only=True):
    """What a later attempt continues, with `retry: {style: conversation}` (ADR 42): a request and its response.

    The response is None if there was none, or a blank one, which no vendor accepts. `shown` has the digests of the
    inputs as its last message found them, by path and slice; `files` are those that its messages contain.
    """

    request: Request
    response: str | None
    shown: Mapping[tuple[str, str], str]
    files: tuple[SentFile, ...] = ()


class AuthorTexts(Protocol):
    """Files that belong to a pipeline: prompts, templates, schemas."""

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        """Return a file's text, or None with an error."""


class PromptInput(Struct, frozen=True):
    """One input of a prompt: path, slice, digest, `text`, `value`, and whether it is the base of a chain.

    `own`: some other item of the foreach does not have it. `read_bytes` is for whole files, which may be pictures.
    `explored`: the model asked to see it.
    """

    path: str
    slice: str
    digest: str
    read: ReadText
    base: bool = False
    own: bool = False
    read_bytes: ReadBytes | None = None
    explored: bool = False

    @property
    def place(self) -> str:
        """The path with the slice."""
        return f"{self.path}#{self.slice}" if self.slice else self.path

    @property
    def text(self) -> str:
        """Read the text."""
        return self.read()

    def __repr__(self) -> str:
        """Return its name only: `{{ [inputs[0]] }}` would write the rest into a prompt, with paths of this machine."""
        return f"<input {self.path}>"

    def __str__(self) -> str:
        """Raise a ValueError: a template may not write it."""
        message = f"`{self.path}` is a file, not a text: write `.text` after it, or use the filter `block`"
        raise ValueError(message)

    @property
    def value(self) -> Json:
        """Read the text as JSON. Every slice by a pointer is JSON.

        Raises:
            ValueError: it is not JSON.
        """
        try:
            return parse_json(self.text)
        except StrictJsonError as error:
            message = f"`value` of `{self.path}` cannot be used, because it is not JSON: {error}"
            raise ValueError(message) from None


class PromptInputs:
    """The inputs of a prompt: a list, and a lookup by path or by `path#slice`."""

    def __init__(self, items: tuple[PromptInput, ...], instead: PromptInput | None = None) -> None:
        """Set the items, in declared order, and what a lookup of another one returns; None: it raises an error."""
        self._items = items
        self._instead = instead

    def __iter__(self) -> Iterator[PromptInput]:
        """Iterate in declared order."""
        return iter(self._items)

    def __str__(self) -> str:
        """Raise a ValueError: a template may not write it."""
        message = "`inputs` is a list of files, not a text: write `{{ inputs | blocks }}` for all of them"
        raise ValueError(message)

    __repr__ = __str__

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self._items)

    def __getitem__(self, key: str | int) -> PromptInput:
        """Return the input at a position, or with a path or `path#slice`."""
        if isinstance(key, int):
            return self._items[key]
        for one in self._items:
            if key in (one.path, one.place):
                return one
        if self._instead is None:
            raise KeyError(key)
        return self._instead


EXPLORES = "explore"
"""The form of a response that only names what the model needs to see, and changes no file."""


class Exploration(Protocol):
    """What a model may look at, and has seen in the attempts of a stage.

    `exchanges` are the fingerprints for that, `inputs` the parts, as they were before any attempt. `is_done`: the model
    needs nothing more in this attempt.
    """

    schema: ClassVar[Json]
    exchanges: list[str]
    inputs: list[PromptInput]
    is_done: bool

    @property
    def summary(self) -> str:
        """What the model may look at, and how often it may ask."""

    @property
    def may_ask(self) -> bool:
        """Whether another request can show the model more in this attempt."""

    def request_of(self, request: Request, /) -> Request:
        """Return the request in which the model names what it needs to see for the task of another one."""

    def take(self, text: str, fingerprint: str, /) -> tuple[str, ...]:
        """Note what a response asks for, and return the errors in it."""


class AttemptContext(Struct, frozen=True, kw_only=True):
    """The values that one attempt adds to a prompt.

    `shows_previous`: the stage's own files in `given` are those of the previous response. With `dialogue` the request
    continues the one of a former attempt. With `exploring` it only asks what the model needs to see.
    """

    attempt: int = 1
    previous: str | None = None
    feedback: RetryFeedback | None = None
    own: tuple[PromptInput, ...] = ()
    given: tuple[PromptInput, ...] = ()
    model: str
    sample: int = 0
    shows_previous: bool = False
    dialogue: Dialogue | None = None
    exploring: Exploration | None = None

    @property
    def reduced_feedback(self) -> RetryFeedback | None:
        """The part of the feedback that is the same for the same failure: failing ids instead of the excerpt.

        What a user wrote is the same each time.
        """
        if self.feedback is None or self.feedback.kind == "rejected":
            return self.feedback and replace(self.feedback, constraints=())
        return replace(
            self.feedback,
            excerpt="\n".join(sorted(self.feedback.failing)),
            exit_code=None,
            constraints=(),
            diagnostics=self.feedback.diagnostic_codes(),
        )
