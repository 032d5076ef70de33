"""Query MySQL, the connector and Kafka about a mirror's source, in an order that gives a consistent statement.

First the end of the binlog, then the connector's position, then the ends of the topics: if the connector has read
up to the end of the binlog, all changes up to there are before the ends of the topics.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, LogError, ReplicatorError
from replicator.model.binlog import ConnectorOffset
from replicator.model.common import quoted
from replicator.model.table import TableId, topic_name
from replicator.sources.connector.policy import MISSING, UNREACHABLE, Observation
from replicator.sources.kafka.admin import QUICK_S, KafkaAdmin
from replicator.sources.source_view import Ends, SourceView

if TYPE_CHECKING:
    from replicator.sources.connector.connect import KafkaConnect
    from replicator.sources.mysql.connection import Ask

_SLOW_S: Final = 30
_LOOKED_AT: Final = 200
"""At most this many tables without events are queried for rows."""


def read_servers(config: Config, log: KafkaLog, kafka_timeout_s: float | None) -> SourceView:
    """Query all servers. A server that cannot be reached is recorded and raises no error."""
    view = SourceView(f"{log.topic_prefix}.", is_asked=log.connect_url is not None)
    with ThreadPoolExecutor(2) as pool:
        # Importing the clients, connecting, and waiting for a server that is down take longer than the questions.
        kafka = pool.submit(_kafka, log, kafka_timeout_s or QUICK_S)
        if not view.is_asked:
            return _with_log(view, kafka)
        connector = pool.submit(_connector, config, log.topic_prefix)
        from replicator.sources.mysql.connection import asking, binlog_end, tables_for  # noqa: PLC0415

        try:
            with asking(config.source, read_timeout=_SLOW_S) as ask:
                view = replace(view, end=binlog_end(ask))
                tables = tables_for(config, ask)
                view = _with_log(_with_connector(view, connector), kafka)
                return _with_missing(view, ask, tables)
        except (ReplicatorError, ValueError) as error:
            problem = error.message if isinstance(error, ReplicatorError) else str(error)
            view = replace(view, source_problem=problem)
        return _with_log(_with_connector(view, connector), kafka)


def _connector(config: Config, topic_prefix: str) -> "tuple[KafkaConnect, str, Observation] | None":
    """Return the client, the connector's name and its state; None if there is no connector. Raises ConnectError."""
    from replicator.sources.connector.settings import connect_client  # noqa: PLC0415

    client = connect_client(config)
    if client is None or (found := client.find(topic_prefix)) is None:
        return None
    return client, found.name, Observation.of(found.state)


def _kafka(log: KafkaLog, timeout_s: float) -> KafkaAdmin:
    """Connect to Kafka. Raises LogError."""
    admin = KafkaAdmin(log, timeout_s=timeout_s)
    admin.connect()
    return admin


def _with_connector(
    view: SourceView, connector: "Future[tuple[KafkaConnect, str, Observation] | None]"
) -> SourceView:
    try:
        found = connector.result()
        if found is None:
            return replace(view, connector=Observation(MISSING))
        client, name, seen = found
        view = replace(view, connector=seen)
        offset = client.offset(name)
        return replace(view, offset=None if offset is None else ConnectorOffset.from_json(offset))
    except ConnectError as error:
        return replace(view, connector=Observation(UNREACHABLE, error.message))
    except ValueError:
        return view


def _with_log(view: SourceView, kafka: Future[KafkaAdmin]) -> SourceView:
    try:
        return replace(view, ends=_ends(kafka.result(), view.prefix))
    except LogError as error:
        return replace(view, log_problem=error.message)


def _ends(admin: KafkaAdmin, prefix: str) -> Ends:
    # Topics may be new since the connection was opened.
    topics = {name: ps for name, ps in admin.partitions().items() if name.startswith(prefix)}
    return admin.end_offsets((name, partition) for name, ps in topics.items() for partition in ps)


def _with_missing(view: SourceView, ask: "Ask", tables: Sequence[TableId]) -> SourceView:
    """Classify tables without events as empty or unread: a snapshot creates no topic for an empty table."""
    if view.ends is None:
        return view
    written = {topic for (topic, _), end in view.ends.items() if end > 0}
    empty: list[str] = []
    unread: list[str] = []
    missing = [t for t in tables if view.prefix + topic_name(t) not in written]
    for table in missing[:_LOOKED_AT]:
        [[has_rows]] = ask(f"SELECT EXISTS (SELECT 1 FROM {quoted(table.database, table.name)})")
        (unread if has_rows else empty).append(str(table))
    return replace(view, empty=tuple(empty), unread=tuple(unread))
