"""Report what breaks a JSON schema that a user wrote: each broken rule once, at the node that is meant."""

from collections.abc import Mapping
from typing import Any

from orch23.checks.patterns import unmatched_keys
from orch23.checks.schema_validator import validator_of
from orch23.model.digest import Json
from orch23.resolve.complaints import Complaint, complaints_of


def complaints(value: Json, schema: Mapping[str, Any]) -> tuple[Complaint, ...]:
    """Return everything in a value that breaks a schema; of alternatives, what breaks the one that was meant.

    Raises:
        Exception: the schema cannot be used; of which kind depends on the validator.

    """
    return complaints_of(validator_of(schema), value, unmatched_keys)
