"""A proposal is shown only if it holds: the corrected copy loads and plans, without the error and without a new one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import orch23
from orch23.cli.group import orch23 as program
from tests.project import Project

PIPELINE = """\
version: 1
name: app
vars: {model: m1, limit: 60s}
pools: {net: 2}
defaults:
  timeout: 90s
stages:
  draft:
    desc: Write the draft.
    inputs: [specs/app.md]
    outputs: [out/draft.md]
    retry: {max: 1, when: [verify_failed]}
    llm:
      provider: scripted
      model: ${{ vars.model }}
      answers: answers.yaml
      prompt: prompts/draft.md.j2
      returns: text
    verify:
      inputs: [specs/app.md]
      steps:
        - check: json_schema
          with: {schema: specs/schema.json, files: [out/*.json]}
        - shell: test -f out/draft.md
  check:
    inputs: [out/draft.md]
    needs: [draft]
    pools: [net]
    network: false
    shell: test -f out/draft.md
  each:
    foreach: {from: items.json, as: item}
    inputs: [specs/app.md]
    outputs: ["each/${{ item }}.txt"]
    shell: [cp, specs/app.md, "each/${{ item }}.txt"]
"""
FILES = {
    "specs/app.md": "# App\n\n## Design\n\nOne page.\n",
    "specs/schema.json": '{"type": "object"}',
    "prompts/draft.md.j2": "{{ inputs | blocks }}\n",
    "answers.yaml": 'draft: ["# A\\n"]\n',
    "items.json": '["a", "b"]',
}
DRAFT, CHECK, EACH = "    inputs: [specs/app.md]\n    outputs: [out", "needs: [draft]", "{from: items.json, as: item}"
DEPTH = "    network: false\n"


def written(project: Project, old: str = "", new: str = "") -> Project:
    assert PIPELINE.count(old) == 1 or not old, old
    return project.write({**FILES, "pipeline.yaml": PIPELINE.replace(old, new) if old else PIPELINE})


def corrected(text: str, shown: str) -> Iterator[str]:
    """Yield the copy of a text with each correction that an error message shows."""
    lines = text.split("\n")
    for found in re.finditer(r"^ *(\d+) - .*\n((?: *\1 \+ .*\n)+)", shown, re.MULTILINE):
        number = int(found[1])
        new = [line.partition(" + ")[2] for line in found[2].splitlines()]
        yield "\n".join([*lines[: number - 1], *new, *lines[number:]])


def proposals(project: Project, command: str = "validate") -> list[str]:
    """Return the copies that a command shows of the pipeline; assert that each loads and plans."""
    text, shown = project.read("pipeline.yaml"), project.run(command)
    copies = list(corrected(text, shown.err))
    for copy in copies:
        project.write({"pipeline.yaml": copy})
        tried = project.run(command)
        assert tried.code == 0, f"{shown.err}\n{tried.err}"
    project.write({"pipeline.yaml": text})
    return copies


def test_the_project_has_no_error(project: Project) -> None:
    assert written(project).run("validate").code == 0


# The mistake, and the texts that are proposed in its place.
HOLD = [
    (CHECK, "needs: [drfat]", ["needs: [draft]"]),
    (CHECK, "need: [draft]", ["needs: [draft]"]),
    (CHECK, "needs: draft", ["needs: [draft]"]),
    (CHECK, "needs: {a: draft}", ["needs: [draft]"]),
    (CHECK, "needs: [out/draft.md]", ["needs: [draft]"]),
    (CHECK, "deps: [draft]", ["needs: [draft]"]),
    (CHECK, "dependencies: [draft]", ["needs: [draft]"]),
    ("    outputs: [out/draft.md]", "    outputs: out/draft.md", ["outputs: [out/draft.md]"]),
    (DRAFT, "    inputs: [specs/ap.md]\n    outputs: [out", ["inputs: [specs/app.md]"]),
    (DRAFT, "    inputs: [app.md]\n    outputs: [out", ["inputs: [specs/app.md]"]),
    (DRAFT, "    inputs: [specs/app.md#Desgin]\n    outputs: [out", ["inputs: [specs/app.md#Design]"]),
    (EACH, "{in: items.json, as: item}", ["{from: items.json, as: item}", "{in: [items.json], as: item}"]),
    (EACH, "\n      in: items.json", ["from: items.json", "in: [items.json]"]),
    (EACH, "{form: items.json, as: item}", ["{from: items.json, as: item}"]),
    (EACH, "{in: a, as: item}", ["{in: [a], as: item}"]),
    ("${{ vars.model }}", "${{ vars.modle }}", ["${{ vars.model }}"]),
    ("${{ vars.model }}", "${{ var.model }}", ["${{ vars.model }}"]),
    ("pools: [net]", "pools: [nett]", ["pools: [net]"]),
    ("check: json_schema", "check: json_shema", ["check: json_schema"]),
    ("provider: scripted", "provider: scriptd", ["provider: scripted"]),
    ("prompts/draft.md.j2", "prompts/drft.md.j2", ["prompts/draft.md.j2"]),
    ("timeout: 90s", "timeout: 90 seconds", ["timeout: 90s"]),
    ("network: false", "network: 'false'", ["network: false"]),
    ("pools: {net: 2}", "executor: locl\npools: {net: 2}", ["executor: local"]),
    ("timeout: 90s", "timeout: 1h 30m", ["timeout: 1h30m"]),
    ("pools: {net: 2}", "pools: {net: 2}\nstop_conditions: {max_cost_usd: $2}", ["stop_conditions: {max_cost_usd: 2}"]),
    ("{from: items.json, as: item}", "items.json", ["foreach: {from: items.json}"]),
    ("{from: items.json, as: item}", "[a, b]", ["foreach: {in: [a, b]}"]),
    ("- shell: test -f out/draft.md", "- test -f out/draft.md", ["- shell: test -f out/draft.md"]),
    ("network: false\n    shell:", "command:", ["shell:"]),
    ("inputs: [out/draft.md]", "inputs: [draft]", ["inputs: [out/draft.md]"]),
    ("desc: Write the draft.", "desc: Note: write it", ['desc: "Note: write it"']),
    ("  check:\n", " check:\n", ["  check:"]),
    ("    network: false\n", "     network: false\n", ["    network: false"]),
]
# Nothing near is meant, or the near text would not load, not plan, or do something else.
REFUSED = [
    (CHECK, "needs: [chekc]"),  # the stage itself
    (CHECK, "needs: [each@c]"),  # not an item
    (CHECK, "needs: [draft, chekc, each@c]"),
    (CHECK, "needs: [xyz]"),
    (DRAFT, f"    needs: [chekc]\n{DRAFT}"),  # a stage that comes after it
    (DRAFT, f"    needs: [chec]\n{DRAFT}"),
    (DRAFT, "    inputs: [out/drft.md]\n    outputs: [out"),  # its own output
    (DRAFT, "    inputs: [specs/one.md]\n    outputs: [out"),
    (DRAFT, "    input: [nothing.md]\n    outputs: [out"),
    (EACH, "{in: nothing.json, as: item}"),
    (EACH, "{from: nothing.json, as: item}"),
    (DEPTH, "    retry: {on: [fail]}\n"),
    (DEPTH, "    retry: {on: fail}\n"),
    (DEPTH, "    retry: {max: 1}\n    rtry: 2\n"),  # would be there twice
    (DEPTH, "    input: [specs/app.md]\n"),
    (DRAFT, "    input: [specs/ap.md]\n    outputs: [out"),  # another mistake
    (EACH, "{from: items.json, as: item}\n    output: [out/draft.md]"),  # of another stage
    (DEPTH, "    output: [specs/app.md]\n"),
    ("version: 1", "version: 1\nvar: {a: b}"),
    ("version: 1", "version: 1\nstage: {}"),
    ("version: 1", "version: 1\nfoo: bar"),
    ('outputs: ["each/${{ item }}.txt"]', 'outputs: ["each/${{ itme.name }}.txt"]'),
]


@pytest.mark.stride(3)
@pytest.mark.parametrize("command", ["validate", "build"])
@pytest.mark.parametrize(("old", "new", "expected"), HOLD)
def test_what_is_proposed_loads_and_plans(
    project: Project, old: str, new: str, expected: list[str], command: str
) -> None:
    copies = proposals(written(project, old, new), "plan" if command == "build" else command)
    for copy, text in zip(copies, expected, strict=True):
        assert text in copy


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_what_does_not_hold_is_not_proposed(project: Project, old: str, new: str) -> None:
    shown = written(project, old, new).run("validate")
    assert shown.code == 65
    assert "did you mean" not in shown.err, shown.err
    assert list(corrected(project.read("pipeline.yaml"), shown.err)) == []
    assert "= help: " in shown.err


def misspelt(word: str) -> Iterator[str]:
    """Yield a word with a letter less, with two swapped, with one twice, and with one changed."""
    at = len(word) // 2
    yield word[:at] + word[at + 1 :]
    yield word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :]
    yield word[:at] + word[at] + word[at:]
    yield word[:at] + "z" + word[at + 1 :]


KEYS = [(found.start(1), found[1]) for found in re.finditer(r"(?m)(?:^ *(?:- )?|[{,] ?)(\w{2,}):", PIPELINE)]
TYPOS = [(at, word, typo) for at, word in KEYS for typo in misspelt(word) if typo != word]


@pytest.mark.stride(17)
@pytest.mark.parametrize(("at", "word", "typo"), TYPOS)
def test_a_misspelt_key_has_no_wrong_proposal(project: Project, at: int, word: str, typo: str) -> None:
    text = PIPELINE[:at] + typo + PIPELINE[at + len(word) :]
    project.write({**FILES, "pipeline.yaml": text})
    for copy in proposals(project):
        # The name of a stage, of a var or of a pool may be changed where it is used.
        assert copy == PIPELINE or word in ("draft", "check", "each", "net", "model", "limit"), (typo, copy)


def test_another_mistake_does_not_hide_that_a_proposal_makes_a_cycle(project: Project) -> None:
    text = PIPELINE.replace(DRAFT, f"    needs: [chec]\n{DRAFT}").replace(EACH, "{from: 3}")
    shown = project.write({**FILES, "pipeline.yaml": text.replace("shell: [cp", "shall: [cp")}).run("validate")
    assert [shown.err.count(code) for code in ("E823", "E811", "E802")] == [1, 1, 1], shown.err
    assert shown.err.count("did you mean") == 1  # `shell`
    assert "there is the stage `check`" in shown.err


# What is changed, and the way out that a command shows; no corrected line would hold, or more than one is edited.
WAYS = [
    (("validate",), "pools: {net: 2}", "max_cost_usd: 2", "write `stop_conditions: {max_cost_usd: 2}`"),
    (("validate",), "  check:\n", "  check\n", "write `check:`"),
    (("validate",), "    shell: test -f", '    shell: "test -f', 'add the closing " in this line'),
    (("validate",), "      returns: text", "      returns: text\n      retry: 2", "which has it: remove it here"),
    (("validate",), "    retry: {max: 1, when: [verify_failed]}", "    model: m1", "which has it: remove it here"),
    (("validate",), DRAFT, "    inputs: [check]\n    outputs: [out", "`check` is a stage; `inputs` are files"),
    (("validate",), "{from: items.json, as: item}", "{from: items.json#/a}", "leave `/a` out for the whole list"),
    (("validate",), '["each/${{ item }}.txt"]', "[each/a.txt]", "as in `each/${{ item }}-a.txt`"),
    (
        ("validate",),
        "    foreach: {from: items.json, as: item}",
        "    matrix: {a: [b]}",
        "write `foreach: {in: [a, b]}`",
    ),
    (("validate",), "provider: scripted", "provider: ollama", "`base_url: http://127.0.0.1:11434/v1`"),
    (("validate",), "prompt: prompts/draft.md.j2", "prompt: Write it.", "write this text into a file"),
    (
        ("validate",),
        "prompt: prompts/draft.md.j2",
        "prompt: |\n        Write\n        it.",
        "write this text into a file",
    ),
    (("validate",), "timeout: 90s", "desc: ${vars.limit}", "+   desc: ${{ vars.limit }}"),
    (("build", "--stage", "check"), "", "", "stages are arguments: `orch23 build STAGE`"),
    (("affected", "main"), "", "", "write `--since REV`"),
    (("build", "--jobs", "two"), "", "", "write `-j, --jobs N`"),
    (("build", "each@c"), "", "", "the stages are `each@a`, `each@b`"),
    (("plan", "--set", "vars.limit=3"), "", "", "did you mean `limit`?"),
]


@pytest.mark.parametrize(("argv", "old", "new", "way"), WAYS)
def test_a_mistake_has_a_way_out(project: Project, argv: tuple[str, ...], old: str, new: str, way: str) -> None:
    refused = written(project, old, new).run(*argv)
    assert refused.code or "warning[W805]" in refused.err
    assert way in refused.err


def test_a_wrong_name_for_accept_interrupts_nothing(project: Project) -> None:
    refused = written(project).run("accept", "nope")
    assert "no stage is named `nope`" in refused.err
    assert "interrupted" not in refused.out + refused.err


@pytest.mark.parametrize("ending", ["tx", "tex"])
def test_a_pattern_that_the_stage_itself_would_match_is_not_proposed(project: Project, ending: str) -> None:
    each = f'inputs: [specs/app.md, "each/*.{ending}"]\n    outputs: ["each'
    written(project, 'inputs: [specs/app.md]\n    outputs: ["each', each)
    shown = project.write({"each/a.txt": "x"}).run("validate").err
    assert "warning[W822]" in shown
    assert "did you mean" not in shown


@pytest.mark.slow
def test_many_mistakes_are_tried_only_so_often(project: Project) -> None:
    stages = "".join(f"  s{n}x: {{need: [draft], shell: 'true'}}\n" for n in range(60))
    shown = project.write({**FILES, "pipeline.yaml": PIPELINE + stages}).run("validate")
    assert shown.err.count("did you mean `needs`?") == 50, "all are tried at once"
    shown = project.write({"pipeline.yaml": PIPELINE + stages + "  bad: {frob: 1}\n"}).run("validate")
    assert shown.err.count("did you mean `needs`?") == 50, "also beside an error without a proposal"
    one = PIPELINE + stages + "  bad: {need: [draft], needs: [draft], shell: x}\n"
    shown = project.write({"pipeline.yaml": one}).run("validate")
    assert shown.err.count("did you mean `needs`?") == 50, "by halves, beside one that fails"
    mixed = "".join(f"  s{n}x: {{need: [draft], {'needs: [draft], ' * (n % 2)}shell: 'true'}}\n" for n in range(60))
    shown = project.write({"pipeline.yaml": PIPELINE + mixed}).run("validate")
    assert shown.err.count("did you mean `needs`?") < 12, "each is tried, but only so many copies"


@pytest.mark.slow
def test_a_large_pipeline_has_no_proposals_that_would_take_seconds_to_try(project: Project) -> None:
    big = PIPELINE.replace(CHECK, "need: [draft]") + "# " + "x" * 300_000 + "\n"
    assert "did you mean" not in project.write({**FILES, "pipeline.yaml": big}).run("validate").err


def test_a_proposal_that_is_tried_writes_nothing(project: Project) -> None:
    before = written(project, CHECK, "needs: [drfat]").files()
    assert "did you mean `draft`?" in project.run("build").err
    assert project.files() == before


@pytest.mark.parametrize(
    ("argv", "proposed"),
    [
        (("plan", "--stage", "draft"), ""),
        (("plan", "--sett", "a=b"), "'--set'"),
        (("help", "retry"), ""),
        (("help", "explan"), "`orch23 help explain`"),
        (("biuld",), "`build`"),
        (("frobnicate",), ""),
        (("build", "drfat"), "`orch23 build draft`"),
        (("build", "chek", "-n1"), ""),
        (("build", "each@c"), ""),
    ],
)
def test_a_word_of_the_command_line_is_corrected_only_if_it_is_misspelt(
    project: Project, argv: tuple[str, ...], proposed: str
) -> None:
    shown = written(project).run(*argv).err.lower()
    assert ("did you mean" in shown) == bool(proposed), shown
    assert proposed in re.sub(r"orch23 -c \S+", "orch23", shown)


COMMAND = re.compile(r"`orch23 ([a-z][^`]*)`")


def commands_of_hints() -> set[str]:
    """Return the command lines between backticks in the texts of orch23; what a text fills in is `X`."""
    found: set[str] = set()
    for path in Path(orch23.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            values = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else "X" for one in values
            )
            found.update(COMMAND.findall(text))
    return found


@pytest.mark.parametrize("line", sorted(commands_of_hints()))
def test_a_command_in_a_text_exists_with_its_options(line: str) -> None:
    group: click.Command = program
    for word in line.replace("|", " ").split():
        if isinstance(group, click.Group) and not word.startswith("-"):
            name = word
            command = group.get_command(click.Context(group), name)
            assert command is not None or name == "X", line
            group = command or group
        elif word.startswith("-") and word not in ("--help", "-C", "--X"):
            known = {option for one in group.params for option in (*one.opts, *one.secondary_opts)}
            assert word.partition("=")[0] in known, line
