"""Read values of keys: each returns what a value means, and reports errors at its key."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import UNSET, UnsetType

from orch23.model.action import TMPDIR_PLACE
from orch23.model.diagnostic import Severity
from orch23.model.features import DEPFILES, EXPLORE, SHARED_CACHE, is_installed, missing_feature
from orch23.model.fields import Problems
from orch23.model.language import Document, read_fields
from orch23.model.pipeline import LEAST_EXPLORE_TOKENS, MAX_RETRIES, DeclaredCache, Price, RateLimits
from orch23.model.step import Tool
from orch23.resolve.expression_syntax import UNKNOWN_MARK

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Values of `env` are part of the key, so they cannot be secrets.
_SECRET = re.compile(r"(?:.*_)?(?:(?:API|PRIVATE)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)", re.IGNORECASE)
# Variables that decide which code a process loads, or that orch23 sets itself.
_STEERING = re.compile(r"LD_.*|PYTEST_.*|GIT_.*|PYTHONSTARTUP|PYTHONHOME|SSH_AUTH_SOCK|BASH_ENV|ENV|PATH|HOME|TMPDIR")

# As other tools write it: `node@22`, `node>=22`.
_NAME_AND_VERSION = re.compile(r"([\w.+-]+)([@<>=!^~\s][@<>=!^~v\s]*\d\S*)")


def read_attempts(at: Problems, key: str, value: int) -> int:
    """Return a number of attempts that is not over the maximum."""
    bounded = min(value, MAX_RETRIES)
    if bounded != value:
        hint = f"write a number from 0 to {MAX_RETRIES}"
        at.add(key, "W801", f"`{key}` is {value}; {bounded} is used", hint, Severity.WARNING)
    return bounded


def read_cwd(at: Problems, key: str, value: str) -> str:
    """Return a directory without its closing `/`."""
    path = None if value in (".", "./") else at.path_at(key, value, "place")
    return "." if path is None else path.rstrip("/")


def read_files(at: Problems, key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return literal files, each once."""
    return tuple(dict.fromkeys(at.paths(key, texts, "file")))


def read_explore(at: Problems, key: str, value: Sequence[str] | Document | UnsetType) -> dict[str, Any]:
    """Return the fields of a stage for the files that its model may look at, and the limits of that."""
    if value is UNSET:
        return {}
    _check_feature(at, key, EXPLORE["begin"])
    if not isinstance(value, Document):
        return {"explore": at.paths(key, value)}
    found = read_fields(value, at.below(key))
    if (tokens := found["tokens"]) < LEAST_EXPLORE_TOKENS:
        message = f"`tokens` is {tokens}, too few for a map and parts of files"
        at.add(f"{key}/tokens", "E812", message, f"write `tokens: {LEAST_EXPLORE_TOKENS}`, or more")
    return {"explore": found["files"], "explore_turns": found["turns"], "explore_tokens": tokens}


def read_depfile(at: Problems, key: str, value: str | Document | UnsetType) -> dict[str, Any]:
    """Return the field of a stage for its depfile: the syntax and the path."""
    if value is UNSET:
        return {}
    _check_feature(at, key, DEPFILES["read"])
    found = read_fields(value, at.below(key)) if isinstance(value, Document) else {"path": value, "syntax": "make"}
    bare = found["path"].removeprefix(TMPDIR_PLACE)
    path = at.path_at(f"{key}/path" if isinstance(value, Document) else key, bare)
    prefix = TMPDIR_PLACE if bare != found["path"] else ""
    return {"depfile": (found["syntax"], f"{prefix}{path}")}


def read_scratch(at: Problems, key: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name patterns of files that are not part of the result."""
    for number, pattern in enumerate(patterns):
        if pattern.startswith("!"):
            message = f"the pattern `{pattern}` starts with `!`, which excludes nothing here"
            at.add(f"{key}/{number}", "E850", message, "list only files to leave out of the result")
    return patterns


def read_env(at: Problems, key: str, variables: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Return the variables of a stage's processes; numbers and booleans are written as in YAML."""
    found = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in variables.items()}
    below = at.below(key)
    for name, value in found.items():
        if not _VARIABLE.fullmatch(name):
            below.add(name, "E859", f"`{name}` is not the name of a variable", "use A-Z, 0-9 and _")
        elif _STEERING.fullmatch(name):
            below.add(name, "E859", f"`{name}` may not be set by a stage", "orch23 sets it, or keeps it out of steps")
        elif _SECRET.fullmatch(name):
            below.add(
                name, "E859", f"`{name}` looks like a secret, which steps never get", "rename it if it is not one"
            )
        elif "\x00" in value:
            below.add(name, "E812", f"`{name}` has a null character", "no environment variable can have one")
    return found


def read_tools(at: Problems, key: str, entries: Sequence[str | Document]) -> tuple[Tool, ...]:
    """Return programs, with the version that each must have, each once."""
    found: dict[str, Tool] = {}
    for number, entry in enumerate(entries):
        one = {"name": entry} if isinstance(entry, str) else read_fields(entry, at.below(key).below(number))
        text = one["name"]
        tool = Tool(text.rpartition("/")[2], text if "/" in text else "", one.get("version", ""))
        if (fault := _fault_of_tool(tool, found.setdefault(tool.name, tool))) is not None:
            at.add(f"{key}/{number}", "E812", *fault)
    return tuple(found.values())


def _fault_of_tool(tool: Tool, first: Tool) -> tuple[str, str] | None:
    """Return what is wrong with a program, and what to do. `first` is the first one of its name."""
    if not tool.path and (both := _NAME_AND_VERSION.fullmatch(tool.name)):
        hint = f"write `{{name: {both[1]}, version: '{both[2].lstrip(' @')}'}}`"
        return f"`{tool.name}` is not the name of a program", hint
    if not tool.name or (tool.path and not tool.path.startswith(("/", "~/"))):
        hint = "list a program of the project in `inputs`; a path in `tools` begins with `/` or `~/`"
        return f"`{tool.path}` is not the path of a program outside of the project", hint
    if tool.path and (normal := posixpath.normpath(tool.path)) != tool.path:
        hint = f"write `{normal}`" if normal.startswith(("/", "~/")) else "write it without `.`, `..` and empty parts"
        return f"the path `{tool.path}` has `.`, `..` or an empty part", hint
    if tool != first:
        return f"another tool of this list is named `{tool.name}`", "remove one of the two"
    if tool.version and UNKNOWN_MARK not in tool.version:
        from orch23.text.version_ranges import FORMS, parse_range  # noqa: PLC0415 - few tools have a version

        try:
            parse_range(tool.version)
        except ValueError as error:
            return str(error), FORMS
    return None


def read_prices(at: Problems, key: str, prices: Mapping[str, Document | int]) -> Mapping[str, Price]:
    """Return prices by model, or by `provider/model`."""
    free, below = Price(input=Decimal(0), output=Decimal(0)), at.below(key)
    return {
        name: Price(**read_fields(one, below.below(name))) if isinstance(one, Document) else free
        for name, one in prices.items()
    }


def read_rates(at: Problems, key: str, rates: Mapping[str, Document]) -> Mapping[str, RateLimits]:
    """Return rate limits by provider, model, or `provider/model`."""
    below = at.below(key)
    found = {name: read_fields(one, below.below(name)) for name, one in rates.items()}
    for name in [name for name, limits in found.items() if not limits]:
        known = ", ".join(type(rates[name]).declared)
        below.add(name, "E812", "there is no limit", f"write one of {known}, such as `requests: 10/min`")
    return found


def read_cache(at: Problems, key: str, cache: Document) -> DeclaredCache:
    """Return the keys of `cache` that the file states."""
    from orch23.model.shared_cache import ADDRESS_FORMS, cache_url_fault  # noqa: PLC0415 - few name a cache

    stated = read_fields(cache, at)
    if "url" in stated and (fault := cache_url_fault(stated["url"])) is not None:
        at.add(f"{key}/url", "E812", f"`url` {fault}", ADDRESS_FORMS)
    elif "url" in stated and stated.get("mode") != "off":
        _check_feature(at, f"{key}/url", SHARED_CACHE["build"])
    return stated


def _check_feature(at: Problems, key: str, place: str) -> None:
    """Report a key whose feature is not a part of this installation."""
    if not is_installed(place):
        missing = missing_feature(place)
        at.add(key, missing.code, missing.message, missing.hint)
