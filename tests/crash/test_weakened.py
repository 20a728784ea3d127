"""Builds that are weakened on purpose are each found out; the sound one passes the same case.

A harness that no bad build fails would prove nothing.
"""

import os
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.harness import KILLED, Server, violations
from tests.crash.scenes import scene_of
from tests.e2e.pipelines import shell
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]

_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
_BEFORE = 4  # so many calls before a promotion's rename its bytes are written
_RENAMES = 8 if _THOROUGH else 5  # the outcomes of responses are renamed first


def torn_file(project: Project, server: Server, weaken: str) -> str:
    """Cut a build short around its promotions, and say what the next one does not fix."""
    scene = scene_of(project, "edited")
    reference = scene.reference(server)
    renames = [at for at, name in enumerate(reference.points, 1) if name == "renameat"]
    assert renames, "a promotion renames its files into place"
    points = [at for rename in renames[:_RENAMES] for at in range(rename - _BEFORE, rename)]
    # A weakened build is found out at its first torn file; of the points of a sound one, every fifth is a sample.
    for at in points if weaken or _THOROUGH else points[::5]:
        if server.build(scene.restore(), at=at, mode="half", weaken=weaken).status == KILLED:
            found = next(violations(scene, reference), None)
            if found is not None:
                return f"at {at}: {found}"
    return ""


def escape(project: Project, server: Server, weaken: str) -> str:
    """Promote into a folder that becomes a link, after the step has ended, to one whose path begins like the root's."""
    evil = Path(f"{project.root}-evil")
    evil.mkdir()
    command, link = "mkdir -p out; echo a > out/a.txt", f"ln -s {evil} {project.root}/out"
    project.write(shell(f"  a: {{outputs: [out/a.txt], shell: '{command}', verify: [{{shell: '{link}'}}]}}\n"))
    server.build(project, weaken=weaken)
    return ", ".join(path.name for path in evil.iterdir())


def survivor(project: Project, server: Server, weaken: str) -> str:
    """Leave a daemon behind that is in no group of its step any more."""
    tag = uuid.uuid4().hex
    daemon = f'(setsid sh -c "touch $TMPDIR/there; sleep 300 && echo {tag}" > /dev/null 2>&1 &)'
    daemon += "; until [ -e $TMPDIR/there ]; do sleep 0.01; done; echo a > a.txt"
    project.write(shell(f"  a: {{outputs: [a.txt], shell: '{daemon}'}}\n"))
    server.build(project, weaken=weaken)
    left = _tagged(tag)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return ", ".join(map(str, left))


def forged(project: Project, server: Server, weaken: str) -> str:
    """Let a test end the process with 0 before it has tested anything."""
    project.write(shell("  a: {inputs: [test_a.py], pytest: {}}\n", {"test_a.py": "import os\nos._exit(0)\n"}))
    died = server.build(project, weaken=weaken)
    return "green" if died.status == 0 else ""


def stale(project: Project, server: Server, weaken: str) -> str:
    """Edit a file, keep its size, and give it back its time."""
    project.write(shell("  a: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}\n", {"in.txt": "one\n"}))
    edited = project.root / "in.txt"
    before = edited.stat()
    server.build(project, weaken=weaken)
    edited.write_text("two\n")
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    server.build(project, weaken=weaken)
    return "" if project.read("out.txt") == "two\n" else project.read("out.txt")


CASES = {"in_place": torn_file, "startswith": escape, "killpg": survivor, "exit_code": forged, "trusted_mtime": stale}


@pytest.mark.stride(3)
@pytest.mark.parametrize("weaken", sorted(CASES))
def test_a_weakened_build_is_found_out(project: Project, server: Server, weaken: str) -> None:
    found = CASES[weaken](project, server, weaken)
    sys.stdout.write(f"{weaken}: {found}\n")
    assert found


@pytest.mark.stride(5)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_sound_build_passes_the_same_case(
    project: Project, server: Server, case: Callable[[Project, Server, str], str]
) -> None:
    assert case(project, server, "") == ""


def _tagged(tag: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if tag.encode() in command:
                found.append(int(entry.name))
    return found
