"""Only `orch23/store/safe_files.py` opens or creates files of orch23 and of the project; the exceptions have reasons.

A clone can bring a link, a pipe or a folder in the place of any path in the project (ADR 62).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OF_OS = frozenset(
    {"open", "mkdir", "makedirs", "rename", "renames", "replace", "link", "symlink", "mkfifo", "mknod", "truncate"}
)
OF_PATH = frozenset(
    {"mkdir", "touch", "write_text", "write_bytes", "read_text", "read_bytes", "rename", "symlink_to", "hardlink_to"}
)
MODULES = ("os", "io", "shutil", "tempfile")
OF_OPEN = ("mode", "encoding", "errors", "newline")
MODE = re.compile(r"[rwxabt+]{1,3}")
ALLOWED = {
    "the layer itself, and what it is made of: descriptors of folders, and links not followed": {
        "store/safe_files": "open mkdir rename",
        "store/tree_removal": "open rename",
    },
    "it imports no other package, and does the same by itself": {
        "snapshot/fast_path": "open makedirs rename",
        "snapshot/stat_snapshot": "open",
        "snapshot/store_registry": "open",
    },
    "from or to a folder that was opened or checked by the layer": {
        "features/batches/pending": "rename",
        "features/tool_caches/views": "copystat copytree mkdir rename",
        "store/access": "rename",
        "features/upkeep/outputs": "rename",
        "store/content_store": "rename",
        "store/exchanges": "rename",
        "store/promotion": "open rename",
    },
    "a file that the user names: outside of the project its links are the user's own": {
        "cli/actions/completing": "open",
        "cli/discovery": "open read_text",
        "cli/named_files": "open",
        "features/plan_files/plan_file": "open",
        "features/cache/client_certificate": "read_bytes",
        "features/cache/disk": "link makedirs mkdir rename",
        "features/cache/grpc_cache": "read_bytes",
        "features/remote/worker": "mkdir",
        "providers/command": "open",
    },
    "settings and caches of the user": {
        "features/local/local_model": "mkdir open replace TemporaryDirectory",
        "providers/installation": "read_text",
    },
    "files that are installed": {
        "cli/pages": "read_text",
        "features/cache/distributions": "open read_bytes read_text",
        "features/cache/environment": "open read_bytes",
        "execute/interpreters": "open read_text",
        "features/toolchains/versions": "read_text",
        "execute/pytest_report": "read_bytes",
        "features/pages/writing": "read_text",
    },
    "/proc, /dev, and the standard streams": {
        "cli/console": "open",
        "entry": "open",
        "execute/process_tree": "open",
        "execute/resource_limits": "open",
        "execute/supervisor": "open",
        "execute/supervisor_child": "open",
        "snapshot/signatures": "open",
        "store/index": "read_text",
    },
    "new folders with random names, which this process made: of sandboxes, downloads and templates": {
        "features/local/installing": "write_text",
        "execute/cleanup": "mkdir open",
        "execute/copier_child": "read_text write_text",
        "execute/copier_runner": "read_bytes write_bytes write_text",
        "execute/local_executor": "mkdir read_bytes write_bytes",
        "execute/process": "open",
        "features/remote/single_action": "write_bytes",
        "execute/sandbox/bubblewrap": "open",
        "execute/sandbox/landlock": "open",
        "execute/sandbox/namespaces_child": "makedirs mkdir open symlink",
        "execute/sandbox/tier_selection": "mkdir read_bytes write_bytes",
        "execute/sandbox_dir": "mkdir open",
        "execute/sandbox_tree": "mkdir open symlink touch",
        "execute/shared_trees": "rename",
        "store/input_files": "makedirs open",
        "features/templates/changes": "read_bytes",
        "features/templates/rendering": "mkdir read_bytes write_bytes",
    },
}


def opening(source: str) -> Iterator[str]:
    """Yield the name of each function in a source that opens, creates or renames a file by its path."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if _is_opening(node.module or "", alias.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield "open"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if _is_opening(module, node.func.attr) if module in MODULES else _is_of_path(node, node.func.attr):
                yield node.func.attr


def _is_opening(module: str, name: str) -> bool:
    if module in ("os", "io"):
        return name in OF_OS
    return module in MODULES and name not in ("which", "gettempdir", "get_terminal_size")


def _is_of_path(call: ast.Call, name: str) -> bool:
    """Return whether a call of a method looks like that of a Path. The first argument of its `open` is a mode."""
    if name == "replace":
        return len(call.args) == 1 and not call.keywords
    if name != "open":
        return name in OF_PATH
    first = call.args[0] if call.args else None
    is_mode = isinstance(first, ast.Constant) and MODE.fullmatch(str(first.value)) is not None
    return is_mode or (first is None and all(one.arg in OF_OPEN for one in call.keywords))


@pytest.mark.slow
def test_only_the_layer_of_safe_files_opens_paths() -> None:
    found = {}
    for folder in ("orch23", "orch23_checks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if names := {*opening(path.read_text(encoding="utf-8"))}:
                module = path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("orch23/")
                found[module] = " ".join(sorted(names))
    allowed = {module: " ".join(sorted(names.split())) for part in ALLOWED.values() for module, names in part.items()}
    # Of features only those that are there.
    there = {name for name in allowed if not name.startswith("features/") or (ROOT / f"orch23/{name}.py").is_file()}
    assert found == {name: allowed[name] for name in there}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("open('x', 'w')", "open"),
        ("with io.open(x) as f: pass", "open"),
        ("os.open(x, flags)", "open"),
        ("from os import replace", "replace"),
        ("from shutil import copyfile", "copyfile"),
        ("os.replace(a, b)", "replace"),
        ("path.replace(other)", "replace"),
        ("path.open('rb')", "open"),
        ("path.open()", "open"),
        ("path.open(encoding='utf-8')", "open"),
        ("(root / name).write_text(text)", "write_text"),
        ("folder.mkdir(parents=True)", "mkdir"),
        ("shutil.move(a, b)", "move"),
        ("import tempfile\ntempfile.mkdtemp()", "mkdtemp"),
    ],
)
def test_the_rule_sees_what_it_is_there_for(source: str, name: str) -> None:
    assert [*opening(source)] == [name]


@pytest.mark.parametrize(
    "source", ["text.replace('a', 'b')", "cache.open(names)", "line.open(until)", "open_own(path)"]
)
def test_the_rule_leaves_the_rest_alone(source: str) -> None:
    assert [*opening(source)] == []
