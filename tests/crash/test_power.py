"""A power cut at any call that changes files: what was not synced is lost, and the next build continues.

The project is on its own ext4 file system in a file. The cut is ext4's shutdown without a flush of its journal. That
needs root and loop devices: without them these tests are skipped, with the reason.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.crash.harness import KILLED, Server, asked_again, violations
from tests.crash.scenes import SCENES, scene_of
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]

_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
_PATIENCE_S, _MOMENT_S = 60.0, 0.02
_CUTS = 40 if _THOROUGH else 4  # a scene
# The two shell stages of a scene are cheap, so their results are synced together (ADR 16).
_CHEAP_STAGES = 2


class Disk:
    """An ext4 in a file, mounted at a folder."""

    def __init__(self, image: Path, mount: Path) -> None:
        """Make it and mount it."""
        self._image, self._mount = image, mount
        with image.open("wb") as file:
            file.truncate(64 << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        mount.mkdir()
        self.plug_in()

    def plug_in(self) -> None:
        """Mount it; its journal is replayed."""
        _run("mount", "-o", "loop", str(self._image), str(self._mount))

    def unplug(self) -> None:
        """Unmount it, also for sandboxes that begin meanwhile: each has all mounts for a moment.

        As long as one has, the disk that was cut off would be mounted again in the place of a new one.
        """
        until = monotonic() + _PATIENCE_S
        while subprocess.run(["umount", str(self._mount)], check=False, capture_output=True).returncode:
            assert monotonic() < until, f"{self._mount} is busy"
            sleep(_MOMENT_S)
        while subprocess.run(["losetup", "-j", str(self._image)], check=True, capture_output=True).stdout:
            assert monotonic() < until, f"{self._image} is in use"
            sleep(_MOMENT_S)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("mkfs.ext4", "mount", "umount", "losetup"))):
        pytest.skip("a power cut needs root, mkfs.ext4 and mount")
    try:
        made = Disk(tmp_path / "disk.img", tmp_path / "project")
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no loop device can be mounted: {refused.stderr.decode(errors='replace').strip()}")
    yield made
    made.unplug()


@pytest.mark.stride(3)
@pytest.mark.parametrize("which", SCENES)
def test_a_power_cut_costs_one_response_and_the_cheap_results_that_were_not_synced(
    disk: Disk, tmp_path: Path, server: Server, which: str
) -> None:
    scene = scene_of(Project(tmp_path / "project"), which)
    reference = scene.reference(server)
    points = len(reference.points)
    found: list[str] = []
    for cut in range(_CUTS):
        at = 1 + (2 * cut + 1) * points // (2 * _CUTS)
        restored = scene.restore()
        os.sync()
        death = server.build(restored, at=at, mode="power")
        where = f"{which}, cut at call {at} of {points}, {death.calls[-1]}"
        assert death.status == KILLED, f"{where}: it ended with {death.status}\n{death.printed}"
        with pytest.raises(OSError, match=r"Input/output error"):
            (restored.root / "proof").write_text("the disk is off")
        disk.unplug()
        disk.plug_in()
        found += [f"{where}: {one}" for one in violations(scene, reference, unsynced=_CHEAP_STAGES)]
        assert asked_again(scene.project, reference).total() <= 1, where
    assert not found, "\n".join(found)
    sys.stdout.write(f"{which}: {_CUTS} cuts of {points} calls\n")
