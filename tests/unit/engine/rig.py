"""A project, its store and its machine in memory, as far as the engine asks for them: builds take milliseconds."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from orch23.attempt.attempt import Models
from orch23.attempt.conversation import RecordedConversation, RequestBuilder
from orch23.attempt.ledger import Ledger
from orch23.attempt.run_events import Reporter
from orch23.attempt.safeguards import NetworkAccess, Safeguards
from orch23.attempt.stage_outcomes import BuildResult
from orch23.attempt.stage_work import Worker
from orch23.decide.dry_run import DryRun
from orch23.decide.open_pipeline import OpeningOptions, OpenPipeline, PlanningTools, PriorState, open_pipeline
from orch23.decide.protected_files import own_file_patterns
from orch23.engine.build import Build, BuildOptions
from orch23.engine.result_writer import ResultWriter
from orch23.model.action import Action, ActionOutcome
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, digest_bytes, git_blob_id
from orch23.model.errors import CorruptStateError, LimitError, MissingBytesError
from orch23.model.event import Event, StageFinished
from orch23.model.llm import Exchange
from orch23.model.paths import match, match_any, normalize_pattern
from orch23.model.pipeline import (
    ChainLink,
    Foreach,
    ForeachStage,
    PathInput,
    Pipeline,
    Stage,
    StopConditions,
    WriteScope,
)
from orch23.model.plan import RunHistory
from orch23.model.record import Facts, LockFile, Record, core_of, identity_of
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.providers.adapter import CallContext
from orch23.providers.prices import Prices
from orch23.providers.recordings import RecordingProvider
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep
from orch23.store.json_text import TRUSTED
from orch23.store.lock_file import LockWrite
from orch23.store.project_store import ProjectStore
from orch23.store.promotion import PromotionResult
from orch23.text.secrets import Secrets
from tests.doubles import FakeClock, FakeExecutor, FakeProvider, MemoryContents, completed

ROOT = Path("/project-in-memory")
FACTS = Facts(interpreter="/usr/bin/python3", python="3.11.0", pytest="8.0.0")

Program = Callable[[Mapping[str, str]], Any]
"""What a process does: it gets its files, and returns those that it writes, or a whole outcome."""


def entry(text: str | bytes) -> FileEntry:
    """Return the entry of a file with this text."""
    return FileEntry(digest_bytes(text.encode() if isinstance(text, str) else text))


def stage(name: str, *reads: str, writes: Sequence[str] | None = None, **more: Any) -> Stage:
    """Return a shell stage that reads files and makes files; by default the one of its own name."""
    outputs = (name,) if writes is None else tuple(writes)
    inputs = tuple(PathInput(path) for path in reads)
    step = ShellStep(("make", name, *outputs))
    facts: dict[str, Any] = {"step": step, "inputs": inputs, "outputs": outputs, "fence": WriteScope(outputs), **more}
    return Stage(name=name, **facts)


def each(name: str, *values: str, source: str | None = None, **more: Any) -> ForeachStage:
    """Return a foreach over a static list, or over a file; each item makes `NAME/ITEM`."""
    body = {"outputs": [f"{name}/${{{{ item }}}}"], "shell": ["make", name, f"{name}/${{{{ item }}}}"]}
    return ForeachStage(
        name=name,
        foreach=Foreach(values=values, source=source),
        body=more.pop("body", body),
        kind="shell",
        reads=() if source is None else (source,),
        writes=(f"{name}/*",),
        **more,
    )


class MemoryWorkspace:
    """The files of a project."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = {path: text.encode() for path, text in files.items()}
        self.stale: list[str] = []
        self.written_paths: set[str] = set()

    def __getitem__(self, path: str) -> str:
        return self.files[path].decode()

    def __setitem__(self, path: str, text: str) -> None:
        self.files[path] = text.encode()

    def entry(self, path: str) -> FileEntry | None:
        return entry(self.files[path]) if path in self.files else None

    input_entry = entry

    def unchanged(self, paths: Iterable[str]) -> dict[str, FileEntry]:
        return {path: entry(self.files[path]) for path in paths if path in self.files}

    def resolved_path(self, path: str) -> str | None:
        return path

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def writable_files(self, pattern: str, *, ignored: bool = True) -> tuple[str, ...]:
        del ignored
        return tuple(sorted(path for path in self.files if match(normalize_pattern(pattern), path)))

    def links(self, _pattern: str) -> tuple[str, ...]:
        return ()

    def listing(self, pattern: str, outputs: object = None, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(path for path in self.writable_files(pattern) if not match_any(exclude, path))

    def is_folder(self, path: str) -> bool:
        return any(one.startswith(f"{path.rstrip('/')}/") for one in self.files)

    def neighbours(self, path: str) -> list[str]:
        return [one for one in self.files if one.rpartition("/")[0] == path.rpartition("/")[0]]

    def is_file(self, path: str) -> bool:
        return path in self.files

    def subfolders(self, path: str) -> list[str]:
        before = f"{path}/" if path else ""
        below = (one.removeprefix(before) for one in self.files if one.startswith(before))
        return sorted({one.partition("/")[0] for one in below if "/" in one})

    def invalidate(self, paths: Iterable[str]) -> None:
        self.stale += paths

    def announce_writes(self, paths: Iterable[str]) -> None:
        self.written_paths.update(paths)

    note_written = announce_writes


class MemoryRecords:
    """The records of a store, the newest first. `log` has a word for each that was made durable."""

    def __init__(self) -> None:
        self.all: list[Record] = []
        self.log: list[str] = []

    def put(self, record: Record, *, durable: bool = True) -> None:
        self.log += ["recorded"] if durable else []
        self.use(record)

    def use(self, record: Record) -> None:
        self.all = [record, *(one for one in self.all if one != record)]

    def by_key(self, key: str) -> list[Record]:
        return [one for one in self.all if one.key == key and not one.failed]

    def proven(self, key: str) -> list[Record]:
        return [one for one in self.all if one.key == key]

    def by_core(self, core: str) -> list[Record]:
        return [one for one in self.all if core_of(one.manifest) == core and not one.failed]

    def by_identity(self, identity: str) -> list[Record]:
        return [one for one in self.all if identity_of(one.manifest) == identity]

    def labelled(self, name: str) -> list[Record]:
        return [one for one in self.all if one.stage == name]

    def owners(self, path: str) -> list[Record]:
        return [one for one in self.all if path in one.outputs]

    def having(self, path: str, wanted: FileEntry) -> list[Record]:
        return [one for one in self.all if one.outputs.get(path) == wanted]

    def everything(self) -> list[Record]:
        return [*reversed(self.all)]


class MemoryExchanges:
    """RecordingProvider exchanges, and the originals that are kept beside them."""

    def __init__(self) -> None:
        self.all: dict[str, Exchange] = {}
        self.originals: dict[str, bytes] = {}
        self.damaged: set[str] = set()

    def get(self, fingerprint: str, _transcripts: str | None) -> Exchange | None:
        if fingerprint in self.damaged:
            raise CorruptStateError(Diagnostic("E620", "a transcript is damaged"))
        return self.all.get(fingerprint)

    def put(self, exchange: Exchange, _transcripts: str | None) -> None:
        self.all[exchange.fingerprint] = exchange

    put_later = put

    def write_later(self) -> None:
        pass

    def nearest(self, _stage: str, _parts: object, _transcripts: str | None) -> Exchange | None:
        return None

    def put_original(self, data: bytes, _transcripts: str | None) -> Digest:
        self.originals[digest_bytes(data).sha256] = data
        return digest_bytes(data)

    def get_original(self, digest: Digest, _transcripts: str | None) -> bytes | None:
        return self.originals.get(digest.sha256)


class MemoryConversations:
    """Opens conversations with one provider, and records what it answers; nothing is counted.

    `load` is called with the stages whose calls are prepared.
    """

    def __init__(
        self,
        provider: FakeProvider,
        exchanges: MemoryExchanges,
        load: Callable[[Sequence[Stage]], None] = lambda _stages: None,
    ) -> None:
        self.provider, self.exchanges, self.load = provider, exchanges, load

    def prepare(self, stages: Sequence[Stage]) -> None:
        self.load(stages)

    def open_fallbacks(self, *_: object) -> Sequence[RecordedConversation]:
        return ()

    def fallback_setting(self, _resolved: ResolvedStage) -> Any:
        raise NotImplementedError  # no stage of these tests has a fallback

    def open(self, resolved: ResolvedStage, attempt: int, asked: set[str]) -> RecordedConversation:
        name = resolved.stage.name
        recorded = RecordingProvider(inner=self.provider, store=self.exchanges, stage=name)
        asking = CallContext(cast("LLMStep", resolved.stage.step), name, attempt)
        nothing: Any = SimpleNamespace(settle=lambda *_: None, forfeit=lambda *_: None)
        return RecordedConversation(recorded=recorded, meter=nothing, call=asking, params={}, used=asked)


class MemoryPlans:
    """Stored plans, each with the bytes that it was computed from."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, bytes]] = {}

    def get(self, name: str, made_of: bytes) -> bytes | None:
        known, value = self.values.get(name, (b"", b""))
        return value if value and known == made_of else None

    def put(self, name: str, made_of: bytes, value: bytes) -> None:
        self.values[name] = made_of, value


class MemoryStore:
    """The parts of a store. `saved` is called before and after a file is taken in: what a user does to it meanwhile.

    As a promoter, it notes each promotion.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self.root = ROOT
        self.base_runs, self.key = ROOT / "base-runs", TRUSTED
        self.contents = MemoryContents()
        self.records = MemoryRecords()
        self.exchanges = MemoryExchanges()
        self.workspace = MemoryWorkspace(files)
        self.promoter = self.sources = self
        self.plans = MemoryPlans()
        self.lock_files = MemoryPlans()
        self.log: list[str] = []
        self.saved: Callable[[str], None] = lambda _path: None
        self.promotions: list[dict[str, FileEntry | None]] = []

    def tracked(self, _reads: set[str]) -> "MemoryStore":
        return self

    def for_one_moment(self, *, continued: bool = False) -> "MemoryStore":
        return self

    def add_file(self, path: str) -> Digest:
        self.saved(path)
        digest = self.contents.put(self.workspace.files[path])
        self.saved(path)
        return digest

    def sync(self) -> None:
        self.log.append("synced")

    def write_exchanges(self) -> None:
        self.exchanges.write_later()

    # as the sources
    def read(self, path: str, wanted: FileEntry) -> bytes:
        if self.contents.has(wanted.digest):
            return self.contents.get(wanted.digest)
        if self.workspace.entry(path) == wanted:
            return self.workspace.files[path]
        raise MissingBytesError(wanted.digest.sha256)

    # as the promoter
    def pending(self) -> Mapping[str, FileEntry | None]:
        return {}

    def refusal(self, path: str, by_names: Callable[[str], str | None]) -> str | None:
        return by_names(path)

    def promote(
        self, new: Mapping[str, FileEntry | None], _old: object, _refusal: Callable[[str], str | None]
    ) -> PromotionResult:
        data = {path: self.contents.get(one.digest) for path, one in new.items() if one is not None}
        if new:
            self.promotions.append(dict(new))
        gone = tuple(path for path, one in new.items() if one is None and path in self.workspace.files)
        self.workspace.files = {path: text for path, text in self.workspace.files.items() if path not in gone} | data
        return PromotionResult(tuple(data), gone)

    def forget_bytes(self, text: str, *, damaged: bool = False) -> None:
        """Lose the bytes of a text, or damage them so that it is only noticed when they are read."""
        sha256 = digest_bytes(text.encode()).sha256
        if damaged:
            self.contents.blobs[sha256] = b"?" * len(text)
        else:
            del self.contents.blobs[sha256]


class MemoryGit:
    """What HEAD has, by path."""

    was_used = False
    looked_at: Mapping[Path, str] = {}
    left_out: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.head: dict[str, str] = {}

    def at_head(self, path: str) -> bytes:
        return self.head.get(path, "").encode()

    def committed(self, paths: Iterable[str]) -> Mapping[str, str]:
        return {path: git_blob_id(self.head[path].encode()) for path in paths if path in self.head}

    def bytes_of(self, _blob_id: str) -> bytes | None:
        return None

    def bytes_at(self, path: str) -> Iterator[bytes]:
        return iter([self.head[path].encode()] if path in self.head else [])

    def versions(self, _path: str) -> Iterator[bytes]:
        return iter([])


class Executor(FakeExecutor):
    """Runs the programs of a project. `stopped` is set once `cancel` was called."""

    def __init__(self, function: Callable[[Action], ActionOutcome]) -> None:
        super().__init__(function)
        self.stopped = threading.Event()

    def cancel(self) -> None:
        super().cancel()
        self.stopped.set()


class Project:
    """A pipeline over files in memory. Each `build` opens it again, as a command does."""

    def __init__(self, *nodes: Stage | ForeachStage, files: Mapping[str, str] | None = None, **more: Any) -> None:
        self.pipeline = Pipeline(name="p", file="p.yaml", stages=nodes, **more)
        self.store = MemoryStore(files or {})
        self.as_store = cast("ProjectStore", self.store)
        self.disk = self.store.workspace
        self.git = MemoryGit()
        self.clock = FakeClock()
        self.lock, self.history = LockFile(), RunHistory()
        self.texts: dict[str, str] = {}
        self.secrets = Secrets()
        self.programs: dict[str, Program] = {}
        self.facts = FACTS
        self.pace: Callable[[str], None] = lambda _stage: None
        self.load: Callable[[Sequence[Stage]], None] = lambda _stages: None
        self.provider = FakeProvider()
        self.provider_problems: tuple[Diagnostic, ...] = ()
        self.validate: Any = lambda _path, _value: ()
        self.events: list[Event] = []
        self.artifacts: dict[tuple[str, int, str], str] = {}
        self.executor = Executor(self._run)

    # ---- what a test does -------------------------------------------------------------------

    def tools(self) -> PlanningTools:
        return PlanningTools(
            facts_of=lambda _stage: self.facts,
            sources=self,
            read_yaml=_no_yaml,
            check_provider=lambda _step: self.provider_problems,
        )

    def opened(self, **more: Any) -> OpenPipeline:
        prior = cast("PriorState", self)
        options = OpeningOptions(git=self.git, **more)
        return open_pipeline(self.pipeline, self.as_store, self.tools(), prior, options)

    def builder(
        self, *, selection: Selection = ALL_STAGES, jobs: int = 2, keep_going: bool = False, **more: Any
    ) -> Build:
        """Return a build that is ready to run."""
        opened = self.opened(**more)
        self.executor = Executor(self._run)
        self.events.clear()
        return Build(
            opened=opened,
            worker=self.worker(opened),
            writer=ResultWriter(opened),
            cancel_steps=self.executor.cancel,
            ledger=Ledger(
                limits=self.pipeline.stop,
                limits_of=lambda _name: StopConditions(),
                prices=lambda: Prices({}),
                notice=self.notice,
                sync=lambda: None,
                clock=self.clock.monotonic,
            ),
            observer=self,
            clock=self.clock.monotonic,
            options=BuildOptions(selection=selection, jobs=jobs, keep_going=keep_going),
            cancel_calls=lambda: None,
            stop_waiting=lambda: None,
            later=None,
        )

    def build(self, **more: Any) -> BuildResult:
        return self.builder(**more).run()

    def worker(self, opened: OpenPipeline) -> Worker:
        return Worker(
            opened=opened,
            executor_of=lambda _: self.executor,
            models=Models(
                requests=RequestBuilder(self.secrets, self, self.pipeline),
                conversations=cast("Any", MemoryConversations(self.provider, self.store.exchanges, self.load)),
                validate=self.validate,
            ),
            safeguards=Safeguards(
                secrets=self.secrets,
                protected=own_file_patterns(self.pipeline),
                begin_attempt=self.pace,
                network=NetworkAccess(partial_dir=ROOT, environ={}, trust_command=lambda: "orch23 trust"),
            ),
            reporter=Reporter(observer=self, artifacts=cast("Any", self), redact=self.secrets.redact),
        )

    def plan(self, **more: Any) -> Mapping[str, Any]:
        """Return what a build would do: decisions by stage."""
        return DryRun(self.opened(**more).decider).run()

    def statuses(self) -> dict[str, str]:
        """Return how the stages of the last build ended, in that order."""
        return {one.role: one.data.status.value for one in self.events if isinstance(one.data, StageFinished)}

    def reported(self, kind: type) -> list[Any]:
        """Return the events of a kind."""
        return [event.data for event in self.events if isinstance(event.data, kind)]

    def ran(self) -> list[str]:
        """Return which programs the last build ran, in that order."""
        return [action.argv[1] for action in self.executor.actions]

    def completed(self, written: Mapping[str, str] | None = None, code: int = 0, text: str = "", **more: Any) -> Any:
        return completed(code, text=text, written=written, contents=self.store.contents, **more)

    def failing(self, text: str = "no", **more: Any) -> Program:
        """Return a program that fails."""
        return lambda _files: self.completed(code=1, text=text, **more)

    # ---- as a machine -------------------------------------------------------------------------

    def _run(self, action: Action) -> ActionOutcome:
        _, name, *outputs = action.argv
        files = {path: self.store.contents.get(one.digest).decode() for path, one in action.inputs.items()}
        program = self.programs.get(name)
        text = f"{name}({', '.join(files.values())})"
        made = program(files) if program is not None else dict.fromkeys(outputs, text)
        return cast("ActionOutcome", made if not isinstance(made, dict) else self.completed(made))

    # as the author's files
    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        text = self.texts.get(path)
        return text, None if text is not None else Diagnostic("E820", f"no file {path}")

    # as a memory
    def read(self) -> tuple[LockFile, RunHistory]:
        return self.lock, self.history

    def write(self, lock: LockFile, _name: str) -> LockWrite:
        self.lock = lock
        return LockWrite("")

    # as an observer, and as what keeps artifacts
    def notice(self, event: Event) -> None:
        self.events.append(event)

    def keep(self, stage: str, attempt: int, name: str, text: str) -> None:
        self.artifacts[stage, attempt, name] = text


def _no_yaml(_text: str) -> Any:
    message = "no YAML in these tests"
    raise ValueError(message)


def limit() -> LimitError:
    """Return the error of a run that reached a limit."""
    return LimitError(Diagnostic("E501", "nothing is left", hint="raise it"))


def model(**more: Any) -> LLMStep:
    """Return a step that asks a model of a program."""
    facts: dict[str, Any] = {"provider": "command", "model": "m", "prompt": "p.j2", "command": ("ask",), **more}
    return LLMStep(**facts)


def asks(name: str, *reads: str, step: LLMStep | None = None, **more: Any) -> Stage:
    """Return a stage that asks a model for the file of its own name."""
    return stage(name, *reads, step=step or model(), chain=ChainLink(chain=name, index=0), **more)


def answer(**texts: str) -> str:
    """Return an answer that writes files."""
    return json.dumps({"writes": [{"path": path, "content": text} for path, text in texts.items()], "deletes": []})
