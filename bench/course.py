"""Lead the tools through the scenarios at one size, in turns: every round gives each tool one run, in a new order."""

import math
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.environments import environment
from bench.graph import Graph, make_graph
from bench.measure import Run, Runner
from bench.project import Project
from bench.results import CAPPED, FAILED, MISSED, NOT_TRIED, RIGHT, Measurement, measurement
from bench.scenarios import (
    BUILT,
    EDITED_INPUTS,
    EDITED_STAGE,
    FIRST,
    FIRST_BUILDS,
    FIRST_CAT,
    FIRST_PLAN,
    FIRST_TWO,
    HELP,
    IDENTICAL,
    LEAF,
    LEAF_CAT,
    NOTHING_CAT,
    TAMPERED,
    VERSION,
    Command,
    Scenario,
)
from bench.tool import FromTree, Installed

PYTHON = "python3 -c pass"
SLOW_S = 20.0
MOST_CAT = 10_000
LENIENCE = 12
"""orch23 and the floor are given so many times longer than others: their figures at ten thousand stages must exist."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How often and how long: rounds of each scenario, of first builds, seconds of one run, seconds of all of it."""

    rounds: int
    first_rounds: int
    cap_s: float
    budget_s: float = math.inf


@dataclass(slots=True)
class _Tally:
    """What the rounds of one tool in one scenario have given so far."""

    runs: list[Run] = field(default_factory=list)
    outcome: str = RIGHT
    ran: int | None = None
    note: str = ""


SETTLED_S = 2.5
"""So old are all files where a project has settled: some tools do not believe younger time stamps."""


@dataclass(slots=True)
class Course:
    """The tools, and which of them have dropped out since they were too slow or failed."""

    tools: Sequence[Installed]
    cache: Path
    stopwatch: Runner
    limits: Limits
    say: Callable[[str], None]
    fell_out: dict[str, str] = field(default_factory=dict)
    first_build_s: dict[str, tuple[int, float]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def at(self, size: int, names: Iterable[str] | None = None) -> list[Measurement]:
        """Measure everything at one size; with `names`, those tools alone."""
        graph = make_graph(size)
        wanted = None if names is None else set(names)
        projects: dict[str, Project] = {}
        found: list[Measurement] = []
        for each in self.tools:
            name = each.tool.name
            if wanted is not None and name not in wanted:
                continue
            reason = self._reason_not_to_try(each, size)
            if reason:
                found.append(Measurement(name, size, FIRST.name, NOT_TRIED, note=reason))
            else:
                projects[name] = self._project(each, graph)
        with_plan = {each.tool.name: projects[each.tool.name] for each in self._in(projects) if each.tool.plan}
        found += self._rounds(with_plan, (FIRST_PLAN,), self.limits.first_rounds, size)
        found += self._rounds(projects, (FIRST,), self.limits.first_rounds, size)
        found += self._rounds(projects, BUILT, self.limits.rounds, size)
        found += self._rounds(projects, (EDITED_INPUTS,), self.limits.rounds, size)
        ours = {each.tool.name: projects[each.tool.name] for each in self._in(projects) if each.tool.is_orch23}
        found += self._rounds(ours, (EDITED_STAGE,), self.limits.rounds, size)
        found += self._rounds(self._parallel(projects), (FIRST_TWO,), self.limits.first_rounds, size)
        for project in projects.values():
            shutil.rmtree(project.root, ignore_errors=True)
        return found + self._cat(projects, size)

    def _cat(self, among: Mapping[str, Project], size: int) -> list[Measurement]:
        """Measure the graph whose stages run `cat`."""
        if size > MOST_CAT:
            return []
        graph = make_graph(size, cat=True)
        projects = {each.tool.name: self._project(each, graph) for each in self._in(among) if each.tool.cat}
        started = list(projects.values())
        found = self._rounds(projects, (FIRST_CAT,), self.limits.first_rounds, size)
        found += self._rounds(projects, (NOTHING_CAT, LEAF_CAT), self.limits.rounds, size)
        for project in started:
            shutil.rmtree(project.root, ignore_errors=True)
        return found

    def starts(self, python: Path) -> list[Measurement]:
        """Measure what starting each tool costs, and what starting Python alone does."""
        folder = self.cache / "work"
        folder.mkdir(parents=True, exist_ok=True)
        plain = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        commands: dict[tuple[str, str], tuple[tuple[str, ...], Mapping[str, str]]] = {
            (PYTHON, VERSION.name): ((str(python), "-c", "pass"), plain),
        }
        for each in self.tools:
            if each.tool.only:
                continue
            with_tool = environment(each.tool, each.program, self.cache)
            commands[each.tool.name, VERSION.name] = (each.argv(each.tool.version), with_tool)
            commands[each.tool.name, HELP.name] = (each.argv(each.tool.help), with_tool)
        tallies = {key: _Tally() for key in commands}
        for _ in range(self.limits.rounds * 3):
            for key in random.sample(sorted(commands), len(commands)):
                argv, variables = commands[key]
                if sum(run.wall_s for run in tallies[key].runs) < SLOW_S:
                    tallies[key].runs.append(self.stopwatch.run(argv, folder, variables, self.limits.cap_s))
        return [
            measurement(tool=tool, size=0, scenario=scenario, runs=tally.runs, outcome=RIGHT)
            for (tool, scenario), tally in tallies.items()
        ]

    # ---- what takes part ------------------------------------------------------------------------

    def _reason_not_to_try(self, each: Installed, size: int) -> str:
        name = each.tool.name
        if name in self.fell_out:
            return self.fell_out[name]
        if name in self.first_build_s:
            before, took_s = self.first_build_s[name]
            if took_s * size / before > self._cap_s(each):
                return f"the first build of {before:,} stages took {took_s:,.0f} s"
        return ""

    def _cap_s(self, each: Installed) -> float:
        return self.limits.cap_s * (LENIENCE if isinstance(each.tool.source, FromTree) else 1)

    def _is_over(self) -> bool:
        """Say whether the time for all of it is over: what is left is then left out, and reported."""
        return time.monotonic() - self.began > self.limits.budget_s

    def _project(self, each: Installed, graph: Graph) -> Project:
        folder = self.cache / "work" / f"{each.tool.name.replace(' ', '-')}-{len(graph.stages)}"
        return Project(folder, graph, each.tool.describe)

    def _parallel(self, projects: dict[str, Project]) -> dict[str, Project]:
        """Return the projects of tools that can run two stages at once."""
        return {each.tool.name: projects[each.tool.name] for each in self._in(projects) if not each.tool.serial}

    def _in(self, projects: Mapping[str, Project]) -> list[Installed]:
        return [each for each in self.tools if each.tool.name in projects]

    # ---- rounds ---------------------------------------------------------------------------------

    def _rounds(
        self, projects: dict[str, Project], scenarios: Sequence[Scenario], rounds: int, size: int
    ) -> list[Measurement]:
        """Give each tool a run of each scenario, round by round; one that cannot go on leaves `projects`."""
        tallies: dict[tuple[str, str], _Tally] = {}
        for number in range(rounds):
            for scenario in scenarios:
                present = self._in(projects)
                for each in random.sample(present, len(present)):
                    tally = tallies.setdefault((each.tool.name, scenario.name), _Tally())
                    if self._is_over():
                        self._leave(tally)
                        continue
                    if tally.outcome in {FAILED, CAPPED} or (tally.runs and tally.runs[0].wall_s > SLOW_S):
                        continue
                    self._one(each, projects[each.tool.name], scenario, number, tally)
                    if tally.outcome in {FAILED, CAPPED} and scenario.command is not Command.PLAN:
                        self._drop(each, scenario, tally, size, projects)
        for (name, scenario_name), tally in tallies.items():
            if scenario_name == FIRST.name and tally.runs:
                self.first_build_s[name] = (size, min(run.wall_s for run in tally.runs))
        return [
            measurement(
                tool=name,
                size=size,
                scenario=scenario_name,
                runs=() if tally.outcome in {FAILED, CAPPED} else tally.runs,
                outcome=tally.outcome,
                ran=tally.ran,
                note=tally.note,
            )
            for (name, scenario_name), tally in tallies.items()
            if tally.runs or tally.outcome != RIGHT
        ]

    def _leave(self, tally: _Tally) -> None:
        if not tally.runs:
            tally.outcome, tally.note = NOT_TRIED, f"the {self.limits.budget_s:,.0f} s for all of it were over"

    def _drop(
        self, each: Installed, scenario: Scenario, tally: _Tally, size: int, projects: dict[str, Project]
    ) -> None:
        name = each.tool.name
        self.say(f"  {name} drops out at {size:,}, {scenario.name}: {tally.note}")
        projects.pop(name, None)
        if scenario in {FIRST, FIRST_TWO}:
            self.fell_out[name] = f"{scenario.name} of {size:,} stages: {tally.note}"

    def _one(self, each: Installed, project: Project, scenario: Scenario, number: int, tally: _Tally) -> None:
        """Give one tool one run of one scenario, and look at what came of it."""
        command = self._command(each, scenario)
        if command is None or (each.tool.only and scenario.name not in each.tool.only):
            return
        variables = environment(each.tool, each.program, self.cache)
        try:
            scenario.prepare(project, number)
        except OSError as error:  # what it should have built is not there
            tally.outcome, tally.note = FAILED, f"{error.strerror}: {error.filename}"
            return
        if each.tool.prepare and scenario in {*FIRST_BUILDS, FIRST_PLAN}:
            self.stopwatch.run(each.argv(each.tool.prepare), project.root, variables, self.limits.cap_s)
        before = project.stamps()
        if scenario.settled:
            time.sleep(SETTLED_S)
            self.stopwatch.run(each.argv(each.tool.build), project.root, variables, self._cap_s(each))
        if scenario in FIRST_BUILDS:
            os.sync()  # write the new files to disk first, so that no tool is measured with that work
        jobs = 2 if scenario.command is Command.BUILD_TWO else 1
        run = self.stopwatch.run(each.argv(command, jobs), project.root, variables, self._cap_s(each))
        tally.runs.append(run)
        self._judge(each, project, scenario, run, tally)
        if tally.outcome in {RIGHT, MISSED} and scenario in {LEAF, LEAF_CAT, IDENTICAL}:
            tally.ran = _ran(each, self.stopwatch.said(), before, project.stamps())

    def _judge(self, each: Installed, project: Project, scenario: Scenario, run: Run, tally: _Tally) -> None:
        if run.late:
            tally.outcome, tally.note = CAPPED, f"stopped after {self._cap_s(each):,.0f} s"
            return
        wrong = project.wrong() if scenario.builds and scenario.command is not Command.PLAN else []
        if scenario in {TAMPERED, EDITED_INPUTS} and wrong:
            self._put_right(each, project, scenario)
            tally.outcome, tally.note = MISSED, "an edit was not noticed"
        elif run.code != 0:
            tally.outcome, tally.note = FAILED, f"ended with {run.code}: {self.stopwatch.said()[-200:]}"
        elif wrong:
            tally.outcome, tally.note = FAILED, f"{len(wrong):,} outputs are not what they should be, first {wrong[0]}"

    def _put_right(self, each: Installed, project: Project, scenario: Scenario) -> None:
        """Take an edit back that a tool did not notice, and have it build what it has built from that."""
        if scenario is TAMPERED:
            project.tamper(project.graph.middle_output)  # twice is not at all
        for path in project.wrong():
            (project.root / path).unlink(missing_ok=True)
        variables = environment(each.tool, each.program, self.cache)
        self.stopwatch.run(each.argv(each.tool.build), project.root, variables, self._cap_s(each))

    def _command(self, each: Installed, scenario: Scenario) -> tuple[str, ...] | None:
        if scenario.command is Command.PLAN:
            return each.tool.plan
        if scenario.command is Command.REPAIR:
            return each.tool.repair or each.tool.build
        return each.tool.build


def _ran(
    each: Installed, said: str, before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]
) -> int:
    """Return how many stages ran: as the tool says, or else as many as were written again."""
    if not each.tool.says_ran:
        return sum(1 for path, stamp in after.items() if before.get(path) != stamp)
    found = re.search(each.tool.says_ran, said)
    return int(found[1].replace(",", "")) if found else 0


def elapsed(began: float) -> str:
    """Return how long ago something began, as text."""
    seconds = time.monotonic() - began
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
