"""The project that story tests play in does what it says."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.project import Project, decisions, files_answer, scripted


def test_a_run_sees_the_root_and_nothing_of_the_callers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "secret")
    monkeypatch.setenv("ORCH23_JOBS", "9")
    seen: dict[str, object] = {}

    def main(argv: Sequence[str]) -> int:
        seen.update(argv=list(argv), cwd=Path.cwd(), env=dict(os.environ))
        os.environ["LEFT"] = "1"
        os.chdir("/")
        return 3

    project = Project(tmp_path / "p", main=main)
    before = dict(os.environ), Path.cwd()
    outcome = project.run("build", "x.yaml", env={"ORCH23_COLOR": "never"})

    assert outcome.code == 3
    assert seen["argv"] == ["-C", str(project.root), "build", "x.yaml"]
    assert seen["cwd"] == project.root
    env = seen["env"]
    assert isinstance(env, dict)
    assert not {"EXAMPLE_API_KEY", "ORCH23_JOBS"} & env.keys()
    assert env["ORCH23_COLOR"] == "never"
    assert "PATH" in env
    assert (dict(os.environ), Path.cwd()) == before


def test_both_streams_are_kept_apart_with_bytes_and_text(tmp_path: Path) -> None:
    def main(_argv: Sequence[str]) -> int:
        sys.stdout.write('{"a": ')
        sys.stdout.buffer.write(b"1}")
        sys.stderr.write("progress é\n")
        assert not sys.stdout.isatty()
        return 0

    outcome = Project(tmp_path / "p", main=main).run()
    assert outcome.json() == {"a": 1}
    assert outcome.err == "progress é\n"


def test_a_traceback_on_stderr_fails_the_test(tmp_path: Path) -> None:
    def main(_argv: Sequence[str]) -> int:
        sys.stderr.write('oh\nTraceback (most recent call last):\n  File "x"\n')
        return 70

    with pytest.raises(AssertionError, match="a traceback on stderr"):
        Project(tmp_path / "p", main=main).run()


def test_what_orch23_raises_reaches_the_test(tmp_path: Path) -> None:
    def main(_argv: Sequence[str]) -> int:
        raise SystemExit(2)

    before = Path.cwd()
    with pytest.raises(SystemExit):
        Project(tmp_path / "p", main=main).run()
    assert Path.cwd() == before


def test_files_are_written_edited_read_listed_and_deleted(project: Project) -> None:
    project.write({"a/b.txt": "one two", "c.bin": b"\xff", ".orch23/x": "own", "logs/r.jsonl": "{}"})
    project.replace("a/b.txt", "two", "three")
    assert project.read("a/b.txt") == "one three"
    assert project.files() == {"a/b.txt": b"one three", "c.bin": b"\xff"}
    project.delete("c.bin")
    assert not project.exists("c.bin")


def test_an_edit_that_changes_nothing_is_a_mistake_of_the_test(project: Project) -> None:
    project.write({"a": "x"})
    with pytest.raises(AssertionError):
        project.edit("a", "x")
    with pytest.raises(AssertionError):
        project.replace("a", "y", "z")


def test_events_are_those_of_the_newest_run(project: Project) -> None:
    started = [{"type": "run_started", "role": "orch23"}, {"type": "stage_started", "role": "a"}]
    project.write(
        {
            "logs/20260101T000000Z-ff.jsonl": "".join(json.dumps(event) + "\n" for event in started),
            "logs/20260101T000000Z-aa.jsonl": '{"type": "run_started"}\n',
        }
    )
    os.utime(project.root / "logs/20260101T000000Z-aa.jsonl", ns=(1, 1))
    assert project.events() == started
    assert project.ran() == ["a"]
    assert project.events("20260101T000000Z-aa") == [{"type": "run_started"}]


def test_decisions_are_read_from_a_plans_json() -> None:
    plan = {"stages": [{"stage": "a", "action": "fresh", "reasons": []}, {"stage": "b", "action": "run"}]}
    assert decisions(plan) == decisions(json.dumps(plan)) == {"a": "fresh", "b": "run"}


def test_a_scripted_pipeline_is_three_files_that_name_each_other(project: Project) -> None:
    files = scripted(
        {"code": {"llm": {}, "outputs": ["a.py"]}},
        {"code": [files_answer({"a.py": "A = 1\n"})]},
        name="toy",
        jobs=1,
    )
    assert project.write(files).files().keys() == {"toy.yaml", "toy.answers.yaml", "toy.md.j2"}
    document = json.loads(files["toy.yaml"])
    assert document["defaults"]["llm"]["answers"] == "toy.answers.yaml"
    assert document["jobs"] == 1
    answer = json.loads(json.loads(files["toy.answers.yaml"])["code"][0])
    assert answer["writes"] == [{"path": "a.py", "content": "A = 1\n"}]
