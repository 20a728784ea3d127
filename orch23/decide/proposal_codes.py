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
NO_MATCH = "E222"
SEVERAL_MATCHES = "E223"
OVERLAPPING_EDITS = "E224"
REPEATS = "E225"

PROPOSAL_CODES: Mapping[str, tuple[str, str]] = {
    NOT_JSON: (
        "the response is not strict JSON",
        "The response must be one JSON value, with or without a code fence around it: no other JSON, no duplicate key, "
        "no NaN, no comment. With `only_json: true`, there must be no code fence either. Say so in the prompt, or use "
        "`returns: blocks` or `code`.",
    ),
    WRONG_SHAPE: (
        "the response is JSON of the wrong form",
        'A response with files is `{"summary": "...", "writes": [{"path": "...", "content": "..."}], "deletes": []}`, '
        'or `{"path": "content"}`, or one fenced block per file with its path in the line before (`returns: blocks`). '
        "Show the model this form in the prompt.",
    ),
    EMPTY: (
        "the response is empty",
        "The model returned no text or proposed no file. If there is nothing to do, the stage should not run: check "
        "its inputs with `orch23 explain`.",
    ),
    OUTSIDE_WRITE_SCOPE: (
        "a file outside the write scope",
        "A stage may write only files that match `allowed_paths.write` (default: its outputs) and not `protect`. "
        "Paths in a response are relative to the stage's `cwd`. Add the path to `allowed_paths.write` if the file "
        "belongs there.",
    ),
    UNSAFE_PATH: (
        "an unsafe path",
        "A proposed path must be relative, POSIX and Unicode NFC, without `..`, without control or invisible "
        "characters, and valid on every operating system. The next attempt gets the error. If it happens again, list "
        "the paths in the prompt.",
    ),
    DUPLICATE_PATH: (
        "a path is proposed twice",
        "Two entries, or an entry and an existing file, have paths that differ only by case or Unicode form. Some "
        "file systems cannot distinguish them. The next attempt gets the error and must name each file once.",
    ),
    FILE_AND_DIRECTORY: (
        "a path is both a file and a directory",
        "One entry writes a file where another entry, or an existing file, needs a directory. The next attempt gets "
        "the error and must choose another name.",
    ),
    PROTECTED: (
        "a protected file",
        "Files that control tools (configuration, hooks, prompts, specs, the pipeline) are written only if "
        "`allowed_paths.write` or `outputs` names them literally; a glob is not enough. Name the file there if the "
        "stage must write it.",
    ),
    FORBIDDEN_DELETE: (
        "a delete that is not allowed",
        "A response may delete only existing files that `allowed_paths.delete` matches. Add the path there, or say "
        "in the prompt that nothing may be deleted.",
    ),
    TOO_LARGE: (
        "the proposal is too large",
        "A file may have at most 200 KB, and all files of a response 500 KB. Split the work into stages or items. If "
        "each file that the stage may write is shown to the model and is larger already, no model is called: write "
        "`returns: edits`, so that the response has only what changes.",
    ),
    INVALID_TEXT: (
        "text that cannot be stored",
        "The content has a NUL character or half of a surrogate pair; or the existing file is not UTF-8 text, so the "
        "model could not see all of it. Use a `shell` stage to make binary files.",
    ),
    STALE_BASE: (
        "a proposal for another version of the file",
        "The response names a digest of the file that it changes (`base_sha256`), which is not the digest of the file "
        "that the model was shown. The model must start again from that file. The digest need not be given.",
    ),
    NOT_SHOWN: (
        "an existing file that the model was not shown",
        "The response would replace a file that the model was not shown. Add the file to `inputs`, raise "
        "`llm.context.max_files`, or narrow `allowed_paths.write`.",
    ),
    INCOMPLETE_FILE: (
        "omitted code",
        'A placeholder such as "rest of code unchanged", or a new bare `...`, replaces text. Files are written '
        "whole, so the omitted text would be lost. If the file is too long for the model, split it.",
    ),
    UNPARSABLE: (
        "the file does not parse",
        "A proposed Python, JSON or TOML file does not parse (Python: the version that runs orch23). The next "
        "attempt gets the message with the line. A file that did not parse before is not checked.",
    ),
    LOST_DEFINITIONS: (
        "definitions lost",
        "The proposed file is less than half as long as before, and lacks top-level names that no other proposed "
        "file defines, so it is probably incomplete. To delete the names, use several smaller steps.",
    ),
    MODEL_ERROR: (
        "the model reports an error",
        'The response is `{"error": "..."}` or `{"status": "error", "reason": "..."}`. The model is called again '
        "only if `retry.when` lists `agent_error`. Read the reason, and fix the spec, the write scope or the context.",
    ),
    NO_CODE: (
        "no code block",
        "With `returns: code` the file is the first fenced block (```python ... ```), or the whole response if it is "
        "in the language of the file. Ask for one code block in the prompt.",
    ),
    TRUNCATED: (
        "the response is cut off",
        "The model reached `llm.max_tokens`, or gave no stop reason. Raise `llm.max_tokens`, or ask for less in one "
        "stage.",
    ),
    REPEATS: (
        "the response repeats itself",
        "The model wrote the same text again and again, until it reached `llm.max_tokens`: more tokens would be more "
        "of it. This happens to small models, if a task is too hard for them or a prompt is long. Ask for less in one "
        "stage, change the prompt, or use a larger model.",
    ),
    REFUSED: (
        "the model refused",
        "The model or its provider declined to respond, so calling it again does not help. Change the prompt or the "
        "model.",
    ),
    DIFF: (
        "a diff in place of a file",
        "A response must have whole files, not a unified diff, a patch, or blocks to search and replace, which only "
        "`returns: edits` accepts. Say so in the prompt. Only a file named `*.diff` or `*.patch` may be a diff.",
    ),
    NO_MATCH: (
        "an edit that matches nowhere",
        "With `returns: edits`, the lines of each SEARCH must be in the file, exactly and in what the model was shown. "
        "The message has the nearest lines. An empty SEARCH makes a new file.",
    ),
    SEVERAL_MATCHES: (
        "an edit that matches several times",
        "With `returns: edits`, each SEARCH must match exactly once. The next attempt gets the lines of the "
        "matches and must add lines before and after the SEARCH.",
    ),
    OVERLAPPING_EDITS: (
        "edits of the same lines",
        "All SEARCH/REPLACE blocks of a file apply to the file as it was shown, so no two of them may change the same "
        "line. The next attempt must join them.",
    ),
}
