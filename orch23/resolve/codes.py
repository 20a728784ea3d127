"""Diagnostic codes of inputs, prompts and commands: title, meaning and solution of each."""

from collections.abc import Mapping

RESOLVE_CODES: Mapping[str, tuple[str, str]] = {
    "E831": (
        "a prompt, template or schema cannot be read",
        "The file that the pipeline names does not exist, is not UTF-8 text, or is too large. Paths are relative to "
        "the root of the project: correct the path, or create the file.",
    ),
    "E832": (
        "a prompt or template cannot be rendered",
        "It is a Jinja2 file that can use only `vars item inputs own previous brief attempt schema`. An undefined "
        "name is an error; test optional names with `{% if brief %}`. A rendering is limited to 200,000 steps and "
        "4 MiB: nested loops over long lists, and values that double themselves, are refused.",
    ),
    "E833": (
        "a slice that does not exist",
        "`file.md#Heading` needs exactly one heading with that text, `file.json#/pointer` a value at that pointer. "
        "Rename the heading, or correct the slice.",
    ),
    "E834": (
        "too much context for one request",
        "The inputs of the stage exceed llm.context.max_files or max_bytes. Give slices instead of files, or raise the "
        "limit.",
    ),
    "E835": (
        "a command that is refused",
        "Commands of a `commands` step are data that a model wrote. Each is one program of `allow` with its arguments. "
        "It runs without a shell, so `|`, `&&`, `;`, `>`, backticks and `$(` are refused, except in quotes. Correct "
        "the data, or `allow`. If a stage with `retry` makes the data, it gets another attempt.",
    ),
}
