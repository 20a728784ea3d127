"""Build the map of a repository for a task: its definitions, ranked by the words of the task and by references."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from heapq import nlargest
from typing import Final

from msgspec import Struct

from orch23.features.explore.outlines import Definition, FileOutline
from orch23.model.patterns import lazy_pattern

# Weights of a term by where it is: the name of the definition, the names around it, its comments and strings, its code.
_NAME, _AROUND, _WORDS, _CODE = 6.0, 2.0, 1.5, 1.0
# BM25: how soon more of the same term counts less, and how much a long text does.
_SATURATION, _LENGTH = 1.5, 0.5
_ALL_WORDS: Final = ""  # among the weights of terms: the length of a text
_BEST_OF_FILE: Final = 5
_FILE = 0.15  # how much the scores of the best definitions of a file count for each of its definitions
_TO_USED, _TO_USER = 0.3, 0.6  # how much of a score goes to the definitions that it refers to, and that refer to it
_MOST_CANDIDATES: Final = 8  # a name with more definitions is not followed
_SECONDARY = 0.4  # factor of tests, examples and documents
_SECONDARY_FOLDERS = {"test", "tests", "testing", "doc", "docs", "example", "examples", "bench", "benchmarks", "vendor"}
_GROUP: Final = 40  # definitions that are grouped by file at once: a long map, too, begins with the best of all files

_NAMED = lazy_pattern(r"[\w/-]+(?:\.[\w/-]+)*")  # paths and names with dots
_TOKEN = lazy_pattern(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*|\d+")
_PART = lazy_pattern(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_ENDING = lazy_pattern(r"(?<=\w{3})(?<=(\w))(?:\1(?<![lsz]))?(?:ations?|ings?|ers?|ors?|ions?|ies|ed|es|(?<!s)s|ly|e)$")

# Prose has these in each sentence and code seldom: by their rarity in code they would be the best words of a task.
_COMMON = """\
a about after again all also an and another any are as at be because been before being both but by can could did do
does doing down each else even every for from had has have he here how i if in into is it its just may me might more
most must my no not now of on one only or other our out over same she should since so some still such than that the
their them then there these they this those to too two under up us very was we were what when where which while who
will with without would you your"""
_COMMON_WORDS: Final = frozenset(_COMMON.split())

_Places = Sequence[tuple[str, Definition]]


class RepoMap(Struct, frozen=True, dict=True):
    """The definitions of a repository with their paths, best first, and each file before or among its definitions.

    `note` says which files have no definitions or inexact ones, and why.
    """

    places: tuple[tuple[str, Definition], ...]
    note: str = ""

    @cached_property
    def files(self) -> Mapping[str, tuple[Definition, ...]]:
        """The definitions of each file, best first."""
        found: dict[str, list[Definition]] = {}
        for path, one in self.places:
            found.setdefault(path, []).extend([one] if one.kind else [])
        return {path: tuple(ones) for path, ones in found.items()}

    def render(self, left: int) -> str:
        """Return the start of the map, of at most so many characters.

        A line is a path, or the lines and the name of a definition of the path above it.
        """
        groups: list[str] = []
        for start in range(0, len(self.places), _GROUP):
            entries = self.places[start : start + _GROUP]
            while len(text := _group(entries, with_signatures=start == 0)) > left:
                entries = entries[:-1]
            groups.append(text)
            left -= len(text)
            if len(entries) < _GROUP:
                break
        return "".join(groups)


def _group(entries: _Places, *, with_signatures: bool) -> str:
    of_file: dict[str, str] = {}
    for path, one in entries:
        text = of_file.setdefault(path, f"{path}\n")
        if one.kind:
            rest = one.shown.partition(one.name.rpartition(".")[2])[2].rstrip(" :{(") if with_signatures else ""
            lines = f"L{one.first}" if one.first == one.last else f"L{one.first}-{one.last}"
            of_file[path] = f"{text}  {lines} {one.kind} {one.name}{rest}\n"
    return "".join(of_file.values())


def map_of(task_text: str, outlines: Iterable[FileOutline]) -> RepoMap:
    """Return the map of files with these outlines. An equal score leaves the order of paths and lines."""
    files = sorted(outlines, key=lambda one: one.path)
    places = [(one.path, definition) for one in files for definition in one.definitions]
    scores = _text_scores(_task_terms(task_text), places)
    named = _named_in(task_text)
    named_ends = tuple(f"/{one}" for one in named)
    best = max(scores, default=0.0) or 1.0
    for number, (path, definition) in enumerate(places):
        if not named.isdisjoint((definition.name, definition.name.rpartition(".")[2])):
            scores[number] += best
        if f"/{path}".endswith(named_ends):
            scores[number] += best / 2
    scores = _with_references(scores, places)
    for number, (path, _) in enumerate(places):
        scores[number] *= _SECONDARY if _is_secondary(path) else 1
    scores = _with_files(scores, places)
    seen: set[str] = set()
    ranked = []
    for number in sorted(range(len(places)), key=lambda number: (-round(scores[number], 9), number)):
        path, definition = places[number]
        if definition.kind or path not in seen:
            ranked.append(places[number])
        seen.add(path)
    gaps: dict[str, list[str]] = {}
    for one in files:
        gaps.setdefault(one.gap, []).append(one.path)
    count = {gap: f" and {len(paths) - 1:,} more" if len(paths) > 1 else "" for gap, paths in gaps.items()}
    note = "; ".join(f"{gap}: {paths[0]}{count[gap]}" for gap, paths in sorted(gaps.items()) if gap)
    return RepoMap(tuple(ranked), note)


# ---- words ------------------------------------------------------------------------------------------


def terms_of(name: str) -> tuple[str, ...]:
    """Return the stems of the parts of a name, such as `pars` and `row` of `parse_rows`, and of it as one word."""
    parts = _PART.findall(name)
    return tuple(_ENDING.sub("", one.lower()) for one in (*parts, *(["".join(parts)] if len(parts) > 1 else [])))


def _task_terms(text: str) -> dict[str, float]:
    """Return the stems of the words of a task with their weights."""
    words = (part.lower() for token in _TOKEN.findall(text) for part in _PART.findall(token))
    counts = Counter(_ENDING.sub("", one) for one in words if one not in _COMMON_WORDS)
    return {term: 1 + math.log(count) for term, count in counts.items() if len(term) > 1}


def _named_in(text: str) -> set[str]:
    """Return what a text names as code: paths, what is in backticks, dotted names, and words with `_` or capitals."""
    found = {quoted.removesuffix("()") for quoted in text.split("`")[1::2]}
    for word in _NAMED.findall(text):
        if not {"/", ".", "_"}.isdisjoint(word) or word[1:] != word[1:].lower():
            found |= {word, word.rpartition(".")[2]}
    return found - {""}


def _is_secondary(path: str) -> bool:
    *folders, name = path.lower().split("/")
    is_test = name.startswith(("test_", "conftest.")) or name.partition(".")[0].endswith(("_test", "_spec"))
    return is_test or name.endswith((".md", ".rst", ".txt")) or not _SECONDARY_FOLDERS.isdisjoint(folders)


# ---- scores -----------------------------------------------------------------------------------------


def _text_scores(wanted: Mapping[str, float], places: _Places) -> list[float]:
    """Return the BM25F score of each definition."""
    known: dict[str, tuple[str, ...]] = {}
    texts: list[dict[str, float]] = []  # weights of terms
    for path, definition in places:
        length = 1 + sum(definition.words.values()) + sum(definition.names.values())
        weights: dict[str, float] = defaultdict(float, {_ALL_WORDS: length})
        above, _, name = definition.name.rpartition(".")
        around = dict.fromkeys((*above.split("."), *path.split("/")), 1)
        of_words = ((around, _AROUND), ({name: 1}, _NAME), (definition.words, _WORDS), (definition.names, _CODE))
        for counts, factor in of_words:
            for word, count in counts.items():
                if word not in known:
                    known[word] = tuple(term for term in terms_of(word) if term in wanted)
                for term in known[word]:
                    weights[term] += factor * count
        texts.append(weights)
    usual = sum(weights[_ALL_WORDS] for weights in texts) / max(len(texts), 1)
    having = Counter(term for weights in texts for term in weights)
    rarity = {
        term: factor * math.log(1 + (len(texts) - having[term] + 0.5) / (having[term] + 0.5))
        for term, factor in wanted.items()
    }
    scores = []
    for weights in texts:
        soon = _SATURATION * (1 - _LENGTH + _LENGTH * weights[_ALL_WORDS] / usual)
        scores.append(sum(rarity[term] * weights[term] / (weights[term] + soon) for term in rarity if term in weights))
    return scores


def _with_references(scores: Sequence[float], places: _Places) -> list[float]:
    """Add to each score a part of those of the definitions that refer to it, and that it refers to.

    A definition that many refer to gets less of each: otherwise the most used ones were the best of every task.
    """
    defined: dict[str, list[int]] = defaultdict(list)
    for number, (_, definition) in enumerate(places):
        if definition.kind:
            defined[definition.name.rpartition(".")[2]].append(number)
    followed = {name: numbers for name, numbers in defined.items() if len(numbers) <= _MOST_CANDIDATES}
    used = [[followed[name] for name in one.names if name in followed] for _, one in places]
    users = Counter(number for names in used for numbers in names for number in numbers)
    found = list(scores)
    for user, names in enumerate(used):
        for numbers in names:
            for number in numbers:
                if number != user:
                    shares = len(numbers) * math.sqrt(len(names) * users[number])
                    found[number] += _TO_USED * scores[user] / shares
                    found[user] += _TO_USER * scores[number] / shares
    return found


def _with_files(scores: Sequence[float], places: _Places) -> list[float]:
    """Add to each score a part of the best ones of its file: a large file is not better because it has more of them."""
    of_file: dict[str, list[float]] = defaultdict(list)
    for score, (path, _) in zip(scores, places, strict=True):
        of_file[path].append(score)
    best = {path: _FILE * sum(nlargest(_BEST_OF_FILE, ones)) for path, ones in of_file.items()}
    return [score + best[path] for score, (path, _) in zip(scores, places, strict=True)]
