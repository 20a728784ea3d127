"""Fields and key of a pytest step."""

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.record import Facts
from orch23.model.step import ProcessStep


class PytestStep(ProcessStep, Struct, frozen=True, omit_defaults=True, tag="pytest", kw_only=True):
    """Run pytest and take its own report as the verdict, never its exit code alone.

    With `must_fail` it passes if every test fails, as a new test has to without the code that it tests.
    """

    kind: ClassVar[str] = "pytest"
    language: ClassVar[str] = "orch23.steps.pytest.language:PYTEST_LANGUAGE"
    run: ClassVar[str] = "orch23.steps.pytest.run:PYTEST_RUNNER"
    show: ClassVar[str] = "orch23.steps.pytest.show:show_pytest"
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
    report: str | None = None
    must_fail: bool = False

    @property
    def declared(self) -> Json:
        """Give every option."""
        return {
            "args": list(self.args),
            "paths": list(self.paths),
            "config": self.config,
            "plugins": list(self.plugins),
            "pythonpath": list(self.pythonpath),
            "expect": list(self.expect),
            "trust": list(self.trust),
            "report": self.report,
            **({"must_fail": True} if self.must_fail else {}),  # keys of before there was this one stay as they are
        }

    @property
    def words(self) -> Json:
        """Give pytest with its arguments and paths."""
        return ["pytest", *self.args, *self.paths]

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return the options, and the versions of the interpreter and of its pytest."""
        return {"kind": self.kind, "command": self.declared, "python": facts.python, "pytest": facts.pytest}
