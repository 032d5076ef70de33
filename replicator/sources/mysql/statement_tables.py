"""Find the tables that a statement may change besides those in its text: by triggers, functions and foreign keys."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, text

from replicator.model.table import TableId
from replicator.schema.dml import ChangedTables
from replicator.sources.binlog.cascades import changed_children
from replicator.sources.mysql.cascades import read_cascades

_FUNCTIONS: Final = text(
    "SELECT routine_schema, routine_name FROM information_schema.routines WHERE routine_type = 'FUNCTION'"
)
_TRIGGERS: Final = text(
    "SELECT DISTINCT event_object_schema, event_object_table FROM information_schema.triggers"
)


def changed_in_source(
    connection: Connection, changed: ChangedTables, mirrored: Sequence[TableId]
) -> list[TableId]:
    """Return those of `mirrored` that a statement, or a transaction of statements, may have changed.

    Triggers, functions and foreign keys are those that the source has now, as far as the account sees them. Each
    trigger, and each stored function, may change all tables of its database.
    """
    wider = replace(changed, databases=changed.databases | set(_called(connection, changed)))
    wider |= changed_children(read_cascades(connection), wider, wider)
    triggered = {
        TableId(str(database), str(name))
        for database, name in connection.execute(_TRIGGERS)
        if wider.may_have(TableId(str(database), str(name)))
    }
    wider = replace(wider, databases=wider.databases | {table.database for table in triggered})
    return [table for table in mirrored if wider.may_have(table)]


def _called(connection: Connection, changed: ChangedTables) -> Iterator[str]:
    """Yield the databases whose tables the functions that a statement calls may change."""
    if not changed.calls:
        return
    for database, name in connection.execute(_FUNCTIONS):
        if str(name).casefold() in changed.calls:
            yield str(database)
            yield from (table.database for table in changed.tables)
