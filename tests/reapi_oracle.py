"""The messages of tests/reapi.proto as classes of Google's protobuf library, an oracle for those of orch23."""

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from orch23.features.cache.reapi import messages
from orch23.features.cache.reapi.wire import Proto, decode, fields_of
from orch23.model.digest import Digest, FileEntry

PROTO = Path(__file__).parent / "reapi.proto"
_MESSAGE = re.compile(r"message (\w+) \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")
_SCALARS = {"string": 9, "bytes": 12, "bool": 8, "int32": 5, "int64": 3}  # FieldDescriptorProto.Type
_A_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3


@cache
def file_of_text() -> descriptor_pb2.FileDescriptorProto:
    """Return the file as our reading of its text has it."""
    file = descriptor_pb2.FileDescriptorProto(name=PROTO.name, package="orch23.oracle", syntax="proto3")
    for name, body in _MESSAGE.findall(PROTO.read_text(encoding="utf-8")):
        made = file.message_type.add(name=name)
        for repeated, kind, field, number in _FIELD.findall(body):
            one = made.field.add(name=field, number=int(number), label=_REPEATED if repeated else _OPTIONAL)
            if kind in _SCALARS:
                one.type = _SCALARS[kind]
            else:
                one.type, one.type_name = _A_MESSAGE, f".orch23.oracle.{kind}"
    return file


@cache
def _oracles() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_of_text())
    return dict(message_factory.GetMessageClassesForFiles([PROTO.name], pool))


def oracle_of(name: str) -> Any:
    """Return the class of the protobuf library for a message."""
    return _oracles()[f"orch23.oracle.{name}"]


@cache
def kinds() -> dict[str, type[Proto]]:
    """Return the classes of our messages by name."""
    found = vars(messages).values()
    return {
        kind.__name__: kind
        for kind in found
        if isinstance(kind, type) and issubclass(kind, Proto) and kind is not Proto and kind.__name__[0] != "_"
    }


def as_oracle(message: Proto) -> Any:
    """Return the message of the protobuf library with the values of one of ours."""
    values = {field.name: getattr(message, field.name) for field in fields_of(type(message))}
    return oracle_of(type(message).__name__)(
        **{name: _converted(value) for name, value in values.items() if value is not None}
    )


def _converted(value: Any) -> Any:
    if isinstance(value, Proto):
        return as_oracle(value)
    return list(map(_converted, value)) if isinstance(value, tuple) else value


def files_of(root: Digest, read: Callable[[Digest], bytes]) -> dict[str, FileEntry]:
    """Return the files of a tree by path, as a server would stage them."""
    found: dict[str, FileEntry] = {}
    links: dict[str, str] = {}
    waiting = [("", root)]
    while waiting:
        prefix, digest = waiting.pop()
        directory = decode(messages.Directory, read(digest))
        waiting += ((f"{prefix}{one.name}/", messages.digest_of(one.digest)) for one in directory.directories)
        links |= {f"{prefix}{one.name}": os.path.normpath(f"{prefix}{one.target}") for one in directory.symlinks}
        for one in directory.files:
            found[f"{prefix}{one.name}"] = FileEntry(messages.digest_of(one.digest), one.is_executable)
    return found | {path: FileEntry(found[to].digest, found[to].executable, to) for path, to in links.items()}
