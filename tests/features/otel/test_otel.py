"""`build --otel` sends spans to a collector, and nothing else changes."""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.model.errors import ExitCode
from tests.loopback import Loopback, error_reply, loopback, message_reply
from tests.otlp_collector import Collector, ReceivedSpan
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds

CLIENT = 3
SECRET = "sk-ant-of-the-story"
KEYS = {"ANTHROPIC_API_KEY": SECRET, "ORCH23_TRUST": "1"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PIPELINE = """\
version: 1
name: story
prices: {claude-story: {input: 1, output: 5}}
defaults:
  llm: {provider: anthropic, model: claude-story, base_url: "CLAUDE", effort: low, returns: text}
stages:
  code:
    inputs: [spec.md]
    outputs: [a.txt]
    llm: {prompt: a.j2}
    retry: {max: 2}
    verify: [{shell: [grep, -q, good, a.txt]}]
  use: {inputs: [a.txt], outputs: [b.txt], shell: [cp, a.txt, b.txt]}
  other: {inputs: [in.txt], outputs: [c.txt], shell: [cp, in.txt, c.txt]}
"""


@pytest.fixture
def claude() -> Iterator[Loopback]:
    """Return a server of Anthropic's interface: down once, then wrong, then right."""
    with loopback(rule=lambda _asked: message_reply("good words")) as server:
        down = error_reply(529, "overloaded_error", "overloaded", {"retry-after": "0"})
        server.add(down, message_reply("bad words"))
        yield server


@pytest.fixture(autouse=True)
def _loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable the loggers of the library: `import importlinter`, as other tests do, disables all that exist."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("opentelemetry") and isinstance(logger, logging.Logger):
            monkeypatch.setattr(logger, "disabled", False)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Return a collector that takes everything."""
    with Collector() as running:
        yield running


@pytest.fixture
def story(project: Project, claude: Loopback) -> Project:
    """Return a project with two stages that run a command and one that calls a model."""
    files = {"a.j2": "Write {{ inputs['spec.md'].text }}", "spec.md": "a poem of the sea\n", "in.txt": "1\n"}
    return project.write({"pipeline.yaml": PIPELINE.replace("CLAUDE", claude.url), **files})


@contextlib.contextmanager
def started(story: Project, *argv: str, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    """Start orch23 in a process of its own; kill it at the end if it still runs."""
    own = {"PATH": os.environ["PATH"], "HOME": str(story.home), "XDG_STATE_HOME": str(story.home / "state")}
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; from orch23.entry import run; sys.exit(run())", *argv],
        cwd=story.root,
        env={**own, "PYTHONPATH": path, "ORCH23_TRUST": "1", **environ},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def await_journal(story: Project, kind: str) -> None:
    """Wait until a run has reported an event."""
    until = time.monotonic() + 30
    while not any(f'"{kind}"' in path.read_text() for path in story.journals()):
        assert time.monotonic() < until, f"{kind} never came"
        time.sleep(0.02)


def children(collector: Collector, parent: ReceivedSpan) -> list[ReceivedSpan]:
    found = [span for span in collector.spans if span.parent_id == parent.span_id]
    return sorted(found, key=lambda span: span.start_ns)


def test_a_build_sends_a_tree_of_spans_that_says_what_it_did(story: Project, collector: Collector) -> None:
    before = time.time_ns()
    outcome = story.build("--otel", env={**KEYS, **collector.environ, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=t1"})
    after = time.time_ns()
    assert (outcome.code, "warning" in outcome.err) == (0, False), outcome.err
    assert set(collector.paths) == {"/v1/traces"}
    assert {one["x-team"] for one in collector.headers} == {"t1"}

    root = collector.only("build story")
    (run_id,) = {event["data"]["run_id"] for event in story.events_of("run_started")}
    assert root.parent_id == ""
    assert root.attributes["orch23.run.id"] == run_id
    assert root.attributes["orch23.pipeline.file"] == "pipeline.yaml"
    assert (root.attributes["orch23.stages.built"], root.attributes["orch23.exit_code"]) == (3, 0)
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert {span.schema_url for span in collector.spans} == {"https://opentelemetry.io/schemas/1.41.1"}
    assert (root.resource["service.name"], root.resource["service.version"]) == ("orch23", "0.1.0")

    assert {span.name for span in children(collector, root)} == {"stage code", "stage use", "stage other"}
    code = collector.only("stage code")
    assert code.attributes["orch23.stage.kind"] == "llm"
    assert code.attributes["orch23.stage.reasons"] == ["first_run"]
    assert (code.attributes["orch23.stage.status"], code.attributes["orch23.calls"]) == ("built", 2)
    first, second = children(collector, code)
    assert [span.attributes["orch23.attempt"] for span in (first, second)] == [1, 2]
    assert (first.is_error, first.attributes["error.type"], second.is_error) == (True, "verify_failed", False)
    assert [(name, facts["passed"]) for name, _, facts in first.events] == [("orch23.check", False)]
    # Each request that was sent is one: also that which the server refused.
    refused, wrong = children(collector, first)
    (right,) = children(collector, second)
    for call in (refused, wrong, right):
        assert (call.name, call.kind) == ("chat claude-story", CLIENT)
        assert call.attributes["gen_ai.operation.name"] == "chat"
        assert call.attributes["gen_ai.provider.name"] == "anthropic"
        assert call.attributes["gen_ai.request.model"] == "claude-story"
        assert call.attributes["server.address"] == "127.0.0.1"
    assert (refused.is_error, refused.attributes["error.type"]) == (True, "529")
    assert not wrong.is_error
    assert not right.is_error
    assert "gen_ai.usage.input_tokens" not in refused.attributes
    assert right.attributes["gen_ai.response.model"] == "claude-test-1"
    assert right.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    (response,) = (one["data"] for one in story.events_of("llm_response") if one["data"]["attempt"] == 2)
    assert right.attributes["gen_ai.usage.input_tokens"] == response["input_tokens"] > 0
    assert right.attributes["gen_ai.usage.output_tokens"] == response["output_tokens"] > 0
    assert right.attributes["orch23.cost.usd"] == float(response["cost"]) > 0

    # Each span is inside of its parent, and all are inside of the command.
    by_id = {span.span_id: span for span in collector.spans}
    for span in collector.spans:
        outer = by_id.get(span.parent_id)
        assert span.start_ns <= span.end_ns
        assert outer is None or outer.start_ns <= span.start_ns <= span.end_ns <= outer.end_ns, (span, outer)
    assert before - 1_000_000 <= root.start_ns <= root.end_ns <= after + 1_000_000


def test_no_span_has_content_a_secret_or_a_path_of_the_machine(story: Project, collector: Collector) -> None:
    assert story.build("--otel", env={**KEYS, **collector.environ}).code == 0
    text = collector.text()
    assert "stage code" in text
    assert "poem" not in text
    assert "words" not in text
    assert SECRET not in text
    assert str(story.root) not in text
    assert str(story.home) not in text


@pytest.mark.parametrize("value", ["true", "SPAN_ONLY", "span_and_event"])
def test_prompts_and_responses_are_sent_if_the_variable_says_so(
    story: Project, collector: Collector, value: str
) -> None:
    env = {**KEYS, **collector.environ, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}
    assert story.build("--otel", env=env).code == 0
    _refused, wrong, right = collector.named("chat claude-story")
    (sent,) = json.loads(right.attributes["gen_ai.input.messages"])
    assert (sent["role"], "a poem of the sea" in sent["parts"][0]["content"]) == ("user", True)
    (received,) = json.loads(right.attributes["gen_ai.output.messages"])
    assert received == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "good words"}],
        "finish_reason": "stop",
    }
    assert "bad words" in wrong.attributes["gen_ai.output.messages"]


def test_content_is_redacted(project: Project, collector: Collector) -> None:
    files = {"a.j2": "Write.", "spec.md": "", "in.txt": "1\n"}
    with loopback(rule=lambda _asked: message_reply(f"good words, {SECRET}")) as server:
        project.write({"pipeline.yaml": PIPELINE.replace("CLAUDE", server.url), **files})
        env = {**KEYS, **collector.environ, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        project.build("code", "--otel", env=env)
    (first, *_) = collector.named("chat claude-story")
    (received,) = json.loads(first.attributes["gen_ai.output.messages"])
    assert received["parts"][0]["content"] == "good words, [redacted ANTHROPIC_API_KEY]"
    assert SECRET not in collector.text()


@pytest.mark.stride(3)
@pytest.mark.parametrize("value", ["false", "", "NO_CONTENT", "EVENT_ONLY", "yes"])
def test_other_values_of_the_variable_send_no_content(story: Project, collector: Collector, value: str) -> None:
    env = {**KEYS, **collector.environ, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}
    assert story.build("--otel", env=env).code == 0
    assert "gen_ai.input.messages" not in collector.text()


def test_a_build_without_the_option_sends_nothing_whatever_the_variables_say(
    story: Project, collector: Collector
) -> None:
    assert story.build(env={**KEYS, **collector.environ, "OTEL_TRACES_EXPORTER": "otlp"}).code == 0
    assert story.build("-n", "--otel", env={**KEYS, **collector.environ}).code == 0, "a dry run builds nothing"
    assert collector.spans == []


def test_fresh_stages_are_counted_and_have_no_span(story: Project, collector: Collector) -> None:
    assert story.build(env=KEYS).code == 0
    story.edit("in.txt", "2\n")
    for number in range(2):  # also with nothing to do
        assert story.build("--otel", env={**KEYS, **collector.environ}).code == 0
        root = collector.named("build story")[number]
        assert root.attributes["orch23.stages.fresh"] == 2 + number
    assert [span.name for span in collector.spans if span.name.startswith("stage")] == ["stage other"]


def test_restored_stages_have_a_span_and_recorded_responses_are_no_calls(story: Project, collector: Collector) -> None:
    assert story.build(env=KEYS).code == 0
    story.delete("c.txt")
    assert story.build("--force", "code", "--replay", "--otel", env={**KEYS, **collector.environ}).code == 0
    restored = collector.only("stage other")
    assert (restored.attributes["orch23.stage.status"], restored.attributes["orch23.stage.decision"]) == (
        "restored",
        "restore",
    )
    attempts = children(collector, collector.only("stage code"))
    assert "orch23.recorded_response" in [name for span in attempts for name, _, _ in span.events]
    assert collector.named("chat claude-story") == []


def test_a_failed_build_has_failed_spans(story: Project, collector: Collector) -> None:
    story.replace("pipeline.yaml", "[cp, in.txt, c.txt]", "['false']")
    outcome = story.build("other", "--otel", env={**KEYS, **collector.environ})
    assert outcome.code == ExitCode.FAILED
    for name, kind in (("build story", "failed"), ("stage other", "verify_failed"), ("attempt", "verify_failed")):
        span = collector.only(name)
        assert (span.is_error, span.attributes["error.type"]) == (True, kind)


def test_a_build_continues_the_trace_of_the_ci_system(story: Project, collector: Collector) -> None:
    assert story.build("other", "--otel", env={**collector.environ, "TRACEPARENT": PARENT}).code == 0
    assert story.build("use", "--otel", env={**KEYS, **collector.environ, "TRACEPARENT": "nonsense"}).code == 0
    first, second = collector.named("build story")
    assert (first.trace_id, first.parent_id) == (PARENT[3:35], PARENT[36:52])
    assert {span.trace_id for span in collector.named("stage other")} == {PARENT[3:35]}
    assert (second.trace_id != PARENT[3:35], second.parent_id) == (True, "")


def test_the_variables_of_the_sdk_are_read(story: Project, collector: Collector) -> None:
    env = {"OTEL_SERVICE_NAME": "nightly", "OTEL_RESOURCE_ATTRIBUTES": "team=web,service.version=7"}
    assert story.build("other", "--otel", env={**collector.environ, **env}).code == 0
    resource = collector.spans[0].resource
    assert (resource["service.name"], resource["service.version"], resource["team"]) == ("nightly", "7", "web")
    for off in (
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
    ):
        outcome = story.build("--force", "other", "other", "--otel", env={**collector.environ, **off})
        assert (outcome.code, "W689" in outcome.err) == (0, False)
    assert len(collector.named("build story")) == 1


def test_a_collector_that_does_not_run_is_a_warning(story: Project) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://someone:secret@127.0.0.1:{unused.getsockname()[1]}"
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_EXPORT_TIMEOUT": "300"}
        outcome = story.build("other", "--otel", env=env)
    assert outcome.code == 0
    assert story.read("c.txt") == "1\n"
    warnings = [line for line in outcome.err.splitlines() if "W689" in line]
    address = url.replace("someone:secret@", "")
    assert warnings == [f"warning[W689]: 3 of 3 spans were not sent to {address}/v1/traces: Connection refused"]
    assert "secret" not in outcome.err


def test_a_collector_that_does_not_reply_delays_the_end_once(story: Project) -> None:
    with Collector(is_silent=True) as silent:
        outcome = story.build("other", "--otel", env={**silent.environ, "OTEL_BSP_EXPORT_TIMEOUT": "300"})
        # The build ended while the collector still holds the request.
        assert not silent.released.is_set()
        assert silent.arrived.is_set()
    assert outcome.code == 0
    assert outcome.err.count("W689") == 1
    assert "3 of 3 spans were not sent" in outcome.err
    assert "no reply within 0.3 s" in outcome.err


def test_a_collector_that_refuses_is_a_warning_with_its_reason(story: Project) -> None:
    with Collector(status=401) as refusing:
        outcome = story.build("other", "--otel", env=refusing.environ)
    assert outcome.code == 0
    assert "3 of 3 spans were not sent" in outcome.err
    assert "code: 401, reason: Unauthorized" in outcome.err


def test_a_configuration_that_cannot_work_is_refused_before_the_build(story: Project) -> None:
    for env, text in (
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`, which is not supported"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is `http/json`"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER is `console`, not `otlp`"),
        ({"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "spans cannot be sent"),
    ):
        outcome = story.build("other", "--otel", env=env)
        assert (outcome.code, "E686" in outcome.err, text in outcome.err) == (ExitCode.CONFIG, True, True)
        assert not story.exists("c.txt")


def test_a_value_that_the_library_ignores_is_a_warning(story: Project, collector: Collector) -> None:
    outcome = story.build("other", "--otel", env={**collector.environ, "OTEL_EXPORTER_OTLP_COMPRESSION": "zip"})
    assert (outcome.code, len(collector.named("build story"))) == (0, 1)
    assert [line for line in outcome.err.splitlines() if "W689" in line] == [
        "warning[W689]: OpenTelemetry: Unsupported compression type: zip"
    ]


def test_a_key_in_a_header_that_cannot_be_parsed_is_not_shown(story: Project, collector: Collector) -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": 'x-team=t1, authorization="Bearer of-the-team"', **collector.environ}
    outcome = story.build("other", "--otel", env=env)
    assert (outcome.code, collector.headers[0]["x-team"]) == (0, "t1")
    assert "W689" in outcome.err
    assert "name=value occurrences: [redacted OTEL_EXPORTER_OTLP_HEADERS]" in outcome.err
    assert "of-the-team" not in outcome.err


def test_a_bug_in_spans_does_not_stop_a_build(story: Project, collector: Collector) -> None:
    with patch("orch23.features.otel.build_spans.BuildSpans._start_stage", side_effect=TypeError("of the test")):
        outcome = story.build("other", "--otel", env=collector.environ)
    assert (outcome.code, story.read("c.txt")) == (0, "1\n")
    assert "warning[W689]: the spans are incomplete, by a bug of orch23: TypeError: of the test" in outcome.err
    assert [span.name for span in collector.spans] == ["build story"]


def test_as_a_user_runs_it_with_the_setting_of_the_environment(story: Project, collector: Collector) -> None:
    """The variable of the option also applies where a snapshot could answer."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(story.home),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    environ |= {"XDG_STATE_HOME": str(story.home / "state"), **collector.environ, "ORCH23_BUILD_OTEL": "1"}
    program = [sys.executable, "-c", "from orch23.entry import run; run()", "build", "other"]
    for number in range(3):
        done = subprocess.run(program, cwd=story.root, env=environ, capture_output=True, check=False, timeout=60)
        assert (done.returncode, b"warning" in done.stderr) == (0, False), done.stderr
        assert len(collector.named("build story")) == number + 1


def test_the_hint_for_missing_libraries_installs_them(story: Project, tmp_path: Path) -> None:
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(ABSENT):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from orch23.entry import run
run()
"""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(story.home),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    environ |= {"XDG_STATE_HOME": str(story.home / "state")}
    for absent, library in (
        ("opentelemetry.exporter", "opentelemetry-exporter-otlp-proto-http"),
        ("opentelemetry.sdk", "opentelemetry-sdk"),
        ("opentelemetry", "opentelemetry-sdk"),
    ):
        argv = [sys.executable, "-c", program.replace("ABSENT", repr(absent)), "build", "other", "--otel"]
        done = subprocess.run(
            argv, cwd=story.root, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == ExitCode.CONFIG, done.stderr
        assert f"error[E669]: `--otel` needs the library `{library}`, which is not installed" in done.stderr
        assert f"install '{library}" in done.stderr or f"install {library}" in done.stderr
    assert not story.exists("c.txt")


def test_an_interrupted_build_sends_what_it_did(story: Project, collector: Collector) -> None:
    story.replace("pipeline.yaml", "[cp, in.txt, c.txt]", "[sleep, '60']")
    with started(story, "build", "other", "--otel", **collector.environ) as build:
        await_journal(story, "attempt_started")
        build.send_signal(signal.SIGINT)
        assert build.wait(timeout=30) == ExitCode.SIGINT
    root, stage = collector.only("build story"), collector.only("stage other")
    assert (root.attributes["error.type"], root.attributes["orch23.run.status"]) == ("interrupted", "interrupted")
    assert (stage.attributes["error.type"], stage.attributes["orch23.stage.status"]) == ("cancelled", "cancelled")


def test_ctrl_c_ends_the_wait_for_a_collector(story: Project) -> None:
    with (
        Collector(is_silent=True) as silent,
        started(story, "build", "other", "--otel", OTEL_BSP_EXPORT_TIMEOUT="60000", **silent.environ) as build,
    ):
        assert silent.arrived.wait(30)
        build.send_signal(signal.SIGINT)
        _, err = build.communicate(timeout=30)
        assert (build.returncode, "Traceback" in err) == (ExitCode.SIGINT, False), err
    assert story.read("c.txt") == "1\n"


@pytest.mark.needs("watch")
def test_each_build_of_watch_is_a_trace(story: Project, collector: Collector) -> None:
    with started(story, "watch", ORCH23_BUILD_OTEL="1", **collector.environ) as watch:
        collector.wait_for("build story", 1)
        story.edit("in.txt", "2\n")
        collector.wait_for("build story", 2)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=30) == ExitCode.SIGINT
    assert len({span.trace_id for span in collector.named("build story")}) == 2
    assert len(collector.named("stage other")) == 2


def test_a_run_is_sent_from_its_journal(story: Project, collector: Collector) -> None:
    assert story.build("--otel", env={**KEYS, **collector.environ}).code == 0
    (run_id,) = (event["data"]["run_id"] for event in story.events_of("run_started"))
    live = collector.spans
    collector.spans = []
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    outcome = story.run("log", "--otel", env={**collector.environ, **content})
    assert (outcome.code, outcome.out) == (0, f"sent {len(live)} spans of {run_id} to {collector.url}/v1/traces\n")
    by_start = [sorted(spans, key=lambda span: (span.name, span.start_ns)) for spans in (live, collector.spans)]
    for was, now in zip(*by_start, strict=True):
        added = {"gen_ai.input.messages", "gen_ai.output.messages"}
        assert (was.name, was.attributes) == (now.name, {k: v for k, v in now.attributes.items() if k not in added})
    # The times are those of the journal, which has milliseconds.
    for kind, at_ns in (
        ("stage_started", collector.only("stage other").start_ns),
        ("stage_finished", collector.only("stage other").end_ns),
    ):
        (written,) = (event["ts"] for event in story.events_of(kind) if event["role"] == "other")
        assert at_ns == round(datetime.fromisoformat(written).timestamp() * 1000) * 1_000_000
    assert "a poem of the sea" in collector.text()
    assert len({span.trace_id for span in collector.spans}) == 1


def test_a_run_that_cannot_be_sent_is_an_error(story: Project, collector: Collector) -> None:
    assert story.build("other").code == 0
    with Collector(status=401) as refusing:
        outcome = story.run("log", "--otel", env=refusing.environ)
    assert (outcome.code, "3 of 3 spans were not sent" in outcome.err) == (ExitCode.FAILED, True)
    off = story.run("log", "--otel", env={**collector.environ, "OTEL_SDK_DISABLED": "true"})
    assert (off.code, off.out, "nothing is sent" in off.err, collector.spans) == (0, "", True, [])


def test_the_run_of_a_killed_build_is_unfinished(story: Project, collector: Collector) -> None:
    story.replace("pipeline.yaml", "[cp, in.txt, c.txt]", "[sleep, '60']")
    with started(story, "build", "other") as build:
        await_journal(story, "attempt_started")
        build.kill()
        build.wait()
    assert story.run("log", "--otel", env=collector.environ).code == 0
    assert {span.name: span.attributes["error.type"] for span in collector.spans} == dict.fromkeys(
        ("build story", "stage other", "attempt"), "unfinished"
    )


def test_a_link_in_the_logs_is_not_followed(story: Project, collector: Collector) -> None:
    assert story.build(env=KEYS).code == 0
    story.write({"private.txt": "a private text\n"})
    for prompt in (story.root / "logs").rglob("prompt.txt"):
        prompt.unlink()
        prompt.symlink_to(story.root / "private.txt")
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    assert story.run("log", "--otel", env={**collector.environ, **content}).code == 0
    assert "good words" in collector.text()
    assert "private" not in collector.text()
