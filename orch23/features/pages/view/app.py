"""The web application of `orch23 view`: one page and one stream of events, for a reader who has the address."""

import hmac
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

_INTERVAL_S = 0.3
_SILENCE = 50  # intervals after which a comment shows that the connection is alive
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LivePage(Protocol):
    """A page that changes. Safe for calls from several threads."""

    def poll(self) -> int:
        """Return a number that is higher when the page has changed."""

    def render(self) -> tuple[str, str]:
        """Return the page as HTML, and its content security policy."""


def view_app(page: LivePage, token: str, port: int, is_ending: Callable[[], bool]) -> ASGIApp:
    """Return the application. Only its own address on loopback, with the token, is answered, and only GET and HEAD."""

    def show(request: Request) -> Response:
        del request
        html, policy = page.render()
        return HTMLResponse(html, headers={**_HEADERS, "Content-Security-Policy": f"{policy}; frame-ancestors 'none'"})

    async def follow(request: Request) -> Response:
        del request
        return StreamingResponse(_changes(page, is_ending), media_type="text/event-stream", headers=_HEADERS)

    routes = [Route(f"/{token}/", show), Route(f"/{token}/events", follow)]
    return AddressGuard(Starlette(routes=routes), token, port)


async def _changes(page: LivePage, is_ending: Callable[[], bool]) -> AsyncIterator[str]:
    shown, silent = -1, 0
    while not is_ending():
        version = await to_thread.run_sync(page.poll)
        if version != shown:
            yield f"data: {version}\n\n"
            shown, silent = version, 0
        elif silent == _SILENCE:
            yield ":\n\n"
            silent = 0
        silent += 1
        await anyio.sleep(_INTERVAL_S)


class AddressGuard:
    """Refuses requests that a page of another site could make a browser send, and those without the token.

    A page of another site can have its own name resolved to 127.0.0.1: then the header `Host` has that name.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        """Guard an application at a port."""
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse(refused[1], refused[0], _HEADERS)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 421, "this server does not have that name\n"
        origins = [value.lower() for name, value in headers if name == b"origin"]
        if any(origin != b"http://" + hosts[0] for origin in origins):
            return 403, "a page of another origin may not ask\n"
        first = scope["path"].split("/")[1:2]
        if not hmac.compare_digest(self._token, first[0].encode("utf-8", "replace") if first else b""):
            return 404, "there is nothing here: use the whole address that `orch23 view` wrote\n"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "only GET and HEAD\n"
        return None
