"""Diagnostic codes of signatures: title, meaning and solution of each."""

from collections.abc import Mapping

SIGNING_CODES: Mapping[str, tuple[str, str]] = {
    "E731": (
        "a result of the shared cache is not signed by a known key",
        "`cache.signed_by` of the pipeline lists the public keys that results must be signed with. This result has no "
        "signature, one of another key, or one of another result. It was not used, and the stage runs. If the key in "
        "the message belongs to a machine that you trust, add its line to `signed_by`; otherwise find out who can "
        "write to the cache.",
    ),
    "E732": (
        "a key for signatures cannot be used",
        "A public key is one line, `ed25519:` with 44 characters of base64 and a name, as `orch23 cache key new NAME` "
        "prints it: copy the whole line. A private key is a file in `$XDG_CONFIG_HOME/orch23/keys`, else in "
        "`~/.config/orch23/keys`, that only you can read (mode 0600). It must not be in the project, where it could be "
        "committed. Existing keys are never replaced: choose another name, or remove the file.",
    ),
}
E_NOT_SIGNED, E_KEY = "E731", "E732"
