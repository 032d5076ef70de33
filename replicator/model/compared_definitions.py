"""What is recorded of the comparison of definitions with the source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COMPARED_DEFINITIONS_KEY: Final = "replicator.definitions"
"""Property of the `_ops` namespace: when the definitions of the tables were compared with the source."""


@dataclass(frozen=True, slots=True)
class ComparedDefinitions:
    """The last comparison of definitions; described in schemas/compared-definitions-v1.json.

    Attributes:
        at_ms: when it ended, milliseconds since the epoch; None if this run of the mirror has not compared any.
        problem: why definitions cannot be compared now; None if they can.
    """

    at_ms: int | None
    problem: str | None = None

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps({"version": 1, "at_ms": self.at_ms, "problem": self.problem})


def compared_definitions_in(properties: Mapping[str, str]) -> ComparedDefinitions | None:
    """Return what is recorded in the properties of a namespace; None if there is nothing that can be read."""
    try:
        value = json.loads(properties[COMPARED_DEFINITIONS_KEY])
        at_ms, problem = value["at_ms"], value["problem"]
    except (KeyError, ValueError, TypeError):
        return None
    is_valid = isinstance(at_ms, int | None) and isinstance(problem, str | None)
    return ComparedDefinitions(at_ms, problem) if is_valid else None
