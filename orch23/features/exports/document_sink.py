"""A sink that writes a run as one text."""

from collections.abc import Callable

from msgspec import Struct

from orch23.model.run_facts import EndedRun
from orch23.model.sink import Sink
from orch23.report.formats import Document


class DocumentSink(Struct, Sink, frozen=True):
    """A sink that writes one text when the run has ended. `compose` gets the name of the pipeline."""

    name: str
    write: Callable[[str], None]
    compose: Callable[[str, EndedRun], str]

    def finish(self, run: EndedRun) -> None:
        """Write the text."""
        self.write(self.compose(self.name, run))


def document(compose: Callable[[str, EndedRun], str]) -> Document:
    """Return what makes the sink that writes a text to the answer of a view."""
    return lambda view: DocumentSink(view.pipeline.name or view.pipeline.file, view.answer, compose)
