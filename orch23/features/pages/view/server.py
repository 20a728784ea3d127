"""Serve the live page of a run on loopback."""

import secrets
from collections.abc import Callable

import uvicorn

from orch23.execute.loopback import LOOPBACK, loopback_listener
from orch23.features.pages.view.app import LivePage, view_app

_TOKEN_BYTES = 24


def serve_page(page: LivePage, port: int, ready: Callable[[str], None]) -> None:
    """Serve a page until the process is interrupted; call `ready` with its address once it can be opened.

    Port 0 is a free one.

    Raises:
        OSError: the port is in use.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with loopback_listener(port) as listener:
        number = listener.getsockname()[1]
        app = view_app(page, token, number, lambda: server.should_exit)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        ready(f"http://{LOOPBACK}:{number}/{token}/")
        server.run(sockets=[listener])
