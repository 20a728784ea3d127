"""Run `cache key`: create keys for signatures, in the user's configuration directory, which only the user can read."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.features.cache.signing.keys import KEY_NAME, LIBRARY, KeyPair
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, UsageError
from orch23.model.text import visible
from orch23.store.grants import user_folder
from orch23.store.safe_files import (
    NEW_FILE_FLAGS,
    PRIVATE_FOLDER_MODE,
    closing,
    make_folder,
    open_own,
    read_own,
    sync_folder,
    try_unlink,
    write_all,
)

_MAX_BYTES = 16_384
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def key_file(name: str, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of a private key: below `$XDG_CONFIG_HOME`, else `~/.config`.

    Raises:
        ConfigurationError: there is no such directory, or it is in the project at `root`.
    """
    config = user_folder(environ, "XDG_CONFIG_HOME", ".config")
    hint = "set HOME or XDG_CONFIG_HOME to a directory outside of the project"
    if config is None:
        raise ConfigurationError(Diagnostic("E732", "there is no directory for private keys", hint=hint))
    if config.resolve().is_relative_to(root.resolve()):
        message = f"the directory for private keys, {config}, is in the project"
        raise ConfigurationError(Diagnostic("E732", message, hint=hint))
    return config / "orch23" / "keys" / name


def create_key_file(path: Path, data: bytes) -> None:
    """Create the file of a private key, durably. An existing file is never replaced.

    Raises:
        ConfigurationError: the file exists.
        OSError: it cannot be written.
    """
    # The folder of the user may be a link.
    make_folder(path.parent.resolve(), PRIVATE_FOLDER_MODE)
    try:
        descriptor = open_own(path, NEW_FILE_FLAGS)
    except FileExistsError:
        message = f"the private key {path} exists"
        hint = "choose another name: results that it signed need its public key"
        raise ConfigurationError(Diagnostic("E732", message, hint=hint)) from None
    try:
        with closing(descriptor):
            write_all(descriptor, data)
            os.fsync(descriptor)
    except BaseException:
        try_unlink(path)
        raise
    sync_folder(path.parent)


def read_key_file(path: Path) -> bytes:
    """Return the bytes of a private key.

    Raises:
        ConfigurationError: the file does not exist, is not a regular file of this user, or others may read it.
    """
    if not os.path.lexists(path):
        hint = "create a key with `orch23 cache key new NAME`"
        raise ConfigurationError(Diagnostic("E732", f"the private key {path} does not exist", hint=hint))
    if (data := read_own(path, _OTHERS, _MAX_BYTES)) is not None:
        return data
    message = f"the private key {path} is not a file that only you can read"
    raise ConfigurationError(Diagnostic("E732", message, hint=f"make it yours, and run `chmod 600 {path}`"))


def create_signing_key(console: Console, *, name: str) -> None:
    """Create a private key outside of the project, and write the line of its public key."""
    if KEY_NAME.fullmatch(name) is None:
        hint = "use letters, digits and . _ @ -, at most 64, such as `ci`"
        raise UsageError(Diagnostic("E641", f"`{visible(name)}` cannot be the name of a key", hint=hint))
    path = key_file(name, project_root(console), console.environ)
    try:
        pair = KeyPair.generate(name)
    except ModuleNotFoundError as error:
        from orch23.providers.installation import install_command  # noqa: PLC0415 - without the library only

        message = f"`orch23 cache key` needs the library `{LIBRARY}`, which is not installed"
        raise ConfigurationError(Diagnostic("E669", message, hint=install_command(LIBRARY))) from error
    create_key_file(path, pair.to_pem())
    console.write_out(f"{pair.public}\n")
    console.write_err(f"wrote the private key to {visible(str(path))}; add the line above to `cache.signed_by`\n")
