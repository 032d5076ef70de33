"""The report of a rebuild."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was, or would be, rebuilt.

    Attributes:
        source: the source table, `database.table`.
        table: the rebuilt lake table, with its namespace.
        rows: number of its rows.
        rows_before: number of rows of the mirror before; None if there was none, and for another namespace.
        position: the position up to which changes count.
        newest: the position of the newest change in the changelog; None without any.
        changed: whether the table was written.
        reached: whether the changelog certainly has all changes up to the position: it has a later one.
    """

    source: str
    table: str
    rows: int
    rows_before: int | None
    position: str | None
    newest: str | None
    changed: bool
    reached: bool = True
