"""YAML syntax of a fetch step."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import NODEFAULT, Meta

from orch23.features.fetch.step.spec import FetchStep, project_path_of
from orch23.model.fields import Problems
from orch23.model.language import END_OF_TEXT, Document, Key, Language, Size, Text, form, item
from orch23.model.server_url import url_origin

# A name or an IPv4 address, or an IPv6 address without a zone.
# Other texts are refused: a proxy could decode them to a host that was not checked.
_HOST = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+")


class FetchDocument(Document):
    """Fetch a file with a known digest."""

    url: Text = Key("https://example.org/a.zip", default=NODEFAULT, in_key=False).doc("""
        The address of the file: `https://...`, `http://...`, or `file:PATH` for a file of the project. Never part of
        the key. A server needs your consent, once for each project.""")
    sha256: Annotated[
        Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}" + END_OF_TEXT, examples=["0" * 64])],
        form("write 64 hex digits, as `sha256sum FILE` prints them"),
    ] = Key("0a" * 32, default=NODEFAULT).doc("The SHA-256 of the file, 64 hex digits, as `sha256sum` prints it.")
    redirects: tuple[Annotated[str, item("Such as `https://objects.example.com`.")], ...] = (
        Key("['https://cdn.example.org']", default=())
    ).doc("Other servers that the address may redirect to. They need your consent too.")
    max_size: Size = Key("20MiB", default="1GiB").doc("The maximum size of the file.")


def read_fetch(value: FetchDocument, owner: Problems) -> FetchStep:
    """Return the step; report an address that cannot be fetched."""
    at = owner.below("fetch")
    path = project_path_of(value.url)
    if path is not None:
        file = at.path_at("url", path) or ""
        return FetchStep(sha256=value.sha256.lower(), file=file, max_bytes=at.size("max_size", value.max_size))
    _check(value.url, "url", at)
    for number, one in enumerate(value.redirects):
        if _check(one, str(number), at.below("redirects")) and urlsplit(one).path.strip("/"):
            at.add(f"redirects/{number}", "E812", f"`{one}` has a path", f"name only the server: {url_origin(one)}")
    return FetchStep(
        sha256=value.sha256.lower(),
        url=value.url,
        redirects=value.redirects,
        max_bytes=at.size("max_size", value.max_size),
    )


def _check(url: str, key: str, at: Problems) -> bool:
    """Return whether an address can be fetched; report why not, without the address: it can contain a password."""
    fault = fetch_url_fault(url)
    if fault is not None:
        at.add(key, "E812", f"the address {fault}", "write https://HOST/PATH, or file:PATH for a file of the project")
    return fault is None


def fetch_url_fault(url: str) -> str | None:
    """Return what is wrong with the address of a file; None if it can be fetched."""
    if any(ord(character) <= 0x20 or ord(character) >= 0x7F for character in url):  # noqa: PLR2004 - printable ASCII
        return "has a space, a control character, or a character that must be written as %XX"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "has an invalid host or port"
    host = parts.hostname or ""
    checks = (
        (parts.scheme.lower() in ("http", "https"), "does not begin with https:// or http://"),
        # The pipeline is committed, and messages show the address.
        ("@" not in parts.netloc, "has a user name or a password, which must not be in a pipeline"),
        (host, "has no host"),
        (port != 0, "has the port 0"),
        (_HOST.fullmatch(host), "has a character in its host that no host has"),
        ("#" not in url, "has a fragment"),
    )
    return next((fault for is_met, fault in checks if not is_met), None)


FETCH_LANGUAGE = Language(
    form=FetchDocument,
    description="Fetch a file with a known digest.",
    read=read_fetch,
    example=f"{{url: 'https://example.org/a.zip', sha256: {'0a' * 32}}}",
)
