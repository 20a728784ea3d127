"""Run `cache stats` and `cache verify`."""

from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.cli.retention import size_limit
from orch23.model.digest import Json
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import visible
from orch23.report.values import format_size, json_document, pluralize
from orch23.store.garbage_collection import StoreVerification, count_stored, verify_store
from orch23.store.project_store import open_store

CACHE_VERSION = 1
_NAMES = {
    "stored_files": "stored files",
    "results": "results",
    "recorded_answers": "recorded responses",
    "bytes_of_persons": "user edits and originals",
    "other_files": "other files",
}


def stats(console: Console, *, as_json: bool) -> None:
    """Show what the store holds, by kind."""
    found = count_stored(open_store(project_root(console)))
    total, limit = sum(one.size_bytes for one in found), size_limit(console.environ)
    if as_json:
        kinds: dict[str, Json] = {one.kind: {"number": one.number, "size_bytes": one.size_bytes} for one in found}
        body: dict[str, Json] = {"orch23_cache_stats": CACHE_VERSION, "size_bytes": total, "cap_bytes": limit}
        console.write_out(json_document({**body, "kinds": kinds}))
        return
    numbers = [f"{one.number:,}" for one in found]
    width, name_width = max(map(len, numbers)), max(map(len, _NAMES.values()))
    for number, one in zip(numbers, found, strict=True):
        console.write_out(f"{number:>{width}}  {_NAMES[one.kind]:<{name_width}}  {format_size(one.size_bytes):>9}\n")
    note = "" if limit is None else f"; `orch23 gc` keeps {format_size(limit)}"
    console.write_out(f"{'':>{width}}  {'total':<{name_width}}  {format_size(total):>9}{note}\n")


def verify(console: Console, *, exit_code: bool, as_json: bool) -> int:
    """Verify the store and remove damaged data."""
    store = open_store(project_root(console), console.progress)
    found = StoreVerification(results=0, stored_files=0, recorded_answers=0, damaged=())
    if store.folder.is_dir():
        # Under the build lock: no build adds files meanwhile.
        with store.build_lock():
            store.sweep()
            found = verify_store(store)
    if as_json:
        body: dict[str, Json] = {
            "orch23_cache_verify": CACHE_VERSION,
            "results": found.results,
            "stored_files": found.stored_files,
            "recorded_answers": found.recorded_answers,
            "damaged": list(found.damaged),
        }
        console.write_out(json_document(body))
    else:
        console.write_out("".join(f"damaged: {visible(line)}\n" for line in found.damaged))
        checked = (
            f"{pluralize(found.stored_files, 'stored file')}, {pluralize(found.results, 'result')}, "
            f"{pluralize(found.recorded_answers, 'recorded response')}"
        )
        console.write_out(f"{checked}: {len(found.damaged) or 'nothing'} damaged\n")
    return ExitCode.FAILED if exit_code and found.damaged else ExitCode.OK
