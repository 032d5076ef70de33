"""Finds the tables of the lake that have no topic: they were read from the source, and had no event since.

They follow statements like all others. Without a topic, nothing else would name them.
"""

from collections.abc import Iterator, Mapping

from replicator.batch import MirrorContext
from replicator.model.table import SOURCE_KEY, TableId, topic_name
from replicator.sources.change_log import Offsets


class SilentTables:
    """The tables of the lake without a topic."""

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._are_loaded = False

    def topics(self, ends: Offsets) -> dict[str, Mapping[int, int]]:
        """Return the topics that the silent tables will get, without partitions; `ends` are those that exist.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        context = self._context
        if not context.log.grows or not context.config.can_read_source:
            return {}
        if not self._are_loaded:
            context.ledger.load(list(self._unknown()))
            self._are_loaded = True
        found: dict[str, Mapping[int, int]] = {}
        for table in context.ledger.tables:
            topic = f"{context.log.topic_prefix}.{topic_name(table)}"
            if topic not in ends and context.ledger.progress(table).topics:
                found[topic] = {}
        return found

    def _unknown(self) -> Iterator[TableId]:
        """Yield the tables of this mirror in the lake whose markers were not read yet."""
        context, namespace = self._context, self._context.config.lake.namespace
        known = {table.name for table in context.ledger.tables if context.ledger.progress(table).topics}
        for name in context.lake.tables(namespace):
            found = None if name in known else context.lake.load(namespace, name)
            marker = None if found is None else found.marker()
            source = None if found is None else found.property(SOURCE_KEY)
            if marker is not None and source is not None and marker.mirror == context.config.mirror.name:
                database = source.removesuffix(f".{name}")
                if database != source and context.config.includes(source):
                    yield TableId(database, name)
