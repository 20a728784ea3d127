"""Diagnostic codes of proposals (E2xx): title, meaning and solution of each."""

from collections.abc import Mapping

NOT_JSON = "E201"
WRONG_SHAPE = "E202"
EMPTY = "E203"
OUTSIDE_WRITE_SCOPE = "E204"
UNSAFE_PATH = "E205"
DUPLICATE_PATH = "E206"
FILE_AND_DIRECTORY = "E207"
PROTECTED = "E208"
FORBIDDEN_DELETE = "E209"
TOO_LARGE = "E210"
INVALID_TEXT = "E211"
STALE_BASE = "E212"
NOT_SHOWN = "E213"
INCOMPLETE_FILE = "E214"
UNPARSABLE = "E215"
LOST_DEFINITIONS = "E216"
MODEL_ERROR = "E217"
NO_CODE = "E218"
TRUNCATED = "E219"
REFUSED = "E220"
DIFF = "E221"

PROPOSAL_CODES: Mapping[str, tuple[str, str]] = {
    NOT_JSON: (
        "the answer is not strict JSON",
        "The whole answer must be one JSON value: no prose, no Markdown fence, no key twice, no NaN, nothing after it. "
        "Say so in the prompt, or use `returns: code` for a model that cannot write JSON.",
    ),
    WRONG_SHAPE: (
        "the answer is JSON of the wrong shape",
        'Files are answered as `{"summary": "...", "writes": [{"path": "...", "content": "..."}], "deletes": []}`, or '
        'as `{"edits": [...]}`, or as `{"path": "content"}`. Show the model that form in the prompt.',
    ),
    EMPTY: (
        "the answer is empty",
        "The model answered nothing, or proposes no file. Nothing would change, so the attempt has failed. If there is "
        "nothing to do, the stage should not have been asked: look at its inputs with `orch23 explain`.",
    ),
    OUTSIDE_WRITE_SCOPE: (
        "a file outside the fence",
        "A stage may write only what `allowed_paths.write` (by default its outputs) means and `protect` does not. "
        "Paths in an answer are relative to the stage's `cwd`. Widen the fence if the file belongs there.",
    ),
    UNSAFE_PATH: (
        "an unsafe path",
        "A proposed path must be plain: relative, POSIX, Unicode NFC, no `..`, no control or invisible characters, no "
        "name that another system would refuse. Unsafe paths are refused, never cleaned up; the next attempt is told. "
        "If it comes back, write the paths out in the prompt.",
    ),
    DUPLICATE_PATH: (
        "a path is proposed twice",
        "Two entries, or an entry and an existing file, name the same file apart from upper and lower case or Unicode "
        "form. Which one is meant cannot be known, so the next attempt is told to name each file once, in full.",
    ),
    FILE_AND_DIRECTORY: (
        "a path is both a file and a directory",
        "One entry makes a file of a path that another entry, or an existing file, needs as a directory. Another name "
        "for one of the two is needed; the next attempt is told.",
    ),
    PROTECTED: (
        "a protected file",
        "Files that steer tools (configuration, hooks, prompts, specs, the pipeline) are written only where "
        "`allowed_paths.write` or `outputs` names them literally; a glob does not admit them. Name the file there, if "
        "the stage shall write it.",
    ),
    FORBIDDEN_DELETE: (
        "a delete that is not allowed",
        "Deletes are off unless `allowed_paths.delete` lists them, and only a file that exists can be deleted. List "
        "the path there, or say in the prompt that nothing is to be deleted.",
    ),
    TOO_LARGE: (
        "the proposal is too large",
        "A file may have 200 KB and an answer 500 KB in all. Split the work into stages or items.",
    ),
    INVALID_TEXT: (
        "text that cannot be stored",
        "The content holds half of a surrogate pair or a NUL character, or the existing file is no text in UTF-8, so "
        "that the model was shown it with holes and would destroy it. A `shell` stage can make binary files; a model "
        "cannot.",
    ),
    STALE_BASE: (
        "a proposal for another version of the file",
        "The answer says which bytes the file had (`base_sha256`; null for a new file), and they are not those that "
        "the model was shown. It has seen, or made up, another version: it must start again from the one shown.",
    ),
    NOT_SHOWN: (
        "an existing file that the model was not shown",
        "The answer would replace a whole file that the model has never seen. Add the file to `inputs`, raise "
        "`context.max_files`, or narrow the fence.",
    ),
    INCOMPLETE_FILE: (
        "code left out",
        'A placeholder such as "rest of code unchanged", or a bare `...`, stands where text should be and was not '
        "there before. Files are written whole, so what is left out would be lost. If the file is too long for the "
        "model, split it.",
    ),
    UNPARSABLE: (
        "the file does not parse",
        "A proposed Python, JSON or TOML file does not parse (Python as the one that runs orch23 reads it). The line "
        "is named; the next attempt is told. A file that did not parse before is not held to this.",
    ),
    LOST_DEFINITIONS: (
        "definitions lost",
        "The proposed file is less than half as long as before, and top-level names are gone that no other proposed "
        "file defines: an answer that was cut short looks like this. Delete the names in smaller steps if it is meant.",
    ),
    MODEL_ERROR: (
        "the model says that it cannot do it",
        'The model answered with `{"error": "..."}` or `{"status": "error", "reason": "..."}`. It is not asked again '
        "unless `retry.when` lists `agent_error`: read the reason and mend the spec, the fence or the context.",
    ),
    NO_CODE: (
        "no code block",
        "With `returns: code` the first fenced block (```python ... ```) is the file, or else the whole answer where "
        "it is the file's language. Neither was found. Ask for one code block in the prompt.",
    ),
    TRUNCATED: (
        "the answer is cut off",
        "The model stopped before it was done. Raise `llm.max_tokens`, or ask for less in one stage.",
    ),
    REFUSED: (
        "the model refused",
        "The model declined to answer. Asking again does not help; change the prompt or the model.",
    ),
    DIFF: (
        "a diff in place of a file",
        "A file is answered whole, never as a unified diff, a patch, or blocks to search and replace. Say so in the "
        "prompt; a file whose name ends in `.diff` or `.patch` may be one.",
    ),
}
