"""What a provider loads in advance is all that its first call needs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orch23.providers import registry
from orch23.steps.llm.spec import LLMStep
from tests.doubles import with_needs
from tests.loopback import message_events
from tests.openai_server import STREAM, Asked, OpenAIServer, Reply, chat, response

pytestmark = pytest.mark.slow  # each case loads a library in a process of its own

_ROOT = Path(__file__).parents[3]
_CALL = """
import sys, threading
from orch23.model.llm import Message, Request
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.registry import adapter_for
from orch23.steps.llm.spec import LLMStep
from tests.doubles import CONSENT

provider, api, url = sys.argv[1:]
step = LLMStep(provider=provider, model="m", prompt="p", base_url=url, api=api or None)
keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
run = ProviderContext(environ=keys, root=None, read_answers=None, notice=lambda _event: None, **CONSENT)
asked = Request(provider=provider, model="m", endpoint="e", system="", messages=(Message("user", "a"),), identity=(),
                params={"max_tokens": 9})
adapter_for(step).prepare(run)
for thread in threading.enumerate():
    if thread.name == "warm-up":
        thread.join()
before = set(sys.modules)
assert adapter_for(step).make(run, CallContext(step, "s")).complete(asked, 30.0, lambda _text: None).text == "done"
print(*sorted(set(sys.modules) - before))
"""


def reply(asked: Asked) -> Reply:
    if asked.path.endswith("/chat/completions"):
        return chat("done")
    if "/responses" in asked.path:
        return response("done")
    parts = tuple(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in message_events("done"))
    return Reply(type=STREAM, parts=parts)


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("provider", "api"),
    [("anthropic", ""), with_needs("openai", "chat"), with_needs("openai", "responses")],
)
def test_a_call_after_the_preparation_imports_no_library(provider: str, api: str) -> None:
    with OpenAIServer(rule=reply) as server:
        done = subprocess.run(
            [sys.executable, "-c", _CALL, provider, api, server.url],
            capture_output=True,
            text=True,
            check=False,
            cwd=_ROOT,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert imported <= {"encodings", "stringprep", "email"}, "what only a connection needs"


@pytest.mark.parametrize("provider", ["command", "scripted", "local"])
def test_other_providers_load_nothing_in_advance(provider: str) -> None:
    facts: dict[str, Any] = {"command": ("ask",)} if provider == "command" else {}
    assert registry.adapter_for(LLMStep(provider=provider, model="m", prompt="p", **facts)).prepare is None
