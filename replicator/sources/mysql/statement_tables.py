"""Find the tables that a statement may change besides those in its text: views, triggers, functions, foreign keys."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, text

from replicator.model.table import TableId
from replicator.schema.ddl.rows import ChangedTables
from replicator.sources.binlog.cascades import changed_children
from replicator.sources.mysql.cascades import read_cascades

_FUNCTIONS: Final = text(
    "SELECT routine_schema, routine_name FROM information_schema.routines WHERE routine_type = 'FUNCTION'"
)
_VIEWS: Final = text(
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW'"
)
_TABLES_OF_VIEWS: Final = text(
    "SELECT view_schema, view_name, table_schema, table_name FROM information_schema.view_table_usage"
)
_TRIGGERS: Final = text(
    "SELECT DISTINCT event_object_schema, event_object_table FROM information_schema.triggers"
)


def changed_in_source(
    connection: Connection, changed: ChangedTables, mirrored: Sequence[TableId]
) -> list[TableId]:
    """Return those of `mirrored` that a statement, or a transaction of statements, may have changed.

    Views, triggers, functions and foreign keys are those that the source has now, as far as the account sees them. Each
    trigger, and each stored function, may change all tables of its database.
    """
    wider = replace(changed, databases=changed.databases | set(_called(connection, changed)))
    wider = _with_tables_of_views(connection, wider)
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


def _with_tables_of_views(connection: Connection, changed: ChangedTables) -> ChangedTables:
    """Return `changed` with the tables of views in it, also of views of views.

    If the account may not see the tables of a view, all tables of the view's database are added. Other names add
    nothing: they may be temporary tables, or columns.
    """
    views = {TableId(str(database), str(name)) for database, name in connection.execute(_VIEWS)}
    if not any(map(changed.may_have, views)):
        return changed
    used: dict[TableId, set[TableId]] = defaultdict(set)
    for view_database, view, database, name in connection.execute(_TABLES_OF_VIEWS):
        used[TableId(str(view_database), str(view))].add(TableId(str(database), str(name)))
    wider, done = changed, set[TableId]()
    while fresh := {view for view in views - done if wider.may_have(view)}:
        done |= fresh
        tables = {table for view in fresh for table in used.get(view, ())}
        databases = {view.database for view in fresh if view not in used}
        wider |= ChangedTables(frozenset(tables), frozenset(databases))
    return wider
