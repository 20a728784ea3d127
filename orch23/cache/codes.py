"""Diagnostic codes of shared caches: title, meaning and solution of each."""

from collections.abc import Mapping

E_CACHE_URL = "E721"
E_CERTIFICATE = "E722"

CACHE_CODES: Mapping[str, tuple[str, str]] = {
    E_CACHE_URL: (
        "the URL of the shared cache cannot be used",
        "A shared cache is a directory (a path or file://), or a server with one of Bazel's protocols: http:// or "
        "https:// (such as bazel-remote or nginx), grpc:// or grpcs://, or a bucket: s3://, gs:// or az://. The "
        "address of a build has no name and no password (E730); that of `orch23 worker --cache` may have them. They, "
        "and what a credential helper prints, go only to https and grpcs, or to this machine, since they can be read "
        "on the way otherwise. `orch23 help shared-cache` explains how to log in.",
    ),
    E_CERTIFICATE: (
        "a certificate cannot be used",
        "ORCH23_TLS_CLIENT_CERTIFICATE and ORCH23_TLS_CLIENT_KEY name the files of a certificate for servers with "
        "grpcs:// that demand one; the settings of dask name those for a scheduler. A file is missing, cannot be "
        "read, is not in the format PEM, or the key has a password or belongs to another certificate.",
    ),
}
