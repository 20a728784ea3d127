"""What imports what: no circles, no abstract base classes, the network in one room, the contracts between rooms."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent
LIBRARIES = {
    "attrs",
    "backports",  # zstd
    "click",
    "compression",  # of Python 3.14
    "copier",
    "cryptography",
    "jinja2",
    "jsonschema",
    "jsonschema_specifications",
    "msgspec",
    "networkx",
    "packaging",
    "pathspec",
    "plumbum",
    "pytest",
    "re2",
    "referencing",
    "yaml",
    "_sha2",
}
"""What may be imported outside of the standard library, and of `_sha2`, which is there since Python 3.12.

Any other library counts as one that reaches other machines. Of the standard library do those that load sockets.
"""
METADATA = "importlib.metadata"
"""Loads sockets since it reads files by `email`, which can ask for the name of this machine."""
LOADS_SOCKETS = """
import importlib, os, sys

def load(name):
    try:
        importlib.import_module(name)
    except ImportError:
        importlib.import_module(name.rpartition(".")[0])

for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            load(name)
        except ImportError:  # of another version of Python, or of another system
            os._exit(2)
        os._exit("_socket" in sys.modules)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
PAIR = "orch23.execute.pytest_report"


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in ("orch23", "orch23_checks")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return each name that a module imports, also inside of functions; `from a import b` is `a.b`.

    Of a name that is put together when the program runs, the text or the expression that it begins with.
    """
    return tuple(_imported(path.read_text(), str(path)))


def _imported(source: str, where: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield ast.unparse(node.args[0]).strip("f'")


@pytest.mark.slow
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


def test_each_exception_to_a_lint_rule_has_its_reason_on_the_line() -> None:
    # The bytes of the plugin for pytest are a part of actions, so they stay.
    paths = [path for path in modules().values() if path.parent.name != "pytest_plugin"]
    lines = [line for path in paths for line in path.read_text().splitlines() if "# noqa" in line]
    assert [line for line in lines if not re.search(r"# noqa: [A-Z0-9, ]+ - \S", line)] == []


def test_no_module_imports_dataclasses() -> None:
    assert [
        name for name, path in modules().items() if any(one.split(".")[0] == "dataclasses" for one in imported(path))
    ] == []


def network_names(names: Iterable[str]) -> set[str]:
    """Return which of some imported names reach other machines, or may do so for all that is known of them."""
    names = {
        name
        for name in names
        if name.split(".")[0] not in ("orch23", "orch23_checks") and not f"{name}.".startswith(f"{METADATA}.")
    }
    standard = sorted(name for name in names if name.split(".")[0] in sys.stdlib_module_names - LIBRARIES)
    reported = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOADS_SOCKETS, *standard], capture_output=True, text=True, check=True
    ).stdout.split()
    codes = dict(zip(reported[::2], reported[1::2], strict=True))
    assert list(codes) == standard
    unknown = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names | LIBRARIES}
    return unknown | {name for name, code in codes.items() if code == "1"}


@pytest.mark.slow
def test_only_providers_can_reach_the_network() -> None:
    of_vendors = ("orch23.providers.", "orch23.features.vendors.", "orch23.features.local.")
    known = {name: path for name, path in modules().items() if not name.startswith(of_vendors)}
    network = network_names(one for path in known.values() for one in imported(path))
    beyond = {name for name, path in known.items() if network.intersection(imported(path))}
    expected = {
        "orch23.features.cache.http_cache": set(),  # to the shared cache that the user names
        "orch23.features.cache.grpc_cache": set(),  # likewise, by a library
        "orch23.features.cache.grpc_calls": set(),  # likewise
        "orch23.features.cache.object_store": set(),  # likewise, by a library for all vendors
        "orch23.features.cache.registry": set(),  # it loads the backend of a URL
        "orch23.features.explore.outlines": set(),  # it loads the grammar of a suffix, from a table
        "orch23.features.cache.client_certificate": set(),  # a key is compared with its certificate
        "orch23.features.remote.dask_engine": set(),  # to the scheduler that the user names
        "orch23.features.remote.dask_scheduler": set(),  # certificates
        "orch23.features.remote.dask_submission": set(),  # exceptions of its library
        "orch23.features.remote.dask_worker": set(),  # on a worker
        "orch23.features.otel.build_spans": set(),  # it makes spans
        "orch23.features.otel.span_export": set(),  # the library sends them, if the user asks for it by an option
        "orch23.features.pages.view.server": set(),  # it answers the browser of `orch23 view`, and asks nothing
        "orch23.features.templates.loopback_servers": set(),  # `init` asks the model servers of this machine
        "orch23.features.watch.watched_files": set(),  # watchfiles, whose package has an interface for asyncio
        "orch23.entry": set(),  # it loads libraries without some of their modules
        "orch23.model.plugins": set(),  # it loads what a registry, a class of orch23 or a plugin names
        PAIR: {"socketpair", "SHUT_RD"},  # a pair for a child
        # it looks at what is on its way to a socket that a step has open
        "orch23.execute.resource_limits": {
            *("socket", "SOL_SOCKET", "SCM_RIGHTS"),
            *("MSG_PEEK", "MSG_DONTWAIT", "MSG_CMSG_CLOEXEC"),
        },
        "orch23.execute.sandbox.bubblewrap": {"socketpair"},  # to tell the command to begin
        "orch23.execute.sandbox.tier_selection": {"create_server"},  # a listener that no step may reach
        "orch23.execute.supervisor": {"socketpair"},  # to tell the supervisor what to start
        "orch23.execute.supervisor_child": set(),  # it takes orders from its parent by one, and raises a loopback
        "orch23.report.frame": set(),  # rich, for the widths of characters
        # to the servers that a pipeline names and the user allows
        "orch23.features.fetch.connections": {"socket", "getaddrinfo", "create_connection", "SOCK_STREAM"},
        "orch23.features.fetch.download": set(),  # it reads what the servers send over these connections
    }
    there = {name: used for name, used in expected.items() if not name.startswith("orch23.features.") or name in known}
    assert {name: _used_of_sockets(known[name]) for name in beyond} == there, "none of the others connects to anybody"


@pytest.mark.parametrize(
    ("source", "reaches"),
    [
        *((f"import {name}", True) for name in ("httpx", "httpx2", "requests", "urllib3", "aiohttp", "anthropic")),
        *((f"import {name}", True) for name in ("socket", "_socket", "ssl", "asyncio", "ftplib", "xmlrpc.client")),
        ("from requests import get", True),
        ("from urllib import request", True),
        ("from urllib.request import urlopen", True),
        ("from http import client as plain", True),
        ("def f():\n    import smtplib", True),
        ("from importlib import import_module\nimport_module('ht' + 'tp')", True),
        ("import importlib\nimportlib.import_module('http.client')", True),
        ("__import__(name)", True),
        ("from importlib import import_module\nimport_module(f'orch23.cli.{name}')", False),
        ("from importlib import metadata", False),
        ("from urllib.parse import unquote", False),
        ("import json, os.path", False),
        ("from os import path", False),
        ("import jinja2.sandbox", False),
        ("from orch23.providers import calls", False),
    ],
)
def test_what_reaches_the_network_is_known_by_what_it_loads(source: str, reaches: object) -> None:
    assert bool(network_names(_imported(source, "here"))) is reaches


def _used_of_sockets(path: Path) -> set[str]:
    """Return the names of the module `socket` that a module uses."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "socket"
    }


@pytest.mark.slow
def test_the_contracts_between_sandbox_dirs_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
