"""The state of a mirror's source: of MySQL, the connector and the log, or of an archive."""

from collections.abc import Mapping
from dataclasses import dataclass

from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.sources.connector.policy import UNREACHABLE, Observation

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) → the offset of the log's next event."""


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
