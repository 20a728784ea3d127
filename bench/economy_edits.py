"""The edits of bench/model_economy.py, the reason for the cost of each, and the page about them."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Edit:
    """One edit of a built project, and the reason for its cost. The edits in `before` are built first."""

    name: str
    change: Change
    why: str
    before: tuple[Change, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """The cost of an edit: its calls, those of a build from scratch, the stages that called, the others that ran."""

    edit: Edit
    calls: int
    whole: int
    asked: tuple[str, ...]
    ran: tuple[str, ...]


def replaced(path: str, old: str, new: str) -> Change:
    """Return an edit of one place in a file."""

    def change(root: Path) -> None:
        text = (root / path).read_text(encoding="utf-8")
        if text.count(old) != 1:
            message = f"{path} has {text.count(old)} places that read {old!r}"
            raise AssertionError(message)
        (root / path).write_text(text.replace(old, new), encoding="utf-8")

    return change


def rewritten(path: str, how: Callable[[str], str]) -> Change:
    """Return an edit of a whole file."""

    def change(root: Path) -> None:
        text = (root / path).read_text(encoding="utf-8")
        new = how(text)
        if new == text:
            message = f"{path} is as it was"
            raise AssertionError(message)
        (root / path).write_text(new, encoding="utf-8")

    return change


def _moved(text: str) -> str:
    """Put the section `Export` before `Dates`."""
    head, dates, rest = text.partition("## Dates\n")
    first, export, after = rest.partition("## Export\n")
    own, errors, end = after.partition("## Errors\n")
    return head + export + own + dates + first + errors + end


def _without(text: str) -> str:
    """Remove the section `Dates`."""
    head, _, rest = text.partition("## Dates\n")
    return head + "## Export\n" + rest.partition("## Export\n")[2]


def _greet(root: Path) -> None:
    (root / "README.md").write_text("Hello.\n", encoding="utf-8")


def _touch(root: Path) -> None:
    later = (root / "spec.md").stat().st_mtime + 60
    for name in ("spec.md", "prompts/plan.md.j2", "pipeline.yaml"):
        os.utime(root / name, (later, later))


def _lose_outputs(root: Path) -> None:
    for name in ("src", "docs", "build"):
        shutil.rmtree(root / name)


def _forget_answers(root: Path) -> None:
    for name in (".orch23", "answers"):
        shutil.rmtree(root / name)


def _edit_output(root: Path) -> None:
    path = root / "src" / "dates.py"
    path.write_text("# mine\n" + path.read_text(encoding="utf-8"), encoding="utf-8")


NEW_SECTION = "\n## Search\n\nA long list wants a search.\n\n- `find` gives the tasks that hold a word.\n"
_WORD = replaced("spec.md", "`overdue` says whether", "`overdue` tells whether")

EDITS: Sequence[Edit] = (
    Edit(
        "a word in the prose of one section",
        replaced("spec.md", "may be due on a day", "can be due on a day"),
        "The stage that reads the section runs. Its list stays the same, so nothing after it runs (early cutoff).",
    ),
    Edit(
        "a word in a requirement of one section",
        _WORD,
        "The list changes, so everything that reads it runs. The guide is a chain: each part starts from the one "
        "before, so the later parts run too. The code stays the same, so it is not tested again.",
    ),
    Edit(
        "the same, then reverted",
        replaced("spec.md", "`overdue` tells whether", "`overdue` says whether"),
        "The earlier results are in the store.",
        before=(_WORD,),
    ),
    Edit(
        "a new requirement in the last section",
        rewritten("spec.md", lambda text: text + "- `retry` says whether to try again.\n"),
        "The stages that read the section, and its part of the guide, which is the last.",
    ),
    Edit(
        "a heading renamed",
        replaced("spec.md", "## Dates", "## Due dates"),
        "The key of an item is part of its identity, so this is a new section with new file names. The later parts "
        "of the guide run too.",
    ),
    Edit(
        "a section added at the end",
        rewritten("spec.md", lambda text: text + NEW_SECTION),
        "Only the new section, and the stages that read all lists.",
    ),
    Edit(
        "a section added in the middle",
        replaced("spec.md", "\n## Dates\n", f"{NEW_SECTION}\n## Dates\n"),
        "As above, and the later parts of the guide.",
    ),
    Edit(
        "a section removed",
        rewritten("spec.md", _without),
        "The later parts of the guide start from another text, and the summary reads one list less. The files of the "
        "section are removed.",
    ),
    Edit(
        "two sections swapped",
        rewritten("spec.md", _moved),
        "Only the order of the guide changes, from the first of the two.",
    ),
    Edit(
        "two spaces at the end of a line in a section",
        replaced("spec.md", "A task may be due on a day.\n", "A task may be due on a day.  \n"),
        "The bytes of an input count; in Markdown, these spaces are a line break.",
    ),
    Edit(
        "a blank line within a section",
        replaced("spec.md", "A task may be due on a day.\n", "A task may be due on a day.\n\n"),
        "The bytes count.",
    ),
    Edit(
        "blank lines between all sections, and at the end of the file",
        rewritten("spec.md", lambda text: text.replace("\n## ", "\n\n\n## ") + "\n\n"),
        "Blank lines at the end of a section do not count.",
    ),
    Edit(
        "words before the first section",
        replaced("spec.md", "A list of tasks for one person.", "A list of tasks for a whole family."),
        "They are in no section.",
    ),
    Edit(
        "a comment in a section",
        replaced("spec.md", "A task may be due on a day.\n", "A task may be due on a day.\n<!-- ask Ann -->\n"),
        "A model reads comments too.",
    ),
    Edit(
        "the wording of the prompt for lists",
        replaced("prompts/plan.md.j2", "List what this section requires", "List all that this section requires"),
        "All lists are requested again, and stay the same.",
    ),
    Edit(
        "a comment in that prompt",
        replaced("prompts/plan.md.j2", "{# What one section asks for. #}", "{# What a section wants; see the wiki. #}"),
        "Only the rendered prompt counts.",
    ),
    Edit(
        "a variable that only the prompt for lists uses",
        replaced("pipeline.yaml", "tone: plain", "tone: short"),
        "As with the wording of the prompt.",
    ),
    Edit(
        "the system prompt of all stages",
        replaced("prompts/system.md.j2", "a small program", "a very small program"),
        "Every request changes; the responses stay the same.",
    ),
    Edit(
        "another model for the code",
        replaced("pipeline.yaml", "{prompt: prompts/code.md.j2,", "{model: large, prompt: prompts/code.md.j2,"),
        "The model is in the key.",
    ),
    Edit(
        "another temperature for the guide",
        replaced("pipeline.yaml", "{prompt: prompts/guide.md.j2,", "{temperature: 1, prompt: prompts/guide.md.j2,"),
        "Parameters are in the key. Each part is requested again, although the one before it stays the same.",
    ),
    Edit(
        "a schema",
        replaced("schemas/summary.json", '"type": "array",', '"type": "array", "minItems": 1,'),
        "The schema is sent, and the response is checked against it.",
    ),
    Edit(
        "the layout of a schema",
        rewritten("schemas/summary.json", lambda text: text.replace("\n  ", "\n      ")),
        "Only the value of a schema counts.",
    ),
    Edit(
        "the program that lists the sections, with the same result",
        replaced("tools/sections.py", "indent=1", "indent=1, sort_keys=False"),
        "It runs. Its result stays the same, so nothing after it runs.",
    ),
    Edit(
        "files touched",
        _touch,
        "No key contains a time.",
    ),
    Edit(
        "a file that no stage reads",
        _greet,
        "It is not an input.",
    ),
    Edit(
        "two stages renamed",
        rewritten(
            "pipeline.yaml",
            lambda text: text.replace("\n  code:\n", "\n  modules:\n").replace("\n  summary:\n", "\n  titles:\n"),
        ),
        "The name of a stage is not in its key.",
    ),
    Edit(
        "a check added to the verification of the code",
        replaced(
            "pipeline.yaml", "      - check: python_syntax\n", "      - check: python_syntax\n      - shell: ls src\n"
        ),
        "The existing code is verified and passes. If it failed, the model would be called to fix it.",
    ),
    Edit(
        "`if` switches a stage off",
        replaced("pipeline.yaml", "summary: true", "summary: false"),
        "A skipped stage makes no call.",
    ),
    Edit(
        "and on again",
        replaced("pipeline.yaml", "summary: false", "summary: true"),
        "Its result is in the store.",
        before=(replaced("pipeline.yaml", "summary: true", "summary: false"),),
    ),
    Edit(
        "retries, time limits, pools, descriptions",
        rewritten(
            "pipeline.yaml",
            lambda text: text.replace(
                "pools: {llm: 8}", "pools: {llm: 2}\nstop_conditions: {max_llm_calls: 99}"
            ).replace("    desc: One guide", "    retry: {max: 3}\n    timeout: 5m\n    desc: The guide"),
        ),
        "They do not affect results.",
    ),
    Edit(
        "all outputs deleted",
        _lose_outputs,
        "They are in the store.",
    ),
    Edit(
        "the store deleted, as in a fresh clone",
        lambda root: shutil.rmtree(root / ".orch23"),
        "The lock file proves what the outputs are. Only the last version of a chain is on disk; the others are made "
        "from recorded responses.",
    ),
    Edit(
        "the store and the recorded responses deleted",
        _forget_answers,
        "The prompt that shows an earlier version of the guide cannot be rendered. The digests of its parts prove that "
        "it is the same.",
    ),
    Edit(
        "an output edited by hand, then discarded",
        _edit_output,
        "The result is restored. Without `--overwrite-edited`, the build would exit with 6.",
        options=("--overwrite-edited",),
    ),
)

_PAGE = Path(__file__).parent / "economy" / "page.md"


def page(whole: int, rows: Sequence[Row]) -> str:
    """Return docs/economy.md."""
    lines = [
        f"| {row.edit.name} | {row.calls} | {row.whole} | {_names(row.asked)} | {_names(row.ran)} | {row.edit.why} |\n"
        for row in rows
    ]
    calls, everything = sum(row.calls for row in rows), sum(row.whole for row in rows)
    said = {
        "whole": whole,
        "rows": "".join(lines),
        "calls": calls,
        "all": everything,
        "share": f"{calls / everything:.0%}",
    }
    text = _PAGE.read_text(encoding="utf-8")
    for name, value in said.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def _names(names: Sequence[str]) -> str:
    """Return the names of stages, with the items of a foreach in one group."""
    families: dict[str, list[str]] = {}
    for name in sorted(names):
        family, _, item = name.partition("@")
        families.setdefault(family, []).append(item)
    return ", ".join(f"{family}@{{{','.join(items)}}}" if any(items) else family for family, items in families.items())
