"""What imports what: no circles, no abstract base classes, the network in one room, the contracts between rooms."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent
NETWORK = {"socket", "ssl", "http", "urllib.request", "httpx2", "anthropic", "openai", "asyncio", "ftplib", "smtplib"}
"""What reaches other machines, of the standard library and of what is installed with orch23."""
PAIR = "orch23.execute.report_channel"


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((ROOT / "orch23").rglob("*.py"))
    }


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return each name that a module imports, also inside of functions; `from a import b` is `a.b`."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in known.items():
        for one in imported(path):
            target = one if one in known else one.rpartition(".")[0]
            if target in known:
                graph.add_edge(name, target)
    assert graph.number_of_edges() > 500
    assert list(nx.simple_cycles(graph)) == []


def test_there_are_no_abstract_base_classes() -> None:
    assert [name for name, path in modules().items() if any(one.split(".")[0] == "abc" for one in imported(path))] == []


def test_only_providers_can_reach_the_network() -> None:
    known = modules()
    reaching = {
        name
        for name, path in known.items()
        for one in imported(path)
        if {one, one.split(".")[0], one.rpartition(".")[0]} & NETWORK
    }
    beyond = {name for name in reaching if not name.startswith("orch23.providers.")}
    assert {name: _used_of_sockets(known[name]) for name in beyond} == {
        PAIR: {"socketpair", "SHUT_RD"},  # a pair for a child
        "orch23.execute.sandbox.bubblewrap": {"socketpair"},  # to tell the command to begin
        "orch23.execute.sandbox.self_test": {"create_server"},  # a listener that no step may reach
        "orch23.execute.sandbox.confinement": {"socket", "AF_INET", "SOCK_DGRAM"},  # to switch a loopback on
        "orch23.execute.supervisor": {"socketpair"},  # to tell the supervisor what to start
        "orch23.execute.supervisor_child": {"socket", "send_fds", "CMSG_SPACE", "MSG_CMSG_CLOEXEC"},  # its other end
    }, "none of them connects to anybody"


def _used_of_sockets(path: Path) -> set[str]:
    """Return the names of the module `socket` that a module uses."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "socket"
    }


@pytest.mark.slow
def test_the_contracts_between_rooms_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
