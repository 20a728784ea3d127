"""Read the options that several checks have: the plan file, project paths, lists of text."""

from collections.abc import Mapping, Sequence

from orch23.checks.check import CheckInput, exclusion, wrong_option
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.parsing import StrictJsonError, parse_json

PLAN_OPTIONS = ("file", "listing", "under")


def plan_path(check: str, given: CheckInput) -> str | Diagnostic:
    """Return the path of the plan: the option `file`, or the only `.json` file among the outputs."""
    named = given.options.get("file")
    if named is None:
        found = sorted(path for path in given.outputs if path.endswith(".json"))
        if len(found) > 1:
            return wrong_option(
                check, "file", "is needed: there are several `.json` outputs", f"write `file: {found[0]}`"
            )
        if not found:
            return _nothing(check, "there is no `.json` file among the outputs")
        return found[0]
    if not isinstance(named, str):
        return wrong_option(check, "file", "is not a path", "write `file: build/plan.json`")
    return named if named in given.outputs else _nothing(check, f"`{named}` is no output of the stage")


def project_paths(check: str, given: CheckInput) -> tuple[str, ...] | Diagnostic:
    """Return the paths that the project has, relative to `under`: those of `listing`, or of every listing."""
    named = given.options.get("listing")
    patterns = list(given.listings) if named is None else [named] if isinstance(named, str) else named
    hint = "write it as in `list: PATTERN` under the stage's `inputs` or under `verify.inputs`"
    if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
        return wrong_option(check, "listing", "is not a pattern or a list of patterns", hint)
    unknown = [pattern for pattern in patterns if pattern not in given.listings]
    if unknown:
        return wrong_option(check, "listing", f"names `{unknown[0]}`, which is no listing among the inputs", hint)
    under = given.options.get("under", "")
    if not isinstance(under, str):
        return wrong_option(check, "under", "is not a folder", "write `under: workspace`")
    folder = f"{under.strip('/')}/" if under.strip("/.") else ""
    found = {path for pattern in patterns for path in given.listings[str(pattern)]}
    return tuple(sorted(path.removeprefix(folder) for path in found if path.startswith(folder)))


def text_list_option(
    check: str, options: Mapping[str, Json], name: str, default: tuple[str, ...]
) -> tuple[str, ...] | Diagnostic:
    """Return an option that is a list of texts."""
    value = options.get(name, default)
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(word, str) for word in value):
        return tuple(str(word) for word in value)
    return wrong_option(check, name, "is not a list of texts", f"write `{name}: [a, b]`")


def pattern_list_option(
    check: str, options: Mapping[str, Json], name: str, default: tuple[str, ...]
) -> tuple[str, ...] | Diagnostic:
    """Return an option that is a list of patterns or paths."""
    found = text_list_option(check, options, name, default)
    return found if isinstance(found, Diagnostic) else exclusion(check, name, found) or found


def text_option(check: str, options: Mapping[str, Json], name: str, default: str) -> str | Diagnostic:
    """Return an option that is a text."""
    value = options.get(name, default)
    if isinstance(value, str) and value:
        return value
    return wrong_option(check, name, "is not a text", f"write `{name}: {default}`")


def parse_json_output(path: str, data: bytes, code: str) -> "Json | Diagnostic":
    """Read strict JSON, or complain with this code of the first place where it is none."""
    hint = "write one JSON document and nothing else"
    try:
        return parse_json(data.decode("utf-8"))
    except UnicodeDecodeError:
        return Diagnostic(code=code, message="is not UTF-8", hint=hint, subject=path)
    except StrictJsonError as error:
        place = Location(path, error.line, error.column)
        return Diagnostic(code=code, message=f"is not JSON: {error.message}", location=place, hint=hint, subject=path)


def _nothing(check: str, message: str) -> Diagnostic:
    hint = "name the file that the stage writes in `file`, or remove the check"
    return Diagnostic(code="E310", message=message, hint=hint, subject=f"check `{check}`")
