"""Adapters of vendors' models: at a server with the vendor's interface, and in a cloud."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from orch23.model.diagnostic import Diagnostic
from orch23.model.server_url import is_loopback, normalize_url, url_fault, url_origin
from orch23.model.step import Grant
from orch23.providers.adapter import Adapter
from orch23.providers.model_facts import ModelFacts, facts_of

if TYPE_CHECKING:
    from orch23.model.media import MediaKind


class VendorAdapter(Adapter):
    """A provider of the models of one vendor."""

    vendor: ClassVar[str]

    @staticmethod
    def name_of(model: str) -> str:
        """Return the vendor's name of a model of a cloud."""
        return model

    @property
    def is_at_vendor(self) -> bool:
        """Whether the server is the vendor's own, or of a cloud that has the vendor's models."""
        return self.step.base_url is None

    @property
    def accepts(self) -> "frozenset[MediaKind]":
        """The kinds of media by the name of the model, at any server: one that accepts none refuses the request."""
        return facts_of(self.vendor, self.name_of(self.step.model)).media

    @property
    def facts(self) -> ModelFacts | None:
        """The facts at the vendor's own server: another one may give the name of a model to any model of its own."""
        return facts_of(self.vendor, self.name_of(self.step.model)) if self.is_at_vendor else None


class ServerAdapter(VendorAdapter):
    """A provider at the vendor's own server, or at the one of `base_url`, which has the same interface."""

    url: ClassVar[str]
    # The variable that replaces it, as in the vendor's library. Not in a key or a fingerprint, as `endpoint_alias`.
    url_variable: ClassVar[str]
    key_variable: ClassVar[str]

    @property
    def endpoint(self) -> str:
        """The normal form of the server's address."""
        return normalize_url(self.step.base_url or self.url)

    @property
    def is_at_vendor(self) -> bool:
        """Whether it is the vendor's. An invalid address has no normal form; `check` reports it."""
        base = self.step.base_url
        return base is None or (url_fault(base) is None and self.endpoint == self.url)

    @property
    def is_remote(self) -> bool:
        """Whether the server is on another machine."""
        return not is_loopback(self.endpoint)

    def server(self, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return the server of the step, else of the environment, else the vendor's; `ready` reports an invalid one."""
        given = "" if self.step.base_url else environ.get(self.url_variable, "").strip()
        return (self.endpoint, "") if not given or url_fault(given) else (normalize_url(given), self.url_variable)

    def ready(self, environ: Mapping[str, str], _root: Path | None) -> Iterable[Diagnostic]:
        """Yield an error for an invalid address in the environment."""
        given = "" if self.step.base_url else environ.get(self.url_variable, "").strip()
        if given and (fault := url_fault(given)):
            hint = f"unset it, or set it to an address such as {self.url}"
            yield Diagnostic("E412", f"the address in {self.url_variable} {fault}", hint=hint)

    def consent(self, environ: Mapping[str, str], *_: object) -> Grant | None:
        """Return the grant to send prompts and the key to an address, unless it is the vendor's."""
        # Loopback needs a grant: another user may listen there (ADR 25).
        origin = url_origin(self.server(environ)[0])
        is_own = origin == url_origin(self.url)
        return None if is_own else Grant(kind="server", name=origin, keys=(self.variable_of_key(environ),))

    def variable_of_key(self, _environ: Mapping[str, str]) -> str:
        """Return the variable that the key is read from."""
        return self.key_variable

    def key(self, environ: Mapping[str, str]) -> str:
        """Return the key in the environment; empty if it is not set."""
        return environ.get(self.variable_of_key(environ), "").strip()


class CloudAdapter(VendorAdapter):
    """A provider in a cloud. `keys` are the variables that a server of the pipeline would get."""

    name: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]

    @property
    def endpoint(self) -> str:
        """The server of the pipeline, or the cloud. Not the region: the same model answers in each."""
        return normalize_url(self.step.base_url) if self.step.base_url else self.name

    @property
    def is_remote(self) -> bool:
        """Whether it is the cloud, or a server on another machine."""
        return self.step.base_url is None or not is_loopback(self.step.base_url)

    def consent(self, *_: object) -> Grant | None:
        """Return the grant for the server that the pipeline names. The server of the environment needs none."""
        base = self.step.base_url
        return Grant(kind="server", name=url_origin(base), keys=self.keys) if base else None
