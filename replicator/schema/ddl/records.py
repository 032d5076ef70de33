"""The statement of one record of the schema-change topic, which may define thousands of tables.

What follows a semicolon is in the body of a routine or an event, and was not executed.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from replicator.model.table import TableId
from replicator.schema.ddl.keys import index_statements
from replicator.schema.ddl.rows import changes_collation, generated_columns
from replicator.schema.ddl.tables import Statement, computed_columns, named_tables, parse, rename_origins


class RecordStatements:
    """The statement of a DDL text, as a list; None has none."""

    def __init__(self, ddl: str | None) -> None:
        self.all = parse(ddl)[:1]
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
    def _names(self) -> frozenset[str]:
        names = {name.table.casefold() for statement in self.all for name in named_tables(statement)}
        # Debezium 3.6 omits the word CREATE in the statement of a unique index.
        return frozenset(names | {table.name.casefold() for table, _ in index_statements(self.all, "")})

    def of(self, table: TableId) -> Sequence[Statement]:
        """Return the statement if it names a table of this name, of any database, as the old or the new one."""
        return self.all if table.name.casefold() in self._names else ()

    def renamed_from(self, table: TableId) -> TableId | None:
        """Return the name that `table` had before the statements; None if they do not rename it."""
        if table.database not in self._origins:
            self._origins[table.database] = rename_origins(self.all, table.database)
        found = self._origins[table.database].get(str(table).casefold())
        return None if found == table else found


_ENDS: Final = ("_gho", "_new")
_LONGEST_NAME: Final = 64
"""Maximum length of a table's name in MySQL, to which the tools shorten the table's name within the copy's."""


def is_copy_of(other: TableId, table: TableId) -> bool:
    """Return whether a tool has made `other` as a copy of `table`, judging by its name.

    The names are `_orders_gho` and `_orders_new`; pt-online-schema-change adds underscores in front if the name is not
    free. The tools' other helper tables, such as `_orders_old`, have other rows.
    """
    name, original = other.name.casefold(), table.name.casefold()
    end = next((end for end in _ENDS if name.endswith(end)), None)
    if end is None or not name.startswith("_") or other.database.casefold() != table.database.casefold():
        return False
    middle = name.removesuffix(end)
    # The table's own name may begin with underscores too.
    candidates = (middle[count:] for count in range(1, len(middle)) if set(middle[:count]) == {"_"})
    is_short = len(other.name) >= _LONGEST_NAME
    return any(c == original or (is_short and original.startswith(c)) for c in candidates)
