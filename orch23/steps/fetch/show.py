"""Describe a fetch step in one line, and explain its diagnostics."""

from orch23.steps.fetch.spec import FetchStep

FETCH_CODES = {
    "E451": (
        "a download failed",
        "The server could not be reached, its status was neither 200 nor 206, the transfer was interrupted, or it took "
        "longer than the `timeout` of the stage. The bytes that arrived are kept, and the next build resumes the "
        "download. Check the address, the network, and the variables https_proxy, http_proxy and no_proxy.",
    ),
    "E452": (
        "a fetched file has another digest",
        "Its SHA-256 differs from `fetch.sha256`, and the file is not used. If the change is intended, check the file "
        "and write its digest into the pipeline. If not, the file was changed without your knowledge.",
    ),
    "E453": (
        "a download is too large",
        "The file is larger than `fetch.max_size`. Raise the limit if this size is correct.",
    ),
    "E454": (
        "a forbidden address",
        "The host has a link-local address, at which clouds serve the credentials of this machine, or the server "
        "redirects to a server that the pipeline does not name, or from https to http. If a redirect is intended, add "
        "its server to `fetch.redirects`.",
    ),
    "E455": (
        "a download is not on this machine",
        "With `--offline` no file is fetched from another machine, and the store does not have this one. Build once "
        "without `--offline`: a file that is in the store is not fetched again.",
    ),
}


def show_fetch(step: FetchStep) -> str:
    """Return where the file comes from."""
    return step.url or step.file
