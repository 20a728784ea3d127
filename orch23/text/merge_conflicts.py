"""Find the lines that git writes around a conflict in files that a user merged."""

from collections.abc import Mapping

from orch23.model.diagnostic import Diagnostic


def conflict_errors(texts: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return an error for each file that has the lines that git writes around a conflict."""
    hint = "resolve the conflict: keep one of the two versions, or both, and remove these lines"
    found = ((path, _conflict_line(text)) for path, text in texts.items())
    return tuple(
        Diagnostic("E645", f"has git's conflict markers, from line {line} on", hint=hint, subject=path)
        for path, line in found
        if line
    )


def _conflict_line(text: str) -> int:
    begin, has_middle = 0, False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("<<<<<<< "):
            begin, has_middle = number, False
        elif line.rstrip("\r") == "=======":
            has_middle = bool(begin)
        elif has_middle and line.startswith(">>>>>>> "):
            return begin
    return 0
