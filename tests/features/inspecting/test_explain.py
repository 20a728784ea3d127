"""An explanation shows every aspect of a key, then and now, and where a change comes from."""

import json

from msgspec.structs import replace

from orch23.features.inspecting.explain import (
    Cause,
    Explanation,
    RequestSummary,
    aspects_of,
    explain_json,
    explain_text,
    text_diff,
)
from orch23.model.diagnostic import Location
from orch23.model.plan import Edited, Fresh, Run
from orch23.model.record import Reason, Record
from orch23.report.plan_view import PlanLine
from orch23.report.values import Style

PLAIN = Style()

NOW = {"command": "new", "cwd": ".", "input:b": "b"}
THEN = {"command": "old", "cwd": ".", "input:a": "a"}
LINE = PlanLine(
    stage="s",
    kind="shell",
    decision=Run((Reason("command_changed", "command", "old", "new"),)),
    key="f" * 64,
    place=Location("p.yaml", 4, 3),
)
EXPLANATION = Explanation(
    line=LINE,
    key_then="0" * 64,
    aspects=aspects_of(THEN, NOW),
    diffs=(text_diff("command", "old\n", "new\n"),),
    causes=(Cause("s", 0, "command changed"), Cause("up", 1, "x changed")),
)


def test_aspects_are_compared_what_changed_first() -> None:
    assert [(one.name, one.change) for one in EXPLANATION.aspects] == [
        ("command", "changed"),
        ("input:a", "removed"),
        ("input:b", "added"),
        ("cwd", "same"),
    ]
    changed = {one.name for one in EXPLANATION.aspects if one.change != "same"}
    assert changed == {"command", "input:a", "input:b"}


def test_the_text_shows_causes_key_and_differences() -> None:
    assert explain_text(EXPLANATION, PLAIN) == (
        "> s: run  p.yaml:4:3\n"
        "  command changed\n"
        "    up: x changed\n"
        "\n"
        "key 000000000000 → ffffffffffff\n"
        "  ~ command  old → new\n"
        "  - input:a  a → nothing\n"
        "  + input:b  nothing → b\n"
        "    cwd  .\n"
        "\n"
        "command:\n"
        "  --- then\n"
        "  +++ now\n"
        "  @@ -1 +1 @@\n"
        "  -old\n"
        "  +new\n"
    )


def test_a_fresh_stage_and_a_first_run_say_so() -> None:
    record = Record(stage="s", key="f" * 64, manifest=NOW)
    same = aspects_of(NOW, NOW)
    fresh = Explanation(
        line=PlanLine(stage="s", kind="shell", decision=Fresh(record), key="f" * 64), key_then="f" * 64, aspects=same
    )
    assert "key ffffffffffff, unchanged\n" in explain_text(fresh, PLAIN)
    first = Explanation(line=LINE, aspects=aspects_of({}, NOW))
    assert "it has no earlier result" in explain_text(first, PLAIN)
    edited = Explanation(line=PlanLine(stage="s", kind="shell", decision=Edited(("a",)), accept="orch23 accept s"))
    assert "`orch23 accept s` keeps the edit" in explain_text(edited, PLAIN)


def test_the_json_has_the_same_facts() -> None:
    found = json.loads(explain_json(EXPLANATION))
    assert (found["orch23_explain"], found["stage"], found["action"]) == (1, "s", "run")
    assert (found["key"], found["key_then"]) == ("f" * 64, "0" * 64)
    assert {"aspect": "input:a", "change": "removed", "then": "a", "now": None} in found["aspects"]
    assert found["causes"][1] == {"stage": "up", "depth": 1, "text": "x changed"}
    assert found["diffs"][0]["diff"].endswith("-old\n+new")


def test_a_long_difference_is_cut_to_200_lines() -> None:
    lines = text_diff("x", "", "\n".join(map(str, range(1000)))).lines
    assert len(lines) == 201
    assert lines[-1].endswith("more lines")


def test_the_request_is_shown_with_its_recorded_responses() -> None:
    request = RequestSummary(
        fingerprint="a" * 64, parts={"model": "m", "params": {"max_tokens": 9}, "messages": "b" * 64}
    )

    def text_of(request: RequestSummary) -> str:
        return explain_text(replace(EXPLANATION, request=request), PLAIN)

    assert "request aaaaaaaaaaaa: the response is recorded in cccccccccccc\n    model  m\n" in text_of(
        replace(request, answers=("c" * 64,))
    )
    assert '    params  {"max_tokens": 9}\n    messages  bbbbbbbbbbbb\n' in text_of(request)
    assert "request aaaaaaaaaaaa: not recorded\n" in text_of(replace(request, missing=True))
    near = replace(request, missing=True, difference="the model is `m`, was `\x1b[2J`")
    assert "not recorded; compared with the nearest one, the model is `m`, was `\\x1b[2J`\n" in text_of(near)
    assert "was cut off; the request with a higher `max_tokens` is not recorded" in text_of(
        replace(request, answers=("c" * 64,), missing=True)
    )
    document = json.loads(explain_json(replace(EXPLANATION, request=near)))["request"]
    assert (document["fingerprint"], document["missing"], document["parts"]["model"]) == ("a" * 64, True, "m")
    assert json.loads(explain_json(EXPLANATION))["request"] is None
