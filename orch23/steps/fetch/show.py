"""Describe a fetch step in one line, and explain its diagnostics."""

from orch23.steps.fetch.spec import FetchStep

FETCH_CODES = {
    "E451": (
        "a download failed",
        "The server could not be reached, its status was neither 200 nor 206, the transfer broke off, or it took "
        "longer than the `timeout` of the stage. What came is kept, and the next build goes on from there. Check the "
        "address, the network, and the variables https_proxy, http_proxy and no_proxy.",
    ),
    "E452": (
        "a fetched file is not the one that is named",
        "Its SHA-256 is another than `fetch.sha256`. Nothing of it is used. If the file was changed on purpose, "
        "look at it and write its digest; if not, somebody changed what you depend on.",
    ),
    "E453": (
        "a download is too large",
        "It has more bytes than `fetch.max_size` allows. Raise that if the file is meant to be so large.",
    ),
    "E454": (
        "an address that no step may reach",
        "The host leads to a link-local address, at which clouds serve credentials of this machine, or the server "
        "redirects to a server that the pipeline does not name, or from https to http. If a redirect is meant, list "
        "its server under `fetch.redirects`.",
    ),
    "E455": (
        "a download is not on this machine",
        "With `--offline` nothing is fetched from another machine, also not by a redirect, and the store does not have "
        "the file. Build once without `--offline`: what is in the store is never fetched again.",
    ),
}


def show_fetch(step: FetchStep) -> str:
    """Return where the file comes from."""
    return step.url or step.file
