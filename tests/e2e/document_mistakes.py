"""Further mistakes of a first hour: in the text of the pipeline, and on the command line."""

from collections.abc import Sequence

from tests.e2e.first_hour import DRAFT, LAST, Change, Mistake

_OUTPUT = "    outputs: [out/draft.md]\n"
_RETURNS = "      returns: text\n"
KEY = "sk-proj-1f9c0b7a5d"
"""A key that no message may show."""


def _text(old: str, new: str) -> Change:
    return ("pipeline.yaml", old, new)


def _in_llm(line: str) -> Change:
    return _text(_RETURNS, f"{_RETURNS}      {line}\n")


_COPY = """\

  copy:
    inputs: [specs/app.md]
    outputs: [out/]
    shell: cp specs/app.md out/
"""
_SCOPE = _COPY.replace("outputs: [out/]", "outputs: [out/copy.md]\n    allowed_paths: {write: [out/]}")

SECRETS: Sequence[Mistake] = (
    Mistake(27, "a key in `llm`", [_in_llm(f"api_key: {KEY}")]),
    Mistake(27, "a token in quotes", [_in_llm(f'token: "{KEY}"')], variant="b"),
    Mistake(27, "a password beside another mistake", [_in_llm(f"extra: {{password: {KEY}, a: 1}}")], variant="c"),
    Mistake(
        27,
        "a key in the defaults",
        [
            _text("stages:\n", f"defaults: {{llm: {{provider: anthropic, api-key: {KEY}}}}}\nstages:\n"),
            _text("      provider: openai\n", ""),
        ],
        variant="d",
    ),
    Mistake(27, "a secret of a stage without a model", [_text(LAST, f"{LAST}    secret: {KEY}\n")], variant="e"),
    Mistake(27, "a key in a line with a syntax error", [_in_llm(f"apikey: {KEY}: x")], variant="f"),
)

DOCUMENTS: Sequence[Mistake] = (
    Mistake(28, "spaces between paths", [_text(_OUTPUT, "    outputs: out/draft.md out/b.md\n")]),
    Mistake(28, "lines without dashes", [_text(DRAFT, "    inputs:\n      specs/app.md\n      b.md\n")], variant="b"),
    Mistake(28, "a block of lines", [_text(DRAFT, "    inputs: |\n      specs/app.md\n      b.md\n")], variant="c"),
    Mistake(28, "spaces in an entry", [_text("[specs/app.md]", "[specs/app.md tests/]")], variant="d"),
    Mistake(28, "spaces in a line", [_text(DRAFT, "    inputs:\n      - specs/app.md b.md\n")], variant="e"),
    Mistake(28, "spaces in an output", [_text(_OUTPUT, "    outputs: [out/draft.md out/b.md]\n")], variant="f"),
    Mistake(29, "a stage that resembles no other", argv=("plan", "lint")),
    Mistake(29, "a need that resembles no other", [_text(LAST, f"{LAST}    needs: [lint]\n")], variant="b"),
    Mistake(29, "a file in `needs`", [_text(LAST, f"{LAST}    needs: [out/draft.md]\n")], variant="c"),
    Mistake(30, "a misspelt key of the stage in `llm`", [_in_llm("input: [specs/app.md]")]),
    Mistake(30, "a key of the stage in `pytest`", [_text("[tests/]}\n", "[tests/], timeout: 5m}\n")], variant="b"),
    Mistake(
        30,
        "a key of `llm` at the stage",
        [
            _text(DRAFT, f"{DRAFT}    prompt: prompts/draft.md.j2\n"),
            _text("      prompt: prompts/draft.md.j2\n", ""),
        ],
        variant="c",
    ),
    Mistake(31, "spaces, then a tab", [_text("      model:", "      \tmodel:")]),
    Mistake(
        31,
        "three tabs, and one in a text",
        [
            _text("      model:", "\t\tmodel:"),
            _text(DRAFT, f"\t{DRAFT.lstrip()}"),
            _text(LAST, f"\t{LAST.lstrip()}\n  show:\n    shell: |\n      cat <<-END\n      \tx\n      END\n"),
        ],
        variant="b",
    ),
    Mistake(32, "a folder over the output of a stage", [_text("\n  check:\n", f"{_COPY}\n  check:\n")]),
    Mistake(32, "a write scope over it", [_text("\n  check:\n", f"{_SCOPE}\n  check:\n")], variant="b"),
    Mistake(
        32,
        "an output of the stage above, by a name that is sorted before it",
        [_text("\n  check:\n", "\n  again: {outputs: [out/draft.md], shell: echo > out/draft.md}\n\n  check:\n")],
        variant="c",
    ),
)

_NO_SERVER = _text("      base_url: SERVER\n", "")
_PROMPT = "prompts/draft.md.j2"

MORE: Sequence[Mistake] = (
    Mistake(33, "a heading after a space", [_text("[specs/app.md]", "[specs/app.md #Design]")]),
    Mistake(33, "an output with a name", [_text(_OUTPUT, "    outputs: {draft: out/draft.md}\n")], variant="b"),
    Mistake(33, "`on` of another tool in `retry`", [_text(LAST, f"{LAST}    retry: {{on: twice}}\n")], variant="c"),
    Mistake(34, "`block` in place of `blocks`", [(_PROMPT, "| blocks", "| block")]),
    Mistake(34, "a misspelt filter", [(_PROMPT, "| blocks", "| blcks")], variant="b"),
    Mistake(
        35,
        "no key for a provider of the defaults",
        [
            _NO_SERVER,
            _text("      provider: openai\n", ""),
            _text("stages:\n", "defaults:\n  llm: {provider: openai}\n\nstages:\n"),
        ],
    ),
    Mistake(35, "no key in a plan", [_NO_SERVER], argv=("plan",), variant="b"),
    Mistake(36, "an option before its command", argv=("--dry-run", "build")),
    Mistake(36, "a stage in place of a command", argv=("draft",), variant="b"),
    Mistake(36, "a file in place of a command", argv=("pipeline.yaml",), variant="c"),
    Mistake(36, "a misspelt command below a command", argv=("model", "lst"), variant="d"),
    Mistake(
        37,
        "a pattern that matches nothing, in a plan",
        [_text("[specs/app.md]", "[specs/app.md, 'notes/*.md']")],
        argv=("plan",),
    ),
)
