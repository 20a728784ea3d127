"""Drop the proposals of diagnostics that do not hold: each is tried in an edited copy, which must load and plan.

This module is imported only where something is wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location, question
from orch23.model.errors import Orch23Error
from orch23.model.plan import InvalidPipelineError
from orch23.report.diagnostics import edited_lines

# Copies that are tried for one error message, and the bytes of all of them: more would take seconds.
_MOST_COPIES = 12
_OLD_AND_NEW = 2
_MOST_BYTES = 500_000


class _Checked(Struct, frozen=True):
    """What is wrong with a text of the pipeline. `is_planned`: its form is valid, so that its plan was checked."""

    found: tuple[Diagnostic, ...]
    is_planned: bool


def with_proven_fixes(
    diagnostics: Sequence[Diagnostic], check: Callable[[str], Sequence[Diagnostic]], sources: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    """Return diagnostics with only those fixes of a pipeline that hold; `sources` begin with the text of its file.

    `check` loads and plans a text and returns its warnings, or raises its errors. A hint that asks about other names
    than those that hold is replaced.
    """
    file, text = next(iter(sources.items()))
    trials = _Trials(text, file, check)
    fixed = [one for one in diagnostics if one.fix and one.location and one.location.file == file]
    proven = dict(zip(map(id, fixed), trials.all_proven(fixed, set(map(_key, diagnostics))), strict=True))
    return tuple(proven.get(id(one), one) for one in diagnostics)


def _key(one: Diagnostic) -> object:
    return one.code, one.message, one.location


class _Trials(Struct):
    """Tries edits of the text of a pipeline."""

    text: str
    file: str
    check: Callable[[str], Sequence[Diagnostic]]
    _known: dict[str, _Checked] = field(default_factory=dict)

    def proven(self, one: Diagnostic) -> Diagnostic:
        """Return a diagnostic with those readings of its fix that hold."""
        before, *readings = one.fix or ("",)
        holding = [after for after in readings if self._holds(one, after)]
        if holding == readings:
            return one
        hint = one.hint or ""
        rest = hint.removeprefix(question(readings))
        if holding and rest != hint:
            return replace(one, hint=f"{question(holding)}{rest}", fix=(before, *holding))
        other_hint = one.otherwise or rest.strip() or f"`orch23 help {one.code}` explains this error"
        return replace(one, hint=other_hint, fix=None)

    def all_proven(self, fixed: Sequence[Diagnostic], known: AbstractSet[object]) -> list[Diagnostic]:
        """Return diagnostics as `proven` does. Many are tried at once, or by halves if an error is not `known`."""
        if len(fixed) < 2:  # noqa: PLR2004 - nothing to halve
            return [self.proven(one) for one in fixed]
        text = self.text
        # The last one first: each leaves the places before it as they are.
        for one in sorted(fixed, key=lambda one: one.location or Location("", 0, 0), reverse=True):
            text = text and _edited(text, one, one.fix[-1] if one.fix and len(one.fix) == _OLD_AND_NEW else "")
        checked = self._checked(text) if text else None
        if checked is not None and set(map(_key, checked.found)) <= known - set(map(_key, fixed)):
            return list(fixed)
        half = len(fixed) // 2
        return [*self.all_proven(fixed[:half], known), *self.all_proven(fixed[half:], known)]

    def _holds(self, one: Diagnostic, after: str) -> bool:
        text = _edited(self.text, one, after)
        original = self._checked(self.text) if text else None
        copy = original and self._checked(text)
        if copy is None or original is None or one.location is None:
            return False
        is_left = _key(one) in map(_key, copy.found)
        return not (is_left or any(self._caused(copy, original, one.location.line)))

    def _checked(self, text: str) -> _Checked | None:
        """Return what is wrong with a text; None if that would take too long."""
        if text not in self._known:
            if len(self._known) >= _MOST_COPIES or (len(self._known) + 1) * len(text) > _MOST_BYTES:
                return None
            try:
                self._known[text] = _Checked(tuple(self.check(text)), is_planned=True)
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


def _edited(text: str, one: Diagnostic, after: str) -> str:
    """Return a text with a reading of a fix at its place; empty if the place does not have the text."""
    lines, place, fix = text.split("\n"), one.location, one.fix
    if place is None or fix is None or place.line > len(lines):
        return ""
    new = edited_lines(lines[place.line - 1], place, fix[0], after)
    return "\n".join([*lines[: place.line - 1], *new, *lines[place.line :]]) if new else ""
