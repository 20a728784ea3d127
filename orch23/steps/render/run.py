"""Run a render step: store the text that was rendered for its key."""

from orch23.engine.attempt import AttemptInput, AttemptLoop, AttemptResult, StepRunner
from orch23.model.digest import FileEntry
from orch23.steps.render.spec import RenderStep


class _Rendering(StepRunner):
    """Stores the text that resolving the stage has rendered."""

    def attempt(self, attempts: AttemptLoop, step: RenderStep, turn: AttemptInput) -> AttemptResult:
        """Return the text as the stage's one output."""
        del step, turn
        entry = FileEntry(attempts.contents.put(attempts.resolved.rendered or b""))
        return AttemptResult({attempts.resolved.stage.outputs[0]: entry})


RENDER_RUNNER = _Rendering()
