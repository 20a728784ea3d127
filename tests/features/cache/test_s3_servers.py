"""A shared cache in a bucket of rclone and of s3rver, two further servers with the interface of S3."""

import contextlib
from collections.abc import Iterator

import pytest
from obstore.store import S3Store

from orch23.features.cache.object_store import ObjectStoreCache
from orch23.features.cache.registry import open_shared_cache
from orch23.model.errors import CacheFault
from tests.cache_conformance import CacheConformance, Served, put
from tests.s3_servers import BUCKET, S3Server, creates_only, running_rclone, running_s3rver

pytestmark = pytest.mark.slow


class OtherServer(CacheConformance):
    """The promises, and whether the server keeps what is there by itself."""

    enforces_create_only: bool

    @pytest.fixture
    def server(self) -> S3Server:
        raise NotImplementedError

    @pytest.fixture
    def url(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
        return f"s3://{BUCKET}/some/where?endpoint={server.endpoint}&region=us-east-1"

    @pytest.fixture
    def bucket(self, server: S3Server) -> S3Store:
        return S3Store(
            BUCKET,
            prefix="some/where",
            endpoint=server.endpoint,
            region="us-east-1",
            access_key_id=server.key,
            secret_access_key=server.secret,
            client_options={"allow_http": True},
        )

    @pytest.fixture
    def served(self, url: str, bucket: S3Store) -> Iterator[Served]:
        yield Served(
            url,
            lambda digest, data: _put(bucket, f"cas/{digest.sha256}", data),
            lambda digest: bucket.delete(f"cas/{digest.sha256}"),
        )
        for group in bucket.list():
            bucket.delete([one["path"] for one in group])

    def test_whether_it_creates_only_is_found_out(self, cache: ObjectStoreCache, bucket: S3Store) -> None:
        assert creates_only(bucket) is self.enforces_create_only
        for _ in range(2):
            assert cache._can_create_only() is self.enforces_create_only


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="module")
def s3rver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3rver(tmp_path_factory.mktemp("s3rver")) as server:
        yield server


class TestRclone(OtherServer):
    """`rclone serve s3`."""

    enforces_create_only = False

    @pytest.fixture
    def server(self, rclone: S3Server) -> S3Server:
        return rclone

    def test_a_wrong_secret_is_a_lasting_fault(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with contextlib.closing(open_shared_cache(url)) as cache, pytest.raises(CacheFault) as raised:
            put(cache, b"some bytes")
        assert not raised.value.transient


class TestS3rver(OtherServer):
    """s3rver."""

    enforces_create_only = False

    @pytest.fixture
    def server(self, s3rver: S3Server) -> S3Server:
        return s3rver


def _put(bucket: S3Store, path: str, data: bytes) -> None:
    bucket.put(path, data)
