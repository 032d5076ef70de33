"""Notice that the topics of a mirror have another prefix than before: they are those of another connector.

It began at another place than the last one ended. No topic has the changes in between.
"""

from typing import Final

from replicator.batch import MirrorContext
from replicator.errors import EventsWrong
from replicator.model.table import SOURCE_KEY, TableId
from replicator.runner.table_states import TableStates

TOPIC_PREFIX_KEY: Final = "replicator.topic-prefix"
"""The property of the `_ops` namespace that has the prefix of the topics."""


def notice_other_prefix(context: MirrorContext, tables: TableStates) -> None:
    """Pause all tables of the lake if the prefix is another one than before. Then they are healed as others are.

    It must be called before the first batch.

    Raises:
        LakeUnavailable: the catalog does not answer.
    """
    lake, ops, prefix = context.lake, context.config.lake.ops_namespace, context.log.topic_prefix
    known = lake.namespace_properties(ops).get(TOPIC_PREFIX_KEY)
    if known == prefix:
        return
    if known is not None:
        for table in _mirrored(context):
            reason = f"log.topic_prefix was {known}: no topic has the changes before the new connector began"
            tables.pause(table, EventsWrong(reason, f"read the table again: replicator heal {table}"))
    lake.set_namespace_property(ops, TOPIC_PREFIX_KEY, prefix)


def _mirrored(context: MirrorContext) -> list[TableId]:
    config, found = context.config, []
    for name in context.lake.tables(config.lake.namespace):
        table = context.lake.load(config.lake.namespace, name)
        marker = None if table is None else table.marker()
        source = None if table is None else table.property(SOURCE_KEY)
        if marker is None or source is None or marker.mirror != config.mirror.name:
            continue
        if source.endswith(f".{name}") and config.includes(source):
            found.append(TableId(source.removesuffix(f".{name}"), name))
    return found
