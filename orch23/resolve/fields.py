"""Read typed fields of a parsed mapping, and collect a complaint for each that is not what it should be."""

import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Literal, TypeVar, cast

from msgspec import Struct, field

from orch23.model.diagnostic import Severity
from orch23.model.digest import Json
from orch23.model.paths import is_glob
from orch23.resolve.nearest import did_you_mean

_Choice = TypeVar("_Choice", bound=str)

_DURATION = re.compile(r"(?=[0-9])(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_COUNT = re.compile(r"([0-9]+)(k|M)?")
_TIMES = {None: 1, "k": 1000, "M": 1_000_000}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:([KMGT])(i?))?B?")
_POWERS = "KMGT"
_DECIMAL = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Problem(Struct, frozen=True):
    """What is wrong at a node: `path` is that of the pipeline, such as `stages/code/outputs/0`."""

    path: str
    code: str
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR


class Fields(Struct):
    """One mapping that is being read, its path, and the list where the complaints go."""

    body: Mapping[str, Json]
    path: str
    problems: list[Problem] = field(default_factory=list)

    def complain(self, key: str, code: str, message: str, hint: str | None = None) -> None:
        """Note a complaint at a key (`""`: at the mapping itself)."""
        self.problems.append(Problem(f"{self.path}/{key}" if key else self.path, code, message, hint))

    def has(self, key: str) -> bool:
        """Say whether a key is given; null is as good as absent."""
        return self.body.get(key) is not None

    def only(self, allowed: Collection[str]) -> None:
        """Complain of every key that is none of these."""
        for key in self.body:
            if key not in allowed:
                hint = did_you_mean(key, allowed) or f"known here: {_listed(allowed)}"
                self.complain(key, "E802", f"unknown key `{key}`", hint)

    def one_of(self, keys: Sequence[str]) -> str | None:
        """Return which of these keys is given, if it is exactly one."""
        given = [key for key in keys if self.has(key)]
        if len(given) == 1:
            return given[0]
        found = f"{_listed(given)} are given" if given else "none is given"
        self.complain("", "E814", f"exactly one of {_listed(keys)} is needed; {found}")
        return None

    def text(self, key: str) -> str | None:
        """Return a string that is not empty, or None where there is none."""
        value = self.body.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, str):
            self.complain(key, "E812", f"`{key}` is empty", "write a value, or remove the key")
        elif value is not None:
            self.wrong_type(key, value, "a string")
        return None

    def needed_text(self, key: str, hint: str | None = None) -> str:
        """Return a string, and complain if there is none."""
        if not self.has(key):
            self.complain("", "E810", f"`{key}` is missing", hint)
        return self.text(key) or ""

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.body.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong_type(key, value, "`true` or `false`")
            return default
        return default if value is None else value

    def condition(self, key: str) -> bool:
        """Return whether a condition holds; one that is not given does. `true` and `false` may be text."""
        value = self.body.get(key, True)
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        yes_or_no = isinstance(value, str) and value.lower() in _BOOLEANS
        hint = None if yes_or_no else "compare it with something, as in `${{ vars.x == 'y' }}`"
        self.wrong_type(key, value, "`true` or `false`", hint)
        return True

    def whole(self, key: str, low: int | None = None) -> int | None:
        """Return a whole number, not under `low`."""
        value = self.body.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong_type(key, value, "a whole number")
            return None
        if low is not None and value < low:
            self.complain(key, "E812", f"`{key}` is {value}; the least is {low}")
            return None
        return value

    def number(self, key: str) -> float | None:
        """Return a number that is not negative."""
        value = self.body.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong_type(key, value, "a number")
            return None
        if value < 0:
            self.complain(key, "E812", f"`{key}` is {value}; the least is 0")
            return None
        return float(value)

    def count(self, key: str, default: int) -> int:
        """Return a positive whole number; `600k` and `2M` are numbers too."""
        value = self.body.get(key)
        if value is None:
            return default
        found = _COUNT.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            value = int(found[1][:18]) * _TIMES[found[2]]
        if isinstance(value, bool) or not isinstance(value, int):
            self.complain(key, "E815", f"`{key}` is {shown(value)}, which is no count", "write 4000 or 4k")
            return default
        if value < 1:
            self.complain(key, "E812", f"`{key}` is {value}; the least is 1")
            return default
        return value

    def size(self, key: str) -> int | None:
        """Return bytes: of a whole number, or of `512MiB`, `4GiB`, `1.5GB`; `4G` is 4GB."""
        value = self.body.get(key)
        if value is None:
            return None
        found = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            unit = 1024 if found[3] else 1000
            value = int(float(found[1]) * unit ** (_POWERS.index(found[2]) + 1 if found[2] else 0))
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "write 512MiB, 4GiB or a number of bytes"
            self.complain(key, "E815", f"`{key}` is {shown(value)}, which is not a size", hint)
            return None
        if value < 1:
            self.complain(key, "E812", f"`{key}` is {shown(value)}; the least is 1")
            return None
        return value

    def whole_between(self, key: str, low: int, high: int, default: int) -> int:
        """Return a whole number that has a least and a most."""
        value = self.whole(key, low)
        if value is None:
            return default
        if value > high:
            self.complain(key, "E812", f"`{key}` is {value}; the most is {high}")
            return default
        return value

    def dollars(self, key: str) -> Decimal | None:
        """Return an amount of money, exactly as it is written: a number, or a decimal in quotes. Not negative."""
        value = self.body.get(key)
        if value is None:
            return None
        amount = decimal_of(value)
        if amount is None:
            hint = "write 2.50, or '2.50'"
            self.complain(key, "E815", f"`{key}` is {shown(value)}, which is no amount of US dollars", hint)
        elif amount < 0:
            self.complain(key, "E812", f"`{key}` is {value}; the least is 0")
            return None
        return amount

    def duration(self, key: str) -> float | None:
        """Return seconds: of a number, or of `300s`, `45m`, `1h30m`."""
        value = self.body.get(key)
        if value is None:
            return None
        seconds = seconds_of(value)
        if seconds is None:
            hint = "write 300s, 45m, 2h, 1h30m or a number of seconds"
            self.complain(key, "E815", f"`{key}` is {shown(value)}, which is no duration", hint)
        elif seconds <= 0:
            self.complain(key, "E812", f"`{key}` is {shown(value)}; it must be more than 0")
            return None
        return seconds

    def choice(self, key: str, allowed: Sequence[_Choice], default: _Choice) -> _Choice:
        """Return one of some words."""
        value = self.body.get(key)
        if value is None:
            return default
        if value in allowed:
            return cast("_Choice", value)
        hint = did_you_mean(value, allowed) if isinstance(value, str) else None
        self.complain(key, "E812", f"`{key}` is {shown(value)}; allowed are {_listed(allowed)}", hint)
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        out: list[str] = []
        for number, value in enumerate(self.items(key)):
            if isinstance(value, str) and value:
                out.append(value)
            else:
                self.wrong_type(f"{key}/{number}", value, "a string that is not empty")
        return tuple(out)

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of strings and numbers as strings: arguments of a program."""
        out: list[str] = []
        for number, value in enumerate(self.items(key)):
            if isinstance(value, str) and "\x00" not in value:
                out.append(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                out.append(str(value))
            else:
                self.wrong_type(f"{key}/{number}", value, "a string or a number")
        return tuple(out)

    def items(self, key: str) -> Sequence[Json]:
        """Return a list as it is; empty where there is none."""
        value = self.body.get(key)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.wrong_type(key, value, "a list")
            return ()
        return value

    def below(self, key: str) -> "Fields":
        """Return the mapping at a key; empty where there is none."""
        value = self.body.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.wrong_type(key, value, "a mapping")
        return Fields(value if isinstance(value, Mapping) else {}, f"{self.path}/{key}", self.problems)

    def wrong_type(self, key: str, value: Json, wanted: str, hint: str | None = None) -> None:
        """Complain of a value of the wrong type."""
        name = key.rpartition("/")[2]
        what = f"item {int(name) + 1} of `{key.split('/')[-2]}`" if name.isdigit() and "/" in key else f"`{name}`"
        if hint is None and wanted.startswith("`true`") and isinstance(value, str) and value.lower() in _BOOLEANS:
            hint = f"write `{_BOOLEANS[value.lower()]}`, without quotes"
        elif wanted == "a list" and isinstance(value, str):
            hint = f"write [{value}]"
        elif "string" in wanted and isinstance(value, bool | int | float):
            hint = "put it in quotes"
        self.complain(key, "E811", f"{what} is {shown(value)}; it must be {wanted}", hint)

    def path_at(self, key: str, value: str, kind: "Literal['file', 'place', 'pattern']" = "file") -> str | None:
        """Return a normal path below the root, or complain at `key` and return None.

        A `file` is one literal file; a `place` may also be a directory (ending in `/`); a `pattern` may have wildcards.
        """
        if value.startswith("!"):
            message = f"the path `{value}` starts with `!`, which excludes nothing here"
            hint = f'only a string in `inputs` or `verify.inputs` excludes; a file of this name is written "./{value}"'
            self.complain(key, "E850", message, hint)
            return None
        why = path_fault(value)
        if why is not None:
            self.complain(key, "E850", f"the path `{value}` {why}", "paths are relative to the root of the project")
            return None
        path = normal_path(value)
        if kind == "pattern" or not is_glob(path):
            return path
        if kind == "place" and path.endswith("/") and not is_glob(path.rstrip("/")):
            return path
        message = f"the path `{value}` has a wildcard or names a directory"
        hint = "write a literal file" if kind == "file" else "write a literal file, or a directory ending in /"
        self.complain(key, "E850", message, hint)
        return None

    def file(self, key: str) -> str | None:
        """Return the literal path of a file at a key."""
        value = self.text(key)
        return None if value is None else self.path_at(key, value)


_BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


def seconds_of(value: Json) -> float | None:
    """Return a duration in seconds, or None if the value is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str) or len(value) > 32:  # noqa: PLR2004 - far more than any duration needs
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    found = _DURATION.fullmatch(value)
    if found is None:
        return None
    hours, minutes, seconds = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)


def decimal_of(value: Json) -> Decimal | None:
    """Return a number, or a decimal written as text, without any rounding; None if the value is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        amount = Decimal(str(value))  # the shortest decimal that is this float: what the author typed
        return amount if amount.is_finite() else None
    return Decimal(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None


def path_fault(path: str) -> str | None:
    """Return why a path written in a pipeline cannot be used, or None."""
    names = path.split("/")
    rules = (
        (not path.strip(), "is empty"),
        (path.startswith("/"), "is absolute"),
        ("\\" in path, "holds a backslash"),
        (_CONTROL.search(path) is not None, "holds a control character"),
        (".." in names, "climbs out with `..`"),
        (path.startswith("~"), "starts with `~`, which is not expanded"),
        (all(name in ("", ".") for name in names), "names the whole root"),
    )
    return next((why for broken, why in rules if broken), None)


def normal_path(path: str) -> str:
    """Return a path without `.` and empty segments; a closing `/` stays."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    return "/".join(names) + ("/" if path.endswith(("/", "/.")) else "")


def shown(value: Json) -> str:
    """Return a value as a message shows it: short, and by its kind where it is long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, str):
        return f"the string `{value}`" if len(value) <= 60 else f"the string `{value[:57]}...`"  # noqa: PLR2004 - a line
    if isinstance(value, Mapping):
        return "a mapping"
    return f"`{value}`" if isinstance(value, int | float) else "a list"


def _listed(words: Collection[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
