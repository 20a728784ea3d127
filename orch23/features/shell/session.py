"""Run `orch23 shell`: start a shell or a command in the sandbox of a step, on copies of its files."""

import math
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.build_run import interrupt_on_signal
from orch23.cli.console import Console
from orch23.cli.opening import open_stages
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, hidden_paths
from orch23.engine.worker_threads import executor_of
from orch23.execute.cleanup import temporary_folder
from orch23.execute.launch import Launch, Launcher, PlainLauncher, SandboxLauncher, not_allowed_error
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.features.shell.step import FoundStep, find_step
from orch23.features.shell.terminal import TAKE_STREAMS, has_terminal, relayed_streams
from orch23.model.action import PYTHON, ActionOutcome, Completed, EngineUnavailable, InputsChanged
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ExitCode, NotFoundError, UsageError
from orch23.model.pipeline import LOCAL_EXECUTOR
from orch23.model.text import join_first, visible
from orch23.resolve.commands import REPORTER_MODULE
from orch23.store.safe_files import PRIVATE_FOLDER_MODE, make_folder

_REPORTED = ("E619", "E620")  # processes that could not be killed, and a limit of the step


def open_shell(
    console: Console, *, args: PipelineArguments, attempt: int | None, command: str | None, allow_unsandboxed: bool
) -> int:
    """Open a shell where a step ran, or run a command there, and return its exit code.

    Raises:
        NotFoundError: there is no such attempt, or the store does not have its files any more.
        ConfigurationError: the step cannot be isolated here as in a build, or its interpreter is missing.
    """
    # click passes the words after `--` as arguments, too.
    words = console.argv[console.argv.index("--") + 1 :] if "--" in console.argv else ()
    args = replace(args, arguments=args.arguments[: len(args.arguments) - len(words)])
    if words and command is not None:
        raise UsageError(Diagnostic("E641", "`-c` and `-- COMMAND` contradict each other", hint="give one of them"))
    project, (name,) = open_stages(console, args, 1)
    step = find_step(project, name, attempt)
    sandbox = SandboxLauncher(best_tier_once, closed=hidden_paths(project), allowed=allow_unsandboxed)
    plain = PlainLauncher(None if allow_unsandboxed else not_allowed_error())
    launcher = sandbox if step.action.sandbox else plain
    shell = _Shell(console, project, step, launcher, words if command is None else ("-c", command))
    # Not where builds have their sandbox directories: each build empties that folder.
    make_folder(folder := project.store.folder / "shells", PRIVATE_FOLDER_MODE)
    with temporary_folder("sandbox", folder) as own:
        return shell.run(SandboxDirs(own, project.store.sources, meter=project.settings.meter))


class _Shell(Struct, frozen=True):
    """A launcher that starts a shell in place of a step. `words` are the arguments of the shell, or another command."""

    console: Console
    project: Project
    step: FoundStep
    launcher: Launcher
    words: Sequence[str]
    streams: ExitStack = field(default_factory=ExitStack)

    @property
    def tier(self) -> str:
        return self.launcher.tier

    def run(self, sandbox_dirs: SandboxDirs) -> int:
        """Run it, and return its exit code, or 128 + the number of the signal that ended it."""
        executor = LocalExecutor(
            sandbox_dirs=sandbox_dirs,
            contents=self.project.store.contents,
            workers=1,
            interpreters=self.project.facts.path_of,
            launcher=self,
            unconfined=self,
        )
        argv = self.step.action.argv
        if REPORTER_MODULE in argv:
            at = argv.index(REPORTER_MODULE)
            argv = (*argv[: at - 1], *argv[at + 1 :])
        # What is written in the tree does not count as a result, so nothing of it is stored.
        action = replace(self.step.action, argv=argv or (PYTHON,), reports=False, timeout_s=math.inf, scratch=("*",))
        numbers: list[int] = []

        def interrupt(number: int) -> None:
            numbers.append(number)
            executor.cancel()

        with closing(executor), interrupt_on_signal(interrupt), self.streams:
            outcome = executor.run(action)
        return 128 + numbers[0] if numbers else self._exit_code(outcome)

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Say where the shell is, connect it, and isolate it as the step."""
        pipeline, named = self.project.pipeline, Path(self.console.environ.get("SHELL", ""))
        if is_open := self.tier == PlainLauncher.tier:
            self.launcher.prepare(launch)  # it may refuse: before anything is said
        is_seen = is_open or any(map(named.resolve().is_relative_to, SYSTEM_FOLDERS))
        shell = str(named) if named.is_absolute() and is_seen and os.access(named, os.X_OK) else "/bin/sh"
        is_shell = not self.words or self.words[0] == "-c"
        lines = [f"note: {self.step.note}"] if self.step.note else []
        if (name := executor_of(self.step.stage, pipeline, pipeline.executor)) != LOCAL_EXECUTOR:
            lines.append(f"note: the step runs by the executor `{name}`; this is the sandbox of this machine")
        for line in (*lines, *(self._description(launch) if is_shell else ())):
            self.console.write_err(f"{visible(line)}\n")
        terminal = {"TERM": self.console.environ.get("TERM", "dumb")} if has_terminal() else {}
        fds = self.streams.enter_context(relayed_streams())
        words = (shell, *self.words) if is_shell else self.words
        argv = (str(launch.interpreter), "-I", "-S", "-c", TAKE_STREAMS, *map(str, fds), *words)
        env, pass_fds = {**terminal, **launch.env}, (*launch.pass_fds, *dict.fromkeys(fds))
        return self.launcher.prepare(replace(launch, argv=argv, env=env, pass_fds=pass_fds))

    def _description(self, launch: Launch) -> Sequence[str]:
        step, action, argv = self.step, self.step.action, launch.argv
        if argv[0] == str(launch.interpreter):
            argv = (launch.interpreter.name, *argv[1:])
        where = launch.sandbox_dir.seen_from_inside(self.tier).work / launch.cwd.relative_to(launch.sandbox_dir.work)
        tree = ("the whole tree",) if action.writable is None else ("HOME", "TMPDIR", *action.writable)
        is_open = self.tier == PlainLauncher.tier
        network = "with" if action.network or is_open else "without"
        held = "but without a sandbox, what you write elsewhere stays" if is_open else "no change reaches the project"
        return (
            f"stage {step.stage.name}, {step.title}",
            f"  $ {shlex.join(argv)}" if action.argv else "  its step starts no program",
            f"  in {where}, sandbox {self.tier}, {network} network",
            f"  writable: {join_first(tree, 5)}",
            f"These are copies: {held}; `exit` ends it.",
        )

    def _exit_code(self, outcome: ActionOutcome) -> int:
        name = self.step.stage.name
        match outcome:
            case Completed(result=result):
                self.console.write_diagnostics([one for one in result.violations if one.code in _REPORTED])
                self.console.write_err(result.output.text)
                return result.exit_code
            case InputsChanged(paths=paths):
                text = f"the store does not have the bytes of {join_first(paths, 5)} any more"
                again = self.project.pipeline.command_line("build", "--force", name)
                hint = f"`{again}` runs the stage again, with the files of today"
                raise NotFoundError(Diagnostic("E664", text, hint=hint, subject=name))
            case EngineUnavailable(reason=reason, diagnostic=barred):
                hint = "`orch23 doctor` checks the machine"
                other = Diagnostic("E309", f"the shell could not be started: {reason}", hint=hint)
                raise ConfigurationError(replace(barred or other, subject=name))
            case _:
                return ExitCode.SIGINT
