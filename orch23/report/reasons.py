"""Say in words why a stage is not fresh."""

import json
from typing import assert_never

from orch23.model.decision import (
    Blocked,
    Decision,
    Edited,
    Expand,
    Fresh,
    Maybe,
    Restore,
    Run,
    Skipped,
    VerifyOnly,
)
from orch23.model.digest import Json
from orch23.model.manifest import Reason
from orch23.report.diagnostics import visible
from orch23.report.document import plain_value

_SHORT = 40
_DIGEST_DIGITS = 64


def words(reason: Reason) -> str:  # noqa: C901, PLR0911, PLR0912 - one a code; mypy proves that none is missing
    """Return a reason as a clause."""
    subject = visible(reason.subject)
    match reason.code:
        case "first_run":
            return "first run"
        case "input_changed":
            return f"{subject} changed"
        case "input_added":
            return f"{subject} is a new input"
        case "input_removed":
            return f"{subject} is no input any more"
        case "base_changed":
            return f"the version of {subject} that it starts from changed"
        case "command_changed" | "params_changed":
            return _changed(subject, reason)
        case "prompt_changed":
            return f"the {'text to render' if subject == 'render' else subject} changed"
        case "model_changed":
            return _changed(subject, reason)
        case "schema_changed":
            return "the schema changed"
        case "verify_changed":
            return f"verification changed{_what(subject)}"
        case "env_changed":
            return f"the environment variable {subject} changed"
        case "tool_changed":
            return _changed(subject, reason)
        case "salt_changed":
            return "the salt changed" if subject == "salt" else "orch23 makes something else of it now"
        case "output_missing":
            return f"{subject} is missing" if subject else "its bytes are lost"
        case "output_edited":
            return f"{subject} has other bytes"
        case "previous_failed":
            return "it failed when it last ran"
        case "upstream_maybe":
            return f"if what {subject} writes changes"
        case "forced":
            return "forced"
        case "cache_disabled":
            return "it says `cache: false`"
        case "claim":
            return "only the lock file says that it passed"
        case _ as never:
            assert_never(never)


def why(decision: Decision) -> tuple[str, ...]:
    """Return every reason of a decision as a clause, the most telling first."""
    match decision:
        case Fresh():
            return ()
        case Restore(reasons=reasons):
            return tuple(words(one) for one in reasons) or ("a later stage needs this version",)
        case VerifyOnly(reasons=reasons) | Run(reasons=reasons):
            edits = decision.adopted if isinstance(decision, VerifyOnly) else ()
            edit = f"{_list(edits)} has a user's edit, committed or accepted"
            return (edit,) if edits else tuple(words(one) for one in reasons)
        case Maybe(waiting_on=waiting):
            return (f"if what {_list(waiting)} writes changes",)
        case Expand(waiting_on=waiting, last_count=last):
            known = f"; {last} items last time" if last else ""
            return (f"its items are known after {_list(waiting)} has run{known}",)
        case Blocked(by=by):
            return (f"blocked by {_list(by)}",) if by else ()
        case Edited() as edited:
            return tuple(map(visible, edited.clauses))
        case Skipped(condition=condition):
            return (f"`if` is false: {visible(condition)}",)
        case _ as never:
            assert_never(never)


def in_short(clauses: tuple[str, ...]) -> str:
    """Return the first clause, and how many there are besides."""
    if not clauses:
        return ""
    more = f", +{len(clauses) - 1} more" if len(clauses) > 1 else ""
    return f"{clauses[0]}{more}"


def brief_value(value: Json) -> str:
    """Return a value of a manifest on a few characters: a digest by its first digits, a long text cut."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=plain_value)
    digits = text.partition(" -> ")[0].removesuffix("+x")
    if len(digits) == _DIGEST_DIGITS and all(c in "0123456789abcdef" for c in digits):
        return visible(digits[:12] + text[len(digits) :])
    text = visible(text).replace("\n", " ")
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _changed(subject: str, reason: Reason) -> str:
    old, new = reason.old, reason.new
    if isinstance(old, str | int | float) and isinstance(new, str | int | float):
        then, now = brief_value(old), brief_value(new)
        if then != now:
            return f"{subject} changed: {then} -> {now}"
    return f"{subject} changed"


def _what(aspect: str) -> str:
    _, _, subject = aspect.partition(":")
    return f": {subject}" if subject else ""


def _list(names: tuple[str, ...]) -> str:
    return visible(", ".join(names)) if names else "an earlier stage"
