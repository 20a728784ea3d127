"""A shared cache in a bucket, with a server on loopback that has the interface of S3."""

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from urllib.request import Request, urlopen

import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import ObjectStore, S3Store

from orch23.features.cache import batches
from orch23.features.cache.bounds import MAX_ENTRY_BYTES, UNASKED_BYTES, BlobFault
from orch23.features.cache.client import CacheClient
from orch23.features.cache.object_store import ObjectStoreCache
from orch23.features.cache.registry import open_shared_cache
from orch23.model.digest import digest_bytes
from orch23.model.errors import CacheFault, ConfigurationError
from tests.cache_conformance import ACTION, CacheConformance, Served, put, read
from tests.s3_servers import creates_only

pytestmark = pytest.mark.slow

DATA = b"some bytes"
DIGEST = digest_bytes(DATA)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logger = logging.getLogger("werkzeug")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
    logger.setLevel(level)


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a cache in an empty bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    urlopen(Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    urlopen(Request(f"{endpoint}/bucket", method="PUT")).close()
    return f"s3://bucket/some/where?endpoint={endpoint}&region=us-east-1"


@pytest.fixture
def bucket(url: str, endpoint: str) -> ObjectStore:
    return S3Store(
        "bucket", prefix="some/where", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}
    )


def test_a_fault_says_how_an_endpoint_may_have_http(url: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with contextlib.closing(open_shared_cache(url.partition("?")[0])) as cache, pytest.raises(CacheFault) as raised:
        cache.entry(ACTION)
    assert "`?endpoint=http://...` in the address" in raised.value.message
    assert not raised.value.transient


class TestBucket(CacheConformance):
    """A bucket of S3."""

    is_in_this_process = True

    @pytest.fixture
    def served(self, url: str, bucket: ObjectStore) -> Served:
        return Served(
            url,
            lambda digest, data: _put(bucket, f"cas/{digest.sha256}", data),
            lambda digest: bucket.delete(f"cas/{digest.sha256}"),
        )


def _put(bucket: ObjectStore, path: str, data: bytes) -> None:
    bucket.put(path, data)


@pytest.fixture
def cache(url: str) -> Iterator[ObjectStoreCache]:
    with contextlib.closing(open_shared_cache(url)) as cache:
        assert isinstance(cache, ObjectStoreCache)
        yield cache


def test_objects_are_below_the_path_of_the_url(cache: ObjectStoreCache, bucket: ObjectStore) -> None:
    put(cache, DATA)
    cache.put_entry(ACTION, b"entry")
    paths = {one["path"] for group in bucket.list() for one in group}
    assert paths == {f"cas/{DIGEST.sha256}", f"ac/{ACTION.sha256}", ".create-only"}


class Lenient:
    """A store that accepts the condition of a create, and ignores it."""

    def __init__(self, bucket: ObjectStore, error: Exception | None = None) -> None:
        self.get = bucket.get
        self.bucket, self.error = bucket, error
        self.modes: list[str | None] = []
        self.heads: list[str] = []

    def head(self, path: str) -> object:
        self.heads.append(path)
        return self.bucket.head(path)

    def put(self, path: str, data: bytes, *, mode: str | None = None, **_more: object) -> None:
        self.modes.append(mode)
        if mode == "create" and self.error is not None:
            raise self.error
        self.bucket.put(path, data)


@pytest.mark.parametrize("error", [None, obstore.exceptions.NotSupportedError("no"), NotImplementedError()])
def test_a_store_that_cannot_create_only_is_noticed_once(bucket: ObjectStore, error: Exception | None) -> None:
    lenient = Lenient(bucket, error)
    cache = ObjectStoreCache(lenient)  # type: ignore[arg-type]  # a double of what it uses
    for _ in range(3):
        cache.put_entry(ACTION, b"first")
        cache.put_entry(ACTION, b"second")
    assert cache.entry(ACTION) == b"first"
    assert lenient.modes == ["create"] * (1 if error else 2) + [None]


def test_what_was_missing_a_moment_ago_or_is_small_is_stored_unasked(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "RECENT_S", 1e9)
    lenient = Lenient(bucket)
    cache = ObjectStoreCache(lenient)  # type: ignore[arg-type]  # a double of what it uses
    assert cache.entry(ACTION) is None
    cache.put_entry(ACTION, b"first")
    assert lenient.heads == []
    cache.put_entry(ACTION, b"second")
    assert lenient.heads == [f"ac/{ACTION.sha256}"]
    assert cache.entry(ACTION) == b"first"
    small, large = bytes(UNASKED_BYTES), bytes(UNASKED_BYTES + 1)
    sources = {digest_bytes(one): partial(tuple, [one]) for one in (small, large)}
    with contextlib.closing(CacheClient(cache, pytest.fail)) as client:
        client.upload(DIGEST, b"entry", sources)
        assert client.flush(30) == ()
    assert lenient.heads[1:] == [f"cas/{digest_bytes(large).sha256}", f"ac/{DIGEST.sha256}"]
    assert [read(cache, digest) for digest in sources] == [small, large]


def test_moto_creates_only(cache: ObjectStoreCache, bucket: ObjectStore) -> None:
    assert creates_only(bucket)
    assert cache._can_create_only()


def test_an_entry_that_is_too_large_is_a_fault_of_it(cache: ObjectStoreCache, bucket: ObjectStore) -> None:
    _put(bucket, f"ac/{ACTION.sha256}", bytes(MAX_ENTRY_BYTES + 1))
    with pytest.raises(BlobFault, match="16 MiB"):
        cache.entry(ACTION)


def test_a_bucket_that_does_not_exist_is_a_fault_of_uploads(url: str) -> None:
    cache = open_shared_cache(url.replace("bucket", "nowhere"))
    assert cache.entry(ACTION) is None
    with pytest.raises(CacheFault) as raised:
        put(cache, DATA)
    assert not raised.value.transient


def test_an_unreachable_server_is_a_transient_fault(url: str) -> None:
    cache = open_shared_cache("s3://bucket?endpoint=http://127.0.0.1:1&region=us-east-1")
    for call in (lambda: cache.entry(ACTION), lambda: read(cache, DIGEST), lambda: cache.missing([DIGEST])):
        with pytest.raises(CacheFault) as raised:
            call()
        assert raised.value.transient
        assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://bucket?secret_access_key=x", "has the unknown option `secret_access_key`"),
        ("gs://b?endpoint=x", "option"),
    ],
)
def test_options_of_a_url_are_checked(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as raised:
        open_shared_cache(url)
    assert "=x" not in str(raised.value)


def test_buckets_of_other_vendors_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert isinstance(open_shared_cache("az://container/path"), ObjectStoreCache)
