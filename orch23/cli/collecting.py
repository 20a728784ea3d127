"""Clear a store of what no pipeline of its project needs, or say what that would be."""

from collections.abc import Mapping

from orch23.cli.needs import needs_of
from orch23.cli.store_size import note_size
from orch23.store.collection import Chosen, Needs, Wish
from orch23.store.opening import Store


def foresee(store: Store, environ: Mapping[str, str], wish: Wish) -> tuple[Needs, Chosen]:
    """Return what is needed and what would go. Takes no lock, writes nothing.

    Raises:
        CorruptStateError: a lock file or a journal is damaged, so what is needed is not known.

    """
    needs = needs_of(store.root, store.logs, environ)
    return needs, store.collector().choose(needs, wish)


def collect(store: Store, environ: Mapping[str, str], wish: Wish, now_s: int) -> tuple[Needs, Chosen]:
    """Drop what is not needed, as far as it is wished, and return what `foresee` does.

    Raises:
        CorruptStateError: as for `foresee`. Nothing was dropped.
        BusyError: a build holds the lock.

    """
    if not store.folder.is_dir():
        return Needs(), Chosen()
    with store.build_lock():
        store.sweep()
        store.promoter.recover()
        needs, chosen = foresee(store, environ, wish)
        store.collector().drop(chosen)
        note_size(store.folder, now_s)
    return needs, chosen
