"""Files of values that a pipeline is told of: vars, lists of a foreach, scripted answers, schemas."""

import json
import os

from tests.hostile.holding import Case
from tests.project import scripted

VARS = "version: 1\nvars: {a: x}\nstages: {s: {shell: ['${{ vars.a }}']}}\n"


def variables(content: str | bytes, *says: str, problems: int = 1, code: int = 65) -> Case:
    """Return the case of a file of vars."""
    return Case(
        files={"pipeline.yaml": VARS, "v.yaml": content},
        argv=("validate", "--vars", "v.yaml"),
        says=says,
        problems=problems,
        code=code,
    )


VARS_FILES: dict[str, Case] = {
    "200 kB of [": variables("[" * 200_000, "E805", "v.yaml:1:65"),
    "a list": variables("- a\n", "E8", "v.yaml:1:1"),
    "a text": variables("a\n", "E8", "v.yaml:1:1"),
    "a key twice": variables("a: 1\na: 2\n", "E803", "v.yaml:2:1"),
    "an alias": variables("a: &a 1\nb: *a\n", "E804", "v.yaml:1:4", problems=3),
    "a tag of Python": variables("a: !!python/name:os.system x\n", "E804", "v.yaml:1:4"),
    "a NUL": variables(b"a: \x00\n", "E805", "v.yaml:1:4"),
    "no UTF-8": variables(b"a: \xff\n", "E805", "v.yaml:1:4"),
    "a var that nobody knows": variables("\u202eb: 1\n", "v.yaml:1:1", "\\u202e"),
    "an expression": variables("a: '${{ vars.b }}'\n", "E84", "v.yaml:1:"),
    "a pipe": Case(
        files={"pipeline.yaml": VARS},
        spoil=lambda project: os.mkfifo(project.root / "v.yaml"),
        argv=("validate", "--vars", "v.yaml"),
        code=66,
        says=("v.yaml",),
    ),
    "a folder": Case(
        files={"pipeline.yaml": VARS, "v.yaml/x": ""}, argv=("validate", "--vars", "v.yaml"), code=66, says=("v.yaml",)
    ),
    "none": Case(files={"pipeline.yaml": VARS}, argv=("validate", "--vars", "v.yaml"), code=66, says=("v.yaml",)),
    "a --set without a name": Case(files={"pipeline.yaml": VARS}, argv=("validate", "--set", "=1"), code=64),
    "a --set of nobody": Case(
        files={"pipeline.yaml": VARS}, argv=("validate", "--set", "\x1b[31mb=1"), says=("\\x1b[31m", "E843")
    ),
    "a --set with an escape": Case(
        files={"pipeline.yaml": "version: 1\nvars: {a: 1}\nstages: {s: {shell: a, timeout: '${{ vars.a }}'}}\n"},
        argv=("validate", "--set", "a=\x1b[31m"),
        says=("\\x1b[31m",),
    ),
}

# ---- lists ------------------------------------------------------------------------------------

LIST = """version: 1
stages:
  s:
    foreach: {from: 'l.%s#/x', key: id, as: t}
    outputs: ['out/${{ t.id }}.txt']
    shell: echo a > out.txt
"""


def listed(content: str | bytes, *says: str, form: str = "json", problems: int = 1, code: int = 65) -> Case:
    """Return the case of the list of a foreach."""
    return Case(
        files={"pipeline.yaml": LIST % form, f"l.{form}": content},
        argv=("build",),
        says=(f"l.{form}", *says),
        problems=problems,
        code=code,
    )


def items(*ids: object) -> str:
    """Return a list of items by their ids."""
    return json.dumps({"x": [{"id": one} for one in ids]})


LISTS: dict[str, Case] = {
    "not JSON": listed("{"),
    "no text": listed(b"\xff\xfe"),
    "200 kB of [": listed("[" * 200_000),
    "200 kB of [ as YAML": listed("[" * 200_000, form="yaml"),
    "a key twice": listed('{"x": [], "x": [{"id": "a"}]}'),
    "not a number": listed('{"x": [{"id": "a", "n": NaN}]}'),
    "text after the value": listed('{"x": []} {}'),
    "half a surrogate": listed('{"x": [{"id": "\\ud800"}]}'),
    "nothing at the pointer": listed('{"y": []}'),
    "no list": listed('{"x": {"id": "a"}}'),
    "a list of lists": listed('{"x": [["a"]]}'),
    "an item without its key": listed('{"x": [{"name": "a"}]}'),
    "a key that is a list": listed(items(["a"])),
    "a key with a slash": listed(items("../../etc/passwd")),
    "a key that climbs": listed(items("..")),
    "a key with a newline": listed(items("a\nok: forged")),
    "a key with an escape": listed(items("a\x1b[31m")),
    "a key that turns the line around": listed(items("a\u202eb")),
    "an expression as a key": listed(items("${{ vars }}")),
    "the same key twice": listed(items("a", "a")),
    "an endless key": listed(items("a" * 5_000)),
    "200,000 items": listed(items(*range(200_000))),
    "a billion laughs": listed("x:\n  - &a {id: a}\n  - *a\n", form="yaml"),
    "a tag": listed("x: !!python/tuple [{id: a}]\n", form="yaml"),
}

# ---- scripted answers -------------------------------------------------------------------------

ASKING = {
    "pipeline.yaml": """version: 1
stages:
  s:
    outputs: [a.txt]
    llm: {provider: scripted, model: m, answers: a.yaml, prompt: p.j2, returns: text}
""",
    "p.j2": "say a\n",
}


def answers(content: str | bytes, *says: str, problems: int = 1, code: int = 65) -> Case:
    """Return the case of a file of scripted answers."""
    return Case(
        files={**ASKING, "a.yaml": content}, argv=("build",), says=("a.yaml", *says), problems=problems, code=code
    )


ANSWERS: dict[str, Case] = {
    "a list": answers("- a\n"),
    "a text": answers("a\n"),
    "a stage with a text": answers("s: a\n"),
    "numbers": answers("s: [1, 2]\n"),
    "an unknown key of a case": answers("s: [{whn: a, answers: [b]}]\n"),
    "200 kB of [": answers("[" * 200_000, "E805"),
    "an alias": answers("s: &a [b]\nt: *a\n"),
    "a NUL": answers(b"s: [a\x00]\n", "E805"),
    "no UTF-8": answers(b"s: [\xff]\n", "E8"),
    "over a MiB": answers("s:\n" + "- a\n" * 300_000),
    "an escape in a name": answers('"\\e[31m": a\n', "\\x1b[31m"),
    "a pipe": Case(
        files=ASKING,
        spoil=lambda project: os.mkfifo(project.root / "a.yaml"),
        argv=("build",),
        says=("a.yaml",),
        code=65,
    ),
}

# ---- schemas ----------------------------------------------------------------------------------


def schema(document: str | bytes, answer: str, *says: str, problems: int = 1, code: int = 65) -> Case:
    """Return the case of a schema and an answer that is held to it."""
    files = scripted({"s": {"outputs": ["a.json"], "llm": {"returns": "json", "schema": "s.json"}}}, {"s": [answer]})
    return Case(files={**files, "s.json": document}, argv=("build",), says=says, problems=problems, code=code)


def deep(levels: int) -> str:
    """Return a schema of so many levels."""
    return '{"items": ' * levels + "{}" + "}" * levels


SCHEMAS: dict[str, Case] = {
    "not JSON": schema("{", "1", "s.json"),
    "no schema": schema("[1]", "1", "s.json:1:1", "E861"),
    "no type": schema('{"type": "strng"}', "1", "s.json:1:1", "E861"),
    "no UTF-8": schema(b"\xff", "1", "s.json"),
    "a key twice": schema('{"type": "string", "type": "number"}', "1", "s.json"),
    "too deep": schema(deep(100), "1", "s.json"),
    "a reference to itself": schema('{"$ref": "#"}', "1", "s.json:1:1", "E861"),
    "references in a circle": schema(
        '{"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},'
        ' "$ref": "#/definitions/a"}',
        "1",
        "s.json",
        "E861",
    ),
    "a reference to nowhere": schema('{"$ref": "#/definitions/x"}', "1", "s.json:1:1", "E861"),
    "a reference to the network": schema('{"$ref": "https://example.org/s.json"}', "1", "s.json:1:1", "E861"),
    "a reference to a file": schema('{"$ref": "file:///etc/passwd"}', "1", "s.json:1:1", "E861"),
    "a pattern that is none": schema('{"pattern": "("}', '"a"', "s.json:1:1", "E861"),
    "a pattern without end": schema('{"pattern": "^(a+)+$"}', json.dumps("a" * 40 + "!"), "E860", code=1),
    "a pattern without end, of keys": schema(
        '{"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": false}',
        json.dumps({"a" * 40 + "!": 1}),
        "E860",
        code=1,
    ),
    "a pattern of look-arounds": schema('{"pattern": "^(?=(a+))\\\\1+b$"}', json.dumps("a" * 40), "s.json:1:1", "E861"),
    "a multiple of almost nothing": schema('{"multipleOf": 1e-300}', "1e300", "E860", code=1),
    "an answer of a flood of complaints": schema(
        '{"items": {"type": "string"}}', json.dumps(list(range(5_000))), "E860", code=1
    ),
}
