"""A Struct is a frozen value, unless it holds state: then something changes it, and nothing decodes it."""

import ast
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHANGING = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"}
    | {"setdefault", "sort", "update"}
)
OF_THE_WIRE = frozenset({"array_like", "forbid_unknown_fields", "omit_defaults", "rename", "tag", "tag_field"})
"""Options of a Struct that is stored or sent."""

CHANGED_ELSEWHERE = {
    "orch23/attempt/attempt.py": ("Calls",),  # the step of a model notes what it has spent
    "orch23/features/batches/submission.py": (
        "BatchLimiter",
        "BatchSubmission",
    ),  # counts of the batch calls
}


@cache
def modules() -> Mapping[str, ast.Module]:
    paths = (path for folder in ("orch23", "orch23_checks") for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths)}


@cache
def structs() -> tuple[tuple[str, ast.Module, ast.ClassDef], ...]:
    """Return each class that is a Struct, by itself or by a class that it is derived from."""
    classes = {
        (path.removesuffix(".py").replace("/", "."), node.name): (path, tree, node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {("msgspec", "Struct")}
    while True:
        found = {
            (module, name)
            for (module, name), (_, tree, node) in classes.items()
            if any(imported(tree, module, ast.unparse(base)) in known for base in node.bases)
        }
        if found <= known:
            return tuple(classes[one] for one in sorted(found))
        known |= found


def imported(tree: ast.Module, here: str, name: str) -> tuple[str, str]:
    """Return the module and the name of a class that a module calls `name`."""
    module, _, attribute = name.rpartition(".")
    if module:
        return module, attribute
    found = (
        (node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (alias.asname or alias.name) == name
    )
    return next(found, (here, name))


def options(node: ast.ClassDef) -> Mapping[str, str]:
    return {one.arg: ast.unparse(one.value) for one in node.keywords if one.arg is not None}


def fields(node: ast.ClassDef) -> frozenset[str]:
    annotated = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
    return frozenset(target.id for target in annotated if isinstance(target, ast.Name))


def is_frozen(path: str, node: ast.ClassDef) -> bool:
    """Return whether a class says so, or has it from its metaclass, as the documents of the language."""
    if options(node).get("frozen") == "True":
        return True
    found = getattr(import_module(path.removesuffix(".py").replace("/", ".")), node.name, None)
    return found is not None and bool(found.__struct_config__.frozen)


@cache
def changed(tree: ast.AST) -> frozenset[tuple[str, str]]:
    """Return (variable, field) of each change: an assignment, a deletion, or a call that changes a container."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=several) | ast.Delete(targets=several):
                targets = several
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGING:
                targets = [value]
            case _:
                pass
        for whole in targets:
            parts = whole.elts if isinstance(whole, ast.Tuple | ast.List) else [whole]
            found |= set(filter(None, map(variable_and_field, parts)))
    return frozenset(found)


def variable_and_field(node: ast.expr) -> tuple[str, str] | None:
    """Return `x` and `a` of `x.a`, of `x.a[...]` and of `x.a.b`."""
    if isinstance(node, ast.Subscript):
        return variable_and_field(node.value)
    if not isinstance(node, ast.Attribute):
        return None
    return (node.value.id, node.attr) if isinstance(node.value, ast.Name) else variable_and_field(node.value)


@cache
def decoded(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module gives to what decodes: `decode(value, X)`, `convert(value, X)`, `type=X`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    reading = [one for one in calls if ast.unparse(one.func).rpartition(".")[2] in ("decode", "convert", "Decoder")]
    given = [part for one in reading for part in (*one.args, *(word.value for word in one.keywords))]
    return frozenset(name.id for part in given for name in ast.walk(part) if isinstance(name, ast.Name))


@pytest.mark.slow
def test_a_struct_is_frozen_unless_it_holds_state() -> None:
    wrong = []
    assert len(structs()) > 300, "the walk finds them"
    for path, tree, node in structs():
        if is_frozen(path, node) or node.name in CHANGED_ELSEWHERE.get(path, ()):
            continue
        mine = {field for variable, field in changed(node) if variable == "self"}
        by_others = {field for variable, field in changed(tree) if variable != "self"}
        if fields(node).isdisjoint(mine | by_others):
            wrong.append(f"{path}:{node.lineno} {node.name}")
    assert wrong == [], "nothing changes them: make them frozen"


@pytest.mark.slow
def test_what_is_decoded_stored_or_sent_is_frozen() -> None:
    wrong = []
    for path, tree, node in structs():
        is_of_wire = node.name in decoded(tree) or not OF_THE_WIRE.isdisjoint(options(node))
        if is_of_wire and options(node).get("frozen") != "True":
            wrong.append(f"{path}:{node.lineno} {node.name}")
    assert wrong == [], "no state is decoded, stored or sent"


def test_the_rules_find_what_they_are_about() -> None:
    tree = ast.parse(
        """
class Value(Struct): a: int
class State(Struct):
    b: list
    def take(self): self.b[0].c.append(1)
def other(x): x.d += 1; del x.e[0]; x.f.update({}); (x.g, y) = 1, 2; x.h(); z = x.i
convert(parse(data), Value | None); decode(data, type=tuple[Other, ...]); load(data, State)
"""
    )
    assert changed(tree) == {("self", "b"), *(("x", one) for one in "defg")}
    assert {"Value", "Other"} <= decoded(tree)
    assert "State" not in decoded(tree)
