"""Drop the proposals of diagnostics that do not hold: each is tried in an edited copy, which must load and plan.

This module is imported only where something is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.project_loading import ProjectSettings, check_stages, load_project
from orch23.load.loaded import InvalidPipelineError
from orch23.model.diagnostic import Diagnostic, question
from orch23.model.errors import Orch23Error
from orch23.report.diagnostics import edited_lines
from orch23.store.project_store import ProjectStore

# Copies that are tried for one error message, and the bytes of all of them: more would take seconds.
_MOST_COPIES = 40
_MOST_BYTES = 500_000


class _Checked(Struct, frozen=True):
    """What is wrong with a text of the pipeline. `is_planned`: its form is valid, so that its plan was checked."""

    found: tuple[Diagnostic, ...]
    is_planned: bool


def with_proven_fixes(
    diagnostics: Sequence[Diagnostic], settings: ProjectSettings, store: ProjectStore, sources: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    """Return diagnostics with only those fixes of a pipeline that hold; `sources` begin with the text of its file.

    A hint that asks about other names than those that hold is replaced.
    """
    file, text = next(iter(sources.items()))
    trials = _Trials(text, file, settings, store.for_one_moment())
    return tuple(
        trials.proven(one) if one.fix and one.location and one.location.file == file else one for one in diagnostics
    )


class _Trials(Struct):
    """Tries edits of the text of a pipeline."""

    text: str
    file: str
    settings: ProjectSettings
    store: ProjectStore
    _known: dict[str, _Checked] = field(default_factory=dict)

    def proven(self, one: Diagnostic) -> Diagnostic:
        """Return a diagnostic with those readings of its fix that hold."""
        before, *readings = one.fix or ("",)
        holding = [after for after in readings if self._holds(one, before, after)]
        if holding == readings:
            return one
        hint = one.hint or ""
        rest = hint.removeprefix(question(readings))
        if holding and rest != hint:
            return replace(one, hint=f"{question(holding)}{rest}", fix=(before, *holding))
        other_hint = one.otherwise or rest.strip() or f"`orch23 help {one.code}` explains this error"
        return replace(one, hint=other_hint, fix=None)

    def _holds(self, one: Diagnostic, before: str, after: str) -> bool:
        lines, place = self.text.split("\n"), one.location
        if place is None or place.line > len(lines):
            return False
        new = edited_lines(lines[place.line - 1], place, before, after)
        original = self._checked(self.text) if new else None
        copy = original and self._checked("\n".join([*lines[: place.line - 1], *new, *lines[place.line :]]))
        if copy is None or original is None:
            return False
        same = (one.code, one.message, one.location)
        is_left = any((other.code, other.message, other.location) == same for other in copy.found)
        return not (is_left or any(self._caused(copy, original, place.line)))

    def _checked(self, text: str) -> _Checked | None:
        """Return what is wrong with a text; None if that would take too long."""
        if text not in self._known:
            if len(self._known) >= _MOST_COPIES or (len(self._known) + 1) * len(text) > _MOST_BYTES:
                return None
            notes: list[Diagnostic] = []
            try:
                project = load_project(self.settings, self.store, text)
                check_stages(project, notes)
                self._known[text] = _Checked((*project.loaded.warnings, *notes), is_planned=True)
            except Orch23Error as error:
                is_planned = not isinstance(error, InvalidPipelineError)
                self._known[text] = _Checked(error.diagnostics, is_planned=is_planned)
        return self._known[text]

    def _caused(self, copy: _Checked, original: _Checked, line: int) -> Iterator[Diagnostic]:
        """Yield the errors of an edited copy that the change of a line may have caused."""
        known = {(one.code, one.message) for one in original.found}
        for one in copy.found:
            places = [place for place in (one.location, *(other.location for other in one.related)) if place]
            here = [place.line for place in places if place.file == self.file]
            # An error that the first one hid, such as one of the plan, has another cause if it is elsewhere.
            is_related = original.is_planned or not here or any(self._is_beside(other, line) for other in here)
            if is_related and (one.code, one.message) not in known:
                yield one

    def _is_beside(self, line: int, changed: int) -> bool:
        """Return whether a line is the changed one, or in the block that it begins, or begins the block with it."""
        first, last = sorted((line, changed))
        lines = self.text.split("\n")[first - 1 : last]
        indents = [len(text) - len(text.lstrip(" ")) for text in lines if text.strip()]
        return all(indent > indents[0] for indent in indents[1:])
