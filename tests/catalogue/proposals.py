"""Answers of a model with one mistake each, told when the stage fails."""

import json
from collections.abc import Mapping
from typing import Any

from tests.catalogue.provoking import Trigger, Triggers, shown
from tests.catalogue.server import Reply, chat, replying
from tests.project import Project, files_answer, scripted

TRIGGERS = Triggers()

MODULE = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(9))
STALE = {"path": "src/old.py", "content": "x = 2\n", "base_sha256": "0" * 64}
OLD = {"src/old.py": "x = 1\n"}
EDITS: Mapping[str, Any] = {"llm": {"returns": "edits"}, "inputs": ["spec.md", "src/old.py"]}
CODE: Mapping[str, Any] = {"llm": {"returns": "code"}, "outputs": ["app.py"]}


def edit_block(search: str, written: str) -> str:
    """Return an edit of one line."""
    return f"<<<<<<< SEARCH\n{search}\n=======\n{written}\n>>>>>>> REPLACE\n"


# code -> the answer that has it, files that are there before, and what else the stage says
ANSWERS: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = {
    "E201": ("here you are: {}", {}, {}),
    "E202": (json.dumps({"writes": [{"path": "src/a.py"}]}), {}, {}),
    "E203": (files_answer({}), {}, {}),
    "E204": (files_answer({"other/a.py": "x = 1\n"}), {}, {}),
    "E205": (files_answer({"../a.py": "x = 1\n"}), {}, {}),
    "E206": (files_answer({"src/a.py": "x = 1\n", "src/A.py": "x = 1\n"}), {}, {}),
    "E207": (files_answer({"src/a": "x\n", "src/a/b": "x\n"}), {}, {}),
    "E208": (files_answer({"src/pyproject.toml": "[project]\n"}), {}, {}),
    "E209": (files_answer({"src/a.py": "x = 1\n"}, deletes=["src/old.py"]), OLD, {}),
    "E210": (files_answer({"src/a.txt": "x" * 200_001}), {}, {}),
    "E211": (files_answer({"src/a.txt": "x\0"}), {}, {}),
    "E212": (json.dumps({"summary": "s", "writes": [STALE], "deletes": [], "error": None}), OLD, {}),
    "E214": (files_answer({"src/a.py": "x = 1\n# ... rest of code unchanged ...\n"}), {"src/a.py": MODULE}, {}),
    "E215": (files_answer({"src/a.py": "def f(:\n"}), {}, {}),
    "E216": (files_answer({"src/a.py": "def f0():\n    return 0\n"}), {"src/a.py": MODULE}, {}),
    "E217": (json.dumps({"error": "there is no such function"}), {}, {}),
    "E218": ("I would rather talk about it.", {}, CODE),
    "E222": (f"src/old.py\n{edit_block('x = 2', 'x = 3')}", OLD, EDITS),
    "E223": (f"src/old.py\n{edit_block('x = 1', 'x = 3')}", {"src/old.py": "x = 1\n" * 2}, EDITS),
    "E224": (f"src/old.py\n{edit_block('x = 1', 'x = 3') * 2}", OLD, EDITS),
    "E221": (files_answer({"src/a.py": "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"}), {}, {}),
}


def answered(project: Project, answer: str, files: Mapping[str, str], **stage: Any) -> set[str]:
    """Build a stage whose model gives this answer; return the codes that are told."""
    whole = {"inputs": ["spec.md"], "outputs": ["src/"], "llm": {}, **stage}
    project.write({**scripted({"code": whole}, {"code": [answer]}), "spec.md": "a spec\n", **files})
    return shown(project.build())


def _of_the_table(code: str) -> Trigger:
    answer, files, stage = ANSWERS[code]
    return lambda project: answered(project, answer, files, **stage)


for _code in ANSWERS:
    TRIGGERS.of(_code)(_of_the_table(_code))


@TRIGGERS.of("E213")
def file_that_was_not_shown(project: Project) -> set[str]:
    """Let a later item of a chain, which sees its own base alone, write over a file that is no one's."""
    whole = {"outputs": ["src/new.py"], "allowed_paths": {"write": ["src/"]}}
    return answered(project, files_answer({"src/new.py": "x = 1\n", "src/old.py": "x = 2\n"}), OLD, **whole)


@TRIGGERS.of("E219")
def answer_that_is_cut_off(project: Project) -> set[str]:
    """Let the model stop at `max_tokens`."""
    with replying(Reply(chat("x = 1", finish="length"))) as server:
        return server.built(project)


@TRIGGERS.of("E225")
def answer_that_repeats_itself(project: Project) -> set[str]:
    """Let the model write the same line until `max_tokens`."""
    with replying(Reply(chat("x = 1\n" * 100, finish="length"))) as server:
        return server.built(project)


@TRIGGERS.of("E220")
def model_that_refuses(project: Project) -> set[str]:
    """Let the provider say that the model refused."""
    with replying(Reply(chat("", refusal="I may not do that."))) as server:
        return server.built(project)
