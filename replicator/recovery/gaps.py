"""Notice that the topics of a mirror lack changes of tables, which only the source has.

The configuration includes a table again after it had left it out: the connector may have left it out too. Or an earlier
version let the connector send lost events of a table again, and the table never got them. Or the topics have another
prefix than before: they are those of another connector, which began at another place than the last one ended.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

from replicator.batch import MirrorContext
from replicator.errors import EventsWrong
from replicator.lake.properties import LEFT_OUT_KEY, REWIND_KEY
from replicator.model.common import now_ms
from replicator.model.recorded import reading, record_in
from replicator.model.table import SOURCE_KEY, TableId
from replicator.recovery.request import Tables

LEFT_OUT: Final = "it was left out of the configuration for some time, so its topic may lack changes"
TOPIC_PREFIX_KEY: Final = "replicator.topic-prefix"
"""The property of the `_ops` namespace that has the prefix of the topics."""
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
        context = self._context
        for table in mirrors(context, {table.name for table in context.ledger.tables}):
            if not context.config.includes(str(table)):
                yield table

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


def notice_other_prefix(context: MirrorContext, tables: Tables) -> None:
    """Pause all tables of the lake if the topics have another prefix than before. Then they are healed as others are.

    It must be called before the first batch.

    Raises:
        LakeUnavailable: the catalog does not answer.
    """
    lake, ops, prefix = context.lake, context.config.lake.ops_namespace, context.log.topic_prefix
    known = lake.namespace_properties(ops).get(TOPIC_PREFIX_KEY)
    if known == prefix:
        return
    if known is not None:
        for table in mirrors(context):
            if context.config.includes(str(table)):
                reason = (
                    f"log.topic_prefix was {known}: no topic has the changes before the new connector began"
                )
                tables.pause(table, EventsWrong(reason, f"read the table again: replicator heal {table}"))
    lake.set_namespace_property(ops, TOPIC_PREFIX_KEY, prefix)


def mirrors(context: MirrorContext, known: Collection[str] = ()) -> Iterator[TableId]:
    """Yield the source tables of the mirror's tables in the lake, except those with a `known` name.

    Raises:
        LakeUnavailable: the catalog does not answer.
    """
    lake, config = context.lake, context.config
    for name in lake.tables(config.lake.namespace):
        table = None if name in known else lake.load(config.lake.namespace, name)
        marker = None if table is None else table.marker()
        source = None if table is None else table.property(SOURCE_KEY)
        if marker is None or source is None or marker.mirror != config.mirror.name:
            continue
        if source.endswith(f".{name}"):
            yield TableId(source.removesuffix(f".{name}"), name)
