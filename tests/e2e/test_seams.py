"""Moments between two steps of a build: an input saved while it is taken in, a crash before the lock is written."""

import pytest

from orch23.model.digest import Digest
from orch23.store.project_store import ProjectStore
from tests.e2e.pipelines import green, pipeline, shell
from tests.project import Project

COPY = "  copy: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}"


def test_an_input_that_is_saved_while_it_is_taken_in_is_taken_as_it_is_then(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(
        shell("  copy: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}", {"in.txt": "old\n"})
    )
    take = ProjectStore.add_file
    saved: list[str] = []

    def save_and_take(store: ProjectStore, path: str) -> Digest:
        if path == "in.txt" and not saved:
            saved.append(path)
            project.edit("in.txt", "newer\n")
        return take(store, path)

    monkeypatch.setattr(ProjectStore, "add_file", save_and_take)
    green(project.build())
    assert saved
    assert project.read("out.txt") == "newer\n"
    assert any("inputs changed while the stage was prepared" in e["message"] for e in project.events_of("warning"))
    assert project.build().err == "story: up to date (1 stage)\n"


def test_an_input_that_never_rests_ends_the_stage_and_not_the_patience(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(shell(COPY, {"in.txt": "0"}))
    take = ProjectStore.add_file
    saved: list[str] = []

    def save_and_take(store: ProjectStore, path: str) -> Digest:
        if path != "in.txt":
            return take(store, path)
        saved.append(path)
        project.edit("in.txt", "x" * 2 * len(saved))
        taken = take(store, path)
        project.edit("in.txt", "x" * (2 * len(saved) + 1))
        return taken

    monkeypatch.setattr(ProjectStore, "add_file", save_and_take)
    built = project.build()
    assert built.code == 1
    assert "E711" in built.err
    assert len(saved) < 10
    assert not project.exists("out.txt")


def test_what_a_run_had_finished_when_it_was_cut_off_is_taken_away_with_its_item(project: Project) -> None:
    project.write(
        pipeline(
            """
            each:
              foreach: {from: "items.json#/names", as: name}
              outputs: ["out/${{ name }}.txt"]
              shell: [touch, "out/${{ name }}.txt"]
            """,
            {"items.json": '{"names": ["a", "b"]}'},
        )
    )
    green(project.build())
    journal = project.journals()[-1]
    lines = journal.read_text().splitlines(keepends=True)
    assert '"run_finished"' in lines[-1]
    journal.write_text("".join(lines[:-1]))  # as a kill leaves it before the lock file is written
    project.delete("pipeline.lock")
    project.edit("items.json", '{"names": ["a"]}')
    green(project.build())
    assert project.exists("out/a.txt")
    assert not project.exists("out/b.txt")


def test_a_step_may_not_write_what_is_protected_inside_its_fence(project: Project) -> None:
    project.write(
        pipeline(
            """
            make:
              outputs: [build/a.txt]
              allowed_paths: {write: [build/], protect: [build/keep.txt]}
              shell: echo a > build/a.txt; echo b > build/keep.txt
            """
        )
    )
    built = project.build()
    assert built.code == 1
    assert "E306" in built.err
    assert "it is protected" in built.err
    assert not project.exists("build/a.txt")
