"""Documents of the pipeline language for tests: one that has every key, and as many broken ones as are wanted."""

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orch23.model.digest import Json, digest_json
from orch23.model.parsing import JsonObject, parse_stored, to_struct
from orch23.steps.registry import missing_kind

COMMON: dict[str, Any] = {
    "cwd": "src",
    "allowed_paths": {"write": ["src/**"], "protect": ["src/a"], "delete": ["src/b"], "read": ["docs/**"]},
    "requires": {"file_exists": "a", "file_absent": ["b", "c/"]},
    "ensures": [{"kind": "file_exists", "path": "a"}],
    "stop_conditions": {"max_cost_usd": 2.5, "max_tokens": "600k", "max_llm_calls": 7, "max_wall": "1h30m"},
    "on_failure": "keep",
    "on_edit": "rerun",
    "promote": "group",
    "timeout": 30,
    "limits": {"memory": "512MiB", "processes": 10, "files": "2k", "disk": 1000, "address_space": "1.5GB"},
    "env": {"A": "x", "B": 1, "C": 2.5, "D": True},
    "python": "python3",
    "tools": ["git", {"name": "node", "version": ">=22"}, "~/opt/x/bin/y"],
    "pools": ["network"],
    "scratch": ["*.tmp"],
    "cache": False,
    "network": True,
    "tool_caches": ["npm"],
    "sandbox": "off",
    "salt": 1,
}
LLM: dict[str, Any] = {
    "provider": "command",
    "model": "m",
    "prompt": "p.md",
    "system": "s.md",
    "returns": "json",
    "only_json": True,
    "schema": "s.json",
    "max_tokens": "4k",
    "on_truncated": {"retries": 2, "factor": 4},
    "effort": "high",
    "thinking": "off",
    "timeout": "45m",
    "mode": "record",
    "transcripts": "t/",
    "context": {"own_outputs": True, "max_files": 3, "max_bytes": "100k"},
    "brief": {"limit": 5000, "head": "2k", "tail": 100},
    "structured_output": False,
    "cache": {"ttl": "1h", "share": False},
    "secrets": "redact",
    "base_url": "http://localhost:1",
    "endpoint_alias": "here",
    "background": True,
    "pace": "flex",
    "api": "chat",
    "fallback": ["other", {"provider": "local", "model": "n"}],
    "command": ["ask", 1, 2.5],
    "read": ["~/x"],
    "pass_env": ["KEY"],
    "network": True,
    "answers": "a.yaml",
    "seed": -3,
    "extra": {"top_p": 0.5},
    "temperature": 0.5,
}
PYTEST: dict[str, Any] = {
    "args": ["-q", 1],
    "paths": ["t::a"],
    "config": "c.ini",
    "plugins": ["p"],
    "pythonpath": ["src"],
    "expect": ["t::a"],
    "trust": ["conftest.py"],
    "report": "r.json",
    "must_fail": True,
    "provides": ["a"],
}
FETCH: dict[str, Any] = {
    "url": "https://example.org/a.zip",
    "sha256": "0a" * 32,
    "redirects": ["https://cdn.example.org"],
    "max_size": "20MiB",
}
WHOLE: dict[str, Any] = {
    "version": 1,
    "name": "whole",
    "vars": {"a": 1, "b": [None, {"c": "x"}]},
    "defaults": {**COMMON, "verify": [{"check": "c"}], "retry": {"max": 1}, "llm": LLM, "pytest": PYTEST},
    "stop_conditions": {**COMMON["stop_conditions"], "max_cost_usd": "0.25", "max_failed_stages": 2},
    "prices": {"p/m": {"input": 3, "output": "15.10", "cache_read": 0.3, "cache_write": 0}},
    "rates": {"p": {"requests": "10/min", "tokens": "30k/min", "input_tokens": "2M/day", "output_tokens": "500/30s"}},
    "jobs": 2,
    "pools": {"llm": 1, "network": {"size": 2, "executor": "dask", "resources": {"gpu": 0.5, "memory": "8GiB"}}},
    "exit_codes": {"E2": 4, "E201": 5, "PROVIDER": 6, "FAILED/E8": 7},
    "never_send": ["secrets/**"],
    "run_log": "log.jsonl.j2",
    "executor": "local",
    "cache": {
        "url": "/srv/cache",
        "mode": "read",
        "responses": True,
        "verify": "always",
        "platform": "p",
        "tier": "B",
        "signed_by": ["ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="],
    },
    "stages": {
        "ask": {
            **COMMON,
            "desc": "d",
            "llm": LLM,
            "needs": ["make"],
            "inputs": ["a", "!b", {"path": "c.json", "optional": True, "schema": "s.json"}, {"list": "d/**"}],
            "outputs": ["x.py"],
            "if": "true",
            "retry": {
                "max": 2,
                "when": ["verify_failed", "timeout"],
                "prompt": "r.md",
                "from": "baseline",
                "no_progress": 2,
                "escalate": [
                    "big",
                    {
                        "provider": "q",
                        "model": "n",
                        "effort": "e",
                        "thinking": "t",
                        "max_tokens": "4k",
                        "base_url": "http://h",
                        "endpoint_alias": "h",
                        "api": "responses",
                    },
                ],
                "style": "conversation",
            },
            "format": [{"shell": ["f", 1]}, {"shell": "text"}],
            "verify": {
                "inputs": ["t.py"],
                "all": True,
                "first": "off",
                "may_fail": ["t.py::test_a"],
                "fails_on_base": ["x.py"],
                "steps": [
                    {"check": "python_syntax", "with": {"any": [1, None]}, "if": True},
                    {"shell": ["a", 1], "test_results": {"tap": "stdout"}, "reruns": 2},
                    {"shell": "text", "findings": {"sarif": "stdout"}},
                    {"pytest": PYTEST},
                    {"pytest": ["-q"]},
                    {"ensures": {"file_exists": ["a"]}},
                    {"commands": {"from": "plan.json#/c", "allow": ["python"]}},
                    {"commands": {"from": ["pytest -q"], "allow": ["pytest"]}},
                ],
            },
        },
        "unit": {"shell": "u", "test_results": {"junit": "b/*.xml"}},
        "lines": {"shell": "l", "test_results": {"regex": "stdout", "line": "(?P<id>a) (?P<outcome>b)"}},
        "lint": {"shell": "l", "findings": {"sarif": "$TMPDIR/a.sarif"}},
        "known": {"shell": "k", "verify": {"may_fail": "base", "steps": [{"shell": "t"}]}},
        "go": {"shell": "go test -json", "test_results": {"go": "stdout"}, "reruns": 1},
        "compile": {"shell": "gcc", "inputs": ["a.c", "*.h"], "outputs": ["a.o"], "depfile": "$TMPDIR/a.d"},
        "ninja": {"shell": "ninja", "outputs": ["c.o"], "depfile": {"path": "$TMPDIR/a.d", "syntax": "ninja"}},
        "make": {"shell": ["cp", "a", 1], "outputs": ["b"], "retry": 3, "approve": True},
        "text": {"shell": "make all", "salt": "s", "verify": [], "outputs": ["m.json"], "metrics": ["m.json"]},
        "fix": {"llm": LLM, "explore": {"files": ["src/**"], "turns": 2, "tokens": "20k"}, "outputs": ["y.py"]},
        "look": {"llm": LLM, "explore": ["src/**"], "outputs": ["z.py"]},
        "tidy": {"shell": "make tidy", "edits": ["src/**"], "once": True},
        "test": {"pytest": PYTEST, "requires": []},
        "args": {"pytest": ["-q", 1.5]},
        "page": {"render": "t.md", "outputs": ["p.md"]},
        "full": {"render": {"template": "t.md"}, "outputs": ["q.md"]},
        **({"zip": {"fetch": FETCH, "outputs": ["a.zip"]}} if missing_kind("fetch") is None else {}),
        "each": {
            "foreach": {"from": "l.json#/a", "key": "id", "as": "one", "order": "sequential", "needs": "n"},
            "shell": "x",
        },
        "some": {"foreach": {"in": ["a", 1, {"b": None}], "promote": "together"}, "shell": ["x"]},
    },
}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 126, 2**63 - 1, -(2**63), 1.0, 0.0, -0.5, 2.5, 1e300),
    *("", " ", "\n", "x", "x\n", "on", "off", "true", "keep", "each", "vars", "a b", "...", "é" * 64, "x" * 65),
    *("2m", "0s", "1h\n", "4k", "4k\n", "1GiB", "0", "0.00", "1e3", "E1", "E1\n", "12:30", "http://x", "a\x00b"),
    *([], [[]], ["a"], [1], [""], [None], [True], {}, {"a": 1}, {"max": 1}, {"path": "a"}, {"list": "a"}),
    *({"path": "a", "list": "b"}, {"shell": "x"}, {"check": "c"}, {"template": "t"}, {"file_exists": []}, ["files"]),
    *([{"kind": "file_exists", "path": "a"}], [{"kind": "x", "path": ""}], {"from": "a"}, {"in": []}),
)
EXPRESSIONS: tuple[Any, ...] = ("${{ vars.a }}", "x${{ vars.a }}y", ["${{ vars.a }}"], "${{", "$${{ x }}")
KEYS = (
    *("shell", "llm", "pytest", "render", "verify", "retry", "inputs", "if", "needs", "pools", "timeout", "matrix"),
    *("nobody", "a b", "", "from", "in", "path", "list", "check", "with", "max", "E9", "x\n", "_", "version"),
)


def broken_documents(seed: int, count: int, odd: tuple[Any, ...] = ODD) -> Iterator[dict[str, Any]]:
    """Give copies of the whole document, each with a change or two at random places."""
    chance = random.Random(seed)
    for _ in range(count):
        document = json.loads(json.dumps(WHOLE))  # no part of it twice
        for _ in range(chance.choice((1, 1, 2))):
            _change(document, chance, odd)
        yield document


def _change(document: dict[str, Any], chance: random.Random, odd: tuple[Any, ...]) -> None:
    owner, key = chance.choice(list(_places(document)))
    value = json.loads(json.dumps(chance.choice(odd)))
    if isinstance(owner, list):
        owner[key] = value
        return
    match chance.randrange(6):
        case 0:
            del owner[key]
        case 1:
            owner[chance.choice(KEYS)] = value
        case 2:
            owner[chance.choice(KEYS)] = owner.pop(key)
        case _:
            owner[key] = value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Give every mapping or list of a tree with each of its keys or positions."""
    for key, below in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(below, dict | list):
            yield from _places(below)


def read_state(path: Path) -> Mapping[str, Json] | None:
    """Return the content of a `state.json`, or None if the file is missing or damaged. orch23 does not read it."""
    try:
        body = to_struct(parse_stored(path.read_bytes()), JsonObject)
    except (OSError, ValueError):
        return None
    return body if body.pop("sum", None) == digest_json(body) else None
