"""Names and schemas of source tables."""

from dataclasses import dataclass
from enum import StrEnum

from replicator.model.types import LakeType, Wire


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A source table, ``database.name``; either part may itself contain a dot."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a source table as it is decoded and stored.

    Attributes:
        name: the source's name, unchanged.
        type: what the lake stores.
        wire: how the events write it.
        nullable: whether the source allows NULL.
        default: a constant default as the source prints it; None when there is none, or when
            it is an expression (``CURRENT_TIMESTAMP``), whose value no event tells.
        default_is_expression: the source fills new columns by an expression.
    """

    name: str
    type: LakeType
    wire: Wire = Wire.PLAIN
    nullable: bool = True
    default: str | None = None
    default_is_expression: bool = False


class SchemaOrigin(StrEnum):
    """Where a schema was learnt."""

    EVENT = "event"
    """The schema that JSON events carry."""
    TABLE_CHANGE = "table-change"
    """The source's own definition, from the schema-change topic."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns in the source's order and the names of the key columns (empty: no key)."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def column(self, name: str) -> Column | None:
        """The column called `name`, or None."""
        return next((c for c in self.columns if c.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key columns in key order.

        Raises:
            KeyError: a key names a column that does not exist.
        """
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[name] for name in self.key)
