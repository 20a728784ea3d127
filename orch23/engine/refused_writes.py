"""What is reported when a step wrote to a tree that it may not write, or was kept from it."""

import re

from msgspec.structs import replace

from orch23.decide.excerpt import normalise
from orch23.engine.failure import Failure, coded
from orch23.model.diagnostic import Diagnostic

_REFUSAL = re.compile(r"^.*(?:Read-only file system|Permission denied).*$", re.MULTILINE)
_QUOTED = re.compile(r"'([^']+)'")
_ABSOLUTE = re.compile(r"(?:^|[^\w./~-])(/[\w./~-]+)")
_TREE = "/room/work/"
_MOST, _LONGEST = 3, 300
_HINT = "write below TMPDIR (in pytest: `tmp_path`), or list the path in `scratch`"


def changed_tree(path: str) -> Diagnostic:
    """Return the error that a step changed its read-only tree, which only one without a sandbox can."""
    return Diagnostic(
        "E323", "was changed by the step that verifies, for which the tree is read-only", hint=_HINT, subject=path
    )


def with_refused_writes(failure: Failure, printed: str) -> Failure:
    """Return a failure with what is reported of writes that were refused, if its output has any."""
    refused = dict.fromkeys(
        " ".join(line.split()) for line in _REFUSAL.findall(normalise(f"{failure.brief.excerpt}\n{printed}"))
    )
    found = tuple(
        Diagnostic(
            "E323",
            f"the tree of this step is read-only, and it may have tried to write there: {line[:_LONGEST]}",
            hint=_HINT,
        )
        for line in [one for one in refused if _is_of_tree(one)][:_MOST]
    )
    if not found:
        return failure
    lines = tuple(map(coded, found))
    excerpt = "\n".join((failure.brief.excerpt.rstrip(), "", *lines))
    brief = replace(failure.brief, excerpt=excerpt, diagnostics=(*failure.brief.diagnostics, *lines))
    return replace(failure, brief=brief, diagnostics=(*failure.diagnostics, *found))


def _is_of_tree(line: str) -> bool:
    """Return whether a line may be about the tree: it names a path there, or none that is elsewhere."""
    named = _QUOTED.findall(line) or _ABSOLUTE.findall(line)
    return not named or any(not path.startswith("/") or f"{path}/".startswith(_TREE) for path in named)
