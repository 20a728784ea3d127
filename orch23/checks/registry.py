"""The checks there are, by the name that a pipeline calls them."""

from collections.abc import Mapping

from orch23.checks.architecture_stability import ARCHITECTURE_STABILITY
from orch23.checks.check import Check
from orch23.checks.json_schema import JSON_SCHEMA
from orch23.checks.json_values import JSON_VALUES
from orch23.checks.one_per_input import ONE_PER_INPUT
from orch23.checks.planner_tasks import PLANNER_TASKS
from orch23.checks.python_syntax import PYTHON_SYNTAX
from orch23.checks.work_orders import WORK_ORDERS

CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        ARCHITECTURE_STABILITY,
        JSON_SCHEMA,
        JSON_VALUES,
        ONE_PER_INPUT,
        PLANNER_TASKS,
        PYTHON_SYNTAX,
        WORK_ORDERS,
    )
}
