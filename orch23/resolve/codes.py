"""Diagnostic codes of inputs, prompts and commands: title, meaning and solution of each."""

from collections.abc import Mapping

RESOLVE_CODES: Mapping[str, tuple[str, str]] = {
    "E831": (
        "a prompt, template or schema cannot be read",
        "The file that the pipeline names is missing, is no UTF-8 text, or too large. Paths are relative to the root "
        "of the project: correct the path, or create the file.",
    ),
    "E832": (
        "a prompt or template cannot be rendered",
        "It is a Jinja2 file that sees `vars item inputs own previous brief attempt schema` and nothing else. "
        "An undefined name is an error; test for optional ones with `{% if brief %}`. A rendering may take 200,000 "
        "steps and make 4 MiB: loops in loops over long lists, and values that double themselves, are refused.",
    ),
    "E833": (
        "a slice that is not there",
        "`file.md#Heading` needs exactly one heading of that text, `file.json#/pointer` a value at that pointer. "
        "Rename the heading, or correct the slice.",
    ),
    "E834": (
        "too much context for one request",
        "The inputs of the stage exceed llm.context.max_files or max_bytes. Give slices instead of files, or raise the "
        "limit on purpose.",
    ),
    "E835": (
        "a command that is refused",
        "Commands of a `commands` step are data that a model wrote. Each is one program, of those that `allow` names "
        "plainly, with its arguments; no shell runs it, so `|`, `&&`, `;`, `>`, backticks and `$(` are refused, but in "
        "quotes. Correct the data (a stage that makes it is asked again, if it has `retry`), or `allow`.",
    ),
}
