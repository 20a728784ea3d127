"""Read which promotion group a stage or a foreach belongs to."""

import re

from orch23.model.fields import Problem, Problems, shown
from orch23.model.pipeline import Foreach
from orch23.resolve.wild import Value

EACH, TOGETHER = "each", "together"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def read_group(name: str, at: Problems) -> str | None:
    """Return the group that `promote` of a stage names, or None where the stage is promoted by itself."""
    if name == TOGETHER:
        message = "`promote` of a stage names a group; `together` is for the items of a foreach"
        way = "write `promote: NAME` at each stage of the group, or `foreach: {promote: together}`"
        at.add("promote", "E812", message, way)
        return None
    return _checked(name, at)


def read_item_group(name: str, at: Problems) -> tuple[bool, str | None]:
    """Return what `promote` of a foreach says: whether its items are promoted together, and in which named group."""
    if name == TOGETHER:
        return True, None
    group = _checked(name, at)
    return group is not None, group


def _checked(name: str, at: Problems) -> str | None:
    if name == EACH:
        return None
    if _NAME.fullmatch(name):
        return name
    hint = "use up to 64 characters out of A-Z a-z 0-9 . _ -"
    at.add("promote", "E812", f"`promote` is {shown(name)}, which is not a valid name of a group", hint)
    return None


def clashing_groups(group: str | None, of_items: Value, at: str) -> Problem | None:
    """Return an error where a foreach says something else than its stage; `of_items` is `foreach.promote`."""
    if group is None or of_items in (None, TOGETHER, group):
        return None
    message = f"`promote: {group}` and `foreach.promote: {of_items}` contradict each other"
    hint = f"remove `foreach.promote`: all items belong to group `{group}` then; or write `promote: each` at the stage"
    return Problem(f"{at}/foreach/promote", "E856", message, hint)


def kept_alone(group: str | None, on_failure: Value, at: str) -> Problem | None:
    """Return an error where a failed member of a group would reach the workspace without the others."""
    if group is None or on_failure != "keep":
        return None
    key = "foreach.promote: together" if group == TOGETHER else f"promote: {group}"
    message = f"`on_failure: keep` and `{key}` contradict each other"
    way = "promote each item by itself" if group == TOGETHER else "take the stage out of the group"
    return Problem(f"{at}/on_failure", "E856", message, f"write `on_failure: rollback`, or {way}")


def label(foreach: Foreach, group: str | None) -> str | None:
    """Return what the items of a foreach are promoted as: a group, `together`, or None where each is by itself."""
    return group or (TOGETHER if foreach.together else None)
