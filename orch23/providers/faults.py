"""What goes wrong between an adapter and its server, before anyone has decided whether to ask again."""

from orch23.model.diagnostic import Diagnostic


class TransportError(Exception):
    """One request that brought no usable answer.

    `transient` says that the same request may succeed later, `retry_after_s` how long the server asks to wait,
    `charged` that the server may have worked on the request and so may bill it: a stream that was cut is, a 429 is not.
    """

    def __init__(
        self,
        diagnostic: Diagnostic,
        *,
        transient: bool = False,
        charged: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Keep the complaint and the facts."""
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.transient = transient
        self.charged = charged
        self.status = status
        self.retry_after_s = retry_after_s
