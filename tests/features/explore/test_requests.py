"""A model with `explore` is shown a map and the parts that it asks for; the key has the bytes of these parts."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from orch23.model.llm import Request, Response, Usage
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow

LLM = {"provider": "command", "model": "m", "command": ["cat"], "prompt": "fix.j2"}
SHOP = "import math\n\n\ndef total(items):\n    return sum(items)\n\n\ndef tax(net):\n    return net * 0.19\n"
OTHER = "def other():\n    return 'unrelated'\n"
EDIT = "src/shop.py\n<<<<<<< SEARCH\n    return sum(items)\n=======\n    return round(sum(items), 2)\n>>>>>>> REPLACE\n"
ASKS = "Respond with one JSON object"


class Model:
    """Gives the responses of a list, and keeps the requests."""

    def __init__(self, *responses: str) -> None:
        self.responses = [*responses]
        self.requests: list[Request] = []

    @property
    def prompts(self) -> list[str]:
        return [one.messages[-1].content for one in self.requests]

    @contextlib.contextmanager
    def answering(self) -> Iterator["Model"]:
        def complete(_self: object, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
            self.requests.append(request)
            return Response(text=self.responses.pop(0), usage=Usage(10, 5))

        with patch("orch23.providers.command.CommandProvider.complete", complete):
            yield self


def asks(*show: str, search: Sequence[str] = ()) -> str:
    return json.dumps({"show": list(show), "search": list(search)})


def make(root: Path, explore: Any = ("src/**",), files: dict[str, str] | None = None, **more: Any) -> Project:
    stage = {
        "inputs": ["issue.md"],
        "explore": explore,
        "edits": ["src/**"],
        "llm": {},
        "verify": [{"check": "python_syntax"}],
        **more,
    }
    document = {"version": 1, "name": "p", "defaults": {"llm": LLM}, "stages": {"fix": stage}}
    return Project(root).write(
        {
            "pipeline.yaml": json.dumps(document),
            "fix.j2": "Fix this.\n{{ inputs['issue.md'] | block }}\n",
            "issue.md": "The total of a shop is not rounded.\n",
            **({"src/shop.py": SHOP, "src/other.py": OTHER} if files is None else files),
        }
    )


def green(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.out + outcome.err
    return outcome


def up_to_date(project: Project) -> bool:
    return set(project.plan().values()) == {"fresh"}


def test_a_model_is_shown_what_it_asks_for_and_edits_it(tmp_path: Path) -> None:
    project = make(tmp_path / "p")
    with Model(asks("src/shop.py#def total"), EDIT).answering() as model:
        green(project.build())
    first, last = model.prompts
    assert ASKS in first and "src/other.py" in first and "L4-5 def total" in first and "return sum" not in first
    assert ASKS not in last and "return sum(items)" in last and "0.19" not in last
    assert 'slice="def total"' in last
    assert project.read("src/shop.py") == SHOP.replace("sum(items)", "round(sum(items), 2)")
    (shown,) = project.events_of("parts_shown")
    assert shown["data"]["parts"] == ["src/shop.py#def total"]
    sent = [[one["path"] for one in event["data"]["files"]] for event in project.events_of("llm_request")]
    assert "src/shop.py" not in sent[0] and "src/shop.py" in sent[1]


def test_only_an_edit_of_what_was_shown_makes_the_stage_stale(tmp_path: Path) -> None:
    project = make(tmp_path / "p")
    with Model(asks("src/shop.py#def total"), EDIT).answering():
        green(project.build())
        assert up_to_date(project)
        project.edit("src/other.py", OTHER + "# mine\n")
        project.write({"src/new.py": "x = 1\n"})
        assert up_to_date(project)
        green(project.build())


def test_an_edit_of_a_shown_part_is_named(tmp_path: Path) -> None:
    project = make(tmp_path / "p", files={"src/shop.py": SHOP, "src/other.py": OTHER}, explore=["src/**", "lib/**"])
    project.write({"lib/a.py": "def used():\n    return 1\n\n\ndef spare():\n    return 2\n"})
    responses = [asks("src/shop.py#def total", "lib/a.py#def used"), EDIT]
    with Model(*responses).answering():
        green(project.build())
        project.replace("lib/a.py", "return 2", "return 3")
        assert up_to_date(project)
        project.replace("lib/a.py", "return 1", "return 4")
        assert project.plan() == {"fix": "run"}
        assert "lib/a.py#def used" in green(project.run("explain", "fix")).out
        project.replace("lib/a.py", "return 4", "return 1")
        assert up_to_date(project)
    project.delete("lib/a.py")
    assert project.plan() == {"fix": "run"}


def test_exchanges_are_replayed_without_a_call(tmp_path: Path) -> None:
    project = make(tmp_path / "p", llm={"transcripts": "t"})
    with Model(asks("src/shop.py#def total"), EDIT).answering() as model:
        green(project.build())
    clone = make(tmp_path / "q", llm={"transcripts": "t"})
    for path in (project.root / "t").rglob("*"):
        if path.is_file():
            name = path.relative_to(project.root).as_posix()
            clone.write({name: path.read_bytes()})
    green(clone.build("--replay"))
    assert clone.read("src/shop.py") == project.read("src/shop.py")
    assert len(model.requests) == 2
    sums = [event["data"]["calls"] for event in project.events_of("call_reserved")]
    assert sums == [1, 1]
