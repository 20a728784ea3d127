"""Read JUnit XML, as many runners write it.

By expat of the standard library. A document type is refused, so that no entity can be declared.
"""

from collections.abc import Mapping
from xml.parsers import expat

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.verdict.run_results import RunResults

_DEPTH, _MAX_TEXT = 100, 20_000
# Runners copy colours into their reports, which XML does not allow.
_ILLEGAL = lazy_pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_FAILED = ("failure", "error")
_KINDS = {**dict.fromkeys(_FAILED, "failed"), "skipped": "skipped", "flakyFailure": "flaky", "flakyError": "flaky"}
# ctest also writes a test as skipped if its program is missing or its fixture failed. Real skips begin so.
_ASKED_TO_SKIP = ("SKIP_", "Disabled")


class _Case(Struct):
    name: str
    status: str = ""
    kind: str = "passed"
    message: str = ""
    error: str = ""
    texts: list[str] = field(default_factory=list)


class _Reader(Struct):
    results: RunResults
    path: list[str] = field(default_factory=list)
    case: _Case | None = None
    pieces: list[str] = field(default_factory=list)
    left: int = 0
    counted: int = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.path.append(tag)
        if len(self.path) > _DEPTH:
            _refuse(f"it is nested deeper than {_DEPTH} levels")
        if tag in ("testsuite", "testsuites"):
            counts = (attributes.get(key, "")[:9] for key in ("failures", "errors"))
            self.counted = max(self.counted, sum(int(one) for one in counts if one.isdecimal()))
        elif tag == "testcase":
            names = dict.fromkeys(attributes.get(key, "").strip() for key in ("classname", "name"))
            self.case = _Case(" > ".join(filter(None, names)), attributes.get("status", ""))
        elif tag in _KINDS or tag.startswith("system-"):
            if tag in _FAILED:
                self.case = self.case or _Case("the suite")  # a hook or the setup of a suite failed
            self.pieces, self.left = [], _MAX_TEXT
            if self.case is not None and tag in _KINDS and self.case.kind != "failed":
                self.case.kind, self.case.message = _KINDS[tag], attributes.get("message", "")
                self.case.error = attributes.get("type", "")[:100].rpartition(".")[2]

    def text(self, data: str) -> None:
        if self.left > 0:
            self.pieces.append(data[: self.left])
            self.left -= len(data)

    def end(self, tag: str) -> None:
        self.path.pop()
        case = self.case
        if case is not None and (tag in _KINDS or tag.startswith("system-")):
            case.texts.append("".join(self.pieces))
            self.left = 0
        if case is not None and (tag == "testcase" or (tag in _FAILED and "testcase" not in self.path)):
            self._add(case)
            self.case = None

    def _add(self, case: _Case) -> None:
        if case.status == "notrun" and case.kind == "skipped" and not case.message.startswith(_ASKED_TO_SKIP):
            case.kind = "failed"
        elif case.status in ("disabled", "notrun") and case.kind == "passed":
            case.kind = "skipped"
        # Most cases passed: nothing is made for these.
        text = "\n".join(one for one in (case.message, *case.texts) if one.strip()) if case.kind != "passed" else ""
        self.results.add(case.name, case.kind, text, case.message, case.error)


def read(text: str, results: RunResults) -> None:
    """Add the results of a document. What its counts say is used only where no case says why something failed."""
    reader, before = _Reader(results), len(results.failures)
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = lambda *_: _refuse("it has a document type, which is not read")
    try:
        parser.Parse(_ILLEGAL.sub("", text.strip()).encode("utf-8", "replace"), True)  # noqa: FBT003 - of the library
    except (expat.ExpatError, ValueError) as error:
        results.broken = results.broken or (f"it is not valid XML: {error}" if text.strip() else "it is empty")
    if reader.counted and len(results.failures) == before:
        results.broken = results.broken or f"it counts {reader.counted} failures, and no test case has one"


def _refuse(why: str) -> None:
    raise ValueError(why)
