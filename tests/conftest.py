"""What every test has: the guards, the profile of hypothesis, strides, a project to build in, golden files."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from orch23.entry import _GC_THRESHOLD
from orch23.model.features import USES
from tests.doubles import priced_programs
from tests.gold import Golden, golden_from_environment
from tests.guards import environment_restored, no_network
from tests.installed import install
from tests.project import Project

__all__ = ["environment_restored", "golden", "install", "no_network", "priced_programs", "project"]

# No deadlines: a shared machine is slow at times, and pytest's timeout catches what hangs.
_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("dev", _ANY_MACHINE, max_examples=50)
settings.register_profile("quick", _ANY_MACHINE, max_examples=20)  # of `make check`, where coverage slows each example
# CI tells the example that it found and does not shrink it, which may take minutes: HYPOTHESIS_PROFILE=dev does.
_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
settings.register_profile("ci", _ANY_MACHINE, max_examples=50, derandomize=True, phases=_FOUND)
settings.register_profile("thorough", _ANY_MACHINE, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


_ROOT = Path(__file__).parent.parent
_BENCH = Path(__file__).parent / "unit" / "bench"
_FEATURES = _ROOT / "orch23" / "features"
_RECENT = 50  # commits; more than a branch has


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of a feature whose folder is not there."""
    is_of_feature = collection_path.parent == Path(__file__).parent / "features" and collection_path.is_dir()
    return True if is_of_feature and not _is_there(collection_path.name) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a feature that is not there, and what every run need not repeat.

    Of the cases of a test that is marked `stride(n)` take every n-th. Take the slow tests of the benchmarks only if
    `bench` changed in the last commits or after them. `make thorough` takes all.
    """
    is_thorough = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
    seen: Counter[str] = Counter()
    left_out = {item for item in items if not all(map(_has, item.iter_markers("needs")))}
    for item in items if not is_thorough else ():
        mark = item.get_closest_marker("stride")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % mark.args[0]:
                left_out.add(item)
            seen[name] += 1
        is_bench = item.path.parent == _BENCH or item.path.stem == "test_bench"
        if is_bench and item.get_closest_marker("slow") and not _bench_changed():
            left_out.add(item)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@cache
def _bench_changed() -> bool:
    """Return whether the benchmarks may have changed, which they may if git cannot tell."""
    argv = ["git", "-C", str(_ROOT), "diff", "--quiet", f"HEAD~{_RECENT}", "--", "bench"]
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode != 0
    except OSError:
        return True


def _has(mark: pytest.Mark) -> bool:
    return all(map(_is_there, mark.args))


def _is_there(feature: str) -> bool:
    """Return whether a feature and those that it uses are there."""
    return all((_FEATURES / one / "__init__.py").is_file() for one in (feature, *USES.get(feature, ())))


def pytest_configure() -> None:
    """Collect no garbage while modules and tests are made: all of them stay. Let programs ignore no signal."""
    gc.disable()
    # Under `nohup`, or in the background of a script, the programs of the tests would ignore these too.
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(one) is signal.SIG_IGN:
            signal.signal(one, lambda *_: None)  # what is handled is not inherited


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking the modules and tests, some 1.5 million objects, again and again.

    It collects as seldom as in the program: syntax trees of all modules take three times as long otherwise.

    Each build in this process would undo that, and freeze its own garbage. After some thousand builds, a gigabyte was
    never freed, and each fork took several times as long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    gc.enable()
    patch = pytest.MonkeyPatch()
    patch.setattr(gc, "freeze", lambda: None)
    patch.setattr(gc, "unfreeze", lambda: None)


def pytest_unconfigure() -> None:
    """End the supervisors that tests left for the next ones, and what these started."""
    for name in ("tests.prepared_pytest", "tests.prepared_copier"):
        if (prepared := sys.modules.get(name)) is not None:
            prepared.end()
    if (supervisor := sys.modules.get("orch23.execute.supervisor")) is not None:
        supervisor.close_idle_supervisors()


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what orch23 registers out of the home of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(place))
        yield place


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give an empty project of its own."""
    return Project(tmp_path / "project")


@pytest.fixture
def steps_reach_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the steps of builds in this process go without a sandbox: for stories in which they note that they ran."""
    from orch23.cli import build_run  # noqa: PLC0415  a test of one folder must not load the whole tool
    from orch23.execute.launch import TierChoice  # noqa: PLC0415  likewise

    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")  # also for a build in a process of its own
    monkeypatch.setattr(build_run, "_best_tier", lambda: TierChoice(None))


@pytest.fixture(scope="module")
def prepared_pytest() -> Iterator[None]:
    """Let the pytest of steps run in processes that have loaded it: for stories that are not about its process."""
    from tests.prepared_pytest import prepared  # noqa: PLC0415  a test of one folder must not load the whole tool

    with prepared():
        yield


@pytest.fixture(scope="module")
def prepared_copier() -> Iterator[None]:
    """Let templates be rendered in processes that have loaded copier: for stories that are not about its process."""
    from tests.prepared_copier import prepared  # noqa: PLC0415  a test of one folder must not load the whole tool

    with prepared():
        yield


@pytest.fixture
def copier_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a story that is about the process of copier have it in a module that has `prepared_copier`."""
    from orch23.execute import copier_runner  # noqa: PLC0415  a test of one folder must not load the whole tool

    monkeypatch.setattr(copier_runner, "subprocess", subprocess)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Yield what sets the time zone of this machine until the end of the test."""

    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def golden() -> Golden:
    """Give what compares texts with the files of tests/golden/."""
    return golden_from_environment()
