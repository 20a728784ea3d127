"""Count what a store holds, and look at every blob, record and answer whether it is as it was written."""

from msgspec import Struct

from orch23.model.errors import MissingBytesError
from orch23.store.collection import blobs_of, counted
from orch23.store.opening import Store


class Tally(Struct, frozen=True):
    """How many there are of a kind, and how many bytes they take."""

    kind: str
    number: int
    size_bytes: int


class Inspection(Struct, frozen=True, kw_only=True):
    """How much was looked at, and each thing that was damaged."""

    results: int
    stored_files: int
    recorded_answers: int
    damaged: tuple[str, ...]


def tallies(store: Store) -> tuple[Tally, ...]:
    """Return what a store holds, by kind, and last whatever else lies there. Writes nothing."""
    blobs = [digest.size_bytes for digest, _ in blobs_of(store.disk.contents.folder)]
    exchanges, originals = store.exchanges.files(), store.exchanges.originals()
    shelves, records_bytes = counted(store.disk.records.folder)
    files, all_bytes = counted(store.folder)
    known = (
        Tally("stored_files", len(blobs), sum(blobs)),
        Tally("results", len(store.records.survey()), records_bytes),
        Tally("recorded_answers", len(exchanges), sum(one.size_bytes for one in exchanges)),
        Tally("bytes_of_persons", len(originals), sum(one.size_bytes for one in originals)),
    )
    others = files - len(blobs) - shelves - len(exchanges) - len(originals)
    return (*known, Tally("other_files", others, all_bytes - sum(one.size_bytes for one in known)))


def inspect(store: Store) -> Inspection:
    """Read all of a store, and drop what is damaged, as a build does that meets it. Only under the build lock."""
    blobs = [digest for digest, _ in blobs_of(store.disk.contents.folder)]
    for digest in blobs:
        try:
            store.disk.contents.check(digest)
        except MissingBytesError:  # told in `healed`
            store.disk.contents.drop(digest)
    results = len(store.records.survey())
    store.disk.records.drop(frozenset())
    answers = len(store.exchanges.files())
    store.exchanges.inspect()
    return Inspection(
        results=results,
        stored_files=len(blobs),
        recorded_answers=answers,
        damaged=store.healed(),
    )
