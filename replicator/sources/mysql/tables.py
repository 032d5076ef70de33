"""List the tables of the source."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, text

from replicator.config import Config
from replicator.errors import UsageError
from replicator.model.common import matches
from replicator.model.table import TableId
from replicator.sources.mysql.connection import connect


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
    rows = connection.execute(
        text("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'")
    )
    found = sorted(TableId(str(database), str(name)) for database, name in rows)
    return [table for table in found if config.includes(str(table))]


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
