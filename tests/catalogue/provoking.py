"""How a code of the catalogue is provoked: a function that does something wrong in a project; it tells what it saw."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from orch23.model.errors import Orch23Error
from tests.project import Outcome, Project

Trigger: TypeAlias = Callable[[Project], Iterable[str]]
"""Do something wrong in an empty project; return the codes that a user, or the caller of a package, sees."""

Register: TypeAlias = Callable[[Trigger], Trigger]

_DISAGREES = re.compile(r"(warning|note)(: [^\[]*)?\[E\d|error(: [^\[]*)?\[W\d")
_SHOWN = re.compile(r"\[([EW]\d{3})\]|^  = ([EW]\d{3}): ", re.MULTILINE)


class Triggers(dict[str, Trigger]):
    """The triggers of one family, by code. `needs` has the feature that a code is of, if any."""

    def __init__(self) -> None:
        super().__init__()
        self.needs: dict[str, str] = {}

    def of(self, code: str, needs: str = "") -> Register:
        """Take the function below as the trigger of a code; a code has one."""

        def register(trigger: Trigger) -> Trigger:
            assert code not in self, f"{code} has two triggers"
            self[code] = trigger
            if needs:
                self.needs[code] = needs
            return trigger

        return register


def shown(*outcomes: Outcome) -> set[str]:
    """Return the codes on the screens of some runs: where a error begins, never where one is only mentioned."""
    # An error has E, a warning or a note W.
    wrong = [line for outcome in outcomes for line in outcome.err.splitlines() if _DISAGREES.match(line)]
    assert wrong == []
    return {"".join(found) for outcome in outcomes for found in _SHOWN.findall(outcome.out + outcome.err)}


def reported(project: Project) -> set[str]:
    """Return the codes with which the stages of the newest run failed, as its journal has them."""
    return {problem["code"] for event in project.events_of("stage_finished") for problem in event["data"]["problems"]}


def complained(project: Project, text: str, files: Mapping[str, str | bytes] | None = None) -> set[str]:
    """Return the codes that `validate` and `plan` give for a pipeline; other files may stand beside it."""
    project.write({"pipeline.yaml": text, **(files or {})})
    found = {one["code"] for one in project.run("validate", "--output-format", "json").json()}
    return found | shown(project.run("plan"))


def raised(run: Callable[[], object]) -> set[str]:
    """Return the codes of what a function of a sandbox directory raises."""
    try:
        run()
    except Orch23Error as error:
        return {diagnostic.code for diagnostic in error.diagnostics}
    return set()
