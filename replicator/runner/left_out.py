"""Notice tables that the configuration includes again after it had left them out.

The connector may have left them out too. Then no topic has their changes from that time, and only the source does.
"""

import json
from collections.abc import Iterator
from typing import Final

from replicator.batch import MirrorContext
from replicator.lake.properties import LEFT_OUT_KEY
from replicator.model.clock import now_ms
from replicator.model.recorded import reading, record_in
from replicator.model.table import SOURCE_KEY, TableId

LEFT_OUT: Final = "it was left out of the configuration for some time, so its topic may lack changes"


class LeftOutTables:
    """The tables of the lake that the configuration leaves out, as recorded in the lake.

    All methods may raise LakeUnavailable.
    """

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._returned: set[TableId] = set()
        self._recorded = False

    def returned(self) -> list[TableId]:
        """Return the recorded tables that the configuration includes again, sorted."""
        config = self._context.config
        properties = self._context.lake.namespace_properties(config.lake.ops_namespace)
        found = {_table(text) for key, text in properties.items() if key.startswith(LEFT_OUT_KEY)}
        self._returned = {table for table in found if config.includes(str(table))}
        return sorted(self._returned)

    def forget(self, table: TableId) -> None:
        """Remove the record of a table that was read again."""
        if table in self._returned:
            self._set(table, None)
            self._returned.discard(table)

    def record(self) -> None:
        """Record the tables of the lake that the configuration leaves out, once. The ledger must know all others."""
        if self._recorded:
            return
        properties = self._context.lake.namespace_properties(self._context.config.lake.ops_namespace)
        for table in self._left_out():
            if LEFT_OUT_KEY + str(table) not in properties:
                value = {"database": table.database, "name": table.name, "since_ms": now_ms()}
                self._set(table, json.dumps(value))
        self._recorded = True

    def _left_out(self) -> Iterator[TableId]:
        context, namespace = self._context, self._context.config.lake.namespace
        mirrored = {table.name for table in context.ledger.tables}
        for name in context.lake.tables(namespace):
            table = None if name in mirrored else context.lake.load(namespace, name)
            marker = None if table is None else table.marker()
            source = None if table is None else table.property(SOURCE_KEY)
            if marker is None or source is None or marker.mirror != context.config.mirror.name:
                continue
            if source.endswith(f".{name}") and not context.config.includes(source):
                yield TableId(source.removesuffix(f".{name}"), name)

    def _set(self, table: TableId, value: str | None) -> None:
        ops = self._context.config.lake.ops_namespace
        self._context.lake.set_namespace_property(ops, LEFT_OUT_KEY + str(table), value)


def _table(text: str) -> TableId:
    with reading("the record of a table that is left out"):
        value = record_in(text)
        return TableId(str(value["database"]), str(value["name"]))
