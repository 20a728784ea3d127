"""What holds for all stages: which files and hosts steps may reach, and that no result is stored with a secret."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, canonical_json
from orch23.model.step import Grant
from orch23.resolve.resolution import ResolvedStage
from orch23.text.secrets import SecretFinding, Secrets

_SHA256_DIGITS = 64
_BELONGS = "keep it in the environment: the definition of a stage is stored and committed"


class NetworkAccess(Struct, kw_only=True, eq=False):
    """What the steps of a build may reach; without consent, nothing is. `trust_command` returns the command to consent.

    `partial_dir` holds partial downloads. `is_closed`: the build was interrupted. Safe for calls from several threads.
    """

    partial_dir: Path
    environ: Mapping[str, str]
    trust_command: Callable[[], str]
    offline: bool = False
    is_granted: Callable[[Grant], bool] = lambda _grant: False
    is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[int, Callable[[], None]] = field(default_factory=dict)

    @contextlib.contextmanager
    def cancellable(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` from another thread if the build is interrupted inside of this context."""
        with self._lock:
            self._open[id(end)] = end
            # Under the lock, so that `close` cannot run between the line above and this one, and miss this call.
            closed = self.is_closed
        try:
            if closed:
                end()
            yield
        finally:
            with self._lock:
                self._open.pop(id(end), None)

    def close(self) -> None:
        """End all open connections, and each later one at once."""
        with self._lock:
            self.is_closed = True
            ends = list(self._open.values())
        # Without the lock: the ended threads need it to remove themselves from `_open`.
        for end in ends:
            end()


class Safeguards(Struct, frozen=True, kw_only=True):
    """Limits that hold for all stages of a build.

    `protected` are patterns of files that no stage may write. `begin_attempt` raises a LimitError if the wall time of
    the stage is over. `network` is what steps may reach beyond this machine.
    """

    secrets: Secrets
    protected: tuple[str, ...]
    begin_attempt: Callable[[str], None]
    network: NetworkAccess


def guard_manifest(secrets: Secrets, resolved: ResolvedStage) -> tuple[Diagnostic, ...]:
    """Return an error for each secret in the manifest of a stage: in its environment or its command.

    The record and the lock file have the whole manifest, and the lock file is committed.
    """
    named = {"name": resolved.stage.name, **resolved.manifest}
    # The digest of an input is none, so only its path is searched.
    others = {a: v for a, v in named.items() if a[:6] != "input:" or type(v) is not str or len(v) != _SHA256_DIGITS}
    paths = [aspect for aspect in named if aspect not in others]
    if not secrets.may_contain((json_text(paths), json_text(others))):
        return ()
    aspects = {aspect: secrets.find(json_text([aspect, value])) for aspect, value in named.items()}
    held = [(aspect.partition(":")[0], name) for aspect, found in aspects.items() for name in names_of(found)]
    return tuple(stored_secret(part, name) for part, name in dict.fromkeys(held))


def guard_paths(secrets: Secrets, paths: Iterable[str]) -> tuple[Diagnostic, ...]:
    """Return an error for each secret in the names of outputs: these are in the lock file."""
    held = [name for path in paths for name in names_of(secrets.find(path))]
    return tuple(stored_secret("the name of an output", name) for name in dict.fromkeys(held))


def guard_edit(secrets: Secrets, texts: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return an error for each secret or conflict of git in files that the user edited.

    Accepted files are kept with the transcripts.
    """
    from orch23.text.merge_conflicts import conflict_errors  # noqa: PLC0415 - only for edits of a user

    found = [(path, finding) for path, text in texts.items() for finding in secrets.find(text)]
    stored = (stored_secret(f"{path}:{finding.line}", finding.name) for path, finding in found)
    return (*stored, *conflict_errors(texts))


def stored_secret(part: str, name: str) -> Diagnostic:
    """Return the error that a secret would be stored with a result."""
    return Diagnostic("E602", f"a secret would be stored with the result: {name}", subject=part, hint=_BELONGS)


def names_of(found: tuple[SecretFinding, ...] | list[SecretFinding]) -> tuple[str, ...]:
    """Return the names of the secrets found, each once."""
    return tuple(dict.fromkeys(finding.name for finding in found))


def json_text(value: Json) -> str:
    """Return a value as the text that is searched."""
    return canonical_json(value).decode("utf-8", "replace")
