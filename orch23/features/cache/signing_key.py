"""Run `cache key`: create keys for the signatures of results."""

from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.features.cache.key_files import create_key_file, key_file
from orch23.features.cache.signing.keys import KEY_NAME, LIBRARY, KeyPair
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, UsageError
from orch23.model.text import visible


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
