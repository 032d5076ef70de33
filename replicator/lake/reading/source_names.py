"""The tables of the source by the names that the lake has.

They differ in letter case only, and only if the source ignores it (`lower_case_table_names`): events have the spelling
of the statement that created a table, and information_schema may have another one.
"""

from pyiceberg.exceptions import NoSuchNamespaceError

from replicator.config import Config
from replicator.errors import LakeUnavailable
from replicator.lake.reading.reader import open_catalog
from replicator.model.table import TableId
from replicator.sources.mysql.tables import ignores_case, included_tables


def mirrored_tables(config: Config) -> list[TableId]:
    """Return the tables that the source has and the mirror includes.

    Raises:
        SourceError: the source cannot be queried.
    """
    tables = included_tables(config)
    if not ignores_case(config):
        return tables
    try:
        with open_catalog(config.lake) as catalog:
            names = [str(identifier[-1]) for identifier in catalog.list_tables(config.lake.namespace)]
    except (NoSuchNamespaceError, LakeUnavailable):
        return tables
    spelt = {name.casefold(): name for name in names}
    return [TableId(table.database, spelt.get(table.name.casefold(), table.name)) for table in tables]
