"""Find the files that a command needs: what `python -c` imports, and the scripts that it names."""

import ast
import sys
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from orch23.checks.python_source import parse_python
from orch23_checks.invocations import plain_path, read_argv

STANDARD = frozenset({*sys.stdlib_module_names, "__main__"})


class Dependencies(Struct, frozen=True):
    """Dotted names of modules outside the standard library, and paths of scripts; both sorted."""

    modules: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


def dependencies(argv: Sequence[str]) -> Dependencies:
    """Return what a command needs of the project. Code that does not parse imports nothing."""
    called = read_argv(argv)
    if called.value is None:
        return Dependencies()
    if called.kind == "script":
        return Dependencies(scripts=(plain_path(called.value),))
    if called.program == "python" and called.kind == "code":
        return Dependencies(modules=_imports(called.value))
    return Dependencies()


class Present(Struct):
    """Paths that are there by now, asked for modules and scripts; modules are imported from the folders `roots`."""

    roots: tuple[str, ...] = ("",)
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def add(self, paths: Iterable[str]) -> None:
        """Take more paths, and the folders they are in."""
        for path in paths:
            self.files.add(path)
            self.folders |= {path[:at] for at, char in enumerate(path) if char == "/"}

    def has_module(self, name: str) -> bool:
        """Say whether a module, a package or a folder of modules has this name."""
        below = name.replace(".", "/")
        paths = [plain_path(f"{root}/{below}" if root else below) for root in self.roots]
        return any(f"{path}.py" in self.files or path in self.folders for path in paths)

    def has_script(self, path: str) -> bool:
        """Say whether a file is there, or a folder that Python runs by its `__main__.py`."""
        return path in self.files or f"{path}/__main__.py" in self.files


def _imports(code: str) -> tuple[str, ...]:
    """Return the modules that code imports anywhere in it; of `from a.b import c` it is `a.b`."""
    try:
        tree = parse_python(code, "<command>")
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return ()
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module)
            case _:
                pass
    return tuple(sorted(name for name in found if name.partition(".")[0] not in STANDARD))
