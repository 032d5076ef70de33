"""List the tables of the source."""

from sqlalchemy import Connection, text

from replicator.config import Config
from replicator.model.table import TableId
from replicator.sources.mysql.connection import connect


def included_tables(config: Config) -> list[TableId]:
    """Return the tables that the source has and the mirror includes.

    Raises:
        SourceError: the source cannot be queried.
    """
    with connect(config.source) as connection:
        return tables_in_source(connection, config)


def tables_in_source(connection: Connection, config: Config) -> list[TableId]:
    """Return the tables that the source has and the mirror includes."""
    rows = connection.execute(
        text("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'")
    )
    found = sorted(TableId(str(database), str(name)) for database, name in rows)
    return [table for table in found if config.includes(str(table))]
