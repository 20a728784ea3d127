"""How a step that is a program runs: as an action, of which only what is within the write scope is taken."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.engine.attempt import Attempts, Run
from orch23.engine.failure import Failure, Left, refusal
from orch23.engine.guarding import guard_paths
from orch23.engine.running import Files, Ran
from orch23.engine.turn import Pass, Turn
from orch23.engine.verification import in_short, undeclared_writes
from orch23.model.ports import ContentStore
from orch23.model.step import ProcessStep

if TYPE_CHECKING:
    from orch23.decide.verdict import Verdict


class ProcessRun(Run):
    """Runs programs. A kind of step adds what `engine.running.Starting` asks for."""

    def attempt(self, attempts: Attempts, step: ProcessStep, turn: Turn) -> Pass:
        """Run the program, and take what it made within the stage's write scope."""
        resolved, start = attempts.resolved, turn.start
        stage = resolved.stage
        files = {**resolved.parts, **resolved.files}
        ran = attempts.runner.run(step, {**files, **start})
        if not isinstance(ran, Ran):
            return Pass(start, (), ran, left=self._left(attempts, step, start, ran))
        result = ran.result
        if result.output.text:
            attempts.report.keep(turn.attempt, "output.txt", result.output.text)
        changed = {**result.written, **dict.fromkeys(result.removed)}
        inputs = {path: e for path, e in files.items() if path not in start}
        problems = in_short(undeclared_writes(stage, changed, inputs, attempts.safeguards.protected))
        tree = {p: e for p, e in start.items() if p not in result.removed} | dict(result.written)
        if problems:
            failure = replace(refusal("write_scope_violation", problems), left=Left(result.written, result.removed))
            return Pass(start, (), failure, left=self._left(attempts, step, start, failure))
        named = guard_paths(attempts.safeguards.secrets, result.written)
        if named:
            return Pass(start, (), refusal("write_scope_violation", named, retryable=False))
        if ran.verdict is not None:
            tree |= self.reported(step, ran.verdict, attempts.contents)
        return Pass(tree, (), took_s=result.duration_s)

    def reported(self, step: ProcessStep, verdict: "Verdict", contents: ContentStore) -> Files:
        """Return the outputs that follow from a verdict."""
        del step, verdict, contents
        return {}

    def _left(self, attempts: Attempts, step: ProcessStep, start: Files, failure: Failure) -> Files | None:
        """Return the stage's own files as a failed program left them: what it changed within its write scope."""
        resolved, left = attempts.resolved, failure.left
        if left is None or guard_paths(attempts.safeguards.secrets, left.written):
            return None
        files = {**resolved.parts, **resolved.files}
        inputs = {path: e for path, e in files.items() if path not in start}
        changed = {**left.written, **dict.fromkeys(left.removed)}
        refused = undeclared_writes(resolved.stage, changed, inputs, attempts.safeguards.protected)
        mine = {path: entry for path, entry in changed.items() if path not in refused}
        tree = {path: entry for path, entry in {**start, **mine}.items() if entry is not None}
        if left.verdict is not None:
            tree |= self.reported(step, left.verdict, attempts.contents)
        return tree
