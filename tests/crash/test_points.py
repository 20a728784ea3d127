"""A build that is killed at any call that changes files, before it or half-way through it, costs at most that call.

`make thorough` kills at every call; otherwise a stride of them is taken.
"""

import errno
import os
import sys

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
_STRIDE = 1 if _THOROUGH else 397  # of all calls; a prime meets all kinds
_ERROR_STRIDE = 1 if _THOROUGH else 613
_MOST_CALLS_OF_AN_ANSWER = 12
"""So many calls lie between the end of an answer and its being durable: only a death in these may lose it."""


@pytest.mark.stride(5)
@pytest.mark.parametrize("mode", ["kill", "half"])
@pytest.mark.parametrize("which", SCENES)
def test_a_build_killed_at_any_call_is_finished_by_the_next_one(
    project: Project, server: Server, which: str, mode: str
) -> None:
    scene = scene_of(project, which)
    reference = scene.reference(server)
    found: list[str] = []
    lost = 0
    points = range(1 if mode == "kill" else 31, len(reference.points) + 1, _STRIDE)
    for at in points:
        death = server.build(scene.restore(), at=at, mode=mode)
        where = f"{which}, {mode} at call {at} of {len(reference.points)}, {death.calls[-1]}"
        if death.status != KILLED:
            assert at > len(reference.points) - 40, f"{where}: it ended with {death.status}\n{death.printed}"
            continue  # a run with fewer calls than the reference: threads meet in another order
        found += [f"{where}: {one}" for one in violations(scene, reference)]
        lost += asked_again(scene.project, reference).total()
    assert not found, "\n".join(found)
    assert lost <= _MOST_CALLS_OF_AN_ANSWER * len(reference.calls)
    sys.stdout.write(
        f"{which}, {mode}: {len(points)} points of {len(reference.points)}, {lost} answers lost on their way\n"
    )


@pytest.mark.stride(13)
@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("fail_on", errno.ENOSPC),
        ("fail_once", errno.EIO),
        ("fail_on", errno.EIO),
        ("fail_on", errno.EROFS),
        ("fail_on", errno.EMFILE),
        ("fail_once", errno.EINTR),
        ("fail_once", errno.EMFILE),
    ],
    ids=["full", "one-bad-write", "bad-disk", "read-only", "no-descriptors", "interrupted", "one-descriptor"],
)
@pytest.mark.parametrize("which", SCENES)
def test_a_build_whose_calls_fail_says_so_in_a_line_and_the_next_one_goes_on(
    project: Project, server: Server, which: str, mode: str, error: int
) -> None:
    scene = scene_of(project, which)
    reference = scene.reference(server)
    found: list[str] = []
    points = range(1, len(reference.points) + 1, _ERROR_STRIDE)
    for at in points:
        failed = server.build(scene.restore(), at=at, mode=mode, error=error)
        name = failed.calls[at - 1] if len(failed.calls) >= at else "-"
        where = f"{which}, {os.strerror(error)} from call {at} of {len(reference.points)}, {name}"
        if "Traceback" in failed.printed or failed.status not in (0, 1, 74):
            found.append(f"{where}: exit {failed.status}\n{failed.printed}")
        found += [f"{where}: {one}" for one in violations(scene, reference)]
    assert not found, f"{len(found)} of {len(points)}\n" + "\n".join(found)
    sys.stdout.write(f"{which}, {mode} {error}: {len(points)} points of {len(reference.points)}\n")
