"""The beginnings that prompts of several stages share, so that the vendor's cache gets them once (ADR 38)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.digest import digest_bytes, digest_json
from orch23.model.llm import Request
from orch23.providers.model_facts import facts_of
from orch23.text.beginnings import shared_lines

# Of more stages the rest is not compared: each prompt is compared with all others.
_MOST_COMPARED = 100
# A prompt has at most so many ends: with those of its system text and of its stage these are the four of the vendor.
_MOST_ENDS = 2
# A further end that is nearer to another one costs more than it saves.
_LEAST_CHARACTERS = 4_000
# These can differ between requests with one cached prefix.
_NOT_CACHED = frozenset({"max_tokens", "temperature"})


class SharedBeginnings(Struct, frozen=True):
    """Digests of the beginnings that several stages send, by the part of a request before its messages, and length.

    An empty mapping of lengths: only that part is shared, with the system text in it.
    """

    found: Mapping[str, Mapping[int, frozenset[str]]]

    def marked(self, request: Request) -> Request:
        """Return a request with the ends of the beginnings that other stages send."""
        lengths = self.found.get(_head(request)) if self.found else None
        if lengths is None:
            return request
        text = request.messages[0].content
        found = (length for length in sorted(lengths) if _digest(text[:length]) in lengths[length])
        # Vendors refuse a block of blanks, and in the block before they would change it.
        ends = tuple(length for length in found if not text[length:].isspace())
        return replace(request, beginnings=ends, system_users="stages" if request.system else request.system_users)


NOTHING_SHARED = SharedBeginnings({})


def shared_beginnings(requests: Iterable[tuple[str, Request]]) -> SharedBeginnings:
    """Return what the first requests of declared stages share, each with the name of its stage.

    Of the items of a foreach, what all of them share is compared with other stages.
    """
    groups: dict[str, Counter[tuple[str, str]]] = {}
    examples: dict[str, Request] = {}
    for stage, one in requests:
        if one.cache is not None and one.cache.share and one.pace != "batch" and one.messages:
            text, head = one.messages[0].content, _head(one)
            examples[head] = one
            texts, entry = groups.setdefault(head, Counter()), (text[: one.family] if one.family else text, stage)
            if entry in texts or len(texts) < _MOST_COMPARED:
                texts[entry] += 1
    found: dict[str, Mapping[int, frozenset[str]]] = {}
    for head, texts in groups.items():
        if len(texts) > 1:
            lengths: dict[int, set[str]] = {}
            for text in _chosen(texts, examples[head]):
                lengths.setdefault(len(text), set()).add(_digest(text))
            found[head] = {length: frozenset(digests) for length, digests in lengths.items()}
    return SharedBeginnings(found)


def _chosen(texts: Counter[tuple[str, str]], example: Request) -> list[str]:
    """Return the beginnings that save the most, at most two of a text. `example` is one of the requests."""
    ordered, facts, before = sorted(texts), facts_of(example.provider, example.model), len(example.system)
    # Two texts that share more than their neighbours in sorted order are neighbours.
    ends = [(one, len(one) if one == other else shared_lines(one, other)) for (one, _), (other, _) in pairwise(ordered)]
    candidates = {one[:end] for one, end in ends if end and facts.caches(before + end)}
    users = {one: sum(texts[each] for each in _starting_with(one, ordered)) for one in candidates}
    chosen: list[str] = []
    for one in sorted(candidates, key=lambda text: (-users[text] * len(text), text)):
        related = [other for other in chosen if other.startswith(one) or one.startswith(other)]
        if len(related) < _MOST_ENDS and all(abs(len(one) - len(other)) >= _LEAST_CHARACTERS for other in related):
            chosen.append(one)
    return chosen


def _starting_with(beginning: str, ordered: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return takewhile(lambda each: each[0].startswith(beginning), ordered[bisect_left(ordered, (beginning, "")) :])


def _head(request: Request) -> str:
    """Return the identity of everything that the vendor puts before the messages."""
    params = {name: value for name, value in request.params.items() if name not in _NOT_CACHED}
    return digest_json([request.provider, request.endpoint, request.model, request.system, params, request.schema])


def _digest(text: str) -> str:
    return digest_bytes(text.encode()).sha256
