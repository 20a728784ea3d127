"""All errors of a pipeline are reported in one run, each at its location, also beside failed expressions."""

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import orch23
from orch23.load.pipeline import parse_pipeline
from orch23.model.diagnostic import Severity
from orch23.report.diagnostics import render_diagnostics
from tests.documents import ODD, WHOLE

Place = tuple[str, int, int]


def found(text: str, **more: Any) -> list[Place]:
    diagnostics = parse_pipeline(text, "p.yaml", **more).diagnostics
    return [(one.code, *((one.location.line, one.location.column) if one.location else (0, 0))) for one in diagnostics]


def messages(text: str) -> list[str]:
    return [one.message for one in parse_pipeline(text, "p.yaml").diagnostics]


@pytest.mark.parametrize(
    ("key", "meant"),
    [("cmd", "shell"), ("run", "shell"), ("script", "shell"), ("shel", "shell"), ("pytests", "pytest")],
)
def test_a_step_under_another_name_is_one_error_that_names_the_key(key: str, meant: str) -> None:
    (error,) = parse_pipeline(f"version: 1\nstages:\n  s: {{outputs: [a], {key}: x}}\n", "p.yaml").diagnostics
    assert (error.code, error.hint) == ("E802", f"did you mean `{meant}`?")


@pytest.mark.parametrize(
    ("key", "meant"), [("sources", "inputs"), ("outs", "outputs"), ("depends-on", "needs"), ("environment", "env")]
)
def test_the_key_of_another_tool_is_translated(key: str, meant: str) -> None:
    (error,) = parse_pipeline(f"version: 1\nstages:\n  s: {{shell: x, {key}: []}}\n", "p.yaml").diagnostics
    assert (error.code, error.hint) == ("E802", f"did you mean `{meant}`?")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("5 minutes", "write 5m"), ("90 sec", "write 90s"), ("2 Hours", "write 2h"), ("five minutes", "write 300s, 45m")],
)
def test_a_duration_in_words_is_translated(text: str, hint: str) -> None:
    (error,) = parse_pipeline(f"version: 1\nstages: {{s: {{shell: x, timeout: {text}}}}}\n", "p.yaml").diagnostics
    assert (error.code, (error.hint or "").startswith(hint)) == ("E815", True)


@pytest.mark.parametrize(
    ("written", "fixed"),
    [
        ("retry: twice", "retry: 2"),
        ("retry: '2'", "retry: 2"),
        ("retry: 3 times", "retry: 3"),
        ("retry: {max: two}", "retry: {max: 2}"),
        ("retry: {attempts: 2}", "retry: {max: 2}"),
        ("retries: 2", "retry: 2"),
        ("retry: {max: 2, when: timeout}", "retry: {max: 2, when: [timeout]}"),
        ("retry: {max: 2, when: [timeot]}", "retry: {max: 2, when: [timeout]}"),
        ("retry: {max: 2, when: [stale]}", "retry: {max: 2, when: [stale_context]}"),
        ("inpts: [a]", "inputs: [a]"),
        ("outputs: a.txt", "outputs: [a.txt]"),
        ("network: 'yes'", "network: true"),
        ("timeout: 5 minutes", "timeout: 5m"),
    ],
)
def test_the_corrected_line_is_shown_and_is_right(written: str, fixed: str) -> None:
    text = "version: 1\nstages:\n  s:\n    shell: x\n    {}\n"
    (error,) = parse_pipeline(text.format(written), "p.yaml").diagnostics
    assert error.location is not None
    shown = render_diagnostics([error], {"p.yaml": text.format(written)})
    assert shown.endswith(f"  |\n5 -     {written}\n5 +     {fixed}\n")
    assert parse_pipeline(text.format(fixed), "p.yaml").diagnostics == ()


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("retry: twice", "write `retry: 2`. Attempts after the first"),
        ("retry: {max: two}", "write `max: 2`. Attempts after the first"),
        ("retry: often", "write it as in `retry: 3`. Attempts after the first"),
        ("retry: {max: 2, when: [fail]}", "did you mean `verify_failed` or `acceptance_failed`?"),
        ("retry: {max: 2, when: [always]}", "write one of them"),
    ],
)
def test_a_number_in_words_or_a_part_of_a_word_is_understood(written: str, hint: str) -> None:
    (error,) = parse_pipeline(f"version: 1\nstages: {{s: {{shell: x, {written}}}}}\n", "p.yaml").diagnostics
    assert str(error.hint).startswith(hint)


def test_a_key_is_translated_only_to_one_that_may_be_there() -> None:
    (error,) = parse_pipeline("version: 1\nrun: x\nstages: {s: {shell: x}}\n", "p.yaml").diagnostics
    assert error.hint is not None
    assert "shell" not in error.hint


@pytest.mark.parametrize("foreach", ["", "    foreach: {in: [a, b]}\n", "    foreach: {from: l.json}\n"])
def test_an_undefined_var_hides_no_other_error_of_its_stage(foreach: str) -> None:
    text = f"""version: 1
vars: {{n: "9"}}
stages:
  s:
{foreach}    env: {{A: "${{{{ vars.q }}}}"}}
    retry: {{max: "${{{{ vars.n }}}}"}}
    shell: [a]
"""
    line = 6 if foreach else 5
    assert found(text) == [("E840", line, 24), ("E811", line + 1, 18)]


EVERYTHING = """version: 1
vars: {n: "9", lost: "${{ vars.nope }}", d: "5 min", l: [x, y]}
jobs: "${{ vars.n }}"
pools: {x: "${{ vars.q1 }}", y: "${{ vars.n }}"}
exit_codes: {E1: "${{ vars.n }}", E2: 999}
defaults:
  timeout: "${{ vars.d }}"
  env: {B: "${{ vars.q2 }}"}
stages:
  plain:
    env: {A: "${{ vars.q }}", LD_PRELOAD: x}
    retry: {max: "${{ vars.n }}", frum: baseline}
    shell: [a]
    cwd: /abs
    pools: ["${{ vars.l }}", z]
  of_lost:
    shell: [a, "${{ vars.lost }}"]
    retry: {max: "${{ vars.n }}"}
    outputs: [../o]
  verify:
    shell: [a]
    verify:
      - {shell: ["${{ vars.q3 }}"], if: "${{ vars.n }}"}
      - {check: max_lines, with: {max: "${{ vars.q4 }}"}, chek: 2}
      - {ensures: {file_exists: /x}}
      - {commands: {from: [ls], allow: ["${{ vars.q5 }}"]}}
      - {shell: [b], pytest: [-q]}
    limits: {processes: "${{ vars.d }}"}
  header:
    foreach: {from: "${{ vars.q6 }}.json", key: id, order: sideways}
    shell: [a, "${{ vars.q7 }}"]
    timeout: 0
    cwd: /abs
  items:
    foreach: {in: [{id: a, n: 1}, {id: b, n: 0}], key: id}
    shell: [a, "${{ item.zz }}"]
    retry: {max: "${{ vars.n }}"}
    limits: {processes: "${{ item.n }}"}
    outputs: ["${{ vars.l }}", "${{ item.id }}", "../${{ item.id }}"]
  without_step:
    env: {A: "${{ vars.q8 }}"}
    timeout: 0
  off:
    if: "${{ vars.n == '8' }}"
    shell: [a]
    env: {A: "${{ vars.q9 }}"}
    retry: {max: "${{ vars.n }}"}
"""


def test_errors_of_all_kinds_are_reported_at_once() -> None:
    assert found(EVERYTHING) == [
        ("E840", 2, 16),
        ("E811", 3, 7),
        ("E840", 4, 22),
        ("E811", 4, 33),
        ("E811", 5, 18),
        ("E812", 5, 39),
        ("E815", 7, 12),
        ("E840", 8, 22),
        *(("E840", 11, 24), ("E859", 11, 43), ("E811", 12, 18), ("E802", 12, 35), ("E850", 14, 10), ("E816", 15, 30)),
        *(("E811", 18, 18), ("E850", 19, 15)),
        *(("E840", 23, 28), ("E811", 23, 41), ("E840", 24, 50), ("E802", 24, 59), ("E850", 25, 33), ("E840", 26, 51)),
        *(("E814", 27, 9), ("E815", 28, 25)),
        *(("E840", 30, 31), ("E812", 30, 60), ("E840", 31, 26), ("E812", 32, 14), ("E850", 33, 10)),
        *(("E840", 36, 26), ("E811", 37, 18), ("E812", 38, 25), ("E850", 39, 50), ("E850", 39, 50)),
        *(("E814", 40, 3), ("E840", 41, 24), ("E812", 42, 14)),
        *(("E840", 46, 24), ("E811", 47, 18)),
    ]


def test_a_default_that_is_broken_hides_no_other_default() -> None:
    text = """version: 1
defaults:
  pytest: {trust: 0, must_fail: "${{ vars.q }}", config: /x}
  verify: {steps: [{chek: a}], inputs: [/y]}
stages: {s: {pytest: {}}}
"""
    assert found(text) == [
        *(("E811", 3, 19), ("E840", 3, 43), ("E850", 3, 58)),
        *(("E802", 4, 21), ("E850", 4, 41)),
    ]


@pytest.mark.needs("fetch")
def test_an_unknown_value_contradicts_no_other() -> None:
    bodies = {
        "write: ['${{ X }}']": "outputs: [a.txt]\n    allowed_paths: {write: ['${{ X }}']}\n    shell: [a]",
        "write": "outputs: [a.txt]\n    allowed_paths: {write: '${{ X }}'}\n    shell: [a]",
        "outputs": "outputs: '${{ X }}'\n    fetch: {url: 'https://a/b', sha256: '" + "0" * 64 + "'}",
        "returns": "outputs: [o]\n    llm: {provider: p, model: m, prompt: p, schema: s.json, returns: '${{ X }}'}",
        "allow": "shell: [a]\n    verify: [{commands: {from: [ls], allow: ['${{ X }}']}}]",
        "report": "pytest: {report: '${{ X }}'}\n    allowed_paths: {write: [a]}",
        "on_failure": "shell: [a]\n    promote: g\n    on_failure: '${{ X }}'",
    }
    for name, body in bodies.items():
        head = "version: 1\nstages:\n  s:\n    "
        assert [code for code, *_ in found(head + body.replace("X", "vars.q") + "\n")] == ["E840"], name
        of_items = "foreach: {from: l.json, key: id}\n    " + body.replace("X", "item.x")
        assert found(head + of_items + "\n") == [], name


def test_a_group_is_not_called_lonely_where_a_stage_of_it_cannot_be_read() -> None:
    text = "version: 1\nstages:\n  s: {shell: [a], promote: g}\n  t: {shell: [a], promote: g, timeout: 0}\n"
    assert found(text) == [("E812", 4, 40)]


def test_an_error_beside_a_spliced_list_is_placed_at_its_own_node() -> None:
    text = """version: 1
vars: {l: [x, y, z]}
stages:
  s: {shell: [a], outputs: ["${{ vars.l }}", b, /c]}
  t: {foreach: {in: [k]}, shell: [a], outputs: ["${{ vars.l }}", b, "/${{ item }}", d]}
"""
    assert found(text) == [("E850", 4, 49), ("E850", 5, 69)]


# ---- values of other places --------------------------------------------------------------------

OF_VARS = """version: 1
vars: {t: 1, l: [], p: ["9"], n: 1}
defaults:
  limits: {processes: "${{ vars.p[0] }}"}
  timeout: "${{ vars.t }}"
stages:
  plain:
    shell: [a]
    retry: {max: "${{ vars.n }}"}
  off:
    if: "${{ vars.n == 'x' }}"
    shell: [a]
    stop_conditions: {max_wall: "${{ vars.t }}"}
  items:
    foreach: {in: "${{ vars.l }}", key: id}
    shell: [a]
    stop_conditions: {max_tokens: "${{ item.n }}"}
  items_off:
    if: "${{ vars.n == 'x' }}"
    foreach: {in: "${{ vars.l }}", key: id}
    shell: [a]
    stop_conditions: {max_tokens: "${{ item.n }}"}
"""


def related(text: str, **more: Any) -> list[tuple[str, str, list[tuple[str, str]]]]:
    return [
        (one.code, str(one.location), [(other.message, str(other.location)) for other in one.related])
        for one in parse_pipeline(text, "p.yaml", **more).diagnostics
    ]


def test_values_of_vars_are_checked_where_a_stage_uses_them() -> None:
    assert found(OF_VARS) == []
    file_text = "t: soon\nl:\n  - {id: a, n: 1}\n  - {id: b, n: x}\np: [many]\n"
    assert related(OF_VARS, vars_text=file_text, vars_name="v.yaml") == [
        ("E815", "p.yaml:4:23", [("`vars.p` is set here", "v.yaml:5:1")]),
        ("E815", "p.yaml:5:12", [("`vars.t` is set here", "v.yaml:1:1")]),
        ("E815", "p.yaml:13:33", [("`vars.t` is set here", "v.yaml:1:1")]),
        ("E815", "p.yaml:17:35", [("an item of this list", "p.yaml:15:15"), ("`vars.l` is set here", "v.yaml:2:1")]),
        ("E815", "p.yaml:22:35", [("an item of this list", "p.yaml:20:15"), ("`vars.l` is set here", "v.yaml:2:1")]),
    ]
    by_flag = [("`vars.t` is set by `--set`", "None")]
    assert related(OF_VARS, sets={"t": "soon", "n": "x", "gone": "1"}, vars_text="t: 3\n", vars_name="v.yaml") == [
        ("E843", "None", []),
        ("E815", "p.yaml:5:12", by_flag),
        ("E811", "p.yaml:9:18", [("`vars.n` is set by `--set`", "None")]),
        ("E815", "p.yaml:13:33", by_flag),
    ]


def test_a_failed_expression_names_the_flag_of_its_var() -> None:
    text = "version: 1\nvars: {a: 1}\nstages: {s: {shell: [x, '${{ vars.a + 1 }}']}}\n"
    assert related(text, sets={"a": "b"}) == [("E841", "p.yaml:3:25", [("`vars.a` is set by `--set`", "None")])]


# ---- two mistakes, each alone and both --------------------------------------------------------

_GONE = object()
_OF_MORE = ("E814", "E816", "E851", "E852", "E854", "E855", "E856")
"""Errors of several nodes: a broken one may hide them."""


def paths(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, below in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*above, key)
        yield from paths(below, (*above, key))


def sound() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(WHOLE))
    ask, defaults = document["stages"]["ask"], document["defaults"]
    for one in (ask, defaults):
        one["on_failure"] = "rollback"
        del one["allowed_paths"]["write"]
    ask["inputs"] = ["c/**", "!c/b", *ask["inputs"][2:]]
    del ask["verify"]["steps"][3]["pytest"]["report"]
    document["vars"]["lost"] = "${{ vars.nowhere }}"
    return document


def errors_of(document: dict[str, Any]) -> set[tuple[str, str]]:
    diagnostics = parse_pipeline(json.dumps(document), "p.yaml").diagnostics
    return {(one.code, one.message) for one in diagnostics if one.severity is Severity.ERROR}


def broken(chance: random.Random, number: int) -> Any:
    choice = chance.randrange(8)
    if choice < 3:
        return f"${{{{ vars.missing{number} }}}}"
    if choice < 5:
        return "${{ vars.lost }}" if choice < 4 else f"${{{{ vars.odd{number} }}}}"
    return _GONE if choice < 6 else copy.deepcopy(chance.choice(ODD))


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_two_mistakes_are_reported_as_each_of_them_alone(seed: int) -> None:
    chance, places = random.Random(seed), list(paths(sound()))
    places = [at for at in places if at[0] not in ("vars", "version") and (at[0] != "stages" or len(at) > 2)]
    for _ in range(50):
        pair = chance.sample(places, 2)
        if pair[0][: len(pair[1])] == pair[1][: len(pair[0])]:
            continue  # one of them is in the other
        values, odd = [broken(chance, 1), broken(chance, 2)], [chance.choice(ODD), chance.choice(ODD)]
        reported = []
        for wanted in ((0,), (1,), (0, 1)):
            document = sound()
            document["vars"] |= {"odd1": odd[0], "odd2": odd[1]}
            for number in wanted:
                *above, last = pair[number]
                owner: Any = document
                for key in above:
                    owner = owner[key]
                if values[number] is _GONE and isinstance(owner, dict):
                    del owner[last]
                else:
                    owner[last] = None if values[number] is _GONE else copy.deepcopy(values[number])
            reported.append({one for one in errors_of(document) if one[0] not in _OF_MORE})
        first, second, both = reported
        assert both == first | second, (pair, values, odd)


# ---- plugins ----------------------------------------------------------------------------------

PLUGIN = '''
from typing import ClassVar

from msgspec import Struct

from orch23.model.language import Document, Language
from orch23.model.step import Step


class UpperDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write a text in capitals."""

    text: str
    times: int = 1


class UpperStep(Step, Struct, frozen=True, omit_defaults=True, tag="upper"):
    kind: ClassVar[str] = "upper"
    language: ClassVar[str] = "acme_kind:LANGUAGE"
    run: ClassVar[str] = "acme_kind:RUN"
    show: ClassVar[str] = "acme_kind:show"
    text: str


LANGUAGE = Language(form=UpperDocument, description="Capitals.", read=lambda one, at: UpperStep(one.text))
'''


READ = """
import json, sys
from orch23.load.pipeline import parse_pipeline
found = parse_pipeline(sys.stdin.read(), "p.yaml").diagnostics
print(json.dumps([[one.code, one.location.line, one.location.column] for one in found]))
"""


def found_with_plugin(tmp_path: Path, text: str) -> list[Place]:
    """Return the errors that a process reports in which the plugin is installed: here its classes would stay."""
    folder = tmp_path / "acme_kind-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kind\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[orch23.steps]\nupper = acme_kind:UpperStep\n")
    (tmp_path / "acme_kind.py").write_text(PLUGIN)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path(orch23.__file__).parent.parent)))}
    done = subprocess.run([sys.executable, "-c", READ], input=text, env=env, capture_output=True, text=True, check=True)
    return [(code, line, column) for code, line, column in json.loads(done.stdout)]


OF_PLUGIN = """version: 1
plugins: [PLUGIN]
vars: {n: "9"}
stages:
  s:
    upper: {text: "${{ vars.q }}", times: "${{ vars.n }}", tims: 2}
    retry: {max: "${{ vars.n }}"}
    outputs: [../a]
  t: {upper: {times: 2}, cwd: /b, timeoutt: 3}
  u: {shell: [a], timeoutt: 3}
"""


@pytest.mark.slow
def test_errors_of_a_kind_of_step_of_a_plugin_are_reported_at_once(tmp_path: Path) -> None:
    assert found_with_plugin(tmp_path, OF_PLUGIN.replace("PLUGIN", "acme-kind")) == [
        *(("E840", 6, 29), ("E811", 6, 43), ("E802", 6, 60), ("E811", 7, 18), ("E850", 8, 15)),
        *(("E810", 9, 7), ("E850", 9, 31), ("E802", 9, 35)),
        ("E802", 10, 19),
    ]


def test_a_missing_plugin_hides_no_error_and_causes_none() -> None:
    text = OF_PLUGIN.replace("PLUGIN", "no-such-plugin")
    assert found(text.replace("stages:", "defaults: {upper: {times: 1}, timeout: 0}\nstages:")) == [
        ("E844", 2, 11),
        ("E812", 4, 40),
        *(("E840", 7, 29), ("E811", 8, 18), ("E850", 9, 15)),
        ("E850", 10, 31),
        ("E802", 11, 19),
    ]


@pytest.mark.parametrize(
    ("head", "place", "words"),
    [
        ("plugins: foo", ("E811", 2, 10), "`plugins` is the string `foo`; it must be a list"),
        ("plugins: {a: b}", ("E811", 2, 10), "`plugins` is a mapping; it must be a list"),
        ("plugins: 3", ("E811", 2, 10), "`plugins` is `3`; it must be a list"),
        ("plugins: '${{ vars.a }}'", ("E811", 2, 10), "`plugins` is the string `${{ vars.a }}`; it must be a list"),
        ("plugins: ['${{ vars.a }}']", ("E812", 2, 11), "item 1 of `plugins` is the string `${{ vars.a }}`, which is"),
        ("plugins: [3]", ("E811", 2, 11), "item 1 of `plugins` is `3`; it must be a string"),
        ("executor: '${{ vars.a }}'", ("E812", 2, 11), "`executor` is the string `${{ vars.a }}`, which is malformed"),
        ("plugins: [no-a, no-b, no-a]", ("E844", 2, 11), "the plugin `no-a` is not installed"),
    ],
)
def test_a_plugin_and_an_executor_are_named_literally(head: str, place: Place, words: str) -> None:
    text = f"version: 1\n{head}\nvars: {{a: x}}\nstages: {{s: {{shell: a, cwd: /a}}}}\n"
    more = [("E844", 2, 17)] if "no-b" in head else []
    assert found(text) == [place, *more, ("E850", 4, 29)]
    assert messages(text)[0].startswith(words)


@pytest.mark.parametrize("name", ['as: "a b"', "as: [it]", "as: null", "az: it", "As: it", "as: vars"])
def test_the_name_of_items_that_is_broken_is_one_error(name: str) -> None:
    text = (
        f"version: 1\nstages:\n  c:\n    foreach: {{in: [x], {name}}}\n"
        "    outputs: ['o/${{ it }}']\n    salt: ${{ vars.none }}\n    shell: [cp, a, 'o/${{ it.b }}']\n"
    )
    assert [line for _, line, _ in found(text)] == [4, 6]


def test_other_broken_keys_of_a_foreach_hide_no_undefined_name() -> None:
    text = (
        "version: 1\nstages:\n  c:\n    foreach: {in: 3, as: task}\n"
        "    outputs: ['o/${{ tsk }}']\n    shell: [cp, a, 'o/${{ task }}']\n"
    )
    assert [line for _, line, _ in found(text)] == [4, 5]
