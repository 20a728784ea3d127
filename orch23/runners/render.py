"""Run a render step: store the text that was rendered for its key."""

from orch23.attempt.attempt import AttemptInput, AttemptLoop, AttemptResult, StepRunner
from orch23.model.digest import FileEntry, is_script
from orch23.steps.render.spec import RenderStep


class _RenderRunner(StepRunner):
    def attempt(self, attempts: AttemptLoop, step: RenderStep, turn: AttemptInput) -> AttemptResult:
        del step, turn
        # The text is part of the key, so that it was rendered when the stage was resolved.
        data = attempts.resolved.rendered or b""
        entry = FileEntry(attempts.contents.put(data), executable=is_script(data))
        return AttemptResult({attempts.resolved.stage.outputs[0]: entry})


RENDER_RUNNER = _RenderRunner()
