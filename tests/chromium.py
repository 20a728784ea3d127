"""Chromium without a window, driven through its DevTools protocol: two pipes, one JSON message between zero bytes."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no chromium: install the package of that name")
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions --mute-audio"
)
_WAIT_S = 40.0
_START = 'exec "$@" 3<&"$0" 4>&"$OUT"'
# Messages of the browser that are of interest, by what they show.
_WATCHED = {
    "Network.requestWillBeSent": lambda data: f"request {data['request']['url']}",
    "Runtime.exceptionThrown": lambda data: f"exception {data['exceptionDetails']['text']}",
    "Runtime.consoleAPICalled": lambda data: f"console {data['type']}: {data['args']}",
    "Log.entryAdded": lambda data: f"log {data['entry']['level']}: {data['entry']['text']}",
    "Page.javascriptDialogOpening": lambda data: f"dialog {data['message']}",
}


class Browser:
    """A running browser. One thread uses it."""

    def __init__(self, home: Path) -> None:
        assert PROGRAM is not None
        to_read, to_write = os.pipe()
        answers, to_answer = os.pipe()
        argv = [PROGRAM, *_FLAGS.split(), "--remote-debugging-pipe", f"--user-data-dir={home}", "about:blank"]
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "OUT": str(to_answer), "LANG": "C.UTF-8"}
        self._process = subprocess.Popen(
            ["bash", "-c", _START, str(to_read), *argv],
            env=env,
            pass_fds=(to_read, to_answer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_answer)
        self._write, self._read = to_write, answers
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End the browser with all of its processes."""
        with suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        until = time.monotonic() + _WAIT_S
        while True:
            found = self._message(until)
            if found.get("id") == number:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result

    def wait_for(self, method: str, session: str) -> None:
        """Wait until an event has come since it was last forgotten."""
        until = time.monotonic() + _WAIT_S
        while not any(one["method"] == method and one.get("sessionId") == session for one in self.events):
            self._message(until)

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "chromium does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "chromium has ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        if "method" in found:
            self.events.append(found)
        return found

    @contextmanager
    def page(self, url: str, *, width: int = 1280, scheme: str = "light", media: str = "") -> Iterator["Page"]:
        """Open a page in a window of its own."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Network", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        page.show(scheme=scheme, media=media)
        self.events.clear()
        page.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired", session)
        try:
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)


class Page:
    """A page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return self._browser.call(method, self._session, **params)

    def show(self, *, scheme: str, media: str = "") -> None:
        """Show the page in a color scheme, and on paper for the medium `print`."""
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def run(self, script: str) -> Any:
        """Return the value of an expression. The debugger may run it, whatever the policy of the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Click at the center of an element, with the mouse."""
        place = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " one.scrollIntoView({block: 'center', inline: 'center'}); const at = one.getBoundingClientRect();"
            " return [at.x + at.width / 2, at.y + at.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def happened(self) -> list[str]:
        """Return the requests, messages, errors and dialogs of the page so far."""
        self.run("new Promise(done => setTimeout(done, 50))")
        own = (one for one in self._browser.events if one.get("sessionId") == self._session)
        return [_WATCHED[one["method"]](one["params"]) for one in own if one["method"] in _WATCHED]

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


@contextmanager
def running_chromium(home: Path) -> Iterator[Browser]:
    """Start a browser, and end it."""
    browser = Browser(home)
    try:
        yield browser
    finally:
        browser.close()
