"""Read the foreign keys through which changes of one table change rows of another."""

from typing import Final

from sqlalchemy import Connection, text

from replicator.model.table import TableId
from replicator.sources.binlog.cascades import Cascade

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
