"""Names and schemas of source tables."""

from collections.abc import Iterable
from dataclasses import dataclass

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
        fill: what the source puts into rows that are already there when the column is added, as text;
            None: NULL. MySQL fills NOT NULL columns without a default too, with 0 or ''.
        fill_unknown: the source fills by an expression (``CURRENT_TIMESTAMP``), whose value no event tells.
        respelt: ENUM labels that events may write differently, as (in the event, in the source).
    """

    name: str
    type: LakeType
    wire: Wire = Wire.PLAIN
    nullable: bool = True
    fill: str | None = None
    fill_unknown: bool = False
    respelt: tuple[tuple[str, str], ...] = ()


def respelt_labels(labels: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The labels of an ENUM that streamed events write with a backslash before each comma, which snapshots do not."""
    return tuple((label.replace(",", "\\,"), label) for label in labels if "," in label)


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
