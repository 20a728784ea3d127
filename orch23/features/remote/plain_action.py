"""Actions on workers that do not have orch23: the command itself, and its whole tree as the output.

They run actions that need nothing of orch23. Facts that no worker knows are left out: hard links and processes.
"""

from collections.abc import Callable, Iterator

from orch23.execute.interpreters import SYSTEM_PATH
from orch23.execute.launch import USUAL_VARIABLES, PlainLauncher
from orch23.execute.process import DEFAULT_OUTPUT
from orch23.execute.sandbox_tree import (
    file_name_problem,
    link_violation,
    printable_path,
    scratch_matcher,
)
from orch23.features.cache.reapi.messages import Command, Directory, Tree, digest_of
from orch23.features.cache.reapi.trees import MAX_TREE_DEPTH, tree_of
from orch23.features.cache.reapi.wire import DecodeError, decode, encode, refuse
from orch23.features.remote.engine import EngineFault
from orch23.features.remote.reapi_address import ReapiAddress
from orch23.features.remote.reapi_result import Finished
from orch23.features.remote.single_action import Messages, properties_of, request_of
from orch23.model.action import PYTHON, Action, ActionOutcome, ActionResult, Completed, Output, TimedOut, link_text
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.ports import ContentStore

PYTHON_PROPERTY = "orch23-python"
"""The platform property with the version X.Y of Python that workers have."""
_TREE = "tree"
# The output is the tree, and a path of an output is relative to the working directory.
_IN_TREE = ("/bin/sh", "-c", 'cd "$0" && exec "$@"')


def plain_fault(action: Action, address: ReapiAddress) -> Diagnostic | None:
    """Return why workers without orch23 cannot keep what an action promises; None if they can."""
    version = address.properties.get(PYTHON_PROPERTY, "")
    needed = action.python.version
    rules = (
        (action.sandbox, "it needs a sandbox (`sandbox: off` is for steps that you trust)"),
        (action.reports or bool(action.tools or action.results), "it needs a report of its tests, or a depfile"),
        (action.writable is not None, "it may write only some paths, as all steps that verify"),
        (action.argv[0] == PYTHON, "it needs the interpreter of the stage"),
        (bool(action.tool_caches), "the caches of its tools are on the machine of the project"),
        (bool(action.programs), "its declared `tools` cannot be compared with those of the worker"),
        (needed not in {"", version}, f"`--scheduler` does not say that they have `{PYTHON_PROPERTY}={needed}`"),
    )
    why = next((text for is_broken, text in rules if is_broken), None)
    if why is None:
        return None
    hint = "install orch23 on the workers, and leave `orch23=none` out; or build on this machine"
    return Diagnostic("E488", f"workers without orch23 cannot run this step: {why}", hint=hint)


def plain_action(action: Action, address: ReapiAddress) -> Messages:
    """Return the messages with which a server runs the command of an action.

    Raises:
        ValueError: a path leads out of the tree, a text is not valid Unicode, or the timeout is not a number of at
            least 0.
    """
    action.check_paths()
    inputs = {
        f"{_TREE}/{path}": FileEntry(entry.digest, entry.executable, f"{_TREE}/{entry.link}" if entry.link else "")
        for path, entry in action.inputs.items()
    }
    folders = (path for path in (*action.output_folders, action.working_directory) if path != ".")
    root = tree_of(inputs, (_TREE, *(f"{_TREE}/{path.rstrip('/')}" for path in folders)))
    here = _TREE if action.working_directory == "." else f"{_TREE}/{action.working_directory}"
    command = Command(
        arguments=(*_IN_TREE, here, *action.argv),
        environment_variables=properties_of({"PATH": ":".join(SYSTEM_PATH), **USUAL_VARIABLES, **action.env}),
        output_paths=(_TREE,),
    )
    return request_of(command, root, frozenset(one.digest for one in inputs.values()), action.timeout_s, address)


def plain_outcome(
    action: Action, finished: Finished, read: Callable[[Digest], bytes | None], contents: ContentStore
) -> ActionOutcome | None:
    """Return the outcome of a command; None if the server has lost a part of its result.

    `read` returns the verified bytes of a digest. The log is put into `contents`.

    Raises:
        EngineFault: the result cannot be read.
    """
    printed = b""
    for raw, proto in (
        (finished.result.stdout_raw, finished.result.stdout_digest),
        (finished.result.stderr_raw, finished.result.stderr_digest),
    ):
        found = raw if raw or proto is None or not proto.size_bytes else read(digest_of(proto))
        if found is None:
            return None
        printed += found
    output = _output(printed, contents)
    if finished.name == "DEADLINE_EXCEEDED":
        return TimedOut(output, action.timeout_s)
    trees = [digest_of(one.tree_digest) for one in finished.result.output_directories if one.path == _TREE]
    data = read(trees[0]) if trees else encode(Tree(root=Directory()))
    if data is None:
        return None
    try:
        files, violations = _files(action, decode(Tree, data))
    except DecodeError as error:
        message = f"the tree of a result cannot be read: {error}"
        raise EngineFault(message) from None
    written = {path: entry for path, entry in files.items() if not _is_input(action, path, entry)}
    return Completed(
        ActionResult(
            exit_code=finished.result.exit_code,
            written={} if violations else dict(sorted(written.items())),
            removed=tuple(sorted(action.inputs.keys() - files.keys())),
            output=output,
            violations=violations,
            tier=PlainLauncher.tier,
        )
    )


def _is_input(action: Action, path: str, entry: FileEntry) -> bool:
    """Return whether a file is the input at its path. An input that was staged as a link may be a file there."""
    staged = action.inputs.get(path)
    return staged is not None and (staged.digest, staged.executable) == (entry.digest, entry.executable)


def _files(action: Action, tree: Tree) -> tuple[dict[str, FileEntry], tuple[Diagnostic, ...]]:
    is_scratch = scratch_matcher(action.scratch)
    files: dict[str, FileEntry] = {}
    violations: list[Diagnostic] = []
    size_bytes = 0
    for path, found in _walk(tree, is_scratch, action.limits.files):
        problem = file_name_problem(path.rpartition("/")[2])
        if problem is not None:
            message, hint = f"the name {problem}", "choose another name"
            violations.append(Diagnostic("E614", message, hint=hint, subject=printable_path(path)))
        elif isinstance(found, FileEntry):
            files[path] = found
            size_bytes += found.digest.size_bytes
        elif found == link_text(path, action.inputs):
            files[path] = action.inputs[path]
        else:
            violations.append(link_violation(path))
    if size_bytes > action.limits.disk:
        message = f"the files of the result have more than {action.limits.disk} bytes in total"
        violations.append(Diagnostic("E617", message, hint="write less", subject="."))
    return files, tuple(violations[:10])


def _walk(tree: Tree, is_scratch: Callable[[str], bool], most: int) -> Iterator[tuple[str, FileEntry | str]]:
    """Yield the files of a tree, and the texts of its links, by path; raise for what no tree has, or too many."""
    by_digest = {digest_bytes(encode(child)): child for child in tree.children}
    waiting = [("", tree.root or Directory())]
    count = 0
    while waiting:
        prefix, directory = waiting.pop()
        count += _checked_names(directory)
        if count > most or prefix.count("/") > MAX_TREE_DEPTH:
            refuse(f"it has more than {most} files and folders, or more than {MAX_TREE_DEPTH} levels")
        for file in directory.files:
            if not is_scratch(f"{prefix}{file.name}"):
                yield f"{prefix}{file.name}", FileEntry(digest_of(file.digest), file.is_executable)
        for link in directory.symlinks:
            if not is_scratch(f"{prefix}{link.name}"):
                yield f"{prefix}{link.name}", link.target
        for one in directory.directories:
            child = by_digest.get(digest_of(one.digest))
            if child is None:
                refuse("a directory is missing")
            if not is_scratch(f"{prefix}{one.name}"):
                waiting.append((f"{prefix}{one.name}/", child))


def _checked_names(directory: Directory) -> int:
    """Return how many names a directory has, all of which can be parts of a path."""
    names = [node.name for nodes in (directory.files, directory.symlinks, directory.directories) for node in nodes]
    if len(set(names)) != len(names):
        refuse("a name is there twice")
    for name in names:
        if name in {"", ".", ".."} or "/" in name or "\0" in name:
            refuse("a name leads out of the tree")
    return len(names)


def _output(data: bytes, contents: ContentStore) -> Output:
    data = data.replace(b"\r\n", b"\n")
    head, tail = DEFAULT_OUTPUT.head_bytes, DEFAULT_OUTPUT.tail_bytes
    if len(data) <= head + tail:
        return Output(data.decode("utf-8", "replace"), len(data))
    left_out = f"... {len(data) - head - tail} bytes are left out here; the log has them ..."
    begin, end = (part.decode("utf-8", "replace") for part in (data[:head], data[-tail:]))
    return Output(f"{begin}\n{left_out}\n{end}", len(data), contents.put(data))
