"""Some three hundred malformed inputs, each through the command line: one complaint at its place, and nothing else."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.corpus.reading import answers
from tests.hostile.holding import LIMIT_S, MORE_BYTES, Case, hold, judge, snapshot
from tests.hostile.pipelines import PIPELINES
from tests.hostile.stores import STORES
from tests.hostile.templates import TEMPLATES
from tests.hostile.values import ANSWERS, LISTS, SCHEMAS, VARS_FILES
from tests.project import Outcome, Project
from tests.unit.load.test_hostile import CASES as LOADED

KINDS: Mapping[str, Mapping[str, Case]] = {
    "pipeline": PIPELINES,
    "vars": VARS_FILES,
    "list": LISTS,
    "answers": ANSWERS,
    "schema": SCHEMAS,
    "template": TEMPLATES,
    "store": STORES,
}
ALL = {f"{kind}: {name}": case for kind, cases in KINDS.items() for name, case in cases.items()}
BY_ITSELF = (  # what could end a process, or outlive it
    *("pipeline: 200 kB of [", "pipeline: 200 kB of {", "pipeline: deep by indentation", "pipeline: a billion laughs"),
    *("pipeline: a pipe", "pipeline: a link to a device", "pipeline: a name that is no text", "list: 200 kB of ["),
    *("schema: a reference to itself", "schema: a pattern without end", "template: loops in loops"),
    *("template: a thousand brackets that close", "template: a macro that calls itself", "store: lock: 200 kB of ["),
)


def _of_a_second_proof(name: str, number: int) -> bool:
    """Say whether a case is left out of the quick tests: of each kind some stay, and all that has to be bounded."""
    kind = name.partition(":")[0]
    if kind == "store":
        return True  # a green build comes first
    return number % (2 if kind in {"pipeline", "template"} else 3) != 0


@pytest.mark.slow
@pytest.mark.stride(13)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if _of_a_second_proof(name, number) else name
        for number, name in enumerate(ALL)
    ],
)
def test_a_malformed_input_is_reported_once_and_does_nothing(project: Project, name: str) -> None:
    hold(project, ALL[name])


def bounded() -> None:
    """Let a process take so much of the processor, of addresses and no more."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (2 * MORE_BYTES, 2 * MORE_BYTES))


@pytest.mark.stride(9)
@pytest.mark.slow
@pytest.mark.parametrize("name", BY_ITSELF)
def test_no_malformed_input_ends_a_process_by_a_signal(project: Project, name: str) -> None:
    case = ALL[name]
    project.write(case.files)
    if case.before:
        assert project.run(*case.before).code == 0
    if case.spoil is not None:
        case.spoil(project)
    before = snapshot(project.root)
    done = subprocess.run(
        [sys.executable, "-c", "from orch23.entry import run; run()", *map(os.fsencode, case.argv)],
        cwd=project.root,
        env={
            "PATH": os.defpath,
            "HOME": str(project.home),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "ORCH23_TRUST": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=50,
        check=False,
        preexec_fn=bounded,
    )
    assert done.returncode >= 0, signal.Signals(-done.returncode)
    judge(Outcome(done.returncode, done.stdout.decode(), done.stderr.decode()), case)
    changed = {path for path, held in snapshot(project.root).items() if before.get(path) != held}
    assert {path for path in changed if not f"{path}/".startswith(("logs/", ".orch23/", "pipeline.lock/"))} == set()


def test_the_table_is_as_large_as_the_docs_say() -> None:
    counts = {kind: len(cases) for kind, cases in KINDS.items()}
    assert all(count >= 10 for count in counts.values()), counts
    assert sum(counts.values()) >= 250, counts
    assert len(LOADED) + len(answers("bad")) >= 250
    assert set(BY_ITSELF) <= set(ALL)
