"""List the tables of the source, and those that a statement or a foreign key may change besides."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, text

from replicator.config import Config
from replicator.errors import UsageError
from replicator.model.common import matches
from replicator.model.table import TableId
from replicator.schema.ddl.dml import ChangedTables
from replicator.sources.binlog.deviations import Cascade, changed_children
from replicator.sources.mysql.connection import asked, connect, tables_for


def included_tables(config: Config) -> list[TableId]:
    """Return the tables that the source has and the mirror includes.

    Raises:
        SourceError: the source cannot be queried.
    """
    with connect(config.source) as connection:
        return tables_in_source(connection, config)


def ignores_case(config: Config) -> bool:
    """Return whether the source ignores the letter case of table names.

    Raises:
        SourceError: the source cannot be queried.
    """
    with connect(config.source) as connection:
        return bool(connection.scalar(text("SELECT @@lower_case_table_names")))


def merge_tables(config: Config) -> list[TableId]:
    """Return the MERGE tables that the source has and the mirror includes.

    Raises:
        SourceError: the source cannot be queried.
    """
    query = text(
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE' AND engine = 'MRG_MYISAM'"
    )
    with connect(config.source) as connection:
        found = [TableId(str(database), str(name)) for database, name in connection.execute(query)]
    return [table for table in found if config.includes(str(table))]


def tables_in_source(connection: Connection, config: Config) -> list[TableId]:
    """Return the tables that the source has and the mirror includes."""
    return tables_for(config, asked(connection))


def selected_tables(tables: Sequence[TableId], patterns: Collection[str]) -> list[TableId]:
    """Return those of the mirrored tables that a pattern matches, or all without patterns.

    Raises:
        UsageError: a pattern matches no table.
    """
    for pattern in patterns:
        if not any(matches(str(table), (pattern,)) for table in tables):
            raise UsageError(
                f'"{pattern}" matches no table of the source that is mirrored',
                "check source.tables and the name",
            )
    return [table for table in tables if not patterns or matches(str(table), patterns)]


_CASCADES: Final = text(
    "SELECT unique_constraint_schema, referenced_table_name, constraint_schema, table_name, delete_rule, update_rule "
    "FROM information_schema.referential_constraints "
    "WHERE NOT (delete_rule IN ('RESTRICT', 'NO ACTION') AND update_rule IN ('RESTRICT', 'NO ACTION'))"
)
_NO_ACTION: Final = ("RESTRICT", "NO ACTION")


def read_cascades(connection: Connection) -> frozenset[Cascade]:
    """Return the foreign keys with an action, as far as the account sees them. Raises SourceError."""
    return frozenset(
        Cascade(
            TableId(str(parent_database), str(parent)),
            TableId(str(database), str(child)),
            on_delete=on_delete not in _NO_ACTION,
            on_update=on_update not in _NO_ACTION,
            deletes=on_delete == "CASCADE",
        )
        for parent_database, parent, database, child, on_delete, on_update in connection.execute(_CASCADES)
    )


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
