"""What programs of `provider: command` use outside of the project.

It is part of neither key nor fingerprint: with it, no other machine would find a recorded response (ADR 65).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def paths_outside(step: "LLMStep") -> tuple[str, ...]:
    """Return the paths of `read` that are outside of the project."""
    return tuple(one for one in step.read if one.startswith(("/", "~/")))


def programs_outside(step: "LLMStep") -> tuple[str, ...]:
    """Return the program and the paths of `read` that are outside of the project, so in neither key nor request."""
    program = (one for one in step.command[:1] if one.startswith("/") or "/" not in one)
    return (*program, *paths_outside(step))
