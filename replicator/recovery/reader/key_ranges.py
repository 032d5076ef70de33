"""Divide a table into ranges of its key that have about the same number of rows."""

from dataclasses import dataclass
from typing import Final, Self

from sqlalchemy import Connection

from replicator.sources.mysql.table_rows import Boundary, SourceTable

_DENSE: Final = 0.5
"""If at least this part of the integers between the first and the last key are keys, they are not counted."""


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Finds where the next range of keys ends.

    Attributes:
        last: the greatest key when reading began.
        rows: number of rows of a range at most.
        first: the smallest key, of a table whose keys are so dense integers that ranges of `rows` integers are divided
            well; None if the index must be walked.
    """

    table: SourceTable
    last: Boundary
    rows: int
    first: int | None = None

    @classmethod
    def of(cls, connection: Connection, table: SourceTable, last: Boundary, rows: int) -> Self:
        """Return the ranges of a table that has rows."""
        counts = table.has_integer_key and table.narrowed is None
        found = first_row(connection, table.first_query) if counts else None
        first = None if found is None else int(found[0])
        dense = first is not None and table.rows >= _DENSE * (int(last[0]) - first)
        return cls(table, last, rows, first if dense else None)

    def end(self, connection: Connection, after: Boundary | None) -> Boundary:
        """Return the greatest key of the range after `after`; None is the beginning of the table."""
        if self.first is None:
            found = first_row(connection, self.table.boundary_query(after, self.last, self.rows))
            return self.last if found is None else found
        end = (self.first - 1 if after is None else int(after[0])) + self.rows
        # The text of a key may have zeros at its beginning.
        return self.last if end >= int(self.last[0]) else (str(end),)


def first_row(connection: Connection, query: str) -> Boundary | None:
    """Return the values of the first row as text; None if there is no row."""
    # Without this option, SQLAlchemy would take a percent sign in a name for a parameter.
    row = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).first()
    return None if row is None else tuple(_text(value) for value in row)


def _text(value: object) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
