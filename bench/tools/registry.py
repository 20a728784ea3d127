"""The tools that the bench knows, orch23 first."""

from bench.tool import Tool
from bench.tools.doit import DOIT
from bench.tools.dvc import DVC
from bench.tools.floor import FLOOR
from bench.tools.go_task import GO_TASK
from bench.tools.make import BARE, STOCK
from bench.tools.ninja import N2, NINJA, RESTAT
from bench.tools.orch23 import CONFINED, TRUSTED
from bench.tools.scons import SCONS
from bench.tools.snakemake import SNAKEMAKE
from bench.tools.turborepo import TURBOREPO
from bench.tools.wireit import WIREIT

TOOLS: tuple[Tool, ...] = (
    TRUSTED,
    CONFINED,
    FLOOR,
    NINJA,
    RESTAT,
    N2,
    BARE,
    STOCK,
    DOIT,
    SCONS,
    GO_TASK,
    WIREIT,
    TURBOREPO,
    SNAKEMAKE,
    DVC,
)
BY_NAME = {tool.name: tool for tool in TOOLS}
