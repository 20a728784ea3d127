"""Diagnostic codes of inputs, prompts and commands: title, meaning and solution of each."""

from collections.abc import Mapping

RESOLVE_CODES: Mapping[str, tuple[str, str]] = {
    "E831": (
        "a prompt, template or schema cannot be read",
        "The file does not exist, is not UTF-8 text, or is too large. Paths are relative to the root of the project: "
        "correct the path, or create the file.",
    ),
    "E832": (
        "a prompt or template cannot be rendered",
        "A Jinja2 file can use only `vars item inputs own previous brief attempt schema`. An undefined name is an "
        "error; test optional names with `{% if brief %}`. A rendering is limited to 200,000 steps and 4 MiB: avoid "
        "nested loops over long lists.",
    ),
    "E833": (
        "a slice that does not exist",
        "`file.md#Heading` needs exactly one heading with that text, `file.json#/pointer` a value at that pointer. "
        "Rename the heading, or correct the slice.",
    ),
    "E834": (
        "too much context for one request",
        "The inputs of the stage exceed `llm.context.max_files` or `max_bytes`. Use slices instead of files, or "
        "raise the limit.",
    ),
    "E835": (
        "a command that is refused",
        "Each command of a `commands` step must be a program of `allow` with its arguments. It runs without a shell: "
        "`|`, `&&`, `;`, `>`, backticks and `$(` are refused, except in quotes. Correct the command, or `allow`. A "
        "stage with `retry` that makes the commands gets another attempt.",
    ),
    "E837": (
        "a binary file in a prompt",
        "The prompt shows an input that is not text: it has a NUL byte at its beginning, or it is a PDF. A model would "
        "get characters that mean nothing. Nothing was sent. Exclude the file (`!*.png` in "
        "`inputs`), or list only the names of such files (`list: PATTERN`). Some models accept pictures and PDFs: show "
        "these with `| block` or `| blocks`. A picture or a PDF that the provider would refuse, because it is too "
        "large, one too many or encrypted, has this code too.",
    ),
    "W836": (
        "a prompt that cannot be cached as far as it could be",
        "Providers charge less for the beginning of a prompt that they have seen before. Up to the first line with a "
        "value that differs between attempts (`brief`, `previous`, `attempt`, the files of the last attempt at the end "
        "of `inputs`) or items (`item`, `own`), all requests of the stage are the same; what comes after it is paid "
        "for in full each time. This prompt has 4,000 characters or more there that do not differ: move the line to "
        "the end, or list shared inputs before those of the item. orch23 does not change the order of a prompt.",
    ),
}
