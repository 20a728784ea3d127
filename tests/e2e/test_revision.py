"""Revision from outside: what each attempt is sent of the failures before it, and when nobody is asked any more.

The model is a double that remembers every request as it would have left the machine.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from orch23.model.llm import Request, Response, Usage
from orch23.providers import registry
from tests.doubles import FakeProvider, adapter_with
from tests.project import Outcome, Project, files_answer

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

PROMPT = """\
ATTEMPT {{ attempt }}
{% for one in inputs %}FILE {{ one.path }}
{{ one.text }}
{% endfor %}{% if previous %}PREVIOUS {{ previous }}
{% endif %}{% if brief %}KIND {{ brief.kind }}
COMMAND {{ brief.command }}
EXIT {{ brief.exit_code }}
FAILING {{ brief.failing | join(", ") }}
{% for line in brief.diagnostics %}{{ line }}
{% endfor %}{% for line in brief.constraints %}BOUND {{ line }}
{% endfor %}EXCERPT {{ brief.excerpt }}
END{% endif %}
"""

Model = Callable[[Sequence[str | Response] | Callable[[Request], str | Response]], FakeProvider]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Give what puts a double in the place of the model, for every attempt of every stage."""

    def put(answers: Any) -> FakeProvider:
        provider = FakeProvider(answers)
        adapter = adapter_with(
            "command", make=lambda *_: provider, check=lambda *_: (), ready=lambda *_: (), consent=lambda *_: None
        )
        monkeypatch.setattr(registry, "ADAPTERS", {**registry.ADAPTERS, "command": adapter})
        return provider

    return put


def stage(project: Project, files: Mapping[str, str] | None = None, /, **keys: Any) -> None:
    """Write a pipeline of one llm stage; `llm` adds to its step, all other keys to the stage."""
    llm = {"provider": "command", "model": "m", "command": ["never"], "prompt": "p.j2", **keys.pop("llm", {})}
    document = {"version": 1, "name": "story", "stages": {"code": {"outputs": ["app.txt"], **keys, "llm": llm}}}
    project.write({"pipeline.yaml": json.dumps(document, indent=2), "p.j2": PROMPT, **(files or {})})


def prompts(provider: FakeProvider) -> list[str]:
    return ["\n".join(message.content for message in request.messages) for request in provider.requests]


def excerpt(prompt: str) -> str:
    return prompt.partition("EXCERPT ")[2].rpartition("\nEND")[0]


def kinds(project: Project) -> list[str]:
    return [event["data"]["kind"] for event in project.events_of("attempt_finished")]


def failed(outcome: Outcome) -> Outcome:
    assert outcome.code == 1, f"exit {outcome.code}\n{outcome.err}"
    return outcome


# ---- what the next attempt is told ---------------------------------------------------------------


def test_all_that_is_wrong_with_a_proposal_is_reported_at_once_coded_and_with_a_way_out(
    project: Project, model
) -> None:
    first = files_answer({"src/a.py": "def f(:\n", "../x": "1", "tests/t.py": "x = 1\n", "src/conftest.py": ""})
    provider = model([first, files_answer({"src/a.py": "x = 1\n"})])
    fence = {"write": ["ws/src/"], "protect": ["ws/src/locked.py"]}
    stage(project, outputs=["ws/src/a.py"], cwd="ws", allowed_paths=fence, llm={"returns": "files"}, retry=1)
    assert project.build().code == 0
    one, two = prompts(provider)
    assert "KIND" not in one
    assert "PREVIOUS" not in one
    assert f"PREVIOUS {first}" in two
    assert "KIND write_scope_violation" in two
    for line in (
        "[E205] ../x: the path climbs out with `..`. Fix: name the file by a plain relative path with `/`, such as",
        "[E204] tests/t.py: is outside the write scope. Fix: allowed are, relative to `ws`: src/.",
        "[E208] src/conftest.py: is a protected file. Fix: leave it out: only a literal entry of",
        "[E215] src/a.py: line 1: invalid syntax. Fix: write a file that parses",
    ):
        assert line in two
    assert [line for line in two.splitlines() if line.startswith("BOUND")] == [
        "BOUND write only: src/",
        "BOUND never write: src/locked.py",
        "BOUND paths are relative to: ws",
    ]
    assert sorted(project.files("ws")) == ["ws/src/a.py"]


def test_a_validators_error_has_the_form_of_the_seeds(project: Project, model) -> None:
    schema = {"type": "object", "required": ["tasks"], "properties": {"tasks": {"type": "array"}}}
    provider = model(['{"tasks": 1}', '{"tasks": []}'])
    llm = {"returns": "json", "schema": "s.json"}
    stage(project, {"s.json": json.dumps(schema)}, outputs=["plan.json"], llm=llm, retry=1)
    assert project.build().code == 0
    coded = [line for line in prompts(provider)[1].splitlines() if line.startswith("[E")]
    assert coded
    assert all(line.partition("] ")[2].partition(": ")[0] for line in coded), "the place is named"
    assert all(line.endswith(".") and ".." not in line for line in coded)


def test_each_attempt_is_a_request_of_its_own_and_no_chat(project: Project, model) -> None:
    provider = model(["one", "two", "three"])
    stage(project, llm={"returns": "text"}, verify=[{"shell": "grep -q three app.txt"}], retry=5)
    assert project.build().code == 0
    assert [len(request.messages) for request in provider.requests] == [1, 1, 1]
    first, second, third = prompts(provider)
    assert "PREVIOUS one" in second
    assert "PREVIOUS two" in third
    assert "one" not in third.replace("one.", ""), "nothing of an earlier attempt than the last"
    assert [prompt.splitlines()[0] for prompt in (first, second, third)] == ["ATTEMPT 1", "ATTEMPT 2", "ATTEMPT 3"]
    assert kinds(project) == ["verify_failed", "verify_failed", ""]


def test_a_previous_answer_is_bounded(project: Project, model) -> None:
    provider = model(["x" * 50_000, "good"])
    stage(
        project,
        llm={"returns": "text"},
        verify=[{"shell": "grep -q good app.txt"}],
        retry={"max": 1, "from": "baseline"},
    )
    assert project.build().code == 0
    assert 15_000 < prompts(provider)[1].count("x") < 25_000


@pytest.mark.parametrize(
    ("output", "length"), [(4000, 4000), (4001, 3505), (60_000, 3505)], ids=["just fits", "one over", "far over"]
)
def test_the_excerpt_is_cut_to_the_character(project: Project, model, output: int, length: int) -> None:
    provider = model(["bad", "good"])
    command = f"grep -q good app.txt || {{ python3 -c \"print('h' * {output - 1000} + 't' * 1000, end='')\"; exit 1; }}"
    stage(project, llm={"returns": "text"}, verify=[{"shell": command}], retry=1)
    assert project.build().code == 0
    reported = excerpt(prompts(provider)[1])
    assert len(reported) == length
    if output > 4000:
        assert reported == "h" * 2500 + "\n...\n" + "t" * 1000


def test_a_stage_may_cut_it_shorter(project: Project, model) -> None:
    provider = model(["bad", "good"])
    command = "grep -q good app.txt || { printf 'abcdefghijklmnop'; exit 1; }"
    brief = {"limit": 10, "head": 4, "tail": 2}
    stage(project, llm={"returns": "text", "brief": brief}, verify=[{"shell": command}], retry=1)
    assert project.build().code == 0
    assert excerpt(prompts(provider)[1]) == "abcd\n...\nop"


TESTS = """\
from app import double


def test_double():
    assert double(2) == 4


def test_zero():
    assert double(0) == 0
"""


def test_a_red_run_of_pytest_is_reported_by_its_report(project: Project, model) -> None:
    provider = model(
        ["```python\ndef double(x):\n    return x + 1\n```", "```python\ndef double(x):\n    return 2 * x\n```"]
    )
    verify = {"inputs": ["test_app.py"], "steps": [{"pytest": {"paths": ["test_app.py"]}}]}
    stage(project, {"test_app.py": TESTS}, outputs=["app.py"], llm={"returns": "code"}, verify=verify, retry=1)
    assert project.build().code == 0
    reported = prompts(provider)[1]
    assert "KIND verify_failed" in reported
    assert "FAILING test_app.py::test_double AssertionError, test_app.py::test_zero AssertionError" in reported
    assert "EXIT 1" in reported
    assert "[E301] test_app.py::test_double: failed with AssertionError." in reported
    assert excerpt(reported).lstrip().startswith("2 failed\n\ntest_app.py::test_double (call): AssertionError\n")
    assert "assert 3 == 4" in excerpt(reported)
    assert "short test summary" not in excerpt(reported), (
        "what pytest prints for people says less, and differs each time"
    )
    assert "def double" in reported, "the file as the attempt left it is shown"


def test_another_wording_of_the_same_failure_is_the_same_request(project: Project, model) -> None:
    """The excerpt is sent, and only kind, command, codes and failing ids are in the fingerprint."""
    prints = []
    for wording in ("it is 3, not 4", "Expected 4 and got 3"):
        provider = model(["bad", "good"])
        command = "grep -q good app.txt || { cat said.txt; exit 1; }"
        verify = {"inputs": ["said.txt"], "steps": [{"shell": command}]}
        other = Project(project.root.parent / wording[:2])
        stage(other, {"said.txt": wording}, llm={"returns": "text"}, verify=verify, retry=1)
        assert other.build().code == 0
        assert wording in prompts(provider)[1]
        prints.append([request.fingerprint() for request in provider.requests])
    assert prints[0] == prints[1]


# ---- what a model is given -----------------------------------------------------------------------

GIVEN = {f"in/{name}.txt": name * 100 for name in "abcdefghij"}


@pytest.mark.parametrize(("files", "bytes_", "problems"), [(10, 1000, 0), (9, 1000, 1), (10, 999, 1), (9, 999, 2)])
def test_what_a_model_is_given_has_a_limit_that_names_what_was_counted(
    project: Project, model, files: int, bytes_: int, problems: int
) -> None:
    provider = model(["good"])
    llm = {"returns": "text", "context": {"max_files": files, "max_bytes": bytes_}}
    stage(project, GIVEN, inputs=["in/*.txt"], llm=llm, retry=3)
    outcome = project.build()
    assert outcome.err.count("[E834]") == problems
    assert len(provider.requests) == (0 if problems else 1), "over the limit nobody is asked, not even again"
    assert outcome.code == (1 if problems else 0)
    if problems:
        assert "in/a.txt (100), in/b.txt (100)" in outcome.err


def test_by_default_ten_files_and_200_kilobytes_are_given(project: Project, model) -> None:
    model(["good"])
    stage(project, {**GIVEN, "in/k.txt": "x" * 200_000}, inputs=["in/*.txt"], llm={"returns": "text"})
    said = failed(project.build()).err
    assert "11 inputs are given to the model, the limit is 10: in/k.txt (200,000), in/a.txt (100)" in said
    assert "and 1 more" in said
    assert "201,000 bytes of inputs are given to the model, the limit is 200,000" in said


# ---- when no one is asked any more ---------------------------------------------------------------


def test_every_judged_answer_is_an_attempt_whatever_was_wrong_with_it(project: Project, model) -> None:
    answers = [
        "no JSON",
        files_answer({"../x": ""}),
        "{}",
        files_answer({"app.txt": "bad"}),
        files_answer({"app.txt": "good"}),
    ]
    provider = model(answers)
    stage(project, llm={"returns": "files"}, verify=[{"shell": "grep -q good app.txt"}], retry=3)
    failed(project.build())
    assert kinds(project) == ["llm_output_invalid", "write_scope_violation", "llm_output_invalid", "verify_failed"]
    assert len(provider.requests) == 4
    assert not project.exists("app.txt")


def test_different_output_of_a_command_is_progress(project: Project, model) -> None:
    provider = model([f"bad {n}" for n in range(5)])
    stage(
        project, llm={"returns": "text"}, verify=[{"shell": "cat app.txt; exit 1"}], retry={"max": 4, "no_progress": 2}
    )
    failed(project.build())
    assert len(provider.requests) == 5


def test_the_same_output_is_none_though_its_durations_and_addresses_differ(project: Project, model) -> None:
    provider = model([f"bad in 0.{n}1s at 0x7f00{n}a" for n in range(5)])
    stage(
        project, llm={"returns": "text"}, verify=[{"shell": "cat app.txt; exit 1"}], retry={"max": 4, "no_progress": 2}
    )
    assert "no progress: the same failure 2 times in a row" in failed(project.build()).err
    assert len(provider.requests) == 2


@pytest.mark.parametrize("answer", ["still no JSON", files_answer({"../x": ""}), files_answer({"app.txt": "bad"})])
def test_an_answer_seen_before_is_no_progress(project: Project, model, answer: str) -> None:
    provider = model([answer] * 9)
    stage(project, llm={"returns": "files"}, verify=[{"shell": "exit 1"}], retry={"max": 8, "no_progress": 5})
    assert "no progress: this response was made before" in failed(project.build()).err
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [(Response(text="I will not", stop="refusal"), "E220"), ('{"status": "error", "reason": "x is not mine"}', "E217")],
)
def test_a_refusal_and_a_stated_error_are_final(project: Project, model, answer, code: str) -> None:
    provider = model([answer] * 3)
    stage(project, llm={"returns": "files"}, retry=2)
    assert code in failed(project.build()).err
    assert len(provider.requests) == 1


def test_a_stated_error_may_be_retried_where_the_pipeline_says_so_and_a_refusal_never(project: Project, model) -> None:
    retry = {"max": 2, "when": ["agent_error"]}
    provider = model(
        ['{"error": "unclear"}', Response(text="I will not", stop="refusal"), files_answer({"app.txt": "x"})]
    )
    stage(project, llm={"returns": "files"}, retry=retry)
    assert "not retryable" in failed(project.build()).err
    assert len(provider.requests) == 2


def test_a_miss_in_replay_is_no_attempt_to_repeat(project: Project, model) -> None:
    provider = model([])
    stage(project, llm={"returns": "text"}, retry=3)
    assert project.build("--replay").code == 5
    assert provider.requests == []


# ---- an answer that was cut off ------------------------------------------------------------------

CUT = Response(text='{"summary": "s", "wri', stop="max_tokens", usage=Usage(10, 100))
WHOLE = Response(text=files_answer({"app.txt": "good"}), usage=Usage(10, 150))


def test_a_cut_off_answer_is_an_attempt_that_is_reported_so(project: Project, model) -> None:
    provider = model([CUT, WHOLE])
    stage(project, llm={"returns": "files", "max_tokens": 100}, retry=1)
    assert project.build().code == 0
    assert kinds(project) == ["llm_output_invalid", ""]
    error = "[E219]: the response was cut off at 100 tokens. Fix: respond in fewer than 100 tokens"
    assert error in prompts(provider)[1]
    assert [request.params["max_tokens"] for request in provider.requests] == [100, 100]


def test_a_response_that_repeats_itself_is_reported_so_and_more_tokens_are_not_proposed(
    project: Project, model
) -> None:
    loop = Response(text="```python\n" + "x = x.replace(1)\n" * 50 + "x =", stop="max_tokens", usage=Usage(10, 100))
    provider = model([loop, loop])
    stage(project, llm={"returns": "files", "max_tokens": 100}, retry={"max": 1, "no_progress": 9})
    err = failed(project.build()).err
    assert "the response repeats itself until it was cut off at 100 tokens: x = x.replace(1)" in err
    assert "likely cause" not in err
    assert "max_tokens: 200" not in err
    assert "raise" not in err
    (_, second) = prompts(provider)
    assert "[E225]: the response repeats itself" in second
    assert "raise `llm.max_tokens`" not in second


def test_with_on_truncated_it_is_asked_again_with_more_sandbox_dir_within_the_attempt(project: Project, model) -> None:
    provider = model([CUT, WHOLE])
    more = {"max_tokens": 100, "on_truncated": {"retries": 1, "factor": 2}}
    stage(project, llm={"returns": "files", **more}, retry=0)
    assert project.build().code == 0
    assert project.read("app.txt") == "good"
    assert kinds(project) == [""], "one attempt, two calls"
    assert [request.params["max_tokens"] for request in provider.requests] == [100, 200]
    assert provider.requests[0].messages == provider.requests[1].messages
    kept = [json.loads(path.read_text()) for path in sorted((project.root / ".orch23" / "exchanges").rglob("*.json"))]
    assert sorted(_outcome(one) for one in kept) == ["accepted", "truncated"], "both are paid for, and on disk"


def test_an_answer_that_is_cut_off_twice_is_refused_as_such(project: Project, model) -> None:
    provider = model([CUT, CUT, WHOLE])
    more = {"max_tokens": 100, "on_truncated": {"retries": 1, "factor": 2}}
    stage(project, llm={"returns": "files", **more})
    assert "E219" in failed(project.build()).err
    assert len(provider.requests) == 2
    assert not project.exists("app.txt")


def _outcome(exchange: Mapping[str, Any]) -> str:
    body = exchange.get("body", exchange)
    return str(body["outcome"])


# ---- a person edits meanwhile --------------------------------------------------------------------


def test_an_output_that_a_person_makes_during_the_call_is_kept(project: Project, model) -> None:
    def answer(_request: Request) -> str:
        project.write({"app.txt": "mine\n"})
        return files_answer({"app.txt": "yours\n", "more.txt": "more\n"})

    model(answer)
    stage(project, outputs=["app.txt", "more.txt"], llm={"returns": "files"})
    stopped = project.build()
    assert stopped.code == 6, stopped.err
    assert "app.txt" in stopped.err
    assert project.read("app.txt") == "mine\n"
    assert not (project.root / "more.txt").exists(), "together or not at all"


def test_an_output_that_a_person_edits_during_the_call_is_kept(project: Project, model) -> None:
    stage(project, {"app.txt": "old\n"}, llm={"returns": "files"})

    def answer(_request: Request) -> str:
        project.edit("app.txt", "mine\n")
        return files_answer({"app.txt": "yours\n"})

    provider = model(answer)
    assert project.build().code == 6
    assert "FILE app.txt\nold" in prompts(provider)[0], "the model was shown what was there then"
    assert project.read("app.txt") == "mine\n"


def test_a_file_that_is_no_text_is_not_destroyed_by_a_model(project: Project, model) -> None:
    model([files_answer({"app.txt": "cafe\n"})])
    stage(project, llm={"returns": "files"})
    project.write({"app.txt": b"caf\xe9\n"})
    assert "[E211] app.txt: exists and is not UTF-8 text" in failed(project.build()).err
    assert project.files()["app.txt"] == b"caf\xe9\n"
