"""npm and go with caches of the project, filled from a server on this machine."""

import base64
import functools
import gzip
import hashlib
import http.server
import io
import json
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.pipelines import ends, green, shell
from tests.features.tool_caches.test_tool_caches import machine
from tests.project import Project

pytestmark = pytest.mark.slow
TIERS = ("namespaces", "landlock")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the files of a folder on the loopback, and yield the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def needs(program: str) -> None:
    if shutil.which(program, path="/usr/bin:/usr/local/bin:/bin") is None:
        pytest.skip(f"{program} is not installed where steps look")


def npm_package(folder: Path, address: str) -> None:
    files = {"package.json": '{"name": "pad", "version": "1.0.0"}', "index.js": "module.exports = 'good'\n"}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    packed = gzip.compress(data.getvalue(), mtime=0)
    (folder / "pad.tgz").write_bytes(packed)
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(packed).digest()).decode()}"
    dist = {"tarball": f"{address}/pad.tgz", "integrity": integrity}
    versions = {"1.0.0": {"name": "pad", "version": "1.0.0", "dist": dist}}
    (folder / "pad").write_text(json.dumps({"name": "pad", "dist-tags": {"latest": "1.0.0"}, "versions": versions}))


def go_module(folder: Path) -> None:
    place = folder / "example.org/pad/@v"
    place.mkdir(parents=True)
    (place / "list").write_text("v1.0.0\n")
    (place / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (place / "v1.0.0.mod").write_text("module example.org/pad\n")
    with zipfile.ZipFile(place / "v1.0.0.zip", "w") as archive:
        archive.writestr("example.org/pad@v1.0.0/go.mod", "module example.org/pad\n")
        archive.writestr("example.org/pad@v1.0.0/pad.go", 'package pad\n\nfunc Text() string { return "good" }\n')


def story(fetch: str, use: str, env: Mapping[str, str], cache: str) -> str:
    """Return a stage that fills a cache, and one without the network that uses it and verifies the result by it."""
    inputs, output = {"npm": ("package.json", "package-lock.json"), "go": ("go.mod, main.go", "go.sum")}[cache]
    copied = f"{inputs} {output}".replace(",", "")
    verify = f"mkdir $TMPDIR/own && cp {copied} $TMPDIR/own && cd $TMPDIR/own && {use} && grep good used.txt"
    return f"""\
  fetch:
    inputs: [{inputs}]
    outputs: [{output}]
    network: true
    cache: true
    tool_caches: [{cache}]
    env: {json.dumps(env)}
    scratch: [node_modules]
    shell: {json.dumps(fetch)}
  use:
    inputs: [{inputs}, {output}]
    outputs: [used.txt]
    tool_caches: [{cache}]
    scratch: [node_modules/, node_modules]
    shell: {json.dumps(use)}
    verify: [{{shell: {json.dumps(verify)}}}]
"""


@pytest.mark.parametrize("tier", TIERS)
def test_npm_installs_without_the_network_what_another_stage_fetched(
    project: Project, tmp_path: Path, tier: str
) -> None:
    needs("npm")
    (tmp_path / "served").mkdir()
    use = "npm ci >&2 && node -p \"require('pad')\" > used.txt"
    with serving(tmp_path / "served") as address:
        npm_package(tmp_path / "served", address)
        stages = story("npm install", use, {"npm_config_registry": address}, "npm")
        package = '{"name": "app", "dependencies": {"pad": "1.0.0"}}'
        project.write(shell(stages, {"package.json": package}))
        with machine(tier):
            green(project.build())
    assert project.read("used.txt") == "good\n"
    assert (project.root / ".orch23/tool-caches/npm/_cacache").is_dir()
    assert not (project.home / ".npm").exists()
    with machine(tier):
        green(project.build("--force", "use"))
    assert ends(project) == {"fetch": "fresh", "use": "built"}


@pytest.mark.parametrize("tier", TIERS)
def test_go_builds_without_the_network_what_another_stage_fetched(project: Project, tmp_path: Path, tier: str) -> None:
    needs("go")
    go_module(tmp_path / "served")
    main = 'package main\n\nimport "example.org/pad"\n\nfunc main() { print(pad.Text(), "\\n") }\n'
    use = "go run . 2> used.txt"
    with serving(tmp_path / "served") as address:
        env = {"GOPROXY": address, "GOSUMDB": "off"}
        stages = story("go mod download example.org/pad && go mod tidy", use, env, "go")
        mod = "module app\n\ngo 1.19\n\nrequire example.org/pad v1.0.0\n"
        project.write(shell(stages, {"go.mod": mod, "main.go": main}))
        with machine(tier):
            green(project.build())
    assert project.read("used.txt") == "good\n"
    assert (project.root / ".orch23/tool-caches/go/mod/example.org/pad@v1.0.0").is_dir()
    assert not (project.home / "go").exists()
    green(project.run("clean", "fetch"))
    assert not project.exists(".orch23/tool-caches/go"), "its folders are read-only"
