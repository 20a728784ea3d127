"""Results of loading a pipeline: the pipeline, or an error with all diagnostics."""

from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import Pipeline


class ParsedPipeline(Struct, frozen=True):
    """What a text means: the pipeline (None where there are errors), all complaints, and where each var came from.

    Where there are errors, `partial` holds the stages that are sound, so that the rest of their complaints can be told
    in the same run; `unread` are the texts in the stages that are not.
    """

    pipeline: Pipeline | None
    diagnostics: tuple[Diagnostic, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    partial: Pipeline | None = None
    unread: tuple[str, ...] = ()


class LoadedPipeline(Struct, frozen=True):
    """A valid pipeline, its warnings, where each var came from, and the texts that were read, by file.

    `digests` are those of the bytes that were read, by the name of the file below the root.
    """

    pipeline: Pipeline
    warnings: tuple[Diagnostic, ...]
    origins: Mapping[str, str]
    sources: Mapping[str, str]
    digests: Mapping[str, Digest]


class InvalidPipelineError(InvalidInputError):
    """The pipeline is not valid; `sources` are the texts that the diagnostics point into, `parsed` is what is sound."""

    def __init__(
        self, *diagnostics: Diagnostic, sources: Mapping[str, str], parsed: ParsedPipeline | None = None
    ) -> None:
        """Keep the texts and the sound part beside the diagnostics."""
        super().__init__(*diagnostics)
        self.sources = sources
        self.parsed = parsed
