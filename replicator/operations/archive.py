"""Inspect an event archive: what it has of each partition, and whether its files are whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from replicator.errors import ArchiveError, UsageError
from replicator.model.common import ShowProgress, counted, matches
from replicator.model.position import place_order
from replicator.sources.archive.format import Segment
from replicator.sources.archive.origin import Beginning, Beginnings
from replicator.sources.archive.positions import SourceSpan
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What an archive has of one partition.

    Attributes:
        first, last, end: offset of the first and the last event, and the offset at which recording continues.
        segments: the parts of it, in offset order.
        times: lowest and highest time of the log, milliseconds since the epoch; None if no segment has an index.
        source: positions, times and transactions in the source; None if none are known.
        is_indexed: whether all segments have an index; those of versions 1 and 2 have none.
        beginning: whether the archive has all rows of the table; None for schema changes.
    """

    topic: str
    partition: int
    first: int
    last: int
    end: int
    events: int
    segments: tuple[Segment, ...]
    times: tuple[int, int] | None
    source: SourceSpan | None
    is_indexed: bool
    beginning: Beginning | None


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """The contents of an archive.

    Attributes:
        events, files, bytes: totals of the whole archive, not only of the chosen tables.
        verified: number of files whose content was read and compared with the checksum; None if that was not asked for.
        problems: what is wrong with files.
    """

    location: str
    topic_prefix: str
    encoding: str
    created: datetime
    events: int
    files: int
    bytes: int
    partitions: tuple[PartitionReport, ...]
    verified: int | None
    problems: tuple[str, ...]


def read_archive(
    location: str,
    options: Mapping[str, str],
    *,
    tables: Sequence[str] = (),
    verify: bool = False,
    on_progress: ShowProgress = lambda *_: None,
) -> ArchiveReport:
    """Return the contents of the archive at `location`, a folder or a URL.

    `options` are PyIceberg's settings of object stores. With `verify`, every file is read, and `on_progress` is called
    with a text and the number of files that are done and in all.

    Raises:
        ArchiveError: there is no archive, or its index is damaged; without `verify`, also if files are missing.
        UsageError: a pattern matches no topic.
    """
    reader = ArchiveReader(open_storage(location, lambda: options), check_sizes=not verify)
    manifest = reader.manifest
    problems = _verify(reader, on_progress) if verify else ()
    beginnings = None if problems else Beginnings(reader)
    return ArchiveReport(
        location=location,
        topic_prefix=manifest.topic_prefix,
        encoding=manifest.encoding,
        created=manifest.created,
        events=manifest.events,
        files=len(reader.entries),
        bytes=manifest.bytes,
        partitions=tuple(
            _partition(reader, topic, partition, beginnings)
            for topic in _chosen(reader, tables)
            for partition in reader.partitions(topic)
        ),
        verified=len(reader.entries) if verify else None,
        problems=problems,
    )


def _chosen(reader: ArchiveReader, patterns: Sequence[str]) -> list[str]:
    prefix = reader.manifest.topic_prefix
    names = {topic: topic.removeprefix(f"{prefix}.") for topic in reader.topics()}
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names.values()):
            raise UsageError(f"--table {pattern}: the archive has no topic of this table")
    return [topic for topic, name in names.items() if not patterns or matches(name, patterns)]


def _partition(
    reader: ArchiveReader, topic: str, partition: int, beginnings: Beginnings | None
) -> PartitionReport:
    is_data = topic.startswith(f"{reader.manifest.topic_prefix}.")
    entry = reader.manifest.partitions[topic, partition]
    segments = tuple(reader.segments(topic, partition))
    times = [segment.times for segment in segments if segment.times is not None]
    spans = [segment.source for segment in segments if segment.source is not None]
    return PartitionReport(
        topic=topic,
        partition=partition,
        first=entry.first,
        last=entry.last,
        end=entry.end,
        events=entry.count,
        segments=segments,
        times=(min(low for low, _ in times), max(high for _, high in times)) if times else None,
        source=_joined(spans) if spans else None,
        is_indexed=all(segment.is_indexed for segment in segments),
        beginning=beginnings.of(topic) if is_data and beginnings is not None else None,
    )


def _joined(spans: Sequence[SourceSpan]) -> SourceSpan:
    gtids: dict[str, tuple[int, int]] = {}
    for span in spans:
        for source, (first, last) in span.gtids.items():
            known = gtids.get(source, (first, last))
            gtids[source] = min(first, known[0]), max(last, known[1])
    return SourceSpan(
        first=min((span.first for span in spans), key=place_order),
        last=max((span.last for span in spans), key=place_order),
        times=(min(span.times[0] for span in spans), max(span.times[1] for span in spans)),
        gtids=gtids,
    )


def _verify(reader: ArchiveReader, on_progress: ShowProgress) -> tuple[str, ...]:
    """Read every file; files without a checksum are decoded instead."""
    problems = []
    for done, entry in enumerate(reader.entries.values()):
        on_progress("verifying", done, len(reader.entries))
        try:
            events = sum(batch.num_rows for batch in reader.file_batches(entry.path))
            if events != entry.events:
                problems.append(f"{entry.path} has {counted(events, 'event')}, the index says {entry.events}")
        except ArchiveError as error:
            problems.append(error.message)
    try:
        reader.writer_schemas()
    except ArchiveError as error:
        problems.append(error.message)
    return tuple(problems)
