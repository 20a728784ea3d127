"""`orch23 cache key new`: a private key outside of the project, and the line of the public key."""

import stat
import sys
from pathlib import Path

import pytest

from orch23.features.cache.opening import read_key_file
from orch23.features.cache.signatures import KeyPair, PublicKey, SignedEntry, sign_entry, signature_fault
from orch23.model.digest import digest_bytes
from tests.e2e.pipelines import shell
from tests.project import Project


@pytest.fixture
def here(project: Project) -> Project:
    return project.write(shell("  a: {outputs: [a.txt], shell: echo a > a.txt}\n"))


def key_path(project: Project, name: str) -> Path:
    return project.home / ".config" / "orch23" / "keys" / name


@pytest.mark.needs("upkeep")
def test_the_printed_key_verifies_what_the_stored_one_signs(here: Project) -> None:
    outcome = here.run("cache", "key", "new", "ci")
    assert outcome.code == 0, outcome.err
    path = key_path(here, "ci")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in outcome.err
    (line,) = outcome.out.splitlines()
    assert line.endswith(" ci")
    data = read_key_file(path)
    assert data.decode().splitlines()[1] not in outcome.out + outcome.err
    pair, entry = KeyPair.from_pem(data, "ci"), SignedEntry("action", "ab", digest_bytes(b""))
    assert signature_fault(sign_entry(pair, entry), entry, [PublicKey.parse(line)]) is None
    # The line can be used as it is.
    here.write({"pipeline.yaml": f"{here.read('pipeline.yaml')}cache: {{signed_by: ['{line}']}}\n"})
    assert here.run("validate").code == 0


@pytest.mark.needs("upkeep")
def test_a_key_is_not_replaced_and_its_name_is_a_plain_one(here: Project) -> None:
    assert here.run("cache", "key", "new", "ci").code == 0
    before = key_path(here, "ci").read_bytes()
    again = here.run("cache", "key", "new", "ci")
    assert (again.code, again.out) == (78, "")
    assert "E732" in again.err
    assert key_path(here, "ci").read_bytes() == before
    for name in ("../ci", "", "a/b", ".a", "a b", "x" * 65, "a\n"):
        wrong = here.run("cache", "key", "new", name)
        assert (wrong.code, "E641" in wrong.err) == (64, True), name
    assert [path.name for path in key_path(here, "ci").parent.iterdir()] == ["ci"]


@pytest.mark.needs("upkeep")
def test_without_the_library_the_command_that_installs_it_is_shown(
    here: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    outcome = here.run("cache", "key", "new", "ci")
    assert outcome.code == 78
    assert "E669" in outcome.err
    assert "install" in outcome.err
    assert not key_path(here, "ci").exists()


@pytest.mark.needs("upkeep")
def test_the_group_shows_its_commands(here: Project) -> None:
    outcome = here.run("cache", "key")
    assert outcome.code == 64
    assert "new" in outcome.err
