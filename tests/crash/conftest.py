"""The server of dying builds, one a worker."""

from collections.abc import Iterator

import pytest

from tests.crash.harness import Server, compile_shim


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Give a process with the shim preloaded; without a C compiler the tests that need it are skipped."""
    folder = tmp_path_factory.mktemp("crash")
    shim = compile_shim(folder)
    if shim is None:
        pytest.skip("there is no C compiler (cc)")
    served = Server(shim, folder)
    yield served
    served.close()
