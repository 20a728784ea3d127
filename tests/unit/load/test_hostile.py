"""Malformed pipelines: each is refused with its error at its location, and nothing worse happens."""

import re
import time
from pathlib import Path

import pytest

from orch23.load.pipeline import parse_pipeline
from orch23.model.diagnostic import Severity

LIMIT_S = 5  # seconds of the processor: what grows with the square of the text takes minutes
V = "version: 1\n"
S = "version: 1\nstages:\n  s:\n"
OK = "    shell: [a]\n"
LLM = "    llm: {provider: p, model: m, prompt: p.j2}\n    outputs: [a]\n"
F = "    foreach: {from: 'l.json#/x', key: id, as: t}\n"

# text, code, line, column
CASES = {
    # the text
    "empty": ("", "E811", 1, 1),
    "only a comment": ("# nothing\n", "E811", 1, 1),
    "a list": ("- a\n", "E811", 1, 1),
    "a text": ("hello\n", "E811", 1, 1),
    "control character": (V + "name: \x07\n", "E805", 2, 7),
    "half a surrogate": (V + "name: \udc80\n", "E805", 2, 7),
    "lone carriage return": (V + "name: a\rb\n", "E805", 2, 8),
    "line separator": (V + "name: a\u2028b\n", "E805", 2, 8),
    "deep": (V + "vars: {a: " + "[" * 70 + "]" * 70 + "}\n", "E805", 2, 73),
    # YAML
    "tab as indentation": (V + "stages:\n\ts: 1\n", "E801", 3, 1),
    "colon in a value": (V + "name: a: b\n", "E801", 2, 7),
    "open list": (S + "    shell: [a\n", "E801", 4, 12),
    "open mapping": (S + "    llm: {a: b\n", "E801", 4, 10),
    "open quote": (V + "name: 'a\n", "E801", 2, 7),
    "bad escape": (V + 'name: "\\q"\n', "E801", 2, 8),
    "bare glob in a block list": (S + OK + "    inputs:\n      - *.py\n", "E801", 6, 9),
    "bare glob in a flow list": (S + OK + "    inputs: [*.py]\n", "E801", 5, 14),
    "bare expression in a list": (S + OK + "    inputs: [${{ vars.a }}]\n", "E801", 5, 14),
    "bare expression in a mapping": (S + OK + "    env: {A: ${{ vars.a }}}\n", "E801", 5, 14),
    "Jinja without a dollar": (V + "name: {{ a }}\n", "E806", 2, 8),
    "percent": (V + "name: %a\n", "E801", 2, 7),
    "at": (V + "name: @a\n", "E801", 2, 7),
    "backtick": (V + "name: `a`\n", "E801", 2, 7),
    "bad indentation": (V + "name: a\n b: c\n", "E801", 3, 3),
    "list where a key is due": (V + "name: a\n- b\n", "E801", 3, 1),
    "anchor": (V + "name: &x a\nstages: {s: {shell: a}}\n", "E804", 2, 7),
    "alias": (V + "name: *x\nstages: {s: {shell: a}}\n", "E804", 2, 7),
    "merge key": (S + "    <<: {timeout: 1}\n" + OK, "E804", 4, 5),
    "tag": (V + "name: !!python/object:os.system a\nstages: {s: {shell: a}}\n", "E804", 2, 7),
    "second document": (S + OK + "---\na: 1\n", "E804", 5, 1),
    "duplicate key": (S + OK + "    shell: [b]\n", "E803", 5, 5),
    "duplicate stage": (S + OK + "  s:\n" + OK, "E803", 5, 3),
    "number as a key": (V + "stages:\n  1: {shell: a}\n", "E806", 3, 3),
    "list as a key": (V + "? [a]\n: b\n", "E806", 2, 3),
    "endless number": (V + "jobs: " + "9" * 50 + "\nstages: {s: {shell: a}}\n", "E807", 2, 7),
    # keys and types
    "no version": ("stages: {s: {shell: a}}\n", "E810", 1, 1),
    "no stages": (V, "E810", 1, 1),
    "version 2": ("version: 2\nstages: {s: {shell: a}}\n", "E812", 1, 10),
    "version as a text": ("version: '1'\nstages: {s: {shell: a}}\n", "E812", 1, 10),
    "no stage": (V + "stages: {}\n", "E812", 2, 1),
    "stages as a list": (V + "stages: [a]\n", "E811", 2, 9),
    "unknown key at the top": (V + "stagse: {}\nstages: {s: {shell: a}}\n", "E802", 2, 1),
    "unknown key of a stage": (S + OK + "    need: [x]\n", "E802", 5, 5),
    "unknown key of llm": (
        S + "    llm: {provider: p, model: m, prompt: p, promt: q}\n    outputs: [a]\n",
        "E802",
        4,
        45,
    ),
    "yes as a key": (V + "yes: 1\nstages: {s: {shell: a}}\n", "E802", 2, 1),
    "later: matrix": (S + OK + "    matrix: {}\n", "E813", 5, 5),
    "no cost": (V + "stop_conditions: {max_cost_usd: 0}\nstages: {s: {shell: a}}\n", "E812", 2, 33),
    "no cost, in quotes": (V + "stop_conditions: {max_cost_usd: '0.00'}\nstages: {s: {shell: a}}\n", "E815", 2, 33),
    "cost with a sign": (V + "stop_conditions: {max_cost_usd: $2}\nstages: {s: {shell: a}}\n", "E815", 2, 33),
    "cost in words": (V + "stop_conditions: {max_cost_usd: true}\nstages: {s: {shell: a}}\n", "E811", 2, 33),
    "tokens in words": (V + "stop_conditions: {max_tokens: many}\nstages: {s: {shell: a}}\n", "E815", 2, 31),
    "misspelt limit": (V + "stop_conditions: {max_cost: 1}\nstages: {s: {shell: a}}\n", "E802", 2, 19),
    "cost that a var makes nothing": (
        V + "vars: {b: 0}\nstop_conditions: {max_cost_usd: '${{ vars.b }}'}\nstages: {s: {shell: a}}\n",
        "E812",
        3,
        33,
    ),
    "cost that a var makes a word": (
        V + "vars: {b: much}\nstop_conditions: {max_cost_usd: '${{ vars.b }}'}\nstages: {s: {shell: a}}\n",
        "E815",
        3,
        33,
    ),
    "failed stages of a stage": (S + OK + "    stop_conditions: {max_failed_stages: 1}\n", "E802", 5, 23),
    "limit of a foreach": (S + F + OK + "    stop_conditions: {max_wall: soon}\n", "E815", 6, 33),
    "price without output": (V + "prices: {m: {input: 1}}\nstages: {s: {shell: a}}\n", "E810", 2, 10),
    "price under nothing": (V + "prices: {p/m: {input: -1, output: 1}}\nstages: {s: {shell: a}}\n", "E812", 2, 23),
    "price in words": (V + "prices: {p/m: {input: 1, output: cheap}}\nstages: {s: {shell: a}}\n", "E815", 2, 34),
    "misspelt rate": (V + "prices: {m: {inptu: 1, output: 1, input: 1}}\nstages: {s: {shell: a}}\n", "E802", 2, 14),
    "price of a number": (V + "prices: {m: 3}\nstages: {s: {shell: a}}\n", "E812", 2, 13),
    "rate without a time": (V + "rates: {m: {requests: 10}}\nstages: {s: {shell: a}}\n", "E811", 2, 23),
    "rate in words": (V + "rates: {m: {requests: few}}\nstages: {s: {shell: a}}\n", "E815", 2, 23),
    "misspelt limit of a rate": (V + "rates: {m: {request: 1/s}}\nstages: {s: {shell: a}}\n", "E802", 2, 13),
    "rates without a limit": (V + "rates: {m: {}}\nstages: {s: {shell: a}}\n", "E812", 2, 9),
    "price that a var makes a word": (
        V + "vars: {b: much}\nprices: {p/m: {input: '${{ vars.b }}', output: 1}}\nstages: {s: {shell: a}}\n",
        "E815",
        3,
        23,
    ),
    "misspelt api": (S + "    llm: {api: respones, provider: p, model: m, prompt: p}\n", "E812", 4, 16),
    "misspelt secrets": (S + "    llm: {secrets: ignore, provider: p, model: m, prompt: p}\n", "E812", 4, 20),
    "too often cut off": (S + "    llm: {on_truncated: {retries: 4}, provider: p, model: m}\n", "E812", 4, 35),
    "factor of one": (S + "    llm: {on_truncated: {factor: 1}, provider: p, model: m}\n", "E812", 4, 34),
    "retries by a var": (
        V + "vars: {n: 9}\nstages:\n  s:\n    llm: {on_truncated: {retries: '${{ vars.n }}'}, provider: p, model: m, "
        "prompt: p}\n    outputs: [a]\n",
        "E812",
        5,
        35,
    ),
    "limit by an item": (
        S + "    foreach: {in: [a], as: t}\n" + OK + "    stop_conditions: {max_tokens: '${{ t }}'}\n",
        "E815",
        6,
        35,
    ),
    "an if that is no truth": (S + OK + "    verify: [{shell: a, if: x}]\n", "E811", 5, 29),
    "commands without allow": (S + OK + "    verify: [{commands: {from: x}}]\n", "E810", 5, 15),
    "a command of no program": (S + OK + "    verify: [{commands: {from: ['a'], allow: [b]}}]\n", "E835", 5, 33),
    "bad stage name": (V + "stages:\n  'a b': {shell: a}\n", "E812", 3, 3),
    "dots as a stage name": (V + "stages:\n  ..: {shell: a}\n", "E812", 3, 3),
    "newline in a stage name": (V + 'stages:\n  "a\\n": {shell: a}\n', "E812", 3, 3),
    "at in a stage name": (V + "stages:\n  a@b: {shell: a}\n", "E812", 3, 3),
    "no step": (S + "    inputs: [a]\n", "E814", 3, 3),
    "two steps": (S + OK + "    pytest: [-q]\n", "E814", 3, 3),
    "null step": (S + "    shell:\n", "E811", 4, 5),
    "stage is a text": (V + "stages:\n  s: echo\n", "E811", 3, 6),
    "inputs as a text": (S + OK + "    inputs: a\n", "E811", 5, 13),
    "yes as a boolean": (S + OK + "    cache: yes\n", "E811", 5, 12),
    "number as an input": (S + OK + "    inputs: [a, 3]\n", "E811", 5, 17),
    "input with both": (S + OK + "    inputs: [{path: a, list: b}]\n", "E814", 5, 14),
    "enum": (S + OK + "    on_failure: kep\n", "E812", 5, 17),
    "kind of failure": (S + LLM + "    retry: {max: 1, when: [verify_faild]}\n", "E812", 6, 28),
    "pool that is not there": (S + OK + "    pools: [gpu]\n", "E816", 5, 13),
    "pools of two executors": (
        V + "pools: {a: {executor: dask}, b: {executor: local}}\nstages: {s: {shell: a, pools: [a, b]}}\n",
        *("E817", 3, 35),
    ),
    "pool of no stage": (V + "pools: {llm: 0}\nstages: {s: {shell: a}}\n", "E812", 2, 14),
    "family of warnings": (V + "exit_codes: {W8: 3}\nstages: {s: {shell: a}}\n", "E812", 2, 14),
    "duration": (S + OK + "    timeout: 5 minutes\n", "E815", 5, 14),
    "an eternity": (S + OK + "    timeout: 99999999999h\n", "E815", 5, 14),
    "an eternity in seconds": (S + OK + "    timeout: 99999999999\n", "E812", 5, 14),
    "a price without end": (S + OK + "prices: {m: {input: 1e30, output: 1}}\n", "E812", 5, 21),
    "no time": (S + OK + "    timeout: 0\n", "E812", 5, 14),
    "no time, spelt out": (S + OK + "    timeout: 0s\n", "E812", 5, 14),
    "count": (S + "    llm: {provider: p, model: m, prompt: p, max_tokens: many}\n    outputs: [a]\n", "E815", 4, 57),
    "empty argv": (S + "    shell: []\n", "E812", 4, 12),
    "empty command": (S + "    shell: ' '\n", "E812", 4, 12),
    "boolean in argv": (S + "    shell: [a, true]\n", "E811", 4, 16),
    # meaning
    "no provider": (S + "    llm: {model: m, prompt: p}\n    outputs: [a]\n", "E810", 4, 5),
    "undefined var": (S + "    shell: ['${{ vars.x }}']\n", "E840", 4, 23),
    "undefined name": (S + "    shell: ['${{ env.x }}']\n", "E840", 4, 18),
    "open expression": (S + "    shell: ['${{ vars.x']\n", "E841", 4, 13),
    "broken expression": (S + "    shell: ['${{ 1 + }}']\n", "E841", 4, 13),
    "vars in a circle": (V + "vars: {a: '${{ vars.b }}', b: '${{ vars.a }}'}\nstages: {s: {shell: a}}\n", "E842", 2, 8),
    "var of itself": (V + "vars:\n  a: '${{ vars.a }}'\nstages: {s: {shell: a}}\n", "E842", 3, 3),
    "expression of a wrong type": (
        V + "vars: {n: 3}\nstages:\n  s:\n    shell: [a]\n    inputs: '${{ vars.n }}'\n",
        "E811",
        6,
        13,
    ),
    "absolute path": (S + OK + "    outputs: [/etc/passwd]\n", "E850", 5, 15),
    "path out of the root": (S + OK + "    inputs: [a/../../b]\n", "E850", 5, 14),
    "backslash": (S + OK + "    outputs: ['a\\b']\n", "E850", 5, 15),
    "home": (S + OK + "    inputs: [~/.ssh/id_rsa]\n", "E850", 5, 14),
    "glob as an output": (S + OK + "    outputs: ['*.py']\n", "E850", 5, 15),
    "whole root as an output": (S + OK + "    outputs: [./]\n", "E850", 5, 15),
    "cwd out of the root": (S + OK + "    cwd: ..\n", "E850", 5, 10),
    "empty slice": (S + OK + "    inputs: ['a.md#']\n", "E850", 5, 14),
    "slice of a glob": (S + OK + "    inputs: ['*.md#x']\n", "E850", 5, 14),
    "output outside of the write scope": (S + LLM + "    allowed_paths: {write: [b/]}\n", "E851", 5, 15),
    "directory outside of the write scope": (
        S + OK + "    outputs: [b/]\n    allowed_paths: {write: [b/*]}\n",
        "E851",
        5,
        15,
    ),
    "protected output": (S + LLM + "    allowed_paths: {protect: [a]}\n", "E852", 5, 15),
    "metrics that are no output": (S + OK + "    outputs: [a.json]\n    metrics: [b.json]\n", "E863", 6, 15),
    "metrics of another form": (S + OK + "    outputs: [a.txt]\n    metrics: [a.txt]\n", "E863", 6, 15),
    "output twice": (S + OK + "    outputs: [a, ./a]\n", "E853", 5, 18),
    "own output as input": (S + OK + "    inputs: [b, a]\n    outputs: [a]\n", "E854", 5, 17),
    "slice of the own output": (S + OK + "    inputs: ['a#x']\n    outputs: [a]\n", "E854", 5, 14),
    "render of two": (S + "    render: {template: t}\n    outputs: [a, b]\n", "E855", 5, 14),
    "render of none": (S + "    render: {template: t}\n", "E855", 3, 3),
    "json to a directory": (
        S + "    llm: {provider: p, model: m, prompt: p, returns: json}\n    outputs: [a/]\n",
        "E855",
        5,
        14,
    ),
    "files to nowhere": (S + "    llm: {provider: p, model: m, prompt: p}\n", "E855", 3, 3),
    "schema without json": (
        S + "    llm: {provider: p, model: m, prompt: p, schema: s}\n    outputs: [a]\n",
        "E856",
        4,
        53,
    ),
    "escalate without llm": (S + OK + "    retry: {max: 1, escalate: [m]}\n", "E856", 5, 31),
    "brief that does not fit": (
        S + "    llm: {provider: p, model: m, prompt: p, brief: {limit: 10}}\n    outputs: [a]\n",
        "E856",
        4,
        45,
    ),
    "secret in env": (S + OK + "    env: {OPENAI_API_KEY: x}\n", "E859", 5, 27),
    "loader in env": (S + OK + "    env: {LD_PRELOAD: x}\n", "E859", 5, 23),
    # foreach
    "foreach of both": (S + "    foreach: {from: a.json, in: [1]}\n" + OK, "E814", 4, 5),
    "item called vars": (S + "    foreach: {in: [a], as: vars}\n" + OK, "E812", 4, 28),
    "pointer without a slash": (S + "    foreach: {from: 'a.json#x'}\n" + OK, "E850", 4, 21),
    "list out of the root": (S + "    foreach: {from: '../a.json'}\n" + OK, "E850", 4, 21),
    "wrong name of the item": (S + F + "    shell: ['a', '${{ item.x }}']\n", "E840", 5, 23),
    "wrong member of a static item": (
        S + "    foreach: {in: [{id: a}], key: id}\n    shell: [a, '${{ item.x }}']\n",
        "E840",
        5,
        26,
    ),
    "static part of a foreach": (S + F + "    shell: [a, '${{ t.x }}']\n    timeout: soon\n", "E815", 6, 14),
    "item in needs": (S + F + OK + "    needs: ['${{ t.x }}']\n", "E857", 6, 12),
}


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_pipeline_is_reported_with_code_and_location(name):
    text, code, line, column = CASES[name]
    start = time.process_time()
    parsed = parse_pipeline(text, "p.yaml")
    assert time.process_time() - start < LIMIT_S
    assert parsed.pipeline is None
    found = [(d.code, d.location.line, d.location.column) for d in parsed.diagnostics if d.location is not None]
    assert (code, line, column) in found, [str(d) for d in parsed.diagnostics]
    assert len([d for d in parsed.diagnostics if d.severity is Severity.ERROR]) <= 2, [
        str(d) for d in parsed.diagnostics
    ]


def test_the_corpus_is_large_and_reaches_most_of_the_catalogue():
    assert len(CASES) >= 100
    reached = {code for _, code, _, _ in CASES.values()}
    elsewhere = {"E843", "E844", "E845", "E847", "E858", "E860", "E861", "E862", "W801", "W802", "W804", "W805"}
    assert raised_by_loading() - reached == elsewhere


def test_no_message_is_that_of_a_library():
    leaks = re.compile(
        r"is not valid under|is not of type|additional properties|did not find|jsonschema|Traceback", re.IGNORECASE
    )
    for text, *_ in CASES.values():
        for found in parse_pipeline(text, "p.yaml").diagnostics:
            assert not leaks.search(str(found)), found
            assert len(str(found)) < 700, found


def test_all_errors_are_reported_at_once_in_the_order_of_the_text():
    text = V + "vars: {a: 1, b: '${{ vars.c }}'}\nnmae: x\nstages:\n"
    text += "  one: {shell: [a], need: [b]}\n  two: {shell: [], cache: no}\n"
    found = [(d.code, d.location and d.location.line) for d in parse_pipeline(text, "p.yaml").diagnostics]
    assert found == [("E840", 2), ("E802", 3), ("E802", 5), ("E812", 6), ("E811", 6)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (S + OK + "    need: [x]\n", "did you mean `needs`?"),
        (S + OK + "    on_failure: rolback\n", "did you mean `rollback`?"),
        (S + OK + "    cache: yes\n", "write `true`, without quotes"),
        (S + OK + "    inputs: [${{ vars.a }}]\n", "quotes"),
        (S + OK + "    inputs: [*.py]\n", "quotes"),
        (V + "vars: {model: x}\nstages: {s: {shell: '${{ vars.modle }}'}}\n", "did you mean `model`?"),
        (S + OK + "    matrix: {}\n", "later version"),
    ],
)
def test_an_error_has_a_hint(text, hint):
    (found,) = parse_pipeline(text, "p.yaml").diagnostics
    assert hint in (found.hint or "")


def raised_by_loading() -> set[str]:
    """Return the codes that the modules which load a pipeline report."""
    root = Path(__file__).parents[3] / "orch23"
    own = [
        *(root / "load").glob("*.py"),
        *(
            root / "language" / f"{n}.py"
            for n in ("expressions", "evaluation", "key_readers", "stages", "stage_fields")
        ),
        *(root / "model" / f"{n}.py" for n in ("fields", "plugins")),
        *(root / "steps").glob("*/spec.py"),
        *(root / "steps").glob("*/language.py"),
        root / "language" / "item_rules.py",
        root / "resolve" / "slices.py",
    ]
    return {code for path in own for code in re.findall(r'"([EW][0-9]{3})"', path.read_text("utf-8"))}
