"""Servers with grpcs: which certificates are trusted, and those that a server demands of its clients."""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from orch23.features.cache.client_certificate import CERTIFICATE_VARIABLE, KEY_VARIABLE
from orch23.features.cache.server_login import cache_opener
from orch23.model.digest import digest_bytes
from orch23.model.errors import CacheFault
from tests.authorities import Authority
from tests.features.remote.test_reapi_builds import one_stage
from tests.project import Outcome, Project
from tests.reapi_server import serving_reapi
from tests.reapi_workers import ORCH23, ExecutionServer

pytestmark = pytest.mark.slow
DATA = b"some bytes\n"


class Certificates:
    """The authority of a server and of its clients, with another one that no one should trust."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.others = Authority(folder, "ours"), Authority(folder, "others")
        self.server = self.ours.issue("server")
        self.elsewhere = self.ours.issue("elsewhere", host="other.lan")
        self.client, self.stranger = self.ours.issue("client"), self.others.issue("stranger")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def trusting(authority: Authority, own: tuple[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a client."""
    names = () if own is None else zip((CERTIFICATE_VARIABLE, KEY_VARIABLE), own, strict=True)
    return {"SSL_CERT_FILE": str(authority.certificate), **dict(names)}


@contextlib.contextmanager
def serving(
    folder: Path, certificates: Certificates, files: tuple[str, str] | None = None, *, demands: bool = False
) -> Iterator[tuple[ExecutionServer, str]]:
    """Run a server that runs actions; yield it with its URL."""
    certificate, key = (Path(one).read_bytes() for one in files or certificates.server)
    clients = certificates.ours.certificate.read_bytes() if demands else None
    credentials = grpc.ssl_server_credentials([(key, certificate)], clients, demands)
    with serving_reapi(credentials, made=ExecutionServer(folder), threads=40) as server:
        assert isinstance(server, ExecutionServer)
        yield server, f"grpcs://localhost:{server.port}/{server.instance}"


def build(project: Project, url: str, environ: Mapping[str, str]) -> Outcome:
    project.write(one_stage())
    return project.build("--executor", "reapi", "--scheduler", f"{url}?orch23={ORCH23}", env=environ)


def test_a_build_on_a_server_with_the_certificate_of_an_own_authority(
    project: Project, tmp_path: Path, certificates: Certificates
) -> None:
    with serving(tmp_path / "server", certificates) as (server, url):
        done = build(project, url, trusting(certificates.ours))
        assert done.code == 0, done.err
        assert len(server.runs) == 1
    assert (project.root / "a").read_text() == "a\n"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("another authority", "none of the authorities of this machine, or of SSL_CERT_FILE, signed it"),
        ("another host", "its certificate is for another host name"),
        ("no certificate", "it may demand a client certificate (ORCH23_TLS_CLIENT_CERTIFICATE)"),
        ("a stranger", "it may demand a client certificate (ORCH23_TLS_CLIENT_CERTIFICATE)"),
    ],
)
def test_a_wrong_certificate_is_named(
    project: Project, tmp_path: Path, certificates: Certificates, case: str, why: str
) -> None:
    files = certificates.elsewhere if case == "another host" else certificates.server
    demands = case in {"no certificate", "a stranger"}
    trusted = certificates.others if case == "another authority" else certificates.ours
    with serving(tmp_path / "server", certificates, files, demands=demands) as (server, url):
        own = certificates.stranger if case == "a stranger" else None
        done = build(project, url, trusting(trusted, own))
        assert (done.code, "E487" in done.err, why in done.err) == (78, True, True), done.err
        assert server.calls == []
    assert len(project.events_of("attempt_started")) == 1


def test_a_server_that_demands_a_certificate_gets_that_of_the_environment(
    project: Project, tmp_path: Path, certificates: Certificates
) -> None:
    environ = trusting(certificates.ours, certificates.client)
    with serving(tmp_path / "server", certificates, demands=True) as (server, url):
        done = build(project, url, environ)
        assert (done.code, len(server.runs)) == (0, 1), done.err


def test_a_cache_gets_the_certificate_too(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ours.certificate))
    digest = digest_bytes(DATA)
    with serving(tmp_path / "server", certificates, demands=True) as (server, url):
        server.blobs[digest.sha256] = DATA
        for own in (certificates.client, None):
            with contextlib.closing(cache_opener(tmp_path, trusting(certificates.ours, own))(url)) as cache:
                if own is None:
                    with pytest.raises(CacheFault, match="may demand a client certificate"):
                        cache.blob(digest)
                    continue
                blob = cache.blob(digest)
                assert blob is not None
                assert b"".join(blob) == DATA


@pytest.mark.parametrize(("ends", "code"), [("2021", "E488"), ("absent", "E722")])
def test_a_build_says_what_is_wrong_with_its_own_certificate(
    project: Project, certificates: Certificates, ends: str, code: str
) -> None:
    own = (
        certificates.ours.issue("old", ends=datetime(2021, 1, 1, tzinfo=UTC))
        if ends == "2021"
        else ("/absent.pem", "/absent.key")
    )
    done = build(project, "grpcs://localhost:1/main", trusting(certificates.ours, own))
    assert (done.code, code in done.err, own[0] in done.err) == (78, True, True), done.err
