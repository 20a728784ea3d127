"""The local provider against a fake llama.cpp in a real child process; once against the real one, if installed."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orch23.features.local import local_model
from orch23.features.local import provider as local
from orch23.features.local.provider import LocalProvider, LocalServer, local_request_body, server_argv
from orch23.model.errors import ConfigurationError, ProviderError
from orch23.model.llm import Message, Request, Usage
from orch23.providers.installation import install_command

FAKE = """
import json, os, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
token = sys.stdin.readline().strip()
mode, log = sys.argv[1], sys.argv[2]
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(log, "a") as f:
            f.write(json.dumps({"pid": os.getpid(), "path": self.path, "body": body, "env": dict(os.environ)}) + "\\n")
        if self.headers["Authorization"] != "Bearer " + token:
            return self.reply(401, "no")
        if mode == "slow":
            threading.Event().wait(30)
        if mode == "drips":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                threading.Event().wait(0.05)
        choice = {"message": {"content": "hi"}, "finish_reason": "length" if mode == "length" else "stop"}
        full = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        texts = {"html": "<html>", "shape": "{}", "error": "broken"}
        if mode.startswith("{"):
            return self.reply(400, mode)
        self.reply(500 if mode == "error" else 200, texts.get(mode, json.dumps(full)))
        if mode == "dies":
            os._exit(1)
    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
        self.wfile.flush()
    def log_message(self, *args):
        pass
if mode == "fails":
    print("failed ValueError: no such model", flush=True)
    sys.exit(3)
if mode == "silent":
    sys.exit(1)
server = HTTPServer(("127.0.0.1", 0), Handler)
print(f"ready http://127.0.0.1:{server.server_port}", flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
while sys.stdin.readline():
    pass
os._exit(0)
"""


@pytest.fixture
def serve(tmp_path: Path):
    """Make servers of the fake; `log()` is what it was asked."""
    script, log, made = tmp_path / "fake.py", tmp_path / "log", []
    script.write_text(FAKE)

    class Serve:
        def __call__(self, mode: str = "good", **environ: str) -> LocalProvider:
            argv = (sys.executable, str(script), mode, str(log))
            server = LocalServer({**os.environ, **environ}, lambda *_: argv)
            made.append(server)
            return LocalProvider(server)

        def log(self):
            return [json.loads(line) for line in log.read_text().splitlines()]

    yield Serve()
    for server in made:
        server.close()


def request(**more) -> Request:
    params = {"max_tokens": 9, "seed": 3, "temperature": 0.0}
    base = {"provider": "local", "model": "smollm2", "endpoint": "llama.cpp", "system": "be brief", "params": params}
    return Request(**{**base, "messages": (Message("user", "hello"),), "identity": (), **more})


def ask(provider: LocalProvider, deadline_s: float = 20.0, **more):
    return provider.complete(request(**more), deadline_s, lambda _n: None)


def gone(pid: int) -> bool:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


def test_one_server_handles_all_requests_and_ends_with_close(serve) -> None:
    provider = serve()
    response = ask(provider)
    ask(provider)
    assert (response.text, response.stop, response.usage) == ("hi", "end", Usage(5, 2))
    first, second = serve.log()
    assert first["pid"] == second["pid"]
    assert first["path"] == "/v1/chat/completions"
    provider.server.close()
    assert gone(first["pid"])


def test_the_body_has_seed_temperature_and_messages_and_no_cache(serve) -> None:
    ask(serve())
    assert serve.log()[0]["body"] == {
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "stream": False,
        "cache_prompt": False,
        "max_tokens": 9,
        "seed": 3,
        "temperature": 0.0,
    }


def test_a_schema_is_sent_for_json() -> None:
    body = local_request_body(request(returns="json", schema={"type": "object"}, system=""))
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    messages = body["messages"]
    assert isinstance(messages, list)
    assert len(messages) == 1
    assert "response_format" not in local_request_body(request(returns="json", schema=None))


def test_no_key_of_the_environment_reaches_the_child(serve) -> None:
    ask(serve(ANTHROPIC_API_KEY="secret", HF_TOKEN="secret", http_proxy="http://127.0.0.1:9", LLAMA_ARG_SEED="9"))
    assert "secret" not in json.dumps(serve.log()[0]["env"])
    assert not {"http_proxy", "LLAMA_ARG_SEED", "HOME"} & set(serve.log()[0]["env"])


def test_a_truncated_response_is_reported(serve) -> None:
    assert ask(serve("length")).stop == "max_tokens"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "said"),
    [("error", "500"), ("html", "without JSON"), ("shape", "without a text"), ("fails", "no such model")],
)
def test_a_server_that_misbehaves_is_a_provider_failure(serve, mode: str, said: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(serve(mode))
    assert caught.value.diagnostics[0].code == "E401"
    assert said in caught.value.diagnostics[0].message


# As the server of xllamacpp 2026.10 replies.
LARGE = {
    "code": 400,
    "message": "request (9412 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9412,
    "n_ctx": 4096,
}
REASON = "Automatic parser generation failed: JSON schema error at #/properties/" + "p/" * 200 + ": cannot resolve $ref"


@pytest.mark.parametrize(
    ("error", "said", "hint"),
    [
        (LARGE, "the prompt has 9,412 tokens, and the context of the server only 4,096", "of `local` has 4,096 tokens"),
        ({"code": 400, "message": REASON}, f"replied 400: {REASON}", "`structured_output: false`"),
    ],
)
def test_a_request_that_the_server_refuses_says_why_and_what_to_do(serve, error, said: str, hint: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(serve(json.dumps({"error": error})))
    (found,) = caught.value.diagnostics
    assert found.code == "E415"
    assert found.message.endswith(said)
    assert hint in str(found.hint)


def test_a_server_without_a_reply_is_a_provider_failure(serve) -> None:
    with pytest.raises(ProviderError, match="does not start"):
        ask(serve("silent"))


@pytest.mark.slow
def test_time_is_up(serve) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(serve("slow"), deadline_s=1.0)
    assert caught.value.diagnostics[0].code == "E402"


@pytest.mark.slow
def test_time_is_up_too_where_each_byte_comes_soon_after_the_last(serve) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(serve("drips"), deadline_s=1.0)
    assert [one.code for one in caught.value.diagnostics] == ["E402"]


@pytest.mark.slow
def test_a_server_that_died_is_started_again(serve) -> None:
    provider = serve("dies")
    assert ask(provider).text == "hi"
    assert gone(serve.log()[0]["pid"])
    assert ask(provider).text == "hi"
    assert len({entry["pid"] for entry in serve.log()}) == 2


@pytest.mark.slow
def test_the_child_dies_with_its_parent(serve, tmp_path: Path) -> None:
    ask(serve())  # writes the script
    code = (
        "import os, sys\n"
        "from orch23.features.local.provider import LocalServer\n"
        f"server = LocalServer(os.environ, lambda *_: (sys.executable, {str(tmp_path / 'fake.py')!r}, 'good', 'log'))\n"
        "print(server.running('m').process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    root = str(Path(local.__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert gone(int(done.stdout))


def test_what_is_missing_is_reported_with_both_hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError) as caught:
        ask(LocalProvider(LocalServer({"XDG_DATA_HOME": str(tmp_path)})))
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "E410"
    assert diagnostic.hint is not None
    assert install_command("xllamacpp") in diagnostic.hint
    assert "orch23 model install smollm2" in diagnostic.hint
    assert "xllamacpp" in diagnostic.message
    assert "weights" in diagnostic.message


def test_the_servers_script_needs_nothing_of_orch23_and_no_module_of_the_project(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setattr(local_model, "installed_weights", lambda _name, _data: tmp_path / "m.gguf")
    argv = server_argv("smollm2", {})
    assert argv[1] == "-P"
    (tmp_path / "xllamacpp.py").write_text("raise SystemExit('the project was imported')")
    done = subprocess.run(
        argv,
        input="token\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 3
    assert done.stdout.startswith("failed ")
    assert "the project was imported" not in done.stdout + done.stderr


def _reason_to_skip() -> str | None:
    if importlib.util.find_spec("xllamacpp") is None:
        return "xllamacpp is not installed (pip install xllamacpp)"
    if local_model.installed_weights("smollm2", local_model.user_data_dir(os.environ)) is None:
        return "the weights are not installed (orch23 model install smollm2)"
    return None


@pytest.mark.skipif(_reason_to_skip() is not None, reason=str(_reason_to_skip()))
def test_the_real_model_gives_the_same_response_twice() -> None:
    server = LocalServer(os.environ)
    try:
        asked = (Message("user", "Write a Python function add(a, b)."),)
        params = {"max_tokens": 40, "seed": 1, "temperature": 0.7}
        first, second = (ask(LocalProvider(server), 60.0, params=params, system="", messages=asked) for _ in range(2))
        assert first.text == second.text
        assert "def add" in first.text
        assert first.usage.output_tokens > 0
    finally:
        server.close()


def test_a_further_sample_has_a_further_seed_and_only_what_the_server_knows_is_sent() -> None:
    params = {"max_tokens": 9, "seed": 3, "temperature": 0.5, "structured_output": False}
    assert [local_request_body(request(params=params, sample=n))["seed"] for n in (0, 2)] == [3, 5]
    assert "structured_output" not in local_request_body(request(params=params))
