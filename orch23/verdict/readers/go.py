"""Read the events of `go test -json` (test2json)."""

import json
from typing import Any

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.verdict.run_results import RunResults

_ENDS = {"pass": "passed", "bench": "passed", "fail": "failed", "skip": "skipped"}
_ACTIONS = frozenset({*_ENDS, "start", "run", "pause", "cont", "output", "attr", "artifacts"})
_MARKS = ("=== ", "--- FAIL", "--- PASS", "--- SKIP")
_PLACE = lazy_pattern(r"[\w./-]{1,200}\.go:\d{1,7}: ?")
# Before Go 1.24, a package that does not compile has no event.
_BUILD_FAILED = lazy_pattern(r"FAIL\t(\S{1,500}) \[(?:build|setup) failed\]")


class _Test(Struct):
    lines: list[str] = field(default_factory=list)
    outcome: str = ""
    has_run: bool = False


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    texts = {key: event.get(key) for key in ("Action", "Package", "ImportPath")} if isinstance(event, dict) else {}
    is_of_test = texts.get("Action") in _ACTIONS and isinstance(texts.get("Package"), str)
    is_of_build = texts.get("Action") in ("build-output", "build-fail") and isinstance(texts.get("ImportPath"), str)
    return event if is_of_test or is_of_build else None


def begins_with_events(text: str) -> bool:
    """Return whether the first line of an output with anything in it is an event."""
    return _event(next(filter(str.strip, text[:10_000].split("\n")), "")) is not None


def read(text: str, results: RunResults) -> None:
    """Add the results of all packages of a stream. Lines that are not events are `rest`: errors of the compiler."""
    tests: dict[tuple[str, str], _Test] = {}
    builds: dict[str, list[str]] = {}
    rest: list[str] = []
    for line in text.split("\n"):
        event = _event(line)
        if event is None:
            rest.append(line)
        elif "Package" not in event:
            builds.setdefault(event["ImportPath"], []).append(str(event.get("Output", "")))
        else:
            one = tests.setdefault((event["Package"], str(event.get("Test", ""))), _Test())
            one.has_run |= event["Action"] == "run"
            one.outcome = _ENDS.get(event["Action"], one.outcome)
            one.lines += [str(event["Output"])] if "Output" in event else []
            one.lines += builds.pop(str(event.get("FailedBuild", "")), [])
    rest += [line for lines in builds.values() for line in "".join(lines).split("\n")]
    results.rest = "\n".join(filter(str.strip, rest))
    for package in filter(None, map(_BUILD_FAILED.match, rest)):
        results.add(package[1], "failed", results.rest, next(filter(_PLACE.search, rest), "it does not compile"))
    _add(tests, results)


def _add(tests: dict[tuple[str, str], _Test], results: RunResults) -> None:
    # What a test prints can look like the result of another one, which then never began.
    ran = {key: one for key, one in tests.items() if key[1] and one.has_run}
    for (package, name), one in ran.items():
        if not one.outcome:
            # The event is lost if the test prints no line break at its end.
            package_passed = tests.get((package, ""), _Test()).outcome == "passed"
            one.outcome = "passed" if package_passed or f"--- PASS: {name} " in "".join(one.lines[-1:]) else "failed"
            one.lines += [] if one.outcome == "passed" else ["it did not end\n"]
    above = {(package, name.rpartition("/")[0]) for package, name in ran}
    failed = {(package, name) for (package, name), one in ran.items() if one.outcome == "failed"}
    explained = {(package, name.rpartition("/")[0]) for package, name in failed}
    for key, one in ran.items():
        # A test fails because of its subtests, which are named.
        if key not in above or (key in failed and key not in explained):
            _add_one(" > ".join(key), one, results)
    red = {package for package, _ in failed}
    for package in dict.fromkeys(package for package, _ in tests):
        one = tests.get((package, ""), _Test())
        if one.outcome == "failed" and package not in red:
            _add_one(package, one, results)
        elif not one.outcome:
            results.broken = f"the package `{package[:200]}` did not end"


def _add_one(name: str, one: _Test, results: RunResults) -> None:
    lines = [line for line in "".join(one.lines).split("\n") if not line.strip().startswith(_MARKS)]
    first = next((line.strip() for line in lines if line.strip() not in ("", "FAIL")), "")
    results.add(name, one.outcome, "\n".join(lines), _PLACE.sub("", first, count=1))
