"""Actions as messages, and back.

The input root has the inputs in `tree` and the tools in `tools`. Everything else that determines what an action does
is in the command, in the platform or in the salt, so the digest of the message identifies the action with its limits.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec
from msgspec import Struct

from orch23.model.action import Action, Interpreter, StepLimits, required_folders
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.reapi.messages import ActionProto, Command, Duration, Platform, Property, digest_of, digest_proto
from orch23.reapi.trees import content_of, tree_of
from orch23.reapi.wire import DecodeError, decode, encode, refuse

PYTHON_PROPERTY: Final = "orch23-python"
"""The platform property with the version X.Y of Python. Without it, any version."""
PYTEST_PROPERTY: Final = "orch23-pytest"
"""The platform property with the major version of pytest. Without it, any version, or none."""
SANDBOX_PROPERTY: Final = "orch23-sandbox"
"""The platform property with the lowest sandbox tier that may run the action."""

PROGRAM_PROPERTIES: Final = "orch23-program-"
"""With the name of a declared tool: the platform property with its sha256."""

_FULL, _ANY, _NONE = "A", "B", "C"  # the tiers of ADR 14: all that bubblewrap isolates, Landlock at least, no sandbox
_TREE, _TOOLS = "tree", "tools"
_NANOS = 1_000_000_000


class ActionBlobs(Struct, frozen=True):
    """The digest of an action message, and the bytes of all messages: the action, its command, its directories.

    The bytes of the inputs and tools are not among them.
    """

    digest: Digest
    blobs: Mapping[Digest, bytes]


class _Salt(Struct, frozen=True, kw_only=True):
    """What an action has that no field of REAPI has. `links` are those of inputs that are not links in the tree."""

    declared_python: str | None
    limits: StepLimits
    links: Mapping[str, str]
    network: bool
    output_folders: tuple[str, ...]
    reports: bool
    scratch: tuple[str, ...]
    writable: tuple[str, ...] | None
    format: int = 1


def action_blobs(action: Action) -> ActionBlobs:
    """Return an action as messages. The timeout is rounded to nanoseconds.

    Raises:
        ValueError: a path leads out of the tree, a file is also a folder, a text is not valid Unicode, or the timeout
            is not a number of at least 0.

    """
    action.check_paths()
    folders = (*action.output_folders, *required_folders(action.writable or ()), action.working_directory)
    below = [f"{_TREE}/{path.rstrip('/')}" for path in folders if path != "."]
    root = tree_of(_input_root(action), (_TREE, *below))
    linked = content_of(root.root, root.blobs.__getitem__).files
    salt = _Salt(
        declared_python=action.python.declared,
        limits=action.limits,
        links={path: entry.link for path, entry in action.inputs.items() if entry.link != _link(linked, path)},
        network=action.network,
        output_folders=action.output_folders,
        reports=action.reports,
        scratch=action.scratch,
        writable=action.writable,
    )
    platform = _platform(action)
    command = encode(
        Command(
            arguments=action.argv,
            environment_variables=_properties(action.env),
            platform=platform,
            working_directory=_TREE if action.working_directory == "." else f"{_TREE}/{action.working_directory}",
            output_paths=_output_paths(action),
        )
    )
    message = encode(
        ActionProto(
            command_digest=digest_proto(digest_bytes(command)),
            input_root_digest=digest_proto(root.root),
            timeout=duration_of(action.timeout_s),
            salt=msgspec.json.encode(salt, order="sorted"),
            platform=platform,
        )
    )
    digest = digest_bytes(message)
    return ActionBlobs(digest, {**root.blobs, digest_bytes(command): command, digest: message})


def action_of(digest: Digest, read: Callable[[Digest], bytes]) -> Action:
    """Return the action that a digest of `action_blobs` names. `read` returns the verified bytes of a digest.

    Raises:
        DecodeError: these are not the messages of an action of this version: also if a field is unknown, since it
            could be a restriction.

    """
    message = decode(ActionProto, read(digest))
    command = decode(Command, read(digest_of(message.command_digest)))
    content = content_of(digest_of(message.input_root_digest), read)
    try:
        salt = msgspec.json.decode(message.salt, type=_Salt, strict=True)
        action = _action(message, command, content.files, salt)
        # It has the same digest only if nothing was ignored.
        if action_blobs(action).digest != digest:
            refuse("the messages are not those of an action of this version")
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise DecodeError(str(error)) from None
    return action


def _action(message: ActionProto, command: Command, files: Mapping[str, FileEntry], salt: _Salt) -> Action:
    properties = {one.name: one.value for one in (message.platform or Platform()).properties}
    timeout = message.timeout or Duration()
    inputs = {}
    for path, entry in _below(files, _TREE).items():
        link = salt.links.get(path) or entry.link.removeprefix(f"{_TREE}/")
        inputs[path] = FileEntry(entry.digest, entry.executable, link)
    return Action(
        argv=command.arguments,
        inputs=inputs,
        python=Interpreter(
            salt.declared_python, properties.get(PYTHON_PROPERTY, ""), properties.get(PYTEST_PROPERTY, "")
        ),
        working_directory=command.working_directory.removeprefix(_TREE).removeprefix("/") or ".",
        output_folders=salt.output_folders,
        env={one.name: one.value for one in command.environment_variables},
        scratch=salt.scratch,
        timeout_s=(timeout.seconds * _NANOS + timeout.nanos) / _NANOS,
        network=salt.network,
        tools=_below(files, _TOOLS),
        reports=salt.reports,
        sandbox=properties.get(SANDBOX_PROPERTY) != _NONE,
        min_tier="namespaces" if properties.get(SANDBOX_PROPERTY) == _FULL else "landlock",
        limits=salt.limits,
        writable=salt.writable,
        programs={
            name.removeprefix(PROGRAM_PROPERTIES): digest
            for name, digest in properties.items()
            if name.startswith(PROGRAM_PROPERTIES)
        },
    )


def _input_root(action: Action) -> Mapping[str, FileEntry]:
    if any(entry.link for entry in action.tools.values()):
        message = "a tool is a link"
        raise ValueError(message)
    inputs = {
        f"{_TREE}/{path}": FileEntry(entry.digest, entry.executable, f"{_TREE}/{entry.link}" if entry.link else "")
        for path, entry in action.inputs.items()
    }
    return inputs | {f"{_TOOLS}/{name}": entry for name, entry in action.tools.items()}


def _link(linked: Mapping[str, FileEntry], path: str) -> str:
    return linked[f"{_TREE}/{path}"].link.removeprefix(f"{_TREE}/")


def _below(files: Mapping[str, FileEntry], folder: str) -> dict[str, FileEntry]:
    return {path.removeprefix(f"{folder}/"): files[path] for path in sorted(files) if path.startswith(f"{folder}/")}


def _platform(action: Action) -> Platform:
    versions = {PYTHON_PROPERTY: action.python.version, PYTEST_PROPERTY: action.python.pytest}
    needed = {name: version for name, version in versions.items() if version}
    needed |= {f"{PROGRAM_PROPERTIES}{name}": digest for name, digest in action.programs.items()}
    return Platform(properties=_properties({**needed, SANDBOX_PROPERTY: _tier(action)}))


def _tier(action: Action) -> str:
    if not action.sandbox:
        return _NONE
    return _FULL if action.min_tier == "namespaces" else _ANY


def _properties(values: Mapping[str, str]) -> tuple[Property, ...]:
    return tuple(Property(name=name, value=values[name]) for name in sorted(values))


def _output_paths(action: Action) -> tuple[str, ...]:
    """Return the paths that the action names, from the working directory. An executor of orch23 returns all changes."""
    base = [] if action.working_directory == "." else action.working_directory.split("/")
    paths = {path.rstrip("/") for path in (*action.output_folders, *(action.writable or ()))}
    return tuple(sorted(_relative(path.split("/"), base) for path in paths))


def _relative(path: Sequence[str], base: Sequence[str]) -> str:
    while path and base and path[0] == base[0]:
        path, base = path[1:], base[1:]
    return "/".join([*(".." for _ in base), *path])


def duration_of(seconds: float) -> Duration:
    """Return a time as a message, rounded to nanoseconds.

    Raises:
        ValueError: it is not a number of at least 0.

    """
    try:
        whole, part = divmod(round(Fraction(seconds) * _NANOS), _NANOS)
    except OverflowError:
        whole = part = -1
    if whole < 0:
        message = f"the timeout is {seconds} s"
        raise ValueError(message)
    return Duration(seconds=whole, nanos=part)
