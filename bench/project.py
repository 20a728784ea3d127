"""One tool's copy of the graph on disk: write it, edit it, and check whether its outputs are what they must be."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.graph import Graph


class Project:
    """A folder with the sources of the graph and what the tool reads about it."""

    def __init__(self, root: Path, graph: Graph, describe: Callable[[Graph], Mapping[str, str]]) -> None:
        """Take the folder, which is the project's alone, and how the tool is given the graph."""
        self.root = root
        self.graph = graph
        self._describe = describe
        self.sources = dict(graph.sources)

    def place_(self) -> None:
        """Make the project again: sources as at first, no outputs, nothing of the tool's own."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.sources = dict(self.graph.sources)
        for folder in self.graph.folders:
            (self.root / folder).mkdir(parents=True)
        for path, text in {**self.sources, **self._describe(self.graph)}.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")

    def describe(self, graph: Graph) -> None:
        """Give the tool another graph of the same files; only what differs is written."""
        was, self.graph = self._describe(self.graph), graph
        for path, text in self._describe(graph).items():
            if was[path] != text:
                (self.root / path).write_text(text, encoding="utf-8")

    def write_source(self, path: str, text: str) -> None:
        """Give a source another text."""
        self.sources[path] = text
        (self.root / path).write_text(text, encoding="utf-8")

    def wrong(self) -> list[str]:
        """Return the outputs that do not hold what follows from the sources."""
        return [path for path, text in self.graph.expected(self.sources).items() if self.read(path) != text]

    def read(self, path: str) -> str | None:
        """Return what a file holds, or None if there is none."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def tamper(self, path: str) -> None:
        """Change bytes of a file in place, and put its time of change back; done twice, it was not done."""
        target = self.root / path
        was = target.stat()
        data = bytearray(target.read_bytes())
        data[0] ^= 1
        with target.open("r+b") as file:
            file.write(data)
        os.utime(target, ns=(was.st_atime_ns, was.st_mtime_ns))

    def stamps(self) -> dict[str, tuple[int, int]]:
        """Return of each output what differs once it has been written again."""
        found = {}
        for stage in self.graph.stages:
            try:
                status = (self.root / stage.output).stat()
            except FileNotFoundError:
                continue
            found[stage.output] = (status.st_ino, status.st_mtime_ns)
        return found
