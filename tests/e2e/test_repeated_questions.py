"""A question that comes up again in one way through the attempts is another sample, and is recorded as such."""

import pytest

from tests.e2e.pipelines import calls
from tests.model_program import ROOT
from tests.project import Project


def project_of(project: Project) -> Project:
    project.write(
        {
            "ask.py": (
                "import json, os, pathlib, sys\n"
                "json.load(sys.stdin)\n"
                f"log = pathlib.Path({ROOT} + '-calls.log')\n"
                "n = len(log.read_text().splitlines()) if log.exists() else 0\n"
                "log.write_text('call\\n' * (n + 1))\n"
                "print(f'answer {n}')\n"
            ),
            "ask.j2": "the same question each time",
            "pipeline.yaml": (
                "version: 1\n"
                "stages:\n"
                "  a:\n"
                "    outputs: [build/a.txt]\n"
                "    llm: {provider: command, model: m, command: [python3, ask.py], prompt: ask.j2, returns: text}\n"
                "    verify:\n"
                "      - shell: grep -q 'answer 2' build/a.txt\n"
                "    retry: 3\n"
            ),
        }
    )
    return project


@pytest.mark.slow
def test_each_attempt_asks_something_new_and_a_rebuild_finds_all_of_it(project: Project) -> None:
    project_of(project)
    assert project.build().code == 0
    assert project.read("build/a.txt") == "answer 2\n"
    assert len(calls(project)) == 3
    project.delete("build/a.txt")
    project.delete("pipeline.lock")
    for path in sorted((project.root / ".orch23" / "records").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert project.build().code == 0
    assert project.read("build/a.txt") == "answer 2\n"
    assert len(calls(project)) == 3
