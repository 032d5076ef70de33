"""Names and schemas of source tables."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from replicator.model.types import LakeType, Wire

if TYPE_CHECKING:
    from replicator.model.columns import Shield

RESERVED: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_content_offset",
        "_content_size_in_bytes",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "_row_id",
        "_last_updated_sequence_number",
    }
)
"""Columns that Iceberg has in every table; it refuses to read one that has a column called so itself."""


SOURCE_KEY: Final = "replicator.source-table"
"""Table property: the source table, `database.table`."""


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
        name: the source's name, unchanged, except for a `RESERVED` one, which gets an underscore at its end
            (`lake_names`).
        type: what the lake stores.
        wire: how the events write it.
        nullable: whether the source allows NULL.
        fill: what the source puts into rows that are already there when the column is added, as text;
            None: NULL. MySQL fills NOT NULL columns without a default too, with 0 or ''.
        fill_unknown: the source fills by an expression (``CURRENT_TIMESTAMP``), whose value no event tells.
        respelt: ENUM and SET labels that events may write differently, as (in the event, in the source).
        renamed_from: the source's name where `name` is another one.
        size: digits behind the point of a DECIMAL that is kept as text; bytes up to which `Wire.LATIN1` is padded.
        shield: what is done to each value before it is written; `type` is the type afterwards.
    """

    name: str
    type: LakeType
    wire: Wire = Wire.PLAIN
    nullable: bool = True
    fill: str | None = None
    fill_unknown: bool = False
    respelt: tuple[tuple[str, str], ...] = ()
    renamed_from: str | None = None
    size: int | None = None
    shield: "Shield | None" = None

    @property
    def written(self) -> str:
        """The name that events use."""
        return self.renamed_from or self.name


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns in the source's order and the names of the key columns (empty: no key).

    `left_out` are the source's columns that the configuration leaves out.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

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

    def with_key(self, names: Iterable[str]) -> "TableSchema":
        """The schema with another key; `names` are the source's."""
        in_lake = {c.written: c.name for c in self.columns}
        return replace(self, key=tuple(in_lake.get(name, name) for name in names))

    def with_wire(self, names: Iterable[str], wire: Wire) -> "TableSchema":
        """The schema with the columns called `names` written as `wire`."""
        chosen = set(names)
        return replace(
            self, columns=tuple(replace(c, wire=wire) if c.name in chosen else c for c in self.columns)
        )

    def without_reserved(self) -> "TableSchema":
        """The schema with every `RESERVED` name replaced by one that a lake table may have."""
        if not RESERVED.intersection(self.names):
            return self
        names = lake_names(self.names)
        columns = tuple(
            replace(c, name=names[c.name], renamed_from=c.written) if c.name in RESERVED else c
            for c in self.columns
        )
        return TableSchema(columns, tuple(names.get(name, name) for name in self.key))


def topic_name(table: TableId) -> str:
    """What Debezium calls the table's topic, without the prefix: an underscore for what Kafka does not allow."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", str(table))


def lake_names(names: Iterable[str]) -> dict[str, str]:
    """The source's names of all columns of a table → their names in the lake, which differ for `RESERVED` ones."""
    taken = set(found := tuple(names))
    return {name: _free(name, taken) if name in RESERVED else name for name in found}


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
