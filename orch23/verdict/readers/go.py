"""Read the events of `go test -json` (test2json)."""

import msgspec
from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.verdict.run_results import RunResults

_ENDS = {"pass": "passed", "bench": "passed", "fail": "failed", "skip": "skipped"}
_ACTIONS = frozenset({*_ENDS, "start", "run", "pause", "cont", "output", "attr", "artifacts"})
_OF_BUILD = ("build-output", "build-fail")
_RUN = '"Output":"=== RUN '
_MARKS = ("=== ", "--- FAIL", "--- PASS", "--- SKIP")
_PLACE = lazy_pattern(r"[\w./-]{1,200}\.go:\d{1,7}: ?")
# Before Go 1.24, a package that does not compile has no event.
_BUILD_FAILED = lazy_pattern(r"FAIL\t(\S{1,500}) \[(?:build|setup) failed\]")


class _Test(Struct, gc=False):
    lines: list[str] = field(default_factory=list)
    outcome: str = ""
    has_run: bool = False


class _Event(Struct, frozen=True, rename="pascal", gc=False):
    action: str = ""
    package: str | None = None
    import_path: str | None = None
    test: str = ""
    output: str = ""
    failed_build: str = ""


_decode = msgspec.json.Decoder(_Event).decode


def _event(line: str) -> _Event | None:
    if not line.startswith("{"):
        return None
    try:
        event = _decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    is_of_test = event.action in _ACTIONS and event.package is not None
    return event if is_of_test or (event.action in _OF_BUILD and event.import_path is not None) else None


def begins_with_events(text: str) -> bool:
    """Return whether the first line of an output with anything in it is an event."""
    return _event(next(filter(str.strip, text[:10_000].split("\n")), "")) is not None


def unfinished_test(text: str) -> str:
    """Return the test that began last and did not end; empty if there is none."""
    running: dict[tuple[str, str], None] = {}
    for event in filter(None, map(_event, text.split("\n"))):
        key = event.package or "", event.test
        if event.action in ("run", "cont") and event.test:
            running[key] = None
        elif event.action in ("pause", *_ENDS):
            running.pop(key, None)
    return " > ".join(next(reversed(running), ()))


def read(text: str, results: RunResults) -> None:
    """Add the results of all packages of a stream. Lines that are not events are `rest`: errors of the compiler."""
    tests: dict[tuple[str, str], _Test] = {}
    builds: dict[str, list[str]] = {}
    rest: list[str] = []
    for line in text.split("\n"):
        if _RUN in line:  # a fourth of the lines of empty tests; it is not shown
            continue
        event = _event(line)
        if event is None:
            rest.append(line)
        elif event.package is None:
            builds.setdefault(event.import_path or "", []).append(event.output)
        else:
            key = event.package, event.test
            one = tests.get(key) or tests.setdefault(key, _Test())
            one.has_run |= event.action == "run"
            one.outcome = _ENDS.get(event.action, one.outcome)
            if event.output:
                one.lines.append(event.output)
            if event.failed_build:
                one.lines += builds.pop(event.failed_build, [])
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
    failed = [key for key, one in ran.items() if one.outcome == "failed"]
    above, explained = ({(package, name.rpartition("/")[0]) for package, name in some} for some in (ran, failed))
    for key, one in ran.items():
        # A test fails because of its subtests, which are named.
        if key not in (explained if one.outcome == "failed" else above):
            _add_one(" > ".join(key), one, results)
    for package in dict.fromkeys(package for package, _ in tests):
        one = tests.get((package, ""), _Test())
        if one.outcome == "failed" and package not in dict(failed):
            _add_one(package, one, results)
        elif not one.outcome:
            results.broken = f"the package `{package[:200]}` did not end"


def _add_one(name: str, one: _Test, results: RunResults) -> None:
    if one.outcome == "passed":
        return results.add(name, one.outcome)
    lines = [line for line in "".join(one.lines).split("\n") if not line.strip().startswith(_MARKS)]
    first = next((line.strip() for line in lines if line.strip() not in ("", "FAIL")), "")
    return results.add(name, one.outcome, "\n".join(lines), _PLACE.sub("", first, count=1))
