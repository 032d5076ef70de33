"""Events that tests append to archives one by one."""

from replicator.sources.archive.format import Event
from replicator.sources.archive.pending import Records
from replicator.sources.archive.writer import ArchiveWriter


def append_event(writer: ArchiveWriter, event: Event) -> None:
    """Append an event to an archive."""
    records = Records([event.offset], [event.timestamp], [event.key], [event.value], [event.headers])
    writer.extend(event.topic, event.partition, records)
