#!/usr/bin/env bash
# litellm 1.110.2: with response caching, the second equal call of a plain installation fails.
#
# `pip install litellm` does not install the packages of the extra `proxy`. A completion without caching works. With
# `Cache(type="local")`, the first completion works, too, and is stored. The second one, which the cache has, raises
# ModuleNotFoundError for fastapi instead of returning the stored response: the code that runs on a hit imports modules of the
# proxy server. Once fastapi is there, orjson is missing, then soundfile, a library for audio files; with all three, the same call
# returns the stored response.
#
# Seen 2026-11-30 with Python 3.11, litellm 1.110.2. The model is a server on this machine. The script fails if that changes.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check litellm==1.110.2 2>/dev/null
cd "$folder"

cat >server.py <<'PYTHON'
"""A model that answers each request with the number of requests so far."""

import http.server
import json
import threading

ANSWERS = []


class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        ANSWERS.append(f"answer {len(ANSWERS) + 1}")
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWERS[-1]}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        made = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        body = json.dumps(made).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
PYTHON

cat >ask.py <<'PYTHON'
import importlib.metadata
import warnings

warnings.simplefilter("ignore")
import litellm
from litellm.caching.caching import Cache

from server import start

litellm.suppress_debug_info = True
place = start()
print("litellm", importlib.metadata.version("litellm"))


def ask(**options):
    try:
        made = litellm.completion("openai/m", [{"role": "user", "content": "hi"}], api_base=place, api_key="x", **options)
    except ModuleNotFoundError as error:
        return f"{type(error).__name__}: {error}"
    return made.choices[0].message.content


print("no cache:", ask())
litellm.cache = Cache(type="local")
print("cache, first:", ask(caching=True))
print("cache, second:", ask(caching=True))
PYTHON

export LITELLM_LOCAL_MODEL_COST_MAP=True
{
  venv/bin/python ask.py 2>/dev/null
  for package in fastapi orjson soundfile; do
    venv/bin/python -m pip install --quiet --disable-pip-version-check "$package" 2>/dev/null
    echo "with $package, too:"
    venv/bin/python ask.py 2>/dev/null | tail -n 1
  done
} >seen

cat seen
diff seen - <<'EXPECTED'
litellm 1.110.2
no cache: answer 1
cache, first: answer 2
cache, second: ModuleNotFoundError: No module named 'fastapi'
with fastapi, too:
cache, second: ModuleNotFoundError: No module named 'orjson'
with orjson, too:
cache, second: ModuleNotFoundError: No module named 'soundfile'
with soundfile, too:
cache, second: answer 2
EXPECTED
