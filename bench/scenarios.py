"""What is done to a project before a tool is timed, which of its commands is timed, and what must hold afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from bench.project import Project
from bench.tools.orch23 import FILE, with_one_stage_edited


class Command(Enum):
    """Which command of a tool is timed."""

    BUILD = "build"
    BUILD_TWO = "build -j2"
    PLAN = "plan"
    REPAIR = "repair"
    VERSION = "version"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that is timed. `prepare` is given the project and the number of the round.

    Where it is `settled`, the tool has built once already since anything was done to the project, and some seconds ago.
    """

    name: str
    command: Command
    prepare: Callable[[Project, int], None]
    builds: bool = True
    settled: bool = False


def _nothing(project: Project, number: int) -> None:
    del project, number


def _again(project: Project, number: int) -> None:
    del number
    project.place_()


def _leaf(project: Project, number: int) -> None:
    path = project.graph.leaf_source
    project.write_source(path, project.graph.sources[path] + f"edit {number}\n")


def _identical(project: Project, number: int) -> None:
    path = project.graph.root_source
    project.write_source(path, project.graph.sources[path] * (number + 2))


def _deleted(project: Project, number: int) -> None:
    del number
    (project.root / project.graph.middle_output).unlink()


def _tampered(project: Project, number: int) -> None:
    del number
    project.tamper(project.graph.middle_output)


def _edited_stage(project: Project, number: int) -> None:
    path = project.root / FILE
    path.write_text(with_one_stage_edited(path.read_text(encoding="utf-8"), project.graph, number), encoding="utf-8")


def _edited_inputs(project: Project, number: int) -> None:
    """Have one stage, whose output no other reads, read another source."""
    graph = project.graph
    place = next(
        place for place, stage in reversed([*enumerate(graph.stages)]) if stage.output not in graph.read_outputs
    )
    stage = graph.stages[place]
    source = sorted(graph.sources)[number]
    edited = replace(stage, inputs=(stage.inputs[0], source))
    project.describe(replace(graph, stages=(*graph.stages[:place], edited, *graph.stages[place + 1 :])))


FIRST = Scenario("first build, -j1", Command.BUILD, _again)
FIRST_TWO = Scenario("first build, -j2", Command.BUILD_TWO, _again)
FIRST_CAT = Scenario("first build, -j1, cat", Command.BUILD, _again)
FIRST_PLAN = Scenario("first plan", Command.PLAN, _again, builds=False)
FIRST_NOTHING = Scenario("nothing to do, the first time", Command.BUILD, _nothing)
NOTHING = Scenario("nothing to do", Command.BUILD, _nothing, settled=True)
PLAN = Scenario("plan, nothing to do", Command.PLAN, _nothing, settled=True)
LEAF = Scenario("one leaf edited", Command.BUILD, _leaf)
IDENTICAL = Scenario("an edit, the same output", Command.BUILD, _identical)
NOTHING_CAT = replace(NOTHING, name="nothing to do, cat")
LEAF_CAT = replace(LEAF, name="one leaf edited, cat")
DELETED = Scenario("one output deleted", Command.BUILD, _deleted)
TAMPERED = Scenario("one output tampered with", Command.REPAIR, _tampered)
EDITED_STAGE = Scenario("plan after one stage was edited", Command.PLAN, _edited_stage)
EDITED_INPUTS = Scenario("one line of inputs edited", Command.BUILD, _edited_inputs)
VERSION = Scenario("--version", Command.VERSION, _nothing, builds=False)
HELP = Scenario("--help", Command.HELP, _nothing, builds=False)

FIRST_BUILDS = (FIRST, FIRST_TWO, FIRST_CAT)
BUILT = (FIRST_NOTHING, NOTHING, PLAN, LEAF, IDENTICAL, DELETED, TAMPERED)
"""Those that begin with a project that is built."""
