"""Read the newest boundary before which all changes are in the log, and where the log ended then."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from replicator.config import ArchiveLog, Config
from replicator.errors import SourceError, Unsettled
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.commit_marker import CommitMarker
from replicator.model.gtid import GtidSet
from replicator.model.table import SOURCE_KEY, TableId, topic_name
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.tables import InputKind, InputTable
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage
from replicator.sources.connector.settings import kafka_log
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.sources.source_positions import SourcePositions, required_positions, source_positions

Offsets = Mapping[str, Mapping[int, int]]
_ASK_S: Final = 5.0
"""How long the end of a source's binlog is known, if the connector confirms nothing more."""
_RUN: Final = "it is refreshed when the mirror has them: replicator status"


@dataclass(frozen=True, slots=True)
class LogEnds:
    """A boundary, and the ends of the log's partitions before which all changes from before it are.

    Attributes:
        ends: topic → partition → the next offset.
        prefix: the prefix of the log's topics.
        tag: the tag that results get which are refreshed to the boundary; None for none.
    """

    boundary: Boundary
    ends: Offsets
    prefix: str
    tag: str | None = None

    def check_reached(self, table: InputTable) -> None:
        """Check that an input has all changes from before the boundary.

        Raises:
            Unsettled: it lacks events that the log has.
        """
        if table.kind in (InputKind.RESULT, InputKind.LOG):
            return
        if not self._is_reached(table, table.marker()):
            raise Unsettled(f"{table.name} lacks events that the log has", _RUN)

    def is_reached(self, table: InputTable) -> bool:
        """Return whether an input that the source's changes are applied to has all from before the boundary."""
        marker = table.table.marker()
        return marker is not None and self._is_reached(table, marker)

    def _is_reached(self, table: InputTable, marker: CommitMarker) -> bool:
        database, _, name = (table.table.property(SOURCE_KEY) or "").partition(".")
        own = f"{self.prefix}.{topic_name(TableId(database, name))}"
        return all(
            (marker.next_offset(topic, partition) or 0) >= end or self._is_passed(marker, topic, partition)
            for topic in {*marker.progress, own}
            for partition, end in self.ends.get(topic, {}).items()
        )

    def _is_passed(self, marker: CommitMarker, topic: str, partition: int) -> bool:
        """Return whether a table has a change from after the boundary of this partition, so all from before it too.

        The connector sends the changes of a partition in the order of the source, and nothing it has confirmed later.
        """
        reached = marker.progress.get(topic, {}).get(partition)
        newest = None if reached is None else reached.high_water
        # Rows that were read since may be of a replica that lagged: the changes that follow them are new.
        return (
            newest is not None
            and newest.snapshot is None
            and self.boundary.is_passed_by(newest.position.gtid)
        )


NO_POSITION: Final = LogEnds(Boundary(), {}, "")
"""For results of log tables alone, which have no position in the source."""


ReadEnds = Callable[[], LogEnds]
"""Reads the ends of the log.

Raises:
    Unsettled: no boundary is known at the moment.
    LogError, ConnectError: the log or Kafka Connect does not answer.
    UsageError: Kafka Connect is not configured.
"""


def ends_reader(config: Config, *, required: bool = True) -> ReadEnds:
    """Return what reads the ends of the configured log.

    Raises:
        UsageError: only Kafka Connect would know a boundary, and it is not configured. If no boundary is `required`,
            this is raised when the ends are read.
    """
    if isinstance(config.log, ArchiveLog):
        return _ArchiveEnds(config, config.log)
    return _KafkaEnds(config, required_positions(config) if required else source_positions(config))


@dataclass(frozen=True, slots=True)
class _ArchiveEnds:
    """An archive does not grow: it ends behind the last transaction."""

    config: Config
    log: ArchiveLog

    def __call__(self) -> LogEnds:
        reader = ArchiveReader(open_storage(self.log.path, self.config.lake.catalog_options))
        ends: dict[str, dict[int, int]] = {}
        for (topic, partition), end in reader.end_offsets().items():
            ends.setdefault(topic, {})[partition] = end
        return LogEnds(Boundary(), ends, self.log.topic_prefix or reader.manifest.topic_prefix)


@dataclass(slots=True)
class SourceEnd:
    """The end of a source's binlog, which is asked for only if the connector may have reached it.

    While the connector confirms more and more, it has not. Each question takes a connection of its own.
    """

    clock: Callable[[], float] = time.monotonic
    _known: BinlogEnd | None = None
    _at: tuple[str, int, GtidSet | None] | None = None
    _until: float = 0.0

    def when_confirmed(self, offset: ConnectorOffset, positions: SourcePositions) -> BinlogEnd | None:
        """Return the end, after the connector has confirmed `offset`; None if it is not known."""
        # Without the time, which heartbeats change.
        at = offset.file, offset.pos, offset.gtids
        moves = self._at is not None and at != self._at
        if moves or self.clock() >= self._until:
            self._at, self._known, self._until = at, None, 0.0
            if not moves:
                self._until = self.clock() + _ASK_S
                with suppress(SourceError):
                    self._known = positions.end()
        return self._known


@dataclass(frozen=True, slots=True)
class _KafkaEnds:
    config: Config
    positions: SourcePositions | None
    end: SourceEnd = field(default_factory=SourceEnd)

    def __call__(self) -> LogEnds:
        positions = self.positions or required_positions(self.config)
        offset = positions.confirmed()
        if offset is None or offset.in_snapshot:
            raise Unsettled(
                "the connector has not confirmed a position yet", "it does within offset.flush.interval.ms"
            )
        asks = self.config.source.url is not None
        boundary = Boundary.of(offset, self.end.when_confirmed(offset, positions) if asks else None)
        # Read after the position: all changes from before it are before these ends.
        settings = kafka_log(self.config)
        admin = KafkaAdmin(settings, timeout_s=PATIENT_S)
        wanted = [(topic, p) for topic, found in admin.partitions().items() for p in found]
        wanted = [place for place in wanted if place[0].startswith(f"{settings.topic_prefix}.")]
        ends: dict[str, dict[int, int]] = {}
        for (topic, partition), end in (admin.end_offsets(wanted, committed=True) if wanted else {}).items():
            ends.setdefault(topic, {})[partition] = end
        return LogEnds(boundary, ends, settings.topic_prefix)
