"""Changes of a lake table's schema, each safe to repeat."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from replicator.model.table import Column
from replicator.model.types import LakeType


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add `column` after the column called `after`, or first where that is None.

    Rows that are already there get the column's `fill`, as in the source.
    """

    column: Column
    after: str | None

    def __str__(self) -> str:
        return f"add column {self.column.name} {self.column.type}"


@dataclass(frozen=True, slots=True)
class WidenType:
    """Promote a column in place, for instance int to long."""

    name: str
    old: LakeType
    new: LakeType

    def __str__(self) -> str:
        return f"widen column {self.name} from {self.old} to {self.new}"


SchemaChange = AddColumn | WidenType

PENDING_FILLS_KEY: Final = "replicator.pending-fills"
"""Table property: columns that were added, whose rows already there still lack the source's value."""


def pending_fills(changes: Iterable[SchemaChange]) -> dict[str, str]:
    """Column → value for the rows that are already there when `changes` are made."""
    return {
        c.column.name: c.column.fill
        for c in changes
        if isinstance(c, AddColumn) and c.column.fill is not None
    }


def fills_to_json(fills: Mapping[str, str]) -> str:
    return json.dumps(dict(fills), sort_keys=True)


def fills_from_json(text: str | None) -> dict[str, str]:
    """Read what `fills_to_json` wrote; no text, no fills."""
    return {} if text is None else {str(k): str(v) for k, v in json.loads(text).items()}
