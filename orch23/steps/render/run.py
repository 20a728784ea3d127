"""How a render step runs."""

from orch23.engine.attempt import Attempts, Run
from orch23.engine.turn import Pass, Turn
from orch23.model.digest import FileEntry
from orch23.steps.render.spec import RenderStep


class _Rendering(Run):
    """Stores the text that resolving the stage has rendered."""

    def attempt(self, attempts: Attempts, step: RenderStep, turn: Turn) -> Pass:
        """Return the text as the stage's one output."""
        del step, turn
        entry = FileEntry(attempts.contents.put(attempts.resolved.rendered or b""))
        return Pass({attempts.resolved.stage.outputs[0]: entry})


RUN = _Rendering()
