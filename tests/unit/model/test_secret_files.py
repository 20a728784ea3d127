"""Which files hold secrets by their names, and which only have similar names."""

import pytest

from orch23.model.file_policy import secret_file_reason


@pytest.mark.parametrize(
    "path",
    [
        *(".env", ".env.local", "app/.ENV.production", ".envrc", "id_rsa", "deploy/id_ed25519", "id_rsa.bak"),
        *("site.pem", "tls/Server.KEY", "store.p12", "a.pfx", "a.jks", "debug.keystore", "x.ppk", "vault.kdbx"),
        *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd", ".dockercfg"),
        *("credentials", "credentials.json", "gcp/Credentials.production.yaml", "secrets.toml", "secret.env"),
        *(
            ".git/config",
            "sub/.git/HEAD",
            ".ssh/config",
            ".aws/config",
            ".gnupg/x",
            ".kube/config",
            ".docker/config.json",
        ),
    ],
)
def test_it_holds_secrets(path: str) -> None:
    assert "holds secrets" in (secret_file_reason(path) or "")


@pytest.mark.parametrize(
    "path",
    [
        *("env.py", "environment.md", "id_rsa.pub", "src/keys.py", "keyboard.txt", "monkey", "pem.py", "README.md"),
        *("credentials.py", "docs/credentials.md", "secrets.py", "tests/test_secrets.py", "secretsjson", ".gitignore"),
        *(".github/workflows/ci.yml", "aws/config", "netrc", "git/config", ""),
    ],
)
def test_it_does_not(path: str) -> None:
    assert secret_file_reason(path) is None
