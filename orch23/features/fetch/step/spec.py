"""Fields, key and description of a fetch step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.parsing import json_at
from orch23.model.record import Facts
from orch23.model.server_url import is_loopback, url_origin
from orch23.model.step import Grant, Step, check_one_file

if TYPE_CHECKING:
    from orch23.model.fields import Problems


GIB = 1 << 30


class FetchStep(Step, Struct, frozen=True, omit_defaults=True, tag="fetch", kw_only=True):
    """Fetch a file with this SHA-256 (64 lower-case hex digits) from an address, or from `file` of the project.

    Exactly one of `url` and `file` is not empty. `redirects` are the origins that the address may redirect to, besides
    its own; `max_bytes` is the maximum size of the file.
    """

    kind: ClassVar[str] = "fetch"
    language: ClassVar[str] = "orch23.features.fetch.step.language:FETCH_LANGUAGE"
    run: ClassVar[str] = "orch23.features.fetch.download:FETCH_RUNNER"
    show: ClassVar[str] = "orch23.features.fetch.step.spec:show_fetch"

    sha256: str
    url: str = ""
    file: str = ""
    redirects: tuple[str, ...] = ()
    max_bytes: int = GIB

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return only the digest: the bytes are the same, wherever they come from, so a moved file keeps its key."""
        del facts
        return {"kind": self.kind, "sha256": self.sha256}

    def check_outputs(self, outputs: tuple[str, ...], writes: tuple[str, ...], at: "Problems") -> None:
        """Report a stage that does not have exactly one output file."""
        del writes
        check_one_file(outputs, "a fetch stage", at)

    @property
    def named_inputs(self) -> tuple[str, ...]:
        """Return the file of the project. It is not part of the key, since the digest defines its bytes."""
        return (self.file,) if self.file else ()

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return a grant for each server that it may connect to."""
        servers = (self.url, *self.redirects) if self.url else ()
        return tuple(Grant(kind="download", name=url_origin(one)) for one in servers)

    @property
    def uses_network(self) -> bool:
        """Return whether the file is downloaded."""
        return bool(self.url)

    @property
    def barred(self) -> Diagnostic | None:
        """Return why an offline build may not download the file; None if the server is this machine."""
        return barred_offline(self.url) if self.url and not is_loopback(self.url) else None

    @classmethod
    def inputs_of(cls, body: Json) -> tuple[str, ...]:
        """Return the file of the project that a step names before its items are known."""
        url = json_at(body, "url")
        path = project_path_of(url) if isinstance(url, str) else None
        return () if path is None else (path,)

    @classmethod
    def network_of(cls, body: Json) -> bool:
        """Return whether a step that has no items yet downloads its file."""
        return not cls.inputs_of(body)


def project_path_of(url: str) -> str | None:
    """Return the path in the project of `file:PATH` or of an address without a scheme; else None."""
    scheme, sign, rest = url.partition(":")
    if sign and scheme.lower() == "file":
        return rest.removeprefix("//") if rest.startswith("//") and not rest.startswith("///") else rest
    return None if "://" in url else url


def barred_offline(what: str) -> Diagnostic:
    """Return the error of an offline build that would connect to another machine."""
    hint = "build once without --offline: a file that is in the store is not fetched again"
    return Diagnostic("E455", f"{what} is on another machine, and the store does not have the file", hint=hint)


def show_fetch(step: FetchStep) -> str:
    """Return where the file comes from."""
    return step.url or step.file
