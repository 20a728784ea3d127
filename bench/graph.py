"""The graphs that tools are given, in blocks of a hundred stages.

The main one has layers ten wide, chains and diamonds. A stage reads two files and writes one, which holds the lines of
both, sorted, each once. So what every output must hold can be computed without any tool, an edit that adds a line
reaches everything downstream, and one that repeats a line changes no output.

The other one has layers 25 wide, and its commands are texts for a shell: `cat A B > OUT`. `sort` takes about as long as
a tool needs for a stage, `cat` and a shell take less, so both show a different part of what a tool adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

BLOCK = 100
WIDTH = 10
LAYERS = 6
CHAIN = 20
CAT_WIDTH = 25


@dataclass(frozen=True, slots=True)
class Stage:
    """One command: the files it reads, and the file it writes."""

    name: str
    inputs: tuple[str, str]
    output: str
    cat: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the command that every tool runs, if it is not a text."""
        return ("sort", "-u", "-o", self.output, *self.inputs)

    @property
    def text(self) -> str:
        """Return the command as a text for a shell."""
        return f"cat {' '.join(self.inputs)} > {self.output}" if self.cat else " ".join(self.argv)

    def result(self, first: str, second: str) -> str:
        """Return what the output holds if the inputs hold these."""
        if self.cat:
            return first + second
        return "".join(f"{line}\n" for line in sorted({*first.splitlines(), *second.splitlines()}))


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages, each after those whose outputs it reads, and the files that they begin with."""

    stages: tuple[Stage, ...]
    sources: Mapping[str, str]

    def expected(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Return what every output holds when the sources hold this."""
        texts = dict(sources)
        for stage in self.stages:
            first, second = stage.inputs
            texts[stage.output] = stage.result(texts[first], texts[second])
        return {stage.output: texts[stage.output] for stage in self.stages}

    @property
    def read_outputs(self) -> frozenset[str]:
        """Return the outputs that some stage reads."""
        outputs = {stage.output for stage in self.stages}
        return frozenset(path for stage in self.stages for path in stage.inputs if path in outputs)

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that sources and outputs lie in."""
        paths = [*self.sources, *(stage.output for stage in self.stages)]
        return tuple(sorted({path.rpartition("/")[0] for path in paths}))

    @property
    def leaf_source(self) -> str:
        """Return a source in the middle of the graph that one stage alone depends on."""
        return self._source(read=False)

    @property
    def root_source(self) -> str:
        """Return a source in the middle of the graph whose one reader has readers of its own."""
        return self._source(read=True)

    @property
    def middle_output(self) -> str:
        """Return an output in the middle of the graph that other stages read."""
        read = self.read_outputs
        found = [stage.output for stage in self.stages if stage.output in read]
        return found[len(found) // 2]

    def _source(self, *, read: bool) -> str:
        readers: dict[str, list[Stage]] = {}
        for stage in self.stages:
            for path in stage.inputs:
                readers.setdefault(path, []).append(stage)
        outputs = self.read_outputs
        found = [
            path for path in self.sources if len(readers[path]) == 1 and (readers[path][0].output in outputs) is read
        ]
        return found[len(found) // 2]


class _Block:
    """A hundred stages under construction."""

    def __init__(self, number: int, *, cat: bool) -> None:
        self.name = f"b{number:03d}"
        self.cat = cat
        self.stages: list[Stage] = []
        self.sources: dict[str, str] = {}

    def source(self) -> str:
        """Add a source, one line that no other source holds."""
        path = f"src/{self.name}/s{len(self.sources):02d}.txt"
        self.sources[path] = f"{self.name} {len(self.sources):02d}\n"
        return path

    def stage(self, first: str, second: str) -> str:
        """Add a stage that reads these two; return what it writes."""
        number = len(self.stages)
        output = f"out/{self.name}/o{number:02d}.txt"
        self.stages.append(Stage(f"{self.name}s{number:02d}", (first, second), output, self.cat))
        return output

    def layers(self, width: int, count: int) -> None:
        """Add layers: each stage reads two neighbours of the layer above, the first ones two sources.

        In the graph of `cat`, the last ones read one neighbour and a source, so that there are leaves to edit.
        """
        above = [self.stage(self.source(), self.source()) for _ in range(width)]
        for left in reversed(range(count - 1)):
            beside = [self.source() for _ in above] if self.cat and not left else [*above[1:], above[0]]
            above = [self.stage(*pair) for pair in zip(above, beside, strict=True)]

    def chain(self) -> None:
        """Add a chain: each stage reads the one before it and a source."""
        last = self.source()
        for _ in range(CHAIN):
            last = self.stage(last, self.source())

    def diamond(self) -> None:
        """Add a diamond of four: one stage, two beside each other that read it, one that reads both."""
        top = self.stage(self.source(), self.source())
        self.stage(self.stage(top, self.source()), self.stage(top, self.source()))


def make_graph(size: int, *, cat: bool = False) -> Graph:
    """Return the main graph, or the one of `cat`, with this many stages, a whole number of hundreds."""
    if size < BLOCK or size % BLOCK:
        message = f"a graph has hundreds of stages, not {size}"
        raise ValueError(message)
    stages: list[Stage] = []
    sources: dict[str, str] = {}
    for number in range(size // BLOCK):
        block = _Block(number, cat=cat)
        if cat:
            block.layers(CAT_WIDTH, BLOCK // CAT_WIDTH)
        else:
            block.layers(WIDTH, LAYERS)
            block.chain()
        while len(block.stages) < BLOCK:
            block.diamond()
        stages += block.stages
        sources |= block.sources
    return Graph(tuple(stages), sources)
