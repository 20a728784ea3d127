"""Diagnostic codes of plans: title, meaning and solution of each."""

from collections.abc import Mapping

PLAN_CODES: Mapping[str, tuple[str, str]] = {
    "E820": (
        "cycle between stages",
        "Each stage named waits for the next, so none can start. Every edge is listed with the path or the `needs` "
        "that makes it. Take one of them away: read another file, or split a stage in two. A stage that needs "
        "itself is a cycle of one.",
    ),
    "E821": (
        "two stages may write the same file",
        "A file has one owner, or nobody could say whose bytes are right. Narrow `outputs` or `allowed_paths.write` of "
        "one of them, or make them items of one foreach with `order: sequential`, which may edit the same files.",
    ),
    "E822": (
        "an input that nobody makes",
        "The file does not exist and no stage has it among its outputs. Create it, correct the path, add it to the "
        "outputs of the stage that makes it, or write `{path: ..., optional: true}` if the stage can do without. Of a "
        "folder, write its path with `/` at the end.",
    ),
    "E823": (
        "unknown stage in `needs`",
        "`needs`, and a command line, name stages of this pipeline; `name` or `name[*]` of a foreach means all of its "
        "items. Correct the name: `orch23 status` lists them.",
    ),
    "E824": (
        "a foreach cannot be expanded",
        "What `from` points at must be a list. Correct the file, or the pointer behind its `#`. A stage that makes the "
        "file is asked again, if it has `retry`.",
    ),
    "E825": (
        "bad key of an item",
        "Each item needs a key of 1 to 64 characters out of A-Z a-z 0-9 . _ - to be named `stage@key`. "
        "`foreach.key` names the field that holds it; items that are plain strings or numbers are their own keys.",
    ),
    "E826": (
        "two items with one key",
        "Keys of a foreach are names of stages, so no two items may share one. Change one of them, or let "
        "`foreach.key` name a field that differs.",
    ),
    "E827": (
        "an item needs an unknown item",
        "The field that `foreach.needs` names lists keys of other items of the same foreach. Correct the key in the "
        "list, or add the item.",
    ),
    "E829": (
        "a stage between two members of a promotion group",
        "All results of a promotion group reach the workspace at once, so a stage that reads one member waits for all "
        "of them. Here a member waits for such a stage in turn, so neither can start. Add the stages in between to the "
        "group (`promote: GROUP`), take a member out of it, or remove one of the edges that are listed.",
    ),
}
