"""Find the stage of another pipeline that owns a path: one path has one owner in a project (ADR 19)."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple, TypeAlias

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import CorruptStateError
from orch23.model.record import Record
from orch23.store.lock_file import read_lock

Declares: TypeAlias = Callable[[str, str, str], bool]
"""Return whether a pipeline file declares a stage of that name with an output that covers a path."""

_SUFFIXES = (".yaml", ".yml")


class Claim(NamedTuple):
    """The lock file of a pipeline gives a path to one of its stages."""

    pipeline: str
    stage: str
    record: Record


class Claims:
    """What the other pipelines of a project own. Their lock files are searched for at the first question.

    `declares` loads a pipeline: it is called only where a lock file claims a path that is asked for.
    """

    def __init__(self, root: Path, own_lock: Path, declares: Declares = lambda _pipeline, _stage, _path: True) -> None:
        """Take the root of the project, the lock file that is not another's, and what tells what is declared."""
        self.root = root
        self.own_lock = own_lock
        self.declares = declares
        self._claims: dict[str, list[Claim]] | None = None
        self._declared: dict[tuple[str, str, str], bool] = {}

    def owner(self, path: str) -> Claim | None:
        """Return the claim of another pipeline that still declares the path as an output; None if there is none."""
        for claim in self._all().get(path, ()):
            asked = (claim.pipeline, claim.stage, path)
            if asked not in self._declared:
                self._declared[asked] = self.declares(*asked)
            if self._declared[asked]:
                return claim
        return None

    def refusals(self, stage: str, paths: Collection[str]) -> tuple[Diagnostic, ...]:
        """Return an error for each path that a stage would write and another pipeline owns."""
        owners = ((path, self.owner(path)) for path in sorted(set(paths)))
        return tuple(_refusal(stage, path, claim) for path, claim in owners if claim is not None)

    def _all(self) -> dict[str, list[Claim]]:
        if self._claims is None:
            from orch23.store.lock_files import files_of  # noqa: PLC0415 - few builds claim a path

            self._claims = {}
            locks, _ = files_of(self.root)
            for lock in sorted(locks - {self.own_lock}):
                self._add(lock)
        return self._claims

    def _add(self, lock: Path) -> None:
        pipeline = next((p for suffix in _SUFFIXES if (p := lock.with_suffix(suffix)).is_file()), None)
        if pipeline is None or self._claims is None:  # the lock file of a pipeline that is gone claims nothing
            return
        try:
            known = read_lock(lock).owning()
        except CorruptStateError:  # reported when that pipeline is built
            return
        name = pipeline.relative_to(self.root).as_posix()
        for stage, record in known.items():
            for path in record.outputs:
                self._claims.setdefault(path, []).append(Claim(name, stage, record))


def _refusal(stage: str, path: str, claim: Claim) -> Diagnostic:
    message = f"`{stage}` would write `{path}`, which is an output of stage `{claim.stage}` in {claim.pipeline}"
    hint = (
        f"run `orch23 release {claim.pipeline} {claim.stage}` and remove that stage, "
        "or make both items of one sequential `foreach` in one pipeline"
    )
    return Diagnostic("E712", message, hint=hint, subject=stage)
