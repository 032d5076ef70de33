"""What is compared of a table: its columns, its key, and how its rows are divided into chunks."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import takewhile

from sqlalchemy import Connection

from replicator.config import Config
from replicator.config.column_rules import ColumnRuleBook
from replicator.errors import SchemaError, SourceError
from replicator.model.column_rules import Exclude
from replicator.model.table import SourceName, TableId, lake_names
from replicator.schema.types.table import Form
from replicator.sources.mysql.definitions import read_primary_key
from replicator.sources.mysql.table_rows import KeyColumn, SourceTable, describe, unique_key
from replicator.verify.canonical import ComparedColumn, compared_column, hashed_column


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A source table as it is compared.

    Attributes:
        columns: the columns that are compared, in the source's order.
        key: those of them that identify a row; empty if rows are compared as a whole.
        ranges: the first columns of the index by which the source is read in order, as far as both sides order them
            alike.
        excluded: columns of the source that the mirror does not have, by column rules.
        masked: columns of which the mirror has other values, by column rules; they are not compared.
        declared_key: the lake's names of all columns that identify a row in the source.
    """

    source: SourceTable
    columns: tuple[ComparedColumn, ...]
    key: tuple[ComparedColumn, ...]
    ranges: tuple[ComparedColumn, ...]
    excluded: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    declared_key: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the source table, ``database.table``."""
        return str(self.source.table)

    @property
    def range_key(self) -> tuple[KeyColumn, ...]:
        """The columns `ranges` in the source."""
        return self.source.key[: len(self.ranges)]

    def last_key(self, first: int) -> tuple[int | bytes, ...]:
        """Return the greatest possible key of `ranges` that begins with the integer `first`."""
        return (first, *(_greatest(column) for column in self.ranges[1:]))

    @property
    def hashed(self) -> tuple[ComparedColumn, ...]:
        """The columns by which rows are hashed: in faster forms if the rows have a key."""
        return tuple(map(hashed_column, self.columns)) if self.key else self.columns

    @property
    def is_distinct(self) -> bool:
        """Whether all rows of the source differ, because a key that is compared tells them apart."""
        return bool(self.key)

    def in_lake(self, names: Collection[str]) -> "ComparedTable":
        """Return the table with only those columns that the lake has; `names` are all columns there.

        Raises:
            SchemaError: the lake has none of them.
        """
        if all(c.lake in names for c in self.columns):
            return self
        columns = tuple(c for c in self.columns if c.lake in names)
        if not columns:
            raise SchemaError(f"the mirror of {self.name} has no column of the source")
        key = self.key if set(self.key) <= set(columns) else ()
        ranges = tuple(takewhile(lambda c: c.lake in names, self.ranges))
        return replace(self, columns=columns, key=key, ranges=ranges)

    @property
    def identity(self) -> tuple[ComparedColumn, ...]:
        """The columns that identify a row: the key, or else all whose equal values have equal forms."""
        exact = tuple(column for column in self.columns if column.form is not Form.JSON)
        return self.key or exact or self.columns


def _greatest(column: ComparedColumn) -> int | bytes:
    if column.width is not None:
        return b"\xff" * column.width
    return (1 << 64) - 1 if column.is_unsigned else (1 << 63) - 1


def compared_table(
    connection: Connection,
    config: Config,
    rules: ColumnRuleBook,
    table: TableId,
    mirror_key: Collection[str] = (),
) -> ComparedTable:
    """Describe a table of the source.

    Without a configured or a primary key, its rows are identified by the columns `mirror_key` of the lake, if the
    source has a unique key of these columns.

    Raises:
        SourceError: there is no such table, or no column of it can be compared.
    """
    key = config.table(str(table)).key or read_primary_key(connection, table)
    source = describe(connection, table, key)
    if source is None:
        raise SourceError(f"the source has no table {table}")
    own = rules.of(str(table))
    names = lake_names(c.column.name for c in source.columns)
    if not key and mirror_key:
        wanted = [
            c.column.name
            for c in source.columns
            if names[c.column.name] in mirror_key and not c.column.nullable
        ]
        if len(wanted) == len(mirror_key):
            key = unique_key(connection, table, wanted)
            source = describe(connection, table, key) or source
    excluded, masked, columns = [], [], []
    for found in source.columns:
        name = found.column.name
        rule = own.rule((SourceName(name, name),))
        if isinstance(rule, Exclude):
            excluded.append(name)
        elif rule is not None:
            masked.append(name)
        else:
            columns.append(compared_column(found, names[name]))
    if not columns:
        raise SourceError(f"all columns of {table} are masked or excluded, so there is nothing to compare")
    by_name = {c.source: c for c in columns}
    keys = tuple(by_name[name] for name in key) if set(key) <= by_name.keys() else ()
    return ComparedTable(
        source,
        tuple(columns),
        keys,
        _ranges(source, by_name),
        tuple(excluded),
        tuple(masked),
        tuple(names[name] for name in key),
    )


def _ranges(source: SourceTable, columns: dict[str, ComparedColumn]) -> tuple[ComparedColumn, ...]:
    found: list[ComparedColumn] = []
    for key in source.key:
        column = columns.get(key.name)
        if column is None or not column.is_ordered:
            break
        found.append(column)
    return tuple(found)
