"""Results that are soon made again are promoted many at a time, and nobody can tell but by the time that it takes."""

import pytest

from orch23.engine import result_writer
from tests.e2e.pipelines import ends, green, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

CHAIN = "".join(
    f"  s{n}: {{shell: [cp, f{n}.txt, f{n + 1}.txt], inputs: [f{n}.txt], outputs: [f{n + 1}.txt]}}\n" for n in range(5)
)


@pytest.fixture
def gathers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every result wait until nothing runs, however slow the machine is."""
    monkeypatch.setattr(result_writer, "_SOON_S", 600.0)
    monkeypatch.setattr(result_writer, "_PATIENCE_S", 600.0)


def kinds(project: Project, *wanted: str) -> list[tuple[str, str]]:
    """Return type and stage of these events, in order."""
    return [(event["type"], event["role"]) for event in project.events() if event["type"] in wanted]


@pytest.mark.usefixtures("gathers_all")
def test_stages_see_what_is_gathered_and_all_is_promoted_before_any_of_it_is_reported_to_be_done(
    project: Project,
) -> None:
    project.write(shell(CHAIN, {"f0.txt": "text\n"}))
    green(project.build("-j2"))
    names = [f"s{n}" for n in range(5)]
    assert kinds(project, "stage_started", "promoted", "stage_finished") == [
        (kind, name) for kind in ("stage_started", "promoted", "stage_finished") for name in names
    ]
    assert project.read("f5.txt") == "text\n"
    assert set(project.plan().values()) == {"fresh"}


def test_what_took_long_is_promoted_by_itself_and_at_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_writer, "_SOON_S", -1.0)
    project.write(shell(CHAIN, {"f0.txt": "text\n"}))
    green(project.build("-j2"))
    names = [f"s{n}" for n in range(5)]
    assert kinds(project, "stage_started", "stage_finished") == [
        (kind, name) for name in names for kind in ("stage_started", "stage_finished")
    ]


def test_the_next_stage_works_while_what_was_gathered_is_committed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_writer, "_SOON_S", 600.0)
    monkeypatch.setattr(result_writer, "_MOST", 1)
    project.write(shell(CHAIN, {"f0.txt": "text\n"}))
    green(project.build("-j1"))
    started = [("stage_started", f"s{n}") for n in range(5)]
    finished = [("stage_finished", f"s{n}") for n in range(5)]
    reported = [one for pair in zip(started[1:], finished, strict=False) for one in pair]
    assert kinds(project, "stage_started", "stage_finished") == [started[0], *reported, finished[-1]]


@pytest.mark.usefixtures("gathers_all")
def test_a_stage_that_failed_is_reported_after_those_that_were_done_before_it(project: Project) -> None:
    project.write(shell(CHAIN + "  z: {shell: 'exit 3', inputs: [f5.txt]}\n", {"f0.txt": "text\n"}))
    assert project.build("-j1").code == 1
    assert [name for _, name in kinds(project, "stage_finished")] == ["s0", "s1", "s2", "s3", "s4", "z"]
    assert ends(project) == {**{f"s{n}": "built" for n in range(5)}, "z": "failed"}
    assert project.read("f5.txt") == "text\n"


@pytest.mark.usefixtures("gathers_all", "steps_reach_outside")
def test_what_comes_after_a_file_that_somebody_edited_meanwhile_is_not_promoted(project: Project) -> None:
    stages = "  a: {shell: 'echo a > a.txt', outputs: [a.txt]}\n"
    stages += f"  b: {{inputs: [a.txt], outputs: [b.txt], shell: 'cp a.txt b.txt; echo mine > {project.root}/a.txt'}}\n"
    stages += "  c: {inputs: [b.txt], outputs: [c.txt], shell: [cp, b.txt, c.txt]}\n"
    stages += "  d: {outputs: [d.txt], shell: 'echo d > d.txt'}\n"
    project.write(shell(stages))
    assert project.build("-j1").code == 6
    assert ends(project) == {"a": "edited", "b": "blocked", "c": "blocked", "d": "built"}
    assert project.read("a.txt") == "mine\n"
    assert not project.exists("b.txt")
    assert project.read("d.txt") == "d\n"
