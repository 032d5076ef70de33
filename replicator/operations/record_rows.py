"""Take the rows of tables into an archive whose events lack them: a short-lived connector sends them as a snapshot.

Debezium reads all tables at one position of the binlog, and writes each value as it does in events. Its topics are
recorded under names of their own, and deleted. The archive then has what a replay needs: the rows, and all events after
their position.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, UsageError
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.common import literal_regex
from replicator.model.table import TableId, topic_name
from replicator.sources.archive.format import ArchivedRows
from replicator.sources.archive.origin import Beginning, Beginnings
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import Storage
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.settings import connect_client, connector_config, kafka_log, secrets_in
from replicator.sources.connector.state import failure_hint
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin

_POLL_S: Final = 0.5
_MARK: Final = "-rows-"
_OWN_TOPICS: Final = ("debezium-schema-history", "debezium-heartbeat", "notifications")


def lacking_tables(config: Config, archive: Storage) -> list[TableId]:
    """Return the mirrored tables of the source whose first rows the archive lacks.

    Raises:
        SourceError: the source cannot be queried.
        ArchiveError: the archive cannot be read.
    """
    # SQLAlchemy takes a second to import.
    from replicator.sources.mysql.tables import included_tables  # noqa: PLC0415

    reader = ArchiveReader(archive)
    begun, known = Beginnings(reader), set(reader.topics())
    prefix = reader.manifest.topic_prefix
    topics = {table: f"{prefix}.{topic_name(table)}" for table in included_tables(config)}
    return [t for t, topic in topics.items() if topic not in known or begun.of(topic) is not Beginning.WHOLE]


def await_main_connector(config: Config, at: ConnectorOffset, stopped: Callable[[], bool]) -> None:
    """Wait until the mirror's connector has written all events from before a position, or until `stopped`.

    Raises:
        ConnectError: there is no such connector, or it does not run.
    """
    client, end = connect_client(config), BinlogEnd(at.file, at.pos, at.gtids)
    while client is not None and not stopped():
        connector = client.find(kafka_log(config).topic_prefix)
        if connector is None or connector.state.failures:
            raise ConnectError("the mirror's connector does not run", "run: replicator connect")
        offset = client.offset(connector.name)
        if offset is not None and ConnectorOffset.from_json(offset).covers(end):
            return
        time.sleep(_POLL_S)


def archived_rows(
    config: Config, prefix: str, tables: Sequence[TableId], at: ConnectorOffset
) -> dict[str, ArchivedRows]:
    """Return what the archive tells of the rows at a position, by the topic of each table.

    Raises:
        SourceError: the source does not answer.
    """
    # SQLAlchemy takes a second to import.
    from sqlalchemy import text  # noqa: PLC0415

    from replicator.sources.mysql.connection import connect  # noqa: PLC0415

    with connect(config.source) as connection:
        server_id, ts_ms = connection.execute(
            text("SELECT @@server_id, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
        ).one()
    main = kafka_log(config).topic_prefix
    return {
        f"{main}.{topic_name(t)}": ArchivedRows(
            t.database, t.name, f"{prefix}.{topic_name(t)}", at.file, at.pos, int(server_id), int(ts_ms)
        )
        for t in tables
    }


class RowsConnector:
    """A connector that sends the rows of some tables once, into topics with a prefix of their own.

    Attributes:
        log: the topics.
    """

    def __init__(self, config: Config) -> None:
        """Raises UsageError if Kafka Connect is not configured, and ConfigError if a secret is missing."""
        if not isinstance(config.log, KafkaLog) or config.log.connect_url is None:
            raise UsageError(
                "--with-rows needs Kafka Connect", 'add connect_url = "http://host:8083" to [log]'
            )
        self._names = f"{config.mirror.name}{_MARK}"
        self._prefixes = f"{config.log.topic_prefix}{_MARK}"
        # Kafka Connect keeps the offset of a connector that was removed, by its name.
        attempt = uuid.uuid4().hex[:8]
        self._name = f"{self._names}{attempt}"
        self.log = config.log.model_copy(update={"topic_prefix": f"{self._prefixes}{attempt}"})
        self._settings = connector_config(config.model_copy(update={"log": self.log})) | {
            "snapshot.mode": "initial_only",
            # Otherwise its position could be a later one than that of the rows.
            "snapshot.locking.mode": "minimal",
            "include.schema.changes": "false",
            "heartbeat.interval.ms": "0",
            "provide.transaction.metadata": "false",
            # Otherwise there would be no position if no table has rows.
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"__notifications.{self.log.topic_prefix}",
        }
        self._settings.pop("signal.data.collection", None)
        self._worker = KafkaConnect(config.log.connect_url, secrets_in(self._settings))

    @contextmanager
    def sent(
        self, tables: Sequence[TableId], stopped: Callable[[], bool]
    ) -> Iterator[ConnectorOffset | None]:
        """Send the rows, and provide their position; None if `stopped`. Afterwards nothing of it is left.

        Raises:
            ConnectError: Kafka Connect does not answer, or the connector failed.
            LogUnavailable: Kafka does not answer.
        """
        # An attempt that was killed may have left something.
        self._remove()
        try:
            names = ",".join(literal_regex(str(table)) for table in tables)
            self._worker.put(self._name, self._settings | {"table.include.list": names})
            yield self._read(stopped)
        finally:
            self._remove()

    def _read(self, stopped: Callable[[], bool]) -> ConnectorOffset | None:
        while not stopped():
            state = self._worker.state(self._name)
            if state is not None and state.failures:
                raise ConnectError(
                    f"the rows could not be read: {state.failures[0]}", failure_hint(state.failures[0])
                )
            # It is committed after all records before it.
            offset = self._worker.offset(self._name)
            if offset is not None and not (at := ConnectorOffset.from_json(offset)).in_snapshot:
                return at
            time.sleep(_POLL_S)
        return None

    def _remove(self) -> None:
        for name in self._worker.names():
            if name.startswith(self._names):
                self._worker.delete(name)
        admin = KafkaAdmin(self.log, timeout_s=PATIENT_S)
        # Of rows, of the connector's history, and of its notifications.
        kinds = (self._prefixes, *(f"__{kind}.{self._prefixes}" for kind in _OWN_TOPICS))
        admin.delete_topics([topic for topic in admin.partitions() if topic.startswith(kinds)])
