"""Results of loading a pipeline: the pipeline, or an error with all diagnostics."""

from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import Pipeline


class ParsedPipeline(Struct, frozen=True):
    """The result of parsing a text: the pipeline (None with errors), all diagnostics, and the origin of each var.

    With errors, `partial` has the valid stages, so that their other errors can be reported in the same run; `unread`
    are the texts in the stages that are not valid.
    """

    pipeline: Pipeline | None
    diagnostics: tuple[Diagnostic, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    partial: Pipeline | None = None
    unread: tuple[str, ...] = ()


class LoadedPipeline(Struct, frozen=True):
    """A valid pipeline, its warnings, the origin of each var; by file the texts that were read, and their digests."""

    pipeline: Pipeline
    warnings: tuple[Diagnostic, ...]
    origins: Mapping[str, str]
    sources: Mapping[str, str]
    digests: Mapping[str, Digest]


class InvalidPipelineError(InvalidInputError):
    """The pipeline is not valid; `sources` are the texts that the diagnostics refer to, `parsed` is the valid part."""

    def __init__(
        self, *diagnostics: Diagnostic, sources: Mapping[str, str], parsed: ParsedPipeline | None = None
    ) -> None:
        """Store the texts and the valid part beside the diagnostics."""
        super().__init__(*diagnostics)
        self.sources = sources
        self.parsed = parsed
