"""Make the files of a copier template from pipelines/NAME.template.yaml and the files that it names."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

SUFFIX = ".template.yaml"
SUBDIRECTORY = "project"
RENDERED = ".jinja"
SCHEMA_LINE = "# yaml-language-server: $schema=../.orch23/pipeline.schema.json\n"
ANSWERS_HEAD = "# What the template was told. `orch23 template update` reads this: keep it in git, do not edit it.\n"
ENVOPS = {
    "block_start_string": "[%",
    "block_end_string": "%]",
    "variable_start_string": "[[",
    "variable_end_string": "]]",
    "comment_start_string": "[#",
    "comment_end_string": "#]",
    "undefined": "jinja2.StrictUndefined",
}
_KEYS = frozenset({"summary", "files", "questions", "replace", "example", "examples", "next"})
_OPENS = re.compile(r"\[[\[%#]")
# A link from a page of docs to another, which a project does not have.
_LINK = re.compile(rb"\[([^]]+)\]\(\.\./[^)]*\)")
_LEFT_OUT = ("__pycache__", ".pytest_cache", "*.pyc", "*.lock", ".DS_Store")
# An answer goes into YAML as it is, so it must be a plain word there: no quote, no space, nothing that YAML reads as
# anything but text, and no way up the folders.
_NO_TEXT = "(?!(?i:true|false|yes|no|on|off|null|y|n)\\\\Z)"
_WORD = "[A-Za-z0-9._/+@-]"
_TEXT = f"\\\\A{_NO_TEXT}(?!.*(?:[.][.]|//))(?:[.]/)?[A-Za-z]{_WORD}*(?::{_WORD}+)*\\\\Z"
_PROJECT = f"\\\\A[.]/?\\\\Z|{_TEXT}"  # the root of the pipeline, too
_NAME = f"\\\\A{_NO_TEXT}[A-Za-z][A-Za-z0-9._-]{{0,63}}\\\\Z"
_URL = "\\\\Ahttps?://[][A-Za-z0-9._:-]+(/[A-Za-z0-9._/-]*)?\\\\Z"
# The choice of `provider` that is rendered as `openai` with a `base_url`.
SERVER = "server"
_NOTES = {SERVER: "OpenAI-compatible: Ollama, LM Studio, llama.cpp, vLLM"}
# Of the variables that `init` may have on a terminal: `found` is what makes a provider usable here, `served` is the
# model of a server by its address.
_SERVED = f"[% if provider == '{SERVER}' %][[ (served | default({{}})).get(base_url) or UNSET ]][% else %]"
COMMAND = "command"
# A program and its arguments: words without quotes, or a list in JSON if an argument has a space.
_PLAIN, _QUOTED = r"[^\\s\\x00-\\x1f\\x22\\x27\\x5c\\x7f]", r"\\x22[^\\x00-\\x1f\\x22\\x5c\\x7f]+\\x22"
_COMMAND_LINE = f"\\\\A(?:[\\\\w./]{_PLAIN}*(?: +{_PLAIN}+)*|\\\\[{_QUOTED}(?:, *{_QUOTED})*\\\\])\\\\Z"
_COMMAND = {
    "help": "Program that responds, with its arguments: `orch23 help command-protocol`",
    "when": f"[[ provider == '{COMMAND}' ]]",
    "default": f"[% if provider == '{COMMAND}' %][[ UNSET ]][% endif %]",
    "validator": f"[% if provider != '{COMMAND}' and command %]only `provider={COMMAND}` has it"
    f"[% elif provider == '{COMMAND}' and not (command | regex_search('{_COMMAND_LINE}')) %]"
    'must be a program and its arguments, without quotes, or a list as in JSON: ["my tool", "an argument"][% endif %]',
}
_BASE_URL = {
    "help": "Address of the server, such as http://127.0.0.1:11434/v1",
    "when": f"[[ provider == '{SERVER}' ]]",
    "default": f"[% if provider == '{SERVER}' %][[ UNSET ]][% endif %]",
    "validator": f"[% if provider != '{SERVER}' and base_url %]only `provider={SERVER}` has it"
    f"[% elif provider == '{SERVER}' and not (base_url | regex_search('{_URL}')) %]must be an http(s) URL[% endif %]",
}
_FREE = {
    "help": "Does it cost nothing? A proxy may forward to a model that costs money",
    "type": "bool",
    "when": f"[[ provider in ('{SERVER}', '{COMMAND}') ]]",
    "default": False,
    "validator": f"[% if free and provider not in ('{SERVER}', '{COMMAND}') %]"
    f"only `provider={SERVER}` and `provider={COMMAND}` have it[% endif %]",
}


class TemplateError(Exception):
    """A description of a template, or the files that it names, cannot be made into a template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What pipelines/NAME.template.yaml says."""

    name: str
    summary: str
    files: tuple[str, ...]
    questions: Mapping[str, Mapping[str, Any]]
    replace: tuple[Mapping[str, str], ...]
    examples: tuple[tuple[Mapping[str, str], ...], ...]
    next: str
    example: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a template."""

    data: bytes
    executable: bool = False


def descriptions(root: Path) -> tuple[Description, ...]:
    """Return all templates of a repository, by name."""
    found = sorted((root / "pipelines").glob(f"*{SUFFIX}"))
    return tuple(describe(root, path.name.removesuffix(SUFFIX)) for path in found)


def describe(root: Path, name: str) -> Description:
    """Read the description of one template.

    Raises:
        TemplateError: it lacks a key or has one too many.
    """
    reported = yaml.safe_load((root / "pipelines" / f"{name}{SUFFIX}").read_text(encoding="utf-8"))
    if not isinstance(reported, dict) or reported.keys() - _KEYS or not {"summary", "files", "next"} <= reported.keys():
        message = f"{name}{SUFFIX}: takes {', '.join(sorted(_KEYS))}; summary, files and next must be there"
        raise TemplateError(message)
    return Description(
        name=name,
        summary=reported["summary"],
        files=tuple(reported["files"]),
        questions=reported.get("questions") or {},
        replace=tuple(reported.get("replace") or ()),
        examples=tuple(tuple(one) if isinstance(one, list) else (one,) for one in reported.get("examples") or ()),
        next=reported["next"],
        example=reported.get("example") or {},
    )


def project_files(root: Path, description: Description) -> dict[str, Blob]:
    """Return the files that the template brings, as they stand at the top level; pages without links to other pages."""
    found = {}
    for named in description.files:
        for path in _paths(root, named):
            data = path.read_bytes()
            if path.suffix == ".md":
                data = _LINK.sub(rb"\1", data)
            found[path.relative_to(root).as_posix()] = Blob(data, bool(path.stat().st_mode & 0o100))
    return dict(sorted(found.items()))


def template_files(root: Path, description: Description) -> dict[str, Blob]:
    """Return all files of the copier template.

    Raises:
        TemplateError: a replacement fits no place or several, or a file cannot be distinguished from a template.
    """
    made = {"copier.yml": Blob(_json(_settings(description)))}
    files = project_files(root, description)
    places = _places(description, files)
    for path, blob in files.items():
        if _OPENS.search(path) or path.endswith(RENDERED):
            message = f"{description.name}: the name of {path} means something to copier"
            raise TemplateError(message)
        first = SCHEMA_LINE.encode() if path == f"pipelines/{description.name}.yaml" else b""
        if path in places:
            text = _rendered(description.name, path, blob.data.decode(), places[path])
            made[f"{SUBDIRECTORY}/{path}{RENDERED}"] = Blob(first + text.encode(), blob.executable)
        else:
            made[f"{SUBDIRECTORY}/{path}"] = Blob(first + blob.data, blob.executable)
    answers = f"{ANSWERS_HEAD}[[ _copier_answers | to_nice_yaml -]]\n"
    made[f"{SUBDIRECTORY}/[[ _copier_conf.answers_file ]]{RENDERED}"] = Blob(answers.encode())
    return made


def catalogue_entry(description: Description, files: Mapping[str, Blob], version: str) -> dict[str, Any]:
    """Return what `orch23 template list` and `show` tell of the template."""
    asked = {
        name: {key: reported[key] for key in ("help", "default", "choices") if key in reported}
        for name, reported in _questions(description).items()
    }
    return {
        "name": description.name,
        "summary": description.summary,
        "version": version,
        "questions": asked,
        "files": list(files),
        "next": description.next,
    }


def _paths(root: Path, named: str) -> Iterator[Path]:
    path = root / named
    if not named.endswith("/"):
        if not path.is_file():
            message = f"{named} is no file"
            raise TemplateError(message)
        yield path
        return
    inside = [one for one in sorted(path.rglob("*")) if one.is_file()]
    if not inside:
        message = f"{named} is no folder with files"
        raise TemplateError(message)
    for one in inside:
        if not any(Path(part).match(pattern) for part in one.relative_to(path).parts for pattern in _LEFT_OUT):
            yield one


def _settings(description: Description) -> dict[str, Any]:
    answers, example = f"pipelines/{description.name}.answers.yaml", description.example
    # Only the provider `scripted` reads them.
    left_out = [f"[% if provider != 'scripted' %]{answers}[% endif %]"] if answers in description.files else []
    left_out += [f"[% if not ({example['if']}) %]{path}[% endif %]" for path in example.get("files", ())]
    return {
        **({"_exclude": left_out} if left_out else {}),
        "_subdirectory": SUBDIRECTORY,
        "_templates_suffix": RENDERED,
        "_answers_file": f".orch23-{description.name}.answers.yml",
        "_envops": ENVOPS,
        "_message_after_copy": f"next: {_next(description)}",
        **{name: _question(name, reported) for name, reported in _questions(description).items()},
    }


def _next(description: Description) -> str:
    """Return what to do first, as a text for copier: another application than the example's has no spec yet."""
    if not description.example:
        return description.next
    first = f"write {description.example['write']}, then `orch23 build pipelines/{description.name}.yaml`"
    return f"[% if {description.example['if']} %]{description.next}[% else %]{first}[% endif %]"


def _questions(description: Description) -> dict[str, Mapping[str, Any]]:
    """Return the questions in their order. A provider that can be a server adds those about the server."""
    stated = dict(description.questions)
    if SERVER not in stated.get("provider", {}).get("choices", ()):
        return stated
    provider, model = stated.pop("provider"), stated.pop("model")
    of_command = f"[% if provider == '{COMMAND}' %]default[% else %]"
    model = {**model, "default": f"{of_command}{_SERVED}{model['default']}[% endif %][% endif %]"}
    return {"provider": provider, "base_url": _BASE_URL, "command": _COMMAND, "model": model, "free": _FREE, **stated}


def _found_first(choices: Sequence[str]) -> str:
    """Return choices for copier, as YAML: first those that were found on this machine, marked as found."""
    # A label ends up in a mapping of YAML, so it is written as JSON.
    labelled = [[one, f"{one}  ({_NOTES[one]})" if one in _NOTES else one] for one in choices]
    return (
        f"[% set found = found | default({{}}) %][% set all = {json.dumps(labelled)} %]{{"
        "[% for one in found %][[ (one ~ '  (found: ' ~ found[one] ~ ')') | tojson ]]: [[ one ]], "
        "[% endfor %][% for one, label in all if one not in found %][[ label | tojson ]]: [[ one ]], [% endfor %]}"
    )


def _question(name: str, reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question of copier's: text that is free gets a validator, unless it has one of its own."""
    question = {"type": "str", "qmark": "?", **reported}
    if name == "provider" and "choices" in question:
        question["choices"] = _found_first(question["choices"])
    if question["type"] == "str" and "choices" not in question and "validator" not in question:
        pattern = {"name": _NAME, "project": _PROJECT}.get(name, _TEXT)
        what = "a letter, then letters, digits and . _ -" if name == "name" else "a plain word: no spaces, no quotes"
        what = "a directory inside of the root, or `.`: no spaces, no quotes" if name == "project" else what
        question["validator"] = f"[% if not ({name} | regex_search('{pattern}')) %]must be {what}[% endif %]"
    return question


def _places(description: Description, files: Mapping[str, Blob]) -> dict[str, list[tuple[int, int, str]]]:
    """Return for each file that is rendered where text of it gives way to what; all errors at once."""
    places: dict[str, list[tuple[int, int, str]]] = {}
    wrong = []
    for one in description.replace:
        if one.keys() != {"file", "find", "with"} or one["file"] not in files:
            wrong.append(f"{dict(one)} needs file, find and with, and the file must be among `files`")
            continue
        text = files[one["file"]].data.decode()
        if text.count(one["find"]) != 1:
            wrong.append(f"{one['file']} has {text.count(one['find'])} places that read {one['find']!r}, not one")
            continue
        start = text.index(one["find"])
        places.setdefault(one["file"], []).append((start, start + len(one["find"]), one["with"]))
    for path, found in places.items():
        found.sort()
        overlaps = any(start < end for (_, end, _), (start, _, _) in pairwise(found))
        wrong += [f"{path}: two replacements overlap"] if overlaps else []
    if wrong:
        raise TemplateError(f"{description.name}{SUFFIX}: " + "; ".join(wrong))
    return places


def _rendered(name: str, path: str, text: str, places: list[tuple[int, int, str]]) -> str:
    """Return the text with its replacements, and with all else kept from being taken for one."""
    parts, at = [], 0
    for start, end, instead in places:
        parts += [_literal(name, path, text[at:start]), instead]
        at = end
    return "".join((*parts, _literal(name, path, text[at:])))


def _literal(name: str, path: str, text: str) -> str:
    if not _OPENS.search(text):
        return text
    if re.search(r"\[%-?\s*endraw", text):
        message = f"{name}: {path} holds the end of a raw block"
        raise TemplateError(message)
    return f"[% raw %]{text}[% endraw %]"


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
