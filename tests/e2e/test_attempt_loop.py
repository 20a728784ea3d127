"""The attempt loop from outside: how often a model is asked, which, what it is told, and when the run gives up."""

import json

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, proposing, shell
from tests.project import Project, scripted

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran


def loop(project: Project, answer: str, *, more: str = "", verify: str = "grep good app.txt", head: str = "") -> None:
    """Write a pipeline of one stage whose prompt is answered by `answer` and whose result must have `good` in it."""
    project.write(
        pipeline(
            f"""\
  code:
    outputs: [app.txt]
    llm: {{prompt: p.md.j2, returns: text}}
    verify: [{{shell: {verify}}}]
{more}""",
            {"p.md.j2": prompt("attempt {{ attempt }}", answer)},
            head=head,
        )
    )


def attempts(project: Project) -> list[tuple[bool, str]]:
    return [(event["data"]["passed"], event["data"]["kind"]) for event in project.events_of("attempt_finished")]


def test_without_retry_there_is_one_attempt(project: Project) -> None:
    loop(project, "bad")
    failed = project.build()
    assert failed.code == 1
    assert calls(project) == ["attempt 1"]
    assert attempts(project) == [(False, "verify_failed")]
    assert not project.exists("app.txt")


@pytest.mark.needs("inspecting")
def test_the_exit_code_of_a_command_is_on_the_screen_and_no_word_of_a_verification(project: Project) -> None:
    stages = {"a": "exit 42", "b": "kill -9 $$", "c": "echo so > c.txt"}
    text = "".join(f"  {name}: {{outputs: [{name}.txt], shell: {command}}}\n" for name, command in stages.items())
    text = text.replace("c.txt}", "c.txt, verify: [{shell: exit 3}]}")
    project.write(pipeline(text))
    failed = project.build("--keep-going")
    assert failed.code == 1
    assert "verify_failed" not in failed.err
    for command, ended in (
        ("exit 42", "exited with 42"),
        ("kill -9 $$", "exited with 137 (SIGKILL)"),
        ("exit 3", "verify: exited with 3"),
    ):
        assert f"  $ {command}\n  {ended} after " in failed.err
    assert {kind for _, kind in attempts(project)} == {"verify_failed"}  # the kind that `retry.when` names
    assert "\nexited with 42\n$ bash" in project.run("show", "a").out


def test_a_later_attempt_is_reported_the_failure_and_may_pass(project: Project) -> None:
    reported = "{{ brief.kind }}: {{ brief.command }} exit {{ brief.exit_code }}"
    answer = f"{{% if brief %}}good, since {reported}{{% else %}}bad{{% endif %}}"
    loop(project, answer, more="    retry: 5\n")
    green(project.build())
    assert calls(project) == ["attempt 1", "attempt 2"]
    assert project.read("app.txt").startswith("good, since verify_failed: ")
    assert "exit 1" in project.read("app.txt")


@pytest.mark.slow
def test_retry_counts_attempts_after_the_first(project: Project) -> None:
    loop(project, "bad {{ attempt }}", more="    retry: 3\n")
    assert project.build().code == 1
    assert calls(project) == [f"attempt {n}" for n in (1, 2, 3, 4)]


def test_a_failure_that_retry_does_not_name_is_final(project: Project) -> None:
    loop(project, "bad {{ attempt }}", more="    retry: {max: 3, when: [llm_output_invalid]}\n")
    assert project.build().code == 1
    assert calls(project) == ["attempt 1"]


def test_an_invalid_answer_is_reported_to_the_next_attempt(project: Project) -> None:
    answer = '{% if brief %}{"n": 1}{% else %}{"n": {% endif %}'
    project.write(
        pipeline(
            "  ask: {outputs: [a.json], llm: {prompt: p.md.j2, returns: json}, retry: 1}\n",
            {"p.md.j2": prompt("ask {{ brief.kind if brief else '' }}", answer)},
        )
    )
    green(project.build())
    assert calls(project) == ["ask", "ask llm_output_invalid"]
    assert json.loads(project.read("a.json")) == {"n": 1}


def test_a_proposal_outside_of_the_fence_is_a_failure_of_the_work_and_briefs_the_next(project: Project) -> None:
    first, second = proposing("x", {"evil.txt": "'e'"}), proposing("x", {"app.txt": "'a'"})
    answer = f"{{% if brief %}}{second.partition(chr(10))[2]}{{% else %}}{first.partition(chr(10))[2]}{{% endif %}}"
    project.write(
        pipeline(
            "  code: {outputs: [app.txt], llm: {prompt: p.md.j2, returns: files}, retry: 1}\n",
            {"p.md.j2": prompt("code {{ brief.kind if brief else '' }}", answer)},
        )
    )
    green(project.build())
    assert calls(project) == ["code", "code write_scope_violation"]
    assert not project.exists("evil.txt")


STEPS = """\
  code:
    allowed_paths: {write: [app/]}
    outputs: [app/a.txt]
    llm: {prompt: p.md.j2, returns: files}
    verify: [{shell: cat app/*.txt > /dev/null; test -e app/b.txt}]
    retry: {max: 1, from: FROM}
"""


@pytest.mark.parametrize(("start", "code"), [("current", 0), ("baseline", 1)])
def test_from_says_what_the_next_attempt_starts_with(project: Project, start: str, code: int) -> None:
    one, two = proposing("x", {"app/a.txt": "'a'"}), proposing("x", {"app/b.txt": "'b'"})
    answer = f"{{% if brief %}}{two.partition(chr(10))[2]}{{% else %}}{one.partition(chr(10))[2]}{{% endif %}}"
    project.write(pipeline(STEPS.replace("FROM", start), {"p.md.j2": prompt("code", answer)}))
    assert project.build().code == code, "a.txt is still there only if the second attempt patches the first"
    assert sorted(project.files("app")) == (["app/a.txt", "app/b.txt"] if code == 0 else [])


@pytest.mark.slow
def test_a_retry_has_a_prompt_of_its_own(project: Project) -> None:
    loop(project, "bad", more="    retry: {max: 1, prompt: patch.md.j2}\n")
    project.write({"patch.md.j2": prompt("patch {{ previous }}", "good")})
    green(project.build())
    assert [one.split() for one in calls(project)] == [["attempt", "1"], ["patch", "bad"]]
    project.replace("patch.md.j2", "good", "good too")
    assert project.plan() == {"code": "fresh"}, "what a later attempt is asked with is no part of the key"


@pytest.mark.slow
def test_the_same_failure_in_a_row_ends_the_loop_early(project: Project) -> None:
    loop(project, "bad {{ attempt }}", more="    retry: {max: 9, no_progress: 3}\n")
    failed = project.build()
    assert failed.code == 1
    assert len(calls(project)) == 3
    assert "no progress" in failed.err


def test_a_proposal_seen_before_ends_the_loop_early(project: Project) -> None:
    loop(project, "bad", more="    retry: {max: 9, no_progress: 5}\n")
    failed = project.build()
    assert len(calls(project)) == 2
    assert "no progress" in failed.err


@pytest.mark.slow
def test_attempt_n_asks_model_n_and_the_last_repeats(project: Project) -> None:
    loop(project, "bad {{ attempt }}", more="    retry: {max: 3, escalate: [small, large]}\n")
    assert project.build().code == 1
    asked = [event["data"]["model"] for event in project.events_of("llm_request")]
    assert asked == ["small", "large", "large", "large"]


def test_a_kept_failure_reaches_the_workspace_and_stays_a_failure(project: Project) -> None:
    loop(project, "bad {{ attempt }}\n", more="    retry: 1\n    on_failure: keep\n")
    assert project.build().code == 1
    assert project.read("app.txt") == "bad 2\n"
    assert project.plan() == {"code": "run"}


def test_a_broken_requirement_asks_no_model(project: Project) -> None:
    loop(project, "good", more="    requires: {file_exists: go.txt}\n    retry: 3\n")
    failed = project.build()
    assert failed.code == 1
    assert calls(project) == []
    assert "go.txt" in failed.err
    project.write({"go.txt": ""})
    green(project.build())
    assert calls(project) == ["attempt 1"]


@pytest.mark.slow
def test_a_directory_may_be_required_to_be_empty_but_for_what_the_stage_made_itself(project: Project) -> None:
    more = "    outputs: [app/]\n    requires: {file_absent: app/, file_exists: lib/}\n"
    answer = proposing("x", {"app/a.txt": "inputs['in.txt'].text"}).partition("\n")[2]
    stage = f"  code:\n    inputs: [in.txt]\n    llm: {{prompt: p.md.j2, returns: files}}\n{more}"
    project.write(pipeline(stage, {"p.md.j2": prompt("code", answer), "in.txt": "1", "app/mine.txt": "mine"}))
    failed = project.build()
    assert failed.code == 1
    assert "requires file_absent app/: there is app/mine.txt" in failed.err
    assert "requires file_exists lib/: there is no file" in failed.err
    assert calls(project) == []
    project.delete("app/mine.txt")
    project.write({"lib/below/l.txt": ""})
    green(project.build())
    project.edit("in.txt", "2")
    green(project.build())
    assert project.files("app") == {"app/a.txt": b"2"}


def test_what_a_stage_ensures_is_held_against_its_result(project: Project) -> None:
    project.write(
        shell(
            """\
  make:
    inputs: [in.txt]
    outputs: [out/]
    shell: mkdir -p out && for n in $(cat in.txt); do touch out/$n; done
    ensures: [{kind: file_exists, path: out/a}, {kind: file_absent, path: out/b}]
""",
            {"in.txt": "a b"},
        )
    )
    failed = project.build()
    assert failed.code == 1
    assert "out/b" in failed.err
    assert not project.exists("out")
    project.edit("in.txt", "a")
    green(project.build())


@pytest.mark.slow
def test_a_step_that_takes_too_long_is_killed_and_is_never_cached(project: Project) -> None:
    project.write(
        shell(
            f"  slow: {{outputs: [x.txt], timeout: 0.3s, shell: '{note(project, 'slow')}; sleep 30; echo x > x.txt'}}\n"
        )
    )
    for count in (1, 2):
        assert project.build().code == 1
        assert len(noted(project)) == count
        assert "timeout" in project.events_of("stage_finished")[0]["data"]["kind"]


# ---- stop conditions -----------------------------------------------------------------------------


THREE = "".join(f"  ask{n}: {{outputs: [a{n}.txt], llm: {{prompt: p{n}.md.j2, returns: text}}}}\n" for n in (1, 2, 3))
PROMPTS = {f"p{n}.md.j2": prompt(f"ask{n}", f"answer {n}") for n in (1, 2, 3)}


@pytest.mark.slow
def test_the_limit_of_calls_ends_the_run_and_the_next_one_goes_on(project: Project) -> None:
    project.write(pipeline(THREE, PROMPTS, head="stop_conditions: {max_llm_calls: 2}\n"))
    stopped = project.build("-j1")
    assert stopped.code == 4
    assert calls(project) == ["ask1", "ask2"]
    assert "max_llm_calls" in stopped.err
    assert project.exists("a2.txt")
    green(project.build("-j1"))
    assert calls(project) == ["ask1", "ask2", "ask3"], "what is paid for is kept"


@pytest.mark.slow
def test_recorded_answers_do_not_count_against_the_limit(project: Project) -> None:
    project.write(pipeline(THREE, PROMPTS, head="stop_conditions: {max_llm_calls: 3}\n"))
    green(project.build())
    project.write(pipeline(THREE, PROMPTS, head="stop_conditions: {max_llm_calls: 1}\n"))
    for n in (1, 2, 3):
        project.delete(f"a{n}.txt")
    project.delete("pipeline.lock")
    green(project.build("--force", "ask1", "--force", "ask2", "--force", "ask3"))
    assert len(calls(project)) == 3


@pytest.mark.slow
def test_the_limit_of_wall_time_ends_the_run(project: Project) -> None:
    project.write(
        shell(
            """\
  quick: {outputs: [q.txt], shell: echo q > q.txt}
  slow: {needs: [quick], outputs: [s.txt], shell: sleep 30; echo s > s.txt}
""",
            head="stop_conditions: {max_wall: 1s}\n",
        )
    )
    stopped = project.build()
    assert stopped.code == 4
    assert "max_wall" in stopped.err
    assert project.exists("q.txt")
    assert project.plan() == {"quick": "fresh", "slow": "run"}


FAILING = (
    "".join(f"  f{n}: {{shell: exit 1}}\n" for n in (1, 2, 3)) + "  good: {outputs: [g.txt], shell: echo g > g.txt}\n"
)


def test_the_first_failure_ends_the_run_unless_reported_to_keep_going(project: Project) -> None:
    project.write(shell(FAILING))
    assert project.build("-j1").code == 1
    assert project.ran() == ["f1"]
    assert project.build("-j1", "-k").code == 1
    assert project.ran() == ["f1", "f2", "f3", "good"]
    assert project.exists("g.txt")


def test_the_limit_of_failed_stages_counts_them(project: Project) -> None:
    project.write(shell(FAILING, head="stop_conditions: {max_failed_stages: 2}\n"))
    assert project.build("-j1").code == 1
    assert project.ran() == ["f1", "f2"]
    assert ends(project)["good"] == "blocked"


def test_keep_going_blocks_only_what_needs_a_failure(project: Project) -> None:
    project.write(
        shell("""\
  bad: {outputs: [b.txt], shell: exit 1}
  after: {inputs: [b.txt], outputs: [c.txt], shell: cp b.txt c.txt}
  aside: {outputs: [d.txt], shell: echo d > d.txt}
""")
    )
    assert project.build("-k").code == 1
    assert ends(project) == {"bad": "failed", "after": "blocked", "aside": "built"}


@pytest.mark.slow
def test_a_finished_failed_run_does_not_count_against_the_next(project: Project) -> None:
    loop(project, "bad {{ attempt }}", more="    retry: 1\n", head="stop_conditions: {max_llm_calls: 2}\n")
    assert project.build().code == 1
    assert project.build().code == 1, "the answers are recorded, so that the second failure is free"
    assert len(calls(project)) == 2
    project.replace("p.md.j2", "bad", "worse")
    assert project.build().code == 1
    assert len(calls(project)) == 4


def test_an_edited_scripted_answer_makes_its_stage_stale_and_no_other(project: Project) -> None:
    stages = {name: {"outputs": [f"{name}.txt"], "llm": {"returns": "text"}} for name in ("a", "b")}
    project.write(scripted(stages, {"a": ["one"], "b": ["two"]}))
    green(project.build())
    project.write(scripted(stages, {"a": ["three"], "b": ["two"]}))
    assert project.plan() == {"a": "run", "b": "fresh"}
    green(project.build())
    assert project.read("a.txt") == "three\n"
    project.write(scripted(stages, {"a": ["one"], "b": ["two"]}))
    assert project.plan() == {"a": "restore", "b": "fresh"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("'echo made > a.txt #{}'", 0),
        ("'echo no; exit 3 #{}'", 1),
        ("'nosuchprogram #{}'", 1),
        ("[sh, -c, 'exit 3', '{}']", 1),
    ],
)
def test_a_command_of_any_length_is_run_or_refused_and_never_printed_whole(
    project: Project, command: str, code: int
) -> None:
    project.write(pipeline(f"  a: {{outputs: [a.txt], shell: {command.format('x' * 262_144)}}}\n"))
    outcome = project.build("--verbose")
    assert outcome.code == code, outcome.err[:2000]
    assert len(outcome.err) < 3_000
    assert len(project.run("show", "a").out) < 3_000
    assert len(project.run("log").out) < 5_000
    assert code == 1 or project.read("a.txt") == "made\n"
