"""Warn about words of JSON schemas that no draft knows: nothing is checked by them."""

from collections.abc import Iterable, Iterator

from orch23.model.diagnostic import Diagnostic, Location, Severity, quoted_names
from orch23.model.parsing import StrictJsonError, parse_json
from orch23.model.pipeline import Stage
from orch23.store.workspace import Workspace

W_IGNORED_WORDS = "W861"


def ignored_word_warnings(stages: Iterable[Stage], workspace: Workspace) -> tuple[Diagnostic, ...]:
    """Return a warning for each schema with words that no draft knows. Invalid files are reported elsewhere."""
    files = dict.fromkeys(path for stage in stages for path in stage.schema_files)
    return tuple(one for path in files for one in _warning(path, workspace.read(path)))


def _warning(path: str, data: bytes | None) -> Iterator[Diagnostic]:
    from orch23.checks.schema_drafts import ignored_words  # noqa: PLC0415 - it imports jsonschema

    try:
        words = ignored_words(parse_json((data or b"null").decode("utf-8", "replace")))
    except StrictJsonError:
        return
    if words:
        message = f"no draft of JSON schema knows {quoted_names(words[:8])}{', ...' * (len(words) > 8)}: ignored"  # noqa: PLR2004 - a line
        hint = "correct a misspelled word; annotations such as `x-order` have no effect"
        yield Diagnostic(W_IGNORED_WORDS, message, Location(path, 1, 1), hint, Severity.WARNING)
