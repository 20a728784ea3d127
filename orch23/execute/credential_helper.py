"""Get the credentials of a server from a program that the user names, by the protocol of Bazel's credential helpers.

The program is called with the argument `get`. It reads `{"uri": ...}` and prints `{"headers": {NAME: [VALUE, ...]},
"expires": TIME}`. Its output is never shown, logged or stored, not even if it is wrong.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock
from typing import Final, NoReturn
from uuid import uuid4

from msgspec import Struct, ValidationError, convert, field

from orch23.execute.interpreters import find_program, is_program
from orch23.execute.process import OutputLimits, ProcessOutcome, open_in_memory, run_process
from orch23.execute.process_tree import MARKER_VARIABLE
from orch23.execute.supervisor import ProcessSpec
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import canonical_json
from orch23.model.errors import ConfigurationError
from orch23.model.parsing import parse_json
from orch23.model.server_url import url_fault, url_origin
from orch23.model.shared_cache import HELPER_VARIABLE

TIMEOUT_S: Final = 10.0
_LIFETIME: Final = timedelta(minutes=30)
"""How long credentials without `expires` are used."""
_MARGIN: Final = timedelta(seconds=10)
"""So long before their end credentials are renewed: a request takes time."""
_MAX_BYTES: Final = 65_536
# The head is never full before the process is killed, so that nothing is written to the log.
_OUTPUT: Final = OutputLimits(head_bytes=1 << 20, tail_bytes=1 << 20, log_bytes=_MAX_BYTES)
_STOPPED: Final = {
    "timed_out": "took too long",
    "cancelled": "was stopped, since the build ended",
    "flooded": f"printed more than {_MAX_BYTES} bytes",
}
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?|")
# They describe the connection or the body of a request, and not who sends it.
_NOT_CREDENTIALS: Final = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "range")
)


class _Reply(Struct, frozen=True):
    """What a helper prints; it may have more keys."""

    headers: dict[str, tuple[str, ...]] = {}
    expires: str | None = None


class Credentials(Struct, frozen=True):
    """Headers that authenticate requests, until a time."""

    headers: tuple[tuple[str, str], ...]
    expires: datetime

    def __repr__(self) -> str:
        """Return no values: an object may be shown in an error."""
        return f"Credentials({len(self.headers)} headers)"


class CredentialHelper(Struct, kw_only=True):
    """The credentials of one server, for all threads of a build: the helper is called once until they expire.

    `url` is the address that the user named. `program` is the absolute path of the helper, which gets the environment
    of the user.
    """

    url: str
    program: Path
    environ: Mapping[str, str]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    cancel: Event = field(default_factory=Event)
    timeout_s: float = TIMEOUT_S
    _known: Credentials | None = None
    _failed: Diagnostic | None = None
    _lock: Lock = field(default_factory=Lock)

    def headers_for(self, url: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of a request; none for another server, such as the target of a redirect.

        Raises:
            ConfigurationError: the helper fails. It is called again only after `forget`.
        """
        if url_fault(_web(url)) is not None or url_origin(_web(url)) != url_origin(self.url):
            return ()
        with self._lock:
            if self._failed is not None:
                raise ConfigurationError(self._failed)
            if self._known is None or self.now() >= self._known.expires - _MARGIN:
                try:
                    self._known = self._call()
                except ConfigurationError as error:
                    self._known, self._failed = None, error.diagnostics[0]
                    raise
            return self._known.headers

    def __repr__(self) -> str:
        """Return the program and the server: the environment has secrets too."""
        return f"CredentialHelper({self.program} for {self.url})"

    def forget(self) -> None:
        """Call the helper again for the next request: the server refused its credentials."""
        with self._lock:
            self._known = self._failed = None

    def _call(self) -> Credentials:
        began = self.now()
        try:
            end = self._run(canonical_json({"uri": self.url}))
        except OSError as error:
            _fail(self.program, f"could not be started ({error.strerror})")
        if end.reason != "exited":
            _fail(self.program, _STOPPED[end.reason])
        if end.exit_code != 0:
            _fail(self.program, f"exited with status {end.exit_code}")
        try:
            reply = convert(parse_json(end.head, max_bytes=_MAX_BYTES), _Reply)
        except (ValueError, ValidationError):
            # Not the error: it may quote what was printed.
            _fail(self.program, "did not print the JSON of the protocol")
        return self._credentials(reply, began)

    def _credentials(self, reply: _Reply, began: datetime) -> Credentials:
        pairs = tuple((name, value) for name, values in reply.headers.items() for value in values)
        for name, value in pairs:
            # A line break in a value would begin another header, or another request.
            if not (_HEADER.fullmatch(name) and _VALUE.fullmatch(value)) or name.lower() in _NOT_CREDENTIALS:
                _fail(self.program, "printed a header that a request cannot have")
        if reply.expires is None:
            return Credentials(pairs, began + _LIFETIME)
        expires = None
        with contextlib.suppress(ValueError):
            expires = datetime.fromisoformat(reply.expires)
        if expires is None or expires.tzinfo is None:
            _fail(self.program, "printed an `expires` that is not a time with a zone (ISO 8601)")
        if expires <= began:
            _fail(self.program, "printed credentials that have expired; check the clock of this machine too")
        return Credentials(pairs, expires)

    def _run(self, request: bytes) -> ProcessOutcome:
        argv, marker = (str(self.program), "get"), uuid4().hex
        env = {**self.environ, MARKER_VARIABLE: marker}
        # In memory: its pipe would have to be written while the output is read.
        with open_in_memory(request) as stdin:
            return run_process(
                # Not in the project, whose files could change what a program does.
                ProcessSpec(argv=argv, env=env, cwd=Path("/"), stdin=stdin, marker=marker),
                timeout_s=self.timeout_s,
                cancel=self.cancel,
                log=Path(os.devnull),
                output=_OUTPUT,
                errors=_OUTPUT,
            )


def credential_helper(url: str, root: Path, environ: Mapping[str, str]) -> CredentialHelper | None:
    """Return the helper that the user names in ORCH23_CACHE_CREDENTIAL_HELPER for a server; None without one.

    It is the absolute path of a program, or a name on PATH. Folders of PATH that are relative or in the project at
    `root` do not count: a clone must not bring the program.

    Raises:
        ConfigurationError: there is no such program.
    """
    named = environ.get(HELPER_VARIABLE)
    if not named or url_fault(_web(url)) is not None:
        return None
    if "/" in named:
        found = named if named.startswith("/") and is_program(Path(named)) else None
    else:
        project = root.resolve()
        folders = (one for one in environ.get("PATH", "").split(os.pathsep) if one.startswith("/"))
        outside = [one for one in folders if not Path(one).resolve().is_relative_to(project)]
        found = find_program(named, os.pathsep.join(outside)) if outside else None
    if found is None:
        message = f"the credential helper `{named}` in {HELPER_VARIABLE} is not a program"
        hint = "set it to the absolute path of a program, or to the name of one on PATH outside of the project"
        raise ConfigurationError(Diagnostic("E733", message, hint=hint))
    return CredentialHelper(url=_web(url), program=Path(found), environ=environ)


def _web(url: str) -> str:
    """Return the URL of a server with the scheme of the web: helpers of Bazel get https also for gRPC."""
    scheme, separator, rest = url.partition("://")
    return {"grpc": "http", "grpcs": "https"}.get(scheme.lower(), scheme) + separator + rest


def _fail(program: Path, why: str) -> NoReturn:
    hint = f"""run it by hand: `echo '{{"uri": "URL"}}' | {program} get`"""
    raise ConfigurationError(Diagnostic("E733", f"the credential helper {program} {why}", hint=hint))
