"""Name the files that hold secrets: no pattern leads a model to them, only the author who names one literally."""

import unicodedata

_FOLDERS = frozenset({".git", ".hg", ".svn", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"})
_NAMES_TEXT = """
    .netrc _netrc .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .htpasswd .git-credentials .dockercfg .dockerconfigjson
    .vault-token .boto .s3cfg credentials
"""
_NAMES = frozenset(_NAMES_TEXT.split())
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx")
_OF_SECRETS = frozenset({"credentials", "secrets", "secret"})
_OF_DATA = frozenset({"json", "yaml", "yml", "toml", "ini", "cfg", "conf", "txt", "csv", "xml", "env", "properties"})


def private_reason(path: str) -> str | None:
    """Return which name of a path says that it holds secrets, or None. Upper and lower case are one."""
    names = [unicodedata.normalize("NFC", name).casefold() for name in path.rstrip("/").split("/")]
    folder = next((name for name in names[:-1] if name in _FOLDERS), None)
    if folder is not None:
        return f"`{folder}/` holds secrets"
    return f"`{names[-1]}` holds secrets" if _is_private(names[-1]) else None


def _is_private(name: str) -> bool:
    stem, _, suffix = name.partition(".")
    return (
        name in _NAMES
        or name.startswith(".env")
        or (name.startswith(_KEYS) and not name.endswith(".pub"))
        or name.endswith(_SUFFIXES)
        or (stem in _OF_SECRETS and suffix.rpartition(".")[2] in _OF_DATA)
    )
