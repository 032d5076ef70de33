"""Query MySQL, the connector and the log about a mirror's source, in an order that gives a consistent statement.

First the end of the binlog, then the connector's position, then the ends of the topics: if the connector has read
up to the end of the binlog, all changes up to there are before the ends of the topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, text

from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, LogError, ReplicatorError
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.common import quoted
from replicator.model.table import TableId, topic_name
from replicator.sources.archive import ArchiveReader, open_storage
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.policy import MISSING, UNREACHABLE, Observation
from replicator.sources.connector.settings import connect_client
from replicator.sources.kafka.admin import QUICK_S, KafkaAdmin
from replicator.sources.mysql.connection import connect, read_binlog_end
from replicator.sources.mysql.tables import tables_in_source

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) → the offset of the log's next event."""

_SLOW_S = 30
_LOOKED_AT = 200
"""At most this many tables without events are queried for rows."""


@dataclass(frozen=True, slots=True)
class SourceView:
    """The state of a mirror's source.

    Attributes:
        prefix: the topic prefix of the data topics.
        ends: the ends of the topics; None if the log cannot be reached.
        log_problem: the reason why it cannot be reached.
        is_asked: whether the source and the connector are queried; an archive has neither, and without the URL of
            Kafka Connect the connector's position is unknown.
        end: the end of the source's binlog; None if it cannot be reached.
        source_problem: the reason why it cannot be reached.
        connector: the connector's state.
        offset: the position up to which all changes are in the log.
        empty: mirrored tables without rows in the source and without events in the log.
        unread: mirrored tables with rows in the source but without events in the log.
    """

    prefix: str
    ends: Ends | None = None
    log_problem: str | None = None
    is_asked: bool = False
    end: BinlogEnd | None = None
    source_problem: str | None = None
    connector: Observation | None = None
    offset: ConnectorOffset | None = None
    empty: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def log_is_complete(self) -> bool | None:
        """Whether the log has all changes of the source; None if unknown."""
        if not self.is_asked:
            return True
        if self.end is None or self.offset is None:
            # A connector that never existed or never committed an offset has read nothing.
            known = self.connector is not None and self.connector.state != UNREACHABLE
            return False if known and self.end is not None else None
        return self.offset.covers(self.end)


def read_source(config: Config, *, kafka_timeout_s: float = QUICK_S) -> SourceView:
    """Query all servers. A server that cannot be reached is recorded and raises no error."""
    client = connect_client(config)
    if not isinstance(config.log, KafkaLog) or client is None:
        return _with_log(SourceView(""), config, kafka_timeout_s)
    prefix = config.log.topic_prefix
    view = SourceView("", is_asked=True)
    try:
        with connect(config.source, read_timeout=_SLOW_S) as connection:
            view = replace(view, end=read_binlog_end(connection))
            tables = tables_in_source(connection, config)
            view = _with_log(_with_connector(view, client, prefix), config, kafka_timeout_s)
            return _with_missing(view, connection, tables)
    except (ReplicatorError, ValueError) as error:
        problem = error.message if isinstance(error, ReplicatorError) else str(error)
        view = replace(view, source_problem=problem)
    return _with_log(_with_connector(view, client, prefix), config, kafka_timeout_s)


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


def _with_log(view: SourceView, config: Config, kafka_timeout_s: float) -> SourceView:
    log = config.log
    try:
        if isinstance(log, KafkaLog):
            view = replace(view, prefix=f"{log.topic_prefix}.")
            return replace(view, ends=_kafka_ends(log, kafka_timeout_s))
        view = replace(view, prefix=f"{log.topic_prefix}." if log.topic_prefix else "")
        archive = ArchiveReader(open_storage(log.path, config.lake.catalog_options))
        prefix = log.topic_prefix or archive.manifest.topic_prefix
        return replace(view, prefix=f"{prefix}.", ends=archive.end_offsets())
    except LogError as error:
        return replace(view, log_problem=error.message)


def _kafka_ends(log: KafkaLog, timeout_s: float) -> Ends:
    admin = KafkaAdmin(log, timeout_s=timeout_s)
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
