"""A tiny pipeline language: what its programs and its model compute, and the YAML that declares them.

No code of the engine is used here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

PROMPT = "ask.md.j2"
PROMPT_TEXT = """\
{"rev": "%s", "item": {{ item | tojson }}, "brief": {{ (brief.kind if brief else "") | tojson }}, "inputs": [
{%% for one in inputs %%}[{{ one.path | tojson }}, {{ one.slice | tojson }}, {{ one.text | tojson }}]{{ "" if loop.last else "," }}
{%% endfor %%}]}
"""
PAGE = "page.txt.j2"
PAGE_TEXT = "page %s{%% for one in inputs %%}|{{ one.path }}#{{ one.slice }}={{ one.text }}{%% endfor %%}"


# ---- what programs and the model compute -----------------------------------------------------------


def run_program(argv: Sequence[str], files: Mapping[str, str]) -> tuple[int, dict[str, str]]:
    """Return the exit code and the files that a program of the tiny language writes; files outside of tests/ are its input."""
    match tuple(argv):
        case ("join", tag, out):
            text = "".join(text for path, text in sorted(files.items()) if not path.startswith("tests/"))
            return 0, {out: f"{tag}({text})"}
        case ("head", out):
            text = "".join(text for _, text in sorted(files.items()))
            return 0, {out: text[:3]}
        case ("split", tag, folder):
            text = "".join(text for _, text in sorted(files.items()))
            return 0, {f"{folder}{letter}.txt": f"{tag}{letter}" for letter in sorted(set(text) & set("abcd")) or ["none"]}
        case ("check", test, out):
            return int(files[test] not in files.get(out, "")), {}
    raise AssertionError(argv)


def solo_answer(base: str, inputs: str, brief: str) -> str:
    """Return what the model makes of one file: it keeps what is there, adds what it was shown, and mends on a brief."""
    return f"{base}[{inputs}]" + ("!" if brief else "")
