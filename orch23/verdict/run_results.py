"""The results of a run of tests, whatever ran them, and groups of failed tests by cause."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import BriefLimits
from orch23.model.text import join_first, visible
from orch23.text.differences import differing_values
from orch23.text.excerpt import cut_line, named_difference, normalise, shorten, shorten_tree_paths, without_equal_lines
from orch23.verdict.pytest_discovery import id_without_parameters, is_test_file

NOT_RUN = "not run"
PASSED = frozenset({"passed", "xpassed", "flaky"})
"""The outcomes of tests that passed."""

_MAX_ID, _MAX_LINE, _LONG = 500, 300, 2_000
_TEXT_LIMITS = BriefLimits(20_000, 10_000, 10_000)


class ReportedFailure(Struct, frozen=True):
    """A test that failed: its error, the place of it, the shortened text, the phase, the label of a subtest.

    Of other runners than pytest, it has no phase, and `message` is the error in one line.
    """

    test: str
    error: str
    place: str
    text: str
    when: str
    subtest: str = ""
    message: str = ""

    @property
    def name(self) -> str:
        """The id of the test with the label of the subtest: `test_a.py::test_x (case='y')`."""
        return f"{self.test} {self.subtest}".rstrip()


class ReportedSkip(Struct, frozen=True):
    """A test or a whole module that was skipped: where the skip was raised, why, and what `importorskip` wanted."""

    name: str
    place: str = ""
    reason: str = ""
    module: str = ""


class RunResults(Struct):
    """What a report says about a run of tests. `broken` says why it cannot be trusted.

    `outcomes` has the outcome of each test by its id, `subtests` of each subtest that did not pass, by the id of its
    test and its label. `rest` is text that belongs to no test, such as errors of a compiler. Paths in texts are made
    relative to `cwd`. `are_findings`: of a linter, which may find nothing. `ids` are how often each id was reported: a
    test that runs again after a failure is reported twice.
    """

    broken: str | None = None
    outcomes: dict[str, str] = field(default_factory=dict)
    subtests: dict[str, str] = field(default_factory=dict)
    failures: list[ReportedFailure] = field(default_factory=list)
    skipped: list[ReportedSkip] = field(default_factory=list)
    rest: str = ""
    cwd: str = "."
    are_findings: bool = False
    ids: dict[str, int] = field(default_factory=dict)

    def add(self, test: str, outcome: str, text: str = "", message: str = "", error: str = "", place: str = "") -> None:
        """Add a test, or a finding. Another one of the same id gets a number: some runners give several one name."""
        test = test[:_MAX_ID]
        # Most names are plain, and some reports have very many.
        test = " ".join((test if test.isascii() and test.isprintable() else visible(test)).split()) or "?"
        number = self.ids[test] = self.ids.get(test, 0) + 1
        name = test if number == 1 else f"{test} ({number})"
        self.outcomes[name] = outcome
        if outcome == "passed":
            return
        if outcome == "skipped":
            self.skipped.append(ReportedSkip(name, reason=_one_line(message)))
        elif outcome in ("failed", "finding"):
            text = self._shown(shorten(without_runner_frames(differing_values(text)), _TEXT_LIMITS)).strip("\n")
            first, _, others = text.partition("\n")
            message, first = _one_line(self._shown(message[:_LONG])), _one_line(first)
            text = others.strip("\n") if first == message or not message else text
            message = message or first
            self.failures.append(ReportedFailure(name, error or outcome, place, text, "", message=message))

    @property
    def uncollected(self) -> dict[str, str]:
        """The files whose tests could not be collected, each with its error in one line."""
        failed = [one for one in self.failures if one.when == "collect"]
        return {one.test: shorten_tree_paths(error_text(one.error, one.text), "") for one in failed}

    def _shown(self, text: str) -> str:
        return shorten_tree_paths(normalise(text), self.cwd)


_FRAME = lazy_pattern(r"[ \t]+at |.*:\d+:\d+\)?$|.*\(<anonymous>\)$")
# Frames of runners, libraries and the platform, in stack traces of Java and Node.
_JAVA = "javax?|jdk|sun|org\\.(?:apache\\.maven|assertj|gradle|hamcrest|junit|mockito|testng)"
_OF_JAVA = lazy_pattern(rf"[ \t]+at (?:\S{{0,99}}/)?(?:{_JAVA})\.")
_OF_NODE = ("(node:", " node:", "/node_modules/", "(<anonymous>)")


def without_runner_frames(text: str) -> str:
    """Return a stack trace with the frames of the project only; all of it if it has none of these."""
    lines = text.split("\n")
    frames = {line for line in lines if _FRAME.match(line[:_LONG])}
    foreign = {line for line in frames if _OF_JAVA.match(line) or any(mark in line for mark in _OF_NODE)}
    return text if frames == foreign else "\n".join(line for line in lines if line not in foreign)


_BETWEEN_FRAMES = lazy_pattern(r"(?:_ )+_? ?")
# A frame in the short form: its place and its function, then its lines, which are indented. In the long form, its lines
# come before its place. `_ _ _` is between such frames.
_FRAME_PLACE = lazy_pattern(r"(?P<path>\S[^\n]{0,1000}?):\d+:(?:(?P<function> in \S.*)| ?[\w.]*)|(?:_ )+_? ?")
_LIBRARY = ("/python/", "<frozen ")
_ERROR_LINE = "E  "
_ADVICE = "Hint: make sure your test modules/packages have valid Python names."
_NAMED, _NAMED_SUBTESTS = 3, 20
_WHERE = lazy_pattern(r"\+ +(?:where|and) ")


def without_library_frames(text: str) -> str:
    """Return a normalised traceback without the frames of the library; all of it if it has no other frame or error.

    A text without such frames stays as it is: the prompts of retries have it, and recorded responses are found by them.
    """
    if not any(mark in text for mark in _LIBRARY):
        return text
    kept = [line for line in _kept(text.split("\n")) if line != _ADVICE]
    places = (place.lastgroup for place in map(_FRAME_PLACE.fullmatch, kept) if place)
    if "path" not in places and not any(line.startswith(_ERROR_LINE) for line in kept):
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
        place = None if line.startswith(_ERROR_LINE) else _FRAME_PLACE.fullmatch(line)
        is_library = place is not None and (place["path"] or "").startswith(_LIBRARY)
        if place and place["function"]:
            yield from (*frame, *([] if is_library else [line]))
            frame, skips = [], is_library
        elif place:
            yield from (one for one in (*frame, line) if not is_library or one.startswith(_ERROR_LINE))
            frame, skips = [], False
        elif not (skips and line.startswith(" ")):
            frame.append(line)
            skips = False
    yield from frame


def error_text(error: str, text: str) -> str:
    """Return the error of a traceback in one line: `AssertionError: assert 3 == 2`.

    `error` is the name of its class. The last such error counts: those before it are its causes.
    """
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith(_ERROR_LINE)]
    named = [line for line in lines if line.partition(":")[0].rpartition(".")[2].strip() == error]
    asserted = next((line for line in lines if line.startswith("assert ")), "")
    found = named[-1][named[-1].index(error) :].strip() if named else f"{error}: {asserted}" if asserted else error
    if len(found) > _MAX_LINE and (difference := named_difference(lines)):
        found = f"{error}: {difference}"
    return cut_line(found, _MAX_LINE)


class FailureGroup(Struct, frozen=True):
    """Failures with one cause: the ids of their tests, sorted, and the failure that describes them."""

    tests: tuple[str, ...]
    first: ReportedFailure

    def text(self) -> str:
        """Return the group as text: its tests, and the text of its first failure."""
        failure = self.first
        if not (failure.when or failure.message):
            return f"{failure.error}: {join_first(self.tests, _NAMED_SUBTESTS)}"
        head = f"{failure.name} ({failure.when}): {failure.error}" if failure.when else f"{failure.name}: {self.error}"
        shown = without_equal_lines(without_library_frames(failure.text))
        if others := self.tests[1:]:
            what = "findings" if failure.error == "finding" else "tests"
            named = join_first(others, _NAMED_SUBTESTS if failure.subtest or what == "findings" else _NAMED)
            head = f"{len(self.tests)} {what} with this cause: {head}\nlikewise {named}"
        return f"{head}\n{shown}".rstrip()

    @property
    def error(self) -> str:
        """The error of all of its tests in one line: `AssertionError: assert 3 == 2`."""
        return self.first.message or error_text(self.first.error, self.first.text)


def group_failures(failures: Iterable[ReportedFailure]) -> tuple[FailureGroup, ...]:
    """Return the groups, the largest first, then by the name of their first test.

    Two failures have one cause if they raised the same error with the same message, or with the same last line of its
    explanation, or at the same line: a line of the tested code, or of one test with other parameters. A line of a test
    helper does not count.
    """
    ordered = sorted(failures, key=lambda one: (one.name, one.when))
    groups: list[list[ReportedFailure]] = []
    known: dict[tuple[str, ...], list[ReportedFailure]] = {}
    for failure in ordered:
        causes = _causes(failure)
        mine = next((known[cause] for cause in causes if cause in known), [])
        if not mine:
            groups.append(mine)
        mine.append(failure)
        for cause in causes:
            known.setdefault(cause, mine)
    found = [FailureGroup(tuple(dict.fromkeys(one.name for one in group)), group[0]) for group in groups]
    return tuple(sorted(found, key=lambda group: (-len(group.tests), group.tests[0], group.first.when)))


def _causes(failure: ReportedFailure) -> Sequence[tuple[str, ...]]:
    """Return what two failures with one cause share: the message of an error, its line; else the whole text."""
    if not failure.when:
        return [("message", failure.error, failure.message)]
    path = failure.place.rpartition(":")[0]
    lines = [line for line in failure.text.splitlines() if line.startswith(_ERROR_LINE)]
    causes: list[tuple[str, ...]] = [("message", failure.error, "\n".join(lines))] if lines else []
    explained = [line[1:].strip() for line in lines]
    # Where the values come from (`where 3 = count('a b')`), or the last of errors that led to each other.
    if explained[1:] and all(map(_WHERE.match, explained[1:])):
        causes.append(("where", failure.error, *explained[1:]))
    elif explained and explained[-1].partition(":")[0].rpartition(".")[2] == failure.error:
        causes.append(("last", failure.error, explained[-1]))
    if path:
        test = (id_without_parameters(failure.test),) if is_test_file(path) else ()
        causes.append(("place", failure.error, failure.place, *test))
    return causes or [("text", failure.error, failure.text)]


def _one_line(text: str) -> str:
    return " ".join(text[:_LONG].split())[:_MAX_LINE]
