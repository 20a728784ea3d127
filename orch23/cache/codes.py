"""Diagnostic codes of shared caches: title, meaning and solution of each."""

from collections.abc import Mapping

E_CACHE_URL = "E721"

CACHE_CODES: Mapping[str, tuple[str, str]] = {
    E_CACHE_URL: (
        "the URL of the shared cache cannot be used",
        "A shared cache is a directory (a path or file://), or a server with one of Bazel's protocols: http:// or "
        "https:// (such as bazel-remote or nginx), grpc:// or grpcs://, or a bucket: s3://, gs:// or az://. The "
        "address of a build has no name and no password (E730); that of `orch23 worker --cache` may have them. They, "
        "and what a credential helper prints, go only to https and grpcs, or to this machine, since they can be read "
        "on the way otherwise. `orch23 help shared-cache` explains how to log in.",
    ),
}
