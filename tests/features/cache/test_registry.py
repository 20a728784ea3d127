"""How the URL of a shared cache is read, and what is refused."""

import re
import sys
from pathlib import Path

import pytest

from orch23.features.cache import registry
from orch23.features.cache.bounds import checked_sha256
from orch23.features.cache.disk import DiskCache
from orch23.features.cache.http_cache import HttpCache
from orch23.features.cache.registry import open_shared_cache
from orch23.model.errors import ConfigurationError
from orch23.model.server_url import shown_url
from tests.cache_conformance import ACTION


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "FILE://{}"])
def test_a_directory_is_a_path_or_a_file_url(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "a cache"
    cache = open_shared_cache(form.format(folder if form == "{}" else str(folder).replace(" ", "%20")))
    assert isinstance(cache, DiskCache)
    cache.put_entry(ACTION, b"entry")
    assert (folder / "ac" / ACTION.sha256[:2] / checked_sha256(ACTION)).read_bytes() == b"entry"


@pytest.mark.parametrize("url", ["http://cache:8080", "HTTPS://cache/base/", "http://[::1]:80/x", "https://n:p@cache"])
def test_a_server_is_opened_without_a_call(url: str) -> None:
    cache = open_shared_cache(url)
    assert isinstance(cache, HttpCache)
    cache.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://secret@host", "has to begin with one of"),
        ("http://", "has no host"),
        ("https://name:secret@", "has no host"),
        ("http://host:0", "has the port 0"),
        ("http://host:secret", "has a host or a port that cannot be read"),
        ("http://[secret", "has a host or a port that cannot be read"),
        ("http://host/secret path", "has a blank or a control character"),
        ("http://host/?secret=1", "has a query"),
        ("http://host/#secret", "has a fragment"),
        ("file://host/secret", "needs an absolute path"),
        ("file://secret", "needs an absolute path"),
        ("s3:///secret", "has no bucket"),
        ("s3://key:secret@bucket", "has a user name or a password"),
        ("http://name:secret@cache", "has http to another machine, where a password can be read"),
        ("grpc://name:secret@cache", "has grpc to another machine, where a password can be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_showing_it(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        open_shared_cache(url)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "E721"
    assert "secret" not in str(raised.value)


def test_credentials_go_to_no_other_machine_without_encryption() -> None:
    def credentials(_url: str) -> dict[str, str]:
        return {"Authorization": "Bearer secret"}

    with pytest.raises(ConfigurationError, match="where a password can be read"):
        open_shared_cache("http://cache:8080", credentials)
    for url in ("https://cache", "http://127.0.0.1:8080", "http://localhost"):
        open_shared_cache(url, credentials).close()


def test_a_missing_library_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigurationError, match="the shared cache needs the library `obstore`") as raised:
        open_shared_cache("s3://bucket")
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.hint is not None
    assert re.search(r"\binstall\b.*obstore", diagnostic.hint)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/mnt/a@b?", "/mnt/a@b?"),
        ("https://name:secret@host:8080/base", "https://host:8080/base"),
        ("s3://bucket/path?endpoint=https://n:secret@host/&region=x", "s3://bucket/path"),
        ("http://n:se@cret@host", "http://host"),
        ("s3://bucket?endpoint=x", "s3://bucket"),
    ],
)
def test_messages_show_no_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_each_scheme_names_a_function() -> None:
    for name, _library in registry._OPENERS.values():
        assert name.startswith("orch23.features.cache.")
