"""Recognize why a connector failed, if the mirror can do something about it. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from replicator.model.table import TableId

_STATEMENT: Final = re.compile(r"cannot parse a statement: ")
_UNREADABLE: Final = re.compile(r"Unable to open underlying table")
_VALUE: Final = re.compile(r"Error while deserializing binlog data of ")
_ROW_SIZE: Final = re.compile(
    r"Error processing row in (?P<name>.+?), internal schema size (\d+), but row size (\d+)"
)
_UNKNOWN: Final = re.compile(r"change event for table (?P<name>.+?) whose schema isn't known")
_TABLE: Final = (
    _ROW_SIZE,
    _UNKNOWN,
    re.compile(r"Failed to (properly convert data|set field default) value for '(?P<column>.+?)' of type"),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a connector.

    Attributes:
        reason: as the connector tells it.
        name: the table whose event it cannot process: `database.table`, or the name alone. None if there is none.
        column: the same as `database.table.column`, of whose type the connector cannot convert values.
    """

    reason: str
    name: str | None = None
    column: str | None = None

    @property
    def is_of_statement(self) -> bool:
        """Whether the connector cannot parse a statement."""
        return _STATEMENT.search(self.reason) is not None

    @property
    def is_of_unreadable_table(self) -> bool:
        """Whether the connector cannot read the definition of a MERGE table, of any database."""
        return is_unreadable(self.reason)

    @property
    def is_of_value(self) -> bool:
        """Whether the connector cannot read a value, such as the date 2024-02-31, in a row of any database."""
        return _VALUE.search(self.reason) is not None

    def tables(self, known: Collection[TableId]) -> list[TableId]:
        """Return those of the `known` tables that may be the one whose event cannot be processed."""
        return [table for table in known if self._may_be(table)]

    def gone_tables(self, databases: Collection[str]) -> list[TableId]:
        """Return the same for tables of these databases that exist no longer, under this name."""
        named = self.name if self.column is None else self.column.rpartition(".")[0]
        if named is None:
            return []
        full = [TableId(d, named.removeprefix(f"{d}.")) for d in databases if named.startswith(f"{d}.")]
        return full or [TableId(database, named) for database in databases]

    def _may_be(self, table: TableId) -> bool:
        if self.column is not None:
            return self.column.startswith(f"{table}.")
        return self.name in (table.name, str(table))

    def explain(self, table: TableId) -> tuple[str, str]:
        """Return why the connector cannot send the events of a table, and the next step."""
        if self.is_of_unreadable_table:
            reason, first = f"{table} is a MERGE table that MySQL cannot open", f"repair or drop {table}"
        elif (found := _ROW_SIZE.search(self.reason)) is not None:
            reason = (
                f"an event of {table} has {found[3]} columns instead of {found[2]}: a session has "
                "binlog_row_image = MINIMAL or NOBLOB, or the definition is not the source's"
            )
            first = f"set binlog_row_image = FULL where {table} is changed"
        elif _UNKNOWN.search(self.reason) is not None:
            reason = (
                f"the connector has no definition of {table}: it could not read a statement that created it"
            )
            first = f"create {table} without ANSI_QUOTES or other SQL modes"
        else:
            reason = f"the connector cannot send an event of {table}: {self.reason}"
            first = f"change the type of the column, or exclude {table} from source.tables"
        return reason, f"{first}; then run: replicator heal {table}"


def is_unreadable(reason: str) -> bool:
    """Return whether a connector failed for a MERGE table that lacks its tables. MySQL does not tell which it is."""
    return _UNREADABLE.search(reason) is not None


def failure_in(reason: str) -> Failure | None:
    """Return what a connector's reason tells; None if it is none of these failures."""
    if any(pattern.search(reason) is not None for pattern in (_STATEMENT, _UNREADABLE, _VALUE)):
        return Failure(reason)
    for pattern in _TABLE:
        if (found := pattern.search(reason)) is not None:
            groups = found.groupdict()
            return Failure(reason, groups.get("name"), groups.get("column"))
    return None
