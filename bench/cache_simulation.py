"""Simulate a shared cache of a large team: `python -m bench.cache_simulation`, about two minutes.

200 developers and CI use one server with 1 TB for projects of 10,000 stages. Builds begin at random times. Each sends
its requests over some connections; each request takes CPU time of the client, the round trip, CPU time of the server,
and its bytes the network of the server, first come, first served. The costs of requests are those that
`bench.shared_cache` measured; how a team works is an assumption, in `Team`. The seed is fixed: two runs are the same.
"""

import heapq
import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from bench.table import markdown

TERABYTE = 1e12
_WORK_S = 8 * 3600.0
_BUSY = 0.8
"""A server that is busy for a larger share of the time is called the bottleneck."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a request costs: seconds of CPU time of server and client, per request and per byte.

    The defaults were measured by `bench.shared_cache` with HTTP: the server by the steps with blobs; the client by the
    CPU time that a restored build takes more with 200 stages than with 20, divided by their requests.
    """

    server_s: float = 0.00015
    server_byte_s: float = 1.5e-9
    client_s: float = 0.0012
    entry_bytes: float = 1_000.0
    per_hit: float = 1.0
    """Requests for blobs of a restored stage, besides the one for its entry."""
    per_stored: float = 5.0
    """Requests of a stored stage, besides its lookup: three blobs, a question for the only large one, and its entry.

    An entry that is looked up more than 5 s before it is stored takes another question.
    """


@dataclass(frozen=True, slots=True)
class Team:
    """How a team works, and the server. Times are in seconds, rates per hour of work, sizes in bytes."""

    developers: int = 200
    builds: float = 2.0
    looked_up: float = 100.0
    """Stages of a developer's build that are not in the local store: one of a hundred."""
    hits: float = 0.9
    developers_write: bool = False
    ci_builds: float = 60.0
    ci_looked_up: float = 10_000.0
    """Stages of a build of CI that are not in its local store: all, as its checkout is new."""
    ci_made: float = 100.0
    result_bytes: float = 24_500.0
    connections: int = 8
    lookahead: int = 256
    batch_read: int = 1
    """Results whose blobs are read in one message. With gRPC, it has all small ones of one result."""
    compression: float = 1.0
    rtt_s: float = 0.02
    cores: int = 2
    bandwidth: float = 125e6
    costs: Costs = Costs()

    @property
    def parallel(self) -> int:
        """The number of requests that a build has at once."""
        return max(1, min(self.connections, self.lookahead))

    @property
    def uploads_per_s(self) -> float:
        """The bytes that are uploaded in a second of work."""
        made = self.ci_builds * self.ci_made
        if self.developers_write:
            made += self.developers * self.builds * self.looked_up * (1 - self.hits)
        return made * self.result_bytes / self.compression / 3600


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of build: how many begin in a second, the requests of one, and the mean size of a request in bytes."""

    name: str
    rate: float
    requests: int
    request_bytes: float


def kinds(team: Team) -> tuple[Kind, Kind]:
    """Return the builds of developers and of CI."""
    made = team.looked_up * (1 - team.hits) if team.developers_write else 0.0
    return (
        _kind("developer", team.developers * team.builds, team.looked_up, team.looked_up * team.hits, made, team),
        _kind("CI", team.ci_builds, team.ci_looked_up, max(0.0, team.ci_looked_up - team.ci_made), team.ci_made, team),
    )


def _kind(name: str, builds: float, looked_up: float, hits: float, made: float, team: Team) -> Kind:
    costs = team.costs
    requests = looked_up + hits * costs.per_hit / team.batch_read
    requests += made * costs.per_stored
    moved = (hits + made) * team.result_bytes / team.compression + (looked_up + made) * costs.entry_bytes
    count = max(1, round(requests))
    return Kind(name, builds / 3600, count, moved / count)


# ---- the simulation -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Build:
    kind: Kind
    began_s: float
    left: int
    open: int = 0
    client_free_s: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What a simulation found. `waiting` is the mean number of requests at the server, `stay_s` their mean time there.

    `build_s` has the times of all builds by the name of their kind.
    """

    requests: int = 0
    sent_bytes: float = 0.0
    span_s: float = 0.0
    cpu_busy_s: float = 0.0
    net_busy_s: float = 0.0
    inside_s: float = 0.0
    stays_s: float = 0.0
    build_s: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Requests in a second."""
        return self.requests / self.span_s

    @property
    def waiting(self) -> float:
        """Requests at the server at a time, on average: the integral of their number over time."""
        return self.inside_s / self.span_s

    @property
    def stay_s(self) -> float:
        """How long a request is at the server, on average: the sum over the requests."""
        return self.stays_s / self.requests

    def of_builds(self, kind: str, share: float) -> float:
        """Return the time within which a share of the builds of a kind ended, in seconds."""
        times = sorted(self.build_s[kind])
        return times[min(len(times) - 1, int(share * len(times)))]


@dataclass(slots=True)
class _Request:
    build: _Build
    size_bytes: float
    arrived_s: float = 0.0


class _Simulation:
    """The events of a simulation, in the order of their times."""

    def __init__(self, team: Team, seed: int) -> None:
        self.team, self.found = team, Outcome()
        self._chance = random.Random(seed)  # noqa: S311 - for a simulation
        self._events: list[tuple[float, int, Callable[[float, _Request], None], _Request]] = []
        self._count = self._inside = 0
        self._cores, self._net_free_s = [0.0] * team.cores, 0.0

    def add_builds(self, seconds: float) -> None:
        """Let builds begin at random times within some seconds."""
        for kind in kinds(self.team):
            self.found.build_s[kind.name] = []
            at_s = 0.0
            while (at_s := at_s + self._chance.expovariate(kind.rate)) < seconds:
                self._add(at_s, self._start, _Request(_Build(kind, at_s, kind.requests), 0.0))

    def run(self) -> float:
        """Let everything happen; return when the last event was."""
        last_s = 0.0
        while self._events:
            now_s, _, happen, request = heapq.heappop(self._events)
            self.found.inside_s += self._inside * (now_s - last_s)
            last_s = now_s
            happen(now_s, request)
        return last_s

    def _add(self, at_s: float, happen: Callable[[float, _Request], None], request: _Request) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, self._count, happen, request))

    def _start(self, now_s: float, request: _Request) -> None:
        build = request.build
        build.open = min(self.team.parallel, build.left)
        for _ in range(build.open):
            self._next(now_s, build)

    def _next(self, now_s: float, build: _Build) -> None:
        """Send the next request of a build over a connection that is free."""
        if build.left:
            build.left -= 1
            build.client_free_s = max(now_s, build.client_free_s) + self.team.costs.client_s
            size_bytes = self._chance.expovariate(1 / build.kind.request_bytes)
            self._add(build.client_free_s + self.team.rtt_s / 2, self._arrive, _Request(build, size_bytes))
            return
        build.open -= 1
        if not build.open:
            self.found.build_s[build.kind.name].append(now_s - build.began_s)

    def _arrive(self, now_s: float, request: _Request) -> None:
        self._inside += 1
        request.arrived_s = now_s
        work_s = self.team.costs.server_s + request.size_bytes * self.team.costs.server_byte_s
        until_s = max(now_s, self._cores[0]) + work_s
        heapq.heapreplace(self._cores, until_s)
        self.found.cpu_busy_s += work_s
        self._add(until_s, self._send, request)

    def _send(self, now_s: float, request: _Request) -> None:
        work_s = request.size_bytes / self.team.bandwidth
        self._net_free_s = max(now_s, self._net_free_s) + work_s
        self.found.net_busy_s += work_s
        self._add(self._net_free_s, self._end, request)

    def _end(self, now_s: float, request: _Request) -> None:
        self._inside -= 1
        self.found.requests += 1
        self.found.sent_bytes += request.size_bytes
        self.found.stays_s += now_s - request.arrived_s
        self._next(now_s + self.team.rtt_s / 2, request.build)


def simulate(team: Team, seconds: float = 900.0, seed: int = 1) -> Outcome:
    """Let builds begin for some seconds, and return what happens until all have ended."""
    simulation = _Simulation(team, seed)
    simulation.add_builds(seconds)
    simulation.found.span_s = max(simulation.run(), seconds)
    return simulation.found


def bottleneck(team: Team, found: Outcome) -> str:
    """Return what limits a build of CI."""
    costs = team.costs
    if found.cpu_busy_s / found.span_s / team.cores > _BUSY:
        return "server CPU"
    if found.net_busy_s / found.span_s > _BUSY:
        return "network"
    latency_s = team.rtt_s / team.parallel
    at_server_s = found.stay_s / team.parallel
    limits = {"client CPU": costs.client_s, "round trips": latency_s, "server": at_server_s}
    return max(limits, key=limits.__getitem__)


# ---- eviction -------------------------------------------------------------------------------------------


def hit_rate(capacity: int, results: int, *, unused: float = 0.0, lookups: int = 200_000, seed: int = 1) -> float:
    """Return the share of lookups that find their result in a cache of so many results, without the first tenth.

    Results are popular by Zipf's law (exponent 0.8). One that is not there is built and stored; what was not used for
    the longest time is evicted. For each lookup, `unused` results are stored that no one looks up.
    """
    chance = random.Random(seed)  # noqa: S311 - for a simulation
    weights = list(accumulate((rank + 1) ** -0.8 for rank in range(results)))
    cache: OrderedDict[int, None] = OrderedDict()
    for result in range(min(capacity, results) - 1, -1, -1):
        cache[result] = None
    hits = counted = extra = 0
    owed = 0.0
    for number, wanted in enumerate(chance.choices(range(results), cum_weights=weights, k=lookups)):
        is_counted = number >= lookups // 10
        counted += is_counted
        if wanted in cache:
            hits += is_counted
            cache.move_to_end(wanted)
        else:
            cache[wanted] = None
        owed += unused
        while owed >= 1:
            owed, extra = owed - 1, extra + 1
            cache[-extra] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits / counted


# ---- the tables -----------------------------------------------------------------------------------------

USUAL = Team()
MONDAY = replace(USUAL, builds=1.0, looked_up=10_000.0, hits=0.99)
"""All developers restore everything within an hour, such as after an update of a tool."""
_GRPC = replace(Costs(), per_stored=3.0)
"""One question, one message with all blobs, and the entry."""
_FAST = replace(Costs(), server_s=Costs().server_s / 10, server_byte_s=Costs().server_byte_s / 10)
CASES = {
    "usual day": USUAL,
    "CI keeps its checkout": replace(USUAL, ci_looked_up=200.0),
    "developers write, too": replace(USUAL, developers_write=True),
    "blobs in batches (gRPC)": replace(USUAL, costs=_GRPC),
    "lookahead 1": replace(USUAL, lookahead=1),
    "2 connections": replace(USUAL, connections=2),
    "32 connections": replace(USUAL, connections=32),
    "blobs of 64 results in a message (not built)": replace(USUAL, batch_read=64),
    "compression 3:1 (not built)": replace(USUAL, compression=3.0),
    "results of 2.5 MB": replace(USUAL, result_bytes=2.5e6),
    "results of 2.5 MB, compression 3:1": replace(USUAL, result_bytes=2.5e6, compression=3.0),
    "all restore all in an hour": MONDAY,
    "the same, 32 connections": replace(MONDAY, connections=32),
    "the same, server 10 times as fast": replace(MONDAY, costs=_FAST),
    "the same, blobs of 64 results in a message": replace(MONDAY, batch_read=64),
}
HEAD = (
    "case",
    "requests/s",
    "MB/s",
    "server CPU",
    "network",
    "at the server",
    "ms there",
    "developer p50 s",
    "CI p50 s",
    "CI p95 s",
    "stored GB/day",
    "bottleneck",
)


def row(name: str, team: Team, found: Outcome) -> list[str]:
    """Return the cells of a case."""
    return [
        name,
        f"{found.rate:,.0f}",
        f"{found.sent_bytes / found.span_s / 1e6:.1f}",
        f"{found.cpu_busy_s / found.span_s / team.cores:.0%}",
        f"{found.net_busy_s / found.span_s:.0%}",
        f"{found.waiting:.2f}",
        f"{found.stay_s * 1000:.2f}",
        f"{found.of_builds('developer', 0.5):.1f}",
        f"{found.of_builds('CI', 0.5):.0f}",
        f"{found.of_builds('CI', 0.95):.0f}",
        f"{team.uploads_per_s * _WORK_S / 1e9:.1f}",
        bottleneck(team, found),
    ]


def evictions(capacity: int = 10_000, lookups: int = 200_000) -> Iterator[list[str]]:
    """Yield the rows of the table of hit rates, by the ratio of the working set to the cache."""
    for ratio in (0.5, 1.0, 1.5, 2.0, 4.0, 10.0):
        rates = [hit_rate(capacity, int(capacity * ratio), unused=unused, lookups=lookups) for unused in (0, 0.5)]
        yield [f"{ratio:g} TB", *(f"{rate:.0%}" for rate in rates)]


def main(
    seconds: float = 900.0,
    say: Callable[[str], None] = print,
    cases: Sequence[str] = tuple(CASES),
    lookups: int = 200_000,
) -> int:
    """Simulate all cases and print the tables."""
    say(f"{USUAL.costs}\n")
    say(markdown(HEAD, [row(name, CASES[name], simulate(CASES[name], seconds)) for name in cases]))
    say("\nHit rate with 1 TB that evicts what was not used for the longest time:\n")
    head = ("working set", "only CI writes", "one unused result for two lookups")
    say(markdown(head, list(evictions(lookups=lookups))))
    days = TERABYTE / (USUAL.uploads_per_s * _WORK_S)
    say(f"\nOn a usual day, uploads fill 1 TB in {days:,.0f} days of work.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
