"""Measure the size and the shape of the code: `python scripts/measure_tree.py [TREE]...`, one column for each tree.

Lines are those of the files, with comments and blank lines; statements are counted in the syntax tree, docstrings not.
A class is public if neither its name nor its module begins with an underscore. An arrow is an import, of a module by a
module, that runs upwards in the layers of the tree's pyproject.toml.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent.parent
LARGEST = 45


def modules_of(tree: Path) -> dict[str, Path]:
    """Return the modules of orch23 in a tree, by name."""
    paths = sorted((tree / "orch23").rglob("*.py"))
    return {".".join(one.relative_to(tree).with_suffix("").parts).removesuffix(".__init__"): one for one in paths}


def statements_of(source: ast.Module) -> int:
    """Count the statements of a module, without docstrings."""
    every = [node for node in ast.walk(source) if isinstance(node, ast.stmt)]
    texts = [node for node in every if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return len(every) - len(texts)


def public_classes(source: ast.Module) -> Iterator[str]:
    """Yield the names of the public classes at the top of a module."""
    for node in source.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def imports_of(source: ast.Module) -> Iterator[str]:
    """Yield each name that a module imports, also in functions and for types."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{one.name}" for one in node.names)


def layers_of(tree: Path) -> dict[str, float]:
    """Return the layer of each package from the first contract of a tree, the lowest first."""
    contracts = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["orch23"])
    found = {
        package.strip(): float(height) for height, layer in enumerate(reversed(layers)) for package in layer.split("|")
    }
    # A tree in which `steps` had no layer: what a step is imports only values.
    return {"steps": found["model"] + 0.5, **found}


def upward_arrows(sources: dict[str, ast.Module], layers: dict[str, float]) -> list[str]:
    """Return the imports between packages that run upwards."""
    found = set()
    for module, source in sources.items():
        for name in imports_of(source):
            target = name if name in sources else name.rpartition(".")[0]
            here, there = (layers.get(one.partition(".")[2].partition(".")[0]) for one in (module, target))
            if target in sources and here is not None and there is not None and there > here:
                found.add(f"{module} -> {target}")
    return sorted(found)


def measured(tree: Path) -> tuple[dict[str, int], list[str]]:
    """Return the figures of a tree by title, and what lies behind those that should be zero."""
    modules = modules_of(tree)
    sources = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    lines = {name: len(path.read_text().splitlines()) for name, path in modules.items()}
    core = [name for name in modules if not name.startswith("orch23.features.")]
    classes = defaultdict(list)
    for name, source in sources.items():
        if not any(part.startswith("_") for part in name.split(".")):
            for one in public_classes(source):
                classes[one].append(name)
    twice = {one: places for one, places in classes.items() if len(places) > 1}
    arrows = upward_arrows(sources, layers_of(tree))
    folders = defaultdict(list)
    for name, path in modules.items():
        folders[path.parent].append(name)
    large = {folder: len(one) for folder, one in folders.items() if len(one) > LARGEST}
    figures = {
        "lines": sum(lines.values()),
        "lines of the core": sum(lines[name] for name in core),
        "statements": sum(map(statements_of, sources.values())),
        "statements of the core": sum(statements_of(sources[name]) for name in core),
        "modules": len(modules),
        "modules of the core": len(core),
        "public classes with a name twice": len(twice),
        "imports upwards": len(arrows),
        f"folders above {LARGEST} modules": len(large),
    }
    behind = [f"{one}: {', '.join(places)}" for one, places in sorted(twice.items())]
    behind += [f"upwards: {one}" for one in arrows]
    behind += [f"{count} modules: {folder.relative_to(tree)}" for folder, count in large.items()]
    return figures, behind


def main() -> None:
    """Print the figures of the trees side by side, then what lies behind those of the last tree."""
    trees = [Path(one).resolve() for one in sys.argv[1:]] or [HERE]
    results = [measured(tree) for tree in trees]
    for title in results[0][0]:
        print(f"{title:34}", *(f"{figures[title]:>8,}" for figures, _ in results))
    print(*results[-1][1], sep="\n")


if __name__ == "__main__":
    main()
