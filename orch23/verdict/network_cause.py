"""Decide whether a step without access to the network failed since it tried to reach another machine.

The sandbox denies connections without a record of them, so the cause comes from the output, or from the command.
"""

from collections.abc import Iterator

from orch23.model.event_data import CauseKind, LikelyCause
from orch23.model.patterns import lazy_pattern

# In any case, `ENOTFOUND` is also a part of FileNotFoundError, and `getaddrinfo` may be a part of the name of a file.
_NO_CONNECTION = lazy_pattern(
    r"(?i)could not resolve|name resolution|name or service not known|network is unreachable|\bgetaddrinfo\b"
    r"|\b(?-i:EAI_AGAIN|ENOTFOUND|ENETUNREACH)\b|failed to resolve|unable to resolve|no such host"
    r"|failed to establish a new connection|couldn't connect to server"
)
_NO_FILE = lazy_pattern(r"(?i)no such file or directory|NotFoundError:")
_REFUSED = lazy_pattern(
    r"(?i)connection refused|ECONNREFUSED|actively refused|couldn't connect to server|failed to connect to "
)
_LOOPBACK = lazy_pattern(r"(?i)(?<![\w.-])(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)(?![\w.-]*[\w-])")
_URL = lazy_pattern(r"(?i)\b(?:https?|ftps?)://(?:[^\s/'\"<>|;&@]*@)?(\[[0-9a-f:.]+\]|[^\s/:'\"<>|;&)]+)")
_DOWNLOADER = lazy_pattern(r"\b(curl|wget)\s")
# Where a command begins, and what may be before its program.
_BEGIN = lazy_pattern(r"[\n;|&(`{!]|-c ['\"]")
_BEFORE = frozenset(("", "if", "while", "until", "then", "do", "else", "time"))
_LONGEST = 1_000
# The exit codes for a host that was not found or not reached: of curl 6, 7 and 28 (no reply in time), of wget 4.
_NO_HOST = {"curl": (6, 7, 28), "wget": (4,)}
_HINT = "the stage then runs in each build, unless it also has `cache: true`"
_OWN = (
    "`{host}` in a step is the step itself, since it has no access to the network: a server that runs outside of the "
    "step cannot be reached"
)


def network_cause(output: str, command: str, exit_code: int | None) -> LikelyCause | None:
    """Return the cause of a step that has no access to the network, or None.

    `command` is the text that its author wrote; `exit_code` is None if it is not known.
    """
    output = "\n".join(line for line in output.splitlines() if not _NO_FILE.search(line))
    host = _loopback_in(output, command) if _REFUSED.search(output) else ""
    # A connection to itself is refused because a server runs elsewhere, or because its own did not start.
    if host:
        return _cause("network_use", _OWN.format(host=host))
    if _NO_CONNECTION.search(output):
        return _cause("network", "the step has no access to the network, and its output reports a failed connection")
    used = next(_downloads(command), None)
    if used is None:
        return None
    program, host = used
    if exit_code in _NO_HOST[program] and not output.strip():
        if _LOOPBACK.fullmatch(host):
            return _cause("network_use", _OWN.format(host=host))
        return _cause("network", f"`{program}` did not reach `{host}`: the step has no access to the network")
    if _LOOPBACK.fullmatch(host):
        return None
    # With a pipe the exit code is that of another program, which got nothing to read.
    return _cause("network_use", f"`{program}` cannot reach `{host}`: the step has no access to the network")


def _loopback_in(output: str, command: str) -> str:
    """Return the name of this machine that the output has, or else the command; an empty text if there is none."""
    for text in (output, command):
        if found := _LOOPBACK.search(text):
            return found[0].strip("[]")
    return ""


def _downloads(command: str) -> Iterator[tuple[str, str]]:
    """Yield each program of a command that downloads, with the host of the address after it."""
    for found in _DOWNLOADER.finditer(command):
        *words, folder = _BEGIN.split(command[max(0, found.start() - _LONGEST) : found.start()])[-1].split(" ")
        # Not a word of another command, such as `echo curl`.
        is_called = not folder or (folder.startswith("/") and folder.endswith("/"))
        if is_called and all(word in _BEFORE or "=" in word for word in words):
            # Up to the end of this command of a line.
            rest = command[found.end() : found.end() + _LONGEST].partition("\n")[0].partition(";")[0].partition("|")[0]
            if address := _URL.search(rest):
                yield found[1], address[1].strip("[]")


def _cause(kind: CauseKind, text: str) -> LikelyCause:
    return LikelyCause(kind=kind, text=text, key="network", value="true", hint=_HINT)
