"""Find the package indexes that the user has configured for pip or uv."""

import configparser
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError

PYPI = "https://pypi.org/simple"
_ETC = Path("/etc")


class IndexSettings(Struct, frozen=True, kw_only=True):
    """Where to look for packages: `links` (directories or pages with files) first, then `indexes`, in this order.

    `environ` has the proxy and the certificates of the settings in the variables that a download reads.
    """

    links: tuple[str, ...]
    indexes: tuple[str, ...]
    environ: Mapping[str, str]


class _Source(Struct, frozen=True, kw_only=True):
    """The settings of one file, or of the environment; unset ones are None, so that the next source decides."""

    index: str | None = None
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    no_index: bool | None = None
    proxy: str | None = None
    cert: str | None = None


def index_settings(environ: Mapping[str, str], prefix: str = sys.prefix) -> IndexSettings:
    """Return the settings of the environment, else of uv's files, else of pip's files, else PyPI.

    Raises:
        ConfigurationError: a file of settings is invalid.
    """
    sources = [_uv_environment(environ), _pip_environment(environ), *_uv_files(environ), *_pip_files(environ, prefix)]
    index = next((one.index for one in sources if one.index), PYPI)
    extra = next((one.extra for one in sources if one.extra), ())
    links = next((one.links for one in sources if one.links), ())
    no_index = next((one.no_index for one in sources if one.no_index is not None), False)
    proxy = next((one.proxy for one in sources if one.proxy), None)
    cert = next((one.cert for one in sources if one.cert), None)
    changed = dict(environ)
    if proxy is not None:
        changed |= {"https_proxy": proxy, "http_proxy": proxy}
    if cert is not None:
        changed["SSL_CERT_FILE"] = cert
    return IndexSettings(links=links, indexes=() if no_index else (*extra, index), environ=changed)


def _uv_environment(environ: Mapping[str, str]) -> _Source:
    # An entry of UV_INDEX can have a name: `company=https://...`.
    named = (one.partition("=")[2] if "=" in one.partition("/")[0] else one for one in _words(environ, "UV_INDEX"))
    return _Source(
        index=environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL"),
        extra=(*named, *_words(environ, "UV_EXTRA_INDEX_URL")),
        links=tuple(one for one in environ.get("UV_FIND_LINKS", "").replace(",", " ").split() if one),
        no_index=_flag(environ.get("UV_NO_INDEX")),
    )


def _pip_environment(environ: Mapping[str, str]) -> _Source:
    return _Source(
        index=environ.get("PIP_INDEX_URL"),
        extra=_words(environ, "PIP_EXTRA_INDEX_URL"),
        links=_words(environ, "PIP_FIND_LINKS"),
        no_index=_flag(environ.get("PIP_NO_INDEX")),
        proxy=environ.get("PIP_PROXY"),
        cert=environ.get("PIP_CERT") or environ.get("SSL_CERT_FILE"),
    )


def _words(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(environ.get(name, "").split())


def _flag(value: str | None) -> bool | None:
    return value.strip().lower() in ("1", "true", "yes", "y", "on", "t") if value else None


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _user_config(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config")


def _system_configs(environ: Mapping[str, str]) -> list[Path]:
    return [Path(one) for one in (environ.get("XDG_CONFIG_DIRS") or str(_ETC / "xdg")).split(":") if one]


def _uv_files(environ: Mapping[str, str]) -> Iterator[_Source]:
    if _flag(environ.get("UV_NO_CONFIG")):
        return
    named = environ.get("UV_CONFIG_FILE")
    usual = [one / "uv" / "uv.toml" for one in (_user_config(environ), *_system_configs(environ))]
    for path in [Path(named)] if named else [*usual, _ETC / "uv" / "uv.toml"]:
        text = _text(path)
        if text is None:
            continue
        try:
            table = tomllib.loads(text)
            yield _uv_source(table)
            yield _uv_source(table.get("pip", {}))
        except (tomllib.TOMLDecodeError, TypeError, AttributeError, KeyError) as error:
            _invalid(path, error)


def _uv_source(table: Mapping[str, Any]) -> _Source:
    listed = table.get("index", [])
    default = next((str(one["url"]) for one in listed if one.get("default")), None)
    return _Source(
        index=default or table.get("index-url"),
        extra=(*(str(one["url"]) for one in listed if not one.get("default")), *table.get("extra-index-url", ())),
        links=tuple(table.get("find-links", ())),
        no_index=table.get("no-index"),
    )


def _pip_files(environ: Mapping[str, str], prefix: str) -> Iterator[_Source]:
    """Yield the settings of pip's files; a later file of pip's order comes first here, since the first one decides."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip reads no file then
        return
    places = [Path(named)] if named else []
    places += [Path(prefix) / "pip.conf", _user_config(environ) / "pip" / "pip.conf", _home(environ) / ".pip/pip.conf"]
    places += [_ETC / "pip.conf", *(one / "pip" / "pip.conf" for one in _system_configs(environ))]
    for path in places:
        text = _text(path)
        if text is None:
            continue
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text)
        except configparser.Error as error:
            _invalid(path, error)
        for section in ("download", "install", "global"):
            if parser.has_section(section):
                yield _pip_source(dict(parser.items(section)))


def _pip_source(found: Mapping[str, str]) -> _Source:
    values = {name.replace("_", "-"): value for name, value in found.items()}
    return _Source(
        index=values.get("index-url"),
        extra=_words(values, "extra-index-url"),
        links=_words(values, "find-links"),
        no_index=_flag(values.get("no-index")),
        proxy=values.get("proxy"),
        cert=values.get("cert"),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):  # pip and uv ignore a missing file too
        return None


def _invalid(path: Path, error: Exception) -> None:
    message = f"{path} cannot be read: {str(error).splitlines()[0]}"
    raise ConfigurationError(Diagnostic("E411", message, hint="correct the file")) from None
