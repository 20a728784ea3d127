"""One TLS context a run: read when somebody beyond this machine is asked, and used by all calls."""

import ssl

import httpx2
import pytest

from orch23.providers.connections import TlsContexts


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """Count how often the certificates of the machine are read."""
    made: list[ssl.SSLContext] = []
    true = httpx2.create_ssl_context

    def counted() -> ssl.SSLContext:
        made.append(true())
        return made[-1]

    monkeypatch.setattr(httpx2, "create_ssl_context", counted)
    return made


def test_the_certificates_are_read_once_for_all_servers(reads) -> None:
    trust = TlsContexts()
    found = {
        id(trust.context_for(url))
        for url in ("https://api.example.com", "https://other.example.com", "http://proxied.com")
    }
    assert (len(found), len(reads)) == (1, 1)
    assert reads[0].verify_mode is ssl.CERT_REQUIRED
    assert reads[0].check_hostname


def test_plain_http_on_this_machine_reads_no_certificates_and_trusts_none(reads) -> None:
    alone = TlsContexts().context_for("http://127.0.0.1:8080/v1")
    assert reads == []
    assert alone.verify_mode is ssl.CERT_REQUIRED
    assert alone.get_ca_certs() == []


def test_tls_on_this_machine_is_held_to_what_the_machine_trusts(reads) -> None:
    trust = TlsContexts()
    assert trust.context_for("https://localhost:8443") is reads[0]


def test_a_closed_context_is_read_again(reads) -> None:
    trust = TlsContexts()
    trust.context_for("https://api.example.com")
    trust.close()
    trust.context_for("https://api.example.com")
    assert len(reads) == 2
