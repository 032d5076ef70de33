"""Notice tables that the configuration includes again after it had left them out.

The connector may have left them out too. Then no topic has their changes from that time, and only the source does.
The same is true of a table whose lost events an earlier version let the connector send again, and that never got them.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from replicator.batch import MirrorContext
from replicator.lake.properties import LEFT_OUT_KEY, REWIND_KEY
from replicator.model.common import now_ms
from replicator.model.recorded import reading, record_in
from replicator.model.table import SOURCE_KEY, TableId

LEFT_OUT: Final = "it was left out of the configuration for some time, so its topic may lack changes"
SENT_AGAIN: Final = (
    "an earlier version let the connector send lost events of it again, and may not have completed that"
)
_ENDED: Final = ("done", "failed")
"""What an earlier version recorded of events that were sent again, or of a table that was read again instead."""


class LeftOutTables:
    """The tables of the lake that the configuration leaves out, as recorded in the lake.

    All methods may raise LakeUnavailable.
    """

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._returned: dict[str, TableId] = {}
        self._recorded = False

    def returned(self) -> dict[TableId, str]:
        """Return the tables that must be read again, sorted → why."""
        config = self._context.config
        properties = self._context.lake.namespace_properties(config.lake.ops_namespace)
        found = {key: _table(text) for key, text in properties.items() if key.startswith(LEFT_OUT_KEY)}
        found |= {key: _table(text) for key, text in properties.items() if _lacks_events(key, text)}
        self._returned = {key: table for key, table in found.items() if config.includes(str(table))}
        keys = {table: key for key, table in self._returned.items()}
        return {t: LEFT_OUT if keys[t].startswith(LEFT_OUT_KEY) else SENT_AGAIN for t in sorted(keys)}

    def forget(self, table: TableId) -> None:
        """Remove the record of a table that was read again."""
        for key in [key for key, returned in self._returned.items() if returned == table]:
            self._set(key, None)
            del self._returned[key]

    def record(self) -> None:
        """Record the tables of the lake that the configuration leaves out, once. The ledger must know all others."""
        if self._recorded:
            return
        properties = self._context.lake.namespace_properties(self._context.config.lake.ops_namespace)
        for table in self._left_out():
            if LEFT_OUT_KEY + str(table) not in properties:
                value = {"database": table.database, "name": table.name, "since_ms": now_ms()}
                self._set(LEFT_OUT_KEY + str(table), json.dumps(value))
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

    def _set(self, key: str, value: str | None) -> None:
        self._context.lake.set_namespace_property(self._context.config.lake.ops_namespace, key, value)


def _lacks_events(key: str, text: str) -> bool:
    """Return whether a property says that lost events of a table were being sent again."""
    if key.startswith(REWIND_KEY):
        with suppress(ValueError, KeyError):
            value = record_in(text)
            return bool(value["database"] and value["name"]) and value["phase"] not in _ENDED
    return False


def _table(text: str) -> TableId:
    with reading("the record of a table that is left out"):
        value = record_in(text)
        return TableId(str(value["database"]), str(value["name"]))
