"""The files of the project that the programs of `provider: command` consist of. They are part of key and fingerprint.

Programs and files outside of the project are not: with them, no other machine would find a recorded response (ADR 65).
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from orch23.model.digest import FileEntry, Json
from orch23.model.paths import match_any
from orch23.model.pipeline import Stage
from orch23.model.record import PROGRAM_ASPECT

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def program_aspects(
    stage: Stage,
    step: "LLMStep",
    entry_at: Callable[[str], FileEntry | None],
    matching: Callable[[str], Iterable[str]],
) -> dict[str, Json]:
    """Return the aspects of the files that the program of a stage consists of, without those that the stage writes."""
    own = (*stage.outputs, *stage.fence.write)
    found = dict.fromkeys(path for path in step.program_files(matching) if not match_any(own, path))
    return {f"{PROGRAM_ASPECT}{path}": str(entry) for path in found if (entry := entry_at(path)) is not None}


def paths_outside(step: "LLMStep") -> tuple[str, ...]:
    """Return the paths of `read` that are outside of the project."""
    return tuple(one for one in step.read if one.startswith(("/", "~/")))


def programs_outside(step: "LLMStep") -> tuple[str, ...]:
    """Return the program and the paths of `read` that are outside of the project, so in neither key nor request."""
    program = (one for one in step.command[:1] if one.startswith("/") or "/" not in one)
    return (*program, *paths_outside(step))
