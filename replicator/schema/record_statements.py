"""The statements of one record of the schema-change topic, read once and found by the table that they name.

A record may define thousands of tables, and its text may have thousands of statements: those in the body of a routine.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from replicator.model.table import TableId
from replicator.schema.key_ddl import index_statements
from replicator.schema.mysql_ddl import Statement, computed_columns, named_tables, parse, rename_origins
from replicator.schema.unlogged_ddl import changes_collation, generated_columns


class RecordStatements:
    """The statements of a DDL text; None has none."""

    def __init__(self, ddl: str | None) -> None:
        self.all = parse(ddl)
        self._origins: dict[str, dict[str, TableId]] = {}

    @cached_property
    def computed(self) -> frozenset[str]:
        """See `computed_columns`."""
        return computed_columns(self.all)

    @cached_property
    def generated(self) -> dict[str, bool]:
        """See `generated_columns`."""
        return generated_columns(self.all)

    @cached_property
    def recollated(self) -> bool:
        """See `changes_collation`."""
        return changes_collation(self.all)

    @cached_property
    def _by_name(self) -> dict[str, list[Statement]]:
        found: dict[str, list[Statement]] = defaultdict(list)
        for statement in self.all:
            names = {name.table.casefold() for name in named_tables(statement)}
            # Debezium 3.6 omits the word CREATE in the statement of a unique index.
            names.update(table.name.casefold() for table, _ in index_statements([statement], ""))
            for name in names:
                found[name].append(statement)
        return found

    def of(self, table: TableId) -> Sequence[Statement]:
        """Return the statements that name a table of this name, of any database, as the old or the new one."""
        return self._by_name.get(table.name.casefold(), ())

    def renamed_from(self, table: TableId) -> TableId | None:
        """Return the name that `table` had before the statements; None if they do not rename it."""
        if table.database not in self._origins:
            self._origins[table.database] = rename_origins(self.all, table.database)
        found = self._origins[table.database].get(str(table).casefold())
        return None if found == table else found
