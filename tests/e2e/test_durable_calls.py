"""What is on the disk, for sure, when a request is sent and when its response is used."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orch23.providers.command import CommandProvider
from orch23.runners.llm import LlmEvents
from orch23.store.run_logs import parse_journal
from tests.e2e.pipelines import green, pipeline, prompt
from tests.project import Project


def test_a_call_is_reserved_before_it_is_sent_and_settled_before_it_is_used(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, bytes] = {}
    found: dict[str, list[str]] = {}
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)
        synced[path.suffix] = path.read_bytes() if path.is_file() else b""

    def watch(owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **more: Any) -> Any:
            lines = parse_journal(synced[".jsonl"], "journal")
            found[name] = [line.event.type for line in lines if line.event.type.startswith("call_")]
            return real(*args, **more)

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr(os, "fsync", fsync)
    watch(CommandProvider, "complete")
    watch(LlmEvents, "responded")
    ask = "{outputs: [said.txt], llm: {prompt: ask.md.j2, returns: text}}"
    project.write(pipeline(f"  ask: {ask}\n", {"ask.md.j2": prompt("ask", "yes")}))
    green(project.build())
    assert found == {"complete": ["call_reserved"], "responded": ["call_reserved", "call_settled"]}
