"""Query MySQL, the connector and Kafka about a mirror's source, in an order that gives a consistent statement.

First the end of the binlog, then the connector's position, then the ends of the topics: if the connector has read
up to the end of the binlog, all changes up to there are before the ends of the topics.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, text

from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, LogError, ReplicatorError
from replicator.model.binlog import ConnectorOffset
from replicator.model.common import quoted
from replicator.model.table import TableId, topic_name
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.policy import MISSING, UNREACHABLE, Observation
from replicator.sources.connector.settings import connect_client
from replicator.sources.kafka.admin import QUICK_S, KafkaAdmin
from replicator.sources.mysql.connection import connect, read_binlog_end
from replicator.sources.mysql.tables import tables_in_source
from replicator.sources.source_view import Ends, SourceView

_SLOW_S: Final = 30
_LOOKED_AT: Final = 200
"""At most this many tables without events are queried for rows."""


def read_servers(config: Config, log: KafkaLog, kafka_timeout_s: float | None) -> SourceView:
    """Query all servers. A server that cannot be reached is recorded and raises no error."""
    client, prefix = connect_client(config), log.topic_prefix
    if client is None:
        return _with_log(SourceView(""), log, kafka_timeout_s)
    view = SourceView("", is_asked=True)
    try:
        with connect(config.source, read_timeout=_SLOW_S) as connection:
            view = replace(view, end=read_binlog_end(connection))
            tables = tables_in_source(connection, config)
            view = _with_log(_with_connector(view, client, prefix), log, kafka_timeout_s)
            return _with_missing(view, connection, tables)
    except (ReplicatorError, ValueError) as error:
        problem = error.message if isinstance(error, ReplicatorError) else str(error)
        view = replace(view, source_problem=problem)
    return _with_log(_with_connector(view, client, prefix), log, kafka_timeout_s)


def _with_connector(view: SourceView, client: KafkaConnect, topic_prefix: str) -> SourceView:
    try:
        found = client.find(topic_prefix)
        if found is None:
            return replace(view, connector=Observation(MISSING))
        view = replace(view, connector=Observation.of(found.state))
        offset = client.offset(found.name)
        return replace(view, offset=None if offset is None else ConnectorOffset.from_json(offset))
    except ConnectError as error:
        return replace(view, connector=Observation(UNREACHABLE, error.message))
    except ValueError:
        return view


def _with_log(view: SourceView, log: KafkaLog, kafka_timeout_s: float | None) -> SourceView:
    view = replace(view, prefix=f"{log.topic_prefix}.")
    try:
        return replace(view, ends=_kafka_ends(log, kafka_timeout_s))
    except LogError as error:
        return replace(view, log_problem=error.message)


def _kafka_ends(log: KafkaLog, timeout_s: float | None) -> Ends:
    admin = KafkaAdmin(log, timeout_s=timeout_s or QUICK_S)
    topics = {name: ps for name, ps in admin.partitions().items() if name.startswith(f"{log.topic_prefix}.")}
    return admin.end_offsets((name, partition) for name, ps in topics.items() for partition in ps)


def _with_missing(view: SourceView, connection: Connection, tables: Sequence[TableId]) -> SourceView:
    """Classify tables without events as empty or unread: a snapshot creates no topic for an empty table."""
    if view.ends is None:
        return view
    written = {topic for (topic, _), end in view.ends.items() if end > 0}
    empty: list[str] = []
    unread: list[str] = []
    missing = [t for t in tables if view.prefix + topic_name(t) not in written]
    for table in missing[:_LOOKED_AT]:
        has_rows = connection.scalar(
            text(f"SELECT EXISTS (SELECT 1 FROM {_escaped(table.database, table.name)})")
        )
        (unread if has_rows else empty).append(str(table))
    return replace(view, empty=tuple(empty), unread=tuple(unread))


def _escaped(*names: str) -> str:
    """Quote a name for SQL text in which a colon starts a parameter."""
    return quoted(*names).replace(":", "\\:")
