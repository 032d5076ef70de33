"""Repair the connector of a running mirror: let it read the definitions of all tables again, or set tables aside.

The settings of the connector tell what a repair has done, so `replicator connect` undoes all of it. A record in the
lake tells that a repair was begun: the next process completes it.

A table that is set aside gets no events from the connector. It must not continue before it was read again, and it must
not be read before the connector sends its events again: see `blocks`.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from replicator import failpoints
from replicator.batch import MirrorContext
from replicator.config import KafkaLog
from replicator.errors import ConnectError, LogError
from replicator.model.position import SourcePosition
from replicator.model.recorded import Record, records_in
from replicator.model.table import TableId
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.policy import Observation
from replicator.sources.connector.settings import connect_client, set_aside, setting_aside
from replicator.sources.connector.state import Connector
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.telemetry import get_logger

LOST_BINLOG: Final = "MySQL deleted binlogs that the connector had not read"
REPAIR_KEY: Final = "replicator.connector-repair"
"""The property of the `_ops` namespace that tells which repair was begun; empty if none."""

_LOG: Final = get_logger("replicator.repair")
_POLL_S: Final = 0.5
_RETRY_S: Final = 5.0
_REBUILD_S: Final = 300.0
"""How long the connector may take to read the definitions of all tables."""
_MODE: Final = "snapshot.mode"
_RECOVERY: Final = "recovery"


@dataclass(frozen=True, slots=True)
class _Begun(Record):
    """A repair that was begun.

    Attributes:
        rebuilds: whether the connector reads the definitions again.
        heartbeats: how many heartbeats it had sent when it was stopped for that. It sends the next one when it has
            read the definitions. None before it was stopped.
    """

    WHAT = "the record of a repair"
    rebuilds: bool
    heartbeats: int | None = None


class ConnectorRepair:
    """The repairs of one mirror's connector. Any thread may request one.

    `load` and `step` are for the scheduler's; they may raise LakeUnavailable, and forget nothing then.
    """

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._client = connect_client(context.config)
        self._lock = threading.Lock()
        # What was requested: why definitions are read again, further settings, table → set aside.
        self._rebuild: str | None = None
        self._added: dict[str, str] = {}
        self._moves: dict[TableId, bool] = {}
        self._begun: _Begun | None = None
        self._aside: frozenset[TableId] | None = None
        self._must_look = False
        self._due_at = 0.0
        self._deadline: float | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the mirror knows the address of Kafka Connect."""
        return self._client is not None

    @property
    def is_busy(self) -> bool:
        """Whether a repair is left to do."""
        with self._lock:
            return bool(self._begun or self._rebuild or self._added or self._moves)

    @property
    def aside(self) -> frozenset[TableId]:
        """The tables that are set aside, also if the connector does not know yet."""
        with self._lock:
            return self._wanted_aside()

    def blocks(self, table: TableId) -> bool:
        """Return whether a table must not be read now: later events of it would be lacking or wrong."""
        return self.is_possible and (self.is_busy or self._must_look or table in self.aside)

    def rebuild_history(self, reason: str) -> None:
        """Let the connector replace its schema history by the definitions that the source has.

        No re-read begins before that is done. Tables with statements between the connector's offset and now must be
        read again, because their events were decoded by the later definition.
        """
        with self._lock:
            self._rebuild = self._rebuild or reason

    def add_settings(self, settings: Mapping[str, str]) -> None:
        """Give the connector further settings, which `replicator connect` may remove again."""
        with self._lock:
            self._added |= settings

    def without_table(self, table: TableId) -> None:
        """Set a table aside. A held re-read of it must have been requested."""
        with self._lock:
            self._moves[table] = True

    def with_table(self, table: TableId) -> None:
        """Let the connector send the events of a table again."""
        with self._lock:
            self._moves[table] = False

    def begin_again(self, reason: str) -> None:
        """Let the connector begin again at the end of the binlog.

        Raises:
            ConnectError: Kafka Connect failed; try again.
        """
        if self._client is not None:
            name = self._connector(self._client).name
            _LOG.warning("the connector begins again at the end of the binlog", connector=name, reason=reason)
            self._client.reset(name)

    def load(self) -> None:
        """Learn what an earlier process has begun; `step` completes it."""
        if self._client is None:
            return
        lake, config = self._context.lake, self._context.config
        properties = lake.namespace_properties(config.lake.ops_namespace)
        self._begun = records_in(properties, REPAIR_KEY, _Begun.from_json).get("")
        # The settings of the connector tell which tables are set aside.
        self._must_look = True

    def step(self) -> None:
        """Do what can be done now."""
        if self._client is None or time.monotonic() < self._due_at:
            return
        if not (self.is_busy or self._must_look):
            return
        self._due_at = time.monotonic() + _POLL_S
        try:
            self._carry_out(self._client)
        except (ConnectError, LogError) as error:
            self._due_at = time.monotonic() + _RETRY_S
            _LOG.warning("the connector cannot be repaired yet", reason=error.message, next=error.hint)

    def _carry_out(self, client: KafkaConnect) -> None:
        """Compare the settings of the connector with those that it should have, and change them if they differ.

        Raises:
            ConnectError, LogError: Kafka Connect or Kafka does not answer, or the connector was stopped by someone.
        """
        connector = self._connector(client)
        if self._aside is None:
            self._aside = set_aside(connector.options)
        self._must_look = False
        with self._lock:
            reason, added, moves, aside = (
                self._rebuild,
                dict(self._added),
                dict(self._moves),
                self._wanted_aside(),
            )
        rebuilds = reason is not None or (self._begun is not None and self._begun.rebuilds)
        if rebuilds and (self._has_rebuilt(client, connector) or self._takes_too_long(connector)):
            self._restore(client, connector)
            return
        wanted = setting_aside(connector.options, aside) | added
        if rebuilds:
            wanted[_MODE] = _RECOVERY
        if wanted != connector.options:
            self._change(client, connector, wanted, rebuilds=rebuilds, reason=reason)
        elif self._begun is not None and connector.state.state == "STOPPED":
            client.resume(connector.name)
        with self._lock:
            self._aside = aside
            self._added = {name: value for name, value in self._added.items() if name not in added}
            self._moves = {t: out for t, out in self._moves.items() if moves.get(t) is not out}
        if not rebuilds and self._begun is not None:
            self._record(None)

    def _wanted_aside(self) -> frozenset[TableId]:
        added = {table for table, out in self._moves.items() if out}
        return ((self._aside or frozenset()) - self._moves.keys()) | added

    def _change(
        self,
        client: KafkaConnect,
        connector: Connector,
        wanted: Mapping[str, str],
        *,
        rebuilds: bool,
        reason: str | None,
    ) -> None:
        """Stop the connector, so that no task works with the former settings, and let it continue with others."""
        name, state = connector.name, connector.state
        if state.state in ("PAUSED", "STOPPED") and self._begun is None:
            seen = Observation.of_connector(state)
            raise ConnectError(seen.describe(), seen.next_step())
        self._record(_Begun(rebuilds))
        client.stop(name)
        failpoints.reach("after-repair-stop")
        client.await_stopped(name)
        if rebuilds:
            self._deadline = time.monotonic() + _REBUILD_S
            self._record(_Begun(rebuilds, self._heartbeats()))
            failpoints.reach("after-repair-record")
            at = client.offset(name) or {}
            # By this, its definitions are not taken for those of a connector that begins somewhere else.
            self._context.recoveries.add(SourcePosition(str(at.get("file", "")), int(at.get("pos", 0))))
        client.put(name, wanted)
        failpoints.reach("after-repair-put")
        client.resume(name)
        aside = sorted(map(str, set_aside(wanted)))
        if rebuilds:
            _LOG.warning("the connector reads all definitions again", connector=name, reason=reason)
        _LOG.info("the connector has other settings", connector=name, set_aside=aside)

    def _has_rebuilt(self, client: KafkaConnect, connector: Connector) -> bool:
        """Return whether the connector has read the definitions."""
        begun = self._begun
        if begun is None or begun.heartbeats is None or connector.options.get(_MODE) != _RECOVERY:
            return False
        if self._heartbeats() > begun.heartbeats:
            _LOG.info("the connector has read all definitions again", connector=connector.name)
            return True
        if connector.state.summary == "FAILED":
            client.restart(connector.name)
        return False

    def _takes_too_long(self, connector: Connector) -> bool:
        """Return whether to give up. Whoever wanted it finds that nothing has changed."""
        if self._deadline is None:
            self._deadline = time.monotonic() + _REBUILD_S
        if time.monotonic() < self._deadline:
            return False
        seen = Observation.of(connector.state)
        _LOG.error(
            "the connector cannot read all definitions again", reason=seen.describe(), next=seen.next_step()
        )
        return True

    def _restore(self, client: KafkaConnect, connector: Connector) -> None:
        failpoints.reach("before-repair-restore")
        mode = "no_data" if self._context.config.reads_new_tables else "initial"
        client.put(connector.name, {**connector.options, _MODE: mode})
        self._record(None)
        with self._lock:
            self._rebuild, self._deadline = None, None
        # Something else may have been requested meanwhile.
        self._must_look = True

    def _connector(self, client: KafkaConnect) -> Connector:
        log = self._context.config.log
        if not isinstance(log, KafkaLog):
            raise ConnectError("a mirror of an archive has no connector")
        connector = client.find(log.topic_prefix)
        if connector is None:
            raise ConnectError("no connector has the topic prefix of the mirror", "run: replicator connect")
        return connector

    def _heartbeats(self) -> int:
        """Return how many heartbeats the connector has sent.

        Raises:
            LogError: Kafka does not answer.
        """
        log = self._context.config.log
        if not isinstance(log, KafkaLog):
            return 0
        admin, topic = KafkaAdmin(log, timeout_s=PATIENT_S), f"__debezium-heartbeat.{log.topic_prefix}"
        partitions = [(topic, partition) for partition in admin.partitions().get(topic, [])]
        return sum(admin.end_offsets(partitions).values())

    def _record(self, begun: _Begun | None) -> None:
        self._context.lake.set_namespace_property(
            self._context.config.lake.ops_namespace, REPAIR_KEY, "" if begun is None else begun.to_json()
        )
        self._begun = begun
