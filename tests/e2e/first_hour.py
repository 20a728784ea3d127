"""Twenty-five mistakes of a first hour: each a change to a project that works, or a command in it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.openai_server import Asked, Reply, chat, reported

PIPELINE = """\
version: 1
name: app
vars: {model: gpt-5-mini}

stages:
  draft:
    inputs: [specs/app.md]
    outputs: [out/draft.md]
    llm:
      provider: openai
      base_url: SERVER
      model: ${{ vars.model }}
      prompt: prompts/draft.md.j2
      returns: text

  check:
    inputs: [out/draft.md, tests/]
    pytest: {paths: [tests/]}
"""

FILES: Mapping[str, str] = {
    "pipeline.yaml": PIPELINE,
    "prompts/draft.md.j2": "Write a draft of this app.\n\n{{ inputs | blocks }}\n",
    "specs/app.md": "# App\n\nA list of tasks.\n\n## Design\n\nOne page.\n",
    "tests/test_draft.py": """\
from pathlib import Path


def test_the_draft_has_a_title():
    assert Path("out/draft.md").read_text().startswith("# ")
""",
}
"""The project. `SERVER` is the address of the model server."""

SHORT = 8192
"""A limit of tokens that cuts the draft off."""

MODELS = ("gpt-5-mini", "gpt-5")
"""The models that the server has."""

SILENT = "/silent"
"""The end of the address of a server that does not list its models."""

SHELL = """\

  count:
    inputs: [out/draft.md]
    outputs: [out/count.txt]
    shell: COMMAND
"""
"""A third stage, for mistakes in a shell step."""

DRAFT, LAST = "    inputs: [specs/app.md]\n", "    pytest: {paths: [tests/]}\n"

Change = tuple[str, str, str]
"""A file, a text in it, and the text that replaces it."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command, and the changes to the project before it. `tools` are programs that are installed in `~/bin`.

    `variant` is a letter for a further form of a mistake.
    """

    number: int
    name: str
    changes: Sequence[Change] = ()
    argv: Sequence[str] = ("build",)
    files: Mapping[str, str] = field(default_factory=dict)
    folder: str = "."
    tools: Mapping[str, str] = field(default_factory=dict)
    has_project: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""

    @property
    def id(self) -> str:
        """Number and variant: `04`, `04b`."""
        return f"{self.number:02}{self.variant}"

    def prepare(self, root: Path, home: Path, server: str) -> dict[str, str]:
        """Write the project with the mistake, and return the variables of the user's environment.

        Raises:
            AssertionError: a text to replace is not in its file, or is in it twice.
        """
        texts = {path: text.replace("SERVER", server) for path, text in FILES.items()} if self.has_project else {}
        for path, old, new in self.changes:
            place = old.replace("SERVER", server)
            assert texts[path].count(place) == 1, f"{path} has {texts[path].count(place)} places that read {place!r}"
            texts[path] = texts[path].replace(place, new.replace("SERVER", server))
        for base, files in ((root, {**texts, **self.files}), (home / "bin", self.tools)):
            for path, text in files.items():
                target = base / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
                target.chmod(0o755 if base is not root else 0o644)
        (root / self.folder).mkdir(parents=True, exist_ok=True)
        return dict(self.env)


def _shell(command: str) -> Change:
    return ("pipeline.yaml", LAST, LAST + SHELL.replace("COMMAND", command))


def _draft(old: str, new: str) -> Change:
    return ("pipeline.yaml", old, new)


_CYCLE = """\

  one: {needs: [two], shell: echo one}
  two: {needs: [one], shell: echo two}
"""

_SAME_OUTPUT = """\

  title: {outputs: [out/draft.md], shell: echo title > out/draft.md}
"""

_EIGHT_TESTS = """\
import pytest

from tests.words import count


@pytest.mark.parametrize("text", ["ab", "a b", "a b c", "a b c d", "a b c d e", "a b c d e f", "abc d"])
def test_words_are_counted(text):
    assert count(text) == len(text.split())
"""

MISTAKES: Sequence[Mistake] = (
    Mistake(1, "a misspelt command", argv=("biuld",)),
    Mistake(2, "a misspelt file", argv=("build", "pipline.yaml")),
    Mistake(3, "an empty folder", has_project=False),
    Mistake(4, "a subfolder of the project", folder="specs"),
    Mistake(5, "a stage that is not there", argv=("build", "drfat")),
    Mistake(6, "`input:` in place of `inputs:`", [_draft(DRAFT, DRAFT.replace("inputs", "input"))]),
    Mistake(7, "a text in place of a list", [_draft("outputs: [out/draft.md]", "outputs: out/draft.md")]),
    Mistake(8, "a tab as indentation", [_draft(DRAFT, "\tinputs: [specs/app.md]\n")]),
    Mistake(9, "`timeout: 5 minutes`", [_draft(DRAFT, f"{DRAFT}    timeout: 5 minutes\n")]),
    Mistake(10, "`retry: twice`", [_draft(DRAFT, f"{DRAFT}    retry: twice\n")]),
    Mistake(11, "a misspelt input", [_draft("specs/app.md", "specs/ap.md")]),
    Mistake(12, "a misspelt heading", [_draft("[specs/app.md]", "['specs/app.md#Desgin']")]),
    Mistake(13, "a misspelt name in the prompt", [("prompts/draft.md.j2", "inputs | blocks", "inptus | blocks")]),
    Mistake(14, "a misspelt variable", [_draft("${{ vars.model }}", "${{ vars.modle }}")]),
    Mistake(15, "a misspelt stage in `needs`", [_draft(DRAFT, f"{DRAFT}    needs: [chekc]\n")]),
    Mistake(16, "two stages with one output", [_draft(LAST, LAST + _SAME_OUTPUT)]),
    Mistake(17, "a cycle of two stages", [_draft(LAST, LAST + _CYCLE)]),
    Mistake(18, "no key in the environment", [_draft("      base_url: SERVER\n", "")]),
    Mistake(19, "a model that the server does not have", [_draft("{model: gpt-5-mini}", "{model: gpt-9}")]),
    Mistake(20, "an input that is not declared", [_shell("wc -w < specs/app.md > out/count.txt")]),
    Mistake(
        21,
        "a program in ~/bin",
        [_shell("wordcount out/draft.md > out/count.txt")],
        tools={"wordcount": '#!/bin/sh\nexec wc -w "$1"\n'},
    ),
    Mistake(22, "`curl` without `network: true`", [_shell("curl -sS https://example.com > out/count.txt")]),
    Mistake(23, "`exit 3`, and nothing printed", [_shell("exit 3")]),
    Mistake(
        24,
        "7 of 8 tests fail, with one cause",
        files={
            "tests/test_words.py": _EIGHT_TESTS,
            "tests/words.py": "def count(text):\n    return len(text)\n",
            "tests/__init__.py": "",
        },
    ),
    Mistake(
        25,
        "a package that is not installed",
        [("tests/test_draft.py", "from pathlib", "import tomlkit_of_nobody\nfrom pathlib")],
        env={"PATH": "/usr/bin:/bin"},
    ),
)

_MULTI_LINE = """|
      python - <<'EOF'
      def total(numbers):
          return sum(numbers)

      if total([1, 2]) != 4:
          raise SystemExit(3)
      EOF"""

_JSON_TESTS = """\
from tests.settings import read


def test_a_setting_is_read():
    assert read("{port: 80}")["port"] == 80


def test_a_list_is_read():
    assert read("{port: 80}")["hosts"] == []
"""

_MIXED_CYCLE = """\

  one: {inputs: [out/three.txt], outputs: [out/one.txt], shell: cp out/three.txt out/one.txt}
  two: {needs: [one], shell: echo two}
  three: {needs: [two], outputs: [out/three.txt], shell: echo > out/three.txt}
"""

_NOTES = """\

  notes:
    inputs: [out/draft.md]
    outputs: [out/notes.md]
    shell: cp out/draft.md out/notes.md
"""

_SAME_OUTPUT_IN_A_LIST = """\

  title:
    outputs:
      - out/title.md
      - out/draft.md
    shell: echo title > out/draft.md
"""

_IN_THE_THIRD_LINE = """|
      mkdir -p out
      echo ${{ vars.model }}
      echo ${{ vars.modle }} > out/count.txt"""

_SEVERAL_COMMANDS = """|
      test -s out/draft.md
      grep -c zzz out/draft.md > out/count.txt"""

_TWO_CAUSES = """\
import pytest


@pytest.mark.parametrize("n", range(5))
def test_a(n):
    assert n > 10


@pytest.mark.parametrize("n", range(2))
def test_b(n):
    raise KeyError("name")
"""

_PROMPT = "prompts/draft.md.j2"
_WITH_LIMIT = "      returns: text\n      max_tokens: 8192\n      on_truncated: {retries: 0}\n"

VARIANTS: Sequence[Mistake] = (
    Mistake(2, "an output in place of a stage", argv=("build", "out/draft.md"), variant="b"),
    Mistake(
        2,
        "a file in a misspelt folder",
        argv=("build", "piplines/app.yaml", "a"),
        files={"pipelines/app.yaml": "version: 1\nstages: {a: {shell: 'true'}}\n"},
        variant="c",
    ),
    Mistake(
        4, "the pipeline by its name in a subfolder", argv=("build", "pipeline.yaml"), folder="specs/a", variant="b"
    ),
    Mistake(
        10, "a failure that is not one", [_draft(DRAFT, f"{DRAFT}    retry: {{max: 2, when: [fail]}}\n")], variant="b"
    ),
    Mistake(10, "`attempts` of another tool", [_draft(DRAFT, f"{DRAFT}    retry: {{attempts: 2}}\n")], variant="c"),
    Mistake(
        11, "an input that no name is near to", [_draft("[specs/app.md]", "[specs/app.md, terms.csv]")], variant="d"
    ),
    Mistake(11, "a misspelt folder", [_draft("[specs/app.md]", "[spec/app.md]")], variant="e"),
    Mistake(11, "a pattern in a misspelt folder", [_draft("[specs/app.md]", "[spec/*.md]")], variant="b"),
    Mistake(
        11, "a pattern that matches nothing", [_draft("[specs/app.md]", "[specs/app.md, notes/*.md]")], variant="c"
    ),
    Mistake(13, "braces that are not closed", [(_PROMPT, "| blocks }}", "| blocks }")], variant="b"),
    Mistake(13, "a file as a member of `inputs`", [(_PROMPT, "inputs | blocks", "inputs.app")], variant="c"),
    Mistake(14, "a variable without `vars`", [_draft("${{ vars.model }}", "${{ model }}")], variant="c"),
    Mistake(14, "an expression without its `$`", [_draft("${{ vars.model }}", '"{{ vars.model }}"')], variant="b"),
    Mistake(14, "a misspelt variable in a script", [_shell(_IN_THE_THIRD_LINE)], variant="d"),
    Mistake(14, "the environment", [_draft("${{ vars.model }}", "${{ env.MODEL }}")], variant="e"),
    Mistake(16, "the same output in a list", [_draft(LAST, LAST + _SAME_OUTPUT_IN_A_LIST)], variant="b"),
    Mistake(17, "a cycle of files and `needs`", [_draft(LAST, LAST + _MIXED_CYCLE)], variant="b"),
    Mistake(17, "a draft after its own check", [_draft(DRAFT, f"{DRAFT}    needs: [check]\n")], variant="c"),
    Mistake(
        17,
        "a draft from notes on it",
        [_draft(DRAFT, DRAFT.replace("]", ", out/notes.md]")), _draft(LAST, LAST + _NOTES)],
        variant="d",
    ),
    Mistake(18, "a server that wants a key", [_draft("{model: gpt-5-mini}", "{model: locked}")], variant="b"),
    Mistake(
        18,
        "a server that refuses the key",
        [_draft("{model: gpt-5-mini}", "{model: locked}")],
        env={"OPENAI_API_KEY": "sk-wrong"},
        variant="c",
    ),
    Mistake(19, "a model on the command line", argv=("build", "--model", "gpt-9"), variant="b"),
    Mistake(19, "a name that is nearly right", [_draft("${{ vars.model }}", "gpt5-mini")], variant="c"),
    Mistake(
        19,
        "a server that does not list its models",
        [_draft("{model: gpt-5-mini}", "{model: gpt-9}"), _draft("SERVER", f"SERVER{SILENT}")],
        variant="d",
    ),
    Mistake(
        21,
        "a program by its path in ~/bin",
        [_shell("~/bin/wordcount out/draft.md > out/count.txt")],
        tools={"wordcount": '#!/bin/sh\nexec wc -w "$1"\n'},
        variant="b",
    ),
    Mistake(20, "a pattern in the command", [_shell("cat specs/*.md > out/count.txt")], variant="b"),
    Mistake(22, "`curl` in a pipe", [_shell("curl -s https://example.com | wc -c > out/count.txt")], variant="b"),
    Mistake(22, "a server of this machine", [_shell("curl -sf http://127.0.0.1:8000/ > out/count.txt")], variant="c"),
    Mistake(
        22,
        "a program that reads what `curl` does not get",
        [_shell("(curl -s https://example.com || true) | grep -c Example > out/count.txt")],
        variant="d",
    ),
    Mistake(23, "a script of several lines", [_shell(_MULTI_LINE)], variant="b"),
    Mistake(23, "several commands", [_shell(_SEVERAL_COMMANDS)], variant="d"),
    Mistake(
        23,
        "a script that prints nothing",
        [_draft(LAST, LAST + "\n  count: {needs: [check], inputs: [check.sh], shell: [sh, check.sh]}\n")],
        files={"check.sh": "#!/bin/sh\ntest -s out/draft.md\nexit 3\n"},
        variant="e",
    ),
    Mistake(
        23,
        "a step of the verification that prints nothing",
        [
            _draft(
                LAST,
                LAST + '\n  count: {needs: [check], shell: "true", verify: [{shell: "true"}, {shell: "exit 3"}]}\n',
            )
        ],
        variant="f",
    ),
    Mistake(23, "too much output", [_shell("yes")], variant="c"),
    Mistake(
        24,
        "an error in the library",
        files={
            "tests/test_settings.py": _JSON_TESTS,
            "tests/settings.py": "import json\n\n\ndef read(text):\n    return json.loads(text)\n",
            "tests/__init__.py": "",
        },
        variant="b",
    ),
    Mistake(24, "two causes", files={"tests/test_two.py": _TWO_CAUSES}, variant="c"),
    Mistake(
        25,
        "a well-known package",
        [("tests/test_draft.py", "from pathlib", "import cv2\nfrom pathlib")],
        tools={"uv": "#!/bin/sh\n"},
        variant="b",
    ),
    Mistake(
        25,
        "a module of the tests that is not there",
        [("tests/test_draft.py", "from pathlib", "from tests.helper import words\nfrom pathlib")],
        variant="c",
    ),
    Mistake(20, "a file that no stage has", [_shell("python -c 'open(\"out/x.md\")'")], variant="c"),
    Mistake(26, "a limit of tokens that is too low", [_draft("      returns: text\n", _WITH_LIMIT)], variant=""),
)
"""Other forms of the mistakes, and some beyond them."""


def reply(asked: Asked) -> Reply:
    """Return the response of the model server: a draft, or that it does not have the model."""
    if asked.method == "GET" and SILENT in asked.path:
        return Reply(status=404, parts=(b"not found",))
    if asked.method == "GET":
        return reported({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})
    model = asked.body["model"]
    if model == "locked":
        body = {"message": "Invalid API key provided", "type": "authentication_error", "param": None, "code": None}
        return Reply(status=401, parts=(json.dumps({"error": body}).encode(),))
    if asked.body.get("max_tokens") == SHORT:
        return chat("# Draft\n\nA page with a list", "length")
    if model in MODELS:
        return chat("# Draft\n\nA page with a list of tasks.\n")
    text = f"The model `{model}` does not exist or you do not have access to it."
    body = {"message": text, "type": "invalid_request_error", "param": None, "code": "model_not_found"}
    return Reply(status=404, parts=(json.dumps({"error": body}).encode(),))
