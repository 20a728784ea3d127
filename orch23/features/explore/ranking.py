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
_FILE = 0.3  # how much the score of the whole file counts for each of its definitions
# How much of a score goes to the definitions that it refers to, and back to those that refer to it.
_TO_USED, _TO_USERS = 0.3, 0.05
_MOST_CANDIDATES: Final = 8  # a name with more definitions is not followed
# Added for what the task names in full, as a part of the best score.
_NAMED, _PATH_NAMED = 1.0, 0.5
_SECONDARY = 0.4  # factor of tests, examples and documents
_SECONDARY_FOLDERS = frozenset("test tests testing doc docs example examples bench benchmarks vendor".split())

_TOKEN = lazy_pattern(r"[^\W\d_][\w]*(?:\.[^\W\d]\w*)*|\d+")
_PART = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_PATH = lazy_pattern(r"[\w.-]+(?:/[\w.-]+)+|[\w-]+\.[a-z]{1,4}\b")
_ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ors", "or", "ions", "ion", "ies", "ed", "es", "s", "ly")
_SHORTEST_STEM = 3
_STOP_WORDS: Final = frozenset(
    """a about after again all also am an and any are as at be because been before being both but by can could did do
    does doing done each else even ever every few for from get gets give gives given go goes got had has have he her here
    how i if in instead into is it its itself just like look looks make makes me more most much must my no nor not now of
    off on once one only or other our out over own rather really same see seems shall she should since so some still such
    than that the their them then there these they thing things this those though through to too two until up us use used
    using very want wants was way we well were what when where which while who why will with without would yet you your
    expected actual actually correct correctly wrong wrongly bug issue problem fix regression reproduce result results
    return returns returned returning come comes came behaviour behavior version however
    def class self none true false""".split()
)


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
        if any(f"/{path}".endswith(f"/{one}") for one in named):
            scores[number] += _PATH_NAMED * best
    scores = _with_references(scores, places)
    for number, (path, _) in enumerate(places):
        if _is_secondary(path):
            scores[number] *= _SECONDARY
    order = sorted(range(len(places)), key=lambda number: (-round(scores[number], 9), number))
    return [Ranked(*places[number], scores[number]) for number in order]


# ---- words ------------------------------------------------------------------------------------------


def terms_of(name: str) -> tuple[str, ...]:
    """Return the stems of the parts of a name: `parse_tableRows` has `pars`, `tabl` and `row`; and of it as one word."""
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
    """Return what a text names as code: paths, dotted names, and words that are not words of English."""
    found = {one.strip("./") for one in _PATH.findall(text)}
    for token in _TOKEN.findall(text):
        if "_" in token or "." in token or token[1:] != token[1:].lower():
            found |= {token, token.rpartition(".")[2]}
    for quoted in text.split("`")[1::2]:
        found.add(quoted.removesuffix("()"))
    return found


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

    definitions: list[Counter[str]] = []
    files: dict[str, Counter[str]] = defaultdict(Counter)
    for path, definition in places:
        weights: Counter[str] = Counter()
        above, _, name = definition.name.rpartition(".")
        for words, factor in (([name], _NAME), ([*above.split("."), *path.split("/")], _AROUND)):
            for word in words:
                for term in found_in(word):
                    weights[term] += factor
        for counts, factor in ((definition.words, _WORDS), (definition.names, _CODE)):
            for word, count in counts.items():
                for term in found_in(word):
                    weights[term] += factor * count
        definitions.append(weights)
        files[path].update(weights)
    lengths = [1 + sum(one.words.values()) + sum(one.names.values()) for _, one in places]
    file_lengths = dict.fromkeys(files, 0)
    for (path, _), length in zip(places, lengths, strict=True):
        file_lengths[path] += length
    scores = _bm25(wanted, definitions, lengths)
    file_scores = dict(zip(files, _bm25(wanted, list(files.values()), list(file_lengths.values())), strict=True))
    return [score + _FILE * file_scores[path] for score, (path, _) in zip(scores, places, strict=True)]


def _bm25(wanted: Mapping[str, float], texts: Sequence[Mapping[str, float]], lengths: Sequence[int]) -> list[float]:
    usual = sum(lengths) / max(len(lengths), 1)
    having = Counter(term for weights in texts for term in weights)
    rarity = {
        term: factor * math.log(1 + (len(texts) - having[term] + 0.5) / (having[term] + 0.5))
        for term, factor in wanted.items()
    }
    return [
        sum(
            rarity[term] * found / (found + _SATURATION * (1 - _LENGTH + _LENGTH * length / usual))
            for term, found in sorted(weights.items())
        )
        for weights, length in zip(texts, lengths, strict=True)
    ]


def _with_references(scores: Sequence[float], places: _Places) -> list[float]:
    """Add to each score a part of those of the definitions that refer to it, and that it refers to.

    A definition that many refer to gets less of each: otherwise the most used ones were the best of every task.
    """
    defined: dict[str, list[int]] = defaultdict(list)
    for number, (_, definition) in enumerate(places):
        if definition.kind:
            defined[definition.name.rpartition(".")[2]].append(number)
    used = [
        [
            numbers
            for name in definition.names
            if len(numbers := defined.get(name, [])) <= _MOST_CANDIDATES and user not in numbers
        ]
        for user, (_, definition) in enumerate(places)
    ]
    users = Counter(number for names in used for numbers in names for number in numbers)
    found = list(scores)
    for user, names in enumerate(used):
        for numbers in names:
            for number in numbers:
                share = 1 / len(numbers) / math.sqrt(len(names))
                found[number] += _TO_USED * share * scores[user] / math.sqrt(users[number])
                found[user] += _TO_USERS * share * scores[number]
    return found
