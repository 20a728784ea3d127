"""Describe a fetch step in one line, and explain its diagnostics."""

from orch23.steps.fetch.spec import FetchStep

FETCH_CODES = {
    "E451": (
        "a download failed",
        "The server could not be reached, its status was neither 200 nor 206, the transfer was interrupted, or it "
        "exceeded the stage's `timeout`. The next build resumes the download. Check the address, the network, and "
        "the variables https_proxy, http_proxy and no_proxy.",
    ),
    "E452": (
        "a fetched file has another digest",
        "The SHA-256 of the file is not `fetch.sha256`, so the file is not used. If you expect a change, check the "
        "file and write its digest into the pipeline.",
    ),
    "E453": (
        "a download is too large",
        "The file is larger than `fetch.max_size`. Check the address, or raise the limit.",
    ),
    "E454": (
        "a forbidden address",
        "The host has a link-local address, where clouds serve credentials; or the server redirects to a server that "
        "the pipeline does not name, or from https to http. If you expect the redirect, add its server to "
        "`fetch.redirects`.",
    ),
    "E455": (
        "a download is not on this machine",
        "With `--offline` nothing is downloaded, and the store does not have this file. Build once without "
        "`--offline`.",
    ),
}


def show_fetch(step: FetchStep) -> str:
    """Return where the file comes from."""
    return step.url or step.file
