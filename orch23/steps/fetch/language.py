"""YAML syntax of a fetch step."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from orch23.model.fields import Problems
from orch23.model.language import END_OF_TEXT, Document, Language, Size, Text
from orch23.model.server_url import url_origin
from orch23.steps.fetch.spec import FetchStep, project_path_of

_HOST = re.compile(r"[0-9A-Za-z._-]+|[0-9A-Fa-f:.]+")
"""A name or an IPv4 address, or an IPv6 address without a zone. A proxy might decode any other text."""


class FetchDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bring a file whose digest is known."""

    url: Annotated[
        Text,
        Meta(
            description="Where the file is: `https://...`, `http://...`, or `file:PATH` for a file of the project. "
            "Never part of the key. A server needs your consent, once for each project."
        ),
    ]
    sha256: Annotated[
        Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}" + END_OF_TEXT, examples=["0" * 64])],
        Meta(
            description="The SHA-256 of the file, 64 hex digits, as `sha256sum` prints it.",
            extra_json_schema={"x-form": "write 64 hex digits, as `sha256sum FILE` prints them"},
        ),
    ]
    redirects: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="Such as `https://objects.example.com`.")], ...],
        Meta(description="Other servers that the address may redirect to. They need consent as well."),
    ] = ()
    max_size: Annotated[Size, Meta(description="The most bytes that are read.")] = "1GiB"


def read_fetch(value: FetchDocument, owner: Problems) -> FetchStep:
    """Return the step; an address that cannot be fetched is reported."""
    at = owner.below("fetch")
    path = project_path_of(value.url)
    if path is not None:
        file = at.path_at("url", path) or ""
        return FetchStep(sha256=value.sha256.lower(), file=file, max_bytes=at.size("max_size", value.max_size))
    _check(value.url, "url", at)
    for number, one in enumerate(value.redirects):
        if _check(one, str(number), at.below("redirects")) and urlsplit(one).path.strip("/"):
            at.add(f"redirects/{number}", "E812", f"`{one}` has a path", f"name the server alone: {url_origin(one)}")
    return FetchStep(
        sha256=value.sha256.lower(),
        url=value.url,
        redirects=value.redirects,
        max_bytes=at.size("max_size", value.max_size),
    )


def _check(url: str, key: str, at: Problems) -> bool:
    """Say whether a server can be asked by an address; what is wrong is reported, without a password it may hold."""
    fault = fetch_url_fault(url)
    if fault is not None:
        at.add(key, "E812", f"the address {fault}", "write https://HOST/PATH, or file:PATH for a file of the project")
    return fault is None


def fetch_url_fault(url: str) -> str | None:
    """Return what is wrong with an address of a file, None if it can be fetched."""
    if any(ord(character) <= 0x20 or ord(character) >= 0x7F for character in url):  # noqa: PLR2004 - printable ASCII
        return "has a blank, a control character, or one that has to be written as %XX"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "has a host or a port that cannot be read"
    if parts.scheme.lower() not in ("http", "https"):
        return "does not begin with https:// or http://"
    if "@" in parts.netloc:
        return "has a user name or a password, and a pipeline is no place for one"
    if not parts.hostname or port == 0:
        return "has no host" if not parts.hostname else "has the port 0"
    if not _HOST.fullmatch(parts.hostname):
        return "has a character in its host that no host has"
    return "has a fragment" if "#" in url else None


FETCH_LANGUAGE = Language(
    form=FetchDocument, description="Bring a file whose digest is known.", read=read_fetch, defaults=None
)
