"""Names and schemas of source tables."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from replicator.model.transforms import ColumnTransform
from replicator.model.types import Encoding, LakeType

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
"""Names of Iceberg's metadata columns; Iceberg refuses to read a table that has a column with one of these names."""


SOURCE_KEY: Final = "replicator.source-table"
"""Table property: the source table, `database.table`."""
RESULT_KEY: Final = "replicator.pipeline"
"""Table property of the result of a pipeline, and of its changelog: what the newest refresh recorded."""
RESULT_STATE: Final = "_state"
"""Column of the result of a pipeline, and of its changelog, that readers do not get: the state of groups."""
LOG_TOPIC_KEY: Final = "replicator.log-topic"
"""Table property of a log table: the topic whose events are appended to it."""
LOG_UNNUMBERED_KEY: Final = "replicator.log-unnumbered"
"""Table property of a log table whose rows partition and offset do not tell apart: not all have them, or some twice."""
MIRROR_KEY: Final = "replicator.mirror"
"""Table property: the name of the mirror that created the table."""


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A source table, ``database.name``; either part may contain a dot."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class SourceName:
    """A column's name in the source, to which column rules apply.

    Attributes:
        name: the name; if it is unknown, the one that events use.
        in_events: the name that events use.
        known: whether `name` is known to be the source's.
    """

    name: str
    in_events: str
    known: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a source table as it is decoded and stored.

    Attributes:
        name: the source's name; a `RESERVED` one has an underscore appended (`lake_names`).
        type: the type in the lake.
        encoding: how events write the value.
        nullable: whether the source allows NULL.
        fill: the value, as text, that the source writes to existing rows when the column is added; None for NULL. MySQL
            fills NOT NULL columns without a default too, with 0 or ''.
        fill_unknown: whether the source fills existing rows by an expression (``CURRENT_TIMESTAMP``), whose value no
            event contains.
        respelt: ENUM and SET labels that events may write differently, as (in the event, in the source).
        renamed_from: the name that events use, if it differs from `name`.
        size: fraction digits of a DECIMAL that is stored as text; length in bytes to which `Encoding.LATIN1` is padded.
        transform: the transform of each value before it is written; `type` is the type after it.
        source: the source's name when the events were written, if events use another one (Avro).
        source_known: whether the source's name is known; if not, Avro may have changed it.
    """

    name: str
    type: LakeType
    encoding: Encoding = Encoding.PLAIN
    nullable: bool = True
    fill: str | None = None
    fill_unknown: bool = False
    respelt: tuple[tuple[str, str], ...] = ()
    renamed_from: str | None = None
    size: int | None = None
    transform: ColumnTransform | None = None
    source: str | None = None
    source_known: bool = True

    @property
    def written(self) -> str:
        """The column's name in events."""
        return self.renamed_from or self.name

    @property
    def source_name(self) -> SourceName:
        """The column's name in the source when the events were written."""
        return SourceName(self.source or self.written, self.written, self.source_known)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns in the source's order and the names of the key columns (empty if there is no key).

    `left_out` are the source columns that column rules exclude.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def column(self, name: str) -> Column | None:
        """Return the column named `name`, or None."""
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
        """Return the schema with another key; `names` are column names in the source."""
        in_lake = {c.source_name.name: c.name for c in self.columns}
        return replace(self, key=tuple(in_lake.get(name, name) for name in names))

    def with_wire(self, names: Iterable[str], encoding: Encoding) -> "TableSchema":
        """Return the schema with another encoding for the columns named `names`."""
        chosen = set(names)
        return replace(
            self,
            columns=tuple(replace(c, encoding=encoding) if c.name in chosen else c for c in self.columns),
        )

    def without_reserved(self) -> "TableSchema":
        """Return the schema with every `RESERVED` name replaced by its name in the lake."""
        if not RESERVED.intersection(self.names):
            return self
        names = lake_names(self.names)
        columns = tuple(
            replace(c, name=names[c.name], renamed_from=c.written) if c.name in RESERVED else c
            for c in self.columns
        )
        return TableSchema(columns, tuple(names.get(name, name) for name in self.key))


def topic_name(table: TableId) -> str:
    """Return the name of the table's topic without the prefix; Debezium replaces characters unfit for Kafka by `_`."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", str(table))


def lake_names(names: Iterable[str]) -> dict[str, str]:
    """Return column name in the source → name in the lake, for all columns of a table; `RESERVED` names differ."""
    taken = set(found := tuple(names))
    return {name: _free(name, taken) if name in RESERVED else name for name in found}


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
