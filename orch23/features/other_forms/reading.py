"""Read files from other forms of a response: elements of XML, calls of tools, JSON in prose, other names of keys.

It is read after `response_parser` has refused a response. A form counts only if nothing around it could be read as
files too, and if its contents have one meaning: what could mean two things is an `AmbiguousFormError`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from orch23.model.digest import Json
from orch23.model.parsing import StrictJsonError, parse_json, parse_json_at
from orch23.proposal.fenced_files import has_search_block, is_path, read_fenced
from orch23.proposal.omissions import has_patch
from orch23.proposal.response_parser import (
    ACTIONS,
    DELETES,
    ENVELOPE_KEYS,
    JSON_IN_PROSE,
    LISTS,
    OPERATIONS,
    PATH_KEYS,
    AmbiguousFormError,
    FilesEnvelope,
    key_words,
    may_propose,
    parse_envelope,
    stated_error,
    unwrapped,
)

_JSON: Final = re.compile(r'^[ \t]*+(?P<first>\{|\[(?=\s*+\{))|(?P<later>\{)(?=\s*+")', re.MULTILINE)
_COMMENT: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\Z)|(?P<comment>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))', re.DOTALL
)
# Words of a comment that says that something is left out, or to be done.
_OF_OTHER_COMMENTS: Final = OPERATIONS | {
    *("etc", "example", "here", "keep", "last", "more", "omitted", "other", "others", "previous", "remaining", "rest"),
    *("same", "todo", "truncated", "unchanged"),
}
_TAGS: Final = "file|write_file|write_to_file|create_file|tool_call"
_TAG: Final = re.compile(
    rf"^[ \t]*+<(?P<tag>{_TAGS})"
    r"""(?P<attributes>(?:[ \t]++[\w-]++=(?:"[^"\n]*+"|'[^'\n]*+'))*+)[ \t]*+(?P<empty>/?)>""",
    re.MULTILINE | re.IGNORECASE,
)
_ANY_TAG: Final = re.compile(rf"</?(?:{_TAGS})\b", re.IGNORECASE)
_REST_OF_LINE: Final = re.compile(r"[ \t]*+(?:</?[\w-]++>[ \t]*+)*+\r?$", re.MULTILINE)
_ATTRIBUTE: Final = re.compile(r"""(?<![\w-])(?P<name>[\w-]++)=(?:"(?P<double>[^"\n]*+)"|'(?P<single>[^'\n]*+)')""")
_PARTS: Final = re.compile(
    r"\s*+<(?P<key>path|file_?path|filename|name)>(?P<path>[^<>\n]*+)</(?P=key)>"
    r"\s*+<(?P<tag>contents?|code)>(?P<content>.*)</(?P=tag)>\s*",
    re.DOTALL | re.IGNORECASE,
)
_ENTITY: Final = re.compile(r"&(?:lt|gt|amp|quot|apos|#[0-9]{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE)
# In place of what was read, while the text around it is.
_PLACE: Final = "\0"
_INSIDE_FENCE: Final = re.compile(rf"(?:[\s{_PLACE}]|</?[\w-]++>)*+")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")


_OF_ENVELOPE: Final = {_plain(one): one for one in ENVELOPE_KEYS}
_OF_ENTRY: Final = {
    **{_plain(one): one for one in (*ACTIONS, *DELETES, "base_sha256")},
    **{_plain(one): "path" for one in PATH_KEYS},
    **dict.fromkeys(("content", "contents", "filecontent", "filecontents", "filetext"), "content"),
}
_NAMES: Final = ("name", "tool", "tool_name", "function")
_ARGUMENTS: Final = ("arguments", "parameters", "input", "args")
_OF_CALL: Final = frozenset({"type", "id", "call_id", "index", *_NAMES, *_ARGUMENTS})
_CALLED: Final = ("function", "function_call")


def _refuse(why: str) -> NoReturn:
    raise AmbiguousFormError(why) from None


def read_other_forms(text: str, *, only_elements: bool) -> FilesEnvelope | None:
    """Return the files of a response in another form, or the error that it states; None if it has no such form.

    `only_elements` reads no JSON.

    Raises:
        AmbiguousFormError: it may mean several things.
    """
    plain = unwrapped(text)
    if _PLACE in plain:
        return None
    opened, start = _TAG.search(plain), _start_of_json(plain)
    if opened is not None and (start is None or opened.start() < start):
        values, around = _elements(plain, opened)
        _check_around(around)
        found = _merged([_envelope(value) for value in values])
    elif only_elements or start is None:
        return None
    else:
        found = _merged([_envelope(value) for value in _sole_json(plain)])
    return found if any((found.files, found.deletes, found.errors, found.stated_error is not None)) else None


def read_other_json(text: str) -> Iterator[Json]:
    """Yield what may be the JSON of a response: the one value in it, then the arguments if that is a call of a tool.

    Raises:
        AmbiguousFormError: something else may be the response.
    """
    for value in _sole_json(unwrapped(text)):
        yield value
        if (arguments := _arguments_of_call(value)) is not None:
            yield arguments


def _sole_json(text: str) -> list[Json]:
    """Return the one JSON value in a response, with text around it or not; an empty list if there is none."""
    if _PLACE in text or (start := _start_of_json(text)) is None:
        return []
    try:
        # A quote in the text before is not the begin of a string.
        value, length = parse_json_at(_COMMENT.sub(_blanks, text[start:]), 0)
    except StrictJsonError:
        return []
    end = start + length
    for comment in filter(None, (one["comment"] for one in _COMMENT.finditer(text, start, end))):
        if '"' in comment or "..." in comment or key_words(comment) & _OF_OTHER_COMMENTS:
            _refuse(f"a comment may change what the JSON says: {comment}")
    _check_around(f"{text[:start]}{_PLACE}{text[end:]}")
    return [value]


def _blanks(found: re.Match[str]) -> str:
    """Return a string as it is, and a comment as blanks, which move nothing."""
    return found[0] if found["comment"] is None else " " * len(found[0])


def _arguments_of_call(value: Json) -> Mapping[str, Json] | None:
    """Return the arguments of a call of a tool; None if the value is something else."""
    if not isinstance(value, Mapping):
        return None
    if called := [key for key in _CALLED if isinstance(value.get(key), Mapping)]:
        if len(called) > 1 or value.keys() - _OF_CALL - {*called}:
            return None
        return _arguments_of_call(value[called[0]])
    names = [value[key] for key in _NAMES if isinstance(value.get(key), str)]
    given = [value[key] for key in _ARGUMENTS if key in value]
    if len(names) != 1 or len(given) != 1 or value.keys() - _OF_CALL:
        return None
    if key_words(str(names[0])) & OPERATIONS:
        _refuse(f"`{names[0]}` is called, which may not write whole files")
    arguments = given[0]
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments, max_bytes=None, lenient=True)
        except StrictJsonError:
            return None
    return arguments if isinstance(arguments, Mapping) else None


def _start_of_json(text: str) -> int | None:
    found = _JSON.search(text)
    return found.start(found.lastgroup or 0) if found else None


def _check_around(text: str) -> None:
    """Raise an error if the text around what was read may be read too. One fence may be around all of it."""
    fenced = read_fenced(text)
    if any(JSON_IN_PROSE.search(line) for _, line in fenced.outside):
        what = "JSON"
    elif _ANY_TAG.search(text):
        what = "a tag of a file"
    elif fenced.deletes or has_search_block(text) or has_patch(text):
        what = "a line that deletes a file, or a patch"
    elif any(one.path or not _INSIDE_FENCE.fullmatch(one.text) for one in fenced.blocks):
        what = "a fenced block"
    elif fenced.blocks and (len(fenced.blocks) > 1 or any(_PLACE in line for _, line in fenced.outside)):
        what = "another fence"
    else:
        return
    _refuse(f"{what} is beside what may be the files")


# ---- JSON -----------------------------------------------------------------------------------------


def _envelope(value: Json) -> FilesEnvelope:
    calls = value.get("tool_calls") if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and isinstance(calls, list | tuple):
        _check_beside_calls(value)
        value = calls
    arguments = [_arguments_of_call(one) for one in (value if isinstance(value, list | tuple) else [value])]
    if not any(one is not None for one in arguments):
        return _of_known_keys(value)
    return _merged([FilesEnvelope() if one is None else _of_known_keys(one) for one in arguments])


def _check_beside_calls(value: Mapping[str, Json]) -> None:
    for key, one in value.items():
        if isinstance(one, str):
            _check_around(one)
        if key != "tool_calls" and may_propose(key, one):
            _refuse(f"`{key}` beside calls of tools may mean files too")


def _of_known_keys(value: Json) -> FilesEnvelope:
    known = _with_known_keys(value)
    if (reason := stated_error(known)) is not None:
        return FilesEnvelope(stated_error=reason)
    if isinstance(known, Mapping) and not known.keys() & ENVELOPE_KEYS and not all(map(is_path, known)):
        return FilesEnvelope()
    return parse_envelope(known)


def _merged(found: list[FilesEnvelope]) -> FilesEnvelope:
    if len(found) > 1 and not all(one.files or one.deletes or one.errors for one in found):
        _refuse("one of several calls or elements is not a file")
    return FilesEnvelope(
        files=tuple(file for one in found for file in one.files),
        deletes=tuple(path for one in found for path in one.deletes),
        errors=tuple(error for one in found for error in one.errors),
        stated_error=next((one.stated_error for one in found if one.stated_error is not None), None),
    )


def _with_known_keys(value: Json) -> Json:
    if not isinstance(value, Mapping):
        return _known_entries(value)
    renamed = _renamed(value, _OF_ENVELOPE)
    if any(key in renamed for key in LISTS):
        return {key: _known_entries(one) if key in LISTS else one for key, one in renamed.items()}
    entry = _known_entry(value)
    if isinstance(entry, Mapping) and isinstance(entry.get("path"), str) and "content" in entry:
        if any(key not in ("path", "content") and may_propose(key, one) for key, one in entry.items()):
            _refuse("the keys beside `path` and `content` may mean files too")
        return [entry]
    return _known_entries(value)


def _known_entries(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {path: _joined(content) if is_path(path) else content for path, content in value.items()}
    return [_known_entry(one) for one in value] if isinstance(value, list | tuple) else value


def _known_entry(item: Json) -> Json:
    if not isinstance(item, Mapping):
        return item
    entry = _renamed(item, _OF_ENTRY)
    if key_words(str(entry.get("command"))) & OPERATIONS:
        _refuse(f"the command `{entry['command']}` may not write a whole file")
    return {key: _joined(value) if key == "content" else value for key, value in entry.items()}


def _renamed(item: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in item.items():
        name = names.get(_plain(key), key)
        if name in found:
            _refuse(f"`{name}` is there twice, in two spellings")
        found[name] = value
    return found


def _joined(content: Json) -> Json:
    """Return a content that is a list of lines as a text; any other value as it is."""
    if not isinstance(content, list | tuple) or not content or not all(isinstance(one, str) for one in content):
        return content
    lines = [str(one) for one in content]
    if len(lines) == 1 or all(one.find("\n") == len(one) - 1 >= 0 for one in lines[:-1]):
        text = "".join(lines)
        is_clear = len(lines) == 1 or "\n" not in lines[-1][:-1]
    else:
        text = "\n".join(lines)
        is_clear = not any("\n" in one for one in lines)
    if not is_clear:
        _refuse("a content is a list of texts of which only some end with a line break")
    return text if text.endswith("\n") else f"{text}\n"


# ---- XML ------------------------------------------------------------------------------------------


def _elements(text: str, opened: re.Match[str] | None) -> tuple[list[Json], str]:
    """Return the values of the elements of a text from an opening tag on, and the text around them."""
    values: list[Json] = []
    around: list[str] = []
    at = 0
    while opened is not None:
        around.append(text[at : opened.start()])
        name, at, body = opened["tag"], opened.end(), None
        if not opened["empty"]:
            end = text.find(f"</{name}>", at)
            body = text[at:end]
            if end < 0 or _TAG.search(body):
                _refuse(f"`<{name}>` in line {text.count(chr(10), 0, opened.end()) + 1} has no end")
            at = end + len(f"</{name}>")
            if not _REST_OF_LINE.match(text, at):
                _refuse(f"text is after `</{name}>` in its line")
        values.append(_value_of_call(body or "") if name.lower() == "tool_call" else _entry_of(opened, body))
        opened = _TAG.search(text, at)
    return values, _PLACE.join((*around, text[at:]))


def _value_of_call(body: str) -> Json:
    try:
        value = parse_json(body.strip(), max_bytes=None, lenient=True)
    except StrictJsonError as error:
        _refuse(f"a `<tool_call>` is not JSON: {error}")
    return value


def _entry_of(opened: re.Match[str], body: str | None) -> Json:
    found = [(one["name"], one["double"] or one["single"] or "") for one in _ATTRIBUTE.finditer(opened["attributes"])]
    entry: dict[str, Json] = {"path" if name.lower() in ("name", "src") else name: value for name, value in found}
    if len(entry) < len(found):
        _refuse(f"an attribute of `<{opened['tag']}>` is there twice")
    if not entry and body is not None and (parts := _PARTS.fullmatch(body)):
        if f"</{parts['tag']}>" in parts["content"]:
            _refuse(f"a file has two ends `</{parts['tag']}>`")
        return [{"path": parts["path"].strip(), "content": _text_of(parts["content"])}]
    return [entry if body is None else {**entry, "content": _text_of(body)}]


def _text_of(body: str) -> str:
    """Return the text of an element: its lines without the line breaks beside the tags."""
    inner = body.strip()
    is_quoted = inner.startswith(_CDATA) and inner.endswith(_CDATA_END)
    text = inner[len(_CDATA) : -len(_CDATA_END)] if is_quoted else body
    if _CDATA_END in text and (is_quoted or _CDATA in text):
        _refuse("a content has parts in CDATA")
    if not is_quoted and "<" not in text and text.count("&") == len(_ENTITY.findall(text)) > 0:
        _refuse("a content has `&lt;` or the like and no `<`, so that it may be escaped")
    text = text.replace("\r\n", "\n")
    if (last := text.rstrip(" \t")).endswith("\n"):
        text = last
    text = text.removeprefix("\n")
    lines = [line for line in text.split("\n") if line.strip()]
    if lines and all(line.startswith((" ", "\t")) for line in lines):
        _refuse("every line of a file is indented, maybe only as its tag is")
    return text
