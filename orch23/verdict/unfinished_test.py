"""Name the test that ran when a program was killed: by the report of pytest, or by what the program printed."""

from orch23.model.patterns import lazy_pattern
from orch23.text.excerpt import normalise, shorten_tree_paths
from orch23.verdict.pytest_report import read_report
from orch23.verdict.readers.go import unfinished_test

_MAX_NAME, _MAX_LINE, _FRAMES = 300, 1_000, 5
# gtest, `go test -v`, ctest, node's TAP; in TAP, a comment is the name of tape's next test.
_STARTS = lazy_pattern(r"( *)(?:\[ RUN +\] |=== RUN +|Start +\d+: |# Subtest: )(\S.*)")
_COMMENT = lazy_pattern(r"( *)# (\S.*)")
# `ok 1 - NAME`, `[   OK ] NAME`, `--- PASS: NAME`
_BEFORE_NAMES = ("- ", "] ", ": ")
_TAP_PLAN = lazy_pattern(r"1\.\.\d+\s*$")
_FRAME_TEXT = r'  File "([^"\n]{1,1000})", line (\d{1,9}) in ([^\n]{1,200})\n?'
_FRAME = lazy_pattern(_FRAME_TEXT)
# It follows what pytest printed, in its line.
_DUMP = lazy_pattern(
    r"(?:Current thread|Thread|Stack)[^\n]{0,100}\(most recent call first\):\n"
    rf"(?P<frames>(?:{_FRAME_TEXT}){{1,200}})(?:  \.\.\.\n?)?"
)


def unfinished_of_pytest(report: bytes | None) -> str:
    """Return the id of the first test that pytest collected and did not end; `the collection` before that."""
    result = read_report(report)
    if not result.begun:
        return ""
    if not result.collected:
        return "the collection of the tests"
    return next((name for name in result.collected if name not in result.ended), "")


def last_started(form: str, output: str) -> str:
    """Return the test that a program began last and did not end, by its output; empty if that is not known."""
    if form == "go":
        return unfinished_test(output)
    running, has_begun, lines = list[tuple[int, str]](), False, output.split("\n")
    for line in (one[:_MAX_LINE] for one in lines):
        if has_begun and _TAP_PLAN.match(line):
            return ""  # what follows are numbers of tests
        found = _STARTS.match(line) or (_COMMENT.match(line) if form == "tap" else None)
        if found:
            above = (one for one in running if one[0] < len(found[1]))
            running, has_begun = [*above, (len(found[1]), found[2].strip())], True
        elif running and any(f"{mark}{running[-1][1]}" in line for mark in _BEFORE_NAMES):
            running.pop()
    # `pytest -v`, `unittest -v` and `cargo test` write a name, and its result once it is known.
    if not running and lines[-1].endswith(" ") and ("::" in lines[-1] or lines[-1].endswith(" ... ")):
        running = [(0, lines[-1].removeprefix("test ").removesuffix("... ").strip())]
    return " > ".join(name for _, name in running)[:_MAX_NAME]


def stack_at_the_end(output: str, cwd: str) -> tuple[str, tuple[str, ...]]:
    """Return an output without the stacks that Python's faulthandler wrote into it, and the frames of the project.

    The frames are the innermost five, the innermost last: `tests/test_a.py:3: in test_a`.
    """
    frames: list[str] = []
    for dump in _DUMP.finditer(output):
        every = (_of_project(f"{path}:{line}: in {name}", cwd) for path, line, name in _FRAME.findall(dump["frames"]))
        frames = [*filter(None, every)] or frames
    return _DUMP.sub("", output), tuple(reversed(frames[:_FRAMES]))


def _of_project(frame: str, cwd: str) -> str:
    """Return a frame with the path as a response has it; empty for a frame outside of the tree."""
    plain = normalise(frame)
    short = shorten_tree_paths(plain, cwd)
    return short if short != plain else ""
