"""The interface of a check: a named, versioned function from a stage's files to diagnostics."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location, did_you_mean, quoted_names
from orch23.model.digest import Json
from orch23.model.fields import normalize_path
from orch23.model.parsing import StrictJsonError, parse_json


class CheckInput(Struct, frozen=True, kw_only=True):
    """Everything that a check may read, as bytes by path. Paths are POSIX paths, relative to the root.

    `previous` are the outputs that were accepted last, `inputs` the inputs that the stage and its verification
    declare, `listings` the paths of each of their listings (`list: GLOB`) by its pattern, `options` the values of
    `with:`.
    """

    outputs: Mapping[str, bytes]
    previous: Mapping[str, bytes] = field(default_factory=dict)
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    listings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)


class Check(Struct, frozen=True):
    """A validator. `revision` is part of a stage's key: raise it when the same outputs would get another result.

    With `is_portable` the result does not depend on the version of Python, as that of a check of text and JSON: a
    shared cache may have it from a machine with another one.

    `run` never raises: every error, of the outputs or of the options, is a diagnostic. The rest is documentation: what
    the check requires, its options with their meaning, a step of `verify` (YAML) that uses them, and its own codes.
    """

    name: str
    revision: int
    run: Callable[[CheckInput], tuple[Diagnostic, ...]]
    summary: str = ""
    options: Mapping[str, str] = {}
    example: str = ""
    codes: tuple[str, ...] = ()
    is_portable: bool = False


def unknown_options(check: str, options: Mapping[str, Json], known: tuple[str, ...]) -> tuple[Diagnostic, ...]:
    """Return an error for each option that the check does not have."""
    unknown = ((name, did_you_mean(name, known)) for name in sorted(options) if name not in known)
    has = f"it has {quoted_names(known)}"
    return tuple(wrong_option(check, name, "is not an option of this check", near or has) for name, near in unknown)


def wrong_option(check: str, name: str, what: str, hint: str) -> Diagnostic:
    """Return the error that an option of a check cannot be used."""
    return Diagnostic("E315", f"option `{name}` {what}", hint=hint, subject=f"check `{check}`")


def exclusion(check: str, name: str, values: Iterable[Json]) -> Diagnostic | None:
    """Return an error if a pattern starts with `!`: in an option an exclusion has no effect."""
    for value in values:
        if isinstance(value, str) and value.startswith("!"):
            return wrong_option(check, name, f"has `{value}`, which excludes nothing here", "list only what to include")
    return None


FILE_OPTION = {"file": "Path of the JSON output. Default: the only `.json` file among the outputs."}
PLAN_OPTIONS = FILE_OPTION | {
    "listing": "Pattern of a listing (`list: PATTERN`) of `inputs` or `verify.inputs`, or a list of them: which "
    "files the project has. Default: all listings.",
    "under": "Directory of the project that paths in the output are relative to. Default: the root.",
}


class OptionReader:
    """The options of one run of a check.

    Every wrong option is reported in one run: a method that finds an error adds it to `errors`, sets `failed` and
    returns an empty value. An unknown option is in `errors` too, but the check still runs.
    """

    def __init__(self, check: str, given: CheckInput, known: Collection[str]) -> None:
        """Read the options of `given`; `known` are the names that the check has."""
        self._check, self._given = check, given
        self.errors = list(unknown_options(check, given.options, tuple(known)))
        self.failed = False

    def fail(self, error: Diagnostic) -> None:
        """Add an error that keeps the check from running."""
        self.errors.append(error)
        self.failed = True

    def fail_option(self, name: str, what: str, hint: str) -> None:
        """Add the error that an option cannot be used."""
        self.fail(wrong_option(self._check, name, what, hint))

    def json_path(self) -> str:
        """Return the path of the JSON output: the option `file`, or the only `.json` file among the outputs."""
        named = self._given.options.get("file")
        found = sorted(path for path in self._given.outputs if path.endswith(".json"))
        if isinstance(named, str):
            if (path := normalize_path(named)) in self._given.outputs:
                return path
            self._fail_nothing(f"`{named}` is not an output of the stage")
        elif named is not None:
            self.fail_option("file", "is not a path", "write `file: build/plan.json`")
        elif len(found) > 1:
            self.fail_option("file", "is missing: there are several `.json` outputs", f"write `file: {found[0]}`")
        elif found:
            return found[0]
        else:
            self._fail_nothing("there is no `.json` file among the outputs")
        return ""

    def document(self, path: str, code: str) -> Json:
        """Return the value of an output that must be strict JSON; its error has this code."""
        value = None if self.failed else parse_json_output(path, self._given.outputs[path], code)
        if isinstance(value, Diagnostic):
            self.fail(value)
            return None
        return value

    def project_paths(self) -> tuple[str, ...]:
        """Return the paths that the project has, relative to `under`: those of `listing`, or of every listing."""
        listings = self._given.listings
        named = self._given.options.get("listing", tuple(listings))
        patterns = text_items((named,) if isinstance(named, str) else named)
        hint = "write it as in `list: PATTERN` under the stage's `inputs` or under `verify.inputs`"
        if patterns is None:
            self.fail_option("listing", "is not a pattern or a list of patterns", hint)
            return ()
        patterns = tuple(map(normalize_path, patterns))
        unknown = [pattern for pattern in patterns if pattern not in listings]
        if unknown:
            self.fail_option("listing", f"names `{unknown[0]}`, which is not a listing of the inputs", hint)
            return ()
        under = self._given.options.get("under", "")
        if not isinstance(under, str):
            self.fail_option("under", "is not a directory", "write `under: workspace`")
            return ()
        folder = normalize_path(f"{under}/").lstrip("/")
        found = {path for pattern in patterns for path in listings[pattern]}
        return tuple(sorted(path.removeprefix(folder) for path in found if path.startswith(folder)))

    def text_list(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return an option that is a list of texts."""
        texts = text_items(self._given.options.get(name, default))
        if texts is None:
            self.fail_option(name, "is not a list of texts", f"write `{name}: [a, b]`")
        return texts or ()

    def pattern_list(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return an option that is a list of patterns or paths."""
        found = self.text_list(name, default)
        if error := exclusion(self._check, name, found):
            self.fail(error)
        return found

    def text(self, name: str, default: str) -> str:
        """Return an option that is a text."""
        value = self._given.options.get(name, default)
        if isinstance(value, str) and value:
            return value
        self.fail_option(name, "is not a text", f"write `{name}: {default}`")
        return default

    def mapping(self, name: str, hint: str) -> Mapping[str, Json]:
        """Return an option that is a mapping."""
        value = self._given.options.get(name, {})
        if isinstance(value, Mapping):
            return value
        self.fail_option(name, "is not a mapping", hint)
        return {}

    def _fail_nothing(self, message: str) -> None:
        hint = "name the file that the stage writes in `file`, or remove the check"
        self.fail(Diagnostic("E310", message, hint=hint, subject=f"check `{self._check}`"))


def text_items(value: Json) -> tuple[str, ...] | None:
    """Return the texts of a list; None if it is not a list of texts."""
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(item, str) for item in value):
        return tuple(str(item) for item in value)
    return None


def parse_json_output(path: str, data: bytes, code: str) -> "Json | Diagnostic":
    """Return the value of strict JSON in UTF-8, or an error with this code at the first place that is not."""
    error = Diagnostic(code, "is not UTF-8", hint="write one JSON document and nothing else", subject=path)
    try:
        return parse_json(data.decode("utf-8"))
    except UnicodeDecodeError as failure:
        return replace(error, location=byte_location(path, data, failure.start))
    except StrictJsonError as failure:
        place = Location(path, failure.line, failure.column)
        return replace(error, message=f"is not JSON: {failure.message}", location=place)


def byte_location(path: str, data: bytes, at: int) -> Location:
    """Return the line and the column, in bytes, of a byte of a file."""
    before = data[:at]
    return Location(path, before.count(b"\n") + 1, at - before.rfind(b"\n"))
