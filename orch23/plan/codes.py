"""Diagnostic codes of plans: title, meaning and solution of each."""

from collections.abc import Mapping

PLAN_CODES: Mapping[str, tuple[str, str]] = {
    "E820": (
        "cycle between stages",
        "Each of these stages waits for the next one, so none can start. Each edge is listed with its path or its "
        "`needs`. Remove one: read another file, or split a stage in two. A stage may read a file before an llm stage "
        "changes it, but only if the file was yours before.",
    ),
    "E821": (
        "two stages may write the same file",
        "Otherwise the content of the file would depend on the order of the stages. Narrow `outputs` or "
        "`allowed_paths.write` of one of them, or make them items of one foreach with `order: sequential`, which may "
        "edit the same files.",
    ),
    "E822": (
        "an input that does not exist",
        "The file does not exist and no stage makes it. Create it, correct the path, add it to the outputs of a "
        "stage, or write `{path: ..., optional: true}`. Write `/` at the end of a directory.",
    ),
    "W822": (
        "a pattern that matches no file",
        "No file matches the pattern, and no stage makes one that would. Correct it, create the files, or "
        "remove it; write `{path: PATTERN, optional: true}` if there may be none. "
        "If a model stage would have no input at all, and a similar pattern matches files, it is an error (E822).",
    ),
    "E823": (
        "unknown stage in `needs`",
        "`needs` and the command line can name only stages of this pipeline; `name` or `name[*]` of a foreach means "
        "all of its items. Correct the name: `orch23 graph` shows all stages.",
    ),
    "E824": (
        "a foreach cannot be expanded",
        "`from` must lead to a list. Correct the file, or the pointer after `#`. A stage with `retry` that makes the "
        "file gets another attempt.",
    ),
    "E825": (
        "bad key of an item",
        "The name of an item is `stage@key`, so its key has 1 to 64 characters of A-Z a-z 0-9 . _ - only. "
        "`foreach.key` names the field with the key; items that are plain strings or numbers are their own keys.",
    ),
    "E826": (
        "two items with one key",
        "The key of an item is part of the name of its stage, so it must be unique. Change one of them, or let "
        "`foreach.key` name another field.",
    ),
    "E827": (
        "an item needs an unknown item",
        "The field that `foreach.needs` names lists keys of other items of the same foreach. Correct the key, or add "
        "the item.",
    ),
    "W827": (
        "a path of pytest that has no effect",
        "A test file that is below `paths` but not in `inputs` is not in the sandbox directory, so pytest does not run "
        "it: add it to `inputs`. A directory of `pythonpath` that does not exist has no modules: correct or remove it.",
    ),
    "E829": (
        "a stage between two members of a promotion group",
        "Stages that read one member of a promotion group wait for all members. Here a member also waits for such a "
        "stage. Add the stages in between to the group (`promote: GROUP`), remove a member from it, or remove one of "
        "the listed edges.",
    ),
}
