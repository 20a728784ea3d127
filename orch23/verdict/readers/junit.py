"""Read JUnit XML, as many runners write it.

By expat of the standard library. A document type is refused, so that no entity can be declared.
"""

from collections.abc import Mapping
from xml.parsers import expat

from msgspec import Struct, field

from orch23.verdict.run_results import RunResults

_DEPTH, _MAX_TEXT = 100, 20_000
# Runners copy colours into their reports. XML does not allow these bytes and characters.
_CONTROLS, _NO_CHARACTERS = bytes({*range(32)} - {*b"\t\n\r"}), (b"\xef\xbf\xbe", b"\xef\xbf\xbf")
_FAILED = ("failure", "error")
_KINDS = {**dict.fromkeys(_FAILED, "failed"), "skipped": "skipped", "flakyFailure": "flaky", "flakyError": "flaky"}
_PARTS = frozenset({*_KINDS, "system-out", "system-err"})
# ctest also writes a test as skipped if its program is missing or its fixture failed. Real skips begin so.
_ASKED_TO_SKIP = ("SKIP_", "Disabled")
# The test case of a failure outside of test cases: a hook or the setup of a suite failed.
_SUITE = {"name": "the suite"}


class _Reader(Struct):
    """`case` has the attributes of the open test case, `parts` its elements: name, attributes and pieces of text."""

    results: RunResults
    parser: expat.XMLParserType
    depth: int = 0
    case: Mapping[str, str] | None = None
    parts: list[tuple[str, Mapping[str, str], list[str]]] = field(default_factory=list)
    counted: int = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            _refuse(f"it is nested deeper than {_DEPTH} levels")
        if tag == "testcase":
            self.case = attributes
            if self.parts:
                self.parts = []
        elif tag in _PARTS:
            if tag in _FAILED and self.case is None:
                self.case, self.parts = _SUITE, []
            self.parts.append((tag, attributes, []))
            self.parser.CharacterDataHandler = self.parts[-1][2].append
        elif tag in ("testsuite", "testsuites"):
            counts = (attributes.get(key, "")[:9] for key in ("failures", "errors"))
            self.counted = max(self.counted, sum(int(one) for one in counts if one.isdecimal()))

    def end(self, tag: str) -> None:
        self.depth -= 1
        if tag in _PARTS:
            self.parser.CharacterDataHandler = None
        # A test case may be in another one, which has no outcome of its own.
        if (case := self.case) is not None and (tag == "testcase" or (tag in _FAILED and case is _SUITE)):
            self.case = None
            if self.parts or "status" in case:
                self._add_other(case, case.get("status", ""))
            else:  # most cases, and there may be very many
                self.results.add(_name_of(case), "passed")

    def _add_other(self, case: Mapping[str, str], status: str) -> None:
        kind, message, error, text = "passed", "", "", ""
        for tag, attributes, _ in self.parts:
            if kind != "failed" and tag in _KINDS:
                kind, message = _KINDS[tag], attributes.get("message", "")
                error = attributes.get("type", "")[:100].rpartition(".")[2]
        if status == "notrun" and kind == "skipped" and not message.startswith(_ASKED_TO_SKIP):
            kind = "failed"
        elif status in ("disabled", "notrun") and kind == "passed":
            kind = "skipped"
        if kind != "passed":
            text = "\n".join(filter(str.strip, (message, *("".join(pieces)[:_MAX_TEXT] for *_, pieces in self.parts))))
        self.results.add(_name_of(case), kind, text, message, error)


def _name_of(case: Mapping[str, str]) -> str:
    above, name = case.get("classname", "").strip(), case.get("name", "").strip()
    return f"{above} > {name}" if name and above not in ("", name) else name or above


def read(text: str, results: RunResults) -> None:
    """Add the results of a document. What its counts say is used only where no case says why something failed."""
    parser, before, data = expat.ParserCreate("utf-8"), len(results.failures), text.strip().encode("utf-8", "replace")
    reader = _Reader(results, parser)
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.StartDoctypeDeclHandler = lambda *_: _refuse("it has a document type, which is not read")
    for one in _NO_CHARACTERS:
        data = data.replace(one, b"")
    try:
        parser.Parse(data.translate(None, _CONTROLS), True)  # noqa: FBT003 - of the library
    except (expat.ExpatError, ValueError) as error:
        results.broken = results.broken or (f"it is not valid XML: {error}" if data else "it is empty")
    if reader.counted and len(results.failures) == before:
        results.broken = results.broken or f"it counts {reader.counted} failures, and no test case has one"


def _refuse(why: str) -> None:
    raise ValueError(why)
