"""What is done once, beside the first call."""

import threading

import pytest

from orch23.features.vendors.anthropic_sdk import WarmUp, warm_up_anthropic


def ended() -> None:
    """Wait for the thread of a rehearsal."""
    for thread in threading.enumerate():
        if thread.name == "rehearsal":
            thread.join(10)


def test_the_warm_up_runs_once_and_not_after_the_end() -> None:
    done: list[str] = []
    both, late = WarmUp(), WarmUp()
    both.start_once(lambda: done.append("first"))
    both.start_once(lambda: done.append("second"))
    late.close()
    late.start_once(lambda: done.append("late"))
    ended()
    assert done == ["first"]


def test_a_failed_warm_up_is_ignored() -> None:
    begun = threading.Event()

    def fail() -> None:
        begun.set()
        message = "not of this version"
        raise TypeError(message)

    WarmUp().start_once(fail)
    ended()
    assert begun.is_set()


@pytest.mark.slow
def test_the_sdk_reads_the_made_up_response_in_any_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://nowhere.invalid:1")
    assert warm_up_anthropic() == "a"
