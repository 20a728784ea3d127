"""Rank definitions and files by the words of a task, and by the references between definitions."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from orch23.features.explore.definitions import Definition, FileOutline
from orch23.model.patterns import lazy_pattern

# Weights of a term by where it is: the name of the definition, the names around it, its comments and strings, its code.
_NAME, _AROUND, _WORDS, _CODE = 6.0, 2.0, 1.5, 1.0
# BM25: how soon more of the same term counts less, and how much a long text does.
_SATURATION, _LENGTH = 1.5, 0.75
_ALL_WORDS: Final = ""  # among the weights of terms: the length of a text
_FILE = 0.3  # how much the score of the whole file counts for each of its definitions
_TO_USED = 0.3  # how much of a score goes to the definitions that it refers to
_MOST_CANDIDATES: Final = 8  # a name with more definitions is not followed
# Added for what the task names in full, as a part of the best score.
_NAMED, _PATH_NAMED = 1.0, 0.5
_SECONDARY = 0.4  # factor of tests, examples and documents
_SECONDARY_FOLDERS = {"test", "tests", "testing", "doc", "docs", "example", "examples", "bench", "benchmarks", "vendor"}

_TOKEN = lazy_pattern(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*|\d+")
_PART = lazy_pattern(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ors", "or", "ions", "ion", "ies", "ed", "es", "s", "ly")
_SHORTEST_STEM = 3
# Longer words of this kind count less because they are in many texts.
_SHORT_WORDS = (
    "a all am an and any are as at be bug but by can def did do few fix for get go got had has he her how i if "
    "in is it its me my no nor not now of off on one or our out own see she so the to too two up us use was "
    "way we who why yet you"
)
_STOP_WORDS: Final = frozenset(_SHORT_WORDS.split())


class Ranked(Struct, frozen=True):
    """A definition of a file with its score."""

    path: str
    definition: Definition
    score: float


_Places = Sequence[tuple[str, Definition]]


def rank(task_text: str, outlines: Iterable[FileOutline]) -> list[Ranked]:
    """Return all definitions, best first. Those of an equal score are in the order of their paths and lines."""
    files = sorted(outlines, key=lambda one: one.path)
    places = [(one.path, definition) for one in files for definition in one.definitions]
    scores = _text_scores(_task_terms(task_text), places)
    named = _named_in(task_text)
    best = max(scores, default=0.0) or 1.0
    for number, (path, definition) in enumerate(places):
        if not named.isdisjoint((definition.name, definition.name.rpartition(".")[2])):
            scores[number] += _NAMED * best
        if any(path[start:] in named for start in _part_starts(path)):
            scores[number] += _PATH_NAMED * best
    scores = _with_references(scores, places)
    for number, (path, _) in enumerate(places):
        if _is_secondary(path):
            scores[number] *= _SECONDARY
    order = sorted(range(len(places)), key=lambda number: (-round(scores[number], 9), number))
    return [Ranked(*places[number], scores[number]) for number in order]


# ---- words ------------------------------------------------------------------------------------------


def terms_of(name: str) -> tuple[str, ...]:
    """Return the stems of the parts of a name, such as `pars` and `row` of `parse_rows`, and of it as one word."""
    parts = [_stem(part.lower()) for part in _PART.findall(name)]
    return (*parts, _stem("".join(_PART.findall(name)).lower())) if len(parts) > 1 else tuple(parts)


def _stem(word: str) -> str:
    """Return a word without an English ending. What remains need not be a word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM and not word.endswith("ss"):
            word = word.removesuffix(ending)
            if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST_STEM else word


def _task_terms(text: str) -> dict[str, float]:
    """Return the stems of a task with their weights. Two words that follow each other can be one name, too."""
    counts: Counter[str] = Counter()
    before = ""
    for token in _TOKEN.findall(text):
        words = [part.lower() for part in _PART.findall(token)]
        for word in words:
            if word in _STOP_WORDS:
                before = ""
                continue
            counts[_stem(word)] += 1
            if before:
                counts[_stem(before + word)] += 1
            before = word
    return {term: 1 + math.log(count) for term, count in counts.items() if len(term) > 1}


def _named_in(text: str) -> set[str]:
    """Return what a text names as code: paths, what is in backticks, dotted names, and words with `_` or capitals."""
    found = {word.strip("`'\"()[]<>,;:!?.") for word in text.split()}
    found = {word for word in found if "/" in word or "." in word}
    found |= {quoted.removesuffix("()") for quoted in text.split("`")[1::2]}
    for token in _TOKEN.findall(text):
        if "_" in token or "." in token or token[1:] != token[1:].lower():
            found |= {token, token.rpartition(".")[2]}
    return found


def _part_starts(path: str) -> list[int]:
    return [0, *(number + 1 for number, one in enumerate(path) if one == "/")]


def _is_secondary(path: str) -> bool:
    *folders, name = path.lower().split("/")
    is_test = name.startswith(("test_", "conftest.")) or name.partition(".")[0].endswith(("_test", "_spec"))
    return is_test or name.endswith((".md", ".rst", ".txt")) or not _SECONDARY_FOLDERS.isdisjoint(folders)


# ---- scores -----------------------------------------------------------------------------------------


def _text_scores(wanted: Mapping[str, float], places: _Places) -> list[float]:
    """Return the BM25F score of each definition, with a part of that of its file."""
    known: dict[str, tuple[str, ...]] = {}

    def found_in(name: str) -> tuple[str, ...]:
        if name not in known:
            known[name] = tuple(term for term in terms_of(name) if term in wanted)
        return known[name]

    definitions: list[dict[str, float]] = []  # weights of terms
    files: dict[str, dict[str, float]] = {}
    for path, definition in places:
        length = 1 + sum(definition.words.values()) + sum(definition.names.values())
        weights: dict[str, float] = defaultdict(float, {_ALL_WORDS: length})
        above, _, name = definition.name.rpartition(".")
        around = dict.fromkeys((*above.split("."), *path.split("/")), 1)
        of_words = ((around, _AROUND), ({name: 1}, _NAME), (definition.words, _WORDS), (definition.names, _CODE))
        for counts, factor in of_words:
            for word, count in counts.items():
                for term in found_in(word):
                    weights[term] += factor * count
        definitions.append(weights)
        of_file = files.setdefault(path, defaultdict(float))
        for term, weight in weights.items():
            of_file[term] += weight
    scores = _bm25(wanted, definitions)
    of_files = dict(zip(files, _bm25(wanted, list(files.values())), strict=True))
    return [score + _FILE * of_files[path] for score, (path, _) in zip(scores, places, strict=True)]


def _bm25(wanted: Mapping[str, float], texts: Sequence[Mapping[str, float]]) -> list[float]:
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
    """Add to each score a part of those of the definitions that refer to it.

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
    return found
