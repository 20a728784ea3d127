"""Parse a model's response: strict JSON, an envelope of files, files in fenced blocks, or the first code block."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.parsing import MAX_JSON_DEPTH, StrictJsonError, parse_json
from orch23.proposal import proposal_codes as codes
from orch23.proposal.fenced_files import FencedResponse, block_fault, read_fenced
from orch23.text.excerpt import escape_text

# 500 KB of files, which JSON escapes may double, and the rest of the response.
MAX_RESPONSE_BYTES = 2 * 1_048_576

ENVELOPE_KEYS = frozenset({"summary", "writes", "edits", "files", "deletes", "error", "status", "reason"})
LISTS = ("writes", "edits", "files")
# A whole response that says that no change is needed: words beside it could say the opposite.
_NO_CHANGE = frozenset(
    f"no {what}{number} {why}"
    for what in ("change", "edit", "modification")
    for number in ("", " is", "s", "s are")
    for why in ("needed", "required", "necessary")
)
_WRITE_KEYS = frozenset({"path", "content", "base_sha256"})
# Words in the name of an unknown key that say that a response means more than whole files.
OPERATIONS = frozenset(
    {"append", "copy", "delete", "deleted", "diff", "hunks", "insert", "move", "moved", "patch", "prepend"}
    | {"remove", "removed", "rename", "renamed"}
)
# The same in an entry, and those that say that `content` is not the whole file.
_PARTIAL = OPERATIONS | frozenset(
    {"after", "anchor", "before", "content", "edits", "encoding", "end", "executable", "find", "from", "line", "lines"}
    | {"mode", "offset", "old", "original", "partial", "permissions", "position", "range", "replace", "search", "start"}
    | {"to", "truncated"}
)
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
ACTIONS = frozenset({"action", "change", "op", "operation", "status", "type"})
DELETES = frozenset({"delete", "deleted", "remove", "removed"})
# Other names of `path`, as tools of editors and agents have it.
PATH_KEYS = ("path", "file_path", "filepath", "filename", "file")
_OPEN_THOUGHT = re.compile(r"\s*+<(think|thinking|thought|reasoning)>")
_THOUGHT_TAG = re.compile(r"<(?:think|thinking|thought|reasoning)>")
# The chat templates of some models begin the thoughts themselves: the response has only their end.
_END_OF_THOUGHTS = re.compile(r"^[ \t]*+</think(?:ing)?>[ \t]*+$", re.MULTILINE)
_FENCE_LINE = re.compile(r"^[ ]{0,3}(?:```|~~~|<<<<<)", re.MULTILINE)
JSON_IN_PROSE = re.compile(r'^\s*[\[{"]|\{\s*"')
_JSON_LANGUAGES = frozenset({"json", "jsonc", "json5"})
_JSON_START = ("{", "[")
_NOTHING: tuple[Json, ...] = (None, "", False, [], {})
_NO_BLOCKS = "write the path of each file in the line before its block, and use a longer fence around text with fences"
_HEX = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_FENCE = re.compile(r"^[ ]{0,3}(?P<marks>`{3,}+|~{3,}+)(?P<info>[^\n`]*+)\n", re.MULTILINE)
# Languages of blocks with commands to run and what they print; and files that may consist of such.
_COMMANDS = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal", "shell-session", "powershell"})
_SEARCHED_BLOCKS = 50
_COMMAND_FILES = (".sh", ".bash", ".zsh", ".ps1")


class AmbiguousFormError(ValueError):
    """A response in another form may mean several things; the message says which."""


class ProposedFile(Struct, frozen=True):
    """One file of a response, as written there. `base` is `""` if the response has no `base_sha256`."""

    path: str
    content: str
    base: str | None = ""


class FilesEnvelope(Struct, frozen=True):
    """The files and deletes of a response, and every error of its form; or the error that the model states.

    With `from_blocks`, the contents were fenced blocks.
    """

    summary: str = ""
    files: tuple[ProposedFile, ...] = ()
    deletes: tuple[str, ...] = ()
    errors: tuple[Diagnostic, ...] = ()
    stated_error: str | None = None
    from_blocks: bool = False


class CodeBlock(Struct, frozen=True):
    """The text of a fenced code block, and its language in lower case, or an empty text.

    `is_closed` is false if the response was cut off inside it.
    """

    text: str
    language: str
    is_closed: bool


def parse_json_response(text: str, *, only_json: bool = False) -> tuple[Json, Diagnostic | None]:
    """Return the value of a response that is one JSON value, with or without one code fence around it, or the error.

    With `only_json`, the response must be the strict JSON value and nothing else.
    """
    if not only_json:
        plain = unwrapped(text)
        text = plain if plain.startswith(_JSON_START) else _sole_json_block(read_fenced(plain)) or plain
    try:
        value = parse_json(text, max_bytes=MAX_RESPONSE_BYTES, max_depth=MAX_JSON_DEPTH, lenient=not only_json)
    except StrictJsonError as error:
        return None, Diagnostic(codes.NOT_JSON, f"the response is not strict JSON: {error}", hint=_hint(text, error))
    return value, None


def _hint(text: str, error: StrictJsonError) -> str:
    start = text.lstrip()
    if start.startswith("```"):
        return "respond with only one JSON value, without a code fence"
    if error.kind == "trailing" or not start.startswith(_JSON_START):
        return "respond with only one JSON value, nothing beside it"
    return "write strict JSON: double quotes, `\\n` for a line break, `\\\\` for a backslash, no comments"


def read_files(text: str, *, only_json: bool = False) -> FilesEnvelope:
    """Return the files of a response: JSON as `parse_json_response` reads it, or one fenced block per file.

    Only forms with one meaning are read. Anything else is an error of the envelope.
    """
    plain = unwrapped(text)
    if not only_json and not plain.startswith(_JSON_START):
        fenced = read_fenced(plain)
        if any(block.path for block in fenced.blocks):
            return _files_of_blocks(fenced)
    value, error = parse_json_response(text, only_json=only_json)
    if error is not None:
        return FilesEnvelope(errors=(error,))
    if (reason := stated_error(value)) is not None:
        return FilesEnvelope(stated_error=reason)
    return parse_envelope(value)


def read_blocks(text: str) -> FilesEnvelope:
    """Return the files of a response that has one fenced block per file, or the error that it states as JSON."""
    plain = unwrapped(text)
    if (reason := stated_in(plain)) is not None:
        return FilesEnvelope(stated_error=reason)
    fenced = read_fenced(plain)
    if not fenced.blocks and not fenced.deletes:
        message = "the response has no fenced block with a file"
        return FilesEnvelope(errors=(Diagnostic(codes.WRONG_SHAPE, message, hint=_NO_BLOCKS),))
    return _files_of_blocks(fenced)


def says_no_change(text: str, *, only_json: bool = False) -> bool:
    """Return whether no file needs a change: by JSON with an empty list of files, or by one fixed sentence."""
    if any(f'"{key}"' in text for key in LISTS) or unwrapped(text) == "[]":
        found = read_files(text, only_json=only_json)
        return not (found.files or found.deletes or found.errors or found.stated_error is not None)
    return not only_json and " ".join(unwrapped(text).rstrip(".!").casefold().split()) in _NO_CHANGE


def stated_in(text: str) -> str | None:
    """Return the error that a response states as JSON: prompts allow it for every form."""
    if not text.lstrip().startswith(("{", "```", "~~~")):
        return None
    value, fault = parse_json_response(text)
    return None if fault else stated_error(value)


def unwrapped(text: str) -> str:
    """Return a response without a byte order mark, the model's thoughts before it, and blank space around it."""
    return without_thoughts(text.removeprefix("\ufeff")).removeprefix("\ufeff").strip()


def without_thoughts(text: str, *, is_text: bool = False) -> str:
    """Return a response without the model's thoughts before it; unchanged if it has none.

    With `is_text`, the response is the text of a file, where only thoughts with both tags are certain.
    """
    end, is_open = _end_of_tagged_thoughts(text)
    text = text[end:].lstrip() if end else text
    ended = None if is_text or is_open else _END_OF_THOUGHTS.search(text)
    thoughts = text[: ended.start()] if ended else ""
    # In a code block that is still open, the tag is a line of a file.
    if ended is None or thoughts.lstrip().startswith(_JSON_START) or len(_FENCE_LINE.findall(thoughts)) % 2:
        return text
    return text if _THOUGHT_TAG.search(thoughts) else text[ended.end() :].lstrip()


def _end_of_tagged_thoughts(text: str) -> tuple[int, bool]:
    """Return the index after the thoughts with both tags, and whether others begin there that do not end."""
    end = 0
    while opened := _OPEN_THOUGHT.match(text, end):
        closing = f"</{opened[1]}>"
        found = text.find(closing, opened.end())
        if found < 0:
            return end, True
        end = found + len(closing)
    return end, False


def is_only_thoughts(text: str) -> bool:
    """Return whether a response has thoughts that do not end, and so nothing else."""
    return _end_of_tagged_thoughts(text) == (0, True)


def _sole_json_block(fenced: FencedResponse) -> str | None:
    """Return the only block of a response if it is JSON and no JSON is in the text around it.

    It begins with as many line breaks as lines are before it, so that an error names a line of the response.
    """
    if len(fenced.blocks) != 1 or any(JSON_IN_PROSE.search(line) for _, line in fenced.outside):
        return None
    (block,) = fenced.blocks
    is_json = block.language in _JSON_LANGUAGES or (not block.language and block.text.lstrip().startswith(_JSON_START))
    return "\n" * block.line + block.text if is_json and block.is_closed else None


def _files_of_blocks(fenced: FencedResponse) -> FilesEnvelope:
    faults = tuple(
        Diagnostic(codes.WRONG_SHAPE, f"line {block.line}: {fault}", hint=_NO_BLOCKS)
        for block in fenced.blocks
        if (fault := block_fault(block))
    )
    files = tuple(ProposedFile(block.path, block.text) for block in fenced.blocks if block.path)
    return FilesEnvelope(files=files, deletes=fenced.deletes, errors=faults, from_blocks=True)


def stated_error(value: Json) -> str | None:
    """Return the reason that a model gives for not doing its work, in one of two forms; None if it gives none."""
    if not isinstance(value, Mapping) or not value.keys() <= ENVELOPE_KEYS:
        return None
    if any(value.get(key) for key in (*LISTS, "deletes")):
        return None
    error = value.get("error")
    if isinstance(error, str) and error.strip():
        return error
    return str(value.get("reason") or "no reason given") if value.get("status") == "error" else None


def parse_envelope(value: Json) -> FilesEnvelope:
    """Return the files that JSON proposes, as `writes`, `edits`, `files`, a list of files, or `{path: content}`."""
    if isinstance(value, list | tuple):
        return _read_entries(value, "")
    if not isinstance(value, Mapping):
        return FilesEnvelope(errors=(_shape("", f"the response is {_kind(value)}, not an object"),))
    lists = [key for key in LISTS if key in value]
    if not lists and "deletes" not in value and not value.keys() & {"error", "summary"}:
        return _read_entries(value, "")  # no key of the envelope: it is `{path: content}`
    summary = value.get("summary")
    found = _read_entries(value[lists[0]], lists[0]) if lists else FilesEnvelope()
    deletes, invalid = _read_deletes(value.get("deletes"))
    deletes = tuple(dict.fromkeys((*found.deletes, *deletes)))
    return FilesEnvelope(
        summary=summary if isinstance(summary, str) else "",
        files=found.files,
        deletes=deletes,
        errors=(*_envelope_errors(value, lists), *found.errors, *invalid),
    )


def _envelope_errors(value: Mapping[str, Json], lists: list[str]) -> Iterator[Diagnostic]:
    for key in sorted(value.keys() - ENVELOPE_KEYS):
        if not lists or may_propose(key, value[key]):
            yield _shape(key, "unknown key", "files are listed in `writes`")
    if len(lists) > 1:
        yield _shape(lists[1], f"`{lists[0]}` and `{lists[1]}` mean the same; use one of them")
    if value.get("error") not in (None, "") or value.get("status") == "error":
        yield _shape("error", "a response has either files or an error, not both", "leave the files out, or the error")
    summary = value.get("summary")
    if summary is not None and not isinstance(summary, str):
        yield _shape("summary", f"a text is expected, not {_kind(summary)}")


def may_propose(key: str, value: Json) -> bool:
    """Return whether an unknown key beside the list of files may propose something; an explanation does not."""
    if "/" in key or "." in key or (value not in _NOTHING and key_words(key) & OPERATIONS):
        return True
    inner = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(one, Mapping) and (one.keys() & _WRITE_KEYS or any("/" in k for k in one)) for one in inner)


def _is_partial(key: str, value: Json) -> bool:
    """Return whether an unknown key of an entry says that the file is not just its `content`."""
    if value in _NOTHING:
        return False
    if isinstance(value, str) and key in ACTIONS:
        return bool(key_words(value) & OPERATIONS)
    if isinstance(value, str) and key == "encoding":
        return value.lower() not in ("utf-8", "utf8")
    return bool(key_words(key) & _PARTIAL)


def key_words(text: str) -> frozenset[str]:
    """Return the words of a key or a name, such as `renameTo`, in lower case."""
    return frozenset(word.lower() for word in _KEY_WORD.findall(text))


def code_block_of(path: str, text: str) -> CodeBlock | None:
    """Return the fenced block of a response that is a file: the first one, but for shell commands before it."""
    blocks = _code_blocks(text.replace("\r\n", "\n"))
    first = next(blocks, None)
    if first is None or first.language not in _COMMANDS or path.endswith(_COMMAND_FILES):
        return first
    return next(
        (one for one in islice(blocks, _SEARCHED_BLOCKS) if one.language and one.language not in _COMMANDS), first
    )


def _code_blocks(text: str) -> Iterator[CodeBlock]:
    at = 0
    while (opened := _FENCE.search(text, at)) is not None:
        marks, info = opened["marks"], opened["info"].split()
        fences = re.compile(rf"^[ ]{{0,3}}{marks[0]}{{{len(marks)},}}+[ \t]*+(?P<info>[^\n`]*+)$", re.MULTILINE)
        closed = _closing(fences.finditer(text, opened.end()))
        at = closed.end() if closed else len(text)
        language = info[0].lower() if info else ""
        yield CodeBlock(text[opened.end() : closed.start() if closed else at], language, closed is not None)


def _closing(fences: Iterator[re.Match[str]]) -> re.Match[str] | None:
    """Return the fence that closes a block, else the first plain one. Fences with a language open blocks inside it."""
    depth, first = 1, None
    for fence in fences:
        first = first or (None if fence["info"] else fence)
        depth += 1 if fence["info"] else -1
        if depth == 0:
            return fence
    return first


def _read_entries(value: Json, where: str) -> FilesEnvelope:
    if isinstance(value, Mapping):
        return _read_mapping(value, where)
    if not isinstance(value, list | tuple):
        return FilesEnvelope(errors=(_shape(where, f"a list of files is expected, not {_kind(value)}"),))
    found: list[ProposedFile] = []
    deletes: list[str] = []
    errors: list[Diagnostic] = []
    for number, item in enumerate(map(_with_path, value)):
        if (deleted := _deleted_path(item)) is not None:
            deletes.append(deleted)
            continue
        invalid = _entry_errors(item, f"{where}[{number}]")
        errors.extend(invalid)
        if not invalid and isinstance(item, Mapping):
            base = item.get("base_sha256", "")
            found.append(ProposedFile(str(item["path"]), str(item["content"]), base if base is None else str(base)))
    return FilesEnvelope(files=tuple(found), deletes=tuple(deletes), errors=tuple(errors))


def _with_path(item: Json) -> Json:
    """Return an entry with `path` in place of another name of it, if it has exactly one of these."""
    if not isinstance(item, Mapping):
        return item
    names = [name for name in PATH_KEYS if name in item]
    if len(names) != 1 or names == ["path"]:
        return item
    return {"path" if name == names[0] else name: value for name, value in item.items()}


def _deleted_path(item: Json) -> str | None:
    """Return the path of an entry that only says that a file is deleted: it has an action, and no content."""
    if not isinstance(item, Mapping) or item.get("content") not in (None, ""):
        return None
    says_delete = {key for key in DELETES if item.get(key) is True}
    says_delete |= {key for key in ACTIONS if str(item.get(key)).lower() in DELETES}
    others = item.keys() - _WRITE_KEYS - says_delete
    path = item.get("path")
    if not says_delete or not isinstance(path, str) or any(_is_partial(key, item[key]) for key in others):
        return None
    return path


def _read_mapping(value: Mapping[str, Json], where: str) -> FilesEnvelope:
    errors = tuple(
        _shape(f"{where}.{path}" if where else path, f"the content of a file is text, not {_kind(content)}")
        for path, content in value.items()
        if not isinstance(content, str)
    )
    entries = tuple(ProposedFile(path, content) for path, content in value.items() if isinstance(content, str))
    return FilesEnvelope(files=entries, errors=errors)


def _entry_errors(item: Json, place: str) -> tuple[Diagnostic, ...]:
    if not isinstance(item, Mapping):
        return (_shape(place, f"an object with `path` and `content` is expected, not {_kind(item)}"),)
    unknown = sorted(key for key in item.keys() - _WRITE_KEYS if _is_partial(key, item[key]))
    errors = [_shape(f"{place}.{key}", "unknown key: `content` must be the whole file as text") for key in unknown]
    for key in ("path", "content"):
        if not isinstance(item.get(key), str):
            what = f"not {_kind(item[key])}" if key in item else "but it is missing"
            errors.append(_shape(f"{place}.{key}", f"a text is expected, {what}"))
    base = item.get("base_sha256", "")
    if base not in (None, "") and not (isinstance(base, str) and _HEX.fullmatch(base)):
        errors.append(_shape(f"{place}.base_sha256", "64 hex digits or null are expected"))
    return tuple(errors)


def _read_deletes(value: Json) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    if value is None:
        return (), ()
    if not isinstance(value, list | tuple):
        return (), (_shape("deletes", f"a list of paths is expected, not {_kind(value)}"),)
    errors = tuple(
        _shape(f"deletes[{number}]", f"a path is expected, not {_kind(path)}")
        for number, path in enumerate(value)
        if not isinstance(path, str)
    )
    return tuple(path for path in value if isinstance(path, str)), errors


_FORM = 'respond with {"summary": "...", "writes": [{"path": "...", "content": "..."}], "deletes": []}'


def _shape(where: str, message: str, hint: str = _FORM) -> Diagnostic:
    return Diagnostic(codes.WRONG_SHAPE, message, subject=escape_text(where) or None, hint=hint)


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case Mapping():
            return "an object"
        case _:
            return "a list"
