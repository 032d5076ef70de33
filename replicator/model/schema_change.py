"""Changes of a lake table's schema, each safe to repeat."""

from dataclasses import dataclass

from replicator.model.table import Column
from replicator.model.types import LakeType


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add `column` after the column called `after`, or first where that is None.

    Where the column has a constant default, the rows already there get it, as in the source.
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
