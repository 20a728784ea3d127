"""Fields, key and description of a pytest step."""

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.record import Facts
from orch23.model.step import ProcessStep


class PytestStep(ProcessStep, Struct, frozen=True, omit_defaults=True, tag="pytest", kw_only=True):
    """Run pytest. The verdict comes from its report, never from its exit code alone.

    With `must_fail` the step passes if every test fails, as new tests must before the code that they test exists.
    """

    kind: ClassVar[str] = "pytest"
    language: ClassVar[str] = "orch23.steps.pytest.language:PYTEST_LANGUAGE"
    run: ClassVar[str] = "orch23.runners.pytest:PYTEST_RUNNER"
    show: ClassVar[str] = "orch23.steps.pytest.spec:show_pytest"
    output_keys: ClassVar[tuple[str, ...]] = ("report",)
    judges: ClassVar[bool] = True
    caches: ClassVar[tuple[str, ...]] = (".pytest_cache",)

    args: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    config: str | None = None
    plugins: tuple[str, ...] = ()
    pythonpath: tuple[str, ...] = (".",)
    expect: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    # Not declared below: it changes no result, only whether there is one, so that a fresh stage stays fresh.
    provides: tuple[str, ...] = ()
    report: str | None = None
    must_fail: bool = False
    reruns: int = 0

    @property
    def declared(self) -> Json:
        """Return every option."""
        return {
            "args": list(self.args),
            "paths": list(self.paths),
            "config": self.config,
            "plugins": list(self.plugins),
            "pythonpath": list(self.pythonpath),
            "expect": list(self.expect),
            "trust": list(self.trust),
            "report": self.report,
            # Only if it is set, so that keys from before there was this option stay the same.
            **({"must_fail": True} if self.must_fail else {}),
        }

    @property
    def words(self) -> Json:
        """Return pytest with its arguments and paths."""
        return ["pytest", *self.args, *self.paths]

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return the options, and the versions of the interpreter and of its pytest."""
        own = {"kind": self.kind, "command": self.declared, "python": facts.python, "pytest": facts.pytest}
        return {**own, **self.judged_by}


def show_pytest(step: PytestStep) -> str:
    """Return pytest with its arguments and paths."""
    return " ".join(("pytest", *step.args, *step.paths))
