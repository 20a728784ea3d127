"""Leave the frames of the interpreter's library out of a traceback of pytest, and find its error."""

from collections.abc import Iterator

from orch23.model.patterns import lazy_pattern

# A frame in the short form: its place, then its lines, which are indented.
_SHORT_FRAME = lazy_pattern(r"(\S[^\n]{0,1000}?):\d+: in \S.*")
# The end of a frame in the long form: its lines come before it.
_END_OF_FRAME = lazy_pattern(r"(\S[^\n]{0,1000}?):\d+: ?[\w.]*")
_BETWEEN_FRAMES = lazy_pattern(r"(?:_ )+_? ?")
_LIBRARY = ("/python/", "<frozen ")
_ERROR_LINE = "E  "
_ADVICE = "Hint: make sure your test modules/packages have valid Python names."


def without_library_frames(text: str) -> str:
    """Return a normalised traceback without the frames of the library; all of it if it has no other frame or error.

    A text without such frames stays as it is: the prompts of retries have it, and recorded responses are found by them.
    """
    if not any(mark in text for mark in _LIBRARY):
        return text
    kept = [line for line in _kept(text.split("\n")) if line != _ADVICE]
    if not any(line.startswith(_ERROR_LINE) or _END_OF_FRAME.fullmatch(line) for line in kept):
        return text
    lines: list[str] = []
    for line in kept:
        # No mark at the beginning, and one between two frames. No two empty lines.
        if _BETWEEN_FRAMES.fullmatch(line) and (not lines or _BETWEEN_FRAMES.fullmatch(lines[-1])):
            continue
        if line.startswith(_ERROR_LINE) and lines and _BETWEEN_FRAMES.fullmatch(lines[-1]):
            lines.pop()  # of a frame of the library, only its error is left
        if line or (lines and lines[-1]):
            lines.append(line)
    while lines and (not lines[-1] or _BETWEEN_FRAMES.fullmatch(lines[-1])):
        lines.pop()
    return "\n".join(lines)


def _kept(lines: list[str]) -> Iterator[str]:
    frame: list[str] = []
    skips = False
    for line in lines:
        if found := _SHORT_FRAME.fullmatch(line):
            yield from frame
            frame = []
            skips = found[1].startswith(_LIBRARY)
            if not skips:
                yield line
        elif skips and line.startswith(" "):
            continue
        elif _BETWEEN_FRAMES.fullmatch(line):
            yield from (*frame, line)
            frame, skips = [], False
        elif (found := _END_OF_FRAME.fullmatch(line)) and not line.startswith(_ERROR_LINE):
            is_library = found[1].startswith(_LIBRARY)
            yield from (one for one in (*frame, line) if not is_library or one.startswith(_ERROR_LINE))
            frame, skips = [], False
        else:
            frame.append(line)
            skips = False
    yield from frame


def error_text(error: str, text: str) -> str:
    """Return the error of a traceback in one line: `AssertionError: assert 3 == 2`.

    `error` is the name of its class. The last such error counts: those before it are its causes.
    """
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith(_ERROR_LINE)]
    named = [line for line in lines if line.partition(":")[0].rpartition(".")[2].strip() == error]
    if named:
        line = named[-1]
        return line[line.index(error) :].strip()
    asserted = next((line for line in lines if line.startswith("assert ")), "")
    return f"{error}: {asserted}" if asserted else error
