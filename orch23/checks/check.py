"""The interface of a check: a named, versioned function from a stage's files to diagnostics."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic, did_you_mean, quoted_names
from orch23.model.digest import Json


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
