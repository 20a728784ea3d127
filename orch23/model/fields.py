"""Collect problems of a document by path; parse paths, durations, sizes, counts and amounts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from posixpath import normpath
from typing import Literal, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from orch23.model.diagnostic import Severity
from orch23.model.digest import Json
from orch23.model.paths import is_glob
from orch23.model.patterns import lazy_pattern

_Value = TypeVar("_Value")
_Number = TypeVar("_Number", int, float)
_Default = TypeVar("_Default")
PathKind: TypeAlias = Literal["file", "place", "pattern"]

# A text: compiling it takes 1 ms, and few builds need it. `re` keeps what it has compiled.
_DURATION = r"([0-9]+(?:\.[0-9]+)?)|(?=[0-9])(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?"
_TIMES = {"k": 1000, "M": 1_000_000}
_PERIODS = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86_400.0}
_SIZE = lazy_pattern(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:([KMGT])(i?))?B?")
_POWERS = "KMGT"
_DECIMAL = lazy_pattern(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_CONTROL = lazy_pattern("[\x00-\x1f\x7f-\x9f]")
# Most paths: nothing of them can be wrong, or has to be normalized.
_PLAIN_PATH = lazy_pattern(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_MOST_DIGITS = 18
_MOST_PATH = 4_096
_FROM_ROOT = (
    "write it from the root of the project on, as in `src/app.py` or `src/`; copy a file from elsewhere into it"
)


class Problem(Struct, frozen=True):
    """An error or a warning at a node; `path` is the path in the document, such as `stages/code/outputs/0`.

    `name` is the name in an expression of the node that is wrong, such as `vars.modle`, or empty. `near` is what to
    write for its last part, or without a name for the whole value; empty if that is not known.
    """

    path: str
    code: str
    message: str
    hint: str | None = None
    severity: Severity = Severity.ERROR
    name: str = ""
    near: str = ""


class Problems(Struct, eq=False):
    """The problems of the node of a document at `path`, and below. `moved` maps paths to those where it is written."""

    path: str
    found: list[Problem] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)

    def add(
        self, key: str, code: str, message: str, hint: str | None = None, severity: Severity = Severity.ERROR
    ) -> None:
        """Add a problem at a key (`""`: at the node itself)."""
        self.found.append(Problem(self._at(key), code, message, hint, severity))

    def below(self, key: str | int) -> "Problems":
        """Return the same list of problems for the node at a key or position."""
        return Problems(self._at(str(key)), self.found, self.moved)

    def _at(self, key: str) -> str:
        return f"{self.path}/{key}" if self.path and key else self.path or key

    def path_at(self, key: str, value: str, kind: PathKind = "file") -> str | None:
        """Return a normal path below the root, or add a problem at `key` and return None.

        A `file` is one literal file; a `place` may also be a directory (ending in `/`); a `pattern` may have wildcards.
        """
        if len(value) <= _MOST_PATH and _PLAIN_PATH.fullmatch(value):
            return value
        if value.startswith("!"):
            message = f"the path `{value}` starts with `!`, which excludes nothing here"
            hint = f'only a string in `inputs` or `verify.inputs` excludes; a file of this name is written "./{value}"'
            self.add(key, "E850", message, hint)
            return None
        if (why := path_fault(value)) is not None:
            meant = value.replace("\\", "/") if "\\" in value else normpath(value)
            near = meant if meant[1:2] != ":" and path_fault(meant) is None else ""
            a_text = "write this text into a file, and here its path" if "\n" in value else _FROM_ROOT
            hint = f"write `{near}`" if near else a_text
            self.found.append(Problem(self._at(key), "E850", f"the path `{value}` {why}", hint, near=near))
            return None
        path = normalize_path(value)
        if kind == "pattern" or not is_glob(path):
            return path
        if kind == "place" and path.endswith("/") and not is_glob(path.rstrip("/")):
            return path
        message = f"the path `{value}` has a wildcard or names a directory"
        hint = f"write a literal file, such as `src/app.py`{', or a directory, such as `docs/`' * (kind == 'place')}"
        self.add(key, "E850", message, hint)
        return None

    def paths(self, key: str, values: Sequence[str], kind: PathKind = "pattern") -> tuple[str, ...]:
        """Return the normal paths of a list, without those that cannot be used."""
        found = [self.path_at(f"{key}/{number}", value, kind) for number, value in enumerate(values)]
        return tuple(path for path in found if path is not None)

    def file(self, key: str, value: str | UnsetType) -> str | None:
        """Return the literal path of a file, or None if it is not given or cannot be used."""
        return None if value is UNSET else self.path_at(key, value)

    def words(self, key: str, values: Sequence[str | int | float]) -> tuple[str, ...]:
        """Return the arguments of a program, strings and numbers, as strings."""
        for number, value in enumerate(values):
            if isinstance(value, str) and "\x00" in value:
                message = f"item {number + 1} of `{key.rpartition('/')[2]}` holds a null character"
                self.add(f"{key}/{number}", "E812", message, "a program cannot be started with one")
        return tuple(map(str, values))

    def count(self, key: str, value: str | int) -> int:
        """Return a positive whole number; `600k` and `2M` are numbers too."""
        if isinstance(value, str):
            value = int(value.rstrip("kM")[:_MOST_DIGITS]) * _TIMES.get(value[-1], 1)
        return self._positive(key, value, value, f"write `{key}: 1`, or a larger number")

    def rate(self, key: str, value: str) -> tuple[int, float]:
        """Return a number and the seconds in which it is allowed: of `10/min`, `30k/h`, `500/30s`."""
        number, _, period = value.partition("/")
        seconds = _PERIODS.get(period) or parse_seconds(period)
        return self.count(key, number), self._positive(key, value, seconds or 0, "write a time of 1s or more")

    def size(self, key: str, value: str | int) -> int:
        """Return bytes: of a whole number, or of `512MiB`, `4GiB`, `1.5GB`; `4G` is 4GB."""
        found = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            unit = 1024 if found[3] else 1000
            value = int(float(found[1]) * unit ** (_POWERS.index(found[2]) + 1 if found[2] else 0))
        return self._positive(key, value, int(value), f"write `{key}: 1`, or a larger number")

    def quantity(self, key: str, value: str | float) -> float:
        """Return an amount of a resource: a number, also in a text, or the bytes of a size."""
        amount = parse_decimal(value)
        if amount is None:
            return self.size(key, str(value))
        return self._positive(key, value, float(amount), "write a larger number")

    def _positive(self, key: str, value: Json, amount: _Number, way: str) -> _Number:
        if amount <= 0:
            name = key.rpartition("/")[2]
            self.add(key, "E812", f"`{name}` is {describe_value(value)}; it must be greater than 0", way)
        return amount if amount > 0 else type(amount)(1)

    def duration(self, key: str, value: str | float) -> float:
        """Return seconds: of a number, or of `300s`, `45m`, `1h30m`."""
        return self._positive(key, value, parse_seconds(value) or 0.0, "write 300s, 45m, 2h or 1h30m")

    def dollars(self, _key: str, value: str | float) -> Decimal:
        """Return an amount of US dollars without rounding, from a number or a decimal in quotes."""
        return parse_decimal(value) or Decimal(0)

    def condition(self, key: str, value: Json) -> bool:
        """Return the value of a condition. The texts `true` and `false` are accepted: an expression gives text."""
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        hint = "compare it with something, as in `${{ vars.x == 'y' }}`"
        if isinstance(value, str) and value.lower() in BOOLEANS:
            hint = f"write `{BOOLEANS[value.lower()]}`, without quotes"
        self.add(key, "E811", f"`{key}` is {describe_value(value)}; it must be `true` or `false`", hint)
        return True


def leaves(value: Json, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """Yield the scalars of a tree of plain values, each with its path."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from leaves(below, (*at, key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, below in enumerate(value):
            yield from leaves(below, (*at, number))
    else:
        yield at, value


def given(value: _Value | UnsetType, default: _Default) -> _Value | _Default:
    """Return a value if it is set, else the default."""
    return default if value is UNSET else value


def path_below(path: str, key: str) -> str:
    """Return the path of a key, or of a position in a list, of the node at a path."""
    return f"{path}/{key}" if path else key


QUOTED = '""'
"""Written in place of a value: its own text, in quotes."""

BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


def parse_seconds(value: Json) -> float | None:
    """Return a duration in seconds, or None if the value is not a duration."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str) or len(value) > 32:  # noqa: PLR2004 - more than a duration needs; int() refuses texts of over 4,300 digits
        return None
    found = re.fullmatch(_DURATION, value)
    if found is None:
        return None
    plain, hours, minutes, seconds = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or plain or 0)


def parse_decimal(value: Json) -> Decimal | None:
    """Return a number, or a decimal in a text, without rounding; None if the value is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        amount = Decimal(str(value))  # the shortest decimal of this float is what the author typed
        return amount if amount.is_finite() else None
    return Decimal(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None


def path_fault(path: str) -> str | None:
    """Return why a path written in a pipeline cannot be used, or None."""
    names = path.split("/")
    rules = (
        (not path.strip(), "is empty"),
        (len(path) > _MOST_PATH, f"has more than {_MOST_PATH:,} characters"),
        (path.startswith("/"), "is absolute"),
        ("\\" in path, "holds a backslash"),
        (_CONTROL.search(path) is not None, "holds a control character"),
        (".." in names, "climbs out with `..`"),
        (path.startswith("~"), "starts with `~`, which is not expanded"),
        (all(name in ("", ".") for name in names), "is the whole root"),
    )
    return next((why for broken, why in rules if broken), None)


def normalize_path(path: str) -> str:
    """Return a path without `.` and empty segments; a closing `/` stays."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    return "/".join(names) + ("/" if path.endswith(("/", "/.")) else "")


def describe_value(value: Json) -> str:
    """Return a value as a message shows it: shortened, lists and mappings by their type only."""
    if value is None or value == "":
        return "an empty string" if value == "" else "empty (null)"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, str):
        return f"the string `{value}`" if len(value) <= 60 else f"the string `{value[:57]}...`"  # noqa: PLR2004 - a line
    if isinstance(value, Mapping):
        return "a mapping"
    return f"`{value}`" if isinstance(value, int | float) else "a list"
