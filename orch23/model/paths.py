"""Match path patterns; recognize unsafe paths, and files that orch23 itself writes.

Paths are POSIX and relative to the root. In a pattern `*` and `?` match within a segment, `[...]` is a character set
(`[!...]` and `[^...]` its complement), `**` is any number of segments; a pattern that ends in `/` matches everything
below. Wildcards match leading dots, but do not enter the ignored names below, unless the pattern contains the name
literally. No wildcard matches a file that orch23 writes for itself.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache

from orch23.model.digest import digest_bytes
from orch23.model.patterns import lazy_pattern

OWN_FOLDERS = frozenset({".orch23", ".orch23-aside"})
"""Folders of orch23, at any depth."""
FORBIDDEN_LINK_TARGETS = OWN_FOLDERS | frozenset({".git", ".hg", ".jj", ".svn"})
"""Folders that no link may point into."""
LOGS_FOLDER = "logs"
TOOL_CACHES_FOLDER = ".orch23/tool-caches"
# Files of orch23 are recognized by their content: other tools write `.lock` files too (ADR 26).
LOCK_MARK = b'"orch23_lock"'

ORIGINALS_FOLDER = "originals"
"""The folder beside transcripts with the bytes that a stage started from."""

_DIGITS = 64
SHA256 = lazy_pattern(r"[0-9a-f]{64}")
_TRANSCRIPT = lazy_pattern(r"[0-9a-f]{64}\.json")
_TRANSCRIPT_MARK = b'"orch23_exchange"'
_OF_A_RUN = lazy_pattern(r"\d{8}T\d{6}Z-[0-9a-f]{8}(?:-\d+)?(?:\.jsonl)?|crash-\d{8}T\d{12}Z\.txt")


def is_run_file(folder: str, name: str) -> bool:
    """Return whether a name in a folder belongs to a journal, the artifacts of a run or a crash report."""
    return folder.rpartition("/")[2] == LOGS_FOLDER and _OF_A_RUN.fullmatch(name) is not None


def may_have_own(names: Collection[str]) -> bool:
    """Return whether a file with one of these names may be one of `is_own_file`."""
    return max(map(len, names), default=0) >= _DIGITS or ".lock" in "/".join(names)


def is_own_file(path: str, read: Callable[[], bytes]) -> bool:
    """Return whether a file is a lock file of orch23, a transcript, or an original beside transcripts.

    The content decides, since projects have lock files of other tools; files with other names are not read. `["**"]`
    as an input would never be fresh if it matched what a build writes (ADR 27).
    """
    above, _, name = path.rpartition("/")
    if name.endswith(".lock"):
        return LOCK_MARK in read()
    if len(name) < _DIGITS:
        return False
    if _TRANSCRIPT.fullmatch(name) is not None:
        return _TRANSCRIPT_MARK in read()
    if above.rpartition("/")[2] == ORIGINALS_FOLDER and SHA256.fullmatch(name) is not None:
        return digest_bytes(read()).sha256 == name
    return False


# Tools write most of these folders while a build runs: an input `**` that matched them would never be fresh (ADR 27).
IGNORED_NAMES = OWN_FOLDERS | frozenset(
    {
        ".git",
        ".hg",
        ".venv",
        "node_modules",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
    }
)
MAX_PATH_BYTES = 1024
MAX_SEGMENT_BYTES = 200
MAX_PATH_DEPTH = 32
_WILD = lazy_pattern(r"[*?\[]")
_DOT = lazy_pattern(r"\A(?:\./)++")
# Characters that Windows does not allow in names, or reads as a separator or a stream (`:`).
_FORBIDDEN = frozenset('\\:*?"<>|')
_INVISIBLE = frozenset({"Cf", "Zl", "Zp"})  # zero-width, bidi and tag characters; line and paragraph separators
# Letters and marks that are not visible either: fillers, joiners, variation selectors (Unicode's default ignorables).
IGNORABLE_CHARACTERS = lazy_pattern(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Windows opens a device instead of a file with one of these names, whatever its extension.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³"}
)


@lru_cache(maxsize=4096)
def is_glob(pattern: str) -> bool:
    """Return whether a pattern is more than one literal file: it has a wildcard or ends in `/`."""
    return pattern.endswith("/") or _WILD.search(pattern) is not None


def without_dot(path: str) -> str:
    """Return a path or pattern without `./` before it."""
    return _DOT.sub("", path)


@lru_cache(maxsize=4096)
def normalize_pattern(pattern: str) -> str:
    """Return a pattern without a leading `./`, and a directory `d/` as `d/**`."""
    pattern = without_dot(pattern)
    return f"{pattern}**" if pattern.endswith("/") or not pattern else pattern


def match(pattern: str, path: str) -> bool:
    """Return whether a pattern matches a path."""
    wanted = normalize_pattern(pattern)
    if _WILD.search(wanted) is None:
        return wanted == path
    return _regex(wanted).fullmatch(path) is not None


def compile_pattern(pattern: str) -> Callable[[str], object]:
    """Return a function that returns a true value for each path that the pattern matches: `match` for many paths."""
    return _regex(normalize_pattern(pattern)).fullmatch


@lru_cache(maxsize=4096)
def match_any(patterns: tuple[str, ...], path: str) -> bool:
    """Return whether any of the patterns matches the path."""
    return any(match(pattern, path) for pattern in patterns)


def covers(wide: str, narrow: str) -> bool:
    """Return whether `wide` certainly matches every path that `narrow` matches; False if that is not certain."""
    one, other = normalize_pattern(wide), normalize_pattern(narrow)
    if _WILD.search(other) is None:
        return match(one, other)
    folder = one.removesuffix("**")
    if one == other or not folder:
        return True
    return folder.endswith("/") and _WILD.search(folder) is None and static_prefix(other).startswith(folder)


class PatternSet:
    """A set of patterns to match paths on a disk, in which no character is a wildcard."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Split the patterns into literal paths and globs."""
        distinct = dict.fromkeys(patterns)
        self.globs = tuple(filter(is_glob, distinct))
        self.literal = frozenset(normalize_pattern(pattern) for pattern in distinct if not is_glob(pattern))

    def contains(self, path: str) -> bool:
        """Return whether one of the patterns matches a path."""
        return path in self.literal or match_any(self.globs, path)

    def matches_of(self, paths: Iterable[str]) -> Iterator[str]:
        """Return those of many paths that one of the patterns matches."""
        return filter(self.contains if self.globs else self.literal.__contains__, paths)

    def may_overlap(self, pattern: str) -> bool:
        """Return whether one of the patterns can match a path that another pattern matches, which may be literal."""
        wanted = normalize_pattern(pattern)
        if is_glob(wanted):
            return any(may_overlap(one, wanted) for one in (*self.globs, *self.literal))
        return wanted in self.literal or any(may_overlap(one, wanted) for one in self.globs)


def escape_pattern(name: str) -> str:
    """Return the pattern that matches only the file with this name, which may contain wildcards."""
    return re.sub(r"[*?\[#]", lambda sign: f"[{sign[0]}]", name)


def split_slice(text: str) -> tuple[str, str]:
    """Return the path and the selector of an input: the text after the first `#` outside of `[...]`, or empty."""
    at = 0 if "#" in text else len(text)
    while at < len(text) and text[at] != "#":
        at += len(_set_at(text, at)) or 1
    return text[:at], text[at + 1 :]


def static_prefix(pattern: str) -> str:
    """Return the deepest directory (`""` or ending in `/`) above all paths that the pattern matches."""
    pattern = normalize_pattern(pattern)
    wild = _WILD.search(pattern)
    literal = pattern if wild is None else pattern[: wild.start()]
    return literal[: literal.rfind("/") + 1]


def with_above(path: str) -> Iterator[str]:
    """Yield a path and those of the folders above it, without the root."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def with_folders(root: str, paths: Iterable[str]) -> frozenset[str]:
    """Return paths below the root with the whole paths of all directories above them, which may be listed."""
    found = set(paths)
    for folder in {path.rpartition("/")[0] for path in found if not path.startswith("/")}:
        found.update((root, *(f"{root}/{above}" for above in with_above(folder))))
    return frozenset(found)


def patterns_between(head: str, tail: str) -> tuple[str, ...]:
    """Return the patterns of the paths that begin with `head` and end with `tail`, with any text between them."""
    head, tail = head.partition("[")[0], tail.rpartition("]")[2]  # the text may be a part of a set
    if not tail and (not head or head.endswith("/")):
        return (f"{head}**",)
    end = tail if tail.startswith("/") else f"/*{tail}"  # the text between them may have directories
    return (f"{head}**{end}",) if not head or head.endswith("/") else (f"{head}*{tail}", f"{head}*/**{end}")


def unentered_names(pattern: str) -> frozenset[str]:
    """Return the names that no wildcard of a pattern enters."""
    return IGNORED_NAMES.difference(pattern.split("/")) | OWN_FOLDERS


@lru_cache(maxsize=65536)
def may_overlap(one: str, other: str) -> bool:
    """Return whether both patterns can match the same path."""
    a, b = normalize_pattern(one), normalize_pattern(other)
    if _WILD.search(a) is None:
        return match(b, a)
    if _WILD.search(b) is None:
        return match(a, b)
    return _overlap(_segments(a), _segments(b), "**", _names_overlap)


def unsafe_reason(path: str) -> str | None:
    """Return why a model may not name a path, or None.

    Such paths are refused, never cleaned up (safety.md, Paths).
    """
    import unicodedata  # noqa: PLC0415 - for names that a model chose

    names = path.split("/")
    rules = (
        (not path, "is empty"),
        (path.startswith("/"), "is absolute"),
        (unicodedata.normalize("NFC", path) != path, "is not in Unicode form NFC"),
        (any(unicodedata.category(c) in ("Cc", "Cs") for c in path), "holds a control character"),
        (
            any(unicodedata.category(c) in _INVISIBLE for c in path) or IGNORABLE_CHARACTERS.search(path) is not None,
            "holds an invisible or direction-changing character",
        ),
        (any(c in _FORBIDDEN for c in path), 'holds one of \\ : * ? " < > |'),
        (".." in names, "climbs out with `..`"),
        ("" in names or "." in names, "has an empty or `.` segment"),
        (any(name.startswith(("-", "~")) for name in names), "has a segment that starts with - or ~"),
        (any(name.endswith((".", " ")) for name in names), "has a segment that ends in a dot or a space"),
        (any(name.split(".")[0].rstrip(" ").lower() in _DEVICES for name in names), "names a Windows device"),
        (any(_size(name) > MAX_SEGMENT_BYTES for name in names), f"has a segment over {MAX_SEGMENT_BYTES} bytes"),
        (_size(path) > MAX_PATH_BYTES, f"is over {MAX_PATH_BYTES} bytes"),
        (len(names) > MAX_PATH_DEPTH, f"is over {MAX_PATH_DEPTH} levels deep"),
    )
    return next((why for broken, why in rules if broken), None)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=16384)
def _regex(pattern: str) -> re.Pattern[str]:
    *folders, last = pattern.split("/")
    parts = ["(?:[^/]+/)*" if one == "**" else f"{_segment_regex(one)}/" for one in folders]
    parts.append(".+" if last == "**" else _segment_regex(last))
    return re.compile("".join(parts), re.DOTALL)


def _segment_regex(segment: str) -> str:
    return "".join(map(_piece_regex, _pieces(segment)))


def _piece_regex(piece: str) -> str:
    match piece:
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    return _set_regex(piece[1:-1]) if len(piece) > 1 else re.escape(piece)


def _set_regex(body: str) -> str:
    """Translate the text between the brackets of a set; a range with reversed ends is empty, as in fnmatch."""
    negated = body[0] in "!^"
    rest, items = body[1:] if negated else body, []
    while rest:
        if len(rest) > len("a-") and rest[1] == "-":
            low, high, rest = rest[0], rest[2], rest[3:]
            items += [f"{re.escape(low)}-{re.escape(high)}"] if low <= high else []
        else:
            items.append(re.escape(rest[0]))
            rest = rest[1:]
    if not items:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(items)}]"


@lru_cache(maxsize=16384)
def _pieces(segment: str) -> tuple[str, ...]:
    """Split a segment into `*`, `?`, `[...]` and single characters; a run of stars within a segment is one."""
    pieces: list[str] = []
    at = 0
    while at < len(segment):
        piece = _set_at(segment, at) or segment[at]
        at += len(piece)
        if not (piece == "*" and pieces and pieces[-1] == "*"):
            pieces.append(piece)
    return tuple(pieces)


def _set_at(text: str, at: int) -> str:
    """Return the character set that begins at a position, or an empty text; a set has 1 to 1,000 characters."""
    if text[at] != "[":
        return ""
    negated = text[at + 1 : at + 2] in ("!", "^")
    close = text.find("]", at + 2 + negated, at + 1_002 + negated)
    return text[at : close + 1] if close > 0 and "/" not in text[at:close] else ""


def _segments(pattern: str) -> tuple[str, ...]:
    """Return the segments of a pattern. `**` at its end matches one name at least, so it becomes `*` and `**`."""
    segments = tuple(pattern.split("/"))
    return (*segments[:-1], "*", "**") if segments[-1] == "**" else segments


def _overlap(a: tuple[str, ...], b: tuple[str, ...], star: str, are_compatible: Callable[[str, str], bool]) -> bool:
    """Return whether two patterns can match the same text. The element `star` matches any number of elements, or none.

    Both are read together, like two automata: a state is a position in each. There is no recursion and no state is
    visited twice, because a pattern may be long.
    """
    waiting, seen = [(0, 0)], set[tuple[int, int]]()
    while waiting:
        state = i, j = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        if i == len(a) or j == len(b):
            if all(element == star for element in a[i:] + b[j:]):
                return True
        elif star in (a[i], b[j]):
            waiting += [(i + 1, j), (i, j + 1)]
        elif are_compatible(a[i], b[j]):
            waiting.append((i + 1, j + 1))
    return False


@lru_cache(maxsize=65536)
def _names_overlap(a: str, b: str) -> bool:
    return _overlap(_pieces(a), _pieces(b), "*", _pieces_overlap)


def _pieces_overlap(a: str, b: str) -> bool:
    if "?" in (a, b) or (len(a) > 1 and len(b) > 1):
        return True  # two sets are assumed to share a character: the cost is one edge too many in the graph of stages
    if len(a) == len(b):
        return a == b
    characters, other = (a, b) if len(a) > 1 else (b, a)
    return re.fullmatch(_piece_regex(characters), other) is not None
